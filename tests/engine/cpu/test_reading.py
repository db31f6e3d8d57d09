import json
import time

import pytest
from hibari.g2p.normalize import normalize
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtts.engine.cpu.reading import ASSETS, SILENT_PHONEMES, align, english_g2p, read
from tests.engine.cpu.test_speakable import MIXED

VOCABULARY = frozenset(json.loads((ASSETS / "vocab.json").read_text("utf-8")))
WORDS = st.lists(
    st.sampled_from(
        [
            "Dr.",
            "Smith",
            "Jan.",
            "5th",
            "2024",
            "$3.50",
            "at",
            "3:45",
            "PM",
            "the",
            "5",
            "May",
            "1/2",
            "half",
            "No.",
            "3",
            "km",
            "St.",
            "Henry",
            "VIII",
            "62%",
            "-5°C",
            "vs.",
            "a™",
            "=",
            "→",
            "hello,",
            "world.",
            "(see)",
            "3-5",
            "&",
            "I'm",
            "$5",
            "k",
            "€",
            "e.g.",
            "10",
            "lbs",
            "—",
        ]
    ),
    max_size=14,
)


def spans(text: str) -> list[str]:
    return [text[a:b] for a, b in read(text, english_g2p(), VOCABULARY).spans]


@given(source=WORDS)
def test_alignment_covers_both_texts(source: list[str]) -> None:
    """Groups follow each other without a gap in the source and in its normalised form."""
    source = " ".join(source).split()
    normalized = normalize(" ".join(source)).split(" ")
    at = (0, 0)
    for a, b, c, d in align(source, normalized):
        assert (a, c) == at
        assert a < b
        assert c <= d
        at = (b, d)
    if source:
        assert at == (len(source), len(normalized))


@given(text=st.one_of(MIXED, WORDS.map(" ".join)))
@example("\U0001e946" * 3)
@example("'" * 7)
@example("9" * 400)
@example("1" + ",000" * 30)
@example("x" * 3_000)
@example("[a](/b/)")
@settings(max_examples=300, deadline=None)
def test_any_text_is_read(text: str) -> None:
    """Whatever the text, it is read without an error, and every word has its own span in it."""
    reading = read(text, english_g2p(), VOCABULARY)
    at = 0
    for start, end in reading.spans:
        assert at <= start < end <= len(text)
        at = end
    words = [chunk.word for chunk in reading.chunks if chunk.word >= 0]
    assert words == sorted(words)
    assert set(words) == set(range(len(reading.spans)))
    for chunk in reading.chunks:
        assert chunk.phonemes == chunk.phonemes.strip() != ""
        assert VOCABULARY.issuperset(chunk.phonemes)
    for word in set(words):
        said = "".join(chunk.phonemes for chunk in reading.chunks if chunk.word == word)
        assert not SILENT_PHONEMES.issuperset(said)


@pytest.mark.parametrize(
    "pattern", ["a-", "aB", "a1", "a/", "a@", ",", "+", "!", "'", "--", "[]", "1,", "你a", "x", "—"]
)
def test_no_text_takes_long(pattern: str) -> None:
    """A run without spaces is read in time that grows with its length, not with its cube."""
    text = (pattern * 600)[:600]
    begin = time.process_time()
    read(f"hi {text} a", english_g2p(), VOCABULARY)
    assert time.process_time() - begin < 1.0  # 0.1 s; without care it is 10 s and more


@given(
    words=st.lists(
        st.sampled_from(
            [
                "the",
                "of",
                "Thursday",
                "afternoon",
                "rhythm",
                "Okafor",
                "reading",
                "xylophone",
                "I",
                "it's",
            ]
        ),
        min_size=1,
        max_size=12,
    ),
    marks=st.lists(st.sampled_from(["", ",", ".", "!", ";", ")"]), min_size=12, max_size=12),
)
@settings(deadline=None)
def test_plain_words_have_a_span_each(words: list[str], marks: list[str]) -> None:
    """Every word of plain English is found, without the punctuation around it."""
    text = " ".join(word + mark for word, mark in zip(words, marks, strict=False))
    assert spans(text) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs $3.50.", ["It", "costs", "$3.50"]),
        ("On Jan. 5th, 2024", ["On", "Jan. 5th", "2024"]),
        ("at 3:45 PM today", ["at", "3:45", "PM", "today"]),
        ("Dr. Smith said", ["Dr. Smith", "said"]),
        ("the 5 May and 6 June", ["the", "5 May", "and", "6 June"]),
        ("half 1/2 half half", ["half", "1/2", "half", "half"]),
        ("Henry VIII, King", ["Henry", "VIII", "King"]),
        ("-5°C, 62% & C++!", ["-5°C", "62%", "&", "C++"]),
        ("Call (555) 123-4567!", ["Call", "(555) 123-4567"]),
        ("“Hi,” she said—really?", ["Hi", "she", "said", "really"]),
        ("我喜欢Python编程", ["Python"]),
        ("wait - what", ["wait", "what"]),
        ("x = 4 → y", ["x", "= 4", "→", "y"]),
    ],
)
def test_spans(text: str, expected: list[str]) -> None:
    """Words that the normaliser rewrites keep their place; where it joins them, they share one."""
    assert spans(text) == expected


@pytest.mark.parametrize("text", ["Hello there, how are you?", "I paid five dollars.", "U.S.A."])
def test_phonemes_are_the_g2ps(text: str) -> None:
    """Plain text is pronounced as the G2P pronounces it."""
    reading = read(text, english_g2p(), VOCABULARY)
    assert " ".join(chunk.phonemes for chunk in reading.chunks) == english_g2p()(text)
