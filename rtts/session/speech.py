"""The audible half of a context: PCM of segments in, numbered audio messages out.

Keeps the one clock of the context's audio (samples since its start), cuts packets into messages
and flags the first and last of each segment. Knows nothing about text, credit or sockets.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.audio.formats import AudioFormat, Packet, make_encoder
from rtts.audio.opus import OpusError
from rtts.protocol.audio_message import join_packets
from rtts.protocol.events import Audio, AudioFlags, StreamFormat
from rtts.session.effort import OpusEffort

OPUS_RATE_HZ = 48_000  # the rate `pre_skip` is counted at (RFC 7845 section 5.1)
PTS_MODULUS = 1 << 32  # the header's field is a u32

Sound = tuple[Audio, int]
"""An audio message and the samples of the format's rate that it decodes to."""


@dataclass(slots=True)
class _Ahead:
    """PCM that is encoded before it is said.

    Attributes:
        packets: What it became; None if libopus refused.
        is_over: Nobody is at work on it any more.
    """

    pcm: bytes
    packets: list[Packet] | None = None
    is_over: bool = False


class Speech:
    """One encoder for the whole context, over all its segments.

    Owner: its context.

    Attributes:
        seq: Number of the next audio message.
        source_samples: Samples taken in, at the engine's rate.
    """

    def __init__(
        self,
        ctx: str,
        stream: int,
        audio_format: AudioFormat,
        *,
        source_rate_hz: int,
        packets_per_message: int,
        effort: OpusEffort,
    ) -> None:
        self._ctx = ctx
        self._stream = stream
        self._format = audio_format
        self.source_rate_hz = source_rate_hz
        self._is_packets = audio_format.codec == "opus" and audio_format.container == "raw"
        self._per_message = packets_per_message if self._is_packets else 0
        self._encoder = make_encoder(
            audio_format,
            source_rate_hz,
            complexity=effort.level,
            keeps_lock=not effort.threads,
        )
        self._ahead: _Ahead | None = None  # what `say` will be given next
        self._effort = effort
        self._effort_level = effort.level
        self._pts = 0  # decoder samples of the format's rate, pre-skip included
        self._opened_segment = -1  # last segment that had a message
        self._is_finished = False
        self._is_silent = False  # whether what was taken in last is inserted silence
        self.seq = 0
        self.source_samples = 0

    def describe(self) -> StreamFormat:
        """The format as `started` announces it."""
        fmt = self._format
        return StreamFormat(
            codec=fmt.codec,
            container=fmt.container,
            sample_rate=fmt.sample_rate,
            channels=1,
            frame_ms=fmt.frame_ms if fmt.codec == "opus" else 0,
            packets_per_message=self._per_message,
            pre_skip=self._encoder.pre_skip,
            bitrate=fmt.bitrate if fmt.codec in ("opus", "mp3") else 0,
        )

    @property
    def position_s(self) -> float:
        """Seconds of audio taken in."""
        return self.source_samples / self.source_rate_hz

    @property
    def packet_s(self) -> float:
        """Length of one Opus packet; 0 for formats without packets."""
        return self._format.frame_ms / 1000 if self._format.codec == "opus" else 0.0

    @property
    def rate_hz(self) -> int:
        """Of the format, which `pts` and `done.samples` count in."""
        return self._format.sample_rate

    @property
    def skip_samples(self) -> int:
        """Decoder samples at the format's rate that come before the first real one."""
        return self._encoder.pre_skip * self._format.sample_rate // OPUS_RATE_HZ

    @property
    def samples_out(self) -> int:
        """Real samples at the format's rate, exact once the encoder is drained."""
        return self._encoder.samples_out

    def samples_through(self, decoded_samples: int) -> int:
        """Real samples among the first `decoded_samples` a decoder puts out."""
        real = max(0, decoded_samples - self.skip_samples)
        return min(real, self._encoder.samples_out) if self._is_finished else real

    @property
    def is_dear(self) -> bool:
        """Whether encoding takes long enough to be worth a thread."""
        return self._format.codec == "opus"

    def expect(self, pcm: bytes) -> None:
        """`say` will be given this next, after `encode_expected`, and nothing between."""
        assert self._ahead is None, "two threads would be at work on one encoder"
        self._follow_effort()
        self._ahead = _Ahead(pcm)

    def encode_expected(self) -> None:
        """Encode what is expected, on any thread; until it is over nobody may ask for anything else."""
        ahead = self._ahead
        assert ahead is not None
        try:
            ahead.packets = self._encoder.encode(ahead.pcm)
        except OpusError:
            pass  # `say` meets it again, where it fails this context and no other
        finally:
            ahead.is_over = True

    def _encode(self, pcm: bytes) -> list[Packet]:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self._follow_effort()
            return self._encoder.encode(pcm)
        assert ahead.is_over and ahead.pcm is pcm, "something came before what was expected"
        return self._encoder.encode(pcm) if ahead.packets is None else ahead.packets

    def _follow_effort(self) -> None:
        if self._effort_level != self._effort.level:
            self._effort_level = self._effort.level
            self._encoder.set_complexity(self._effort_level)

    def say(
        self, pcm: bytes, segment: int, *, is_last: bool, is_final: bool, is_silence: bool = False
    ) -> list[Sound]:
        """Encode audio of one segment.

        Args:
            pcm: s16le mono at the engine's rate.
            is_last: Nothing more of this segment follows.
            is_final: Nothing more of the context follows: the encoder is drained.

        Returns:
            Messages that are complete now; up to a packet's worth may wait for more audio.
        """
        self.source_samples += len(pcm) // 2
        packets = self._encode(pcm) if pcm else []
        if is_final:
            packets += self._drain()
        self._is_silent = is_silence
        sounds = self._messages(packets, segment, AudioFlags.SILENCE if is_silence else 0)
        flags = AudioFlags.LAST_OF_SEGMENT if is_last else AudioFlags(0)
        return self._close(sounds, flags | AudioFlags.LAST_OF_CONTEXT if is_final else flags)

    def finish(self) -> list[Sound]:
        """Drain the encoder; nothing may follow. Nothing comes the second time, or of no audio."""
        if self._is_finished or not self.source_samples or self._ahead is not None:
            return []  # what a thread is at is lost: this is no end in order
        flags = AudioFlags.SILENCE if self._is_silent else 0
        sounds = self._messages(self._drain(), max(self._opened_segment, 0), flags)
        return self._close(sounds, AudioFlags.LAST_OF_CONTEXT)

    def silence(self, n_samples: int) -> list[Sound]:
        """Insert silence, in samples at the engine's rate, behind the segment heard last."""
        segment = max(self._opened_segment, 0)
        return self.say(
            bytes(2 * n_samples), segment, is_last=False, is_final=False, is_silence=True
        )

    def _drain(self) -> list[Packet]:
        self._is_finished = True
        return self._encoder.flush()

    def _messages(self, packets: list[Packet], segment: int, flags: int) -> list[Sound]:
        size = self._per_message or len(packets) or 1
        return [
            self._message(packets[i : i + size], segment, flags)
            for i in range(0, len(packets), size)
        ]

    def _message(self, packets: list[Packet], segment: int, flags: int) -> Sound:
        if self.seq == 0:
            flags |= AudioFlags.FIRST_OF_CONTEXT
        if segment != self._opened_segment and not flags & AudioFlags.SILENCE:
            flags |= AudioFlags.FIRST_OF_SEGMENT
            self._opened_segment = segment
        n_samples = sum(packet.samples for packet in packets)
        payloads = [packet.payload for packet in packets]
        message = Audio(
            ctx=self._ctx,
            stream=self._stream,
            seq=self.seq,
            segment=segment,
            pts=self._pts % PTS_MODULUS,
            flags=int(flags),
            npackets=len(packets) if self._is_packets else 0,
            duration_ms=round(1000 * n_samples / self._format.sample_rate),
            data=join_packets(payloads) if self._is_packets else b"".join(payloads),
        )
        self.seq += 1
        self._pts += n_samples
        return message, n_samples

    @staticmethod
    def _close(sounds: list[Sound], flags: int) -> list[Sound]:
        if flags and sounds:
            message, n_samples = sounds[-1]
            sounds[-1] = (with_flags(message, flags), n_samples)
        return sounds


def with_flags(message: Audio, flags: int) -> Audio:
    """The same message with more flags set."""
    return Audio(
        ctx=message.ctx,
        stream=message.stream,
        seq=message.seq,
        segment=message.segment,
        pts=message.pts,
        flags=int(message.flags | flags),
        npackets=message.npackets,
        duration_ms=message.duration_ms,
        data=message.data,
    )
