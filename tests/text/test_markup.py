"""What of markdown, tags, addresses and emoji is spoken."""

from __future__ import annotations

import json
from pathlib import Path

import emoji
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.text import Segment, SplitterOptions
from tests.text.texts import split, spoken

ALL = SplitterOptions(min_weight=0, first_min_weight=1000)


def said(text: str, options: SplitterOptions = ALL) -> list[str]:
    return [piece for piece in spoken(text, options) if piece]


# --- inline --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("This is **very** *much* ***so***.", "This is very much so."),
        ("__Bold__ and _italic_ and ~~gone~~.", "Bold and italic and gone."),
        ("2*3*4 is 24 and 2**3 is 8.", "2*3*4 is 24 and 2**3 is 8."),
        ("2 * 3 is 6.", "2 * 3 is 6."),
        ("Use snake_case_names in main.py.", "Use snake_case_names in main.py."),
        ("About ~5 km.", "About ~5 km."),
        ("这是**重点**内容和*斜体*。", "这是重点内容和斜体。"),
        ("un**frigging**believable", "unfriggingbelievable"),
        ("Call `os.path.join(*args)` now.", "Call os.path.join(*args) now."),
        ("Use ``a `b` c`` here.", "Use a b c here."),
        ("An open ` backtick\nand *more* text.", "An open backtick and more text."),
        ("Read [the **docs**](https://a.b/c_(d)) first.", "Read the docs first."),
        ('See [it](x.y "Title of it") now.', "See it now."),
        ("See ![a cat](cat.png) here.", "See a cat here."),
        ("Wow ![", "Wow !["),
        ("See [[[[[deep]]]]](x.y) here.", "See [[[[[deep]]]]](x.y) here."),
        ("An array a[0] and [sic] and [x] (y).", "An array a[0] and [sic] and [x] (y)."),
        ("f[x](the value of y) is text.", "f[x](the value of y) is text."),
        ("It is so.[^1] Yes.", "It is so. Yes."),
        ("Not \\*bold\\* at all.", "Not *bold* at all."),
        ("A\\B and C:\\dir.", "A\\B and C:\\dir."),
        ("Fish &amp; chips &lt;3 &#233; &quot;x&quot; AT&T &c.", 'Fish & chips 3 é "x" AT&T &c.'),
        ("x < 5 and y > 3 and a<b.", "x < 5 and y > 3 and a< b."),
        ("A long run *********** of stars.", "A long run of stars."),
    ],
)
def test_inline_markup(text: str, expected: str) -> None:
    """Emphasis, code, links, images, escapes and entities leave what they are about."""
    assert " ".join(said(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://example.com/a.b?c=1.2&d=e!f#g for more.", "See example.com for more."),
        ("Read https://docs.python.org/3/library/re.html.", "Read docs.python.org."),
        ("Or visit www.foo.co.uk.", "Or visit www.foo.co.uk."),
        ("At https://www.example.com/x, say.", "At example.com, say."),
        ("(http://user:pw@host.org:8080/x)", "(host.org)"),
        ("See **https://a.bc/d**!", "See a.bc!"),
        ("A wiki: https://en.org/A_(b)_c and so on.", "A wiki: en.org and so on."),
        ("<https://a.bc/d> or <me@a.bc> or <mailto:me@a.bc>.", "a.bc or me@a.bc or me@a.bc."),
        ("请看https://example.com/x。谢谢", "请看example.com。谢谢"),
        (
            "Write to me@www.example.com or how what where.",
            "Write to me@www.example.com or how what where.",
        ),
        ("https:// and www. alone", "https and www. alone"),
    ],
)
def test_addresses_are_host_names(text: str, expected: str) -> None:
    """A bare URL is spoken as its host name, with the marks around it."""
    assert " ".join(said(text)).replace("。 ", "。") == expected


def test_addresses_can_be_dropped_or_kept() -> None:
    """The two other choices."""
    text = "See https://a.bc/d?e, then go."
    assert said(text, SplitterOptions(urls="keep", first_min_weight=99)) == [text]
    assert said(text, SplitterOptions(urls="drop", first_min_weight=99)) == ["See, then go."]


