"""The dashboard in a real Chromium, reading a real server that speaks.

`SCREENSHOTS=1 pytest tests/clients/dashboard` writes the pictures of docs/images anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright, expect

from rtts import advice
from rtts.engine.tone import ToneOptions
from rtts.metrics import RollingLatency
from rtts.server import history
from rtts.session import SessionOptions
from tests.deploy.tools import need
from tests.server.rig import InlineEngine, Talk, ready, talking
from tests.server.test_gpu import FakeNvml

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one browser for all

IMAGES = Path(__file__).parents[3] / "docs" / "images"
TEXT = "Hello there, how are you? "


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch):
    """The browser, the server and other tests share cores: the loop is late, and that is no news."""
    monkeypatch.setattr(advice, "SLOW_LOOP_S", 60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(
            executable_path=need("chromium", "chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )


@contextlib.asynccontextmanager
async def browsing(
    browser: Browser, *, width: int = 1280, height: int = 900
) -> AsyncIterator[Page]:
    """A page of its own; it may complain about nothing and load nothing from elsewhere."""
    complaints: list[str] = []
    hosts: set[str] = set()
    context = await browser.new_context(viewport={"width": width, "height": height})
    page = await context.new_page()
    page.set_default_timeout(8000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    yield page
    await context.close()
    # That a server is down is the browser's own complaint.
    complaints = [each for each in complaints if "ERR_CONNECTION_REFUSED" not in each]
    assert complaints == []
    assert all(host.startswith("127.0.0.1") for host in hosts if host), hosts


async def look(page: Page, server: Any) -> None:
    await page.goto(f"{server.url}/dashboard/")
    await expect(page.locator("#state")).to_have_text("live")


async def speak(talk: Talk, names: list[str], **start: Any) -> None:
    for name in names:
        await talk.say("start", ctx=name, **start)
        await talk.say("text", ctx=name, text=TEXT, end=True)
        await talk.until("done")


def figure(page: Page, name: str):
    return page.locator(f'[data-figure="{name}"]')


def ms(value: float) -> str:
    """As the page spells it."""
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


async def stats_of(server: Any) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{server.url}/v1/stats")).json()


def slow(**more: Any) -> InlineEngine:
    return InlineEngine(ToneOptions(first_chunk_delay_s=0.06, real_time_factor=0.02, **more))


async def test_what_is_shown_is_what_the_server_measured(browser):
    """Every tile, table and row says what `/v1/stats` and the clients said; charts are drawn."""
    async with ready(slow()) as server, talking(server) as talk, browsing(browser) as page:
        await look(page, server)
        await speak(talk, [f"turn-{n}" for n in range(9)])
        await speak(talk, ["late-1", "late-2"], budget_ms=1)
        for n in range(9):
            await talk.say(
                "playback", ctx=f"turn-{n}", first_packet_ms=30, first_sound_ms=64, underruns=n % 2
            )
        await talk.say("start", ctx="gone")
        await talk.say("text", ctx="gone", text=TEXT)
        await talk.say("cancel", ctx="gone")
        await talk.until("done")
        await talk.say("cancel", ctx="never")
        await expect(figure(page, "errors")).to_have_text("1")
        await expect(figure(page, "ended")).to_have_text("12")
        await asyncio.sleep(1.2)  # first packets are in the point after their second
        stats = await stats_of(server)
        quantiles = stats["first_packet_ms"]
        for name in ("p50", "p95", "p99"):
            await expect(figure(page, name)).to_have_text(ms(quantiles[name]))
        await expect(figure(page, "first-packets")).to_have_text(str(stats["first_packets"]))
        await expect(figure(page, "hit-rate")).to_have_text(
            f"{100 * stats['budget_hit_rate']:.1f} %"
        )
        await expect(figure(page, "budget")).to_have_text("500 ms")
        await expect(figure(page, "cancelled")).to_have_text("1")
        await expect(figure(page, "client-underruns")).to_have_text("4")
        await expect(figure(page, "client-reports")).to_have_text("9")
        sound = await figure(page, "sound-p50").text_content()
        assert abs(float(sound.split()[0]) - 64) < 1  # 2 % buckets
        await expect(figure(page, "slots")).to_have_text("256")
        await expect(figure(page, "gpu")).to_have_text(stats["gpu"]["reason"])
        assert stats["last_minute"]["misses"] == {"prefill": 2}
        await expect(page.locator('[data-stage="prefill"] td').first).to_have_text("2")
        await expect(page.locator('[data-stage="queue"] td').first).to_have_text("0")
        await expect(page.locator("#errors")).to_contain_text("unknown_ctx")
        await expect(page.locator("#outcomes")).to_have_text("Ended: 11 completed, 1 cancelled.")
        await check_tables(page, stats)
        await check_rows(page)
        await check_drawn(page)


async def check_tables(page: Page, stats: dict[str, Any]) -> None:
    """The tables behind the charts hold the charts' figures."""
    for chart in ("latency", "distribution"):
        await page.locator(f"#{chart} summary").click()
    counts = await page.locator("#distribution details tbody td:nth-child(2)").all_text_contents()
    assert sum(map(int, counts)) == stats["first_packets"]
    medians = await page.locator("#latency details tbody td:nth-child(2)").all_text_contents()
    shown = [float(each) for each in medians if each != "–"]
    assert shown and min(shown) <= stats["first_packet_ms"]["p50"] + 0.1 <= max(shown) + 0.2
    assert "p50" in await page.locator("#latency .plot").get_attribute("aria-label")


