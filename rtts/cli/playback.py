"""Sound out of this machine: the `sounddevice` package, or a player program that is installed.

Both take s16le mono PCM as it comes. This module knows nothing about where the PCM is from.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rtts.cli.failure import CommandError

HOW_TO_PLAY = (
    "to hear it, install one: pip install sounddevice, or a player program"
    " (Debian: apt install pulseaudio-utils, or alsa-utils); or write a file with -o hello.opus"
)

# How each player is told to play what comes on its standard input, best first: the sound servers'
# own programs, then ALSA, then ffmpeg's. `{rate}` is filled in.
_PLAYERS: dict[str, tuple[str, ...]] = {
    "paplay": ("--raw", "--rate={rate}", "--channels=1", "--format=s16le"),
    "pw-play": ("--rate={rate}", "--channels=1", "--format=s16", "-"),
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}", "-"),
    # The options for raw PCM differ between its versions; a WAV header says the same to all.
    "ffplay": ("-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-"),
    "afplay": (),  # macOS: files only, so it starts when the reply is complete
}
_WANTS_HEADER = ("ffplay",)
_HELP_TIMEOUT_S = 5.0


class Player(Protocol):
    """Something that plays.

    Attributes:
        name: For a reader: "aplay", "sounddevice".
    """

    name: str

    async def write(self, pcm: bytes) -> None:
        """Play more; waits while the device's buffer is full."""

    async def finish(self) -> None:
        """Wait until everything has been heard, then close.

        Raises:
            CommandError: The device or the player failed.
        """

    async def stop(self) -> None:
        """Be silent at once, and close."""


def find_player() -> str | None:
    """What can be played with here: "sounddevice", a player's name, or None.

    A player program alone is not enough (containers often have ffmpeg and no sound), so it counts
    only where a sound device or a sound server can be seen.
    """
    if _has_sounddevice():
        return "sounddevice"
    if not has_sound_device():
        return None
    return next((name for name in _PLAYERS if shutil.which(name)), None)


def can_try() -> bool:
    """Whether there is anything to play with, if perhaps no device to be heard on."""
    return _has_sounddevice() or any(shutil.which(name) for name in _PLAYERS)


def has_sound_device() -> bool:
    """Whether this machine seems to have a sound device or a sound server."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(_sound_places())


async def open_player(sample_rate_hz: int) -> Player:
    """Open what `find_player` finds; without a visible device, try an installed player anyway.

    Raises:
        CommandError: There is none; the message says how to get one.
    """
    name = find_player() or next((name for name in _PLAYERS if shutil.which(name)), None)
    if name is None:
        raise CommandError(f"there is no way to play sound here; {HOW_TO_PLAY}")
    if name == "sounddevice":
        return _DevicePlayer(sample_rate_hz)
    if not _PLAYERS[name]:
        return _FilePlayer(name, sample_rate_hz)
    arguments = [part.format(rate=sample_rate_hz) for part in _PLAYERS[name]]
    if name == "pw-play" and "--raw" in await _help_of(name):
        # Up to PipeWire 1.4 standard input is raw PCM; later versions want to be told.
        arguments.insert(0, "--raw")
    player = await _ProgramPlayer.start(name, arguments)
    if name in _WANTS_HEADER:
        from rtts.audio.wav import wav_header

        await player.write(wav_header(sample_rate_hz))
    return player


async def _help_of(program: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program,
        "--help",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_HELP_TIMEOUT_S):
            shown, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        return ""
    return shown.decode(errors="replace")


def _sound_places() -> Sequence[Path]:
    """ALSA's playback devices, and the sockets of PulseAudio, PipeWire and WSL's sound server."""
    user = Path(f"/run/user/{os.getuid()}") if hasattr(os, "getuid") else Path("/nonexistent")
    sockets = (user / "pulse/native", user / "pipewire-0", Path("/mnt/wslg/PulseServer"))
    return [*Path("/dev/snd").glob("pcmC*p"), *(place for place in sockets if place.exists())]


def _has_sounddevice() -> bool:
    if importlib.util.find_spec("sounddevice") is None:
        return False
    try:
        import sounddevice

        sounddevice.query_devices(kind="output")
    except (OSError, ValueError, RuntimeError):
        # OSError: no PortAudio library. The others: no output device (its PortAudioError is a
        # RuntimeError, "no default device" a ValueError).
        return False
    return True


class _ProgramPlayer:
    """Plays through a program that takes PCM on its standard input."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        assert process.stdin is not None
        self._input = process.stdin

    @classmethod
    async def start(cls, name: str, arguments: Sequence[str]) -> _ProgramPlayer:
        process = await asyncio.create_subprocess_exec(
            name,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Its own group: Ctrl-C goes to us, and we end it.
            start_new_session=True,
        )
        return cls(name, process)

    async def write(self, pcm: bytes) -> None:
        try:
            self._input.write(pcm)
            await self._input.drain()
        except (BrokenPipeError, ConnectionResetError):
            await self.finish()  # says why it ended, if it failed
            raise CommandError(f"{self.name} stopped playing before the end") from None

    async def finish(self) -> None:
        self._input.close()  # communicate() without input does that only since Python 3.12
        _, complaint = await self._process.communicate()
        if self._process.returncode != 0:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise CommandError(
                f"{self.name} cannot play ({last or f'status {self._process.returncode}'});"
                f" {HOW_TO_PLAY}"
            )

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


class _FilePlayer:
    """Plays through a program that only takes files: everything at once, at the end."""

    def __init__(self, name: str, sample_rate_hz: int) -> None:
        self.name = name
        self._sample_rate_hz = sample_rate_hz
        self._pcm = bytearray()
        self._playing: asyncio.subprocess.Process | None = None  # while finish() runs

    async def write(self, pcm: bytes) -> None:
        self._pcm += pcm

    async def finish(self) -> None:
        from rtts.audio.wav import wav_header

        with tempfile.TemporaryDirectory(prefix="rtts-") as directory:
            path = Path(directory) / "reply.wav"
            samples = len(self._pcm) // 2
            path.write_bytes(wav_header(self._sample_rate_hz, samples) + self._pcm)
            self._playing = await asyncio.create_subprocess_exec(
                self.name, str(path), start_new_session=True
            )
            try:
                status = await self._playing.wait()
            finally:
                await self.stop()
        if status != 0:
            raise CommandError(f"{self.name} cannot play (status {status}); {HOW_TO_PLAY}")

    async def stop(self) -> None:
        if self._playing is not None and self._playing.returncode is None:
            self._playing.kill()
            await self._playing.wait()


class _DevicePlayer:
    """Plays through PortAudio. Its blocking writes run on a thread, one at a time."""

    name = "sounddevice"

    def __init__(self, sample_rate_hz: int) -> None:
        import sounddevice

        try:
            self._stream: Any = sounddevice.RawOutputStream(
                samplerate=sample_rate_hz, channels=1, dtype="int16", latency="low"
            )
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise CommandError(f"the sound device refuses: {error}; {HOW_TO_PLAY}") from error

    async def write(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._stream.write, pcm)

    async def finish(self) -> None:
        await asyncio.to_thread(self._stream.stop)  # returns when its buffer has been heard
        self._stream.close()

    async def stop(self) -> None:
        self._stream.abort()
        self._stream.close()
