"""What the READMEs show in JavaScript runs as it stands."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.clients.js.browser import CLIENT, Browser
from tests.clients.js.serving import serving
from tests.clients.js.test_node import run
from tests.clients.js.test_player import page_of

ROOT = CLIENT.parents[1]


def samples(page: Path) -> list[str]:
    """The JavaScript of a page, block by block."""
    return re.findall(r"^```js\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def as_body(sample: str, modules: str) -> str:
    """A sample as the body of an async function, its imports from somewhere else."""
    return re.sub(
        r'^import (\{[^}]*\}) from "[^"]*";',
        lambda found: (
            f"const {found[1].replace(' as ', ': ')} = await import({json.dumps(modules)});"
        ),
        sample,
        flags=re.MULTILINE,
    )


async def test_the_samples_for_a_page(browser: Browser) -> None:
    """Speech, first sound and barge-in, as both READMEs write them."""
    (short,) = samples(ROOT / "README.md")
    long, _ = samples(CLIENT / "README.md")
    async with serving() as server, page_of(browser, server.url) as page:
        given = "const button = {}; const apiKey = undefined; const reply = ['Hello ', 'there.'];"
        for sample in (short, long):
            body = as_body(sample, "/js/index.js").replace("ws://127.0.0.1:8765", "")
            body = body.replace("wss://speech.example.org", "")
            kept = body.replace("const playback =", "const playback = window.shown =")
            await page.run(f"(async () => {{ {given} {kept}; await button.onclick?.(); }})()")
            report = await page.run("shown.finished")
            assert report["done"]["reason"] in ("completed", "cancelled")
        assert report["firstPacketMs"] < report["firstSoundMs"]
        log = await page.do("log")
        assert [line for line in log if line.startswith("log: heard:")] == [
            "log: heard: Hello",
            "log: heard: there.",
        ]


async def test_the_sample_for_node(node: str, tmp_path: Path) -> None:
    """A reply in node, with the package `ws`."""
    _, sample = samples(CLIENT / "README.md")
    async with serving() as server:
        url = server.ws_url.removesuffix("/v1/tts")
        program = sample.replace("ws://127.0.0.1:8765", url).replace(
            '"rtts-client"', json.dumps(str(CLIENT / "src" / "index.js"))
        )
        program = program.replace('"ws"', json.dumps(str(CLIENT / "node_modules/ws/wrapper.mjs")))
        file = tmp_path / "sample.mjs"
        file.write_text("let n = 0;\nconst send = (packets) => (n += packets.length);\n" + program)
        async with asyncio.timeout(20):
            said = await run(node, str(file))
    assert "Hello! It is good to hear you." in said.replace("\n", " ")


@pytest.mark.parametrize("page", ["README.md", "clients/js/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    """Every relative link of the pages that speak of the client."""
    file = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text("utf-8")):
        assert (file.parent / target).exists(), target
