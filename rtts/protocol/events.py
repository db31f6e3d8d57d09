"""The vocabulary: what a client can ask of a session and what a session can answer.

These types are the wire messages of `rtts.v1` (each is one JSON object, `type` is its tag) and at
the same time the words every other dialect translates to and from. Times on the wire are
milliseconds, text offsets are Unicode code points of the context's text as the client sent it.
Unknown fields are ignored in both directions. This module knows nothing about how a message is
encoded, and nothing about sockets, sessions or engines.

What a client may send carries its range in the annotation (`msgspec.Meta`); the decoder enforces
it. Constructing a message in Python checks nothing.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Codec = Literal["opus", "pcm_s16le", "mulaw", "alaw", "mp3"]
Container = Literal["raw", "ogg", "wav"]

ContextId = Annotated[str, Meta(min_length=1, max_length=128)]
MessageId = Annotated[str, Meta(max_length=128)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Token = Annotated[str, Meta(min_length=1, max_length=4096)]
# 2**53 - 1: the largest integer every JSON reader keeps (RFC 8259 section 6).
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
# The upper bounds only keep sums finite: 24 h of anything is past every session limit.
Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]
DelayMs = Annotated[int, Meta(ge=0, le=60_000)]
Echo = (
    Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    | float
    | Annotated[str, Meta(max_length=128)]
    | None
)


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every message: immutable, defaults are not sent."""


# --- parts of messages ---------------------------------------------------------------------------


class Format(Message, frozen=True):
    """The audio format a client asks for. Omitted fields take the server's default.

    Attributes:
        codec: How samples are coded.
        container: `raw` puts packets or samples into messages as they are; `ogg` (Opus) and `wav`
            (PCM) make a file of the payloads in a row.
        sample_rate: Hz; by default the codec's natural one (Opus, PCM 24000; G.711 8000).
        bitrate: Bits per second of Opus (the range is RFC 6716's) and of MP3 (its own steps).
        frame_ms: Opus packet length.
    """

    codec: Codec = "opus"
    container: Container = "raw"
    sample_rate: Annotated[int, Meta(ge=1, le=384_000)] | None = None
    bitrate: Annotated[int, Meta(ge=6_000, le=510_000)] = 32_000
    frame_ms: Literal[10, 20, 40, 60] = 20


class Chunking(Message, frozen=True):
    """How arriving text becomes segments.

    Attributes:
        mode: `auto`: the server cuts at punctuation; `client`: each text message is a finished
            piece; `flush`: only `flush` and `end` start synthesis.
        first_max_delay_ms: Longest quiet time before the first segment is cut without punctuation.
        max_delay_ms: The same for later segments.
        min_chars: Fewest characters of a first segment cut at a clause.
    """

    mode: Literal["auto", "client", "flush"] = "auto"
    first_max_delay_ms: DelayMs = 150
    max_delay_ms: DelayMs = 1500
    min_chars: Annotated[int, Meta(ge=1, le=4000)] = 20


class FormatOffer(Message, frozen=True):
    """One format the server can make, as listed in `ready`.

    Attributes:
        codec: As in `start.format`.
        sample_rate: One rate in Hz, or a list of them.
        container: As in `start.format`.
    """

    codec: str
    sample_rate: int | list[int]
    container: str = "raw"


class Limits(Message, frozen=True, omit_defaults=False):
    """The limits of this connection, as listed in `ready`.

    Attributes:
        max_contexts: Contexts open at the same time.
        max_text_chars: Text of a context that is not yet spoken; also the most in one message.
        max_message_bytes: Size of one message from the client.
        max_messages_per_s: Messages from the client.
        idle_timeout_ms: The socket is closed when no context is open and no message came for this
            long.
        max_session_ms: A session ends after this.
        max_lead_ms: Most audio sent ahead of the playback clock, unless `start` says otherwise.
    """

    max_contexts: int
    max_text_chars: int
    max_message_bytes: int
    max_messages_per_s: int
    idle_timeout_ms: int
    max_session_ms: int
    max_lead_ms: int


class ResumeOffer(Message, frozen=True, omit_defaults=False):
    """How to get this session back after the socket was lost.

    Attributes:
        token: For `resume`. A secret: it is all that is asked for.
        window_ms: How long after the loss, and how much audio of each context is kept.
    """

    token: str
    window_ms: int


