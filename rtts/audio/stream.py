"""One utterance's audio, from PCM as it comes to packets as they go.

`StreamEncoder` resamples and counts; what it does not know is the codec, which is a `_Packer`. A
packer turns PCM at the target rate into packets, and has one end. This module knows nothing about
which combinations of codec, container and rate are offered: `rtts.audio.formats` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rtts.audio.ogg import GRANULES_PER_S, OggOpusWriter, OpusHead
from rtts.audio.opus import Application, Encoder, Signal
from rtts.audio.pcm import SAMPLE_BYTES, PcmBytes, pcm_bytes
from rtts.audio.resample import Resampler


@dataclass(frozen=True, slots=True)
class Packet:
    """A piece of the encoded stream that can be sent at once.

    Attributes:
        payload: One Opus packet, whole Ogg pages, or whole PCM or G.711 samples. Container headers
            are part of the first payload, so that the payloads, concatenated, are the stream.
        samples: Samples it decodes to, at the format's rate. Opus: before pre-skip and padding are
            cut off.
    """

    payload: bytes
    samples: int


class _Packer(Protocol):
    """A codec in a container.

    Attributes:
        pre_skip: As in `StreamEncoder`.
        pre_skip_samples: The same at the format's rate.
    """

    pre_skip: int
    pre_skip_samples: int

    def take(self, pcm: bytes) -> list[Packet]:
        """Take PCM at the format's rate; encode what is complete."""

    def finish(self) -> list[Packet]:
        """Encode the rest."""

    def set_complexity(self, complexity: int) -> None:
        """Change the effort, where there is any to change."""


class StreamEncoder:
    """Encodes one utterance. Owner: that utterance.

    The packets' payloads, concatenated, are the same bytes for every chunking of the same PCM, as
    long as nobody calls `set_complexity` on the way.

    Attributes:
        pre_skip: Samples at 48 kHz to drop from the start of the decoded audio (0 unless Opus).
        samples_in: Samples taken, at the source rate.
    """

    def __init__(self, packer: _Packer, resampler: Resampler | None) -> None:
        self.pre_skip = packer.pre_skip
        self.samples_in = 0
        self._packer = packer
        self._resampler = resampler
        self._packed_samples = 0
        self._is_flushed = False

    @property
    def samples_out(self) -> int:
        """Samples at the format's rate that can be played from the packets given out so far.

        After `flush` that is all that went in: `samples_in`, or what resampling makes of it.
        """
        playable = max(0, self._packed_samples - self._packer.pre_skip_samples)
        return min(playable, self._total_samples) if self._is_flushed else playable

    @property
    def _total_samples(self) -> int:
        return self._resampler.samples_out if self._resampler else self.samples_in

    def encode(self, pcm: PcmBytes) -> list[Packet]:
        """Take PCM at the source rate; return the packets that are complete, in order.

        Raises:
            ValueError: A partial sample, or the stream was flushed.
        """
        data = pcm_bytes(pcm)
        if self._is_flushed:
            raise ValueError("the encoder is flushed")
        self.samples_in += len(data) // SAMPLE_BYTES
        if self._resampler:
            data = self._resampler.process(data)
        return self._count(self._packer.take(data)) if data else []

    def flush(self) -> list[Packet]:
        """End the stream; return its last packets. A second flush returns none."""
        if self._is_flushed:
            return []
        self._is_flushed = True
        rest = self._resampler.flush() if self._resampler else b""
        packets = self._packer.take(rest) if rest else []
        return self._count(packets + self._packer.finish())

    def set_complexity(self, complexity: int) -> None:
        """Change Opus' effort (0 to 10) from the next packet on; other codecs have none."""
        self._packer.set_complexity(complexity)

    def _count(self, packets: list[Packet]) -> list[Packet]:
        for packet in packets:
            self._packed_samples += packet.samples
        return packets


