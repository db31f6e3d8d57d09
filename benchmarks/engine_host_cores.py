"""Cores for `engine_host.py`, in a module of their own so that a child process can import them."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Sequence

from rtts.engine.interface import AudioProduced, CancelUtterance, Command, Event, StartUtterance
from rtts.engine.tone import ToneEngine

_BLOCK = bytes(600_000)


class Stepper(ToneEngine):
    """Steps without a pause while an utterance runs, and sends how long each step took.

    A step is about 1.5 ms of native code that releases the GIL, in six calls, with 50 us of Python
    after each: the shape of a model driven from Python.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: int | None = None

    def apply(self, command: Command) -> None:
        if isinstance(command, StartUtterance):
            self._running = command.utterance_id
        if isinstance(command, CancelUtterance):
            self._running = None
        super().apply(command)

    def has_work(self) -> bool:
        return self._running is not None or super().has_work()

    def next_due_s(self, now: float) -> float | None:
        return None

    def step(self, now: float) -> Sequence[Event]:
        if self._running is None:
            return super().step(now)
        begun_s = time.perf_counter()
        for _ in range(6):
            hashlib.sha256(_BLOCK)
            sum(range(2_500))
        took = struct.pack("<d", time.perf_counter() - begun_s)
        return [AudioProduced(self._running, 0, took)]
