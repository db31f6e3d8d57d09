"""Our Pipecat service in Pipecat's own test harness and in pipelines: pipecat_plugin.py SITE TONE_URL."""

import asyncio
import json
import time

from loguru import logger
from plugin_world import CPU_URL, HALVES, KEY, LONG, MIXED, ODD, OUT, TEXT, TONE_URL, alone, broken

from plugin_world import port_of, settled, tokens  # isort: skip

logger.remove()

from pipecat.frames.frames import (  # noqa: E402
    CancelWorkerFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData, TTSUsageMetricsData  # noqa: E402
from pipecat.observers.base_observer import BaseObserver  # noqa: E402
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402
from pipecat_rtts import RttsTTSService  # noqa: E402

Settings = RttsTTSService.Settings
said = {}


class Watch(BaseObserver):
    """When the service handed on what, and when it was interrupted."""

    def __init__(self):
        super().__init__()
        self.seen = []

    async def on_push_frame(self, data):
        if data.first_push or isinstance(data.frame, InterruptionFrame):
            self.seen.append((time.monotonic(), data.frame))

    def times(self, kind):
        return [at for at, frame in self.seen if isinstance(frame, kind)]


class Heard:
    """What came out of a pipeline."""

    def __init__(self, down, up, watch):
        self.down, self.watch = down, watch
        self.audio = b"".join(f.audio for f in self.of(TTSAudioRawFrame))
        self.rates = {f.sample_rate for f in self.of(TTSAudioRawFrame)}
        self.words = [f.raw_text or f.text for f in self.of(TTSTextFrame)]
        self.pts = [f.pts for f in self.of(TTSTextFrame)]
        self.errors = [(f.error, f.category.value) for f in up if isinstance(f, ErrorFrame)]

    def of(self, kind):
        return [frame for frame in self.down if isinstance(frame, kind)]

    def metrics(self, kind):
        data = [each for frame in self.of(MetricsFrame) for each in frame.data]
        return [each.value for each in data if isinstance(each, kind) and each.value]


def make(url=TONE_URL, **options):
    return RttsTTSService(url=url, api_key=KEY, **options)


def turn(text, pause_s=0.0, ends=True):
    frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens(text))]
    frames += [LLMFullResponseEndFrame()] if ends else []
    return [*frames, *([SleepFrame(sleep=pause_s)] if pause_s else [])]


async def run(service, frames, rate_hz=24_000, **options):
    watch = Watch()
    params = PipelineParams(
        audio_out_sample_rate=rate_hz, enable_metrics=True, enable_usage_metrics=True
    )
    down, up = await run_test(
        service, frames_to_send=frames, pipeline_params=params, observers=[watch], **options
    )
    return Heard(down, up, watch)