class SamplePacker:
    """PCM and G.711, behind a header or none: what comes goes."""

    pre_skip = 0
    pre_skip_samples = 0

    def __init__(self, code: Callable[[bytes], bytes] | None = None, header: bytes = b"") -> None:
        """Prepare a stream.

        Args:
            code: From PCM to the codec's bytes, sample by sample; None for PCM itself.
            header: What the first packet begins with.
        """
        self._code = code
        self._header = header

    def take(self, pcm: bytes) -> list[Packet]:
        """Encode all of it, as one packet."""
        header, self._header = self._header, b""
        payload = self._code(pcm) if self._code else pcm
        return [Packet(header + payload if header else payload, len(pcm) // SAMPLE_BYTES)]

    def set_complexity(self, complexity: int) -> None:
        """There is none."""

    def finish(self) -> list[Packet]:
        """Nothing is left, unless no audio came at all: then the header is."""
        header, self._header = self._header, b""
        return [Packet(header, 0)] if header else []


class OpusPacker:
    """Raw Opus packets of one duration.

    The encoder is late by `pre_skip_samples`: that much silence after the end brings out the last
    samples, and as much has to be dropped from the start. A stream without audio has no packets.
    """

    def __init__(
        self,
        sample_rate_hz: int,
        *,
        bitrate: int,
        frame_ms: int,
        complexity: int,
        keeps_lock: bool = True,
    ) -> None:
        """Make the encoder.

        Args:
            keeps_lock: See `Encoder`.

        Raises:
            ConfigError: There is no libopus.
        """
        encoder = Encoder(sample_rate_hz, 1, Application.AUDIO, keeps_lock=keeps_lock)
        encoder.bitrate = bitrate
        encoder.complexity = complexity
        encoder.signal = Signal.VOICE
        encoder.vbr = 1
        self.pre_skip_samples = encoder.lookahead
        self.pre_skip = self.pre_skip_samples * GRANULES_PER_S // sample_rate_hz
        self._encoder = encoder
        self._encode = encoder.encode
        self._frame_samples = sample_rate_hz * frame_ms // 1000
        self._frame_bytes = self._frame_samples * SAMPLE_BYTES
        self._pending = b""
        self.samples = 0

    def take(self, pcm: bytes) -> list[Packet]:
        """Encode what fills packets."""
        self.samples += len(pcm) // SAMPLE_BYTES
        return self._packets(pcm)

    def finish(self) -> list[Packet]:
        """Encode the rest, continued by silence to the end of a packet."""
        return self.drain() if self.samples else []

    def set_complexity(self, complexity: int) -> None:
        """Change the effort."""
        self._encoder.complexity = complexity

    def drain(self) -> list[Packet]:
        """The same, but at least one packet, even of a stream without audio."""
        lookahead = self.pre_skip_samples * SAMPLE_BYTES
        padding = -(len(self._pending) + lookahead) % self._frame_bytes
        return self._packets(bytes(lookahead + padding))

    def _packets(self, pcm: bytes) -> list[Packet]:
        data = self._pending + pcm if self._pending else pcm
        size, samples, encode = self._frame_bytes, self._frame_samples, self._encode
        whole = len(data) - len(data) % size
        self._pending = data[whole:]
        return [
            Packet(encode(data[at : at + size], samples), samples) for at in range(0, whole, size)
        ]


class OggOpusPacker:
    """Opus packets in Ogg pages. The first payload has the headers and the first audio page."""

    def __init__(self, opus: OpusPacker, sample_rate_hz: int, serial: int) -> None:
        """Put pages around what `opus` encodes at `sample_rate_hz`."""
        self.pre_skip = opus.pre_skip
        self.pre_skip_samples = opus.pre_skip_samples
        self._opus = opus
        self._granules_per_sample = GRANULES_PER_S // sample_rate_hz
        self._writer = OggOpusWriter(OpusHead(1, opus.pre_skip, sample_rate_hz), serial)

    def take(self, pcm: bytes) -> list[Packet]:
        """Encode what fills pages."""
        # More will follow: the encoder's lookahead alone makes a packet at the end.
        return self._write(self._opus.take(pcm))

    def set_complexity(self, complexity: int) -> None:
        """Change the effort."""
        self._opus.set_complexity(complexity)

    def finish(self) -> list[Packet]:
        """Encode the rest; the last page cuts it at the number of samples taken."""
        *packets, last = self._opus.drain()
        bundles = self._write(packets)
        before = self._writer.granules
        pages = self._writer.write(last.payload)
        pages += self._writer.finish(self._opus.samples * self._granules_per_sample)
        return [*bundles, self._bundle(pages, before)]

    def _write(self, packets: list[Packet]) -> list[Packet]:
        bundles = []
        for packet in packets:
            before = self._writer.granules
            pages = self._writer.write(packet.payload, more_follow=True)
            if pages:
                bundles.append(self._bundle(pages, before))
        return bundles

    def _bundle(self, pages: bytes, granules_before: int) -> Packet:
        granules = self._writer.granules - granules_before
        return Packet(pages, granules // self._granules_per_sample)
