"""From the spectra of the hibari network to samples, frame by frame.

A pulse train at the predicted pitch is analysed frame by frame, shaped by the harmonic spectrum,
joined by noise and by a residue of free phase, and brought back by an inverse short-time Fourier
transform (1,200 points, hop 300, Hann). Every frame is a function of its own row of spectra, of the
pitch around it, and of the seed; frames meet only in sums taken in a fixed order. So the samples do
not depend on how the frames are grouped into calls, bit for bit.

Knows nothing about networks, words or 16-bit audio.

Source: hibari-tts 0.2.1 `hibari/dsp.py`, whose formula this follows. Differs: it carries its state
from call to call, and its noise comes from a table of frames instead of a generator (drawing
1,202 normal numbers a frame costs as much as all the rest).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ: Final = 24_000
HOP_SAMPLES: Final = 300  # 12.5 ms, one frame
FFT_SAMPLES: Final = 4 * HOP_SAMPLES
BINS: Final = FFT_SAMPLES // 2 + 1
OVERLAP: Final = FFT_SAMPLES // HOP_SAMPLES - 1  # frames before and after that touch a hop

FloatArray = npt.NDArray[np.float32]
ComplexArray = npt.NDArray[np.complex64]

VOICED_HZ: Final = 40.0  # below it a frame has no pitch
_HIGHEST_HARMONIC_HZ = 11_000.0
_LOG_MAGNITUDE_LIMIT = 7.0
_NEAR_PULSE = (
    1e-3  # |sin(phase / 2)| below which the closed form of the pulse is taken by its limit
)
_NOISE_FRAMES = 512  # 2.5 MB; frames are drawn from it at random, so that no rhythm is heard

_WINDOW: Final = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_SAMPLES) / FFT_SAMPLES)).astype(
    np.float32
)
# A unit cosine peaks at sum(window) / 2 in the transform: this makes exp(log magnitude) its height.
_ANALYSIS_WINDOW: Final = _WINDOW / (FFT_SAMPLES / 4)
_SYNTHESIS_WINDOW: Final = _WINDOW / np.float32(1.5)  # squared Hann windows at 4 hops sum to 1.5
# Pitch is interpolated between frame centres: sample j of a hop lies (j + 0.5) / 300 - 0.5 frames
# from its frame's centre.
_TOWARDS_NEXT: Final = (((np.arange(HOP_SAMPLES) + 0.5) / HOP_SAMPLES - 0.5) % 1.0).astype(
    np.float32
)
_HALF = HOP_SAMPLES // 2


# Always the same numbers; the seed of an utterance chooses among them.
_NOISE_REAL, _NOISE_IMAG = np.random.default_rng(0x68696261).standard_normal(
    (2, _NOISE_FRAMES, BINS), dtype=np.float32
)
_NO_TRANSFORM: Final = np.empty((0, BINS), np.complex64)


class PulseTrain:
    """Band-limited pulses at a pitch curve, hop by hop. Owner: a `Waveform`.

    Args:
        pitch: `[F]` Hz, 0 where unvoiced.
        first: The hop to begin with; may be negative, where there is silence.
    """

    def __init__(self, pitch: FloatArray, first: int) -> None:
        self._pitch = np.pad(pitch, 1, mode="edge")
        self._next = first
        self._phase = 0.0  # in samples of 1 Hz: cycles * 24,000

    def take(self, hops: int) -> FloatArray:
        """The next `[hops, 300]` samples; zeros where there is no voice and outside the curve."""
        out = np.zeros((hops, HOP_SAMPLES), np.float32)
        first = self._next
        self._next += hops
        low, high = max(first, 0), min(self._next, len(self._pitch) - 2)
        if low >= high:
            return out
        around = self._pitch[low : high + 2]
        voiced = around > VOICED_HZ
        rows = np.flatnonzero(voiced[:-2] | voiced[1:-1] | voiced[2:])
        # A hop without voice moves the phase on as if it had the lowest pitch.
        turns = np.full(high - low, VOICED_HZ * HOP_SAMPLES)
        frequency = _interpolate(around, rows)
        has_voice = frequency > VOICED_HZ
        np.maximum(frequency, VOICED_HZ, out=frequency)
        phase = np.cumsum(frequency, axis=1, dtype=np.float64)
        turns[rows] = phase[:, -1]
        starts = np.cumsum(np.concatenate(([self._phase], turns)))
        self._phase = float(starts[-1])
        phase += starts[rows, None]
        out[low - first + rows] = _pulses(frequency, phase, has_voice)
        return out


def _interpolate(around: FloatArray, rows: npt.NDArray[np.intp]) -> FloatArray:
    """Pitch of every sample of some hops, `[len(rows), 300]`; `around[r]` precedes hop r's own."""
    before, own, after = around[rows, None], around[rows + 1, None], around[rows + 2, None]
    towards, away = _TOWARDS_NEXT, 1 - _TOWARDS_NEXT
    frequency = np.empty((len(rows), HOP_SAMPLES), np.float32)
    np.multiply(before, away[:_HALF], out=frequency[:, :_HALF])
    frequency[:, :_HALF] += own * towards[:_HALF]
    np.multiply(own, away[_HALF:], out=frequency[:, _HALF:])
    frequency[:, _HALF:] += after * towards[_HALF:]
    return frequency


