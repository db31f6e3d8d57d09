from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.catalogue import KOKORO, kokoro_status
from rtts.engine.cpu.kokoro_voice import _LEVELS_DB, _VECTORS, KokoroModel, KokoroVoice, trimmed
from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, FloatArray, SegmentSpeech, Trim
from tests.engine.cpu.fakes import TRIM

needs_kokoro = pytest.mark.skipif(
    kokoro_status() != (True, ""), reason="the extra rtts[kokoro] is not installed"
)
# jieba 0.42.1 is written for older Pythons.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")


@cache
def model() -> KokoroModel:
    return KokoroModel(TRIM, threads=2)


@cache
def voice(name: str) -> KokoroVoice:
    source = model().source(next(each for each in KOKORO if each.id == name))
    loaded = source.load()
    assert isinstance(loaded, KokoroVoice)
    return loaded


def begin(name: str, text: str) -> SegmentSpeech:
    return voice(name).begin(text, speed=1.0, seed=(0,), is_first=True)


def test_every_voice_has_its_vectors() -> None:
    """Each listed voice has a vector for every length, and a measured level."""
    for each in KOKORO:
        vectors = np.load(_VECTORS / f"{each.id}.npy")
        assert vectors.shape == (510, 256)
        assert vectors.dtype == np.float16
        assert np.isfinite(vectors).all()
    assert set(_LEVELS_DB) == {each.id for each in KOKORO}
    assert {path.stem for path in _VECTORS.glob("*.npy")} == set(_LEVELS_DB)
    assert "Apache License" in (_VECTORS / "NOTICE").read_text("utf-8")


@given(
    before=st.integers(0, 12_000),
    sound=st.integers(480, 5_000),
    after=st.integers(0, 24_000),
    mark=st.sampled_from([".", ",", "?", ""]),
)
def test_trimming_keeps_the_sound(before: int, sound: int, after: int, mark: str) -> None:
    """All of the sound stays, with no more silence than asked for, to a block of 10 ms."""
    trim = Trim(0.025, 0.2)
    samples = np.zeros(before + sound + after, np.float32)
    samples[before : before + sound] = 0.2
    kept = trimmed(samples, trim, mark)
    block = 240
    assert (kept == 0.2).sum() >= sound - block  # the last, incomplete block may be lost
    assert len(kept) <= sound + 2 * block + (0.025 + trim.pause_s(mark)) * SAMPLE_RATE_HZ + 1
    assert not len(trimmed(np.zeros(before, np.float32), trim, mark))


@needs_kokoro
@pytest.mark.slow
def test_it_speaks_english() -> None:
    """A sentence, trimmed, at the embedded voice's level, the same each time."""
    samples = finish(begin("af_heart", "Hello there."))
    assert np.array_equal(samples, finish(begin("af_heart", "Hello there.")))
    assert 0.5 < len(samples) / SAMPLE_RATE_HZ < 2.0
    assert np.abs(samples).max() < 0.8
    blocks = np.sqrt(np.mean(samples[: len(samples) // 240 * 240].reshape(-1, 240) ** 2, axis=1))
    assert np.flatnonzero(blocks > 10 ** (-50 / 20))[0] * 0.01 <= 0.04
    assert -32 < 20 * np.log10(np.sqrt(np.mean(samples**2))) < -20


@needs_kokoro
@pytest.mark.slow
def test_it_speaks_chinese() -> None:
    """A Chinese voice speaks Chinese, and English words in it."""
    samples = finish(begin("zf_xiaoxiao", "你好，Python。"))
    assert 0.8 < len(samples) / SAMPLE_RATE_HZ < 3.0


@needs_kokoro
@pytest.mark.parametrize(
    ("name", "text", "unknown", "is_done"),
    [
        ("af_heart", "你好", {"Chinese characters": 2}, True),
        ("zf_xiaoxiao", "привет", {"Cyrillic": 6}, True),
        ("zf_xiaoxiao", "你好 мир", {"Cyrillic": 3}, False),
        ("zf_xiaoxiao", "😀。", {}, True),
        ("zf_xiaoxiao", "", {}, True),
        ("zf_xiaoxiao", "3点45分, 100%", {}, False),
        ("zf_xiaoxiao", "、！", {}, True),
    ],
)
def test_what_it_cannot_say(
    name: str, text: str, unknown: Mapping[str, int], is_done: bool
) -> None:
    """Letters of other scripts are left out and counted; without others there is nothing to say."""
    speech = begin(name, text)
    assert dict(speech.unknown) == unknown
    assert speech.is_done == is_done


@needs_kokoro
@given(
    text=st.text(
        st.sampled_from("你好世界，。！？ 12.5%abcPé行长3点—“”()-+²１Ａ\n😀м"), max_size=20
    )
)
def test_any_chinese_text_is_read(text: str) -> None:
    """Whatever the text, it is read without an error."""
    begin("zf_xiaoxiao", text)


def finish(speech: SegmentSpeech) -> FloatArray:
    parts = []
    while not speech.is_done:
        parts.append(speech.advance().samples)
    return np.concatenate(parts)
