"""The messages of `rtts.v1` as a client sees them, and their way from and to the wire.

Fields the client does not know are ignored, messages it does not know are dropped; times are
milliseconds as on the wire. Knows nothing about sockets.
"""

from __future__ import annotations

import json
import struct
from enum import IntFlag

import msgspec
from msgspec import Struct, field

# --- what a caller asks for ----------------------------------------------------------------------


class Format(Struct, frozen=True, omit_defaults=True):
    """The audio format to ask for; omitted fields take the server's defaults."""

    codec: str = "opus"
    container: str = "raw"
    sample_rate: int | None = None
    bitrate: int = 32_000
    frame_ms: int = 20


class Chunking(Struct, frozen=True, omit_defaults=True):
    """How text becomes segments."""

    mode: str = "auto"
    first_max_delay_ms: int = 150
    max_delay_ms: int = 1500
    min_chars: int = 20


class ContextOptions(Struct, frozen=True, omit_defaults=True):
    """Everything `start` can say about a context."""

    voice: str | None = None
    language: str | None = None
    instructions: str | None = None
    speed: float | None = None
    seed: int | None = None
    format: Format | None = None
    chunking: Chunking | None = None
    timestamps: str = "word"
    max_lead_ms: int | None = None
    budget_ms: float | None = None
    priority: str = "interactive"
    traceparent: str | None = None


# --- events of a context -------------------------------------------------------------------------


class Event(Struct, frozen=True, tag_field="type"):
    """Base of what iterating a context gives."""


class StreamFormat(Struct, frozen=True):
    """The audio format of a context; `pre_skip` counts samples at 48 kHz."""

    codec: str
    container: str
    sample_rate: int
    channels: int = 1
    frame_ms: int = 0
    packets_per_message: int = 0
    pre_skip: int = 0
    bitrate: int = 0


class Started(Event, frozen=True, tag="started"):
    """The context is open."""

    ctx: str
    stream: int
    format: StreamFormat
    voice: str = ""
    language: str = ""
    budget_ms: float = 0.0


class Segment(Event, frozen=True, tag="segment"):
    """A piece of the text is about to be heard; `spoken` where the voice was given other words."""

    ctx: str
    segment: int
    text: str
    chars: tuple[int, int]
    at_ms: float
    spoken: str | None = None


class AudioFlags(IntFlag):
    """Flags of an audio event."""

    FIRST_OF_CONTEXT = 1
    LAST_OF_CONTEXT = 2
    FIRST_OF_SEGMENT = 4
    LAST_OF_SEGMENT = 8
    SILENCE = 16
    REPLAY = 32


class Audio(Event, frozen=True, tag="audio"):
    """Audio, in order and without repetition, also across a reconnect.

    Attributes:
        pts: Position of the first sample, in samples of the format's rate, Opus warm-up included.
        data: The payload: samples, Ogg pages, or length-prefixed packets (`packets` cuts them).
    """

    ctx: str
    stream: int
    seq: int
    segment: int
    pts: int
    flags: int
    npackets: int
    duration_ms: int
    data: bytes

    @property
    def packets(self) -> list[bytes]:
        """The raw Opus packets; for other formats the payload as one."""
        if not self.npackets:
            return [self.data]
        packets, at = [], 0
        for _ in range(self.npackets):
            end = at + 2 + int.from_bytes(self.data[at : at + 2], "big")
            packets.append(self.data[at + 2 : end])
            at = end
        return packets


class Marks(Event, frozen=True, tag="marks"):
    """When words are heard: `items` of (word, start_ms, end_ms), `chars` their places in the text."""

    ctx: str
    segment: int
    quality: str
    items: list[tuple[str, float, float]]
    chars: list[tuple[int, int]] = field(default_factory=list)


class FirstAudio(Event, frozen=True, tag="first_audio"):
    """The server's first-packet latency; the client's own is `Context.first_packet_s`."""

    ctx: str
    ttfa_ms: float
    split_ms: float = 0.0
    queue_ms: float = 0.0
    model_ms: float = 0.0
    encode_ms: float = 0.0
    send_ms: float = 0.0
    from_first_text_ms: float = 0.0
    budget_ms: float = 0.0
    within_budget: bool = True


class Flushed(Event, frozen=True, tag="flushed"):
    """All audio of what was sent before a flush has arrived."""

    ctx: str
    at_ms: float
    id: str | None = None


class DoneMetrics(Struct, frozen=True):
    """What the server measured."""

    ttfa_ms: float | None = None
    from_first_text_ms: float | None = None
    rtf: float | None = None
    stalls: int = 0
    budget_ms: float | None = None
    within_budget: bool | None = None
    max_lead_ms: float | None = None


