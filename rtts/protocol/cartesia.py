"""Cartesia's text-to-speech API: the WebSocket with its contexts, `/tts/bytes`, `/tts/sse`, `/voices`.

Source: https://docs.cartesia.ai/api-reference/tts (2026) and the types of the SDKs 4.2. Any
`Cartesia-Version` is served alike. What differs and why is in `docs/protocol/cartesia.md`.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rtts.audio.pcm import to_f32
from rtts.audio.wav import wav_header
from rtts.engine.interface import Voice
from rtts.errors import BadRequestError, UnknownVoiceError, UnsupportedFormatError
from rtts.protocol import reading
from rtts.protocol.dialect import (
    Dialect,
    Hangup,
    Head,
    House,
    Listing,
    Reply,
    Request,
    Route,
    SocketDialect,
    SpeechDialect,
    Step,
    Steps,
    cut_short,
    ending,
    status_of,
)
from rtts.protocol.events import (
    AnyClientMessage,
    AnyServerMessage,
    Audio,
    Cancel,
    Chunking,
    Codec,
    Done,
    Error,
    Flushed,
    Format,
    Marks,
    Start,
    Started,
    Text,
)

_CODECS: dict[str, tuple[Codec, str]] = {  # our codec, and the coding in a WAV file
    "pcm_s16le": ("pcm_s16le", "s16"),
    "pcm_f32le": ("pcm_s16le", "f32"),
    "pcm_mulaw": ("mulaw", "mulaw"),
    "pcm_alaw": ("alaw", "alaw"),
}
# Their older knob, in words; the documentation gives no numbers.
_SPEEDS = {"slow": 0.8, "normal": 1.0, "fast": 1.2}
_PARTIAL, _OK = 206, 200  # of their messages
_HTTP_CTX = "speech"


class _VoiceId(Struct):
    id: str | None = None


class _OutputFormat(Struct):
    container: Literal["raw", "wav", "mp3"] = "raw"
    encoding: Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"] = "pcm_s16le"
    sample_rate: int = 44_100
    bit_rate: int = 128_000


class _GenerationConfig(Struct):
    speed: float | None = None
    emotion: str | None = None


class _Generation(Struct, rename={"is_continued": "continue"}):
    """A request to speak, of all three surfaces. What is not here is ignored."""

    transcript: str = ""
    context_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    model_id: str | None = None
    voice: str | _VoiceId | None = None
    output_format: _OutputFormat = msgspec.field(default_factory=_OutputFormat)
    language: str | None = None
    locale: str | None = None
    is_continued: bool | None = None
    flush: bool | None = None
    cancel: bool | None = None
    max_buffer_delay_ms: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    add_timestamps: bool | None = None
    generation_config: _GenerationConfig | None = None
    speed: str | float | None = None


class Cartesia(Dialect):
    """Keys and errors of the API."""

    name: ClassVar[str] = "cartesia"

    @classmethod
    def keys(cls, request: Request) -> Sequence[str]:
        """See `Dialect`. Browsers cannot set headers."""
        query = request.query
        return [query[name] for name in ("api_key", "access_token") if query.get(name)]

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`."""
        return Reply(status=status_of(error), body=msgspec.json.encode(_error(error)))


# --- the WebSocket -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Context:
    """A context the client has opened and that has not ended."""

    is_float: bool
    wants_words: bool
    is_ended: bool = False  # the client said that no more text comes
    flushes: int = 0  # that the client has sent
    flushed: int = 0  # that were answered


