"""Our LiveKit plugin as the framework uses it, without a room: livekit_plugin.py SITE TONE_URL."""

import asyncio
import json
import time

from plugin_world import CPU_URL, HALVES, KEY, LONG, MIXED, ODD, OUT, TEXT, TONE_URL, alone, broken

from plugin_world import port_of, settled, tokens  # isort: skip

from livekit.agents import APIConnectOptions, APIError
from livekit.plugins import rtts

said = {}
ONCE = APIConnectOptions(max_retry=0, timeout=2.0)


class Heard:
    """What a stream gave."""

    def __init__(self):
        self.audio, self.words, self.finals, self.rates, self.at = b"", [], 0, set(), []

    def take(self, event):
        self.at.append(time.monotonic())
        data, frame = bytes(event.frame.data), event.frame
        # Where its last frame has gone already, the framework marks an end on 10 ms of silence.
        is_mark = event.is_final and frame.samples_per_channel == frame.sample_rate // 100
        if any(data) or not is_mark:
            self.audio += data
        self.rates.add(event.frame.sample_rate)
        self.words += event.frame.userdata.get("lk.timed_transcripts") or []
        self.finals += event.is_final

    @property
    def text(self):
        return "".join(map(str, self.words))

    @property
    def starts(self):
        return [word.start_time for word in self.words]


def make(url=TONE_URL, key=KEY, **options):
    tts = rtts.TTS(url=url, api_key=key, **options)
    tts.metrics, tts.errors = [], []
    tts.on("metrics_collected", tts.metrics.append)
    tts.on(
        "error", lambda error: tts.errors.append((type(error.error).__name__, error.recoverable))
    )
    return tts


async def hear(tts, pieces, stop_after=None, **options):
    """A reply; `pieces` are tokens, or functions to wait for."""
    heard = Heard()
    stream = tts.stream(**options)

    async def push():
        for piece in pieces:
            if isinstance(piece, str):
                stream.push_text(piece)
                await asyncio.sleep(0)
            else:
                await piece()
        stream.end_input()

    pushing = asyncio.create_task(push())
    try:
        async for event in stream:
            heard.take(event)
            if stop_after is not None and len(heard.audio) >= stop_after:
                break
    finally:
        pushing.cancel()
        await stream.aclose()
    return heard


def pause(seconds):
    return lambda: asyncio.sleep(seconds)


def n_tasks():
    return len(asyncio.all_tasks() - {asyncio.current_task()})


async def a_turn():
    tts = make()
    tts.prewarm()
    await asyncio.sleep(0.1)
    heard = await hear(tts, tokens(TEXT))
    (metrics,) = tts.metrics
    mixed = await hear(tts, tokens(MIXED))
    chunked = await tts.synthesize(TEXT).collect()
    await tts.aclose()
    reference = await alone(TEXT)
    return {
        "is_exact": heard.audio == reference,
        "text": heard.text,
        "mixed": mixed.text == MIXED,
        "is_in_order": heard.starts == sorted(heard.starts) and heard.starts[0] >= 0,
        "ends_s": [heard.words[-1].end_time, len(reference) / 48_000],
        "finals": heard.finals,
        "characters": metrics.characters_count,
        "ttfb_s": metrics.ttfb,
        "reused": metrics.connection_reused,
        "model": [metrics.metadata.model_name, metrics.metadata.model_provider],
        "chunked_s": [chunked.duration, len(reference) / 48_000],
        "left": [tts._pool.n_connections, n_tasks()],
    }


async def spoken_before_the_end():
    tts = make()
    began = time.monotonic()
    heard = await hear(tts, [*tokens("The shop opens at nine. "), pause(0.6), "Good."])
    await tts.aclose()
    return {"first_s": heard.at[0] - began, "text": heard.text}


async def several_ways_to_speak():
    """Another rate, two at once, more than a connection holds, hardly a word, nothing, a flush first."""
    low = make(sample_rate=16_000)
    heard = await hear(low, [TEXT])
    await low.aclose()
    tts = make()
    many = await asyncio.gather(*(hear(tts, [TEXT]) for _ in range(20)))
    connections = tts._pool.n_connections
    odd = [len((await hear(tts, [text])).audio) for text in [*ODD, ""]]
    flushed = await _flushed(tts)
    await tts.aclose()
    return {
        "rates": list(heard.rates),
        "is_exact": heard.audio == await alone(TEXT, rate_hz=16_000)
        and {each.audio for each in many} == {await alone(TEXT)},
        "connections": connections,
        "odd": odd,
        "flushed": [flushed, len(await alone("One."))],
        "errors": tts.errors,
    }


async def _flushed(tts):
    """Bytes of a reply that a flush ends, after one that has nothing to flush."""
    stream = tts.stream()
    stream.flush()
    stream.push_text("One.")
    stream.flush()
    n_bytes = sum([len(bytes(event.frame.data)) async for event in stream])
    await stream.aclose()
    return n_bytes