def test_data_addresses_are_skipped_as_they_come() -> None:
    """A link target or an address of any length is not spoken; a huge one is a boundary."""
    for size in (500, 3_000):
        data = "data:image/png;base64," + "QUJD" * (size // 4)
        assert said(f"Look ![a dot]({data}) here.") == ["Look a dot here."]
        assert said(f"Look http://a.bc/{'x' * size} here.") == ["Look a.bc here."]
    assert said(f"Look ![a dot](data:{'QUJD' * 9000}) here.") == ["Look a dot", "here."]


# --- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## Step 1: Setup\nGo on.", ["Step 1: Setup", "Go on."]),
        ("#voice is a tag", ["#voice is a tag"]),
        ("- one\n- two\n  * three\n+ four\n• five", ["one", "two", "three", "four", "five"]),
        ("- [ ] open\n- [x] done", ["open", "done"]),
        ("1. First.\n2. second\n10) third", ["1. First.", "2. second", "10) third"]),
        ("> A quote\n> goes on.", ["A quote goes on."]),
        ("One\n\n---\n\nTwo\n* * *\nThree\n===", ["One", "Two", "Three"]),
        ("- 5 degrees\n-5 degrees\n+5 degrees", ["5 degrees", "-5 degrees", "+5 degrees"]),
        ("**Bold** line\n*Also* one", ["Bold line", "Also one"]),
        ("| Item | Cost |\n|---|:--:|\n| Tea | $1.50 |\n| Not | |\nEnjoy.", ["Item, Cost", "Tea, $1.50", "Not", "Enjoy."]),
        ("| a | b. | `c` |\n", ["a, b. c"]),
        ("Run:\n```python\nprint('Hi. There!')\n```\nDone.", ["Run:", "Done."]),
        ("~~~\ncode\n```\nmore\n~~~\nDone.", ["Done."]),
        ("```` \n```\ncode\n````\nDone.", ["Done."]),
        ("```\nx ```\ncode\n```\nDone.", ["Done."]),
        ("```inline code``` is text.", ["inline code is text."]),
        ("Never closed:\n```\ncode\ncode", ["Never closed:"]),
        ("    indented text\n\ttoo", ["indented text too"]),
        ("One.\r\nTwo.\rThree.\u2028Four.", ["One.", "Two.", "Three.", "Four."]),
    ],
)  # fmt: skip
def test_line_markup(text: str, expected: list[str]) -> None:
    """Headings, items, quotes, rules, tables and code fences."""
    assert said(text) == expected


# --- tags ----------------------------------------------------------------------------------------


def test_a_table_is_one_paragraph() -> None:
    """The rule under its head is no blank line."""
    table = "| Item | Cost |\r\n|---|---|\r\n| Tea | $1.50 |\n\nEnjoy."
    assert [(s.spoken, s.pause_s) for s in split(list(table), ALL)] == [
        ("Item, Cost", 0.0),
        ("Tea, $1.50", 0.3),
        ("Enjoy.", 0.0),
    ]


def test_a_break_is_silence_after_what_precedes_it() -> None:
    """`<break>` ends a segment and its silence follows; it needs no text before it."""
    text = 'One two. <break time="0.8s"/><break time=\'20ms\' /> three <break time="99s"/>'
    assert [(s.spoken, s.pause_s, s.reason) for s in split(list(text), ALL)] == [
        ("One two.", 0.8, "sentence"),
        ("", 0.02, "clause"),
        ("three", 10.0, "clause"),
    ]


def test_a_lone_break_is_a_segment() -> None:
    """A silence with nothing to say has its tag as text and no words."""
    assert split(['<break time="800ms"/>']) == [
        Segment('<break time="800ms"/>', "", 0, 21, "clause", 0.8, ())
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<speak>Hi <emphasis level='strong'>there</emphasis> you.</speak>", ["Hi there you."]),
        ("One<br/>Two<p>Three</p>", ["One", "Two", "Three"]),
        ("a <b and c> d", ["a < b and c> d"]),
        (
            "An <unclosed tag goes on and on and on and on and on and on and on and on, you see.",
            None,
        ),
        ("A <break/> without time", ["A without time"]),
        ("<!-- a comment --> Text", ["Text"]),
        ("I <3 you", ["I <3 you"]),
    ],
)
def test_other_tags_are_stripped(text: str, expected: list[str] | None) -> None:
    """Tags go, what only looks like one stays; nothing is held for ever."""
    if expected is None:
        assert " ".join(said(text)) == text.replace("<", "< ")
    else:
        assert said(text) == expected


