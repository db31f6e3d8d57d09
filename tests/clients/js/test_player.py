"""What is heard in a real Chromium, sample for sample, from a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest

from tests.clients.js.browser import Browser, Heard, Page, index_of, place_of, trimmed
from tests.clients.js.faulty import faulty_proxy
from tests.clients.js.serving import port_of, reference, serving

TEXT = "Hello there, this is a test of tones. And this is the second sentence."


@contextlib.asynccontextmanager
async def page_of(browser: Browser, url: str, init: str = "") -> AsyncIterator[Page]:
    # A page of the server's own without a policy; browsers let others reach no loopback address.
    page = await browser.open(f"{url}/healthz", init)
    await page.do("harness")
    try:
        yield page
    finally:
        await page.close()


# --- what was made is what is heard ----------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [24_000, 48_000])
async def test_pcm_is_heard_bit_for_bit(browser: Browser, rate_hz: int) -> None:
    """Every sample the server made reaches the destination, in order, and no other."""
    async with serving() as server, page_of(browser, server.url) as page:
        setup = await page.call("setUp", {"decoder": "pcm", "sampleRate": rate_hz})
        assert setup == {"decoder": "pcm", "degraded": [], "state": "running"}
        heard = await page.hear(TEXT)
        expected = await reference(server, TEXT, rate_hz)
        assert heard.report["samples"] == heard.done["samples"] == expected.size
        assert np.array_equal(trimmed(heard.samples), trimmed(expected))


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_opus_is_trimmed_to_the_sample(browser: Browser, decoder: str) -> None:
    """Opus is heard as it was before coding, in its place to the sample, with silence around."""
    async with serving() as server, page_of(browser, server.url) as page:
        assert (await page.call("setUp", {"decoder": decoder}))["decoder"] == decoder
        heard = await page.hear(TEXT)
        expected = await reference(server, TEXT, 48_000)
        assert heard.report["samples"] == 2 * heard.done["samples"] == expected.size
        samples = heard.samples
        at, likeness = place_of(expected, samples)
        assert likeness > 0.995
        # The decoder's warm-up would be heard before, the encoder's padding after: neither is silent.
        (loud,) = np.nonzero(samples)
        assert loud[-1] - loud[0] + 1 == expected.size
        assert abs(int(loud[0]) - at) <= 6  # an eighth of a millisecond is the codec's own


async def test_first_sound_and_figures_reach_the_server(browser: Browser) -> None:
    """First sound is when the destination's first audible sample leaves; the server is told."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp")
        heard = await page.hear(TEXT)
        report = heard.report
        assert 0 < report["firstPacketMs"] < report["firstSoundMs"] < 500
        # The tap agrees on which frame that was, and how late frames are heard is no secret.
        (loud,) = np.nonzero(np.abs(heard.samples) > 0.001)
        assert heard.sound is not None
        assert index_of(heard.statuses[-1]["soundFrame"], heard.sound) == loud[0]
        assert report["firstSoundMs"] - report["firstPacketMs"] > report["outputLatencyMs"] / 2 > 0
        async with httpx.AsyncClient() as http:
            metrics = (await http.get(f"{server.url}/metrics")).text
        assert "rtts_client_first_sound_seconds_count 1.0" in metrics
        assert "rtts_client_first_packet_seconds_count 1.0" in metrics


async def test_words_are_told_when_they_are_heard(browser: Browser) -> None:
    """Each word once, in order, when its sound is at the loudspeaker and not when it arrives."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp")
        heard = await page.hear(TEXT)
        assert [word["word"] for word in heard.words] == TEXT.split()
        for word in heard.words:
            assert 0 <= word["playedMs"] - word["startMs"] < 120
            start, end = word["chars"]
            assert TEXT[start:end] == word["word"]


async def test_replies_are_heard_one_after_another(browser: Browser) -> None:
    """A reply given to a busy player waits; nothing of either is lost or mixed."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp", {"decoder": "pcm"})
        texts = ["First one.", "And the second one."]
        heard = Heard(**await page.call("hearAll", texts))
        first, second = [trimmed(await reference(server, text, 48_000)) for text in texts]
        samples = trimmed(heard.samples)
        assert np.array_equal(samples[: first.size], first)
        assert np.array_equal(samples[-second.size :], second)
        between = samples[first.size : -second.size]
        assert 0 < between.size < 48_000 and not between.any()


