"""Our plugins for Pipecat and LiveKit, built and installed, in the frameworks' own harnesses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
import zipfile
from pathlib import Path

import pytest

from tests.e2e.sdk.conftest import KEY, TEXT, interpreter

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "rtts-client": "clients/python",
    "pipecat-rtts": "clients/pipecat",
    "livekit-plugins-rtts": "clients/livekit",
}
MAX_ERRORS = 0.1  # of 15 words, one
# A first sentence without anything behind it waits for the server's own 150 ms; Pipecat's sentences
# would wait for the model, which says nothing for 600 ms.
FIRST_S = 0.4
ALONE = """
import asyncio, sys
from importlib.metadata import distributions
from rtts_client import connect
async def main():
    async with connect(sys.argv[1], api_key=sys.argv[2]) as client:
        print((await client.save("Hello.", sys.argv[3])).samples)
asyncio.run(main())
print(*sorted(d.metadata["Name"] for d in distributions()))
"""


def uv(*arguments: str) -> str:
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of the client and both plugins."""
    out = tmp_path_factory.mktemp("wheels")
    builds = [
        subprocess.Popen(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
            cwd=ROOT / folder,
            stdout=subprocess.DEVNULL,
        )
        for folder in PACKAGES.values()
    ]
    assert [build.wait(30) for build in builds] == [0, 0, 0]
    return out