@pytest.mark.parametrize("markup", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "Stop <|im_end|>now.",
        "Stop <tts_pad>now.",
        "Stop </think>now.",
        "Stop <|x|><|y|>now.",
    ],
)
def test_control_tokens_are_removed(text: str, markup: bool) -> None:
    """What a tokenizer would take for a token of its own never reaches it."""
    assert said(text, SplitterOptions(markup=markup)) == ["Stop now."]


# --- emoji ---------------------------------------------------------------------------------------


def test_every_emoji_is_dropped() -> None:
    """Every emoji there is leaves nothing behind, but the text that some of them are made of."""
    text_in_emoji = set("0123456789#*©®™ℹ‼⁉↔↕↖↗↘↙↩↪Ⓜ🈁")
    for sequence in emoji.EMOJI_DATA:
        if text_in_emoji.isdisjoint(sequence):
            assert spoken(f"Yes {sequence} sir", ALL) == ["Yes sir"], sequence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Great job! 🎉🎉 See you soon 👋🏽. Family: 👨\u200d👩\u200d👧\u200d👦!", ["Great job!", "See you soon.", "Family!"]),
        ("🎉 Party time! 🥳🎂 Let's go 🚀", ["Party time!", "Let's go"]),
        ("✅ Done\n❌ Not done", ["Done", "Not done"]),
        ("Press 1️⃣ or #️⃣ now ©2024 Acme™.", ["Press 1 or # now ©2024 Acme™."]),
        ("很好👍。谢谢", ["很好。", "谢谢"]),
        ("🎉🎉🎉", []),
    ],
)  # fmt: skip
def test_what_emoji_leave(text: str, expected: list[str]) -> None:
    """The gap closes, the segment goes on or ends as if they were not there; symbols of text stay."""
    assert said(text) == expected


def test_emoji_belong_to_what_precedes_them() -> None:
    """In the input they are part of the sentence they follow."""
    assert [s.text for s in split(["Great job! 🎉🎉 See you."])] == ["Great job! 🎉🎉", "See you."]


def test_emoji_can_be_kept() -> None:
    """They are then never torn apart."""
    text = "Family 👨\u200d👩\u200d👧\u200d👦 of four 🇩🇪."
    assert said(text, SplitterOptions(emoji="keep")) == [text]


# --- where it came from --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slices"),
    [
        ("**Warning!** This is *it*.", ["**Warning!**", "This is *it*."]),
        ("## Title\n- `item`\n", ["## Title", "- `item`"]),
        ("See [docs](a.b). Go!", ["See [docs](a.b).", "Go!"]),
        ("Run:\n```\ncode\n```\nDone.", ["Run:", "Done."]),
        ("Go to https://a.bc/d. Now.", ["Go to https://a.bc/d.", "Now."]),
        ("<b>Bold.</b> More.", ["<b>Bold.</b>", "More."]),
        ("Fish &amp;\n\nchips", ["Fish &amp;", "chips"]),
    ],
)
def test_segments_hold_their_markup(text: str, slices: list[str]) -> None:
    """A segment's text is the input with the markup that belongs to it; code belongs to none."""
    assert [segment.text for segment in split(list(text), ALL)] == slices


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["word ", "**bold** ", "`code` ", "[label](http://x.y) ", "https://host.org/x ", "🎉 ", "a. ", "so it may well be, ", "< ", "\n", "- "]
        ),
        max_size=20,
    ).map("".join)
)  # fmt: skip
def test_offsets_lead_back_to_the_letters(text: str) -> None:
    """What is spoken at an offset is what stands in the input there."""
    for segment in split(list(text)):
        for character, offset in zip(segment.spoken, segment.offsets, strict=True):
            if character.isalnum():
                assert text[offset] == character


def test_expected_speech_of_the_nasty_cases() -> None:
    """The cases that say what is to be spoken (one speaks an address its own way)."""
    data = Path(__file__).parent / "data" / "nasty.jsonl"
    cases = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    with_speech = {case["id"]: case for case in cases if case.get("spoken")}
    with_speech["nasty-16"]["spoken"][0] = "See example.com for more."
    assert len(with_speech) == 6
    for case in with_speech.values():
        assert said(case["text"], SplitterOptions(min_weight=0)) == case["spoken"]