async def check_rows(page: Page) -> None:
    """Rows are newest first; a row opens into a waterfall of its stages, and the table holds still."""
    names = await page.locator("#requests th button").all_text_contents()
    assert names[:4] == ["gone", "late-2", "late-1", "turn-8"]
    late = page.locator("#requests tbody tr", has_text="late-2").first
    await expect(late).to_contain_text("late: prefill")
    await late.get_by_role("button").press("Enter")
    await expect(late.get_by_role("button")).to_have_attribute("aria-expanded", "true")
    waterfall = page.locator(".waterfall li")
    words = await waterfall.locator("span:first-child").all_text_contents()
    assert ["queue" in words, "prefill" in words, "first frame" in words] == [True] * 3
    parts = await waterfall.locator("span:last-child").all_text_contents()
    whole = await late.locator("td").nth(2).text_content()
    assert abs(sum(float(part.split()[0]) for part in parts) - float(whole.split()[0])) < 0.4
    lefts = await waterfall.locator("b").evaluate_all("bs => bs.map(b => b.offsetLeft)")
    assert lefts == sorted(lefts) and lefts[-1] > lefts[0]
    await expect(page.locator("#held")).to_be_visible()
    await page.get_by_label("Which").select_option("late")
    await late.get_by_role("button").press("Enter")
    await page.get_by_label("Which").select_option("newest")
    await page.get_by_label("Which").select_option("late")
    assert await page.locator("#requests th button").all_text_contents() == ["late-2", "late-1"]


async def check_drawn(page: Page) -> None:
    """The colours of the lines are on the canvases: there is a picture, not only a frame."""
    count = """([id, name]) => {
        const canvas = document.querySelector(`#${id} canvas`);
        const probe = new OffscreenCanvas(1, 1).getContext("2d");
        probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
        probe.fillRect(0, 0, 1, 1);
        const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4)
            n += Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 30;
        return n;
    }"""
    drawn = [("latency", "--p99"), ("latency", "--budget"), ("distribution", "--p50")]
    drawn += [("distribution", "--budget"), ("sound", "--p95"), ("lag", "--p99"), ("rtf", "--p50")]
    for chart, colour in drawn:
        assert await page.evaluate(count, [chart, colour]) >= 4, (chart, colour)
    assert await page.evaluate(count, ["rtf", "--p99"]) == 0  # the count can be none


