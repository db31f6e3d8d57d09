"""Browsers that can less, pages that may not play, and the page at /try."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from rtts.engine.cpu.factory import make_cpu_engine
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.local import LocalEngine
from rtts.server import ServerOptions, running_server
from tests.clients.js.browser import Browser, Page, place_of, trimmed
from tests.clients.js.serving import port_of, reference, serving
from tests.clients.js.test_player import TEXT, page_of

SHORT = "Hello there, this is short."


@contextlib.asynccontextmanager
async def try_page(browser: Browser, url: str) -> AsyncIterator[Page]:
    page = await browser.open(f"{url}/try")
    try:
        yield page
    finally:
        await page.close()


async def shown(page: Page, selector: str, within_s: float = 8.0) -> str:
    """The text of an element, once there is some."""
    async with asyncio.timeout(within_s):
        while True:
            text = str(await page.do("text", selector=selector)).strip()
            if text not in ("", "–"):
                return text
            await asyncio.sleep(0.02)


# --- the page at /try --------------------------------------------------------------------------------


async def test_try_speaks_and_says_how_fast(browser: Browser) -> None:
    """A person types, hears, and reads first packet and first sound; nothing is fetched elsewhere."""
    async with serving() as server, try_page(browser, server.url) as page:
        await page.do("fill", selector="#text", text=SHORT)
        await page.do("click", selector="#speak")
        packet, sound = await shown(page, "#packet"), await shown(page, "#sound")
        assert packet.endswith(" ms") and sound.endswith(" ms")
        assert 0 <= int(packet[:-3]) < int(sound[:-3]) < 1000
        assert (await shown(page, "#heard")).startswith("Hello")
        await asyncio.sleep(1.0)
        assert (await shown(page, "#heard")).endswith("short.")
        assert await page.do("log") == []  # the policy of the page refused nothing


async def test_try_is_interrupted(browser: Browser) -> None:
    """One click, and it is silent; the next text is spoken."""
    async with serving() as server, try_page(browser, server.url) as page:
        await page.do("fill", selector="#text", text=TEXT * 6)
        await page.do("click", selector="#speak")
        await shown(page, "#sound")
        await page.do("click", selector="#stop")
        assert await shown(page, "#note") == "Interrupted."
        await page.do("fill", selector="#text", text=SHORT)
        await page.do("click", selector="#speak")
        assert (await shown(page, "#sound")).endswith(" ms")


async def test_try_with_a_key(browser: Browser) -> None:
    """The page needs no key, speaking does: without one it says so, with it it speaks."""
    options = ServerOptions(port=0, api_keys=("secret",), auth_timeout_s=0.3)
    async with serving(options) as server, try_page(browser, server.url) as page:
        await page.do("click", selector="#speak")
        assert (await shown(page, "#note")).startswith("auth_timeout")  # no key came in time
        await page.do("fill", selector="#key", text="wrong")
        await page.do("click", selector="#speak")
        await asyncio.sleep(0.3)
        assert (await shown(page, "#note")).startswith("unauthorized")
        await page.do("fill", selector="#key", text="secret")
        await page.do("click", selector="#speak")
        assert (await shown(page, "#sound")).endswith(" ms")


# --- browsers that can less ----------------------------------------------------------------------------

NO_WEBCODECS = "delete globalThis.AudioDecoder;"
NO_WASM = NO_WEBCODECS + "delete globalThis.WebAssembly;"


@pytest.mark.parametrize(("init", "decoder"), [(NO_WEBCODECS, "wasm"), (NO_WASM, "pcm")])
async def test_the_next_best_decoder_is_taken(browser: Browser, init: str, decoder: str) -> None:
    """Without WebCodecs, and without WebAssembly: it is heard, and what is missing is said."""
    async with serving() as server, page_of(browser, server.url, init) as page:
        setup = await page.call("setUp")
        assert setup["decoder"] == decoder
        assert len(setup["degraded"]) == ("wasm", "pcm").index(decoder) + 1
        assert all("decoder" in reason for reason in setup["degraded"])
        heard = await page.hear(SHORT)
        expected = await reference(server, SHORT, 48_000)
        assert heard.report["samples"] == expected.size
        assert place_of(expected, heard.samples)[1] > 0.995
        # As often as a page likes: what a player could not use it gives back.
        for _ in range(10):
            with pytest.raises(RuntimeError, match="unsupported_decoder"):
                await page.run("rtts.Player.create({ decoder: 'webcodecs' })")
        with pytest.raises(RuntimeError, match="worklet_failed.*workletUrl"):
            await page.run("rtts.Player.create({ workletUrl: '/js/none.js' })")


@pytest.fixture(scope="module")
def plain_browser(chromium: str) -> Iterator[Browser]:
    """A browser as people have it: no sound before a gesture. rtts.test is a name of this machine."""
    made = Browser(chromium, "--host-resolver-rules=MAP rtts.test 127.0.0.1")
    yield made
    made.close()


async def test_an_insecure_page_is_heard_all_the_same(plain_browser: Browser) -> None:
    """http from another name: no WebCodecs and no AudioWorklet; what works instead works, and is said."""
    options = ServerOptions(port=0, api_keys=("secret",))
    async with serving(options) as server:
        url = f"http://rtts.test:{port_of(server)}"
        async with try_page(plain_browser, url) as page:
            await page.do("harness")
            assert await page.run("isSecureContext") is False
            await page.do("click", selector="h1")
            setup = await page.call("setUp", {}, {"apiKey": "secret"})
            assert setup["decoder"] == "wasm" and setup["state"] == "running"
            assert len(setup["degraded"]) == 2
            assert all("secure context" in reason for reason in setup["degraded"])
            heard = await page.hear(SHORT)
            async with serving() as open_server:
                expected = await reference(open_server, SHORT, 48_000)
            assert heard.report["samples"] == expected.size
            # Made and tapped on the main thread, which may miss a block on a busy machine.
            assert place_of(expected, heard.samples)[1] > 0.8
            await page.call("begin", TEXT * 6)
            await page.call("heard", 300)
            cut = await page.call("interrupt")
            assert cut["cancel"]["done"]["reason"] == "cancelled"


AUTOPLAY = """
import("/js/index.js").then(async (rtts) => {
  window.blocked = [];
  window.player = await rtts.Player.create({ onBlocked: ({ code }) => blocked.push(code) });
  window.client = await rtts.connect("/v1/tts");
  const context = client.context({ format: player.format });
  context.append("Hello there, this is short.");
  context.end();
  window.playback = player.play(context);
  window.begunAt = performance.now();
});
"""


async def test_a_page_that_may_not_play_yet_says_so(plain_browser: Browser) -> None:
    """Nobody has touched the page: it says what to do, waits, and plays all of it after a click."""
    init = f"addEventListener('load', () => {{ {AUTOPLAY} }});"
    async with serving() as server:
        page = await plain_browser.open(f"{server.url}/try", init)
        await asyncio.sleep(1.5)
        logged = "\n".join(await page.do("log"))
        assert "touched the page" in logged
        assert await page.run("[...blocked, player.isBlocked, playback.playedMs]") == [
            "autoplay_blocked",
            True,
            0,
        ]
        await page.do("click", selector="h1")
        report = await page.run("playback.finished")
        expected = await reference(server, SHORT, 48_000)
        assert report["samples"] == expected.size and report["underruns"] == 0
        assert await page.run("player.isBlocked") is False
        await page.close()


# --- a voice -------------------------------------------------------------------------------------------


async def test_a_voice_is_heard(browser: Browser) -> None:
    """Speech of the embedded voice reaches the destination whole."""
    host = LocalEngine(make_cpu_engine(CpuOptions(), time.monotonic))
    async with running_server(ServerOptions(port=0), host) as server:
        async with page_of(browser, server.url) as page:
            await page.call("setUp")
            for _ in range(4):  # a busy machine may let the player run dry, which it reports
                heard = await page.hear("It is good to hear you.", seed=1)
                if not heard.report["underruns"]:
                    break
        expected = await reference(server, "It is good to hear you.", 48_000, seed=1)
    assert heard.report["samples"] == expected.size
    at, likeness = place_of(expected, heard.samples)
    assert likeness > 0.95
    loud = trimmed(heard.samples, 0.01)
    assert loud.size > 48_000 * 0.8 and float(np.abs(loud).max()) > 0.1