async def test_a_paused_listener_holds_the_server(browser: Browser) -> None:
    """Positions are reported: nothing is sent further ahead of a pause than the lead; nothing is lost."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp", {"decoder": "pcm"})
        text = TEXT * 3
        await page.call("begin", text, {"max_lead_ms": 1000})
        await page.call("heard", 400)
        await page.run("player.audioContext.suspend()")
        await asyncio.sleep(1.5)
        arrived = (
            "now.events.filter((e) => e.type === 'audio').reduce((n, e) => n + e.duration_ms, 0)"
        )
        ahead = await page.run(f"{arrived} - now.playback.playedMs")
        assert 500 < ahead < 1300
        await page.run("player.audioContext.resume()")
        heard = Heard(**await page.call("outcome"), sound=await page.run("sleep(100), tap.read()"))
        expected = await reference(server, text, 48_000)
        assert heard.report["underruns"] == 0
        assert np.array_equal(trimmed(heard.samples), trimmed(expected))


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_a_broken_packet_is_a_typed_error(browser: Browser, decoder: str) -> None:
    """What cannot be decoded ends the reply with a PlayerError, and the next one is heard."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp", {"decoder": decoder})
        await page.call("begin", TEXT)
        await page.call("heard", 200)
        await page.run("now.playback._decode({ packets: [Uint8Array.of(255)], flags: 0 })")
        failed = Heard(**await page.call("outcome"))
        assert failed.error is not None
        assert (failed.error["name"], failed.error["code"]) == ("PlayerError", "decoder_failed")
        assert (await page.hear("Here again.")).done["reason"] == "completed"


async def test_handlers_that_throw_stop_no_sound(browser: Browser) -> None:
    """A page's mistake is the page's to see: this reply is heard to its end, and so is the next."""
    async with serving() as server, page_of(browser, server.url) as page:
        found = await page.run(
            """(async () => {
                const { connect, Player } = window.rtts;
                const thrown = [];
                window.onerror = (message) => thrown.push(message);
                const [player, client] = [await Player.create({ decoder: "pcm" }), await connect("/v1/tts")];
                const names = ["onEvent", "onWord", "onFirstSound"];
                const handlers = Object.fromEntries(names.map((name) => [name, () => { throw name; }]));
                const say = (text, more) =>
                    player.play(client.context({ format: player.format }).speak(text), more).finished;
                const reports = [await say("Hello there.", handlers), await say("Once more.")];
                client.close();
                await player.close();
                await player.close(); // a second time is no error
                const seen = names.filter((name) => thrown.some((message) => message.includes(name)));
                return [reports.map(({ done }) => done.reason), seen.length];
            })()"""
        )
        assert found == [["completed", "completed"], 3]


async def test_an_audio_context_that_somebody_closes_ends_what_plays(browser: Browser) -> None:
    """A page that closes the context it gave gets a typed error, and waits for nothing."""
    async with serving() as server, page_of(browser, server.url) as page:
        found = await page.run(
            """(async () => {
                const { connect, Player } = window.rtts;
                const audioContext = new AudioContext({ sampleRate: 48000 });
                const player = await Player.create({ audioContext });
                const client = await connect("/v1/tts");
                const context = client.context({ format: player.format });
                const playback = player.play(context.speak("This is long enough. ".repeat(9)));
                await new Promise((resolve) => setTimeout(resolve, 400));
                await audioContext.close();
                const name = await Promise.race([
                    playback.finished.then(() => "heard", (error) => error.code),
                    new Promise((resolve) => setTimeout(resolve, 5000, "waits")),
                ]);
                const unknown = await Player.create({ decoder: "mp3" }).catch((error) => error.code);
                client.close();
                return [name, unknown];
            })()"""
        )
        assert found == ["closed", "unsupported_decoder"]


