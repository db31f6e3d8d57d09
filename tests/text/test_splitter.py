"""Properties of the splitter as a whole, and what it does about lengths and modes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.errors import ConfigError
from rtts.text import Segment, Splitter, SplitterOptions, make_splitter
from rtts.text.characters import joins, weight
from tests.text.texts import cut, joined, options, plain_texts, split, spoken, texts

PLAIN = SplitterOptions(markup=False)


# --- properties ----------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(texts, options, st.integers(1, 10**6), st.sampled_from([0.0, 5.0]))
def test_cuts_do_not_depend_on_messages(
    text: str, chosen: SplitterOptions, seed: int, queued_s: float
) -> None:
    """Whole, character by character and in any pieces, a text gives the same segments."""
    whole = split([text], chosen, queued_s)
    assert split(cut(text, 0), chosen, queued_s) == whole
    assert split(cut(text, seed), chosen, queued_s) == whole


@settings(max_examples=80, deadline=None)
@given(texts, options)
def test_segments_are_slices_in_order(text: str, chosen: SplitterOptions) -> None:
    """Each segment's text is the input at its place; places ascend; offsets lie in them and ascend."""
    source, end = joined(text), 0
    for segment in split([text], chosen):
        assert end <= segment.start <= segment.end
        assert source[segment.start : segment.end] == segment.text
        assert len(segment.offsets) == len(segment.spoken)
        assert list(segment.offsets) == sorted(segment.offsets)
        assert all(segment.start <= offset < segment.end for offset in segment.offsets)
        end = segment.end


@settings(max_examples=80, deadline=None)
@given(plain_texts, st.booleans())
def test_nothing_said_is_lost(text: str, markup: bool) -> None:
    """Every letter and digit of a text without markup is spoken once, and its offset is its place."""
    segments = split([text], SplitterOptions(markup=markup))
    said = [
        (o, c) for s in segments for o, c in zip(s.offsets, s.spoken, strict=True) if c.isalnum()
    ]
    assert said == [
        (i, c) for i, c in enumerate(text) if c.isalnum() and not text.startswith("[", i)
    ]


@settings(max_examples=80, deadline=None)
@given(texts, options)
def test_no_segment_is_too_long(text: str, chosen: SplitterOptions) -> None:
    """No segment weighs more than the maximum, nor the first more than its own."""
    segments = split([text], chosen)
    assert all(weight(segment.spoken) <= chosen.max_weight for segment in segments)
    assert all(weight(segment.spoken) <= chosen.first_max_weight for segment in segments[:1])


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(texts, st.floats(0, 3), st.booleans(), st.integers(0, 4)), max_size=6),
    options,
    st.sampled_from(["auto", "client", "flush"]),
)
def test_any_calls_in_any_order(
    calls: list[tuple[str, float, bool, int]], chosen: SplitterOptions, mode: str
) -> None:
    """Whatever comes in whatever order, nothing is raised, and segments stay in order and disjoint."""
    splitter = Splitter(SplitterOptions(mode=mode, markup=chosen.markup, urls=chosen.urls))  # type: ignore[arg-type]
    segments: list[Segment] = []
    for text, seconds, idle, call in calls:
        segments += splitter.feed(text, seconds)
        if call == 1:
            segments += splitter.stall(seconds, idle)
        elif call == 2:
            segments += splitter.release()
        elif call == 3:
            segments += splitter.flush()
    segments += splitter.flush()
    assert splitter.pending == 0
    assert splitter.next_stall_s(True) is None
    assert not splitter.held
    ends = [place for segment in segments for place in (segment.start, segment.end)]
    assert ends == sorted(ends)


@settings(max_examples=120, deadline=None)
@given(texts, options, st.booleans(), st.sampled_from([0.0, 5.0]))
def test_a_stall_keeps_its_promise(
    text: str, chosen: SplitterOptions, idle: bool, queued_s: float
) -> None:
    """`stall` emits something at the time `next_stall_s` names, and nothing before it."""
    splitter = Splitter(chosen)
    splitter.feed(text, queued_s)
    while (due_s := splitter.next_stall_s(idle)) is not None:
        assert splitter.stall(due_s - 0.001, idle) == []
        assert splitter.next_stall_s(idle) == due_s
        assert splitter.stall(due_s, idle)
    assert splitter.stall(1e9, idle) == []