class Done(Event, frozen=True, tag="done"):
    """The context is over: "completed", "cancelled", "error", "expired" or "shutdown"."""

    ctx: str
    reason: str
    segments: int
    last_seq: int
    audio_ms: float
    samples: int
    text_chars: int
    metrics: DoneMetrics | None = None
    played_ms: float | None = None
    spoken: str | None = None
    remaining: str | None = None
    code: str | None = None


class Warned(Event, frozen=True, tag="warning"):
    """Something did not go as asked, but speech goes on."""

    code: str
    message: str
    ctx: str | None = None
    segment: int | None = None


class ContextError(Event, frozen=True, tag="error"):
    """The server refused something. Where it ends the context, iterating raises after this."""

    code: str
    message: str
    fatal: bool = False
    ctx: str | None = None
    ref: str | None = None
    retry_after_ms: float | None = None

    @property
    def retry_after_s(self) -> float | None:
        """The same in seconds."""
        return None if self.retry_after_ms is None else self.retry_after_ms / 1000


class GoingAway(Event, frozen=True, tag="goaway"):
    """The server is about to stop: running contexts may finish, new ones will be refused."""

    reason: str
    deadline_ms: float


class Reconnected(Event, frozen=True, tag="reconnected"):
    """The socket was lost and the context goes on where it was; made by the client."""

    away_s: float


# --- messages of the connection ------------------------------------------------------------------


class Limits(Struct, frozen=True):
    """Limits of the connection."""

    max_contexts: int = 8
    max_text_chars: int = 4000
    max_messages_per_s: float = 200
    max_lead_ms: float = 5000


class ResumeOffer(Struct, frozen=True):
    """How to resume."""

    token: str
    window_ms: float


class Ready(Event, frozen=True, tag="ready"):
    """What the server offers."""

    session: str
    server: str = ""
    model: str = ""
    voices: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    default_voice: str = ""
    budget_ms: float = 0.0
    resume: ResumeOffer | None = None


class ResumedContext(Struct, frozen=True):
    """Where a context stands after a resume."""

    stream: int
    next_n: int
    text_ended: bool = False


class Resumed(Event, frozen=True, tag="resumed"):
    """The session is back."""

    contexts: dict[str, ResumedContext]


class Pong(Event, frozen=True, tag="pong"):
    """Answer to a ping."""

    t: float | int | str | None = None


Message = (
    Started | Segment | Audio | Marks | FirstAudio | Flushed | Done | Warned | ContextError
    | GoingAway | Ready | Resumed | Pong
)  # fmt: skip
ContextEvent = (
    Started | Segment | Audio | Marks | FirstAudio | Flushed | Done | Warned | ContextError
    | GoingAway | Reconnected
)  # fmt: skip

# --- wire ----------------------------------------------------------------------------------------

_HEADER = struct.Struct("!BBHIIIIHH")
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_TYPES = {"started", "segment", "audio", "marks", "first_audio", "flushed", "done", "warning",
          "error", "goaway", "ready", "resumed", "pong"}  # fmt: skip


class _Tag(Struct):
    type: str


def decode(data: str | bytes) -> Message | None:
    """Decode a message of the server; None for one this client does not know.

    Raises:
        ValueError: It is none of `rtts.v1`.
    """
    if isinstance(data, bytes):
        return _decode_audio(data)
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        if msgspec.json.decode(data, type=_Tag).type not in _TYPES:
            return None
        raise
    except msgspec.DecodeError:  # half a character of the caller's own text, sent back escaped
        message: Message = msgspec.convert(json.loads(data), Message)
        return message


def _decode_audio(data: bytes) -> Audio | None:
    if len(data) < _HEADER.size:
        raise ValueError("a binary message without a header")
    version, kind, flags, stream, seq, segment, pts, npackets, duration_ms = _HEADER.unpack_from(
        data
    )
    if (version, kind) != (1, 1):
        return None
    return Audio(
        ctx="",
        stream=stream,
        seq=seq,
        segment=segment,
        pts=pts,
        flags=flags,
        npackets=npackets,
        duration_ms=duration_ms,
        data=data[_HEADER.size :],
    )


def encode(type_: str, **fields: object) -> str:
    """Encode a message of the client; fields that are None are left out."""
    message = {"type": type_} | {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.json.encode(message).decode()
    except UnicodeEncodeError:  # half a character is legal as an escape
        return json.dumps(msgspec.to_builtins(message))