class Socket(Cartesia, SocketDialect):
    """`/tts/websocket`: many contexts, each message with its whole configuration."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._contexts: dict[str, _Context] = {}
        self._cancelled: Counter[str] = Counter()  # ends that are still to come, by context

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        try:
            asked = reading.decode(data, _Generation)
        except BadRequestError as error:  # clients wait for news of the context, not of the socket
            error.ctx = reading.text_field(data, "context_id")
            raise
        name = asked.context_id or self.house.new_id()
        if asked.cancel:
            return self._cancel(name)
        try:
            return self._generate(name, asked)
        except (BadRequestError, UnknownVoiceError, UnsupportedFormatError) as error:
            error.ctx = name
            raise

    def _cancel(self, name: str) -> Steps:
        if self._contexts.pop(name, None) is None:
            return ()  # it has ended on the way
        self._cancelled[name] += 1
        return (Cancel(ctx=name),)

    def _generate(self, name: str, asked: _Generation) -> Steps:
        steps: list[Step] = []
        context = self._contexts.get(name)
        if context is None:
            if asked.output_format.container != "raw":
                raise UnsupportedFormatError("output_format.container: only raw on a WebSocket")
            steps.append(_start(name, asked, self.house, is_file=False))
            context = _Context(
                is_float=asked.output_format.encoding == "pcm_f32le",
                wants_words=bool(asked.add_timestamps),
            )
            self._contexts[name] = context
        elif context.is_ended:
            raise BadRequestError("context_id: this context was ended with continue: false")
        context.is_ended = not asked.is_continued
        context.flushes += bool(asked.flush)
        steps.append(
            Text(
                ctx=name,
                text=asked.transcript,
                flush=bool(asked.flush),
                end=context.is_ended,
                id=str(context.flushes) if asked.flush else None,
            )
        )
        return steps

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        match message:
            case Audio():
                context = self._contexts.get(message.ctx)
                return () if context is None else (_chunk(message, context),)
            case Marks():
                context = self._contexts.get(message.ctx)
                wants = context is not None and context.wants_words
                return (reading.encode(_timestamps(message, message.ctx)),) if wants else ()
            case Flushed():
                return self._flushed(message)
            case Done():
                return self._done(message)
            case Error():
                fields = {"type": "error", "context_id": message.ctx, "done": True}
                return (reading.encode(fields | _error(message)),)
            case _:
                return ()

    def _flushed(self, message: Flushed) -> Steps:
        context = self._contexts.get(message.ctx)
        if context is None:
            return ()
        context.flushed += 1
        fields = {
            "type": "flush_done",
            "context_id": message.ctx,
            "flush_id": context.flushed,
            "flush_done": True,
            "done": False,
            "status_code": _PARTIAL,
        }
        return (reading.encode(fields),)

    def _done(self, message: Done) -> Steps:
        if message.reason == "cancelled" and self._cancelled[message.ctx]:
            self._cancelled[message.ctx] -= 1
            self._cancelled += Counter()  # forgets what is at zero
        else:
            self._contexts.pop(message.ctx, None)
        if message.reason == "error":
            return ()  # the error said it
        if message.reason == "shutdown":  # half a text is no success
            return self.send(cut_short(message))
        return (reading.encode(_finished(message.ctx)),)


def _chunk(message: Audio, context: _Context) -> str:
    data = to_f32(message.data) if context.is_float else message.data
    fields: dict[str, Any] = {
        "type": "chunk",
        "context_id": message.ctx,
        "data": base64.b64encode(data).decode(),
        "done": False,
        "status_code": _PARTIAL,
        "step_time": 0.0,
    }
    if context.flushes:
        fields["flush_id"] = context.flushed + 1
    return reading.encode(fields)


# --- HTTP ----------------------------------------------------------------------------------------


class Bytes(Cartesia, SpeechDialect):
    """`POST /tts/bytes`: the body is the audio."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._asked = asked = reading.decode(request.body, _Generation)
        if not asked.transcript:
            raise BadRequestError("transcript: is missing or empty")
        self._start = _start(_HTTP_CTX, asked, house, is_file=True)
        self._is_float = asked.output_format.encoding == "pcm_f32le"
        self._is_first = True

    def messages(self) -> Sequence[AnyClientMessage]:
        """See `SpeechDialect`."""
        return [self._start, Text(ctx=_HTTP_CTX, text=self._asked.transcript, end=True)]

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        types = {"wav": "audio/wav", "mp3": "audio/mpeg", "raw": "application/octet-stream"}
        return Head(types[self._asked.output_format.container])

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        if isinstance(message, Audio):
            return (self._header() + self._samples(message),)
        end = ending(message)
        return () if end is None else (end,)

    def _header(self) -> bytes:
        asked = self._asked.output_format
        if not self._is_first or asked.container != "wav":
            return b""
        self._is_first = False
        return wav_header(asked.sample_rate, coding=_CODECS[asked.encoding][1])

    def _samples(self, message: Audio) -> bytes:
        is_float = self._is_float and self._asked.output_format.container != "mp3"
        return to_f32(message.data) if is_float else message.data