class StreamFormat(Message, frozen=True, omit_defaults=False):
    """The audio format of a context.

    Attributes:
        codec: As asked for, or the default.
        container: As asked for, or the default.
        sample_rate: Hz; the unit of `pts` and `done.samples`.
        channels: 1.
        frame_ms: Length of one Opus packet (0 for other codecs).
        packets_per_message: Most Opus packets one binary message carries (0 for other codecs).
        pre_skip: Samples at 48 kHz to drop from the start of the decoded audio (Opus only).
        bitrate: Of the coded audio, bits per second.
    """

    codec: str
    container: str
    sample_rate: int
    channels: int
    frame_ms: int
    packets_per_message: int
    pre_skip: int
    bitrate: int


class ResumedContext(Message, frozen=True, omit_defaults=False):
    """Where a context stands after `resume`.

    Attributes:
        stream: Number of the context in binary messages; the same as before.
        next_seq: Sequence number of the next new audio message (replayed ones come before).
        next_n: Number of the next `text` the server expects; earlier ones need not be sent again.
        text_ended: Whether `end` was received.
    """

    stream: int
    next_seq: int
    next_n: int
    text_ended: bool


class DoneMetrics(Message, frozen=True):
    """What one context measured, in its `done`.

    Attributes:
        ttfa_ms: First-packet latency: receipt of the message that completed the first segment
            until the first audio message was handed to the socket.
        from_first_text_ms: The same end, counted from the context's first text.
        rtf: Synthesis time divided by audio duration.
        stalls: Times the simulated playback clock ran dry.
        budget_ms: The budget `ttfa_ms` is held to.
        within_budget: The verdict.
        max_lead_ms: Most audio sent ahead of the playback clock.
    """

    ttfa_ms: float | None = None
    from_first_text_ms: float | None = None
    rtf: float | None = None
    stalls: int = 0
    budget_ms: float | None = None
    within_budget: bool | None = None
    max_lead_ms: float | None = None


class Quantiles(Message, frozen=True, omit_defaults=False):
    """Rolling quantiles in milliseconds; null while there is nothing to report.

    Attributes:
        p50: Half were faster.
        p95: 95 of 100 were faster.
        p99: 99 of 100 were faster.
    """

    p50: float | None
    p95: float | None
    p99: float | None


# --- client to server ----------------------------------------------------------------------------


class ClientMessage(Message, frozen=True, kw_only=True, tag_field="type"):
    """Base of client messages.

    Attributes:
        id: Comes back as `ref` in answers and errors (in `flushed` as `id`).
    """

    id: MessageId | None = None


