"""Times of characters: whole, in order, and where the audio is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.protocol.character_times import CharacterTimes, spread
from rtts.protocol.events import Audio, AudioFlags, Marks, SegmentStarted

RATE = 1000  # so that a sample is a millisecond


def audio(pts: int, duration_ms: int = 80, flags: int = 0) -> Audio:
    return Audio(
        ctx="c",
        stream=1,
        seq=0,
        segment=0,
        pts=pts,
        flags=flags,
        npackets=0,
        duration_ms=duration_ms,
        data=b"",
    )


def segment(text: str, at_ms: float, number: int = 0, begin: int = 0) -> SegmentStarted:
    chars = (begin, begin + len(text))
    return SegmentStarted(ctx="c", segment=number, text=text, chars=chars, at_ms=at_ms)


def marks(words: list[tuple[int, int, int, int]], number: int = 0) -> Marks:
    return Marks(
        ctx="c",
        segment=number,
        unit="word",
        quality="exact",
        items=[("w", start_ms, end_ms) for _, _, start_ms, end_ms in words],
        chars=[(start, end) for start, end, _, _ in words],
    )


LAST = int(AudioFlags.LAST_OF_SEGMENT)


@st.composite
def texts_and_words(draw):
    text = draw(st.text("ab *.字", max_size=20))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    times = sorted(draw(st.lists(st.integers(0, 5000), min_size=6, max_size=6)))
    return text, [
        (start, end, times[i], times[i + 1])
        for i, (start, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True))
    ]


@given(texts_and_words())
def test_every_character_has_its_time(case):
    """The characters are the text, their times never run back, and each word's are its own."""
    text, words = case
    timed = spread(text, 0.0, words)
    assert "".join(each.char for each in timed) == text
    edges = [edge for each in timed for edge in (each.start_ms, each.end_ms)]
    assert all(a <= b + 1e-6 for a, b in zip(edges[:-1], edges[1:], strict=True))
    for start, end, start_ms, end_ms in words:
        assert timed[start].start_ms == pytest.approx(start_ms)
        assert timed[end - 1].end_ms == pytest.approx(end_ms)


def test_known_words_come_with_the_next_audio():
    """Nothing is told before the times are known; the segment's end brings its space."""
    times = CharacterTimes(RATE, is_exact=True)
    times.begin(segment("Hi you", 0.0))
    assert times.hear(audio(0, 20)) is None
    times.learn(marks([(0, 2, 10, 90), (3, 6, 120, 180)]))
    heard = times.hear(audio(20, 60))
    assert heard.at_ms == 20 and not heard.is_end
    assert "".join(each.char for each in heard.characters) == "Hi you"
    assert heard.characters[0].start_ms == 10 and heard.characters[-1].end_ms == 180
    heard = times.hear(audio(80, 120, LAST))
    assert heard.is_end and heard.characters == [(" ", 200, 200)] and heard.end_ms == 200
    assert times.rest() is None


def test_late_words_are_not_lost():
    """Times that come after the segment's audio are told with what follows, or at the end."""
    times = CharacterTimes(RATE, is_exact=True)
    times.begin(segment("Hi", 0.0))
    assert times.hear(audio(0, 80, LAST)) is None
    times.learn(marks([(0, 2, 10, 70)]))
    assert [each.char for each in times.rest().characters] == ["H", "i", " "]


def test_words_that_never_come_are_estimated():
    """A segment whose times are not told gets the length of its audio."""
    times = CharacterTimes(RATE, is_exact=True)
    times.begin(segment("Hi", 0.0))
    assert times.hear(audio(0, 80, LAST)) is None
    times.begin(segment("Yo", 80.0, 1, 3))
    heard = times.hear(audio(80, 80))
    assert heard.characters == [("H", 0, 40), ("i", 40, 80), (" ", 80, 80)]


SEGMENTS = st.lists(
    st.tuples(st.text("ab .", min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 5)),
    max_size=5,
)


@given(SEGMENTS, st.booleans())
def test_whenever_words_come_no_character_is_lost(segments, is_exact):
    """Each character is told once and in order, whether its times came early, late or never."""
    times, told, at_ms, begin = CharacterTimes(RATE, is_exact=is_exact), [], 0, 0
    for number, (text, n_audio, marks_at) in enumerate(segments):
        times.begin(segment(text, at_ms, number, begin))
        for index in range(n_audio):
            flags = LAST if index == n_audio - 1 else 0
            told.append(times.hear(audio(at_ms, 80, flags)))
            at_ms += 80
            if index + 1 == marks_at:
                times.learn(marks([(begin, begin + len(text), at_ms - 80, at_ms)], number))
        if marks_at > n_audio and marks_at < 5:
            times.learn(marks([(begin, begin + len(text), at_ms - 80, at_ms)], number))
        begin += len(text)
    told.append(times.rest())
    heard = [each for one in told if one for each in one.characters]
    assert "".join(each.char for each in heard) == "".join(f"{text} " for text, _, _ in segments)
    assert all(each.start_ms <= each.end_ms for each in heard)
    assert times.rest() is None


def test_estimates_learn_the_voice_s_pace():
    """Without times of the engine the first audio brings them, and later segments do better."""
    times = CharacterTimes(RATE, is_exact=False)
    times.begin(segment("Hello", 0.0))
    heard = times.hear(audio(0, 1000, LAST))
    assert [each.char for each in heard.characters] == [*"Hello", " "] and heard.is_end
    assert heard.characters[4].end_ms == pytest.approx(1000 / 3)  # 15 letters a second
    times.begin(segment("World", 1000.0, 1, 6))
    heard = times.hear(audio(1000, 80))
    assert heard.characters[-1].end_ms == pytest.approx(2000)
