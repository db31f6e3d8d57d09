"""What tests of hosts need: an engine, everything it delivered, and waiting with an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from rtts.engine.hosting import HostedEngine
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    Command,
    EngineReady,
    Event,
    FinishReason,
    FinishText,
    GrantAudio,
    LoadVoice,
    StartUtterance,
    UtteranceEvent,
    UtteranceFailed,
)
from tests.engine.conformance import UNLIMITED_S, Ledger

EventT = TypeVar("EventT", bound=Event)

PATIENCE_S = 20.0  # a shared machine may be slow; a test that waits this long has failed


class Listener:
    """The server's side of an engine: delivers into ledgers, which refuse what may not come."""

    def __init__(self, engine: HostedEngine) -> None:
        self.engine = engine
        self.events: list[Event] = []
        self.at_s: list[float] = []  # when each of `events` was delivered
        self.ledgers: dict[int, Ledger] = {}
        self._ids = count(1)
        self._changed = asyncio.Event()

    def deliver(self, events: Sequence[Event]) -> None:
        assert events, "a delivery of nothing"
        now = time.monotonic()
        for event in events:
            self.events.append(event)
            self.at_s.append(now)
            if isinstance(event, UtteranceEvent):
                self.ledgers[event.utterance_id].take(event, now)
        self._changed.set()

    def submit(self, *commands: Command) -> None:
        for command in commands:
            if isinstance(command, StartUtterance):
                self.ledgers[command.utterance_id] = Ledger(command, 24_000, command.until_s)
            elif not isinstance(command, LoadVoice):
                self._note(command)
        self.engine.submit(commands)

    def _note(self, command: AppendText | FinishText | GrantAudio | CancelUtterance) -> None:
        ledger = self.ledgers[command.utterance_id]
        match command:
            case AppendText():
                ledger.texts[command.segment] = command.text
            case FinishText():
                ledger.is_finished = True
            case GrantAudio():
                ledger.until_s = max(ledger.until_s, command.until_s)
            case CancelUtterance():
                ledger.is_cancelled = True

    def say(self, *texts: str, finish: bool = True, **fields: object) -> Ledger:
        """Start an utterance with this text, in one batch."""
        utterance_id = next(self._ids)
        given = {"voice": "tone", "until_s": UNLIMITED_S, **fields}
        self.submit(
            StartUtterance(utterance_id, **given),  # type: ignore[arg-type]
            *(AppendText(utterance_id, n, text) for n, text in enumerate(texts)),
            *([FinishText(utterance_id)] if finish else []),
        )
        return self.ledgers[utterance_id]

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Every event of that kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def when(self, kind: type[Event]) -> list[float]:
        """When each of them was delivered."""
        both = zip(self.events, self.at_s, strict=True)
        return [at_s for event, at_s in both if isinstance(event, kind)]

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that a delivery brings."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self._changed.clear()
                await self._changed.wait()

    async def ready(self, times: int = 1) -> None:
        await self.until(lambda: len(self.of(EngineReady)) >= times)

    async def heard(self, ledger: Ledger) -> None:
        await self.until(lambda: bool(ledger.audio))

    async def ended(self, *ledgers: Ledger) -> list[FinishReason | str]:
        """How each ended: a reason, or the code of a failure."""
        await self.until(lambda: all(each.terminal is not None for each in ledgers))
        endings: list[FinishReason | str] = []
        for ledger in ledgers:
            assert ledger.terminal is not None
            is_failed = isinstance(ledger.terminal, UtteranceFailed)
            endings.append(ledger.terminal.code if is_failed else ledger.terminal.reason)
        return endings


def first_audio_s(listener: Listener) -> float:
    """When the first audio was delivered."""
    return listener.when(AudioProduced)[0]
