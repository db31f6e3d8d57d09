"""From a position in the audio back to the client's own words."""

from __future__ import annotations

import pytest

from rtts.engine.interface import Word
from rtts.session.heard import characters_heard, estimate, place
from rtts.text import Splitter, SplitterOptions


def segment_of(text):
    splitter = Splitter(SplitterOptions(first_min_weight=100))
    (segment,) = splitter.feed(text) + splitter.flush()
    return segment


def bare_words(spoken):
    """Words as an engine times them: letters only, without the marks around them."""
    words, start = [], None
    for i, c in enumerate(spoken + " "):
        if c.isalnum() or (c == "'" and start is not None):
            start = i if start is None else start
        elif start is not None:
            words.append(Word(start, i, float(len(words)), len(words) + 0.8))
            start = None
    return words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sure, I can help.", ["Sure,", "I", "can", "help."]),
        ('He said "go now!" twice.', ["He", "said", '"go', 'now!"', "twice."]),
        ("It's (really) fine - ok?", ["It's", "(really)", "fine", "ok?"]),
        (
            "This is **very** important, you see.",
            ["This", "is", "very", "important,", "you", "see."],
        ),
    ],
)
def test_words_take_their_marks_along(text, expected):
    """Words are slices of the client's text with the marks that touch them, markup left out."""
    segment = segment_of(text)
    placed = place(segment, bare_words(segment.spoken), 1.5)
    assert [text[word.start : word.end] for word in placed] == expected
    assert placed[0].start_s == 1.5


def test_a_word_is_heard_from_its_middle_on():
    """The offset moves behind a word once half of it has sounded."""
    segment = segment_of("One two three.")
    placed = place(segment, bare_words(segment.spoken), 0.0)
    assert characters_heard(placed, 0.39) == 0
    assert characters_heard(placed, 0.41) == len("One")
    assert characters_heard(placed, 99.0) == len("One two three.")


def test_estimates_share_the_audio_by_length():
    """Estimated words are in order, do not overlap, and end with the audio."""
    timed = estimate("A much longer word here", 2.0)
    assert timed[0].start_s == 0.0
    assert timed[-1].end_s == pytest.approx(2.0)
    assert all(a.end_s <= b.start_s for a, b in zip(timed, timed[1:], strict=False))
    assert estimate("", 1.0) == []
