"""The Python client and the protocol page against the real server, over real sockets."""

from __future__ import annotations

import asyncio
import re
import threading
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rtts_client import (
    Audio,
    Client,
    ConnectError,
    ContextEvent,
    ContextFailedError,
    Done,
    FirstAudio,
    Flushed,
    Format,
    Marks,
    Reconnected,
    Segment,
    Started,
    connect,
)

from rtts.audio.opus import Decoder
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import ServerOptions, running_server
from rtts.server.server import Server
from rtts.session import SessionOptions
from tests.e2e.cut_proxy import cut_proxy

ROOT = Path(__file__).parents[2]
PCM = Format("pcm_s16le", "raw", 24_000)
REPLY = (
    "Sure, I can help with that. The first thing to know is that the train leaves at nine. "
    "Would you like to hear more about it? There is a restaurant on board, and a quiet carriage."
)


@asynccontextmanager
async def server(
    tone: ToneOptions | None = None, session: SessionOptions | None = None, **options: Any
) -> AsyncIterator[Server]:
    engine = LocalEngine(lambda: ToneEngine(tone or ToneOptions()))
    async with running_server(
        ServerOptions(port=0, **options), engine, session_options=session
    ) as running:
        yield running


def open_client(running: Server, **options: Any) -> Client:
    return connect(running.ws_url, proxy=None, **options)


def port_of(running: Server) -> int:
    return int(running.url.rsplit(":", 1)[1])


async def words(text: str, pause_s: float = 0.001) -> AsyncIterator[str]:
    for word in re.findall(r"\S+\s*", text):
        yield word
        await asyncio.sleep(pause_s)


def audio_of(seen: list[ContextEvent]) -> bytes:
    return b"".join(event.data for event in seen if isinstance(event, Audio))


def of(seen: list[ContextEvent], kind: type) -> list[Any]:
    return [event for event in seen if isinstance(event, kind)]


async def speak(client: Client, text: str = REPLY, **options: Any) -> list[ContextEvent]:
    async with client.context(**{"format": PCM, "max_lead_ms": 0} | options) as context:
        return [event async for event in context.speak(words(text))]


