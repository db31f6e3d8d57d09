from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rtts as package
from rtts import cli
from rtts.cli import build_parser, main
from rtts.cli.failure import CommandError
from rtts.errors import ConfigError, EngineError

COMMANDS = (
    "serve",
    "say",
    "batch",
    "voices",
    "doctor",
    "config",
    "demo",
    "synth",
    "checkpoint",
    "report",
)


class TestHelp:
    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_every_command_explains_itself(self, rtts: Callable[..., object], command: str) -> None:
        """--help of every command says what it does and ends with 0."""
        outcome = rtts(*command.split(), "--help")
        assert outcome.status == 0
        assert outcome.out.startswith("usage: rtts")
        description = outcome.out.partition("\n\n")[2].partition("\n\n")[0]
        assert description.endswith(".") and ".:" not in description and ". u" not in description

    def test_no_command(self, rtts: Callable[..., object]) -> None:
        """Without a command it says which there are, and ends with 2."""
        outcome = rtts()
        assert outcome.status == 2
        assert all(command in outcome.err for command in COMMANDS)

    def test_help_is_light(self) -> None:
        """Showing help imports nothing that takes time: it answers within 150 ms."""
        code = (
            "import sys; from rtts.cli import build_parser; build_parser().format_help();"
            "heavy = {'numpy', 'asyncio', 'msgspec', 'starlette', 'onnxruntime', 'rtts_client',"
            " 'rtts.settings', 'rtts.server', 'logging', 'http.client'};"
            "print(sorted(heavy & set(sys.modules)))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (run.stdout.strip(), run.stderr) == ("[]", "")

    def test_version(self, rtts: Callable[..., object]) -> None:
        """--version prints the version."""
        assert rtts("--version").out == f"rtts {package.__version__}\n"


class TestMistakes:
    @pytest.mark.parametrize(
        "argv",
        [
            (),
            ("shout",),
            ("serve", "--prot", "1"),
            ("say", "x", "--speed", "fast"),
            ("say", "x", "--json", "-o", "-"),
            ("config", "--set", "server.port"),
        ],
    )
    def test_usage(self, rtts: Callable[..., object], argv: tuple[str, ...]) -> None:
        """A command line that makes no sense ends with 2 and the usage."""
        outcome = rtts(*argv)
        assert outcome.status == 2
        assert "usage: rtts" in outcome.err

    def test_flag_that_is_nearly_one(self, rtts: Callable[..., object]) -> None:
        """A misspelt flag is told with the command's own usage and the flag that may be meant."""
        outcome = rtts("say", "hello", "--sped=1")
        assert outcome.status == 2
        assert outcome.err.startswith("usage: rtts say")
        assert outcome.err.endswith("unrecognized arguments: --sped=1; did you mean --speed?\n")

    @pytest.mark.parametrize("command", ["serve", "voices", "doctor", "config", "demo", "say"])
    def test_settings(self, rtts: Callable[..., object], command: str) -> None:
        """A setting that does not exist ends every command with 2 and one line that names it."""
        words = ("hello",) if command == "say" else ()
        outcome = rtts(command, *words, "--set", "server.prot=1")
        assert outcome.status == 2
        assert "Traceback" not in outcome.err
        assert outcome.err.splitlines()[0] == (
            'rtts: --set server.prot: there is no setting "server.prot";'
            ' did you mean "server.port"?'
        )

    @pytest.mark.parametrize(
        ("error", "status", "line"),
        [
            (ConfigError("no such file"), 2, "rtts: no such file\n"),
            (CommandError("no sound"), 1, "rtts: no sound\n"),
            (EngineError("broken"), 1, "rtts: broken\n"),
            (KeyboardInterrupt(), 130, ""),
            (ModuleNotFoundError("x", name="hibari.g2p"), 1, None),
        ],
    )
    def test_failures(
        self,
        rtts: Callable[..., object],
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        status: int,
        line: str | None,
    ) -> None:
        """What people and machines cause is one line and a status, never a traceback."""

        def fail(arguments: object) -> int:
            raise error

        monkeypatch.setattr(cli.config, "run", fail)
        outcome = rtts("config")
        assert outcome.status == status
        expected = line if line is not None else "rtts: the package hibari.g2p is missing"
        assert outcome.err.startswith(expected)
        assert outcome.err.count("\n") <= 1

    def test_our_own_mistakes_keep_their_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What nobody foresaw is not dressed up as something else."""

        def fail(arguments: object) -> int:
            raise ModuleNotFoundError("x", name="rtts.nonsense")

        monkeypatch.setattr(cli.config, "run", fail)
        with pytest.raises(ModuleNotFoundError):
            main(["config"])


def test_closed_pipe(spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """A reader that leaves (`rtts config | head -1`) ends the command without a word."""
    process = spawn("config")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files(closed: str) -> None:
    """A command that was started without standard files does its work."""
    command = f"{shlex.quote(sys.executable)} -m rtts say Hello -o x.wav {closed}"
    assert subprocess.run(["sh", "-c", command], timeout=30, check=False).returncode == 0
    assert Path("x.wav").stat().st_size > 44


@pytest.mark.parametrize("argv", [("config",), ("say", "Hello", "--json")])
def test_full_disk(spawn: Callable[..., subprocess.Popen[bytes]], argv: tuple[str, ...]) -> None:
    """Standard output that takes no more costs one line and status 1, not a traceback."""
    with Path("/dev/full").open("wb") as full:
        process = spawn(*argv, stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == b"rtts: standard output: No space left on device\n"


def test_every_command_has_a_module() -> None:
    """The commands are the ones the documents name."""
    help_ = build_parser().format_help()
    assert [name for name in COMMANDS if f"\n    {name}" not in help_] == []
