"""The loop the server runs on in production."""

from __future__ import annotations

from rtts.server import new_event_loop


def pytest_asyncio_loop_factories(config, item):
    return {"server": new_event_loop}
