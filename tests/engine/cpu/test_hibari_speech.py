import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.cpu import hibari_speech
from rtts.engine.cpu.hibari_speech import HibariSpeech
from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, Trim
from rtts.engine.interface import Word
from tests.engine.cpu.fakes import heart

TEXTS = (
    "Hello there, how can I help you today?",
    "Yes.",
    "Stop! Please wait here.",
    "It costs $3.50 at 3:45 PM",
    "She said “no”; he left, slowly, without a word, and never came back to the house.",
    "Six thick thistle sticks.",
    "Привет, hello",
    "First of all,",
)


def begin(text: str, speed: float = 1.0, seed: int = 0, is_first: bool = True) -> HibariSpeech:
    return heart().begin(text, speed=speed, seed=(seed, 0), is_first=is_first)


def finish(speech: HibariSpeech) -> tuple[np.ndarray, tuple[Word, ...]]:
    parts, words = [], ()
    while not speech.is_done:
        made = speech.advance()
        parts.append(made.samples)
        assert not (words and made.words), "told twice"
        words = made.words or words
    return np.concatenate(parts) if parts else np.zeros(0, np.float32), words


def loud_s(samples: np.ndarray, dbfs: float) -> np.ndarray:
    """Times of the 5 ms blocks that are louder."""
    blocks = samples[: len(samples) // 120 * 120].reshape(-1, 120)
    level = np.sqrt(np.mean(blocks.astype(np.float64) ** 2, axis=1))
    return np.flatnonzero(level > 10 ** (dbfs / 20)) * 0.005


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("speed", [0.7, 1.0, 1.3])
def test_speech_begins_and_ends_with_sound(text: str, speed: float) -> None:
    """Audible within 60 ms of the start; no more than a pause at the end; peaks far from clipping."""
    samples, _ = finish(begin(text, speed))
    heard_s = loud_s(samples, -50)
    assert heard_s[0] <= 0.06
    assert len(samples) / SAMPLE_RATE_HZ - heard_s[-1] <= max(0.3, 0.3 / speed)
    assert np.abs(samples).max() < 0.85
    # Nothing is cut off: the first and the last 10 ms are silence.
    assert np.abs(samples[:240]).max() < 0.01
    assert np.abs(samples[-240:]).max() < 0.01


@given(order=st.lists(st.integers(0, 2), max_size=40))
@settings(max_examples=12, deadline=None)
def test_neighbours_are_not_heard(order: list[int]) -> None:
    """Three segments made in turns, in any order, sound as each does alone."""
    speeches = [begin(text) for text in TEXTS[:3]]
    parts: list[list[np.ndarray]] = [[], [], []]
    for which in [*order, *[0] * 20, *[1] * 20, *[2] * 20]:
        if not speeches[which].is_done:
            parts[which].append(speeches[which].advance().samples)
    for which, text in enumerate(TEXTS[:3]):
        assert np.array_equal(np.concatenate(parts[which]), finish(begin(text))[0])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("is_first", [True, False])
def test_words_are_in_time(text: str, is_first: bool) -> None:
    """Every word has its times: in order, apart, inside the audio, and where sound is."""
    samples, words = finish(begin(text, is_first=is_first))
    heard_s = loud_s(samples, -45)
    at, at_s = 0, 0.0
    for word in words:
        assert at <= word.start < word.end <= len(text)
        assert at_s <= word.start_s <= word.end_s
        inside = (heard_s >= word.start_s - 0.03) & (heard_s <= word.end_s + 0.03)
        assert inside.any(), text[word.start : word.end]
        at, at_s = word.end, word.end_s
    assert at_s <= len(samples) / SAMPLE_RATE_HZ
    spoken = [text[word.start : word.end] for word in words]
    assert sum(map(len, spoken)) >= 0.6 * sum(c.isascii() and c.isalnum() for c in text)


def test_word_times_follow_pauses() -> None:
    """Between sentences no word is said to be heard, and there it is silent."""
    text = "Go away. Then he left."
    samples, words = finish(begin(text))
    spans = [text[word.start : word.end] for word in words]
    assert spans == ["Go", "away", "Then", "he", "left"]
    gap_s = (words[1].end_s, words[2].start_s)
    assert gap_s[1] - gap_s[0] > 0.05
    quiet = samples[round(gap_s[1] * 24_000) - 1200 : round(gap_s[1] * 24_000) - 600]
    assert np.abs(quiet).max() < 0.02


def test_windows_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in windows, a sentence differs from one made in one go by 8-bit rounding only (30 dB)."""
    windows, _ = finish(begin(TEXTS[0], is_first=False))
    monkeypatch.setattr(hibari_speech, "_WINDOWS", (100_000,))
    whole, _ = finish(begin(TEXTS[0], is_first=False))
    size = min(len(windows), len(whole))
    assert abs(len(windows) - len(whole)) <= 600
    error = np.sum((windows[:size] - whole[:size]) ** 2) / np.sum(whole[:size] ** 2)
    assert 10 * np.log10(error) < -24


@pytest.mark.parametrize("text", TEXTS)
def test_a_late_sound_is_not_cut_off(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the decoder stops too early, it goes on: the last sound is heard to its end."""
    usual, _ = finish(begin(text))
    monkeypatch.setattr(hibari_speech, "_TAIL_FRAMES", 0)
    early, _ = finish(begin(text))
    assert abs(loud_s(usual, -50)[-1] - loud_s(early, -50)[-1]) <= 0.03


def test_the_seed_decides() -> None:
    """The same seed gives the same samples, another seed other noise, the same length."""
    one, same, other = (finish(begin(TEXTS[0], seed=seed))[0] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert len(one) == len(other)
    assert not np.array_equal(one, other)
    assert np.abs(one - other).max() < 0.1


def test_long_text_is_cut() -> None:
    """A sentence without end is spoken in pieces, its first sound as soon as any other's."""
    text = " ".join(["the big brown dog and the small cat ran over the hill"] * 20)
    speech = begin(text)
    first = speech.advance()
    assert len(first.samples) > 0
    assert not first.words
    samples, words = finish(speech)
    total_s = (len(first.samples) + len(samples)) / SAMPLE_RATE_HZ
    assert len(words) == len(text.split())
    assert words[-1].end_s <= total_s
    assert total_s > 40


def test_a_word_over_two_pieces_is_one_word() -> None:
    """A word too long for one piece is timed from its first sound to its last."""
    text = "1" + ",234" * 30
    samples, words = finish(begin(text))
    assert [(word.start, word.end) for word in words] == [(0, len(text))]
    assert words[0].end_s - words[0].start_s > 0.8 * len(samples) / SAMPLE_RATE_HZ


@pytest.mark.parametrize("text", ["你好", "привет", "😀", "...", " ", ""])
def test_nothing_to_say(text: str) -> None:
    """Text without anything to say is done before it begins."""
    assert begin(text).is_done


def test_what_is_left_out_is_counted() -> None:
    """Letters of unknown scripts are counted, most frequent script first."""
    speech = begin("мир means 世界和平 in Chinese")
    assert list(speech.unknown.items()) == [("Chinese characters", 4), ("Cyrillic", 3)]
    assert not speech.is_done


def test_silence_is_what_was_asked_for() -> None:
    """More or less silence may be kept; speech between stays the same length."""
    wide = finish(_speech(Trim(0.04, 0.4)))[0]
    narrow = finish(_speech(Trim(0.0, 0.1)))[0]
    assert 0.25 < (len(wide) - len(narrow)) / SAMPLE_RATE_HZ <= 0.34 + 1e-6


def _speech(trim: Trim) -> HibariSpeech:
    voice = heart()
    speech = voice.begin("Good morning.", speed=1.0, seed=(0,), is_first=True)
    speech._trim = trim
    return speech
