"""Deepgram's `/v1/speak` on a WebSocket: one stream of audio for one stream of text.

Source: https://developers.deepgram.com/docs/streaming-text-to-speech and the pages of its control messages
(2026). What differs and why is in `docs/protocol/deepgram.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rtts.errors import UnknownTypeError
from rtts.protocol import reading
from rtts.protocol.deepgram import (
    SPEEDS,
    ClientText,
    Deepgram,
    dg_headers,
    model_id,
    new_request_id,
    raw_coding,
    select_subprotocol,
    speaker,
    speed,
)
from rtts.protocol.dialect import Hangup, House, Request, Route, SocketDialect, Step, Steps
from rtts.protocol.events import (
    AnyServerMessage,
    Audio,
    Cancel,
    Done,
    End,
    Error,
    Flush,
    Flushed,
    Start,
    Text,
)


@dataclass(slots=True)
class _Speech:
    """A context: from the first text after silence to the last flush that nothing followed.

    Attributes:
        flushes: For each `Flush` that waits for its answer whether text came before it.
        is_owing: Text has come that no `Flush` has followed yet.
        is_heard: There was audio since the last `Flushed`.
    """

    name: str
    flushes: deque[bool] = field(default_factory=deque)
    is_owing: bool = False
    is_heard: bool = False


class Socket(Deepgram, SocketDialect):
    """`/v1/speak`: one stream of audio for one stream of text."""

    def __init__(self, request: Request, house: House) -> None:
        super().__init__(request, house)
        self._speaker = speaker(request.query, house)
        self._coding = raw_coding(request.query)
        self._speed = speed(request.query, SPEEDS, house)
        self._request_id = new_request_id()
        self.headers = dg_headers(self._request_id, self._speaker)
        self._names = 0
        self._answers = 0
        self._open: _Speech | None = None  # takes text
        self._live: dict[str, _Speech] = {}  # and those whose last audio is on its way
        self._is_closing = False

    @classmethod
    def subprotocol(cls, offered: Sequence[str]) -> str | None:
        """See `SocketDialect`: the scheme, never the key."""
        return select_subprotocol(offered)

    def opened(self, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        model = self._speaker.model
        fields = {
            "type": "Metadata",
            "request_id": self._request_id,
            "model_name": model,
            "model_version": self.house.version,
            "model_uuid": model_id(model),
        }
        return (reading.encode(fields),)

    # --- what the client says -------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> Steps:
        """See `SocketDialect`."""
        del now
        message = reading.decode(data, ClientText)
        match message.type:
            case "Clear":
                return self._clear()
            case "KeepAlive":  # of their transcription, which clients send here too
                return ()
            case "Speak" | "Flush" | "Close" if self._is_closing:
                return ()
            case "Speak":
                return self._speak(message.text)
            case "Flush":
                return self._flush()
            case "Close":
                self._is_closing = True
                return () if self._is_waited_for() else (Hangup(),)
            case other:
                raise UnknownTypeError(f"unknown message type {other[:64]!r}")

    def _speak(self, text: str) -> Steps:
        if not text:
            return ()
        steps: list[Step] = []
        if self._open is None:
            self._names += 1
            self._open = _Speech(f"s{self._names}")
            self._live[self._open.name] = self._open
            steps.append(self._start(self._open.name))
        self._open.is_owing = True
        return [*steps, Text(ctx=self._open.name, text=text)]

    def _start(self, name: str) -> Start:
        return Start(
            ctx=name,
            voice=self._speaker.voice,
            language=self._speaker.language,
            speed=self._speed,
            format=self._coding.format,
            timestamps="none",
        )

    def _flush(self) -> Steps:
        if self._open is None:
            return (self._answer("Flushed"),)
        self._open.flushes.append(self._open.is_owing)
        self._open.is_owing = False
        return (Flush(ctx=self._open.name),)

    def _clear(self) -> Steps:
        """Also the answer to each `Flush` it overtakes.

        Agents have begun their next turn by then, and would take a `Flushed` for the end of that.
        """
        steps: list[Step] = [Cancel(ctx=name) for name in self._live]
        self._live.clear()
        self._open = None
        steps.append(self._answer("Cleared"))
        return [*steps, Hangup()] if self._is_closing else steps

    def _is_waited_for(self) -> bool:
        return any(speech.flushes for speech in self._live.values())

    # --- what the session says ------------------------------------------------------------------

    def send(self, message: AnyServerMessage) -> Steps:
        """See `SocketDialect`."""
        if isinstance(message, Error):
            return (_warning(message),)
        speech = self._live.get(getattr(message, "ctx", None) or "")
        if speech is None:
            return ()
        match message:
            case Audio():
                speech.is_heard = True
                return (self._coding.code(message.data),)
            case Flushed():
                return self._flushed(speech)
            case Done():
                return self._done(message, speech)
            case _:
                return ()

    def _flushed(self, speech: _Speech) -> Steps:
        if len(speech.flushes) == 1 and not speech.is_owing:
            # Nothing has followed: this was the last of a reply, and its end is its answer.
            self._open = None
            return (End(ctx=speech.name),)
        return self._acknowledge(speech)

    def _acknowledge(self, speech: _Speech) -> Steps:
        has_text = bool(speech.flushes) and speech.flushes.popleft()
        is_silent = has_text and not speech.is_heard
        speech.is_heard = False
        steps: list[Step] = [self._coding.some_silence()] if is_silent else []
        steps.append(self._answer("Flushed"))
        if self._is_closing and not self._is_waited_for():
            steps.append(Hangup())
        return steps

    def _done(self, message: Done, speech: _Speech) -> Steps:
        del self._live[speech.name]
        if self._open is speech:
            self._open = None
        if message.reason == "error":
            code = message.code or "internal"
            return (Hangup(self.close_code(code), code),)
        steps: list[Step] = []
        while speech.flushes and message.reason != "shutdown":
            steps += self._acknowledge(speech)
        return steps

    def _answer(self, kind: str) -> str:
        number = self._answers
        self._answers += 1
        return f'{{"type":"{kind}","sequence_id":{number}}}'


def _warning(error: Error) -> str:
    """`warn_msg` is what LiveKit's plugin reads."""
    fields = {
        "type": "Warning",
        "description": error.message,
        "code": error.code.upper(),
        "warn_msg": error.message,
    }
    return reading.encode(fields)


ROUTES = (Route("WS", "/v1/speak", Socket),)