def leftovers(service):
    """What is still there once a pipeline ended: replies, connections, tasks."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [len(service._replies), service._pool.n_connections, len(others)]


async def a_turn():
    service = make()
    heard = await run(service, turn(TEXT))
    mixed = await run(make(), turn(MIXED))
    kinds = [type(f) for f in heard.down]
    return {
        "is_exact": heard.audio == await alone(TEXT),
        "words": " ".join(heard.words),
        "mixed": mixed.words,
        "is_in_order": heard.pts == sorted(heard.pts) and heard.pts[0] >= 0,
        "last_word_s": (heard.pts[-1] - heard.pts[0]) / 1e9,
        "errors": heard.errors,
        "usage": heard.metrics(TTSUsageMetricsData),
        "ttfb_s": heard.metrics(TTFBMetricsData)[0],
        "order": kinds.index(TTSStartedFrame)
        < kinds.index(TTSAudioRawFrame)
        < kinds.index(TTSStoppedFrame)
        < kinds.index(LLMFullResponseEndFrame),
        "left": leftovers(service),
    }


async def spoken_before_the_end():
    """The first sentence is heard while the model says nothing more."""
    frames = [*turn("The shop opens at nine. ", ends=False), SleepFrame(sleep=0.6)]
    heard = await run(make(), [*frames, *turn("Good.")[1:]])
    first_s = heard.watch.times(TTSAudioRawFrame)[0] - heard.watch.times(LLMTextFrame)[0]
    return {"first_s": first_s, "words": " ".join(heard.words)}


async def at_another_rate():
    heard = await run(make(), turn(TEXT), rate_hz=16_000)
    return {
        "rates": list(heard.rates),
        "is_exact": heard.audio == await alone(TEXT, rate_hz=16_000),
    }


async def several_ways_to_speak():
    """A sentence of its own within a turn, one after it, and an end without an end of the turn."""
    speaks = [TTSSpeakFrame("One moment."), *turn("And so. "), TTSSpeakFrame("Good bye.")]
    heard = await run(make(), speaks)
    parts = [await alone(text) for text in ("One moment.", "And so. ", "Good bye.")]
    open_turn = await run(make(), turn("Not ended", ends=False))
    odd = await run(make(), [frame for text in ODD * 2 for frame in turn(text)])
    sentences = make(text_aggregation_mode="sentence")
    return {
        "is_exact": heard.audio == b"".join(parts),
        "words": " ".join(heard.words),
        "open": open_turn.audio == await alone("Not ended"),
        "odd": odd.errors,
        "sentences": " ".join((await run(sentences, turn("One. Two. Three.", 0.3))).words),
    }


async def in_two_pipelines():
    """A service is used again after its pipeline ended; one whose pipeline is cancelled leaves at once."""
    service, told = make(), []
    for name in ("on_connected", "on_disconnected"):
        service.add_event_handler(name, lambda service, name=name: told.append(name))
    first = await run(service, turn(TEXT))
    again = await run(service, turn(TEXT))
    cancelled = make()
    frames = [*turn(LONG), SleepFrame(sleep=0.1), CancelWorkerFrame()]
    began = time.monotonic()
    await run(cancelled, frames, send_end_frame=False)
    return {
        "is_exact": first.audio == again.audio == await alone(TEXT),
        "left": leftovers(cancelled),
        "told": told,
        "cancel_s": time.monotonic() - began,
    }


async def settings():
    """Voice and speed from the next turn on; a wrong voice is an error that a right one mends."""
    first = Settings(voice="tone-low", speed=0.5, language="en-GB")
    service = make(settings=first)
    frames = [
        *turn("One."),
        SleepFrame(sleep=0.3),
        TTSUpdateSettingsFrame(delta=Settings(voice="nobody")),
        *turn("Two."),
        SleepFrame(sleep=0.3),
        *turn("Three."),
        SleepFrame(sleep=0.2),
        TTSUpdateSettingsFrame(delta=Settings(voice="tone", speed=None)),
        *turn("Four."),
    ]
    heard = await run(service, frames)
    expected = await alone("One.", voice="tone-low", speed=0.5, language="en-GB")
    expected += await alone("Four.", voice="tone", language="en-GB")
    return {"is_exact": heard.audio == expected, "words": heard.words, "errors": heard.errors}


async def interrupted():
    """Somebody speaks while audio comes; then another turn."""
    service = make(CPU_URL)
    frames = [*turn(LONG, 1.0), InterruptionFrame(), SleepFrame(sleep=0.6), *turn(TEXT)]
    heard = await run(service, frames)
    stopped_at = heard.watch.times(InterruptionFrame)[0]
    next_at = [at for at in heard.watch.times(LLMFullResponseStartFrame) if at > stopped_at][0]
    late = [at for at in heard.watch.times(TTSAudioRawFrame) if stopped_at < at < next_at]
    where = [i for i, f in enumerate(heard.down) if isinstance(f, InterruptionFrame)][0]
    before = Heard(heard.down[:where], [], None)
    after = Heard(heard.down[where:], [], None)
    (OUT / "after.pcm").write_bytes(after.audio)
    return {
        "late": len(late),
        "before_s": len(before.audio) / 48_000,
        "before_words": " ".join(before.words),
        "after_words": " ".join(after.words),
        "errors": heard.errors,
        "left": leftovers(service),
    }


async def interrupted_often():
    """A hundred times, at every stage of a turn."""
    service = make()
    inside = []
    frames = []
    for n in range(100):
        frames += [*turn(TEXT, 0.002 * (n % 10), ends=n % 3 == 0), InterruptionFrame()]
    frames += [SleepFrame(sleep=0.3)]

    class Look(Watch):
        async def on_push_frame(self, data):
            if isinstance(data.frame, LLMFullResponseStartFrame) and service._pool._clients:
                client = service._pool._clients[0]
                inside.append((len(service._replies), client.n_contexts, len(asyncio.all_tasks())))

    down, up = await run_test(service, frames_to_send=[*frames, *turn(TEXT)], observers=[Look()],
                              pipeline_params=PipelineParams(audio_out_sample_rate=24_000))  # fmt: skip
    errors = [str(f) for f in up if isinstance(f, ErrorFrame)]
    last = max(i for i, f in enumerate(down) if isinstance(f, InterruptionFrame))
    heard = Heard(down[last:], [], None)
    return {
        "errors": errors,
        "is_exact": heard.audio == await alone(TEXT),
        "inside": [max(each) for each in zip(*inside, strict=True)],
        "left": leftovers(service),
    }


async def resumed():
    """The network breaks in the middle of a turn."""
    async with broken() as proxy:
        first, second = turn(HALVES[0], 0.2, ends=False), turn(HALVES[1])[1:]
        frames = [*first, Breaks(proxy), SleepFrame(sleep=0.1), *second]
        heard = await run(make(proxy.url), run_breaks(frames))
        return {
            "is_exact": heard.audio == await alone("".join(HALVES)),
            "words": " ".join(heard.words),
            "errors": heard.errors,
            "connections": proxy.n_connections,
        }


class Breaks:
    """The network breaks here; with a URL what is behind it afterwards is another server."""

    def __init__(self, proxy, url=None):
        self.proxy, self.url = proxy, url

    def __call__(self):
        if self.url is not None:
            self.proxy.to_port = port_of(self.url)
        self.proxy.break_all()


class run_breaks:  # noqa: N801
    """Frames for `run_test`, and what happens between them when it gets there."""

    def __init__(self, frames):
        self.frames = frames

    def __iter__(self):
        for frame in self.frames:
            if isinstance(frame, Breaks):
                frame()
            else:
                yield frame


async def restarted():
    """The server is another one in the middle of a turn, and knows nothing of it."""
    async with broken() as proxy:
        service = make(proxy.url)
        frames = [
            *turn("One two. Three four. Never", 0.3, ends=False),
            Breaks(proxy, CPU_URL),
            SleepFrame(sleep=0.3),
            *turn(" ever spoken.")[1:],
            SleepFrame(sleep=0.2),
            *turn(TEXT),
        ]
        heard = await run(service, run_breaks(frames))
        return {"words": " ".join(heard.words), "errors": heard.errors, "usable": service.is_usable,
                "left": leftovers(service)}  # fmt: skip


async def nobody_there():
    """Nobody listens, or the key is wrong: an error at once, of the right kind; the turn still ends."""
    none = await run(make("ws://127.0.0.1:9/v1/tts"), turn("One."))
    wrong = RttsTTSService(url=TONE_URL, api_key="wrong")
    refused = await run(wrong, turn("One."))
    return {
        "none": sorted({category for _, category in none.errors}),
        "refused": sorted({category for _, category in refused.errors}),
        "usable": wrong.is_usable,
        "ends": [len(each.of(LLMFullResponseEndFrame)) for each in (none, refused)],
        "words": none.words + refused.words,
    }


async def main():
    for scenario in (
        a_turn, spoken_before_the_end, at_another_rate, several_ways_to_speak, in_two_pipelines, settings,
        interrupted, interrupted_often, resumed, restarted, nobody_there,
    ):  # fmt: skip
        began = time.monotonic()
        said[scenario.__name__] = await settled(scenario)
        said[scenario.__name__]["took_s"] = round(time.monotonic() - began, 2)


asyncio.run(main())
print(json.dumps(said))