clusters = st.lists(
    st.sampled_from(
        ["か\u3099", "e\u0301", "字", "、\u3099", "，\u0301", "。\u3099", "!\u0301 ", ".\u0301 No ", ",\u0301 ", "한", "\u1112\u1161",
         "👋🏽", "👨\u200d👩\u200d👧", "🇩🇪", "word ", "x", "1\ufe0f\u20e3", "。", "Oh no! "]
    ),
    max_size=150,
).map("".join)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(clusters, st.booleans(), st.sampled_from([20, 41, 200]))
def test_no_grapheme_is_torn(text: str, markup: bool, max_weight: int) -> None:
    """Every segment begins and ends between graphemes."""
    chosen = SplitterOptions(markup=markup, emoji="keep", max_weight=max_weight, first_min_weight=5)
    for segment in split([text], chosen):
        assert not joins(text, segment.start)
        assert not joins(text, segment.end)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<", ">", "|", "<|", "|>", "im_end", "think", "tts_pad", "/", "<b>", "*", "\u200b", "😀", " ",
             "&lt;", "&#60;", "\\<", "<|x|>", ". ", "\n", "x" * 70, "![", "](", ")", "`", "<break time='1s'/>"]
        ),
        max_size=20,
    ).map("".join),
    options,
)  # fmt: skip
def test_no_control_token_is_spoken(text: str, chosen: SplitterOptions) -> None:
    """No tokenizer's token can be spelt, not even around what is removed or across segments."""
    said = "".join(segment.spoken for segment in split([text], chosen))
    assert "<|" not in said
    assert not any(
        f"<{slash}{name}>" in said for name in ("think", "tts_pad") for slash in ("", "/")
    )


def test_no_control_token_is_spelt_by_two_segments() -> None:
    """Not even where the segment before is cut right after its `<`."""
    said = [s.spoken for s in split(["x" * 79 + "<\u200b|im_end|>" + "x" * 200])]
    assert said[0] == "x" * 79
    assert said[1].startswith("|im_end|>")


# --- time and memory -----------------------------------------------------------------------------

HOSTILE = [
    ".", "a.", "<", "<|", "<a ", "[", "[a](", "(a. ", "`", "```\n", "*", "*a", "_", "- ", "|", "| a ", "\ud800",
    "\u0301", "👨\u200d", "a", "长", "\n", "a\n", " ", "http://a.", "&", "\\", "![", ". ", "! ", "Mr. ", "1. ",
    "<break time='1s'/>", "„. “", ', "',
]  # fmt: skip


