from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.audio.wav import read_wav
from rtts.cli import outputs, playback
from rtts.cli.failure import CommandError
from rtts.cli.outputs import Both, Nowhere, OggFile, Speaker, WavFile, WavPipe, choose


class Player:
    name = "a test"

    def __init__(self) -> None:
        self.heard = b""
        self.ended = ""

    async def write(self, pcm: bytes) -> None:
        self.heard += pcm

    async def finish(self) -> None:
        self.ended = "finished"

    async def stop(self) -> None:
        self.ended = "stopped"


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Player:
    player = Player()

    async def open_player(sample_rate_hz: int) -> Player:
        assert sample_rate_hz == 24_000
        return player

    monkeypatch.setattr(playback, "open_player", open_player)
    return player


class TestChoice:
    @pytest.mark.parametrize(
        ("path", "play", "player", "kind"),
        [
            (None, False, None, OggFile),
            (None, False, "aplay", Speaker),
            (None, True, None, Speaker),
            ("x.opus", False, "aplay", OggFile),
            ("x.OGG", False, None, OggFile),
            ("x.wav", False, None, WavFile),
            ("x.wav", True, None, Both),
            ("x.opus", True, None, Both),
        ],
    )
    def test_rule(
        self,
        monkeypatch: pytest.MonkeyPatch,
        path: str | None,
        play: bool,
        player: str | None,
        kind: type,
    ) -> None:
        """-o and --play are obeyed; without them sound is played if it can be, else rtts.opus."""
        monkeypatch.setattr(playback, "can_try", lambda: True)
        monkeypatch.setattr(playback, "find_player", lambda: player)
        assert type(choose(path, play, keep_nothing=False)) is kind

    def test_play_without_a_player(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """--play where nothing can play is refused at once, with a way out."""
        monkeypatch.setattr(playback, "can_try", lambda: False)
        with pytest.raises(CommandError, match="pip install sounddevice"):
            choose(None, True, keep_nothing=False)

    def test_json_keeps_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """--json alone drops the audio; with -o it is kept."""
        monkeypatch.setattr(playback, "find_player", lambda: "aplay")
        assert type(choose(None, False, keep_nothing=True)) is Nowhere
        assert type(choose("x.wav", False, keep_nothing=True)) is WavFile

    @pytest.mark.parametrize("path", ["x.mp3", "x", ".opus", "no/such/x.wav", "a.wav"])
    def test_impossible(self, path: str, tmp_path: Path) -> None:
        """A file that cannot be written is refused before anything is loaded."""
        Path("a.wav").mkdir()
        with pytest.raises(CommandError):
            choose(path, False, keep_nothing=False)

    def test_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """WAV is not poured over a terminal."""
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        with pytest.raises(CommandError, match="terminal"):
            choose("-", False, keep_nothing=False)


def write_all(output: outputs.Output, pieces: list[bytes], *, stop: bool = False) -> str:
    async def write() -> str:
        for piece in pieces:
            await output.write(piece)
        return await (output.stop() if stop else output.finish())

    return asyncio.run(write())


class TestWav:
    @given(pcm=st.binary(max_size=64).map(lambda b: b[: len(b) // 2 * 2]), stop=st.booleans())
    def test_file(self, tmp_path_factory: pytest.TempPathFactory, pcm: bytes, stop: bool) -> None:
        """Whatever the pieces, finished or interrupted, the file is a WAV of exactly the PCM."""
        path = tmp_path_factory.mktemp("wav") / "x.wav"
        said = write_all(
            WavFile(path), [pcm[at : at + 6] for at in range(0, len(pcm), 6)], stop=stop
        )
        if not pcm:
            assert not path.exists()
            return
        wav = read_wav(path.read_bytes())
        assert (wav.sample_rate_hz, wav.channels, wav.pcm) == (24_000, 1, pcm)
        assert said == f"wrote {path}"
        assert path.stat().st_size == 44 + len(pcm)

    def test_closing_twice(self, tmp_path: Path) -> None:
        """An interruption while it is being finished finds a file that is closed already."""
        for output in (WavFile(tmp_path / "x.wav"), OggFile(tmp_path / "x.opus")):
            first = write_all(output, [b"\1\2"])
            assert write_all(output, [], stop=True) == first

    def test_standard_output(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        """On a pipe the header says "to the end", and audio comes as it is made."""
        write_all(WavPipe(), [b"\1\2", b"\3\4"])
        assert read_wav(capfdbinary.readouterr().out).pcm == b"\1\2\3\4"


class TestOgg:
    def test_file(self, tmp_path: Path) -> None:
        """The server's pages are written as they are."""
        said = write_all(OggFile(tmp_path / "x.opus"), [b"OggS1", b"OggS2"])
        assert (tmp_path / "x.opus").read_bytes() == b"OggS1OggS2"
        assert said == f"wrote {tmp_path / 'x.opus'}"

    def test_disk_that_is_full(self) -> None:
        """A write that fails names the file and the reason."""
        if not os.path.exists("/dev/full"):
            pytest.skip("this system has no /dev/full")
        output = OggFile(Path("/dev/full"))
        with pytest.raises(CommandError, match="/dev/full cannot be written: No space left"):
            write_all(output, [b"x" * 100_000])
        with contextlib.suppress(CommandError):  # what is buffered may fail again
            write_all(output, [], stop=True)

    def test_nothing_leaves_no_file(self, tmp_path: Path) -> None:
        """A reply without audio leaves the old file alone."""
        path = tmp_path / "x.opus"
        path.write_bytes(b"old")
        assert write_all(OggFile(path), []) == ""
        assert path.read_bytes() == b"old"


class TestSpeaker:
    @pytest.mark.parametrize(("stop", "ended"), [(False, "finished"), (True, "stopped")])
    def test_plays(self, player: Player, stop: bool, ended: str) -> None:
        """Everything is played; an interruption silences the player instead of waiting for it."""
        write_all(Speaker(), [b"\1\2", b"\3\4"], stop=stop)
        assert (player.heard, player.ended) == (b"\1\2\3\4", ended)

    def test_no_audio_opens_nothing(self, player: Player) -> None:
        """A reply without audio opens no device."""
        assert write_all(Speaker(), []) == ""
        assert player.ended == ""

    def test_with_wav(self, player: Player, tmp_path: Path) -> None:
        """What is heard and what is written are the same PCM."""
        said = write_all(Both(Speaker(), WavFile(tmp_path / "x.wav")), [b"\1\2" * 480] * 3)
        assert read_wav((tmp_path / "x.wav").read_bytes()).pcm == player.heard == b"\1\2" * 1440
        assert said == f"played with a test, wrote {tmp_path / 'x.wav'}"

    def test_interrupted_while_it_plays_out(self, player: Player, tmp_path: Path) -> None:
        """Ctrl-C while the rest is being heard leaves the file whole."""
        both = Both(Speaker(), OggFile(tmp_path / "x.opus"))
        first = write_all(both, [b"\1\2" * 480])
        data = (tmp_path / "x.opus").read_bytes()
        assert write_all(both, [], stop=True) in first
        assert (tmp_path / "x.opus").read_bytes() == data
        assert player.ended == "stopped"

    @pytest.mark.parametrize("stop", [False, True])
    def test_with_ogg(
        self, player: Player, tmp_path: Path, stop: bool, decode_ogg: Callable[[bytes], int]
    ) -> None:
        """Beside a player, an Ogg file is encoded here and is as long as what was heard."""
        write_all(Both(Speaker(), OggFile(tmp_path / "x.opus")), [b"\1\2" * 777] * 5, stop=stop)
        samples = decode_ogg((tmp_path / "x.opus").read_bytes())
        assert samples == 2 * 777 * 5  # at 48 kHz


@pytest.fixture
def decode_ogg() -> Callable[[bytes], int]:
    """Samples at 48 kHz an Ogg Opus file says it has: last granule position less pre-skip."""

    def decode(data: bytes) -> int:
        last = data.rindex(b"OggS")
        granule = int.from_bytes(data[last + 6 : last + 14], "little")
        head = data.index(b"OpusHead")
        return granule - int.from_bytes(data[head + 10 : head + 12], "little")

    return decode