@pytest.mark.parametrize("protocol", ["rtts.v1", "rtts.v1.json"])
async def test_a_reply_word_by_word(protocol: str) -> None:
    """Events in their order, all text in segments, exact length, measured on both sides."""
    async with server() as running, open_client(running, protocol=protocol) as client:
        async with client.context(format=PCM, max_lead_ms=0) as context:
            seen = [event async for event in context.speak(words(REPLY))]
        done = seen[-1]
        assert isinstance(done, Done) and done.reason == "completed"
        assert isinstance(seen[0], Started) and isinstance(seen[1], Segment)
        segments = of(seen, Segment)
        assert " ".join(s.text for s in segments).split() == REPLY.split()
        assert all(REPLY[slice(*s.chars)] == s.text for s in segments)
        assert len(audio_of(seen)) == 2 * done.samples
        assert [a.seq for a in of(seen, Audio)] == list(range(done.last_seq + 1))
        pts = [a.pts for a in of(seen, Audio)]
        sizes = [len(a.data) // 2 for a in of(seen, Audio)]
        assert pts == [sum(sizes[:i]) for i in range(len(sizes))]
        assert len(of(seen, FirstAudio)) == 1
        marked = "".join(item[0] for m in of(seen, Marks) for item in m.items)
        assert re.sub(r"\W", "", marked) == re.sub(r"\W", "", REPLY)
        assert context.first_packet_s is not None and done.metrics is not None
        assert 0.0 < context.first_packet_s < 1.0


async def test_opus_has_the_exact_length_of_the_speech() -> None:
    """Decoded, without `pre_skip` and the padding, Opus is as long as the PCM of the same text."""
    async with server() as running, open_client(running) as client:
        pcm = await speak(client, seed=7)
        opus = await speak(client, seed=7, format=None)
        started, done = opus[0], opus[-1]
        assert isinstance(started, Started) and isinstance(done, Done)
        assert done.samples == pcm[-1].samples  # type: ignore[union-attr]
        rate = started.format.sample_rate
        decoder = Decoder(rate, 1)
        decoded = b"".join(
            decoder.decode(packet) for audio in of(opus, Audio) for packet in audio.packets
        )
        n_samples = len(decoded) // 2 - started.format.pre_skip * rate // 48_000
        assert done.samples <= n_samples < done.samples + rate * started.format.frame_ms // 1000 + 1


async def test_contexts_interleave_and_stay_apart() -> None:
    """Eight replies at once on one socket are each byte-equal to the same reply alone."""
    async with server() as running, open_client(running) as client:
        texts = [f"Reply number {i}. It has two sentences." for i in range(8)]
        alone = [audio_of(await speak(client, text)) for text in texts]
        together = await asyncio.gather(*(speak(client, text) for text in texts))
        assert [audio_of(seen) for seen in together] == alone


@pytest.mark.parametrize("cuts", [[6_000], [3_000, 8_000, 30_000, 60_000], [20_000, 20_000]])
async def test_a_broken_network_is_not_heard(cuts: list[int]) -> None:
    """Connections reset in the middle of speech: the audio is byte-equal to an undisturbed run."""
    async with server() as running, open_client(running) as client:
        whole = await speak(client, seed=3)
        async with (
            cut_proxy(port_of(running), list(cuts)) as proxy,
            connect(proxy.url, proxy=None) as shaky,
        ):
            seen = await speak(shaky, seed=3)
            assert proxy.n_connections == len(cuts) + 1
        assert audio_of(seen) == audio_of(whole)
        assert [s.text for s in of(seen, Segment)] == [s.text for s in of(whole, Segment)]
        assert len(of(seen, Reconnected)) == len(cuts)
        assert len(of(seen, Done)) == 1


async def test_many_contexts_survive_a_broken_network() -> None:
    """All of them, also while text is still being written."""
    async with server() as running, cut_proxy(port_of(running)) as proxy:
        async with connect(proxy.url, proxy=None) as client:
            texts = [f"Reply number {i} of many. {REPLY}" for i in range(5)]
            speaking = [asyncio.create_task(speak(client, text)) for text in texts]
            for _ in range(4):
                await asyncio.sleep(0.02)
                proxy.break_all()
            broken = await asyncio.gather(*speaking)
            whole = [await speak(client, text) for text in texts]
        assert [audio_of(seen) for seen in broken] == [audio_of(seen) for seen in whole]


async def test_cancel_divides_the_text() -> None:
    """`spoken` and `remaining` are all text given, cut where `played_ms` says."""
    async with server() as running, open_client(running) as client:
        async with client.context(format=PCM) as context:
            await context.send(REPLY)
            async for event in context:
                if isinstance(event, Audio) and event.pts >= 24_000:
                    break
            done = await context.cancel(played_ms=1000)
        assert done.spoken is not None and done.remaining is not None
        assert done.spoken + done.remaining == REPLY
        assert 5 < len(done.spoken) < 40
        assert done.played_ms == 1000


async def test_flushes_and_warnings_and_reuse() -> None:
    """Flush ids come back in order; a name can be used again after its end."""
    async with server() as running, open_client(running) as client:
        for _ in range(2):
            async with client.context(format=PCM, name="again") as context:
                await context.send("One moment")
                first = await context.flush()
                await context.send(" please")
                second = await context.flush()
                await context.end()
                seen = [event async for event in context]
            assert [event.id for event in of(seen, Flushed)] == [first, second]


async def test_a_text_longer_than_the_buffer_is_spoken_whole() -> None:
    """Far more than `max_text_chars`, as fast as the caller likes."""
    text = " ".join(f"This is sentence number {i} of a rather long text." for i in range(200))
    async with server() as running, open_client(running) as client:
        async with client.context(format=PCM, max_lead_ms=0, timestamps="none") as context:
            seen = [event async for event in context.speak(text)]
        assert len(text) > 2 * client.ready.limits.max_text_chars
        assert " ".join(s.text for s in of(seen, Segment)).split() == text.split()


async def test_refusals_are_typed() -> None:
    """An unknown voice, an impossible format, no key."""
    async with server() as running, open_client(running) as client:
        wrong = ({"voice": "nobody"}, {"format": Format("flac")}, {"speed": 9.0})
        codes = ("unknown_voice", "unsupported_format", "bad_request")
        for options, code in zip(wrong, codes, strict=True):
            with pytest.raises(ContextFailedError) as caught:
                await speak(client, **options)
            assert caught.value.code == code
    async with server(api_keys=("right",)) as running:
        with pytest.raises(ConnectError) as refused:
            async with open_client(running, api_key="wrong"):
                pass
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        async with open_client(running, api_key="right") as client:
            assert audio_of(await speak(client, "Hello."))


async def test_a_reader_that_stops_holds_the_server() -> None:
    """Unread audio stays bounded in real time, and nothing of it is lost."""
    session = SessionOptions(max_lead_s=0.4)
    async with server(session=session) as running, open_client(running) as client:
        async with client.context(format=PCM, buffer_s=0.3) as context:
            await context.send(REPLY)
            await context.end()
            waiting_s = []
            for _ in range(15):
                await asyncio.sleep(0.1)
                waiting_s.append(context._clock.waiting_s)
            assert max(waiting_s) < 0.3 + 0.4 + 0.35
            assert waiting_s[-1] == waiting_s[-4] > 0.3
            held = [await anext(context) for _ in range(4)]
            await asyncio.sleep(0.3)
            assert context._clock.waiting_s > 0.0
        assert held


async def test_files(tmp_path: Path) -> None:
    """A WAV with its exact length, and an Ogg file."""
    async with server() as running, open_client(running) as client:
        done = await client.save(words(REPLY), tmp_path / "x.wav")
        with wave.open(str(tmp_path / "x.wav")) as file:
            assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
            assert file.getnframes() == done.samples
        await client.save(REPLY, tmp_path / "x.ogg")
        data = (tmp_path / "x.ogg").read_bytes()
        assert data.startswith(b"OggS") and b"OpusHead" in data[:64]


async def test_draining_finishes_what_runs() -> None:
    """SIGTERM's path: a running reply is spoken to its end, and the client was told."""
    async with server() as running, open_client(running) as client:
        async with client.context(format=PCM) as context:
            await context.send("This is being said right now. ")
            await anext(context)
            stopping = asyncio.create_task(running.shutdown(5.0))
            await asyncio.sleep(0.05)
            await context.end()
            seen = [event async for event in context]
            await stopping
        assert isinstance(seen[-1], Done) and seen[-1].reason == "completed"
        assert client.goaway is not None


# --- documents -----------------------------------------------------------------------------------


def python_blocks(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.DOTALL)


async def run_blocking(code: str, file: str, running: Server) -> dict[str, Any]:
    """Run an example in a thread of its own, against the running server."""
    code = code.replace("ws://127.0.0.1:8765/v1/tts", running.ws_url)
    names: dict[str, Any] = {"__name__": "__main__"}
    errors: list[BaseException] = []

    def run() -> None:
        try:
            exec(compile(code, file, "exec"), names)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(thread.join)
    if errors:
        raise errors[0]
    return names


async def test_the_protocol_page_says_hello() -> None:
    """The hello world of rtts-v1.md runs and hears audio."""
    (code,) = python_blocks("docs/protocol/rtts-v1.md")
    async with server() as running:
        names = await run_blocking(code, "rtts-v1.md", running)
    assert names["event"]["reason"] == "completed"
    assert names["packets"]


@pytest.mark.parametrize("index", range(3))
async def test_the_readme_of_the_client_runs(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every example of clients/python/README.md does what it says."""
    monkeypatch.chdir(tmp_path)
    said = ["first packet after", "s of speech", "heard '"]
    async with server() as running:
        await run_blocking(python_blocks("clients/python/README.md")[index], "README.md", running)
    assert said[index] in capsys.readouterr().out
