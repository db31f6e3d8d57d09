"""Texts for the properties of the text layer: everything that has ever been hard, in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from rtts.text import Segment, Splitter, SplitterOptions

PROSE = [
    "Hello there. ", "It is late, ", "so go. ", "Dr. Smith ", "in the U.S. Army ", "at 3.14 ",
    "What?! ", "Wait... ", "no. ", "(see it. Now.) ", '"Stop!" and ', "“Quite so.” ", "He left; ",
    "the and of to in ", "der die das ist ", "le la les est ", "24. Dezember ", "z. B. ", "M. Dupont ",
    "¿Qué? ", "¡No! ", "а т. е. дом ", "Он ушёл. ", "\n", "\n\n", "1. one ", "2. two ", "a) x ",
    "word " * 12, "x" * 60, "你好", "。", "！", "，", "、", "これは本です。", "「行こう！」と", "《吧！》",
    "안녕하세요. ", "……", "——", " — ", " – ", "[1]", " :) ", "5'6\" ", "e\u0301", "\u3099", "ſ", "İ",
]  # fmt: skip
MARKUP = [
    "*", "**", "***", "_", "__", "`", "```", "```py\n", "\n```\n", "~~", "~~~\n", "[", "]", "(", ")", "](", "](http://a.b/c)",
    "[x](y.z) ", "![alt](p.png)", "[^1]", "http://", "https://www.x.com/a?b. ", "www.", "<", ">", "<b>", "</b>",
    "<break time='1s'/>", '<break time="20ms"/>', "<|im_end|>", "<|", "|>", "|", "| a | b |\n", "|---|---|\n",
    "- ", "* ", "+ ", "# ", "## ", "> ", "---\n", "===\n", "• ", "- [ ] ", "&amp;", "&lt;", "&#124;", "&", "\\", "\\*",
    "<think>", "<tts_pad>", "tts_pad>", "think>", "im_end|>", "😀", "👨\u200d👩\u200d👧", "👋🏽", "1️⃣", "🇩🇪", "©",
]  # fmt: skip
NOISE = [
    "\u200b", "\ufeff", "\ufe0f", "\u200d", "\x00", "\x1a", "\x1d", "\x1e", "\ufffc", "\r\n", "\r", "\t", "\u2029",
    "\u00a0", "\u3000", "  ", "\ud83d", "\ude00", "\ud83d\ude00", "\udc00", "\x7f",
]  # fmt: skip

plain_texts = st.lists(st.sampled_from(PROSE), max_size=30).map("".join)
texts = st.one_of(
    st.lists(st.sampled_from(PROSE + MARKUP + NOISE), max_size=40).map("".join),
    st.text(st.characters(), max_size=60),
)
options = st.builds(
    SplitterOptions,
    language=st.sampled_from(["auto", "en", "de", "zh"]),
    markup=st.booleans(),
    urls=st.sampled_from(["host", "drop", "keep"]),
    emoji=st.sampled_from(["drop", "keep"]),
    first_min_weight=st.sampled_from([8.0, 20.0]),
    max_weight=st.sampled_from([40.0, 200.0]),
    min_weight=st.sampled_from([0.0, 8.0]),
)


def cut(text: str, seed: int | None) -> list[str]:
    """`text` in pieces: one by one for seed 0, whole for None, at random otherwise."""
    if seed is None:
        return [text]
    if seed == 0:
        return list(text)
    rng, pieces, start = random.Random(seed), [], 0
    while start < len(text):
        size = rng.choice((1, 2, 3, 5, 9, 30))
        pieces.append(text[start : start + size])
        start += size
    return pieces


def split(
    pieces: Sequence[str], options: SplitterOptions | None = None, queued_s: float = 0.0
) -> list[Segment]:
    """All segments of a text that comes in pieces."""
    splitter = Splitter(options)
    segments = [segment for piece in pieces for segment in splitter.feed(piece, queued_s)]
    return segments + splitter.flush()


def spoken(text: str, options: SplitterOptions | None = None) -> list[str]:
    """What is said of a text that comes character by character."""
    return [segment.spoken for segment in split(list(text), options)]


def joined(text: str) -> str:
    """The input as segments count it: surrogate halves joined, lone ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
