"""DashScope's Qwen-TTS-Realtime: `/api-ws/v1/realtime`, responses in a row on a socket.

Source: https://www.alibabacloud.com/help/en/model-studio/qwen-tts-realtime (client and server events, 2026)
and the Python SDK 2.0. What differs and why is in `docs/protocol/dashscope.md`.

In the mode "commit" each commit is a response. In the mode "server_commit" a response begins with the
first text and ends at a commit, at the end of the session, or when text stays away.
"""

from __future__ import annotations

import base64
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from rtts.audio.mp3 import BITRATES_BPS
from rtts.errors import (
    BadRequestError,
    ProtocolError,
    TextBufferFullError,
    UnknownTypeError,
    UnsupportedFormatError,
)
from rtts.protocol import reading
from rtts.protocol.dialect import (
    Hangup,
    House,
    Reply,
    Request,
    Route,
    SocketDialect,
    Step,
    Steps,
    status_of,
)
from rtts.protocol.events import (
    AnyServerMessage,
    Audio,
    Cancel,
    Container,
    Done,
    End,
    Error,
    Format,
    Start,
    Text,
)

MAX_WAITING_CHARS = 40_000
MAX_WAITING_RESPONSES = 1000
# The server speaks what was left without punctuation after 1.5 s; a response whose text has stayed
# away for longer is complete, so that clients that never commit hear of its end.
QUIET_S = 2.0
# https://www.alibabacloud.com/help/en/model-studio/qwen-tts-realtime: speech is 50 tokens a second.
_TOKENS_PER_S = 50
_RATES_HZ = (8000, 16_000, 22_050, 24_000, 44_100, 48_000)
# Opus has neither 22.05 nor 44.1 kHz (RFC 6716 section 2): the next rate up loses nothing.
_OPUS_RATES_HZ = {22_050: 24_000, 44_100: 48_000}
_REFUSALS = {
    "unauthorized": "InvalidApiKey",
    "forbidden_origin": "AccessDenied",
    "rate_limited": "Throttling.RateQuota",
    "overloaded": "ServiceUnavailable",
    "shutting_down": "ServiceUnavailable",
    "engine_dead": "ServiceUnavailable",
    "internal": "InternalError",
}


class _Settings(Struct):
    """`session` of a `session.update`; what is null or absent stays. What is not here is ignored."""

    voice: str | None = None
    mode: Literal["server_commit", "commit"] | None = None
    response_format: Literal["pcm", "wav", "mp3", "opus", "pcm16"] | None = None
    sample_rate: int | None = None
    bit_rate: Annotated[int, Meta(ge=6, le=510)] | None = None
    language_type: str | None = None
    speech_rate: Annotated[float, Meta(ge=0.5, le=2)] | None = None
    instructions: Annotated[str, Meta(max_length=2000)] | None = None
    volume: Annotated[float, Meta(ge=0, le=100)] | None = None
    pitch_rate: Annotated[float, Meta(ge=0.5, le=2)] | None = None
    enable_tn: bool | None = None
    optimize_instructions: bool | None = None


class _Event(Struct):
    """Any event of a client, as far as all have the same fields."""

    type: str = ""
    event_id: Any = None  # a string, which comes back in errors
    text: str = ""


class _UntimelyError(BadRequestError):
    """A right event at the wrong time: clients that do that now and then keep their connection."""


@dataclass(slots=True)
class _Response:
    """One answer in speech.

    Attributes:
        id: Also the context's name.
        item: The one thing in it.
        text: All of it that the session has not got.
        settings: That held when it was begun.
        voice: Of the engine; None is its default.
        is_ended: No more text comes.
    """

    id: str
    item: str
    settings: _Settings
    voice: str | None
    text: str = ""
    is_ended: bool = False


