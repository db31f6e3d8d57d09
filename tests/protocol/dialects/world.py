"""A dialect with a session and a tone engine behind it: no socket, no waiting, a manual clock."""

from __future__ import annotations

import itertools
import json
from typing import Any

from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.errors import ProtocolError
from rtts.protocol import native
from rtts.protocol.dialect import Hangup, House, Request, SocketDialect, SpeechDialect, Step, Steps
from rtts.protocol.events import Error, ServerMessage
from rtts.server.filler import Filler
from rtts.server.surfaces import foreign_options
from rtts.session import DeliveryMarker, SessionOptions
from rtts.voices.aliases import AliasOptions, AliasTable
from tests.session.world import World


def house(tone: ToneOptions | None = None, aliases: AliasOptions | None = None, **more: Any):
    """What a dialect may know of a server with the tone engine."""
    core = ToneEngine(tone or ToneOptions())
    capabilities = next(event.capabilities for event in core.step(0.0))
    ids = itertools.count(1)
    return House(
        capabilities=capabilities,
        names=AliasTable(aliases or AliasOptions(), capabilities),
        new_id=lambda: f"{next(ids):016x}",
        version="0.0",
        **more,
    )


class SocketWorld(World):
    """A client of a WebSocket dialect.

    `frames` is what reached the client in order (text frames decoded, if they are JSON), `hangup`
    how the socket was closed, if it was.
    """

    def __init__(
        self,
        dialect: type[SocketDialect],
        request: Request | None = None,
        *,
        options: SessionOptions | None = None,
        tone: ToneOptions | None = None,
        aliases: AliasOptions | None = None,
    ) -> None:
        super().__init__(foreign_options(options or SessionOptions()), tone)
        self.frames: list[Any] = []
        self.hangup: Hangup | None = None
        self._filler = Filler()
        self.dialect = dialect(request or Request(), house(tone, aliases))
        self._carry_out(self.dialect.opened(self.now))
        self.pump()

    def tell(self, *messages: Any) -> None:
        """The client sends JSON (a dict), or text."""
        for message in messages:
            if self.hangup is not None:
                return
            data = message if isinstance(message, str) else json.dumps(message)
            self._act(lambda data=data: self.dialect.receive(data.encode(), self.now))

    def of_type(self, kind: str, key: str = "type") -> list[dict[str, Any]]:
        """The JSON frames whose `type` is that."""
        return [f for f in self.frames if isinstance(f, dict) and f.get(key) == kind]

    def _act(self, act: Any) -> None:
        try:
            steps = list(act())
        except ProtocolError as wrong:
            self.session.reject(wrong, self.now, ctx=wrong.ctx, ref=wrong.ref)
        else:
            self._carry_out(steps)
        self.pump()

    def _carry_out(self, steps: Steps) -> None:
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        if self.hangup is not None:
            return
        if isinstance(step, Hangup):
            self.hangup = step
            self.session.detach(self.now, resumable=False)
        elif isinstance(step, str):
            self.frames.append(json.loads(step) if step.startswith("{") else step)
        elif isinstance(step, bytes):
            self.frames.append(step)
        else:
            try:
                self.session.receive(native.check(step), self.now)
            except ProtocolError as wrong:
                self.session.reject(wrong, self.now, ctx=wrong.ctx, ref=wrong.ref)

    def advance(self, seconds: float) -> None:
        """Let time pass, the dialect's deadlines included."""
        end = self.now + seconds
        while (due := self.dialect.deadline) is not None and due <= end:
            super().advance(max(0.0, due - self.now))
            if self.dialect.deadline == due:
                self._act(lambda: self.dialect.timer(self.now))
            assert self.dialect.deadline != due, "a deadline that passed does not move"
        super().advance(end - self.now)

    def _drain(self) -> bool:
        moved = False
        while self.writable and self.hangup is None:
            message = self.session.next_message(self.now)
            if message is None:
                closing = self.session.closing
                if closing is not None:
                    code = self.dialect.close_code(closing.code)
                    self._step(Hangup(code, closing.reason))
                return moved
            moved = True
            self._pass_on(message)
        return moved

    def _pass_on(self, message: ServerMessage | DeliveryMarker) -> None:
        if isinstance(message, DeliveryMarker):
            self.session.sent(message, self.now)
            if self.reads:
                self.session.delivered(message.marker, self.now)
            return
        self.messages.append(message)
        steps = [step for each in self._filler.fill(message) for step in self.dialect.send(each)]
        self._carry_out([step for step in steps if isinstance(step, str | bytes)])
        self.session.sent(message, self.now)
        self._carry_out([step for step in steps if not isinstance(step, str | bytes)])


class SpeechWorld(World):
    """One HTTP request for speech. `body` is what the client got; `error` why it got none."""

    def __init__(
        self,
        dialect: type[SpeechDialect],
        body: Any,
        *,
        tone: ToneOptions | None = None,
        aliases: AliasOptions | None = None,
        **request: Any,
    ) -> None:
        super().__init__(foreign_options(SessionOptions()), tone)
        self.pieces: list[bytes] = []
        self.error: Error | None = None
        self.hangup: Hangup | None = None
        self._filler = Filler()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = Request(method="POST", body=data, **request)
        self.dialect = dialect(asked, house(tone, aliases))
        self.send(*(native.check(message) for message in self.dialect.messages()))
        self.advance(0.0)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def sse(self) -> list[dict[str, Any]]:
        """The data of server-sent events."""
        lines = self.body.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    def _drain(self) -> bool:
        moved = False
        while self.hangup is None and (message := self.session.next_message(self.now)) is not None:
            moved = True
            if isinstance(message, DeliveryMarker):
                self.session.sent(message, self.now)
                self.session.delivered(message.marker, self.now)
                continue
            self.messages.append(message)
            self._write(message)
            self.session.sent(message, self.now)
        return moved

    def _write(self, message: ServerMessage) -> None:
        if isinstance(message, Error) and not self.pieces:
            self.error, self.hangup = message, Hangup(1011)
            return
        for each in self._filler.fill(message):
            for step in self.dialect.send(each):
                if isinstance(step, Hangup):
                    self.hangup = step
                    return
                assert isinstance(step, str | bytes)
                self.pieces.append(step.encode() if isinstance(step, str) else step)