def _pulses(
    frequency: FloatArray, phase: npt.NDArray[np.float64], has_voice: npt.NDArray[np.bool_]
) -> FloatArray:
    """Sum of all harmonics up to 11 kHz at unit amplitude, in closed form.

    sum over h <= H of cos(h t) = sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2. `phase` is overwritten.
    """
    phase *= 1.0 / SAMPLE_RATE_HZ
    phase -= np.floor(phase)
    half_turn = (phase * np.pi).astype(np.float32)
    order = np.floor(_HIGHEST_HARMONIC_HZ / frequency)
    order *= 2
    order += 1
    below = np.sin(half_turn)
    order_turn = order * half_turn
    pulse: FloatArray = np.sin(order_turn)
    near = np.abs(below) <= _NEAR_PULSE
    below[near] = 1.0
    pulse /= below
    pulse[near] = order[near]
    pulse -= 1.0
    pulse *= 0.5
    pulse[~has_voice] = 0.0
    return pulse


class Waveform:
    """Turns rows of spectra into samples, continuing where it stood.

    Owner: the piece of speech it renders.

    Args:
        pitch: `[F]` Hz of the whole piece.
        first: The first hop of the piece to be heard. Hop t lies under the frames t - 1 .. t + 2, so
            that `render` is first called with the row of frame `first - 1`.
        seed: Fixes the noise.
    """

    def __init__(self, pitch: FloatArray, first: int, seed: tuple[int, ...]) -> None:
        self._pulses = PulseTrain(pitch, first - OVERLAP)
        self._pulse_history = self._pulses.take(OVERLAP)
        self._noise = np.random.Generator(np.random.SFC64(seed))
        self._overlap = np.zeros((OVERLAP, HOP_SAMPLES), np.float32)
        self._early_hops = OVERLAP  # of the hops that come first, not all frames are known

    def render(self, spectra: FloatArray) -> FloatArray:
        """Take the next frames and give the hops they complete.

        Args:
            spectra: `[N, 5 * 601]`, see `HibariNet.decode`.

        Returns:
            Samples, 300 for each frame, but for the first three frames, which complete none.
        """
        count = len(spectra)
        frames = self._frames(spectra).reshape(count, OVERLAP + 1, HOP_SAMPLES)
        total = np.zeros((count + OVERLAP, HOP_SAMPLES), np.float32)
        total[:OVERLAP] = self._overlap
        for hop in reversed(range(OVERLAP + 1)):  # oldest frame first, as across calls
            total[hop : hop + count] += frames[:, hop]
        self._overlap = total[count:].copy()
        early = min(self._early_hops, count)
        self._early_hops -= early
        return total[early:count].reshape(-1)

    def flush(self) -> FloatArray:
        """The hops that only lack frames after the end of the piece."""
        return self._overlap[self._early_hops :].reshape(-1)

    def _frames(self, spectra: FloatArray) -> FloatArray:
        """Windowed samples of each frame, `[N, 1200]`.

        Real and imaginary parts are kept apart until the end: numpy multiplies complex numbers with
        fused operations inside an array and without them at its end, so that its last bits would
        depend on the number of frames in a call.
        """
        log_harmonic, turn, log_noise, log_residue, residue_phase = (
            spectra[:, i * BINS : (i + 1) * BINS] for i in range(5)
        )
        magnitude = _magnitude(log_residue)
        drawn = self._noise.integers(0, _NOISE_FRAMES, len(spectra))
        noise = _magnitude(log_noise)
        real, imag = np.cos(residue_phase), np.sin(residue_phase)
        real *= magnitude
        imag *= magnitude
        real += _NOISE_REAL[drawn] * noise
        imag += _NOISE_IMAG[drawn] * noise
        source, sounding = self._source(len(spectra))
        if len(sounding):
            angle = np.tanh(turn[sounding])
            angle *= np.float32(np.pi)
            magnitude = _magnitude(log_harmonic[sounding])
            along, across = np.cos(angle), np.sin(angle)
            along *= magnitude
            across *= magnitude
            source_real, source_imag = source.real, source.imag
            real[sounding] += along * source_real - across * source_imag
            imag[sounding] += along * source_imag + across * source_real
        spectrum = np.empty(real.shape, np.complex64)
        spectrum.real = real
        spectrum.imag = imag
        frames = np.fft.irfft(spectrum, n=FFT_SAMPLES, axis=1).astype(np.float32, copy=False)
        frames *= _SYNTHESIS_WINDOW
        return frames

    def _source(self, count: int) -> tuple[ComplexArray, npt.NDArray[np.intp]]:
        """Transforms of the pulses under the next frames, and which frames have any.

        Frame k is centred on the start of hop k and lies over the hops k - 2 .. k + 1.
        """
        hops = np.concatenate((self._pulse_history, self._pulses.take(count)))
        self._pulse_history = hops[count:]
        filled: npt.NDArray[np.bool_] = np.any(hops, axis=1)
        sounding = np.flatnonzero(
            filled[:count] | filled[1 : count + 1] | filled[2 : count + 2] | filled[3:]
        )
        if not len(sounding):
            return _NO_TRANSFORM, sounding
        frames = np.concatenate([hops[sounding + hop] for hop in range(OVERLAP + 1)], axis=1)
        frames *= _ANALYSIS_WINDOW
        return np.fft.rfft(frames, axis=1).astype(np.complex64, copy=False), sounding


def _magnitude(log_magnitude: FloatArray) -> FloatArray:
    limited = np.minimum(log_magnitude, np.float32(_LOG_MAGNITUDE_LIMIT))
    return np.exp(limited, out=limited)
