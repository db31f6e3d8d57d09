from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rtts.cli.serve import with_encoders
from rtts.server import ServerOptions
from rtts.settings import EngineOptions, Settings


def started(process: subprocess.Popen[bytes]) -> str:
    """Wait until it is ready; its HTTP address."""
    assert process.stdout is not None
    listening = process.stdout.readline().decode()
    match = re.fullmatch(
        r"listening on ws(://127\.0\.0\.1:\d+)/v1/tts \(tone engine\)\n", listening
    )
    assert match, listening
    assert process.stdout.readline() == b"ready\n"
    return "http" + match[1]


def test_encoder_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare cores encode where the engine has a process of its own; what is set is left alone."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    found = {}
    for kind in ("tone", "qwen"):
        settings = Settings(engine=EngineOptions(kind=kind))
        found[kind] = with_encoders(settings).server.encoder_threads
        for threads in (0, 3):
            given = replace(settings, server=ServerOptions(encoder_threads=threads))
            assert with_encoders(given) == given
    assert found == {"tone": 0, "qwen": 7}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_life(spawn: Callable[..., subprocess.Popen[bytes]], number: signal.Signals) -> None:
    """It says where it listens and when it is ready, answers, and ends with 0 when asked to."""
    process = spawn("serve", "--port", "0")
    url = started(process)
    with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
        assert json.load(answer)["ready"] is True

    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    logged = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level"} <= set(record) for record in logged)
    assert any("settings: file none" in record.get("message", "") for record in logged)


def test_line_about_an_utterance(
    spawn: Callable[..., subprocess.Popen[bytes]], rtts: Callable[..., object]
) -> None:
    """A context that ended is one JSON line with a time, and without what was said."""
    process = spawn("serve", "--port", "0")
    url = started(process)
    assert rtts("say", "Secret words.", "--server", url, "--json").status == 0
    process.terminate()
    _, err = process.communicate(timeout=20)
    (line,) = [json.loads(each) for each in err.splitlines() if b'"utterance"' in each]
    assert line["time"].endswith("+00:00")
    assert line["level"] == "info"
    assert b"Secret" not in err


def test_remote_host(
    spawn: Callable[..., subprocess.Popen[bytes]], rtts: Callable[..., object]
) -> None:
    """The engine can run in a process of its own."""
    process = spawn("serve", "--port", "0", "--engine-host", "remote")
    url = started(process)
    assert rtts("say", "Hello.", "--server", url, "--json").status == 0
    process.terminate()
    assert process.wait(20) == 0


class TestRefusals:
    def test_port_in_use(self, rtts: Callable[..., object]) -> None:
        """An address that is taken ends it with 2 and one line that names it."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            outcome = rtts("serve", "--port", str(port))
        assert outcome.status == 2
        assert str(port) in outcome.err.splitlines()[-1]
        assert "Traceback" not in outcome.err

    def test_open_to_everybody(self, rtts: Callable[..., object]) -> None:
        """Other addresses than loopback need keys, or --insecure."""
        outcome = rtts("serve", "--host", "0.0.0.0", "--port", "0")
        assert outcome.status == 2
        assert "--insecure" in outcome.err.splitlines()[-1]

    def test_voice_that_does_not_exist(self, rtts: Callable[..., object]) -> None:
        """A default voice the engine does not have ends it with 2 before it is ready."""
        outcome = rtts("serve", "--port", "0", "--voice", "nobody")
        assert outcome.status == 2
        assert "nobody" in outcome.err.splitlines()[-1]
        assert "ready" not in outcome.out

    def test_no_libopus(self, rtts: Callable[..., object]) -> None:
        """A libopus that was named and is none ends it with 2."""
        Path("fake.so").write_text("no library")
        outcome = rtts("serve", "--port", "0", "--set", "audio.opus_library=fake.so")
        assert outcome.status == 2
        assert "fake.so" in outcome.err.splitlines()[-1]


def test_insecure(spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """--insecure opens other addresses without keys."""
    process = spawn("serve", "--host", "0.0.0.0", "--port", "0", "--insecure")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"listening on ws://")
    process.terminate()
    assert process.wait(20) == 0


def test_two_processes_and_one_dies(
    spawn: Callable[..., subprocess.Popen[bytes]], rtts: Callable[..., object]
) -> None:
    """With one of two engine processes killed the server speaks on, and says what it lacks."""
    process = spawn("serve", "--port", "0", "--engine-host", "remote", "--workers", "2")
    url = started(process)

    def read(path: str) -> bytes:
        with urllib.request.urlopen(f"{url}{path}", timeout=5) as answer:
            return bytes(answer.read())

    assert json.loads(read("/readyz"))["engine_processes"] == {"up": 2, "total": 2}
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    deadline = time.monotonic() + 10
    seen: list[dict[str, object]] = []
    while True:
        body = json.loads(read("/readyz"))
        assert body["ready"]
        seen += (
            [body] if not seen or body["engine_processes"] != seen[-1]["engine_processes"] else []
        )
        if len(seen) > 1 and seen[-1]["engine_processes"] == {"up": 2, "total": 2}:
            break
        assert time.monotonic() < deadline
    low = next(body for body in seen if body["engine_processes"] == {"up": 1, "total": 2})
    assert low["troubles"] == ["1 of 2 engine processes are down"]
    assert low["slots"] == seen[-1]["slots"] // 2
    metrics = read("/metrics").decode()
    assert 'rtts_engine_processes{state="up"} 2.0' in metrics
    assert "rtts_engine_restarts_total 1.0" in metrics
    assert rtts("say", "Hello.", "--server", url, "--json").status == 0
