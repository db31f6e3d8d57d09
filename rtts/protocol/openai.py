"""OpenAI's speech API: `POST /v1/audio/speech`, and the lists of models and voices.

Source: https://platform.openai.com/docs/api-reference/audio/createSpeech (2026). What differs and why is
in `docs/protocol/openai.md`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rtts.errors import BadRequestError, UnsupportedFormatError
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
    SpeechDialect,
    Steps,
    ending,
    status_of,
)
from rtts.protocol.events import (
    AnyClientMessage,
    AnyServerMessage,
    Audio,
    Done,
    Error,
    Format,
    Start,
    Started,
    Text,
)

_CTX = "speech"
# 64 kbit/s: what LAME needs for mono speech at 24 kHz to be told apart from PCM by nobody.
_FORMATS = {
    "pcm": (Format(codec="pcm_s16le", sample_rate=24_000), "audio/pcm"),
    "wav": (Format(codec="pcm_s16le", container="wav", sample_rate=24_000), "audio/wav"),
    "opus": (Format(codec="opus", container="ogg", bitrate=48_000), "audio/ogg; codecs=opus"),
    "mp3": (Format(codec="mp3", sample_rate=24_000, bitrate=64_000), "audio/mpeg"),
}
# What `usage` counts: a token of output is one frame of a 12.5 Hz codec.
_TOKENS_PER_S = 12.5
_PARAM = re.compile(r"missing required field ([a-z_.]+)$|([a-z_.]+): ")
_PARAMS = {
    "unknown_voice": "voice",
    "unsupported_format": "response_format",
    "unsupported_language": "language",
    "text_too_long": "input",
}


class _VoiceId(Struct):
    id: str


class _Speech(Struct):
    """The request's body. What is not here is ignored."""

    input: Annotated[str, Meta(min_length=1)]
    model: str | None = None
    voice: str | _VoiceId | None = None
    instructions: Annotated[str, Meta(max_length=2000)] | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    # Of vLLM-Omni and others who speak this API.
    language: str | None = None
    seed: int | None = None
    ref_audio: Any = None


class OpenAi(Dialect):
    """Keys and errors of the API."""

    name: ClassVar[str] = "openai"

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`."""
        return Reply(status=status_of(error), body=msgspec.json.encode(_error(error)))


class Speech(OpenAi, SpeechDialect):
    """One request to speak."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._asked = asked = reading.decode(request.body, _Speech)
        if asked.ref_audio is not None:
            raise BadRequestError("ref_audio: not taken here; name a voice of this server")
        house.names.model(asked.model)
        voice = asked.voice.id if isinstance(asked.voice, _VoiceId) else asked.voice
        self._voice = house.names.voice(voice, or_default=False)
        name = asked.response_format or "mp3"
        if name not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise UnsupportedFormatError(f"response_format: {name} is not made here; {known} are")
        self._format, self._content_type = _FORMATS[name]
        self._is_sse = asked.stream_format == "sse"

    def messages(self) -> Sequence[AnyClientMessage]:
        """See `SpeechDialect`."""
        asked = self._asked
        start = Start(
            ctx=_CTX,
            voice=self._voice,
            language=asked.language or None,
            instructions=asked.instructions,
            speed=self.house.speed(asked.speed),
            seed=self.house.seed(asked.seed),
            format=self._format,
            timestamps="none",
            max_lead_ms=0,
        )
        return [start, Text(ctx=_CTX, text=asked.input, end=True)]

    def head(self, started: Started) -> Head:
        """See `SpeechDialect`."""
        content_type = "text/event-stream" if self._is_sse else self._content_type
        return Head(content_type, (("x-request-id", f"req_{self.house.new_id()}"),))

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SpeechDialect`."""
        if self._is_sse:
            return self._events(message)
        if isinstance(message, Audio):
            return (message.data,)
        end = ending(message)
        return () if end is None else (end,)

    def _events(self, message: AnyServerMessage) -> Steps:
        match message:
            case Audio():
                audio = base64.b64encode(message.data).decode()
                return (f'data: {{"type":"speech.audio.delta","audio":"{audio}"}}\n\n',)
            case Error():
                event = {"type": "error", **_error(message)}
                return (f"data: {reading.encode(event)}\n\n",)
            case Done(reason="completed"):
                event = {"type": "speech.audio.done", "usage": _usage(message)}
                return (f"data: {reading.encode(event)}\n\n", Hangup())
            case Done():
                return (Hangup(1011, message.reason),)
            case _:
                return ()


def _usage(done: Done) -> dict[str, int]:
    spoken = round(done.audio_ms / 1000 * _TOKENS_PER_S)
    return {
        "input_tokens": done.text_chars,
        "output_tokens": spoken,
        "total_tokens": done.text_chars + spoken,
    }


def _error(error: Error) -> dict[str, Any]:
    status = status_of(error)
    named = _PARAM.match(error.message)
    param = _PARAMS.get(error.code) or (named[1] or named[2] if named else None)
    kind = "invalid_request_error" if status < 500 else "server_error"
    fields: dict[str, Any] = {
        "message": error.message,
        "type": "rate_limit_error" if status == 429 else kind,
        "param": "input" if param == "text" else param,
        "code": error.code,
    }
    if error.retry_after_ms is not None:
        fields["retry_after_ms"] = error.retry_after_ms
    return {"error": fields}


# --- lists ---------------------------------------------------------------------------------------


def models(request: Request, house: House) -> Reply:
    """The model under each of its names, its own first; the fields of rtts beside OpenAI's."""
    del request
    return _json({"object": "list", "data": [_model(name, house) for name in house.names.models]})


def model(request: Request, house: House) -> Reply:
    """One model."""
    name = request.params["model"]
    house.names.model(name)
    return _json(_model(name, house))


def _model(name: str, house: House) -> dict[str, Any]:
    capabilities = house.capabilities
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "rtts",
        "engine": capabilities.engine,
        "sample_rate": capabilities.sample_rate_hz,
        "languages": list(capabilities.languages),
        "word_timings": capabilities.word_timings.value,
        "takes_instructions": capabilities.takes_instructions,
        "takes_seed": capabilities.takes_seed,
        "speed_range": list(capabilities.speed_range),
    } | ({} if name == capabilities.model else {"alias_of": capabilities.model})


def voices(request: Request, house: House) -> Reply:
    """Every name a request may use for a voice."""
    del request
    own = house.capabilities.voices
    listed = [{"id": voice.id, "name": voice.name or voice.id} for voice in own]
    listed += [
        {"id": name, "name": name, "alias_of": voice} for name, voice in house.names.voices.items()
    ]
    return _json({"voices": listed, "default_voice": house.capabilities.default_voice})


def _json(body: dict[str, Any]) -> Reply:
    headers = (("content-type", "application/json"), ("cache-control", "no-store"))
    return Reply(status=200, body=msgspec.json.encode(body), headers=headers)


ROUTES = (
    Route("POST", "/v1/audio/speech", Speech),
    Route("GET", "/v1/audio/voices", Listing(OpenAi, voices)),
    Route("GET", "/v1/models", Listing(OpenAi, models)),
    Route("GET", "/v1/models/{model}", Listing(OpenAi, model)),
)