async def test_a_format_it_cannot_play_is_a_typed_error(browser: Browser) -> None:
    """A context that was not started with the player's format: it says which to use."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp")
        heard = await page.hear(TEXT, format={"codec": "opus", "container": "ogg"})
        assert heard.error is not None and heard.error["code"] == "unsupported_format"
        assert "player.format" in heard.error["message"]


# --- barge-in ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm", "pcm"])
async def test_cancel_is_silent_within_a_quantum(browser: Browser, decoder: str) -> None:
    """The block after the order fades out, then there is silence; the next reply is whole."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp", {"decoder": decoder})
        await page.call("begin", TEXT * 6)
        await page.call("heard", 600)
        cut = Heard(**await page.call("interrupt"))
        stop = next(status for status in cut.statuses if status["phase"] == "stopping")
        assert cut.sound is not None
        samples = cut.samples
        at = index_of(stop["frame"], cut.sound)
        assert np.abs(samples[at - 480 : at]).max() > 0.1  # it was loud
        assert not samples[at + 128 :].any() and samples.size > at + 4_800
        assert np.abs(np.diff(samples[at - 128 : at + 256])).max() < 0.1  # and does not click
        done = cut.cancel["done"]
        assert done["reason"] == "cancelled"
        assert done["spoken"] + done["remaining"] == TEXT * 6
        assert done["played_ms"] == pytest.approx(cut.cancel["playedMs"], abs=30)
        assert 600 <= done["played_ms"] <= 1000 * np.count_nonzero(samples) / 48_000 + 50
        assert cut.cancel["tookMs"] < 250
        again = await page.hear("Here again.")
        expected = await reference(server, "Here again.", 48_000)
        assert again.report["samples"] == expected.size