class Events(Bytes):
    """`POST /tts/sse`: server-sent events."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        if self._asked.output_format.container != "raw":
            raise UnsupportedFormatError("output_format.container: only raw as events")

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        return Head("text/event-stream")

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        ctx = self._asked.context_id
        match message:
            case Audio():
                fields: dict[str, Any] = {
                    "type": "chunk",
                    "context_id": ctx,
                    "data": base64.b64encode(self._samples(message)).decode(),
                    "done": False,
                    "status_code": _PARTIAL,
                    "step_time": 0.0,
                }
                return (_event(fields),)
            case Marks():
                return (_event(_timestamps(message, ctx)),) if self._asked.add_timestamps else ()
            case Error():
                fields = {"type": "error", "context_id": ctx, "done": True}
                return (_event(fields | _error(message)), Hangup())
            case Done(reason="completed"):
                return (_event(_finished(ctx)), Hangup())
            case Done():
                return (Hangup(1011, message.reason),)
            case _:
                return ()


def _event(fields: dict[str, Any]) -> str:
    return f"event: {fields['type']}\ndata: {reading.encode(fields)}\n\n"


# --- what they share -----------------------------------------------------------------------------


def _start(name: str, asked: _Generation, house: House, *, is_file: bool) -> Start:
    house.names.model(asked.model_id)
    config = asked.generation_config or _GenerationConfig()
    speed = config.speed
    if speed is None and asked.speed is not None:
        speed = asked.speed if isinstance(asked.speed, float) else _SPEEDS.get(asked.speed)
    return Start(
        ctx=name,
        voice=house.names.voice(_voice_id(asked), or_default=True),
        language=asked.language or asked.locale,
        instructions=config.emotion,
        speed=house.speed(speed),
        format=_format(asked.output_format),
        chunking=_chunking(asked.max_buffer_delay_ms),
        timestamps="word" if asked.add_timestamps else "none",
        max_lead_ms=0 if is_file else None,
    )


def _voice_id(asked: _Generation) -> str | None:
    if isinstance(asked.voice, _VoiceId):
        if asked.voice.id is None:
            raise BadRequestError("voice.id: is missing; embeddings are not taken here")
        return asked.voice.id
    return asked.voice


def _format(asked: _OutputFormat) -> Format:
    if asked.container == "mp3":
        return Format(codec="mp3", sample_rate=asked.sample_rate, bitrate=asked.bit_rate)
    return Format(codec=_CODECS[asked.encoding][0], sample_rate=asked.sample_rate)


def _chunking(delay_ms: int | None) -> Chunking | None:
    """0 says that the client sends finished sentences; else how long a word may be waited for."""
    if delay_ms == 0:
        return Chunking(mode="client")
    if delay_ms is None:
        return None
    usual = Chunking()
    first_ms = min(delay_ms, usual.first_max_delay_ms)
    return Chunking(first_max_delay_ms=first_ms, max_delay_ms=delay_ms)


def _timestamps(message: Marks, ctx: str | None) -> dict[str, Any]:
    return {
        "type": "timestamps",
        "context_id": ctx,
        "done": False,
        "status_code": _PARTIAL,
        "word_timestamps": {
            "words": [word for word, _, _ in message.items],
            "start": [start_ms / 1000 for _, start_ms, _ in message.items],
            "end": [end_ms / 1000 for _, _, end_ms in message.items],
        },
    }


def _finished(ctx: str | None) -> dict[str, Any]:
    return {"type": "done", "context_id": ctx, "done": True, "status_code": _OK}


def _error(error: Error) -> dict[str, Any]:
    return {
        "title": error.code.replace("_", " ").capitalize(),
        "message": error.message,
        "error_code": error.code,
        "status_code": status_of(error),
        "doc_url": None,
        "request_id": "",
    }


# --- voices --------------------------------------------------------------------------------------


def voices(request: Request, house: House) -> Reply:
    """The engine's voices, in pages as the SDKs turn them."""
    query = request.query
    known = [_voice(voice) for voice in house.capabilities.voices]
    ids = [voice["id"] for voice in known]
    if query.get("starting_after") in ids:
        known = known[ids.index(query["starting_after"]) + 1 :]
    if query.get("ending_before") in ids:
        known = known[: ids.index(query["ending_before"])]
    limit = int(query["limit"]) if query.get("limit", "").isdecimal() else len(known)
    page = known[:limit]
    has_more = len(page) < len(known)
    fields = {
        "data": page,
        "has_more": has_more,
        "next_page": page[-1]["id"] if page and has_more else None,
    }
    return Reply(status=200, body=msgspec.json.encode(fields))


def voice(request: Request, house: House) -> Reply:
    """One voice, under any of its names."""
    name = request.params["voice"]
    known = house.names.voice(name, or_default=False) or house.capabilities.default_voice
    found = house.capabilities.voice(known)
    assert found is not None, "names are those of voices"
    return Reply(status=200, body=msgspec.json.encode(_voice(found)))


def _voice(voice: Voice) -> dict[str, Any]:
    return {
        "id": voice.id,
        "name": voice.name or voice.id,
        "description": voice.description,
        "tagline": "",
        "language": voice.languages[0],
        "locales": [],
        "gender": {"female": "feminine", "male": "masculine"}.get(voice.gender or ""),
        "is_owner": False,
        "is_public": True,
        "access": "public",
        "visibility": "all",
        "created_at": "1970-01-01T00:00:00Z",
    }


ROUTES = (
    Route("WS", "/tts/websocket", Socket),
    Route("POST", "/tts/bytes", Bytes),
    Route("POST", "/tts/sse", Events),
    Route("GET", "/voices", Listing(Cartesia, voices)),
    Route("GET", "/voices/", Listing(Cartesia, voices)),
    Route("GET", "/voices/{voice}", Listing(Cartesia, voice)),
)