class Realtime(SocketDialect):
    """`/api-ws/v1/realtime?model=`."""

    name: ClassVar[str] = "dashscope"

    @classmethod
    def refusal(cls, error: Error) -> Reply:
        """See `Dialect`."""
        code = _REFUSALS.get(error.code, "InvalidParameter")
        body = {"code": code, "message": error.message, "request_id": str(uuid.uuid4())}
        return Reply(status=status_of(error), body=reading.encode(body).encode())

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._model = request.query.get("model") or house.capabilities.model
        house.names.model(self._model)
        self._id = f"sess_{house.new_id()}"
        self._settings = _Settings(mode="server_commit", response_format="pcm", sample_rate=24_000)
        self._buffer = ""  # of mode "commit"
        self._active: _Response | None = None
        self._waiting: deque[_Response] = deque()
        self._is_finished = False  # the client has nothing more to say

    def opened(self, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        return (self._event("session.created", session=self._session()),)

    # --- what the client says -------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        fields = reading.load_object(data)
        asked = reading.convert(_without_nulls(fields), _Event)
        ref = asked.event_id if isinstance(asked.event_id, str) else None
        try:
            return self._take(asked, fields, now)
        except _UntimelyError as error:
            said = Error(code=error.code, message=error.message, fatal=False, ref=ref)
            return (self._error(said),)
        except ProtocolError as error:
            error.ref = ref
            raise

    def _take(self, asked: _Event, fields: dict[str, Any], now: float) -> Steps:
        match asked.type:
            case "input_text_buffer.clear":
                return self._clear()
            case "response.cancel":
                return self._cancel()
            case _ if self._is_finished:
                raise _UntimelyError("type: the session is finished")
            case "session.update":
                return self._update(fields.get("session"))
            case "input_text_buffer.append":
                return self._append(asked.text, now)
            case "input_text_buffer.commit":
                return self._commit()
            case "session.finish":
                return self._finish()
            case other:
                raise UnknownTypeError(f"type: {other[:64]!r} is no event of a client")

    def _update(self, asked: Any) -> Steps:
        if not isinstance(asked, dict):
            raise BadRequestError("session: is missing")
        if self._active or self._waiting or self._buffer:
            raise _UntimelyError("session: it can be changed between responses, not inside one")
        update = reading.convert(_without_nulls(asked), _Settings)
        merged = _Settings(**_fields(self._settings) | _fields(update))
        _format(merged)
        voice = self.house.names.voice(merged.voice, or_default=False)
        self.house.names.speaker(voice, _language(merged))
        self._settings = merged
        return (self._event("session.updated", session=self._session()),)

    def _append(self, text: str, now: float) -> Steps:
        if not text:
            return ()
        waiting = len(self._buffer) + sum(len(response.text) for response in self._waiting)
        if waiting + len(text) > MAX_WAITING_CHARS:
            raise TextBufferFullError("text: too much waits for its turn")
        if self._settings.mode == "commit":
            self._buffer += text
            return ()
        self.deadline = now + QUIET_S
        response = self._writing() or self._new_response()
        if response is self._active:
            return (Text(ctx=response.id, text=text),)
        response.text += text
        return self._go_on()

    def _writing(self) -> _Response | None:
        """The response that takes text."""
        last = self._waiting[-1] if self._waiting else self._active
        return None if last is None or last.is_ended else last

    def _new_response(self, text: str = "", *, is_ended: bool = False) -> _Response:
        if len(self._waiting) >= MAX_WAITING_RESPONSES:
            raise TextBufferFullError("too many responses wait for their turn")
        name, item, settings = self.house.new_id(), self.house.new_id(), self._settings
        voice = self.house.names.voice(settings.voice, or_default=False)
        response = _Response(f"resp_{name}", f"item_{item}", settings, voice, text, is_ended)
        self._waiting.append(response)
        return response

    def _commit(self) -> Steps:
        if self._settings.mode != "commit":
            response = self._writing()
            item = response.item if response is not None else ""
            committed = self._event("input_text_buffer.committed", item_id=item)
            return [committed, *self._end_text()]
        if not self._buffer:
            raise _UntimelyError("input_text_buffer: is empty")
        response = self._new_response(self._buffer, is_ended=True)
        self._buffer = ""
        committed = self._event("input_text_buffer.committed", item_id=response.item)
        return [committed, *self._go_on()]

    def _end_text(self) -> Steps:
        """The response that takes text is complete."""
        self.deadline = None
        response = self._writing()
        if response is None:
            return ()
        response.is_ended = True
        return (End(ctx=response.id),) if response is self._active else ()

    def timer(self, now: float) -> Steps:
        """See `SocketDialect`: text has stayed away."""
        del now
        return self._end_text()

    def _clear(self) -> Steps:
        """Text that was not committed is forgotten; where there is none, speech stops."""
        cleared = self._event("input_text_buffer.cleared")
        if self._buffer:
            self._buffer = ""
            return (cleared,)
        return [*self._stop(), cleared, *self._leave()]

    def _cancel(self) -> Steps:
        return [*self._stop(), *self._leave()]

    def _stop(self) -> list[Step]:
        """Nothing of what was to be spoken is."""
        self.deadline = None
        self._waiting.clear()
        response, self._active = self._active, None
        if response is None:
            return []
        return [Cancel(ctx=response.id), *self._closing(response, "cancelled", None)]

    def _finish(self) -> Steps:
        if self._buffer:
            self._new_response(self._buffer, is_ended=True)
            self._buffer = ""
        self._is_finished = True
        return [*self._end_text(), *self._go_on(), *self._leave()]

    # --- what the session says ------------------------------------------------------------------

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        response = self._active
        match message:
            case Error():
                return (self._error(message),)
            case Audio() if response is not None and message.ctx == response.id:
                audio = base64.b64encode(message.data).decode()
                part = self._part(response)
                return (self._event("response.audio.delta", **part, delta=audio),)
            case Done() if response is not None and message.ctx == response.id:
                self._active = None
                status = "completed" if message.reason == "completed" else "failed"
                steps = self._closing(response, status, message)
                return [*steps, *self._go_on(), *self._leave()]
            case _:
                return ()

    def _error(self, error: Error) -> str:
        status = status_of(error)
        param = error.message.partition(":")[0]
        said: dict[str, Any] = {
            "type": "invalid_request_error" if status < 500 else "server_error",
            "code": "invalid_value" if status == 400 else error.code,
            "message": error.message,
        }
        if param.replace("_", "").replace(".", "").isalpha():
            said["param"] = param
        if error.ref is not None:
            said["event_id"] = error.ref
        return self._event("error", error=said)

    # --- one after another ----------------------------------------------------------------------

    def _go_on(self) -> list[Step]:
        """Begin the next response, unless one is under way."""
        if self._active is not None or not self._waiting:
            return []
        self._active = response = self._waiting.popleft()
        part = self._part(response)
        where = {"response_id": response.id, "output_index": 0}
        text, response.text = response.text, ""
        steps: list[Step] = [
            self._event("response.created", response=self._summary(response, "in_progress")),
            self._event("response.output_item.added", **where, item=_item(response, "in_progress")),
            self._event("response.content_part.added", **part, part={"type": "audio", "text": ""}),
            self._start(response),
            Text(ctx=response.id, text=text),
        ]
        return [*steps, End(ctx=response.id)] if response.is_ended else steps

    def _start(self, response: _Response) -> Start:
        settings = response.settings
        return Start(
            ctx=response.id,
            voice=response.voice,
            language=_language(settings),
            instructions=settings.instructions or None,
            speed=self.house.speed(settings.speech_rate),
            format=_format(settings),
            timestamps="none",
        )

    def _closing(self, response: _Response, status: str, done: Done | None) -> list[Step]:
        """The events that end a response, whatever has become of it."""
        part = self._part(response)
        where = {"response_id": response.id, "output_index": 0}
        ended = self._summary(response, status)
        item = _item(response, "completed" if status == "completed" else "incomplete")
        ended["output"] = [item]
        if done is not None:
            ended["usage"] = _usage(done)
        return [
            self._event("response.audio.done", **part),
            self._event("response.content_part.done", **part, part={"type": "audio", "text": ""}),
            self._event("response.output_item.done", **where, item=item),
            self._event("response.done", response=ended),
        ]

    def _leave(self) -> list[Step]:
        """Once a finished session has spoken everything."""
        if not self._is_finished or self._active or self._waiting:
            return []
        return [self._event("session.finished"), Hangup()]

    # --- events ---------------------------------------------------------------------------------

    def _event(self, kind: str, **fields: Any) -> str:
        event = {"event_id": f"event_{self.house.new_id()}", "type": kind}
        return reading.encode(event | fields)

    def _part(self, response: _Response) -> dict[str, Any]:
        return {
            "response_id": response.id,
            "item_id": response.item,
            "output_index": 0,
            "content_index": 0,
        }

    def _session(self) -> dict[str, Any]:
        settings = _fields(self._settings)
        settings.setdefault("voice", self.house.capabilities.default_voice)
        return {"id": self._id, "object": "realtime.session", "model": self._model} | settings

    def _summary(self, response: _Response, status: str) -> dict[str, Any]:
        voice = response.settings.voice or self.house.capabilities.default_voice
        return {
            "id": response.id,
            "object": "realtime.response",
            "conversation_id": "",
            "status": status,
            "modalities": ["text", "audio"],
            "voice": voice,
            "output": [],
        }


def _item(response: _Response, status: str) -> dict[str, Any]:
    content = [] if status == "in_progress" else [{"type": "audio", "transcript": ""}]
    return {
        "id": response.item,
        "object": "realtime.item",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _usage(done: Done) -> dict[str, Any]:
    spoken = round(done.audio_ms / 1000 * _TOKENS_PER_S)
    return {
        "characters": done.text_chars,
        "total_tokens": done.text_chars + spoken,
        "input_tokens": done.text_chars,
        "output_tokens": spoken,
        "input_tokens_details": {"text_tokens": done.text_chars},
        "output_tokens_details": {"text_tokens": 0, "audio_tokens": spoken},
    }


def _language(settings: _Settings) -> str | None:
    named = settings.language_type or "auto"
    return None if named.lower() == "auto" else named


def _format(settings: _Settings) -> Format:
    """What the settings ask for.

    Raises:
        UnsupportedFormatError: There is no such rate.
    """
    name, rate_hz = settings.response_format or "pcm", settings.sample_rate or 24_000
    if rate_hz not in _RATES_HZ:
        known = ", ".join(map(str, _RATES_HZ))
        raise UnsupportedFormatError(f"session.sample_rate: {rate_hz} is none of {known}")
    bitrate = 1000 * (settings.bit_rate or 128)
    if name == "opus":
        rate_hz = _OPUS_RATES_HZ.get(rate_hz, rate_hz)
        bitrate = min(bitrate, 256_000)
        return Format(codec="opus", container="ogg", sample_rate=rate_hz, bitrate=bitrate)
    if name == "mp3":
        if rate_hz not in BITRATES_BPS:
            raise UnsupportedFormatError(f"session.sample_rate: mp3 at {rate_hz} is not made here")
        nearest = min(BITRATES_BPS[rate_hz], key=lambda known: abs(known - bitrate))
        return Format(codec="mp3", sample_rate=rate_hz, bitrate=nearest)
    container: Container = "wav" if name == "wav" else "raw"  # "pcm16": older SDKs
    return Format(codec="pcm_s16le", container=container, sample_rate=rate_hz)


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _fields(settings: _Settings) -> dict[str, Any]:
    """What is set."""
    return {
        name: value
        for name in settings.__struct_fields__
        if (value := getattr(settings, name)) is not None
    }


ROUTES = (Route("WS", "/api-ws/v1/realtime", Realtime),)