@pytest.fixture(scope="session")
def site(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels, unpacked where an interpreter can find them."""
    where = tmp_path_factory.mktemp("site")
    files = [str(file) for file in wheels.glob("*.whl")]
    uv("pip", "install", "--quiet", "--no-deps", "--target", str(where), *files)
    return where


def test_the_client_installs_alone(wheels, tones, tmp_path):
    """In an empty environment it is three small packages, and speaks."""
    home = tmp_path / "venv"
    uv("venv", "--quiet", "--python", sys.executable, str(home))
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    (wheel,) = wheels.glob("rtts_client-*.whl")
    uv("pip", "install", "--quiet", "--python", str(python), str(wheel))
    command = [str(python), "-c", ALONE, tones.ws_url + "/v1/tts", KEY, str(tmp_path / "hello.wav")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    samples, packages = done.stdout.splitlines()
    assert packages.split() == ["msgspec", "rtts-client", "websockets"]
    assert (tmp_path / "hello.wav").stat().st_size == 44 + 2 * int(samples) > 44


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_has_its_licence_and_its_types(wheels, name):
    """What is installed says under which terms, and checkers may read its types."""
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    folder = ROOT / PACKAGES[name]
    packed = {file for file in files if ".dist-info/" not in file}
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*/py.typed"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    sources = {file for file in listed.stdout.split() if not file.startswith("examples/")}
    assert packed == sources and any(file.endswith("/py.typed") for file in packed)
    assert any(file.endswith(".dist-info/licenses/LICENSE") for file in files)


@pytest.mark.parametrize(
    ("environment", "plugin"), [("pipecat", "pipecat-rtts"), ("livekit", "livekit-plugins-rtts")]
)
def test_a_plugin_adds_the_client_and_nothing_else(wheels, environment, plugin):
    """Beside the framework a plugin installs itself and rtts-client; the server stays away."""
    said = uv(
        *("pip", "install", "--dry-run", "--python", str(interpreter(environment))),
        *("--no-index", "--find-links", str(wheels), plugin),
    )
    added = {line.split("==")[0].strip(" +") for line in said.splitlines() if line[:3] == " + "}
    assert added == {plugin, "rtts-client"}, said


def test_pipecat(client, server, tones, site, ears):
    """A turn is exact and timed, tokens wait for nothing, and every way to end a turn is clean."""
    before = server.cancelled()
    said = client("pipecat", "pipecat_plugin.py", server, str(site), tones.ws_url + "/v1/tts")
    turn = said["a_turn"]
    assert turn["is_exact"] and turn["is_in_order"] and turn["order"] and turn["errors"] == []
    assert turn["words"] == TEXT and turn["usage"] == [len(TEXT)] and 0 < turn["ttfb_s"] < 0.5
    mixed = ["my", "**dear**", "friend.", "This", "costs", "$3.50", "(I", "think)!"]
    assert turn["mixed"][2:10] == mixed and turn["mixed"][10] == "今天天气很好。"
    assert 3.5 < turn["last_word_s"] < 4.4
    first = said["spoken_before_the_end"]
    assert first["first_s"] < FIRST_S and first["words"] == "The shop opens at nine. Good."
    assert said["at_another_rate"]["is_exact"] and said["at_another_rate"]["rates"] == [16_000]
    ways = said["several_ways_to_speak"]
    assert ways["is_exact"] and ways["words"] == "One moment. And so. Good bye."
    assert ways["open"] and ways["odd"] == [] and ways["sentences"] == "One. Two. Three."
    twice = said["in_two_pipelines"]
    assert twice["is_exact"] and twice["told"] == ["on_connected", "on_disconnected"] * 2
    assert twice["cancel_s"] < 0.9  # a close that nobody reads takes a second
    changed = said["settings"]
    assert changed["is_exact"] and changed["words"] == ["One.", "Four."]
    [(message, category)] = changed["errors"]
    assert "nobody" in message and category == "invalid_request"
    for name in ("a_turn", "in_two_pipelines", "interrupted", "interrupted_often", "restarted"):
        assert said[name]["left"] == [0, 0, 0], name
    check_pipecat_interrupted(said)
    check_pipecat_broken(said)
    samples = client.pcm("after.pcm")  # what was said after an interruption
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert server.is_quiet() and tones.is_quiet() and server.cancelled() == before + 1


def check_pipecat_interrupted(said) -> None:
    once, often = said["interrupted"], said["interrupted_often"]
    assert once["late"] <= 1 and once["errors"] == []
    assert 0 < once["before_s"] < 12 and once["before_words"].startswith("The shop opens")
    assert once["after_words"] == TEXT
    assert often["errors"] == [] and often["is_exact"]
    assert all(most <= limit for most, limit in zip(often["inside"], (8, 8, 40), strict=True))


def check_pipecat_broken(said) -> None:
    assert said["resumed"]["is_exact"] and said["resumed"]["errors"] == []
    assert said["resumed"]["words"] == "The shop opens at nine. Please bring your ticket and a pen."
    assert said["resumed"]["connections"] == 2
    gone = said["restarted"]
    assert [category for _, category in gone["errors"]] == ["connectivity"] and gone["usable"]
    assert gone["words"].startswith("One two.") and gone["words"].endswith(TEXT)
    assert "ever" not in gone["words"]  # nobody heard it
    nobody = said["nobody_there"]
    assert "connectivity" in nobody["none"] and nobody["refused"] == ["authentication"]
    assert not nobody["usable"] and nobody["ends"] == [1, 1] and nobody["words"] == []


def test_livekit(client, server, tones, site, ears):
    """A reply is exact and timed, tokens wait for nothing, and every way to end one is clean."""
    before = server.cancelled()
    said = client("livekit", "livekit_plugin.py", server, str(site), tones.ws_url + "/v1/tts")
    turn = said["a_turn"]
    assert turn["is_exact"] and turn["is_in_order"] and turn["text"] == TEXT and turn["mixed"]
    assert turn["ends_s"][0] == pytest.approx(turn["ends_s"][1], abs=0.05)
    assert turn["finals"] == 1 and turn["characters"] == len(TEXT) and 0 < turn["ttfb_s"] < 0.5
    assert turn["reused"] and turn["model"] == ["tone", "rtts"]
    assert turn["chunked_s"][0] == pytest.approx(turn["chunked_s"][1], abs=0.02)
    first = said["spoken_before_the_end"]
    assert first["first_s"] < FIRST_S and first["text"] == "The shop opens at nine. Good."
    ways = said["several_ways_to_speak"]
    assert ways["is_exact"] and ways["rates"] == [16_000]
    # The framework marks the end of a segment on its last frame, and where that has already gone it
    # makes one of 10 ms of silence.
    assert ways["flushed"][0] - ways["flushed"][1] in (0, 480) and ways["flushed"][1] > 0
    assert ways["connections"] == 3  # of 8 contexts each, for 20
    assert all(ways["odd"][:-1]) and ways["odd"][-1] == 0 and ways["errors"] == []
    changed = said["settings"]
    assert changed["first"] and changed["second"]
    assert changed["error"][:3] == ["APIStatusError", False, 400]
    assert changed["told"] == [["APIStatusError", False]]
    once, often = said["interrupted"], said["interrupted_often"]
    assert 1.0 <= once["before_s"] < 1.3 and once["after_text"] == TEXT and once["errors"] == []
    assert often["is_exact"] and often["contexts"] == 0 and often["errors"] == []
    assert often["inside"][0] == 1 and often["inside"][2] <= 12
    for name in ("a_turn", "interrupted", "interrupted_often"):
        assert said[name]["left"] == [0, 0], name
    check_livekit_broken(said)
    samples = client.pcm("after.pcm")  # what was said after an interruption
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert server.is_quiet() and tones.is_quiet() and server.cancelled() == before + 1


def check_livekit_broken(said) -> None:
    assert said["resumed"]["is_exact"] and said["resumed"]["errors"] == []
    assert said["resumed"]["text"] == "The shop opens at nine. Please bring your ticket and a pen."
    assert said["resumed"]["connections"] == 2
    gone = said["restarted"]
    assert gone["error"][:2] == ["APIConnectionError", True] and gone["text"] == TEXT
    assert gone["told"] == [["APIConnectionError", False]]  # part of it was heard: not said again
    nobody = said["nobody_there"]
    assert nobody["none"][:2] == ["APIConnectionError", True]
    assert nobody["refused"][:3] == ["APIStatusError", False, 401]
    assert nobody["told"] == [["APIStatusError", False]]
    again = said["tried_again"]
    assert again["is_exact"] and ["APIConnectionError", True] in again["told"]


def test_the_examples_remember_what_was_heard(server, site, tmp_path):
    """Both voice agents run as they are: of an interrupted answer, memory keeps what was spoken."""
    running = {}
    for framework in ("pipecat", "livekit"):
        script = ROOT / "clients" / framework / "examples" / "voice_agent.py"
        out = tmp_path / f"{framework}.wav"
        arguments = [server.ws_url + "/v1/tts", "--key", KEY, "--out", str(out)]
        running[framework] = subprocess.Popen(
            [str(interpreter(framework)), str(script), *arguments],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    for framework, process in running.items():
        output, _ = process.communicate(timeout=40)
        assert process.returncode == 0
        said = json.loads(output.splitlines()[-1])
        assert [each["role"] for each in said] == ["user", "assistant"] * 2, framework
        first, second = said[1]["content"], said[3]["content"]
        assert first.startswith("Well, that is a") and "ticket" not in first, framework
        assert second.strip() == "Of course. The shop opens at nine.", framework
        with wave.open(str(tmp_path / f"{framework}.wav")) as file:
            assert 2.0 < file.getnframes() / file.getframerate() < 8.0
