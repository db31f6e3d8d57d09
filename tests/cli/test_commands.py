"""The commands that only tell: config, voices, doctor, demo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rtts.audio import mp3
from rtts.cli import checks, playback, voices
from rtts.cli.looking import Check


class TestConfig:
    def test_origins(self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
        """Each value with its origin; secrets hidden; the file that was read on top."""
        Path("rtts.toml").write_text("[session]\nbudget_s = 0.3\n")
        monkeypatch.setenv("RTTS_SERVER_API_KEYS", "hunter2")
        out = rtts("config", "--set", "cpu.threads=2").out
        assert out.startswith(f"# file: {Path.cwd() / 'rtts.toml'}\n")
        assert f"budget_s = 0.3  # {Path.cwd() / 'rtts.toml'}:2\n" in out
        assert "threads = 2  # --set cpu.threads\n" in out
        assert 'kind = "tone"  # RTTS_ENGINE_KIND\n' in out
        assert "hunter2" not in out

    def test_json(self, rtts: Callable[..., object]) -> None:
        """--json says the same to a program, with the same fingerprint."""
        answer = json.loads(rtts("config", "--json").out)
        assert answer["settings"]["session.budget_s"] == {"value": 0.5, "origin": "default"}
        assert rtts("config").out.endswith(f"# SHA-256 {answer['sha256']}\n")

    def test_mistake_in_the_file(self, rtts: Callable[..., object]) -> None:
        """A mistake in a named file names file and line."""
        Path("my.toml").write_text("\n[session]\nbudget_ms = 300\n")
        outcome = rtts("config", "--config", "my.toml")
        assert outcome.status == 2
        assert outcome.err == (
            'rtts: my.toml:3: there is no setting "session.budget_ms";'
            ' did you mean "session.budget_s"?\n'
        )


class TestVoices:
    def test_table(self, rtts: Callable[..., object]) -> None:
        """A line for each voice, the default one marked, and once what they cannot do."""
        out = rtts("voices").out
        rows = out.splitlines()
        assert rows[0].split() == ["voice", "languages", "licence", "description"]
        assert [row.split()[0] for row in rows[1:4]] == ["tone", "tone-low", "tone-high"]
        assert rows[1].startswith("tone *")
        assert out.count("Not speech") == 1

    def test_voice_with_a_name(self) -> None:
        """A voice that a user brought shows the name it can be asked for by."""
        voice = {"languages": ["en"], "licence": "x", "notes": [], "description": "deep"}
        brought = {**voice, "id": "voice-1", "name": "Ada"}
        own = {**voice, "id": "heart", "name": "heart"}
        rows = voices._table([brought, own]).splitlines()
        assert rows[1].split() == ["voice-1", "en", "x", "Ada:", "deep"]
        assert rows[2].split() == ["heart", "en", "x", "deep"]

    def test_json(self, rtts: Callable[..., object]) -> None:
        """--json is what /v1/voices answers."""
        answer = json.loads(rtts("voices", "--json").out)
        assert answer["default_voice"] == "tone"
        assert answer["voices"][0]["licence"] == "Apache-2.0"


class TestDoctor:
    def test_can_speak(self, rtts: Callable[..., object]) -> None:
        """With an engine that speaks the status is 0, whatever else is missing."""
        outcome = rtts("doctor")
        assert outcome.status == 0
        assert "tone engine speaks" in outcome.out
        assert "This machine can speak." in outcome.out

    def test_cannot_speak(self, rtts: Callable[..., object]) -> None:
        """With an engine that fails the status is 1, and it says why."""
        outcome = rtts("doctor", "--set", "tone.fail_at_segment=0")
        assert outcome.status == 1
        assert "FAIL  tone engine speaks" in outcome.out
        assert "This machine cannot speak yet." in outcome.out

    def test_hangs(self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
        """An engine that never ends its sentence is found out in finite time."""
        monkeypatch.setattr(checks, "_SPEECH_TIMEOUT_S", 0.3)
        outcome = rtts("doctor", "--set", "tone.never_finish=true")
        assert outcome.status == 1
        assert "no speech within" in outcome.out

    def test_json(self, rtts: Callable[..., object]) -> None:
        """--json is one object, with a remedy for everything that is a problem."""
        report = json.loads(rtts("doctor", "--json").out)
        assert report["can_speak"] is True
        assert all(each["remedy"] for each in report["checks"] if each["status"] == "problem")

    @pytest.mark.parametrize("module", ["numpy", "starlette", "hibari"])
    def test_package_that_is_missing(self, module: str) -> None:
        """It also works where rtts does not: a missing package is named, with the remedy."""
        code = (
            f"import sys; sys.modules[{module!r}] = None; from rtts.cli import main;"
            "sys.exit(main(['doctor', '--engine', 'cpu']))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 1
        assert "ok    Python" in run.stdout
        assert module in run.stdout.partition("FAIL  ")[2]
        assert "Traceback" not in run.stderr.partition("rtts.engine")[0]

    def test_port_in_use(self, rtts: Callable[..., object]) -> None:
        """A port that something else has is reported with a way out."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            out = rtts("doctor", "--set", f"server.port={taken.getsockname()[1]}").out
        assert "not free on 127.0.0.1" in out
        assert "--port 0" in out

    def test_no_lame(self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
        """Without LAME it says what that costs and what to install; nothing else is wrong."""
        monkeypatch.setattr(mp3, "mp3_available", lambda: False)
        outcome = rtts("doctor")
        assert "LAME" in outcome.out and "pip install lameenc" in outcome.out

    def test_no_libopus(self, rtts: Callable[..., object]) -> None:
        """Without libopus speech still works as WAV, and it says how to get one."""
        outcome = rtts("doctor", "--set", "audio.opus_library=/nonexistent.so")
        assert outcome.status == 0
        assert "FAIL  libopus" in outcome.out

    @pytest.mark.parametrize(
        ("player", "device", "status"),
        [("aplay", True, "ok"), (None, True, "missing"), (None, False, "missing")],
    )
    def test_sound(
        self, monkeypatch: pytest.MonkeyPatch, player: str | None, device: bool, status: str
    ) -> None:
        """A missing sound device is no problem: files can be written."""
        monkeypatch.setattr(playback, "find_player", lambda: player)
        monkeypatch.setattr(playback, "has_sound_device", lambda: device)
        assert checks._sound().status == status

    @pytest.mark.parametrize(
        ("script", "status", "found"),
        [
            ("echo 'NVIDIA H200, 143771 MiB, 570.1'", "ok", "NVIDIA H200, 143771 MiB, 570.1"),
            ("echo 'no devices'; exit 6", "missing", "nvidia-smi: no devices"),
        ],
    )
    def test_gpu(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        script: str,
        status: str,
        found: str,
    ) -> None:
        """GPUs are listed as the driver's tool names them; one that fails is quoted."""
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(checks.shutil, "which", lambda name: str(tool))
        assert checks._gpu() == Check("GPU", status, found)


class TestDemo:
    def test_demo(self, rtts: Callable[..., object]) -> None:
        """It starts a server, shows every segment, the first packet and its verdict, and a file."""
        outcome = rtts("demo")
        assert outcome.status == 0
        assert "Sure, I can help with that." in outcome.out
        assert "first packet" in outcome.out
        assert "budget          500 ms: kept" in outcome.out
        assert "factor" in outcome.out
        data = Path("hello.opus").read_bytes()
        assert data.startswith(b"OggS")
        assert f"{len(data):,} bytes" in outcome.out

    def test_server_that_cannot_start(self, rtts: Callable[..., object]) -> None:
        """If the server ends, the demo says so and leaves the reason in sight."""
        outcome = rtts("demo", "--set", "session.voice=nobody")
        assert outcome.status == 1
        assert "nobody" in outcome.err
        assert outcome.err.splitlines()[-1] == "rtts: the server ended before it was ready"

    def test_file_that_cannot_be_written(self, rtts: Callable[..., object]) -> None:
        """If the file cannot be written, one line says so."""
        Path("hello.opus").mkdir()
        outcome = rtts("demo")
        assert outcome.status == 1
        assert outcome.err.splitlines()[-1].startswith("rtts: hello.opus cannot be written: ")
        assert "Traceback" not in outcome.err

    def test_engine_that_fails(self, rtts: Callable[..., object]) -> None:
        """If the reply fails, the demo fails, with the server's reason."""
        outcome = rtts("demo", "--set", "tone.fail_at_segment=2")
        assert outcome.status == 1
        assert "rtts: the demo failed: utterance_failed" in outcome.err