async def test_advice_comes_says_what_to_do_and_goes(browser, monkeypatch):
    """With a budget of 1 ms the guilty stage is named; when nobody is late any more it is quiet."""
    monkeypatch.setattr(history, "WINDOW_S", 6)  # a busy machine takes a while to look
    monkeypatch.setattr(advice, "HOLD_S", 0.2)
    session = SessionOptions(budget_s=0.001)
    async with (
        ready(slow(), session=session) as server,
        talking(server) as talk,
        browsing(browser) as page,
    ):
        await look(page, server)
        await expect(page.locator("#all-fine")).to_be_visible()
        await speak(talk, [f"turn-{n}" for n in range(5)])
        item = page.locator('#advice [data-code="slow_engine"]')
        await expect(item).to_contain_text("Problem in prefill, since")
        await expect(item).to_contain_text("lost most of their time in reading the prompt")
        await expect(item.locator(".remedy")).not_to_be_empty()
        await expect(page.locator("#announcer")).to_contain_text("problem: 5 of 5 late")
        await expect(page.locator("#all-fine")).to_be_hidden()
        await expect(page.locator('[data-stage="prefill"] td').first).to_have_text("5")
        await expect(item).to_have_count(0, timeout=15_000)
        await expect(page.locator("#announcer")).to_have_text("over: slow engine")
        await expect(page.locator("#all-fine")).to_be_visible()


async def test_a_page_that_opens_late_sees_the_last_minutes_at_once(browser):
    """What was before is there before the first new second has come."""
    async with ready(slow()) as server, talking(server) as talk:
        await speak(talk, ["early-1", "early-2"])
        await asyncio.sleep(2.1)
        async with browsing(browser) as page:
            await look(page, server)
            # It ended before the page opened: whatever is shown of it is the history.
            await expect(page.locator("#requests")).to_contain_text("early-2")
            await page.locator("#latency summary").click()
            medians = await page.locator(
                "#latency details tbody td:nth-child(2)"
            ).all_text_contents()
            assert any(each != "–" for each in medians)


async def test_a_server_with_keys_is_asked_with_one(browser):
    """No key: the page asks; a wrong one: it says so; the right one is kept for this tab only."""
    async with ready(api_keys=("sesame/+ö",)) as server, browsing(browser) as page:
        await page.goto(f"{server.url}/dashboard/")
        await expect(page.locator("#key-form")).to_be_visible()
        await expect(page.locator("#key")).to_be_focused()
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#key-error")).to_have_text(
            "The server does not accept that key."
        )
        await page.locator("#key").fill("sesame/+ö")
        await page.keyboard.press("Enter")
        await expect(page.locator("#state")).to_have_text("live")
        await expect(page.locator("#key-form")).to_be_hidden()
        await page.reload()
        await expect(page.locator("#state")).to_have_text("live")
        assert await page.evaluate("Object.keys(localStorage)") == []
        await page.get_by_text("Forget the key").click()
        await expect(page.locator("#key-form")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 0


async def test_the_page_lives_through_a_restart(browser):
    """It says that it is not connected, keeps what it knows, and goes on with the next server."""
    async with contextlib.AsyncExitStack() as stack:
        page = await stack.enter_async_context(browsing(browser))
        async with ready(slow()) as server:
            port = int(server.url.rpartition(":")[2])
            async with talking(server) as talk:
                await look(page, server)
                await speak(talk, ["before"])
                await expect(page.locator("#requests")).to_contain_text("before")
        await expect(page.locator("#state")).to_contain_text("not connected")
        await expect(page.locator("body")).to_have_class("stale")
        again = ready_on(port)
        server = await stack.enter_async_context(again)
        await expect(page.locator("#state")).to_have_text("live")
        async with talking(server) as talk:
            await speak(talk, ["after"])
        await expect(page.locator("#requests tbody tr").first).to_contain_text("after")
        await expect(page.locator("#requests")).to_contain_text("before")


@contextlib.asynccontextmanager
async def ready_on(port: int):
    from rtts.server import ServerOptions, running_server

    async with running_server(ServerOptions(port=port), slow()) as server:
        yield server


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_read_it(browser, scheme):
    """At 375 px nothing scrolls sideways; axe finds nothing, contrast of both schemes included."""
    session = SessionOptions(budget_s=0.001)
    async with ready(slow(), session=session) as server, talking(server) as talk:
        await speak(talk, [f"turn-{n}" for n in range(5)])
        await speak(talk, ["a-name-without-a-space-" * 5])
        async with browsing(browser, width=375, height=800) as page:
            await page.emulate_media(color_scheme=scheme)
            await look(page, server)
            await page.locator("#requests button").first.click()
            await page.locator("#latency summary").click()
            await expect(page.locator("#advice li")).not_to_have_count(0)
            widths = "[document.documentElement.scrollWidth, innerWidth]"
            assert await page.evaluate(widths) == [375, 375]
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            await page.set_viewport_size({"width": 1280, "height": 900})
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 22, 26)")
            other = "dark" if scheme == "light" else "light"
            await page.get_by_label("Colours").select_option(other)
            assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