@pytest.mark.parametrize("decoder", ["webcodecs", "wasm"])
async def test_cancel_at_any_time(browser: Browser, decoder: str) -> None:
    """Before anything came, while packets are decoded, at the very end: always one end and no error."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp", {"decoder": decoder})
        ends = await page.run(
            """(async () => {
              const ends = [];
              for (let i = 0; i < 40; i++) {
                begin("Yes, that is all.");
                if (i % 2) await sleep(i * 2);
                else for (let k = 0; k < i; k++) await null;
                const done = await now.playback.cancel();
                const { value, error } = await outcome();
                ends.push(error?.message ?? (value.done.reason === done.reason ? "same" : "other"));
              }
              return ends;
            })()"""
        )
        assert ends == ["same"] * 40
        assert not [line for line in await page.do("log") if line.startswith("pageerror")]


async def test_barge_in_after_the_last_byte(browser: Browser) -> None:
    """The server is done long before the listener; what was heard is known all the same."""
    async with serving() as server, page_of(browser, server.url) as page:
        await page.call("setUp")
        await page.call("begin", TEXT)
        await page.call("heard", 700)
        assert "done" in await page.run("now.events.map((event) => event.type)")
        cut = Heard(**await page.call("interrupt"))
        done = cut.cancel["done"]
        assert done["reason"] == "completed"
        assert done["spoken"] + done["remaining"] == TEXT
        last = [
            word for word in cut.words if (word["startMs"] + word["endMs"]) / 2 <= done["played_ms"]
        ][-1]
        assert done["spoken"].endswith(last["word"]) and done["remaining"]
        assert cut.report["samples"] < 2 * done["samples"]


# --- the network -------------------------------------------------------------------------------------


async def test_a_broken_connection_is_not_heard(browser: Browser) -> None:
    """The socket is reset twice in the middle; the reply is whole and without a gap."""
    async with (
        serving() as server,
        faulty_proxy(port_of(server)) as proxy,
        page_of(browser, proxy.url) as page,
    ):
        await page.call("setUp", {"decoder": "pcm"})
        text = TEXT * 3  # more than the server sends ahead
        heard = asyncio.create_task(page.hear(text, max_lead_ms=1500))
        for _ in range(2):
            await asyncio.sleep(0.8)
            proxy.break_all()
        result = await heard
        kinds = [event["type"] for event in result.events]
        assert kinds.count("reconnected") == 2 and kinds.count("done") == 1
        expected = await reference(server, text, 48_000)
        assert np.array_equal(trimmed(result.samples), trimmed(expected))
        assert result.report["underruns"] == 0


async def test_a_restarted_server_fails_the_reply_and_speaks_the_next(browser: Browser) -> None:
    """Sessions do not outlive a server: a typed error after what had arrived; then all is well."""
    async with contextlib.AsyncExitStack() as first, serving() as second:
        server = await first.enter_async_context(serving())
        proxy = await first.enter_async_context(faulty_proxy(port_of(server)))
        async with page_of(browser, proxy.url) as page:
            await page.call("setUp", {"decoder": "pcm"})
            heard = asyncio.create_task(page.hear(TEXT * 4, max_lead_ms=1000))
            await asyncio.sleep(0.8)
            proxy.to_port = port_of(second)
            proxy.break_all()
            lost = await heard
            assert lost.error is not None and lost.error["name"] == "ContextFailedError"
            assert lost.error["code"] == "resume_failed"
            expected = await reference(second, TEXT * 4, 48_000)
            part = trimmed(lost.samples)
            assert part.size > 48_000 * 0.8
            assert np.array_equal(part, trimmed(expected)[: part.size])
            again = await page.hear("Here again.")
            assert again.done["reason"] == "completed"


async def test_jitter_and_stalls_within_the_buffer_are_not_heard(browser: Browser) -> None:
    """200 ms of jitter, and 1 piece in 70 a second late: nothing is heard of it."""
    text = TEXT * 3

    async def one(seed: int) -> None:
        async with (
            faulty_proxy(port_of(server), seed=seed, jitter_s=0.2) as proxy,
            page_of(browser, proxy.url) as page,
        ):
            await page.call("setUp", {"decoder": "pcm", "startMs": 200})
            proxy.stall({40 + seed: 1.0})  # two seconds are ahead by then
            heard = await page.hear(text)
            assert heard.report["underruns"] == 0 and proxy.n_stalls == 1
            assert np.array_equal(trimmed(heard.samples), trimmed(expected))

    async with serving(real_time_factor=0.1) as server:
        expected = await reference(server, text, 48_000)
        await asyncio.gather(*(one(seed) for seed in (1, 2, 3)))


async def test_the_buffer_grows_where_it_was_too_small(browser: Browser) -> None:
    """Each time it ran dry is heard, counted and learnt from; then it is not heard any more."""
    text = "Hello there, this is a test."
    async with serving(real_time_factor=0.3) as server, faulty_proxy(port_of(server)) as proxy:
        expected = trimmed(await reference(server, text, 48_000))
        async with page_of(browser, proxy.url) as page:
            await page.call("setUp", {"decoder": "pcm", "startMs": 100})
            underruns = []
            for _ in range(4):
                proxy.stall({2: 0.3})  # after 160 ms of sound
                heard = await page.hear(text)
                dry = trimmed(heard.samples).size - expected.size
                assert dry == round(48 * heard.report["stalledMs"])  # to the sample
                underruns.append(heard.report["underruns"])
        assert underruns[0] == 1 and underruns[-1] == 0
        assert heard.statuses[-1]["threshold"] > 48 * 160
