"""`rtts batch`: many texts, each into a file of its own, whatever becomes of the others."""

from __future__ import annotations

import json
import os
import signal
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.wav import read_wav
from rtts.cli import batch_speech, engines
from rtts.cli.batch_input import MAX_ITEM_BYTES, read_items
from rtts.cli.batch_manifest import Entry, Manifest
from rtts.cli.failure import CommandError
from rtts.engine.remote import RemoteEngine
from rtts.engine.tone import ToneOptions
from tests.engine.cores import Touchy

TEXTS = [f"This is text number {n}. It has two sentences." for n in range(12)]


def lines(name: str, *objects: object) -> Path:
    """A .jsonl; bytes are written as they are."""
    path = Path(name)
    whole = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in objects]
    path.write_bytes(b"\n".join(whole) + b"\n")
    return path


def entries(folder: str = "out") -> dict[int, Entry]:
    """The last word on each item."""
    text = Path(folder, "manifest.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=Entry) for line in text]
    return {entry.index: entry for entry in found}


def files(folder: str = "out") -> list[str]:
    return sorted(each.name for each in Path(folder).iterdir() if each.name != "manifest.jsonl")


class TestInput:
    def test_paragraphs(self) -> None:
        """Blank lines part items; a line break inside one is a space, or nothing in Chinese."""
        Path("book.txt").write_bytes(
            "\ufeffFirst line\nof one.\r\n\r\n  \n\nSecond.\n\n今天\n天气好。\n".encode()
        )
        items = list(read_items(Path("book.txt")))
        assert [(i.index, i.line, i.wanted and i.wanted.text) for i in items] == [
            (1, 1, "First line of one."),
            (2, 6, "Second."),
            (3, 8, "今天天气好。"),
        ]

    def test_a_bad_line_costs_that_line(self) -> None:
        """Every kind of mistake is an item with a reason, and the next line is read."""
        bad = [
            b"{",
            b"[]",
            b'{"text": 3}',
            b'{"id": "x"}',
            b'{"text": "x", "voise": "y"}',
            b'{"text": "\xff"}',
            b'{"text": "  "}',
            b'{"text": "' + b"x" * MAX_ITEM_BYTES + b'"}',
        ]
        path = lines("x.jsonl", *(each for one in bad for each in (one, {"text": "good"})))
        items = list(read_items(path))
        assert [bool(item.problem) for item in items] == [True, False] * len(bad)
        assert [item.line for item in items] == list(range(1, 2 * len(bad) + 1))

    @given(st.lists(st.sampled_from([b"a\n", b"\n", b" \n", b"\xff\n", b"y" * 40 + b"\n"])))
    @settings(max_examples=60, deadline=None)
    def test_nothing_is_lost(self, pieces: list[bytes]) -> None:
        """Every line with something in it is in exactly one paragraph, in order."""
        Path("p.txt").write_bytes(b"".join(pieces))
        items = list(read_items(Path("p.txt")))
        good = [item for item in items if not item.problem]
        words = " ".join(item.wanted.text for item in good if item.wanted).split()
        wanted = [
            piece.decode().strip() for piece in pieces if piece.strip() and b"\xff" not in piece
        ]
        if len(good) == len(items):
            assert words == wanted
        assert [item.index for item in items] == list(range(1, len(items) + 1))

    @pytest.mark.parametrize("id_", ["../../etc/passwd", "a/b", "x" * 500, "第一章", 7, "..", "\0"])
    def test_ids_stay_in_the_folder(self, id_: object) -> None:
        """An id is part of a name, never a path, and never too long for one."""
        (item,) = read_items(lines("x.jsonl", {"text": "x", "id": id_}))
        assert item.name.startswith("000001")
        assert Path(item.name).name == item.name
        Path(f".{item.name}.opus.part").touch()

    def test_a_million_lines_need_no_memory(self) -> None:
        """Reading holds one item; the manifest holds nine bytes an item."""
        count = 20_000
        with Path("many.jsonl").open("w") as file:
            for n in range(count):
                file.write(json.dumps({"text": f"Text number {n}."}) + "\n")
        Path("out").mkdir()
        digest = "ab" * 32
        with Path("out/manifest.jsonl").open("w") as file:
            for n in range(1, count + 1):
                file.write(f'{{"index":{n},"line":1,"status":"empty","sha256":"{digest}"}}\n')
        tracemalloc.start()
        with Manifest(Path("out")) as manifest:
            settled = [
                manifest.settled(item.index, digest, "") for item in read_items(Path("many.jsonl"))
            ].count(True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert settled == count
        assert peak < count * 9 * 4 + 500_000


class TestManifest:
    def test_the_last_word_counts(self) -> None:
        """Later lines replace earlier ones; half a line and rubbish are passed over and kept apart."""
        Path("out").mkdir()
        done = '{"index":1,"line":1,"status":"done","sha256":"%s","file":"f"}' % ("1" * 64)
        Path("out/manifest.jsonl").write_text(
            f'{done}\nrubbish\n{done.replace("1" * 64, "2" * 64)}\n{{"ind'
        )
        Path("out/f").write_bytes(b"x")
        with Manifest(Path("out")) as manifest:
            assert not manifest.settled(1, "1" * 64, "f")
            assert manifest.settled(1, "2" * 64, "f")
            manifest.write(Entry(2, 2, "empty", sha256="3" * 64))
        assert Path("out/manifest.jsonl").read_text().splitlines()[-2:][0] == '{"ind'
        with Manifest(Path("out")) as manifest:
            assert manifest.settled(2, "3" * 64, "")

    def test_a_file_that_is_gone_is_made_again(self) -> None:
        """What the manifest says counts only with the file, and not with an empty one."""
        Path("out").mkdir()
        with Manifest(Path("out")) as manifest:
            manifest.write(Entry(1, 1, "done", sha256="1" * 64, file="f"))
            assert not manifest.settled(1, "1" * 64, "f")
            Path("out/f").touch()
            assert not manifest.settled(1, "1" * 64, "f")
            Path("out/f").write_bytes(b"x")
            assert manifest.settled(1, "1" * 64, "f")

    def test_one_batch_a_folder(self) -> None:
        """A second command for the same folder is refused while the first runs."""
        Path("out").mkdir()
        with (
            Manifest(Path("out")),
            pytest.raises(CommandError, match="another rtts batch"),
            Manifest(Path("out")),
        ):
            pass


class TestSpeaking:
    def test_each_text_has_its_file(self, rtts: Callable[..., object]) -> None:
        """Names in order, audio of the length the manifest says, a summary; exit status 0."""
        lines("x.jsonl", *({"text": text, "id": f"n{n}"} for n, text in enumerate(TEXTS)))
        outcome = rtts("batch", "x.jsonl", "-o", "out", "--format", "wav")
        assert outcome.status == 0, outcome.err
        assert files() == [f"{n + 1:06d}-n{n}.wav" for n in range(len(TEXTS))]
        for entry in entries().values():
            wav = read_wav(Path("out", entry.file).read_bytes())
            assert len(wav.pcm) / 48_000 == pytest.approx(entry.audio_s, abs=0.002)
        total = sum(entry.audio_s for entry in entries().values())
        assert f"12 spoken, {total:.1f} s of speech in" in outcome.err

    @pytest.mark.parametrize(
        ("name", "start"),
        [("opus", b"OggS"), ("ogg", b"OggS"), ("pcm", b""), ("ulaw", b""), ("alaw", b"")],
    )
    def test_formats(self, rtts: Callable[..., object], name: str, start: bytes) -> None:
        """Each format is what `rtts say` or a player takes; the same text gives the same bytes."""
        lines("x.jsonl", {"text": TEXTS[0]})
        for folder in ("out", "again"):
            outcome = rtts("batch", "x.jsonl", "-o", folder, "--format", name)
            assert outcome.status == 0, outcome.err
        data = Path(f"out/000001.{name}").read_bytes()
        assert data.startswith(start)
        assert data == Path(f"again/000001.{name}").read_bytes()
        per_s = {"pcm": 48_000, "ulaw": 8_000, "alaw": 8_000}.get(name)
        if per_s:
            assert len(data) / per_s == pytest.approx(entries()[1].audio_s, abs=0.01)

    def test_what_fails_costs_itself(self, rtts: Callable[..., object]) -> None:
        """Bad lines and voices nobody has are in the manifest with a reason; the rest is spoken."""
        lines(
            "x.jsonl",
            {"text": TEXTS[0]},
            b"{",
            {"text": "x", "voice": "nobody"},
            {"text": "* * *"},
            {"text": TEXTS[1]},
        )
        outcome = rtts("batch", "x.jsonl", "-o", "out")
        assert outcome.status == 1
        found = {index: (entry.status, entry.code) for index, entry in entries().items()}
        assert found == {
            1: ("done", ""),
            2: ("failed", "bad_line"),
            3: ("failed", "unknown_voice"),
            4: ("empty", ""),
            5: ("done", ""),
        }
        assert files() == ["000001.opus", "000005.opus"]
        assert "2 spoken, 1 with nothing to speak, 2 failed" in outcome.err

    def test_again_does_only_what_changed(self, rtts: Callable[..., object]) -> None:
        """A second run speaks nothing; then only a changed line, a lost file, and what failed."""
        objects: list[object] = [{"text": text} for text in TEXTS[:6]]
        lines("x.jsonl", *objects, b"{")
        rtts("batch", "x.jsonl", "-o", "out")
        before = {name: Path("out", name).stat().st_mtime_ns for name in files()}

        assert "0 spoken, 6 there already, 1 failed" in rtts("batch", "x.jsonl", "-o", "out").err
        lines(
            "x.jsonl",
            *objects[:2],
            {"text": "Something else."},
            *objects[3:],
            {"text": "Now it is right."},
        )
        Path("out/000005.opus").unlink()
        outcome = rtts("batch", "x.jsonl", "-o", "out")

        assert outcome.status == 0
        assert "3 spoken, 4 there already" in outcome.err
        changed = {
            name for name in files() if Path("out", name).stat().st_mtime_ns != before.get(name)
        }
        assert changed == {"000003.opus", "000005.opus", "000007.opus"}

    @pytest.mark.parametrize(
        "flags",
        [
            ("--voice", "tone-low"),
            ("--seed", "4"),
            ("--format", "wav"),
            ("--set", "session.opus_bitrate=16000"),
            ("--set", "tone.char_s=0.05"),
        ],
    )
    def test_other_settings_are_another_batch(
        self, rtts: Callable[..., object], flags: tuple[str, ...]
    ) -> None:
        """Whatever can be heard is part of what makes a file the right one; what cannot is not."""
        lines("x.jsonl", {"text": TEXTS[0]})
        rtts("batch", "x.jsonl", "-o", "out")
        assert (
            "0 spoken, 1 there"
            in rtts("batch", "x.jsonl", "-o", "out", "--set", "tone.max_utterances=9").err
        )
        assert "1 spoken" in rtts("batch", "x.jsonl", "-o", "out", *flags).err

    def test_nothing_left_loads_nothing(
        self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where everything is there, no engine is started to find that out."""
        lines("x.jsonl", {"text": TEXTS[0]})
        rtts("batch", "x.jsonl", "-o", "out")
        monkeypatch.setattr(
            engines, "make_engine", lambda *_, **__: pytest.fail("an engine was made")
        )
        assert rtts("batch", "x.jsonl", "-o", "out").status == 0

    def test_through_a_server(self, rtts: Callable[..., object], served: str) -> None:
        """A running server speaks a batch as well, and a second run finds it done."""
        lines("x.jsonl", *({"text": text} for text in TEXTS))
        assert rtts("batch", "x.jsonl", "-o", "out", "--server", served).status == 0
        assert len(files()) == len(TEXTS)
        assert "0 spoken, 12 there" in rtts("batch", "x.jsonl", "-o", "out", "--server", served).err


@pytest.fixture
def served(spawn: Callable[..., object]) -> str:
    """The URL of a server in another process."""
    process = spawn("serve", "--port", "0", "--log-level", "error")
    line = process.stdout.readline().decode()
    assert b"ready" in process.stdout.readline()
    return line.split()[2]


class TestAsked:
    @pytest.mark.parametrize(
        ("argv", "status", "said"),
        [
            (("none.txt", "-o", "out"), 1, "cannot be read"),
            ((".", "-o", "out"), 1, "must end in"),
            (("x.doc", "-o", "out"), 1, "must end in"),
            (("empty.txt", "-o", "out"), 1, "there is no text in it"),
            (("x.txt", "-o", "x.txt"), 1, "cannot be made"),
            (("x.txt",), 2, "required"),
            (("x.txt", "-o", "out", "-j", "0"), 2, "--jobs must be at least 1"),
            (("x.txt", "-o", "out", "--profile", "fast"), 2, "engine.profile must be one of"),
        ],
    )
    def test_wrongly(
        self, rtts: Callable[..., object], argv: tuple[str, ...], status: int, said: str
    ) -> None:
        """A mistake is one line that names it."""
        Path("x.txt").write_text("Hello.")
        Path("x.doc").write_text("Hello.")
        Path("empty.txt").write_text("\n \n")
        outcome = rtts("batch", *argv)
        assert (outcome.status, said in outcome.err) == (status, True), outcome.err

    def test_a_full_disk(
        self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What cannot be written ends the batch with the reason and leaves no half of a file."""

        def replace(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(batch_speech.os, "replace", replace)
        lines("x.jsonl", {"text": TEXTS[0]})
        outcome = rtts("batch", "x.jsonl", "-o", "out")
        assert (outcome.status, "No space left" in outcome.err) == (1, True)
        assert files() == []


class TestTrouble:
    def test_ctrl_c_and_on(self, spawn: Callable[..., object], rtts: Callable[..., object]) -> None:
        """Ctrl-C leaves whole files and a true manifest, status 130; the next run does the rest."""
        lines("x.jsonl", *({"text": f"{n}. " + "Some words to be spoken. " * 8} for n in range(60)))
        argv = (
            "batch",
            "x.jsonl",
            "-o",
            "out",
            "--format",
            "wav",
            "--set",
            "tone.real_time_factor=0.002",
        )
        process = spawn(*argv)
        deadline = time.monotonic() + 20
        while len(list(Path().glob("out/*.wav"))) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        said = process.stderr.read().decode()
        done = [entry for entry in entries().values() if entry.status == "done"]
        assert 4 <= len(done) < 60
        assert sorted(entry.file for entry in done) == files()
        assert f"interrupted; {len(done)} of 60 texts are settled" in said
        outcome = rtts(*argv)
        assert f"{60 - len(done)} spoken, {len(done)} there already" in outcome.err
        assert len(files()) == 60

    def test_an_engine_that_is_killed_costs_nothing(self, spawn: Callable[..., object]) -> None:
        """The engine's process is killed half-way: every text is spoken all the same."""
        lines("x.jsonl", *({"text": f"{n}. " + "Some words to be spoken. " * 8} for n in range(40)))
        slow = ("--set", "tone.real_time_factor=0.003", "--set", "engine.host=remote")
        process = spawn("batch", "x.jsonl", "-o", "out", "--format", "wav", *slow)
        deadline = time.monotonic() + 20
        while len(list(Path().glob("out/*.wav"))) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert process.wait(40) == 0, process.stderr.read()
        assert Counter(entry.status for entry in entries().values()) == {"done": 40}
        assert max(entry.attempts for entry in entries().values()) == 2
        assert len(files()) == 40

    def test_a_text_that_kills_is_found(self, rtts: Callable[..., object], touchy: None) -> None:
        """One text kills the engine each time: it alone fails, and those beside it are spoken."""
        objects: list[object] = [{"text": text} for text in TEXTS]
        objects[5] = {"text": "Poison.", "instructions": "quit"}
        lines("x.jsonl", *objects)
        outcome = rtts("batch", "x.jsonl", "-o", "out", "-j", "4")
        assert outcome.status == 1, outcome.err
        found = entries()
        assert {i: e.code for i, e in found.items() if e.status != "done"} == {6: "engine_dead"}
        assert len(files()) == len(TEXTS) - 1

    def test_a_server_that_is_gone_ends_it(
        self,
        rtts: Callable[..., object],
        monkeypatch: pytest.MonkeyPatch,
        served: str,
        spawn: Callable[..., object],
    ) -> None:
        """Where nothing can be spoken for long the batch ends and says how to go on."""
        monkeypatch.setattr(batch_speech, "GIVE_UP_S", 0.2)
        monkeypatch.setattr(batch_speech, "_RETRY_S", 0.1)

        async def refuse(*_: object) -> None:
            raise batch_speech.ConnectError("unreachable", "nobody answers")

        monkeypatch.setattr(batch_speech._Connection, "client", refuse)
        lines("x.jsonl", {"text": TEXTS[0]})
        outcome = rtts("batch", "x.jsonl", "-o", "out", "--server", served)
        assert outcome.status == 1
        assert "nothing was spoken for 0 s" in outcome.err
        assert "the same command goes on from there" in outcome.err


@pytest.fixture
def touchy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine in a process that dies when an utterance's instructions say so."""

    def make(*_: object, **__: object) -> RemoteEngine:
        return RemoteEngine(Touchy, (ToneOptions(),))

    monkeypatch.setattr(engines, "make_engine", make)
    yield