async def test_lines_and_bars_stand_out(browser):
    """Graphics have 3:1 against what is behind them, in both schemes (WCAG 1.4.11)."""
    contrast = """() => {
        const style = getComputedStyle(document.documentElement);
        const luminance = (name) => {
            const hex = style.getPropertyValue(name).trim();
            const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
                .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const names = ["p50", "p95", "p99", "budget", "split", "queue", "engine", "prefill",
            "first_frame", "codec", "encode", "send", "client"];
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return names.map((name) => [name, ratio(luminance(`--${name}`), luminance("--panel"))]);
    }"""
    async with ready() as server, browsing(browser) as page:
        await look(page, server)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            for name, ratio in await page.evaluate(contrast):
                assert ratio >= 3, (scheme, name)


async def test_the_keyboard_reaches_everything_in_order(browser):
    """Skip link, controls, tables, rows: in the order in which they stand; each shows its focus."""
    async with ready(slow()) as server, talking(server) as talk, browsing(browser) as page:
        await speak(talk, ["turn"])
        await look(page, server)
        await expect(page.locator("#requests")).to_contain_text("turn")
        reached = []
        for _ in range(40):
            await page.keyboard.press("Tab")
            name = await page.evaluate(
                "(({ activeElement: it }) => it === document.body ? '' : it.id || it.ariaLabel "
                "|| it.textContent.trim())(document)"
            )
            if not name:  # past the last one
                break
            reached.append(name)
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", name
        assert reached[:4] == ["Skip to the figures", "window", "theme", "pause"]
        assert reached.index("order") < reached.index("turn")
        assert reached.count("As a table") == 7


async def test_hold_still_stops_the_changes(browser):
    """Whoever reads slowly can stop the page, and let it go on."""
    async with ready(slow()) as server, talking(server) as talk, browsing(browser) as page:
        await look(page, server)
        await page.get_by_text("Hold still").click()
        await speak(talk, ["unseen"])
        await asyncio.sleep(1.3)
        await expect(page.locator("#requests")).not_to_contain_text("unseen")
        await page.get_by_text("Hold still").click()
        await expect(page.locator("#requests")).to_contain_text("unseen")


async def test_names_are_text(browser):
    """What a client calls its context is shown, never run."""
    evil = "<img src=x onerror=alert(1)>"
    async with ready(slow()) as server, talking(server) as talk, browsing(browser) as page:
        dialogs = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await look(page, server)
        await speak(talk, [" ", evil])
        await expect(page.locator("#requests button").first).to_have_text(evil)
        await expect(page.locator("#requests button").last).to_have_text(
            '" "'
        )  # can be seen, and read out
        await page.locator("#requests button").first.click()
        await expect(page.locator(".facts")).to_contain_text(evil)
        assert await page.locator("main img").count() == 0 and dialogs == []


async def test_a_gpu_is_shown(browser, monkeypatch):
    """Memory and use, now and over time."""
    nvml = FakeNvml(count=1)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    async with ready() as server, browsing(browser) as page:
        await look(page, server)
        await expect(figure(page, "gpu")).to_have_text("40 %")
        await expect(figure(page, "gpu-memory")).to_have_text("H200: 1.0 GiB of 4.0 GiB")
        await expect(page.locator("#gpu canvas")).to_be_visible()
        await expect(page.locator("#no-gpu")).to_be_hidden()


