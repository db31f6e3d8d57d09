"""Cores that misbehave, importable by a child process."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rtts.engine.interface import (
    AudioProduced,
    Command,
    EngineReady,
    Event,
    FinishReason,
    LoadVoice,
    StartUtterance,
    UtteranceFinished,
)
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.errors import ConfigError

log = logging.getLogger("rtts.engine.cores")


def tone(**options: object) -> ToneEngine:
    """A tone engine by keyword."""
    return ToneEngine(ToneOptions(**options))  # type: ignore[arg-type]


def never() -> ToneEngine:
    """A factory that fails."""
    raise FileNotFoundError("no weights at \ud800 /nowhere")


def after(marks: str, failures: int) -> ToneEngine:
    """A factory that fails so many times, counted as files in a folder, then works."""
    attempt = len(list(Path(marks).iterdir()))
    (Path(marks) / str(attempt)).touch()
    if attempt < failures:
        raise RuntimeError(f"attempt {attempt} failed")
    return ToneEngine()


class Touchy(ToneEngine):
    """A tone engine that does what the instructions of an utterance say when it starts."""

    def apply(self, command: Command) -> None:
        if isinstance(command, StartUtterance):
            match command.instructions:
                case "raise":
                    raise ZeroDivisionError("asked to")
                case "exit":
                    sys.exit(3)
                case "quit":
                    os._exit(3)
                case "segfault":
                    ctypes.string_at(0)
                case "hang":
                    time.sleep(60.0)
                case "doze":
                    time.sleep(0.3)
                case "orphan":  # a grandchild without a clue, which holds what it inherited
                    if os.fork() == 0:
                        time.sleep(10.0)
                        os._exit(0)
                case "fds":
                    names = sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in _open_fds())
                    raise OSError(" ".join(names))
                case "log":
                    log.warning("something \ud800 to know")
                    other = threading.Thread(target=log.warning, args=("from elsewhere",))
                    other.start()
                    other.join()
                case "print":
                    print("a library that prints")
        super().apply(command)


def _open_fds() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]


class Chatty(ToneEngine):
    """A core that goes on after its terminal events, and makes up utterances."""

    def step(self, now: float) -> Sequence[Event]:
        events = list(super().step(now))
        for event in list(events):
            if isinstance(event, UtteranceFinished):
                events.append(AudioProduced(event.utterance_id, 0, b"\0\0", begun_s=now))
                events.append(UtteranceFinished(event.utterance_id, FinishReason.CANCELLED))
                events.append(UtteranceFinished(12_345, FinishReason.COMPLETED))
        return events


class Stubborn(ToneEngine):
    """A core whose process does not end when asked to: it blocks in every step but the first."""

    def has_work(self) -> bool:
        return True

    def step(self, now: float) -> Sequence[Event]:
        events = super().step(now)
        if not events:
            time.sleep(60.0)
        return events


def misconfigured() -> ToneEngine:
    """A factory that finds a wrong setting."""
    raise ConfigError("tone.pitch: 440 is not allowed")


class Brisk(Touchy):
    """A tone engine whose steps are short, so it says; its voices take long to load."""

    def __init__(self) -> None:
        super().__init__()
        self._outbox = [EngineReady(replace(self._capabilities, step_limit_s=0.3))]

    def apply(self, command: Command) -> None:
        if isinstance(command, LoadVoice):
            time.sleep(0.9)
        super().apply(command)


def vanishing(marks: str) -> Touchy:
    """A factory that works the first and the third time, and misses its folder the second."""
    attempt = len(list(Path(marks).iterdir()))
    (Path(marks) / str(attempt)).touch()
    if attempt == 1:
        raise ConfigError("the folder is gone")
    return Touchy()
