from __future__ import annotations

import asyncio
import stat
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from rtts.audio.wav import read_wav
from rtts.cli import playback
from rtts.cli.failure import CommandError

PCM = bytes(range(256)) * 400  # more than a pipe holds: 102,400 bytes


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but what the test puts there, and no sounddevice."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(playback, "_has_sounddevice", lambda: False)
    monkeypatch.setattr(playback, "has_sound_device", lambda: True)
    return tmp_path


def put(directory: Path, name: str, python: str) -> None:
    """A player program that runs some Python; it finds its directory in `here`."""
    path = directory / name
    path.write_text(f"#!{sys.executable}\nimport sys, time\nhere = {str(directory)!r}\n{python}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


RECORDS = "if '--help' in sys.argv: sys.exit()\nopen(here + '/heard', 'wb').write(sys.stdin.buffer.read())\nprint(sys.argv[1:])"


@pytest.mark.parametrize("name", ["pw-play", "paplay", "aplay"])
async def test_player_hears_every_byte(programs: Path, name: str) -> None:
    """Whatever the chunking, a player program is given exactly the PCM, and its rate."""
    put(programs, name, RECORDS + "\nopen(here + '/args', 'w').write(' '.join(sys.argv[1:]))")
    player = await playback.open_player(24_000)

    assert player.name == name
    for at in range(0, len(PCM), 999):
        await player.write(PCM[at : at + 999])
    await player.finish()

    assert (programs / "heard").read_bytes() == PCM
    assert "24000" in (programs / "args").read_text()


async def test_ffplay_gets_a_wav_stream(programs: Path) -> None:
    """ffplay, whose options for raw PCM change, is given the rate in a WAV header."""
    put(programs, "ffplay", RECORDS)
    player = await playback.open_player(24_000)
    await player.write(PCM)
    await player.finish()
    wav = read_wav((programs / "heard").read_bytes())
    assert (wav.sample_rate_hz, wav.pcm) == (24_000, PCM)


@pytest.mark.parametrize("knows_raw", [False, True])
async def test_pipewire_is_told_raw_where_it_must_be(programs: Path, knows_raw: bool) -> None:
    """Newer PipeWire must be told that its input is raw; older does not know the option."""
    words = "--raw  RAW mode" if knows_raw else "--rate"
    put(
        programs,
        "pw-play",
        f"if '--help' in sys.argv: sys.exit({words!r})\n"
        "open(here + '/args', 'w').write(' '.join(sys.argv[1:]))\nsys.stdin.buffer.read()",
    )
    player = await playback.open_player(24_000)
    await player.finish()
    assert ("--raw" in (programs / "args").read_text()) is knows_raw


async def test_file_player_gets_a_wav(programs: Path) -> None:
    """A player that takes only files gets the whole reply as one WAV file, removed afterwards."""
    put(programs, "afplay", "open(here + '/heard', 'wb').write(open(sys.argv[1], 'rb').read())")
    player = await playback.open_player(16_000)
    await player.write(PCM[:1000])
    await player.write(PCM[1000:])
    await player.finish()

    wav = read_wav((programs / "heard").read_bytes())
    assert (wav.sample_rate_hz, wav.pcm) == (16_000, PCM)


async def test_order(programs: Path) -> None:
    """A sound server's own program is preferred to ALSA's, and that to ffmpeg's."""
    for name in ("ffplay", "aplay", "pw-play", "paplay"):
        put(programs, name, RECORDS)
        assert playback.find_player() == name


async def test_no_player(programs: Path) -> None:
    """Without any player the error says how to get one."""
    assert playback.find_player() is None
    with pytest.raises(CommandError, match="pip install sounddevice"):
        await playback.open_player(24_000)


async def test_player_without_a_device(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A player program alone does not count as a way to be heard, but can be asked for."""
    monkeypatch.setattr(playback, "has_sound_device", lambda: False)
    put(programs, "aplay", RECORDS)

    assert playback.find_player() is None
    player = await playback.open_player(24_000)
    await player.finish()


async def test_player_that_fails(programs: Path) -> None:
    """A player that cannot play says so in its own last line."""
    put(programs, "aplay", "sys.stdin.read()\nsys.exit('aplay: no soundcards found')")
    player = await playback.open_player(24_000)
    await player.write(PCM)
    with pytest.raises(CommandError, match=r"aplay cannot play \(aplay: no soundcards found\)"):
        await player.finish()


@pytest.mark.parametrize(("status", "message"), [(0, "stopped playing"), (3, "status 3")])
async def test_player_that_leaves(programs: Path, status: int, message: str) -> None:
    """A player that is closed in the middle ends the command with an error, not with a hang."""
    put(programs, "aplay", f"sys.exit({status})")
    player = await playback.open_player(24_000)
    with pytest.raises(CommandError, match=message):
        for _ in range(100):
            await player.write(PCM)


async def test_stop_is_at_once(programs: Path) -> None:
    """stop() does not wait for what was written to be heard, and leaves no process."""
    put(programs, "aplay", "time.sleep(60)")
    player = await playback.open_player(24_000)
    await player.write(PCM[:1000])

    began = time.monotonic()
    await player.stop()
    assert time.monotonic() - began < 5
    await player.stop()  # again is harmless


class Device(ModuleType):
    """A stand-in for the `sounddevice` module."""

    class PortAudioError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("sounddevice")
        self.heard = bytearray()
        self.calls: list[str] = []
        self.refuses = False

    def query_devices(self, kind: str) -> dict[str, str]:
        if self.refuses:
            raise ValueError("no output device")
        return {"name": kind}

    def RawOutputStream(self, **options: object) -> Device:
        if self.refuses:
            raise self.PortAudioError("device busy")
        self.calls.append(f"open {options['samplerate']}")
        return self

    def write(self, pcm: bytes) -> None:
        self.heard += pcm

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def abort(self) -> None:
        self.calls.append("abort")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    module = Device()
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    monkeypatch.setattr(playback.importlib.util, "find_spec", lambda name: object())
    return module


async def test_device(device: Device) -> None:
    """With sounddevice, PCM goes to PortAudio; finish() lets it be heard, stop() does not."""
    assert playback.find_player() == "sounddevice"
    player = await playback.open_player(24_000)
    await player.write(PCM)
    await player.finish()
    await (await playback.open_player(24_000)).stop()

    assert bytes(device.heard) == PCM
    opened = ["open 24000", "start"]
    assert device.calls == [*opened, "stop", "close", *opened, "abort", "close"]


async def test_device_that_is_none(device: Device, programs: Path) -> None:
    """sounddevice without an output device is not a player."""
    device.refuses = True
    assert playback.find_player() is None


async def test_device_that_is_busy(device: Device) -> None:
    """A device that cannot be opened is an error with a way out."""
    player = playback.find_player()
    device.refuses = True
    assert player == "sounddevice"
    with pytest.raises(CommandError, match="device busy"):
        playback._DevicePlayer(24_000)


async def test_interrupt_while_a_file_plays(programs: Path) -> None:
    """A cancelled finish() ends the player program."""
    put(programs, "afplay", "open(here + '/began', 'w')\ntime.sleep(60)")
    player = await playback.open_player(24_000)
    finishing = asyncio.create_task(player.finish())
    while not (programs / "began").exists():  # noqa: ASYNC110 (another process writes it)
        await asyncio.sleep(0.01)
    finishing.cancel()

    began = time.monotonic()
    await asyncio.gather(finishing, return_exceptions=True)
    assert time.monotonic() - began < 5
