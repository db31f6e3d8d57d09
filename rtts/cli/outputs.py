"""Where the audio of `rtts say` goes: a file, standard output, a player, or nowhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from rtts.audio.wav import wav_header
from rtts.cli import playback
from rtts.cli.failure import CommandError
from rtts.cli.standard import PipeWriter

if TYPE_CHECKING:
    from rtts_client import Format

    from rtts.audio.stream import StreamEncoder

SAMPLE_RATE_HZ = 24_000
STDOUT = "-"
_FILE_KINDS = {".opus": "ogg", ".ogg": "ogg", ".wav": "wav"}


class Output(Protocol):
    """Takes a reply's audio in the format it asked for.

    Attributes:
        is_live: Somebody listens: audio is wanted at the pace of speech, not as fast as it is made.
    """

    is_live: bool

    def format(self) -> Format:
        """The format to ask the server for."""

    async def write(self, data: bytes) -> None:
        """Take more audio.

        Raises:
            CommandError: It cannot be written or played.
        """

    async def finish(self) -> str:
        """The reply is complete: wait until it is written or heard; say where it went."""

    async def stop(self) -> str:
        """The reply was interrupted: keep what there is, and say so; silence players at once."""


def choose(path: str | None, play: bool, keep_nothing: bool) -> Output:
    """The output that was asked for, or the best one there is.

    Args:
        path: Of `-o`.
        play: Of `--play`.
        keep_nothing: Without either, drop the audio (`--json`).

    Raises:
        CommandError: It cannot be had here.
    """
    if path is None and not play:
        if keep_nothing:
            return Nowhere()
        if playback.find_player() is None:
            path = "rtts.opus"
        else:
            play = True
    if play and not playback.can_try():
        raise CommandError(f"there is no way to play sound here; {playback.HOW_TO_PLAY}")
    if path is None:
        return Speaker()
    file = _file(path)
    return Both(Speaker(), file) if play else file


def _file(path: str) -> Output:
    if path == STDOUT:
        if sys.stdout.isatty():
            raise CommandError("-o - writes WAV to standard output, which here is a terminal")
        return WavPipe()
    target = Path(path)
    kind = _FILE_KINDS.get(target.suffix.lower())
    if kind is None:
        raise CommandError(f"{path}: the name must end in .opus, .ogg or .wav, or be - for WAV")
    if target.is_dir() or not target.absolute().parent.is_dir():
        reason = "is a directory" if target.is_dir() else "is in no directory that exists"
        raise CommandError(f"{path} {reason}")
    return OggFile(target) if kind == "ogg" else WavFile(target)


class Nowhere:
    """Drops the audio."""

    is_live = False

    def format(self) -> Format:
        """Raw Opus, the default of every client."""
        from rtts_client import Format

        return Format()

    async def write(self, data: bytes) -> None:
        """Drop it."""

    async def finish(self) -> str:
        """Nothing to say."""
        return ""

    async def stop(self) -> str:
        """Nothing to say."""
        return ""


class OggFile:
    """An Ogg Opus file, as the server streams it. It appears with the first audio."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None  # from the first audio until it is closed
        self._said = ""

    def format(self) -> Format:
        """Ogg Opus."""
        from rtts_client import Format

        return Format("opus", "ogg")

    async def write(self, data: bytes) -> None:
        """Append Ogg pages."""
        with _writing(str(self._path)):
            if self._file is None:
                self._file = self._path.open("wb")
            self._file.write(data)

    async def finish(self) -> str:
        """Close it, once."""
        file, self._file = self._file, None
        if file is not None:
            with _writing(str(self._path)):
                file.close()
            self._said = f"wrote {self._path}"
        return self._said

    async def stop(self) -> str:
        """Close it; Ogg can be played as far as it goes."""
        return await self.finish()


