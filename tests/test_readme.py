"""What the README tells a stranger to do works."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from rtts.cli import build_parser
from rtts.cli.engines import make_engine
from rtts.server import ServerOptions, running_server
from rtts.settings import load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs/operations.md"]


def commands(page: Path, program: str) -> list[list[str]]:
    """Every call of a program in the code blocks and tables of a page, without pipes and files."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(
        rf"(?:^    (?:.*\| )?|^ExecStart=\S*/){program} ([^\n]*)", text, re.MULTILINE
    )
    calls = [re.split(r" [|<>#]|   ", call)[0] for call in found]
    return [shlex.split(call.replace("\\", "")) for call in calls]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    """Every `rtts` command line in the documents is one that `rtts` understands."""
    calls = commands(page, "rtts")
    assert len(calls) >= 4
    for call in calls:
        build_parser().parse_args(call)


def test_commands_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """So is every one in the help texts."""
    for command in ([], ["say"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args([*command, "--help"])
        text = capsys.readouterr().out
        for call in re.findall(r"^  (?:.*\| )?rtts ([^\n]*)", text, re.MULTILINE):
            build_parser().parse_args(shlex.split(re.split(r" [|<>]|   ", call)[0]))


def test_make_targets_exist() -> None:
    """Every `make` target that a page names is in the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, ROOT / "CHANGELOG.md", *ROOT.glob("docs/adr/*.md")]:
        named = set(re.findall(r"(?:`|^    )make (\w+)", page.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, page.name


async def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example runs as it stands and hears the reply."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    settings = load(env={"RTTS_ENGINE_KIND": "tone"}).settings
    async with running_server(ServerOptions(port=0), make_engine(settings)) as server:
        program = code.replace("ws://127.0.0.1:8765/v1/tts", server.ws_url)
        await asyncio.to_thread(exec, compile(program, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "now: Sure, I can help with that." in shown
    assert "first packet after" in shown
