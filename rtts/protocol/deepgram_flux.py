"""Deepgram's turns: `/v2/speak` on a WebSocket ("Flux").

Source: https://developers.deepgram.com/docs/flux-tts (2026) and the types of the Python SDK 7.17. A turn is
what is said between two `Flush`es; turns are spoken one after another, and a turn that is interrupted
says how much of it was heard. What differs and why is in `docs/protocol/deepgram.md`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from rtts.errors import TextBufferFullError, UnknownTypeError
from rtts.protocol import reading
from rtts.protocol.deepgram import (
    FLUX_SPEEDS,
    ClientText,
    Deepgram,
    check_expressivity,
    dg_headers,
    model_id,
    new_request_id,
    raw_coding,
    select_subprotocol,
    speaker,
    speed,
)
from rtts.protocol.dialect import Hangup, House, Request, Route, SocketDialect, Step, Steps
from rtts.protocol.events import AnyServerMessage, Audio, Cancel, Done, End, Error, Start, Text

# Turns that wait; as much text as a session would buffer.
MAX_WAITING_CHARS = 40_000
MAX_WAITING_TURNS = 1000
_SPEED_STEP = 0.05
_NO_CONTROLS = {"pronunciations_applied": 0, "breaks_applied": 0, "pronunciation_warnings": 0}
# Codes of their `Error`, by ours; whatever else goes wrong is a fault of the server.
_CODES = {
    "bad_json": "MESSAGE-0000",
    "unknown_type": "MESSAGE-0000",
    "message_too_big": "BIG-0000",
    "bad_request": "DATA-0000",
    "text_too_long": "DATA-0000",
    "text_buffer_full": "DATA-0000",
}


class _Offset(Struct):
    value: Annotated[float, Meta(ge=0, le=86_400_000)]
    type: Literal["time_ms"] = "time_ms"


class _Interrupt(Struct):
    playback_offset: _Offset | None = None


class _Configure(Struct):
    speed: float | None = None


@dataclass(slots=True)
class _Turn:
    """What is said between two flushes.

    Attributes:
        id: For the client; also the context's name.
        pieces: Its text.
        n_chars: Of all its text.
        is_ended: Its `Flush` has come.
        n_bytes: Of audio that was sent.
        began_ms: Session audio before it.
    """

    id: str
    pieces: list[str] = field(default_factory=list)
    n_chars: int = 0
    is_ended: bool = False
    n_bytes: int = 0
    began_ms: float = 0.0


class Flux(Deepgram, SocketDialect):
    """`/v2/speak`."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._speaker = speaker(request.query, house)
        self._coding = raw_coding(request.query)
        self._speed = speed(request.query, FLUX_SPEEDS, house)
        check_expressivity(request.query)
        self._request_id = new_request_id()
        self.headers = dg_headers(self._request_id, self._speaker)
        self._active: _Turn | None = None
        self._waiting: deque[_Turn] = deque()
        self._interrupted: dict[str, tuple[_Turn, float | None]] = {}  # with what was played
        self._audio_ms = 0.0  # of the session, rebased by interruptions
        self._last_offset_ms = -1.0
        self._n_chars = 0
        self._is_closing = False

    @classmethod
    def subprotocol(cls, offered: Any) -> str | None:
        """See `SocketDialect`: the scheme, never the key."""
        return select_subprotocol(offered)

    def opened(self, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        model = self._speaker.model
        fields = {
            "type": "Connected",
            "request_id": self._request_id,
            "model_name": model,
            "model_version": self.house.version,
            "model_uuids": [model_id(model)],
        }
        return (reading.encode(fields),)

    # --- what the client says -------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        fields = reading.load_object(data)
        message = reading.convert(fields, ClientText)
        match message.type:
            case "Interrupt":
                return self._interrupt(reading.convert(fields, _Interrupt))
            case "KeepAlive":
                return ()
            case "Speak" | "Flush" | "Configure" | "Close" if self._is_closing:
                return ()
            case "Speak":
                return self._speak(message.text)
            case "Flush":
                return self._flush()
            case "Configure":
                return self._configure(reading.convert(fields, _Configure).speed)
            case "Close":
                return self._close()
            case other:
                raise UnknownTypeError(f"unknown message type {other[:64]!r}")

    def _writing(self) -> _Turn | None:
        """The turn that takes text: the last one, unless its `Flush` has come."""
        last = self._waiting[-1] if self._waiting else self._active
        return None if last is None or last.is_ended else last

    def _speak(self, text: str) -> Steps:
        if not text:
            return ()
        waiting = sum(turn.n_chars for turn in self._waiting)
        if waiting + len(text) > MAX_WAITING_CHARS or len(self._waiting) >= MAX_WAITING_TURNS:
            raise TextBufferFullError("too much text waits for its turn")
        turn = self._writing()
        if turn is None:
            turn = _Turn(f"dg_sp_{self.house.new_id()[-12:]}")
            self._waiting.append(turn)
        turn.n_chars += len(text)
        turn.pieces.append(text)
        return (Text(ctx=turn.id, text=text),) if turn is self._active else self._go_on()

    def _flush(self) -> Steps:
        turn = self._writing()
        if turn is None:
            return (_warning("NO_ACTIVE_SPEECH", "there is no turn to flush"),)
        turn.is_ended = True
        if turn is self._active:
            return (_flushed(turn), End(ctx=turn.id))
        return ()

    def _configure(self, wanted: float | None) -> Steps:
        if wanted is not None:
            problem = self._wrong_speed(wanted)
            if problem is not None:
                return (reading.encode(problem),)
            self._speed = self.house.speed(wanted)
        applied = {} if self._speed is None else {"speed": self._speed}
        return (reading.encode({"type": "ConfigureSuccess", "applied": applied}),)

    def _wrong_speed(self, wanted: float) -> dict[str, Any] | None:
        slowest, fastest = FLUX_SPEEDS
        failure: dict[str, Any] = {"type": "ConfigureFailure", "field": "speed", "value": wanted}
        steps = wanted / _SPEED_STEP
        if not slowest <= wanted <= fastest:
            code, why = "SPEED_OUT_OF_RANGE", f"speed goes from {slowest:g} to {fastest:g}"
        elif abs(steps - round(steps)) > 1e-6:
            code, why = "SPEED_INCREMENT_INVALID", f"speed goes in steps of {_SPEED_STEP:g}"
        elif self.house.capabilities.speed_range == (1.0, 1.0) and wanted != 1:
            code, why = "SPEED_NOT_SUPPORTED", "this voice has one speed"
            del failure["value"]
        else:
            return None
        return failure | {"code": code, "description": why}

    def _interrupt(self, message: _Interrupt) -> Steps:
        turn, offset = self._active, message.playback_offset
        if turn is None:
            if not self._audio_ms:
                return (_warning("NO_AUDIO_GENERATED", "nothing was spoken yet"),)
            return (_warning("NO_ACTIVE_SPEECH", "there is no turn to interrupt"),)
        if offset is not None and offset.value <= self._last_offset_ms:
            why = "playback_offset is not past that of the last interruption"
            return (_warning("INVALID_INTERRUPT_OFFSET", why),)
        played_ms = None if offset is None else offset.value
        self._last_offset_ms = self._audio_ms if played_ms is None else played_ms
        self._active = None
        # What waited behind it was written before the interruption, too.
        self._waiting.clear()
        self._interrupted[turn.id] = (turn, played_ms)
        heard_ms = None if played_ms is None else max(0.0, played_ms - turn.began_ms)
        return (Cancel(ctx=turn.id, played_ms=heard_ms),)

    def _close(self) -> Steps:
        """What was said is spoken; then the session is summed up."""
        self._is_closing = True
        turn = self._writing()
        if turn is not None:
            turn.is_ended = True
        steps: list[Step] = []
        if turn is not None and turn is self._active:
            steps.append(End(ctx=turn.id))
        return [*steps, *self._leave()]

    # --- what the session says ------------------------------------------------------------------

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        if isinstance(message, Error):
            code = _CODES.get(message.code, "NET-0000")
            said = {"type": "Error", "code": code, "description": message.message}
            return (reading.encode(said),)
        turn = self._active
        match message:
            case Audio() if turn is not None and message.ctx == turn.id:
                data = self._coding.code(message.data)
                turn.n_bytes += len(data)
                self._audio_ms = turn.began_ms + self._coding.duration_ms(turn.n_bytes)
                return (data,)
            case Done() if turn is not None and message.ctx == turn.id:
                return self._done(message, turn)
            case Done() if message.ctx in self._interrupted:
                return self._was_interrupted(message)
            case _:
                return ()

    def _done(self, message: Done, turn: _Turn) -> Steps:
        self._active = None
        if message.reason == "error":
            code = message.code or "internal"
            return (Hangup(self.close_code(code), code),)
        if message.reason == "shutdown":
            return ()  # cut short; the close says so
        steps: list[Step] = []
        if message.last_seq < 0:
            steps.append(
                _warning("NO_SYNTHESIZABLE_TEXT", "there is nothing to speak in this text")
            )
        self._n_chars += turn.n_chars
        metadata = {"type": "SpeechMetadata"} | self._metadata(turn)
        steps.append(reading.encode(metadata))
        return [*steps, *self._go_on(), *self._leave()]

    def _was_interrupted(self, message: Done) -> Steps:
        turn, played_ms = self._interrupted.pop(message.ctx)
        metadata = self._metadata(turn)
        if played_ms is not None:
            self._audio_ms = played_ms
        self._n_chars += turn.n_chars
        said: dict[str, Any] = {
            "type": "SpeechInterrupted",
            "audio_played_ms": round(self._audio_ms),
            "metadata": metadata,
        }
        if played_ms is not None:
            # One that had just been spoken whole has no `spoken`.
            spoken = "".join(turn.pieces) if message.spoken is None else message.spoken
            said |= {"text_spoken": spoken, "text_remaining": message.remaining or ""}
        return [reading.encode(said), *self._go_on(), *self._leave()]

    def _metadata(self, turn: _Turn) -> dict[str, Any]:
        return {
            "speech_id": turn.id,
            "audio_duration_ms": round(self._coding.duration_ms(turn.n_bytes)),
            "input_character_count": turn.n_chars,
            "billable_character_count": turn.n_chars,
            "controls_applied": _NO_CONTROLS,
        }

    # --- one after another ----------------------------------------------------------------------

    def _go_on(self) -> list[Step]:
        """Begin the next turn, unless one is under way or being cut off."""
        if self._active is not None or self._interrupted or not self._waiting:
            return []
        self._active = turn = self._waiting.popleft()
        turn.began_ms = self._audio_ms
        started = {"type": "SpeechStarted", "speech_id": turn.id}
        steps: list[Step] = [reading.encode(started), self._start(turn.id)]
        steps.append(Text(ctx=turn.id, text="".join(turn.pieces)))
        if turn.is_ended:
            steps += [_flushed(turn), End(ctx=turn.id)]
        return steps

    def _start(self, name: str) -> Start:
        return Start(
            ctx=name,
            voice=self._speaker.voice,
            language=self._speaker.language,
            speed=self._speed,
            format=self._coding.format,
            timestamps="none",
        )

    def _leave(self) -> list[Step]:
        """Once a closing session has spoken everything: the sums, and good bye."""
        if not self._is_closing or self._active or self._interrupted or self._waiting:
            return []
        sums = {
            "type": "SessionMetadata",
            "total_audio_duration_ms": round(self._audio_ms),
            "total_input_character_count": self._n_chars,
            "total_billable_character_count": self._n_chars,
        }
        return [reading.encode(sums), Hangup()]


def _flushed(turn: _Turn) -> str:
    return f'{{"type":"Flushed","speech_id":"{turn.id}"}}'


def _warning(code: str, description: str) -> str:
    return reading.encode({"type": "Warning", "code": code, "description": description})


ROUTES = (Route("WS", "/v2/speak", Flux),)
