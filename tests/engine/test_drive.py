"""The loop that runs a core, with a port and a core that only take notes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from rtts.engine.drive import drive
from rtts.engine.interface import Command, Event, FinishText, LoadVoice, VoiceEvicted


class Core:
    """Steps as often as it was told to."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps
        self.log: list[str] = []

    def apply(self, command: Command) -> None:
        self.log.append(f"apply {getattr(command, 'utterance_id', 'load')}")
        self.steps += isinstance(command, LoadVoice)

    def has_work(self) -> bool:
        return self.steps > 0

    def step(self, now: float) -> Sequence[Event]:
        assert abs(now - time.monotonic()) < 1.0
        self.steps -= 1
        self.log.append("step")
        return [VoiceEvicted("v")] if self.steps % 2 else []


class TimedCore(Core):
    """Its work is due at a time."""

    due_in_s: float | None = 5.0

    def next_due_s(self, now: float) -> float | None:
        return None if self.due_in_s is None else now + self.due_in_s


class Port:
    """Hands out batches, then says stop; notes for how long it was told to wait."""

    def __init__(self, *batches: Sequence[Command]) -> None:
        self.batches = list(batches)
        self.waits: list[float | None] = []
        self.emitted: list[Sequence[Event]] = []

    def receive(self, wait_s: float | None) -> Sequence[Command] | None:
        self.waits.append(wait_s)
        return self.batches.pop(0) if self.batches else None

    def emit(self, events: Sequence[Event]) -> None:
        self.emitted.append(events)


def test_all_commands_come_before_the_step() -> None:
    """A batch is applied whole, in order, and then one step is made."""
    core, port = Core(), Port([LoadVoice("v"), FinishText(1), FinishText(2)])
    drive(core, port)
    assert core.log == ["apply load", "apply 1", "apply 2", "step"]


def test_without_work_it_waits_for_ever() -> None:
    """No polling: an idle core is woken by commands only, and not stepped."""
    core, port = Core(), Port([], [FinishText(1)])
    drive(core, port)
    assert port.waits == [None, None, None]
    assert "step" not in core.log


def test_with_work_it_does_not_wait() -> None:
    """Between steps it only looks what has come, and hands out what is worth it."""
    core, port = Core(steps=3), Port([], [], [], [])
    drive(core, port)
    assert port.waits == [0.0, 0.0, 0.0, None, None]
    assert core.log == ["step"] * 3
    assert port.emitted == [[VoiceEvicted("v")]]  # nothing is not handed out


def test_work_that_is_due_later_is_waited_for() -> None:
    """A timed core is not stepped before its time, and not asked again and again."""
    core, port = TimedCore(steps=1), Port([], [FinishText(1)])
    drive(core, port)
    assert port.waits == pytest.approx([5.0, 5.0, 5.0], abs=0.1)
    assert core.log == ["apply 1"]


@pytest.mark.parametrize("due_in_s", [None, 0.0, -1.0])
def test_work_that_is_due_is_done(due_in_s: float | None) -> None:
    """No time, or a time that has passed, means at once."""
    core, port = TimedCore(steps=1), Port([])
    core.due_in_s = due_in_s
    drive(core, port)
    assert core.log == ["step"]


def test_what_a_core_raises_comes_through() -> None:
    """The loop does not decide what a death means."""

    class Dead(Core):
        def step(self, now: float) -> Sequence[Event]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(Dead(steps=1), Port([]))
