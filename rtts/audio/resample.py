"""Changing the sample rate of a stream of PCM, chunk by chunk.

libsoxr does the filtering (package `soxr`). Its usual engine works in blocks, so that the first
output waits for 20-41 ms of input at quality LQ and 37-76 ms at HQ (24 kHz to 48, 16 and 8 kHz).
Its variable-rate engine, run here at a fixed ratio, is a plain FIR in the time domain: the first
output comes after 10 ms of input (24 kHz to 16 or 48 kHz) or 25 ms (to 8 kHz), the passband is
flat to 0.9 of the lower Nyquist frequency, and what would alias is 110 dB down.

Samples pass through libsoxr as float32: with 16-bit output it dithers from a random seed, and the
same input would give other bytes each time. This module knows nothing about formats or packets.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import soxr

from rtts.audio.pcm import SAMPLE_BYTES, PcmBytes, pcm_bytes, round_s16

# When it lowers the rate, libsoxr 0.1.3's variable-rate engine is late by 1.61-1.87 output
# samples, whatever the length (measured on sine waves; else it is exact to half a sample).
_LATE_SAMPLES: Final = 2

# Silence that continues the input at the end, so that the filter gives all of its output:
# more than `_LATE_SAMPLES` and the one sample by which libsoxr rounds down.
_TAIL_SAMPLES: Final = 4


class Resampler:
    """One stream of PCM from one rate to another. Owner: its utterance.

    n samples in give exactly `output_samples(n)` out, in any chunking the same bytes: after the end
    the input counts as silence, and the output is cut at that length.
    """

    def __init__(self, source_rate_hz: int, target_rate_hz: int) -> None:
        """Make a resampler (70 us).

        Raises:
            ValueError: A rate is not positive.
        """
        if source_rate_hz <= 0 or target_rate_hz <= 0:
            raise ValueError(f"cannot resample {source_rate_hz} Hz to {target_rate_hz} Hz")
        self.source_rate_hz = source_rate_hz
        self.target_rate_hz = target_rate_hz
        self.samples_in = 0
        self.samples_out = 0
        self._is_flushed = False
        self._skip = _LATE_SAMPLES if target_rate_hz < source_rate_hz else 0
        self._stream = soxr.ResampleStream(
            source_rate_hz, target_rate_hz, 1, dtype="float32", quality="HQ", vr=True
        )

    def output_samples(self, samples_in: int) -> int:
        """Samples at the target rate that `samples_in` samples become: rounded, half up."""
        return (2 * samples_in * self.target_rate_hz + self.source_rate_hz) // (
            2 * self.source_rate_hz
        )

    def process(self, pcm: PcmBytes) -> bytes:
        """Take a chunk; return the PCM that is ready, which trails the input by the filter's delay.

        Raises:
            ValueError: A partial sample, or the stream was flushed.
        """
        data = pcm_bytes(pcm)
        if self._is_flushed:
            raise ValueError("resampler is flushed")
        if not data:
            return b""
        self.samples_in += len(data) // SAMPLE_BYTES
        chunk = np.frombuffer(data, "<i2").astype(np.float32)
        return self._emit(self._stream.resample_chunk(chunk))

    def flush(self) -> bytes:
        """End the stream; return the rest. A second flush returns nothing."""
        if self._is_flushed:
            return b""
        self._is_flushed = True
        if not self.samples_in:
            return b""
        ratio = -(-self.source_rate_hz // self.target_rate_hz)
        silence = np.zeros(_TAIL_SAMPLES * ratio, np.float32)
        return self._emit(self._stream.resample_chunk(silence, last=True))

    def _emit(self, resampled: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bytes:
        skipped = min(self._skip, len(resampled))
        self._skip -= skipped
        room = self.output_samples(self.samples_in) - self.samples_out
        ready = resampled[skipped : skipped + room]
        self.samples_out += len(ready)
        return round_s16(ready)
