"""MP3 as it is spoken: LAME (package `lameenc`), frame by frame.

Knows nothing about formats that clients ask for.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from rtts.audio.pcm import SAMPLE_BYTES
from rtts.audio.stream import Packet
from rtts.errors import ConfigError

# ISO 11172-3 table B.2.3.2 and ISO 13818-3: sampling rates of layer III and its kbit/s.
_MPEG1_KBPS: Final = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBPS: Final = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
BITRATES_BPS: Final = {
    rate_hz: tuple(1000 * kbps for kbps in (_MPEG1_KBPS if rate_hz >= 32_000 else _MPEG2_KBPS))
    for rate_hz in (16_000, 22_050, 24_000, 44_100, 48_000)
}
RATES_HZ: Final = tuple(BITRATES_BPS)
# LAME's own scale, 0 (best) to 9: 7 is its "fast" mode, whose loss nobody hears in mono speech.
_QUALITY: Final = 7


def mp3_available() -> bool:
    """Whether the encoder is installed."""
    return importlib.util.find_spec("lameenc") is not None


class Mp3Packer:
    """MP3 frames. What a decoder puts out is later than what went in by LAME's delay.

    That delay, and the padding of the last frame, cannot be cut off in a stream (the header that says
    how much is written at the end, at the beginning of the file): a tenth of a second in all.
    """

    pre_skip = 0
    pre_skip_samples = 0

    def __init__(self, sample_rate_hz: int, *, bitrate: int) -> None:
        """Make the encoder.

        Raises:
            ConfigError: `lameenc` is not installed.
        """
        if not mp3_available():
            raise ConfigError("mp3 needs the package lameenc: pip install lameenc")
        import lameenc

        encoder = lameenc.Encoder()
        encoder.silence()
        encoder.set_in_sample_rate(sample_rate_hz)
        encoder.set_out_sample_rate(sample_rate_hz)
        encoder.set_channels(1)
        encoder.set_bit_rate(bitrate // 1000)
        encoder.set_quality(_QUALITY)
        self._encoder = encoder
        self._owed_samples = 0  # taken and in no packet yet
        self._has_begun = False

    def take(self, pcm: bytes) -> list[Packet]:
        """Encode what fills frames."""
        self._has_begun = True
        self._owed_samples += len(pcm) // SAMPLE_BYTES
        return self._packet(bytes(self._encoder.encode(pcm)))

    def finish(self) -> list[Packet]:
        """Encode the rest; nothing, if no audio came at all."""
        return self._packet(bytes(self._encoder.flush())) if self._has_begun else []

    def set_complexity(self, complexity: int) -> None:
        """There is none."""

    def _packet(self, frames: bytes) -> list[Packet]:
        if not frames:
            return []
        samples, self._owed_samples = self._owed_samples, 0
        return [Packet(frames, samples)]