class WavFile:
    """A WAV file. It appears with the first audio."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None  # from the first audio until it is closed
        self._written_bytes = 0
        self._said = ""

    def format(self) -> Format:
        """PCM; the header is ours."""
        return _pcm()

    async def write(self, data: bytes) -> None:
        """Append PCM."""
        with _writing(str(self._path)):
            if self._file is None:
                self._file = self._path.open("wb")
                self._file.write(wav_header(SAMPLE_RATE_HZ))
            self._file.write(data)
            self._written_bytes += len(data)

    async def finish(self) -> str:
        """Write the sizes, which only now are known, into the header, and close it, once."""
        file, self._file = self._file, None
        if file is not None:
            with _writing(str(self._path)), file:
                file.seek(0)
                file.write(wav_header(SAMPLE_RATE_HZ, self._written_bytes // 2))
            self._said = f"wrote {self._path}"
        return self._said

    async def stop(self) -> str:
        """The same: a file that was cut short is a file."""
        return await self.finish()


class WavPipe:
    """WAV on standard output, at the pace of whoever reads it."""

    is_live = False

    def __init__(self) -> None:
        self._pipe: PipeWriter | None = None  # from the first audio

    def format(self) -> Format:
        """PCM; the header, which says "to the end", is ours."""
        return _pcm()

    async def write(self, data: bytes) -> None:
        """Append PCM."""
        with _writing("standard output"):
            if self._pipe is None:
                self._pipe = PipeWriter(sys.stdout.fileno())
                await self._pipe.write(wav_header(SAMPLE_RATE_HZ))
            await self._pipe.write(data)

    async def finish(self) -> str:
        """Everything was written already."""
        return "wrote WAV to standard output" if self._pipe else ""

    async def stop(self) -> str:
        """Nothing can be added."""
        return ""


class Speaker:
    """This machine's sound."""

    is_live = True

    def __init__(self) -> None:
        self._player: playback.Player | None = None

    def format(self) -> Format:
        """PCM."""
        return _pcm()

    async def write(self, data: bytes) -> None:
        """Play more."""
        if self._player is None:
            self._player = await playback.open_player(SAMPLE_RATE_HZ)
        await self._player.write(data)

    async def finish(self) -> str:
        """Wait until everything was heard."""
        if self._player is None:
            return ""
        await self._player.finish()
        return f"played with {self._player.name}"

    async def stop(self) -> str:
        """Be silent."""
        if self._player is not None:
            await self._player.stop()
        return ""


class Both:
    """A player and a file; both get the PCM, and an Ogg file is encoded here."""

    is_live = True

    def __init__(self, speaker: Speaker, file: Output) -> None:
        from rtts.audio.formats import make_encoder, resolve_format

        self._speaker = speaker
        self._file = file
        self._encoder: StreamEncoder | None = None  # until the file is closed
        if isinstance(file, OggFile):
            self._encoder = make_encoder(resolve_format("opus", "ogg"), SAMPLE_RATE_HZ)

    def format(self) -> Format:
        """PCM."""
        return self._speaker.format()

    async def write(self, data: bytes) -> None:
        """The file first: the player may hold us back."""
        for piece in [p.payload for p in self._encoder.encode(data)] if self._encoder else [data]:
            await self._file.write(piece)
        await self._speaker.write(data)

    async def finish(self) -> str:
        """Finish both."""
        written = await self._close_file()
        played = await self._speaker.finish()
        return ", ".join(filter(None, (played, written)))

    async def stop(self) -> str:
        """Silence first."""
        await self._speaker.stop()
        return await self._close_file()

    async def _close_file(self) -> str:
        encoder, self._encoder = self._encoder, None
        if encoder is not None and encoder.samples_in:
            for packet in encoder.flush():
                await self._file.write(packet.payload)
        return await self._file.finish()


def _pcm() -> Format:
    from rtts_client import Format

    return Format("pcm_s16le", "raw", SAMPLE_RATE_HZ)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """Say which file cannot be written. A pipe that was closed is nobody's error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{name} cannot be written: {error.strerror}") from error