async def test_quantiles_are_the_servers(browser):
    """The page and the server find the same quantiles of the same values."""
    async with ready() as server, browsing(browser) as page:
        await look(page, server)
        dice = random.Random(7)
        for count in (1, 2, 19, 20, 21, 99, 100, 101, 1000):
            rolling = RollingLatency()
            for _ in range(count):
                rolling.add(dice.lognormvariate(-3, 1.5), 10.5)
            buckets = {str(bucket): n for bucket, n in rolling.of_second(10).items()}
            found = await page.evaluate(
                """async (buckets) => {
                    const { addBuckets, quantiles, histogram, total } = await import("./buckets.js");
                    const counts = new Map();
                    addBuckets(counts, buckets);
                    const bins = histogram(counts, 500);
                    const binned = bins.reduce((sum, bin) => sum + bin.count, 0);
                    return [...quantiles(counts, [0.5, 0.95, 0.99]), total(counts), binned];
                }""",
                buckets,
            )
            expected = [1000 * value for value in rolling.quantiles(10.5)]
            assert found[:3] == pytest.approx(expected, rel=1e-9)
            assert found[3:] == [count, count]


async def test_pictures_of_the_documentation(browser):
    """A server with something to tell; the pictures are written only when asked for."""
    engine = InlineEngine(ToneOptions(first_chunk_delay_s=0.018, real_time_factor=0.03))
    dice = random.Random(3)
    async with (
        ready(engine) as server,
        talking(server) as talk,
        browsing(browser, height=1330) as page,
    ):
        await look(page, server)
        await page.get_by_label("Show").select_option("60")
        n_turns = 60 if os.environ.get("SCREENSHOTS") else 3
        for n in range(n_turns):
            budget = 15 if n % 12 == 5 else 500
            await speak(talk, [f"turn-{n + 1}"], budget_ms=budget)
            await talk.say(
                "playback", ctx=f"turn-{n + 1}", first_packet_ms=dice.gauss(32, 4),
                first_sound_ms=dice.gauss(70, 9),
            )  # fmt: skip
            await asyncio.sleep(dice.uniform(0.0, 0.6) if n_turns > 3 else 0)
        await asyncio.sleep(1.5)
        await expect(page.locator("#requests tbody tr").first).to_contain_text(f"turn-{n_turns}")
        if not os.environ.get("SCREENSHOTS"):
            return
        IMAGES.mkdir(exist_ok=True)
        await page.screenshot(path=IMAGES / "dashboard-light.png")
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size({"width": 375, "height": 812})
        await asyncio.sleep(1.2)
        await page.screenshot(path=IMAGES / "dashboard-phone-dark.png")


async def test_every_point_is_in_its_bin(browser):
    """Bins hold each second of the stretch once, where it was; a stretch is its last seconds."""
    async with ready() as server, browsing(browser) as page:
        await look(page, server)
        found = await page.evaluate(
            """async () => {
                const { Model } = await import("./model.js");
                const wrong = [];
                for (const [end, seconds, size] of [[1e9, 60, 2], [1e9 + 700, 300, 5], [1e9 + 14999, 900, 15]]) {
                    const model = new Model();
                    for (let i = 1000; i >= 0; i--) {
                        model.take({ type: "stats", time_ms: end - 1000 * i, point: {
                            t: end - 1000 * i, measured: 1, misses: { queue: 1 },
                        } });
                    }
                    const bins = model.bins(seconds, size);
                    if (bins.length !== seconds / size) wrong.push("count");
                    const held = bins.reduce((sum, bin) => sum + bin.sum.points, 0);
                    const from = 1000 * (bins[0].t - size);
                    const due = model.points.filter((point) => point.t > from).length;
                    if (held !== due) wrong.push(`${held} of ${due}`);
                    for (const { t, sum } of bins) {
                        if (!(sum.last.t <= 1000 * t && sum.last.t > 1000 * (t - size))) wrong.push(t);
                        if (sum.of.measured !== sum.points || sum.misses.queue !== sum.points) wrong.push(sum);
                    }
                    if (model.sum(60).points !== 60) wrong.push("sum");
                    if (model.points.length !== 900) wrong.push("unbounded");
                    const back = end - 1e7; // a restart, with the clock set back
                    model.take({ type: "stats", time_ms: back });
                    model.take({ type: "stats", time_ms: back + 1000, point: { t: back + 1000 } });
                    if (model.points.length !== 1) wrong.push("stuck in the future");
                }
                return wrong;
            }"""
        )
        assert found == []
