from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.resample import Resampler
from tests.audio.signals import cut, noise, samples_of, tone

RATES = (8_000, 12_000, 16_000, 22_050, 24_000, 44_100, 48_000)
PAIRS = [(a, b) for a in RATES for b in RATES if a != b]


def resample(pcm: bytes, source: int, target: int, sizes: list[int] | None = None) -> bytes:
    resampler = Resampler(source, target)
    chunks = cut(pcm, sizes) if sizes else [pcm]
    return b"".join([*map(resampler.process, chunks), resampler.flush()])


@settings(max_examples=60)
@given(
    st.sampled_from(PAIRS),
    st.integers(0, 6000),
    st.lists(st.integers(0, 900), min_size=1, max_size=5),
)
def test_any_chunking_gives_the_same_bytes(
    pair: tuple[int, int], samples: int, sizes: list[int]
) -> None:
    """Streamed equals one shot, byte for byte, and n samples become round(n * out / in)."""
    pcm = noise(samples, seed=samples)
    whole = resample(pcm, *pair)
    assert resample(pcm, *pair, sizes) == whole
    assert len(whole) // 2 == int(samples * pair[1] / pair[0] + 0.5)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_short_length_is_exact(source: int, target: int) -> None:
    """From nothing to a few filter lengths, one sample at a time at first."""
    for samples in (*range(40), 479, 480, 481):
        resampler = Resampler(source, target)
        got = len(resampler.process(noise(samples)) + resampler.flush()) // 2
        assert got == resampler.output_samples(samples) == resampler.samples_out


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_audio_stays_where_it_was(source: int, target: int) -> None:
    """A sine wave comes out as the same sine wave, late or early by no more than a sample."""
    frequency = 200.0
    got = samples_of(resample(tone(source, source, frequency), source, target))
    expected = 16_000 * np.sin(2 * np.pi * frequency * np.arange(target) / target)
    middle = slice(target // 10, -target // 10)
    error = np.abs(got - expected)[middle].max()
    slope = 16_000 * 2 * np.pi * frequency / target  # most that one sample can make
    assert error < 0.6 * slope + 1


@pytest.mark.parametrize(("source", "target"), [(24_000, 8_000), (24_000, 16_000), (48_000, 8_000)])
def test_what_would_alias_is_gone(source: int, target: int) -> None:
    """Tones over the new Nyquist frequency leave nothing; tones below 0.9 of it keep their level."""
    for part in (1.05, 1.3, 1.6, 1.9):
        frequency = part * target / 2
        if frequency < source / 2:
            got = samples_of(resample(tone(source, source, frequency), source, target))
            assert np.abs(got[target // 4 : -target // 4]).max() <= 1, "past the onset's ringing"
    for part in (0.1, 0.5, 0.9):
        got = samples_of(resample(tone(source, source, part * target / 2), source, target))
        level = np.sqrt((got[200:-200] ** 2).mean()) * np.sqrt(2) / 16_000
        assert level == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("target", "most_ms"), [(8_000, 26), (12_000, 11), (16_000, 11), (48_000, 11)]
)
def test_delay(target: int, most_ms: int) -> None:
    """From 24 kHz, the output trails the input by no more than the filter needs."""
    resampler = Resampler(24_000, target)
    for _ in range(200):
        resampler.process(noise(24))
        lag_ms = 1000 * (resampler.samples_in / 24_000 - resampler.samples_out / target)
        assert lag_ms <= most_ms


def test_loud_audio_is_clipped_not_wrapped() -> None:
    """Overshoot at full scale ends at +-32767."""
    square = np.where(np.arange(4800) // 37 % 2, 32767, -32768).astype("<i2").tobytes()
    got = samples_of(resample(square, 24_000, 48_000))
    assert np.abs(got).max() == 32767
    assert np.abs(np.diff(got)).max() < 40_000, "a wrapped sample would jump by 65,536"


def test_end_of_stream() -> None:
    """Flush gives the rest once; afterwards nothing goes in. Half samples never do."""
    resampler = Resampler(24_000, 8_000)
    with pytest.raises(ValueError, match="sample"):
        resampler.process(b"abc")
    resampler.process(noise(500))
    assert resampler.flush()
    assert resampler.flush() == b""
    with pytest.raises(ValueError, match="flushed"):
        resampler.process(b"")
    for rates in ((0, 8_000), (8_000, 0), (-1, 8_000)):
        with pytest.raises(ValueError, match="cannot resample"):
            Resampler(*rates)


def test_two_at_once_are_independent() -> None:
    """Interleaved streams give what each gives alone."""
    a, b = noise(3000, seed=1), noise(3000, seed=2)
    one, two = Resampler(24_000, 8_000), Resampler(24_000, 8_000)
    got_one, got_two = b"", b""
    for left, right in zip(cut(a, [250]), cut(b, [250]), strict=True):
        got_one += one.process(left)
        got_two += two.process(right)
    assert got_one + one.flush() == resample(a, 24_000, 8_000)
    assert got_two + two.flush() == resample(b, 24_000, 8_000)