def cpu_s(text: str) -> float:
    splitter = Splitter()
    begin = time.thread_time()
    splitter.feed(text)
    splitter.flush()
    return time.thread_time() - begin


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_linear(unit: str) -> None:
    """Eight times the text takes about eight times as long, whatever the text is."""
    small, large = 2_000, 16_000
    ratios = []
    for _ in range(3):
        little = min(cpu_s(unit * (small // len(unit))) for _ in range(2))
        ratios.append(cpu_s(unit * (large // len(unit))) / max(little, 1e-4))
        if ratios[-1] < 20:
            return
    pytest.fail(f"8 times the text took {ratios} times as long")


def test_one_huge_message() -> None:
    """Twenty times the prose in one message costs no more a character."""
    prose = "The quick brown fox, of course, jumps over it. "
    small = min(cpu_s(prose * 400) for _ in range(3))
    assert cpu_s(prose * 8_000) < 20 * small * 2


@pytest.mark.parametrize("unit", HOSTILE)
def test_memory_is_bounded(unit: str) -> None:
    """What is held back stays under some thousand characters, and no feed is slow."""
    splitter, held, begin = Splitter(), 0, time.thread_time()
    for character in unit * (9_000 // len(unit)):
        splitter.feed(character)
        held = max(held, splitter.pending)
    assert held < 6_000
    assert (time.thread_time() - begin) / 9_000 < 0.001


# --- lengths -------------------------------------------------------------------------------------


def test_first_segment_ends_at_a_clause() -> None:
    """The first segment ends at the first clause of some weight; later ones do not."""
    text = (
        "Well, as far as I can see, it works, and it works well, really. Yes, it does, I think, so."
    )
    assert spoken(text) == [
        "Well, as far as I can see,",
        "it works, and it works well, really.",
        "Yes, it does, I think, so.",
    ]


def test_first_segment_is_cut_at_a_word() -> None:
    """Without a clause, the first segment ends at the last space before its maximum."""
    text = "this goes on and on without a single mark " * 3
    first = split(list(text))[0]
    assert first.reason == "length"
    assert 60 < len(first.spoken) <= 80
    assert text[first.end] == " "


def test_nothing_is_first_while_audio_is_queued() -> None:
    """A text that is fed while something is still to be heard is not cut early."""
    text = "Well, as far as I can see, it works fine. Yes."
    assert split([text], queued_s=1.0)[0].spoken == "Well, as far as I can see, it works fine."


def test_first_applies_again_after_a_flush() -> None:
    """After a flush with nothing queued the next segment may be early again."""
    splitter = Splitter()
    splitter.feed("A whole first sentence. ")
    splitter.flush()
    assert [s.spoken for s in splitter.feed("And then again, as before, it goes on")] == [
        "And then again, as before,"
    ]


@pytest.mark.parametrize(
    ("text", "first_chars"),
    [("字" * 300, 80), ("の" * 300, 80), ("한" * 300, 80), ("x" * 500, 200)],
)
def test_text_without_any_mark_is_cut(text: str, first_chars: int) -> None:
    """Chinese, Japanese and Korean are cut at 80 characters, a word without end at 200."""
    segments = split([text], SplitterOptions(first_max_weight=200))
    assert len(segments[0].spoken) == first_chars
    assert "".join(segment.text for segment in segments) == text


def test_a_long_segment_ends_at_its_last_clause() -> None:
    """Too long a sentence is cut after the last clause mark of its final two thirds."""
    clause = "this part of the sentence is about fifty letters long"
    text = f"{clause}, {clause}, {clause}, {clause}, {clause}, {clause}."
    segments = split([text], SplitterOptions(first_min_weight=1000, first_max_weight=1000))
    assert [segment.reason for segment in segments] == ["length", "sentence"]
    assert segments[0].spoken == f"{clause}, {clause}, {clause},"


def test_max_chars_holds_whatever_the_weights() -> None:
    """`max_chars` bounds a segment even if the weights allow more."""
    chosen = SplitterOptions(
        max_chars=50, max_weight=1000, first_max_weight=1000, first_min_weight=900
    )
    assert max(len(s.spoken) for s in split(["lorem ipsum dolor " * 30], chosen)) <= 50


def test_short_sentences_wait_for_the_next() -> None:
    """A sentence under the minimum goes with the next one, or with the flush."""
    assert spoken("Hi! How are you today? No.") == ["Hi! How are you today?", "No."]
    assert spoken("5") == ["5"]
    assert spoken("好") == ["好"]


def test_only_marks_say_nothing() -> None:
    """A text without a letter or a digit has no segment."""
    assert spoken("... !!! \n\n --- *** \U0001f389") == []


# --- lines ---------------------------------------------------------------------------------------


def test_a_blank_line_is_a_pause() -> None:
    """A paragraph ends with silence, a line does not."""
    segments = split(list("First paragraph here.\n\nSecond line is here.\nThird line is here."))
    assert [(s.spoken, s.pause_s) for s in segments] == [
        ("First paragraph here.", 0.3),
        ("Second line is here.", 0.0),
        ("Third line is here.", 0.0),
    ]


def test_lines_end_segments_unless_they_are_wrapped() -> None:
    """A line end cuts, but before lower case it is a space."""
    assert spoken("Shopping for today\nMilk and honey\nwith some bread") == [
        "Shopping for today",
        "Milk and honey with some bread",
    ]


def test_short_lines_are_joined_with_a_comma() -> None:
    """Lines too short to stand alone are joined so that they are still heard as two."""
    assert spoken("Plan\nBuy milk today") == ["Plan, Buy milk today"]
    assert spoken("计划\n今天买牛奶") == ["计划，今天买牛奶"]


# --- merging -------------------------------------------------------------------------------------


def test_sentences_are_merged_while_audio_is_queued() -> None:
    """With seconds of audio in hand, sentences are merged up to a weight that grows."""
    text = "A sentence of thirty letters. " * 20
    splitter, segments = Splitter(), []
    for index, word in enumerate(text.split(" ")):
        segments += splitter.feed(word + " ", 0.0 if index < 6 else 5.0)
    weights = [len(segment.spoken) for segment in segments + splitter.flush()]
    assert weights[:4] == [29, 59, 89, 119]
    assert max(weights) <= 120


def test_what_is_held_can_be_released() -> None:
    """`held` says that a sentence waits only to be merged; `release` emits it."""
    splitter = Splitter()
    assert [s.spoken for s in splitter.feed("A first sentence there. A")] == [
        "A first sentence there."
    ]
    assert splitter.feed(" second sentence. And", 5.0) == []
    assert splitter.held
    assert [s.spoken for s in splitter.release()] == ["A second sentence."]
    assert not splitter.held
    assert splitter.release() == []


def test_low_audio_releases_what_is_held() -> None:
    """A feed that says the queue runs low emits what was held."""
    splitter = Splitter()
    splitter.feed("A first sentence there. A")
    splitter.feed(" second sentence. And", 5.0)
    assert [s.spoken for s in splitter.feed(" then", 1.0)] == ["A second sentence."]


def test_paragraphs_are_not_merged() -> None:
    """The silence after a paragraph is kept however much audio is queued."""
    text = "A first sentence here.\n\nA second one.\n\nAnd a third one."
    assert [s.pause_s for s in split([text], queued_s=9.0)] == [0.3, 0.3, 0.0]


# --- stalls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "due_s", "said"),
    [
        ("Hello there.", 0.15, "Hello there."),
        ("Pi is about 3.14.", 0.15, "Pi is about 3.14."),
        ("I met Dr.", None, None),
        ("Yesterday I met Dr.", 1.5, "Yesterday I met"),
        ("We count to 3.", 1.5, "We count to"),
        ("This is for the U.S.", 1.5, "This is for the"),
        ("你好，我是小明。", 0.15, "你好，我是小明。"),
        ("Is it you? ", 0.15, "Is it you?"),
        ("A heading\n", 0.15, "A heading"),
        ("Certainly, I can", 0.15, "Certainly,"),
        ("So, I can", 1.5, "So,"),
        ("This goes on and o", 1.5, "This goes on and"),
        ("Dr", None, None),
        ("Wow !", 0.15, "Wow !"),
        ("今日はとても天", 1.5, "今日はとても"),
        ("今天天气非常好", None, None),
    ],
)
def test_what_a_stall_commits(text: str, due_s: float | None, said: str | None) -> None:
    """Finished sentences soon, clauses and whole words late, abbreviations and half words never."""
    splitter = Splitter(SplitterOptions(first_min_weight=100))
    splitter.feed(text)
    assert splitter.next_stall_s(True) == due_s
    assert [s.spoken for s in splitter.stall(10, True)] == ([] if said is None else [said])


def test_a_stall_does_not_settle_a_dot() -> None:
    """`Dr`, two seconds of nothing, `. Smith`: one sentence, no half word, no end after the dot."""
    splitter = Splitter()
    segments = splitter.feed("Yesterday I met Dr")
    segments += splitter.stall(2.0, True)
    assert [s.spoken for s in segments] == ["Yesterday I met"]
    segments = splitter.feed(". Smith at home. ")
    assert [s.spoken for s in splitter.flush()] == ["Dr. Smith at home."]


def test_a_busy_stall_leaves_fragments_alone() -> None:
    """While something plays, only finished sentences are committed."""
    splitter = Splitter()
    splitter.feed("A finished one. This goes on")
    assert splitter.next_stall_s(False) is None
    assert splitter.feed(" and ends.") == []
    assert splitter.next_stall_s(False) == 0.25
    assert [s.spoken for s in splitter.stall(0.25, False)] == ["This goes on and ends."]


def test_a_short_answer_is_spoken_when_nothing_plays() -> None:
    """`Hi!` waits for more while there is something to hear, and not otherwise."""
    splitter = Splitter()
    splitter.feed("Hi!")
    assert splitter.next_stall_s(False) is None
    assert splitter.next_stall_s(True) == 0.15
    assert [s.spoken for s in splitter.stall(0.15, True)] == ["Hi!"]


def test_what_closes_after_a_stall_is_not_spoken() -> None:
    """A quote that comes after a stall ended its sentence does not begin the next segment."""
    splitter = Splitter()
    splitter.feed("“Leave me alone!")
    assert splitter.stall(1.0, True)
    splitter.feed("” He left the house.")
    assert [s.spoken for s in splitter.flush()] == ["He left the house."]


# --- modes ---------------------------------------------------------------------------------------


def test_client_mode_takes_messages_as_they_are() -> None:
    """Each message is one segment, whatever marks it has."""
    splitter = Splitter(SplitterOptions(mode="client"))
    assert [(s.spoken, s.reason) for s in splitter.feed("One. Two, three! And")] == [
        ("One. Two, three! And", "message")
    ]
    assert [s.spoken for s in splitter.feed(" four")] == ["four"]
    assert splitter.feed(" ") == []
    assert splitter.next_stall_s(True) is None


def test_client_mode_keeps_the_maximum() -> None:
    """Too long a message is cut, at sentences where it can be."""
    sentence = "This sentence has some sixty letters and it ends right here."
    segments = Splitter(SplitterOptions(mode="client")).feed(" ".join([sentence] * 5))
    assert [s.reason for s in segments] == ["length", "message"]
    assert segments[0].spoken == " ".join([sentence] * 3)


def test_flush_mode_waits_for_the_flush() -> None:
    """Nothing comes before the flush, breaks included, unless there is too much."""
    splitter = Splitter(SplitterOptions(mode="flush"))
    assert splitter.feed("One. Two.\n\nThree. <break time='1s'/> Four") == []
    assert splitter.stall(10, True) == []
    assert [(s.spoken, s.pause_s) for s in splitter.flush()] == [
        ("One. Two. Three.", 1.0),
        ("Four", 0.0),
    ]
    assert splitter.feed("word " * 50)[0].reason == "length"


# --- input ---------------------------------------------------------------------------------------


def test_surrogate_halves_are_joined_across_messages() -> None:
    """An emoji in two halves is one character; a half alone is U+FFFD and is not spoken."""
    chosen = SplitterOptions(emoji="keep")
    (segment,) = split(["Good \ud83c", "\udf89 day"], chosen)
    assert segment.text == "Good \U0001f389 day"
    assert segment.end == 10
    (segment,) = split(["Good \ud83c", "day"], chosen)
    assert (segment.text, segment.spoken) == ("Good \ufffdday", "Good day")


def test_control_characters_are_not_spoken() -> None:
    """NUL, zero-width and control characters vanish; every white space is one space."""
    assert spoken("A\x00b\u200bc\ufeff  d\te\u00a0f\r\nmore") == ["Abc d e f more"]


def test_pending_counts_what_waits() -> None:
    """`pending` is the input not yet emitted or dropped."""
    splitter = Splitter()
    splitter.feed("Hello there. And")
    assert splitter.pending == len("And")
    splitter.feed("```\nlong code")
    assert splitter.flush()
    assert splitter.pending == 0


def test_options_are_checked() -> None:
    """An unknown language or no room for any text is refused."""
    with pytest.raises(ConfigError, match="klingon"):
        SplitterOptions(language="klingon")
    for name in ("max_weight", "first_max_weight", "max_chars"):
        with pytest.raises(ConfigError, match=name):
            SplitterOptions(**{name: 1})


def test_make_splitter_leaves_markup_alone() -> None:
    """The plain splitter speaks markup as it stands."""
    splitter = make_splitter("en")
    splitter.feed("Use **this** [link](x.y) now")
    assert splitter.flush()[0].spoken == "Use **this** [link](x.y) now"
