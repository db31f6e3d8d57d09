"""The loop that runs a core: take commands, step, hand out events, until told to stop.

The same loop runs on a thread (`rtts.engine.local`) and in a child process (`rtts.engine.child`);
what differs is the port through which commands come and events go. This module knows nothing about
event loops, sockets or who the utterances belong to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, cast

from rtts.engine.interface import Command, EngineCore, Event


class TimedCore(Protocol):
    """An optional addition to `EngineCore`: a core whose next work lies in the future."""

    def next_due_s(self, now: float) -> float | None:
        """When `step` next has something to do, while `has_work()` is true.

        Returns:
            Monotonic seconds; None, or a time that has passed, means at once.
        """


class Port(Protocol):
    """The core's side of a host. Owner: the thread that drives the core."""

    def receive(self, wait_s: float | None) -> Sequence[Command] | None:
        """Every command that is waiting, in order.

        Args:
            wait_s: How long to wait for a first one; 0 does not wait, None waits for ever.

        Returns:
            The commands, perhaps none; None when the host wants the core to stop.
        """

    def emit(self, events: Sequence[Event]) -> None:
        """Hand events over; they are never reordered."""


def drive(core: EngineCore, port: Port) -> None:
    """Run the core until the port says stop. What the core raises comes through.

    All waiting commands are applied before each step, so a cancel is seen within one step.
    """
    timed = cast("TimedCore", core) if hasattr(core, "next_due_s") else None
    while (commands := port.receive(_wait_s(core, timed, time.monotonic()))) is not None:
        for command in commands:
            core.apply(command)
        now = time.monotonic()
        if _wait_s(core, timed, now) == 0.0:
            events = core.step(now)
            if events:
                port.emit(events)


def _wait_s(core: EngineCore, timed: TimedCore | None, now: float) -> float | None:
    """How long the core has nothing to do: 0 if it should step now, None if it waits for commands."""
    if not core.has_work():
        return None
    due_s = None if timed is None else timed.next_due_s(now)
    return 0.0 if due_s is None else max(0.0, due_s - now)
