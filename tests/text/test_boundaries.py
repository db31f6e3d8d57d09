"""What final marks, line ends and clause marks mean where they stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.text.boundaries import (
    Kind,
    is_blank_line,
    read_clause_mark,
    read_final_mark,
    read_line_end,
)
from rtts.text.marks import FINAL_MARKS, Horizon, View
from tests.text.texts import MARKUP, PROSE


def view(
    text: str, horizon: Horizon = Horizon.OPEN, *, casual: bool = False, latin: str = "en"
) -> View:
    return View(text, 0, horizon, latin, True, casual)


def final(text: str, **context: object) -> str | None:
    """The text with a bar where its first final mark ends a sentence; itself if none does; None to wait."""
    index = next(i for i, character in enumerate(text) if character in FINAL_MARKS)
    kind, cut = read_final_mark(view(text, **context), index)  # type: ignore[arg-type]
    if kind is Kind.WAIT:
        return None
    return text[:cut] + "¦" + text[cut:] if kind is Kind.END else text


@pytest.mark.parametrize(
    "text",
    [
        "Well?!¦ You", "So!!!¦ Yes", "I see...¦ Let me", "He left.¦ “Come”", 'He left.¦ "Come', '"I agree."¦ She', "(He left.)¦ Then",
        "„Wie?“¦ Dann", "»Ja.«¦ Nein", "« Fini ! »¦ Il", "Hello.¦ .NET", "Great!¦\x1a Go", "太好了！！！¦走吧", "你好。”¦然后", "你叫什么?¦我叫", "你好.¦我是",
        "Ok。¦1952年", "gas.[1]¦ It", "gas. [1][2] [3]¦ It", "That is it. :)¦ Thanks", "Vraiment ?¦ Oui", "Done.¦\nNext",
        "Really . . .¦ No", "Yes.¦ (b) Go", "Yes.¦ b. Go", "Qué?¦ ¿No", "Yes!¦ — Да, он", "Strange．¦Does", '"Yes."¦ "no' ,
    ],
)  # fmt: skip
def test_ends(text: str) -> None:
    """Sentences end here, closing quotes, brackets, notes and emoji included."""
    plain = text.replace("¦", "")
    expected = text if "\x1a" not in text else plain.replace("\x1a", "\x1a¦")
    left = plain + " " if plain[-1].isalnum() else plain
    found = final(left + "x")
    assert found is not None
    assert found.startswith(expected.split("¦")[0] + "¦")


@pytest.mark.parametrize(
    "text",
    [
        'She said "Stop!" and left', "„Hallo!“, sagte", "Well... maybe", "Wait . . . what", "? — спросила", "alone!, he", "alone! , he",
        "3.14 is", "a.b.c is", "example.com is", "「行こう！」と言った", "是！」，他", "[...] and It",  "No.5を", "Tom.5个",
        "I thought... I would", "see fig. (a) left", "1. stay here", "No! and then", "10.－5", "hab. / km", "！》好吗",
    ],
)  # fmt: skip
def test_goes_on(text: str) -> None:
    """Nothing ends here: tokens, quotes within sentences, pauses for thought."""
    assert final(text + " and so on") == text + " and so on"


@pytest.mark.parametrize(
    "text",
    [
        "Yes.",
        "Yes. ",
        "Yes. “",
        "etc. The",
        "What?",
        "What?!",
        "你好。",
        "…",
        "gas. [1",
        "it. :",
        "a.“",
    ],
)
def test_waits(text: str) -> None:
    """Where what follows decides and has not come, nothing is decided."""
    assert final(text) is None
    assert final(text, horizon=Horizon.CLOSED) is not None


def test_casual_writers_begin_in_lower_case() -> None:
    """Where sentences begin in lower case, a mark before lower case may end one."""
    assert final("lol! you should x", casual=True) == "lol!¦ you should x"
    assert final("Lol! you should x") == "Lol! you should x"
    assert final("so. you should x", casual=True) == "so.¦ you should x"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(PROSE + MARKUP), min_size=1, max_size=12).map("".join),
    st.integers(0, 400),
)
def test_decisions_are_kept(text: str, more: int) -> None:
    """Once made with some of the text, a decision is the same with all of it."""
    text = " ".join(text.split(" "))
    for index, character in enumerate(text):
        if character not in FINAL_MARKS:
            continue
        whole = read_final_mark(view(text), index)
        for end in range(index + 1, min(len(text), index + 1 + more % 60)):
            early = read_final_mark(view(text[:end]), index)
            assert early[0] is Kind.WAIT or early == whole


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A line\nAnother", Kind.END), ("A line\nwrapped", Kind.GO_ON), ("A line\n\nwrapped", Kind.END), ("A line\n\x1eitem", Kind.END),
        ("A line\nb) item ", Kind.END), ("A line\n(b) item", Kind.END), ("A line\n- item", Kind.END), ("A line\n", Kind.WAIT),
        ("A line\nb", Kind.WAIT), ("一行\n二行", Kind.END), ("A line\n“quoted", Kind.GO_ON),
    ],
)  # fmt: skip
def test_line_ends(text: str, kind: Kind) -> None:
    """A line ends unless it is wrapped: the next begins in lower case and is no item."""
    assert read_line_end(view(text), text.index("\n"))[0] is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Yes, it", Kind.CLAUSE), ("1,000", Kind.GO_ON), ("10:30", Kind.GO_ON), ("three: one", Kind.CLAUSE), ("好，我", Kind.CLAUSE),
        ('"Yes," he', Kind.CLAUSE), ("this—that", Kind.CLAUSE), ("on – and", Kind.CLAUSE), ("1–2", Kind.GO_ON), ("Yes,", Kind.WAIT),
        ("— Да", Kind.GO_ON), ("http://x", Kind.GO_ON),
    ],
)  # fmt: skip
def test_clause_marks(text: str, kind: Kind) -> None:
    """Commas, colons and dashes end a clause unless they are part of a token."""
    index = next(i for i, character in enumerate(text) if character in ",:—–，")
    assert read_clause_mark(view(text), index)[0] is kind


def test_blank_lines_are_known_in_time() -> None:
    """Whether a paragraph ends is known one character after its line end."""
    assert is_blank_line("x\n", 1) is None
    assert is_blank_line("x\ny", 1) is False
    assert is_blank_line("x \n\n", 1) is True
    assert is_blank_line("x y", 1) is False
    assert is_blank_line("x", 1) is False
