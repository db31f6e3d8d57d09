from functools import cache

import numpy as np
from hibari import dsp
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.cpu import waveform
from rtts.engine.cpu.waveform import BINS, HOP_SAMPLES, Waveform

FRAMES = 60


@cache
def speech() -> tuple[np.ndarray, np.ndarray]:
    """Spectra and pitch of something like speech: voiced, unvoiced and silent stretches."""
    rng = np.random.default_rng(3)
    spectra = rng.normal(-1.0, 1.5, (FRAMES, 5 * BINS)).astype(np.float32)
    pitch = np.full(FRAMES, 180.0, np.float32) + 40 * np.sin(np.arange(FRAMES) / 9)
    pitch[:8] = pitch[25:33] = pitch[-6:] = 0.0
    return spectra, pitch.astype(np.float32)


def render(sizes: list[int], first: int = 1, seed: tuple[int, ...] = (1, 2)) -> np.ndarray:
    spectra, pitch = speech()
    rest = spectra[first - 1 :]
    wave, parts = Waveform(pitch, first, seed), []
    for size in [*sizes, FRAMES]:
        if len(rest):
            parts.append(wave.render(rest[:size]))
            rest = rest[size:]
    return np.concatenate([*parts, wave.flush()])


@given(sizes=st.lists(st.integers(1, 25), max_size=60), first=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_samples_do_not_depend_on_grouping(sizes: list[int], first: int) -> None:
    """Frames in any groups give the same samples, bit for bit."""
    assert np.array_equal(render(sizes, first), render([], first))


def test_every_hop_from_the_first_to_the_last() -> None:
    """From hop `first` on, one hop a frame, and the last one over the end."""
    for first in (1, 2, 17):
        assert len(render([], first)) == (FRAMES - first + 1) * HOP_SAMPLES


def test_it_is_hibaris_formula() -> None:
    """With the same noise the samples are those of hibari's own synthesis."""
    spectra, pitch = speech()
    drawn = np.random.Generator(np.random.SFC64((1, 2))).integers(
        0, len(waveform._NOISE_REAL), FRAMES
    )

    class Noise:
        def standard_normal(self, shape: tuple[int, int], dtype: type) -> np.ndarray:
            noise = waveform._NOISE_REAL[drawn] + 1j * waveform._NOISE_IMAG[drawn]
            return np.ascontiguousarray(noise.astype(np.complex64).T).view(np.float32)

    parts = [np.ascontiguousarray(spectra[:, i * BINS : (i + 1) * BINS].T) for i in range(5)]
    expected = dsp.synth(*parts, pitch, Noise())[HOP_SAMPLES:]
    # The ends differ: nothing is known beyond them here, there they are tapered.
    inner = slice(4 * HOP_SAMPLES, len(expected) - 4 * HOP_SAMPLES)
    actual = render([])[: len(expected)]
    error = np.sum((actual[inner] - expected[inner]) ** 2) / np.sum(expected[inner] ** 2)
    assert 10 * np.log10(error) < -90


def test_the_seed_is_the_noise() -> None:
    """Another seed is heard in the noise only; the same seed gives the same bits."""
    assert np.array_equal(render([]), render([]))
    assert not np.array_equal(render([]), render([], seed=(1, 3)))


def test_no_voice_no_pulses() -> None:
    """Without pitch there is no harmonic part: its spectrum does not matter."""
    spectra, pitch = speech()
    unvoiced = np.zeros_like(pitch)
    loud = spectra.copy()
    loud[:, :BINS] += 5.0
    quiet, same = (Waveform(unvoiced, 1, (0,)).render(each) for each in (spectra, loud))
    assert np.array_equal(quiet, same)
