"""A real server of tones."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from rtts_client import Audio, Format, connect

from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import Server, ServerOptions, running_server
from tests.clients.js.browser import Samples


@contextlib.asynccontextmanager
async def serving(server: ServerOptions | None = None, **options: Any) -> AsyncIterator[Server]:
    """One, whose engine is as the options say."""
    options = {"char_s": 0.02} | options
    host = LocalEngine(lambda: ToneEngine(ToneOptions(**options)))
    async with running_server(server or ServerOptions(port=0), host) as running:
        yield running


def port_of(server: Server) -> int:
    """Where it listens."""
    return urlsplit(server.url).port or 0


async def reference(server: Server, text: str, rate_hz: int, **options: Any) -> Samples:
    """The samples the server makes of a text, through the Python client."""
    async with connect(server.ws_url) as client:
        wanted = Format("pcm_s16le", sample_rate=rate_hz)
        async with client.context(format=wanted, **options) as context:
            events = [event async for event in context.speak(text)]
    data = b"".join(event.data for event in events if isinstance(event, Audio))
    return np.frombuffer(data, "<i2").astype("<f4") / np.float32(32_768)
