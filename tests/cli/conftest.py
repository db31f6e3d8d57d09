from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rtts.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, no settings of whoever runs the tests, no server on the default port.

    The engine is the tone engine: deterministic, and loaded in no time.
    """
    for name in [name for name in os.environ if name.startswith("RTTS_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("RTTS_ENGINE_KIND", "tone")
    monkeypatch.setenv("RTTS_SERVER_PORT", str(unused_port()))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'clients/python'}")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture
def rtts(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""

    def run(*argv: str) -> Outcome:
        capfd.readouterr()
        try:
            status = main(argv)
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        shown = capfd.readouterr()
        return Outcome(status, shown.out, shown.err)

    return run


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a command as a process; whatever still runs at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **options: object) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-m", "rtts", *argv], **{**pipes, **options})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command in this process sets logging up for itself; the next test is none of its business."""
    root, named = (
        logging.getLogger(),
        [logging.getLogger(n) for n in ("uvicorn", "websockets", "asyncio")],
    )
    level, handlers, levels = root.level, list(root.handlers), [each.level for each in named]
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(level)
    for each, before in zip(named, levels, strict=True):
        each.setLevel(before)