class Start(ClientMessage, frozen=True, tag="start"):
    """Open a context. Every field but `ctx` has the connection's default.

    Attributes:
        ctx: The client's name for it, without control characters; may be used again after `done`.
        voice: One of `ready.voices`; by default `ready.default_voice`.
        language: BCP 47 tag or English name of a language the voice speaks, or "auto".
        instructions: How to speak, in words, for models that take them.
        speed: 1 is the voice's own; what it can do is in `/v1/voices`.
        seed: Fixes every random draw of the model.
        format: The audio format; each field has its default.
        chunking: How text becomes segments; each field has its default.
        timestamps: `none` leaves out `marks`.
        max_lead_ms: Most audio sent ahead of the playback clock, at least 1000; 0 is unlimited
            (for files).
        budget_ms: First-packet budget of this context.
        priority: `interactive` first, `batch` when there is time.
        traceparent: The client's trace (W3C Trace Context), of which the context becomes a part.
    """

    ctx: ContextId
    voice: Name | None = None
    language: Name | None = None
    instructions: Annotated[str, Meta(max_length=2000)] | None = None
    speed: Annotated[float, Meta(ge=0.1, le=10)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    format: Format | None = None
    chunking: Chunking | None = None
    timestamps: Literal["word", "none"] = "word"
    max_lead_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | None = None
    budget_ms: Annotated[float, Meta(gt=0, le=86_400_000)] | None = None
    priority: Literal["interactive", "batch"] = "interactive"
    traceparent: (
        Annotated[
            str, Meta(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", max_length=128)
        ]
        | None
    ) = None


class Text(ClientMessage, frozen=True, tag="text"):
    """Append text, joined verbatim. Opens the context with defaults if it is new.

    Attributes:
        ctx: The context.
        text: Any text, also a part of a word; markup as a language model writes it. No NUL.
        n: 0, 1, 2, ... of this context; makes appends idempotent after a resume.
        flush: Speak everything received so far without waiting for punctuation.
        end: No more text follows (as `end`).
    """

    ctx: ContextId
    text: str
    n: Count | None = None
    flush: bool = False
    end: bool = False


class Flush(ClientMessage, frozen=True, tag="flush"):
    """Speak what was received so far; answered by `flushed` when its audio has been sent.

    Attributes:
        ctx: The context.
    """

    ctx: ContextId


class End(ClientMessage, frozen=True, tag="end"):
    """No more text; the context ends with `done` when everything has been spoken.

    Attributes:
        ctx: The context.
    """

    ctx: ContextId


class Cancel(ClientMessage, frozen=True, tag="cancel"):
    """Stop one context, or all of them. Names `ctx`, or sets `all` (which wins).

    Attributes:
        ctx: The context.
        all: Every context of the connection.
        played_ms: Audio of that one context already heard.
    """

    ctx: ContextId | None = None
    all: bool = False
    played_ms: Milliseconds | None = None


class Playback(ClientMessage, frozen=True, tag="playback"):
    """How far the client has played a context; what it measured itself is optional.

    Attributes:
        ctx: The context; figures may come after its `done`.
        played_ms: Audio of the context already heard; omit it to report figures only. Once reported,
            keep reporting (at least every quarter of the lead): it replaces the wall clock.
        first_packet_ms: The client's own first-packet latency (text sent until audio arrived).
        first_sound_ms: Text sent until sound left the speaker.
        underruns: Times its player ran dry.
        stalled_ms: Time it spent dry.
        output_latency_ms: Its audio device's latency.
    """

    ctx: ContextId
    played_ms: Milliseconds | None = None
    first_packet_ms: Milliseconds | None = None
    first_sound_ms: Milliseconds | None = None
    underruns: Count | None = None
    stalled_ms: Milliseconds | None = None
    output_latency_ms: Milliseconds | None = None


class Ping(ClientMessage, frozen=True, tag="ping"):
    """Answered by `pong` with the same `t`.

    Attributes:
        t: Anything small, for the client's own use.
    """

    t: Echo = None


class Resume(ClientMessage, frozen=True, tag="resume"):
    """Take over a lost session; the first message on a new socket.

    Attributes:
        token: Of the lost session's `ready.resume`.
        acks: For each context the client still waits for: the last audio `seq` it received, -1
            for none.
    """

    token: Token
    acks: dict[str, Annotated[int, Meta(ge=-1, le=2**53 - 1)]] = field(default_factory=dict)


class StatsRequest(ClientMessage, frozen=True, tag="stats"):
    """Ask for `stats`, once or regularly.

    Attributes:
        interval_ms: Regularly, this often (at least 100); 0 stops it; without it, once.
    """

    interval_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | None = None


class Close(ClientMessage, frozen=True, tag="close"):
    """Cancel everything and close the socket with 1000. The session cannot be resumed."""


class Auth(ClientMessage, frozen=True, tag="auth"):
    """Credentials in the first message, for clients that can set neither header nor subprotocol.

    Attributes:
        token: The API key.
    """

    token: Token


AnyClientMessage = (
    Start | Text | Flush | End | Cancel | Playback | Ping | Resume | StatsRequest | Close | Auth
)

# --- server to client ----------------------------------------------------------------------------


class ServerMessage(Message, frozen=True, tag_field="type"):
    """Base of server messages."""


class Ready(ServerMessage, frozen=True, tag="ready"):
    """First message on a socket: what can be asked for and within which limits.

    Attributes:
        protocol: The subprotocol spoken.
        session: Name of the session, for logs.
        server: Name and version of the server.
        model: The model that speaks.
        voices: Names for `start.voice`; `/v1/voices` says more about each.
        languages: Values for `start.language`.
        formats: What `start.format` may ask for.
        limits: The limits of this connection.
        time_ms: Wall clock of the server, milliseconds since 1970.
        default_voice: The voice of a `start` that names none.
        budget_ms: First-packet budget of a `start` that names none.
        resume: How to resume; null where sessions cannot be.
    """

    protocol: str
    session: str
    server: str
    model: str
    voices: list[str]
    languages: list[str]
    formats: list[FormatOffer]
    limits: Limits
    time_ms: int
    default_voice: str = ""
    budget_ms: float = 0.0
    resume: ResumeOffer | None = None


class Started(ServerMessage, frozen=True, tag="started"):
    """A context is open. Comes before everything else of the context.

    Attributes:
        ctx: The context.
        stream: Its number in binary messages; never used again in this session.
        format: The audio format, complete.
        voice: The voice that speaks.
        language: The language it was asked for, or "auto".
        budget_ms: The first-packet budget it is held to.
        ref: The `id` of the message that opened it.
    """

    ctx: str
    stream: int
    format: StreamFormat
    voice: str = ""
    language: str = ""
    budget_ms: float = 0.0
    ref: str | None = None


class SegmentStarted(ServerMessage, frozen=True, tag="segment"):
    """A segment is about to be heard; comes before its audio.

    Attributes:
        ctx: The context.
        segment: 0, 1, 2, ...; segments without anything to speak are left out.
        text: The client's own text of the segment.
        chars: Where it stands in the context's text, [start, end).
        at_ms: Where its audio begins in the context's audio.
        spoken: What the voice is given, where that differs from `text`.
    """

    ctx: str
    segment: int
    text: str
    chars: tuple[int, int]
    at_ms: float
    spoken: str | None = None


class AudioFlags(IntFlag):
    """Flags of an audio message.

    Attributes:
        FIRST_OF_CONTEXT: The context's first audio.
        LAST_OF_CONTEXT: The context's last audio; absent where that was not known yet.
        FIRST_OF_SEGMENT: The segment's first audio.
        LAST_OF_SEGMENT: The segment's last audio.
        SILENCE: Inserted silence, such as a pause asked for.
        REPLAY: Sent before, and sent again after a resume.
    """

    FIRST_OF_CONTEXT = 1
    LAST_OF_CONTEXT = 2
    FIRST_OF_SEGMENT = 4
    LAST_OF_SEGMENT = 8
    SILENCE = 16
    REPLAY = 32


class Audio(ServerMessage, frozen=True, tag="audio", omit_defaults=False):
    """Audio of one segment. Binary in `rtts.v1`, base64 `data` in `rtts.v1.json`.

    Attributes:
        ctx: The context (not in the binary form).
        stream: Number of the context, of `started`.
        seq: 0, 1, 2, ... in the context.
        segment: The segment it belongs to.
        pts: Position of the first sample, in samples of the format's rate since the context's
            first decoded sample (an Opus decoder's output before `pre_skip` is dropped).
        flags: Sum of the flags below.
        npackets: Raw Opus packets in `data`, each behind its u16 length; 0 for other formats.
        duration_ms: Length of this audio, rounded; exact positions come from `pts`.
        data: The payload.
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


class Marks(ServerMessage, frozen=True, tag="marks"):
    """When words are heard: [word, start_ms, end_ms] on the context's audio clock.

    Attributes:
        ctx: The context.
        segment: The segment.
        unit: What an item is.
        quality: `exact` from the engine, `estimated` from text lengths.
        items: [word, start_ms, end_ms] of each, in order.
        chars: For each item its place [start, end) in the context's text.
    """

    ctx: str
    segment: int
    unit: Literal["word"]
    quality: Literal["exact", "estimated"]
    items: list[tuple[str, int, int]]
    chars: list[tuple[int, int]]


class FirstAudio(ServerMessage, frozen=True, tag="first_audio"):
    """First-packet latency and its parts; follows the first audio message.

    `ttfa_ms` is the sum of its five parts.

    Attributes:
        ctx: The context.
        ttfa_ms: Receipt of the message that completed the first segment until the first audio
            message was handed to the socket.
        split_ms: Receipt of that message until the segment went to the engine.
        queue_ms: Until the engine began it.
        model_ms: Until its first audio was back.
        encode_ms: Until the message was built.
        send_ms: Until it was handed to the socket.
        from_first_text_ms: The same end, counted from the context's first text.
        budget_ms: The budget `ttfa_ms` is held to.
        within_budget: The verdict.
    """

    ctx: str
    ttfa_ms: float
    split_ms: float
    queue_ms: float
    model_ms: float
    encode_ms: float
    send_ms: float
    from_first_text_ms: float
    budget_ms: float
    within_budget: bool


class Flushed(ServerMessage, frozen=True, tag="flushed"):
    """All audio of what came before that `flush` has been sent. Acks come in order.

    Attributes:
        ctx: The context.
        id: The `id` of the flush (null if it had none).
        at_ms: Position in the context's audio that the flushed text ends at.
    """

    ctx: str
    at_ms: float
    id: str | None = None


class Done(ServerMessage, frozen=True, tag="done"):
    """The one terminal message of a context; nothing of it follows.

    Attributes:
        ctx: The context.
        reason: Why it ended.
        segments: Segments whose audio was begun.
        last_seq: Of its last audio message, -1 without audio.
        audio_ms: Audio sent (after `pre_skip`).
        samples: The same in samples of the format's rate, exact.
        text_chars: Text received, in code points.
        metrics: What was measured; absent without audio.
        played_ms: How much of it counts as heard (`cancelled` and failures).
        spoken: The part of the context's text that was heard (`cancelled` and failures).
        remaining: The rest; `spoken + remaining` is all text received.
        code: The error code when `reason` is `error`.
    """

    ctx: str
    reason: Literal["completed", "cancelled", "error", "expired", "shutdown"]
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


class Error(ServerMessage, frozen=True, tag="error"):
    """Something was refused or failed.

    Attributes:
        code: One of the error codes below.
        message: What happened, in words, for the developer. Not for parsing.
        ctx: The context it is about; without one it is about the connection.
        ref: The `id` of the message that caused it.
        fatal: The server closes the socket after this.
        retry_after_ms: When trying again is worth it.
    """

    code: str
    message: str
    fatal: bool
    ctx: str | None = None
    ref: str | None = None
    retry_after_ms: int | None = None


class Warned(ServerMessage, frozen=True, tag="warning"):
    """Something did not go as asked, but speech goes on.

    Attributes:
        code: A stable word.
        message: What happened, in words.
        ctx: The context it is about.
        segment: The segment it is about.
    """

    code: str
    message: str
    ctx: str | None = None
    segment: int | None = None


class Stats(ServerMessage, frozen=True, tag="stats"):
    """How this connection and the server are doing.

    Attributes:
        active_contexts: Open contexts of this connection.
        queue: Utterances of the server that wait for their first audio.
        ttfa_ms: First-packet latency of the server.
        rtf: Synthesis time divided by audio duration, recent; null without any.
        buffered_ms: For each context of this connection, audio sent ahead of playback.
        budget_hit_rate: Share of recent contexts within their budget, 0 to 1.
    """

    active_contexts: int
    queue: int
    ttfa_ms: Quantiles
    rtf: float | None
    buffered_ms: dict[str, float]
    budget_hit_rate: float | None = None


class Resumed(ServerMessage, frozen=True, tag="resumed"):
    """The session is back; replayed audio follows.

    Attributes:
        session: The session, as in the lost `ready`.
        contexts: Where each context stands that is still known.
    """

    session: str
    contexts: dict[str, ResumedContext]


class GoAway(ServerMessage, frozen=True, tag="goaway"):
    """The server is about to stop: finish running contexts, start no new ones here.

    Attributes:
        reason: A word.
        deadline_ms: Milliseconds until the socket is closed.
    """

    reason: str
    deadline_ms: int


class Pong(ServerMessage, frozen=True, tag="pong"):
    """Answer to `ping`.

    Attributes:
        time_ms: Wall clock of the server, milliseconds since 1970.
        t: As in the `ping`.
    """

    time_ms: int
    t: Echo = None


AnyServerMessage = (
    Ready
    | Started
    | SegmentStarted
    | Audio
    | Marks
    | FirstAudio
    | Flushed
    | Done
    | Error
    | Warned
    | Stats
    | Resumed
    | GoAway
    | Pong
)