async def settings():
    tts = make(voice="tone-low", speed=0.5, language="en-GB")
    first = await hear(tts, ["One."])
    tts.update_options(voice="tone-high", speed=None)
    second = await hear(tts, ["One."])
    tts.update_options(voice="nobody")
    error = await failure(tts, ["One."])
    await tts.aclose()
    return {
        "first": first.audio == await alone("One.", voice="tone-low", speed=0.5, language="en-GB"),
        "second": second.audio == await alone("One.", voice="tone-high", language="en-GB"),
        "error": error,
        "told": tts.errors,
    }


async def failure(tts, pieces, **options):
    """How a reply fails: the class, whether it may be tried again, the status."""
    try:
        await hear(tts, pieces, **options)
    except APIError as error:
        return [
            type(error).__name__,
            error.retryable,
            getattr(error, "status_code", None),
            str(error),
        ]
    return None


async def interrupted():
    tts = make(CPU_URL)
    before = await hear(tts, tokens(LONG), stop_after=48_000)
    after = await hear(tts, tokens(TEXT))
    await tts.aclose()
    (OUT / "after.pcm").write_bytes(after.audio)
    return {
        "before_s": len(before.audio) / 48_000,
        "after_text": after.text,
        "errors": tts.errors,
        "left": [tts._pool.n_connections, n_tasks()],
    }


async def interrupted_often():
    tts = make()
    inside = []
    for n in range(100):
        stream = tts.stream()
        for piece in tokens(TEXT):
            stream.push_text(piece)
        if n % 3 == 0:
            stream.end_input()
        await asyncio.sleep(0.002 * (n % 10))
        await stream.aclose()
        del stream
        inside.append((tts._pool.n_connections, len(tts._streams), n_tasks()))
    await asyncio.sleep(0.2)
    contexts = sum(client.n_contexts for client in tts._pool._clients)
    heard = await hear(tts, [TEXT])
    await tts.aclose()
    return {
        "is_exact": heard.audio == await alone(TEXT),
        "inside": [max(each) for each in zip(*inside, strict=True)],
        "contexts": contexts,
        "errors": tts.errors,
        "left": [tts._pool.n_connections, n_tasks()],
    }


async def resumed():
    """The network breaks in the middle of a reply."""
    async with broken() as proxy:
        tts = make(proxy.url)

        async def cut():
            proxy.break_all()

        first, second = map(tokens, HALVES)
        heard = await hear(tts, [*first, pause(0.2), cut, pause(0.1), *second])
        await tts.aclose()
        return {
            "is_exact": heard.audio == await alone("".join(HALVES)),
            "text": heard.text,
            "errors": tts.errors,
            "connections": proxy.n_connections,
        }


async def restarted():
    """The server is another one in the middle of a reply, and knows nothing of it."""
    async with broken() as proxy:
        tts = make(proxy.url)

        async def restart():
            proxy.to_port = port_of(CPU_URL)
            proxy.break_all()

        pieces = ["One two. Three four. Never", pause(0.3), restart, pause(0.3), " ever spoken."]
        error = await failure(tts, pieces)
        heard = await hear(tts, tokens(TEXT))
        told = list(tts.errors)
        await tts.aclose()
        return {"error": error, "told": told, "text": heard.text}


async def nobody_there():
    tts, wrong = make("ws://127.0.0.1:9/v1/tts"), make(key="wrong")
    none = await failure(tts, ["One."], conn_options=ONCE)
    refused = await failure(wrong, ["One."])
    await asyncio.gather(tts.aclose(), wrong.aclose())
    return {"none": none, "refused": refused, "told": wrong.errors}


async def tried_again():
    """Before any audio LiveKit says the reply again by itself."""
    async with broken("ws://127.0.0.1:9/v1/tts") as proxy:
        tts = make(proxy.url)
        back = asyncio.get_running_loop().call_later(
            0.3, setattr, proxy, "to_port", port_of(TONE_URL)
        )
        options = APIConnectOptions(max_retry=3, retry_interval=0.5, timeout=2.0)
        heard = await hear(tts, ["One."], conn_options=options)
        back.cancel()
        await tts.aclose()
        return {"is_exact": heard.audio == await alone("One."), "told": tts.errors}


async def main():
    for scenario in (
        a_turn, spoken_before_the_end, several_ways_to_speak, settings, interrupted,
        interrupted_often, resumed, restarted, nobody_there, tried_again,
    ):  # fmt: skip
        began = time.monotonic()
        said[scenario.__name__] = await settled(scenario)
        said[scenario.__name__]["took_s"] = round(time.monotonic() - began, 2)


asyncio.run(main())
print(json.dumps(said))
