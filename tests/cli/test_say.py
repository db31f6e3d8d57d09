from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from rtts.audio.wav import read_wav
from rtts.cli.engines import make_engine
from rtts.server import Server, ServerOptions, running_server
from rtts.settings import load

HELLO = "Hello there. How are you today?"


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def types(events: list[dict[str, object]]) -> list[object]:
    return [event["type"] for event in events]


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    """Start a server with the tone engine on a thread of its own; it is stopped at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stops: list[asyncio.Event] = []

    def run(**options: object) -> Server:
        async def serve() -> AsyncIterator[object]:
            stop = asyncio.Event()
            settings = load(env={"RTTS_ENGINE_KIND": "tone"}).settings
            wanted = ServerOptions(**{"port": 0, **options})
            async with running_server(wanted, make_engine(settings)) as running:
                stops.append(stop)
                yield running
                await stop.wait()

        running = serve()
        started: Server = asyncio.run_coroutine_threadsafe(anext(running), loop).result(10)

        async def drain() -> None:
            async for _ in running:
                pass

        draining.append(asyncio.run_coroutine_threadsafe(drain(), loop))
        return started

    draining: list[object] = []
    yield run
    for stop in stops:
        loop.call_soon_threadsafe(stop.set)
    for each in draining:
        each.result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class TestFiles:
    def test_wav_is_the_engines_pcm(self, rtts: Callable[..., object]) -> None:
        """A WAV file holds what the engine makes, the same on every run with a seed."""
        for name in ("a.wav", "b.wav"):
            assert rtts("say", HELLO, "-o", name, "--seed", "1").status == 0
        wav = read_wav(Path("a.wav").read_bytes())
        assert wav.sample_rate_hz == 24_000
        assert len(wav.pcm) > 24_000
        assert wav.pcm == read_wav(Path("b.wav").read_bytes()).pcm

    def test_opus(self, rtts: Callable[..., object]) -> None:
        """An .opus file is Ogg Opus with an end; the summary says how it went."""
        outcome = rtts("say", HELLO, "-o", "x.opus")
        data = Path("x.opus").read_bytes()
        assert data.startswith(b"OggS") and b"OpusHead" in data[:64]
        last_page = data[data.rindex(b"OggS") :]
        assert last_page[5] & 4, "the last page is marked as the last"
        assert outcome.out == ""
        assert outcome.err.startswith("wrote x.opus (")
        assert "first packet" in outcome.err

    def test_default_without_a_sound_device(
        self, rtts: Callable[..., object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where nothing can be heard, rtts.opus is written, and said so."""
        monkeypatch.setattr("rtts.cli.playback.find_player", lambda: None)
        assert rtts("say", HELLO).err.startswith("wrote rtts.opus")
        assert Path("rtts.opus").stat().st_size > 1000

    def test_words_are_joined(self, rtts: Callable[..., object]) -> None:
        """Text may be given without quotes."""
        events = lines(rtts("say", "Hello", "there.", "--json").out)
        assert [event["text"] for event in events if event["type"] == "segment"] == ["Hello there."]

    def test_slow_voice(self, rtts: Callable[..., object]) -> None:
        """A voice that takes its time to load does not look hung."""
        outcome = rtts(
            "say", HELLO, "--voice=tone-low", "--set=tone.voice_load_s=1.3", "-o", "x.wav"
        )
        assert outcome.status == 0
        assert "waiting for the first sound (1 s)" in outcome.err

    def test_quiet(self, rtts: Callable[..., object]) -> None:
        """-q says nothing at all."""
        outcome = rtts("say", HELLO, "-q", "-o", "x.wav")
        assert (outcome.status, outcome.out, outcome.err) == (0, "", "")

    def test_standard_output(self, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
        """-o - streams a WAV file."""
        out, err = spawn("say", HELLO, "-o", "-").communicate(timeout=30)
        assert len(read_wav(out).pcm) > 24_000
        assert err.startswith(b"wrote WAV to standard output (")


class TestJson:
    def test_events(self, rtts: Callable[..., object]) -> None:
        """Each event is a line; audio is counted, not printed; the last line sums up."""
        outcome = rtts("say", HELLO, "--json")
        events = lines(outcome.out)
        assert types(events)[0] == "started"
        assert types(events)[-2:] == ["done", "said"]
        assert {"segment", "audio", "first_audio", "marks"} <= set(types(events))
        audio = [event for event in events if event["type"] == "audio"]
        assert all(event["bytes"] > 0 and "data" not in event for event in audio)
        assert events[-1]["first_packet_ms"] > 0
        assert not Path("rtts.opus").exists()

    def test_text_that_is_no_text(self, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
        """Arguments that are not UTF-8 end in an error or in speech, never in a traceback."""
        process = spawn("say", "Hello \udcff there.", "--json", env={**os.environ, "LANG": "C"})
        out, err = process.communicate(timeout=30)
        assert process.returncode in (0, 1)
        assert b"Traceback" not in err
        assert lines(out.decode())


class TestInput:
    def test_speaks_while_it_comes(self, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
        """A sentence is spoken before the text has ended: nothing waits for the end of input."""
        process = spawn("say", "-", "--json")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("Grüße aus Köln. And th".encode())
        process.stdin.flush()
        seen: list[dict[str, object]] = []
        while "audio" not in types(seen):
            seen.append(json.loads(process.stdout.readline()))
        segments = [event["text"] for event in seen if event["type"] == "segment"]
        assert [text.strip() for text in segments] == ["Grüße aus Köln."]
        rest, _ = process.communicate(b"en no more.", timeout=30)
        assert types(lines(rest.decode()))[-1] == "said"

    def test_longer_than_the_servers_buffer(
        self, spawn: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """Any amount of text is spoken, however fast it comes: it waits for room."""
        text = b"This is one more sentence of a long story. " * 300  # 12,900 characters
        out, err = spawn("say", "-", "-o", "long.wav").communicate(text, timeout=60)
        assert (out, err.count(b"\n")) == (b"", err.count(b"\n"))
        pcm = read_wav(Path("long.wav").read_bytes()).pcm
        assert len(pcm) / 48_000 > 300  # about 60 ms a character

    def test_reader_that_takes_its_time(
        self, spawn: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """Whoever reads -o - may be slower than speech is made: nothing is lost or given up."""
        process = spawn("say", "-", "-o", "-")
        assert process.stdin is not None
        process.stdin.write(b"This is one more sentence of a long story. " * 70)  # 180 s
        process.stdin.close()
        time.sleep(2.0)  # by now all of it has been made and waits
        process.stdin = None
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert len(read_wav(out).pcm) / 48_000 > 150

    def test_text_from_a_pipe_without_a_dash(
        self, spawn: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """`llm | rtts say` reads its input too."""
        out, _ = spawn("say", "--json").communicate(b"Hello.", timeout=30)
        assert types(lines(out.decode()))[-1] == "said"

    @pytest.mark.parametrize("text", [b"", b"  \n", "🙂".encode()])
    def test_nothing_to_say(
        self, spawn: Callable[..., subprocess.Popen[bytes]], text: bytes
    ) -> None:
        """Text without anything to speak ends with 1 and a reason, and leaves no file."""
        process = spawn("say", "-", "-o", "x.opus")
        _, err = process.communicate(text, timeout=30)
        assert process.returncode == 1
        assert err.splitlines()[-1].startswith(b"rtts: nothing was spoken: ")
        assert not Path("x.opus").exists()

    def test_text_in_another_encoding(self, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
        """Input that is not UTF-8 is spoken as far as it is, and that is said once."""
        process = spawn("say", "-o", "x.wav")
        _, err = process.communicate("Grüße, viele.".encode("latin-1"), timeout=30)
        assert process.returncode == 0
        assert err.count(b"not all UTF-8") == 1


class TestMistakes:
    @pytest.mark.parametrize(
        ("argv", "complaint"),
        [
            (("--voice", "ton"), "there is no voice 'ton'; try tone"),
            (("--language", "tlh"), "'tlh'"),
            (("--speed", "99"), "speed"),
            (("-o", "x.mp3"), "x.mp3: the name must end in .opus, .ogg or .wav"),
            (("--server", "127.0.0.1:1"), "127.0.0.1:1 refuses or cannot be reached"),
        ],
    )
    def test_one_line(
        self, rtts: Callable[..., object], argv: tuple[str, ...], complaint: str
    ) -> None:
        """What cannot be done ends with 1, and the last line says why."""
        outcome = rtts("say", HELLO, *argv)
        assert outcome.status == 1
        assert complaint in outcome.err.splitlines()[-1]
        assert "Traceback" not in outcome.err


class TestServers:
    @pytest.mark.parametrize(
        ("command", "told"),
        [
            (("say", "Hi"), "connecting to the server (1 s)"),
            (("voices",), "asking the server (1 s)"),
        ],
    )
    def test_silent_server(
        self, rtts: Callable[..., object], command: tuple[str, ...], told: str
    ) -> None:
        """A server that takes a connection and says nothing does not look like a hung command."""
        with socket.create_server(("127.0.0.1", 0)) as silent:

            def take_and_drop() -> None:
                taken, _ = silent.accept()
                time.sleep(1.5)
                taken.close()

            thread = threading.Thread(target=take_and_drop)
            thread.start()
            outcome = rtts(*command, "--server", f"ws://127.0.0.1:{silent.getsockname()[1]}")
            thread.join()
        assert outcome.status == 1
        assert told in outcome.err

    def test_named(self, rtts: Callable[..., object], server: Callable[..., Server]) -> None:
        """--server speaks through that server, with its key."""
        running = server(api_keys=("sesame",), auth_timeout_s=0.2)
        denied = rtts("say", HELLO, "--server", running.url)
        assert denied.status == 1
        assert "--api-key" in denied.err
        allowed = rtts("say", HELLO, "--server", running.ws_url, "--api-key", "sesame", "--json")
        assert allowed.status == 0
        assert 'rtts_streams_total{outcome="ok"} 1.0' in metrics(running)

    def test_found(
        self,
        rtts: Callable[..., object],
        server: Callable[..., Server],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A server on the configured port is used without being named, unless told not to, or told
        which engine to speak with."""
        running = server()
        monkeypatch.setenv("RTTS_SERVER_PORT", running.url.rpartition(":")[2])
        assert rtts("say", HELLO, "--json").status == 0
        assert 'rtts_streams_total{outcome="ok"} 1.0' in metrics(running)
        for own in (("--server", "none"), ("--engine", "tone")):
            assert rtts("say", HELLO, "--json", *own).status == 0
            assert 'rtts_streams_total{outcome="ok"} 1.0' in metrics(running)


def metrics(server: Server) -> str:
    return server.metrics.expose()[0].decode()


def test_interrupt_while_nobody_reads(spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Ctrl-C ends it also where its output is a pipe that nobody empties."""
    process = spawn("say", "-", "-o", "-")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"This is one more sentence of a long story. " * 50)
    process.stdin.close()
    process.stdin = None
    assert process.stdout.read(44).startswith(b"RIFF")
    time.sleep(0.5)  # the pipe is full by now
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130


@pytest.mark.parametrize("sends", [b"", b"This is a sentence. And"])
def test_interrupt(spawn: Callable[..., subprocess.Popen[bytes]], sends: bytes) -> None:
    """Ctrl-C ends it with 130 and no traceback; what was written stays a playable file."""
    process = spawn("say", "-", "-o", "x.wav")
    assert process.stdin is not None
    process.stdin.write(sends)
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while sends and not (Path("x.wav").exists() and Path("x.wav").stat().st_size > 44):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if not sends:
        time.sleep(1.0)  # anywhere: it may still be importing
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(10) == 130
    assert time.monotonic() - began < 5
    _, err = process.communicate()
    assert b"Traceback" not in err
    if sends:
        assert b"interrupted; wrote x.wav" in err
        assert len(read_wav(Path("x.wav").read_bytes()).pcm) > 1000
