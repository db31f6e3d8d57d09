"""The JavaScript client outside browsers: its own tests, types, package, and a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from pathlib import Path

import pytest

import rtts
from rtts.server import ServerOptions
from tests.clients.js import vectors
from tests.clients.js.browser import CLIENT
from tests.clients.js.serving import serving

BIN = CLIENT / "node_modules" / ".bin"
ROOT = CLIENT.parents[1]


async def run(*command: str, **environment: str) -> str:
    """What a command says; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=CLIENT,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


def test_vectors_are_what_the_codec_makes() -> None:
    """The wire that the client is tested against is the server's."""
    assert vectors.FILE.read_text() == vectors.text(), "python -m tests.clients.js.vectors"


async def test_its_own_tests(node: str) -> None:
    """Protocol, resume, cancel, buffer: against a server in memory."""
    assert "# fail 0" in await run(node, "--test", "--test-reporter=tap", "test/")


@pytest.mark.parametrize("options", [[], ["--experimental-websocket"]], ids=["ws", "global"])
async def test_it_speaks_with_a_real_server(node: str, options: list[str]) -> None:
    """With the package `ws`, and with the WebSocket that node has from version 22; and a key."""
    async with serving(ServerOptions(port=0, api_keys=("schlüssel",))) as server:
        said = await run(
            node,
            *options,
            "--test",
            "--test-reporter=tap",
            "test/live.test.js",
            RTTS_URL=server.ws_url,
            RTTS_KEY="schlüssel",
        )
    assert "# pass 6" in said and "# fail 0" in said and "# skipped 0" in said


async def test_types(node: str) -> None:
    """Sources and a user's program are as index.d.ts says."""
    await run(node, str(BIN / "tsc"), "-p", ".")


async def test_package(node: str) -> None:
    """Every resolver finds code and types in it, and everything it needs is packed."""
    assert "All good!" in await run(node, str(BIN / "publint"), "--strict")
    await run(node, str(BIN / "attw"), "--pack", ".", "--profile", "esm-only")
    (packed,) = json.loads(await run("npm", "pack", "--dry-run", "--json"))
    names = {file["path"] for file in packed["files"]}
    sources = {str(path.relative_to(CLIENT)) for path in (CLIENT / "src").rglob("*.*")}
    assert names == sources | {"package.json", "README.md", "LICENSE"}


def test_version_is_one() -> None:
    """The package has the server's version and needs nothing at run time."""
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == rtts.__version__
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    assert package["devDependencies"] == {
        name: version
        for name, version in package["devDependencies"].items()
        if re.fullmatch(r"[\d.]+", version)
    }


def test_vendored_decoder_is_what_its_notice_says() -> None:
    """The file is the released one, byte for byte."""
    vendor = CLIENT / "src" / "vendor"
    digest = hashlib.sha256((vendor / "opus-decoder.min.js").read_bytes()).hexdigest()
    for notice in (vendor / "NOTICE.md", ROOT / "THIRD_PARTY.md"):
        assert digest in notice.read_text(), notice


def test_the_example_is_short() -> None:
    """What a newcomer reads fits a screen."""
    script = (CLIENT / "try" / "try.js").read_text()
    assert len([line for line in script.splitlines() if line.strip()]) <= 35
    assert Path(CLIENT / "try" / "index.html").read_text().count("<script") == 1
