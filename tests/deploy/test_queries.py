"""Every query of the dashboard and of the alerts, run by a real Prometheus on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess

import httpx
import pytest
from websockets.asyncio.client import connect

from rtts.engine.hosting import Backoff
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import ServerOptions, running_server
from tests.deploy.tools import DEPLOY, need

KEY = "a-key-of-the-test"
BOARD = json.loads((DEPLOY / "grafana/dashboards/rtts.json").read_text())
QUERIES = [
    (panel["title"], target["expr"])
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
] + [("annotation", each["expr"]) for each in BOARD["annotations"]["list"]]
# Nothing restarted.
MAY_BE_EMPTY = {"annotation"}


def filled_in(query: str) -> str:
    """A query as Grafana sends it: variables replaced."""
    query = (
        query.replace("$__rate_interval", "10s").replace("$job", ".*").replace("$instance", ".*")
    )
    assert "$" not in query
    return query


async def one_reply(url: str, ctx: str, *, budget_ms: int, is_cancelled: bool = False) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with connect(url, subprotocols=["rtts.v1"], additional_headers=headers) as ws:
        await ws.send(json.dumps({"type": "start", "ctx": ctx, "budget_ms": budget_ms}))
        await ws.send(json.dumps({"type": "text", "ctx": ctx, "text": "Hello there. " * 20}))
        if not is_cancelled:
            await ws.send(json.dumps({"type": "end", "ctx": ctx}))
        is_reported = False
        async for message in ws:
            if isinstance(message, bytes):
                if is_cancelled:
                    await ws.send(json.dumps({"type": "cancel", "ctx": ctx}))
                if not is_reported:
                    is_reported = True
                    figures = {
                        "first_packet_ms": 20,
                        "first_sound_ms": 60,
                        "underruns": 1,
                        "stalled_ms": 5,
                    }
                    await ws.send(json.dumps({"type": "playback", "ctx": ctx, **figures}))
            elif json.loads(message)["type"] == "done":
                return


async def traffic(url: str) -> None:
    """Replies that keep and miss their budget, a cancel, an error, for as long as it runs."""
    n = 0
    while True:
        n += 1
        await one_reply(url, f"a{n}", budget_ms=2000)
        await one_reply(url, f"b{n}", budget_ms=1)
        await one_reply(url, f"c{n}", budget_ms=2000, is_cancelled=True)
        async with connect(
            url, subprotocols=["rtts.v1"], additional_headers={"X-API-Key": KEY}
        ) as ws:
            await ws.send(json.dumps({"type": "start", "ctx": "d", "voice": "nobody"}))
            await ws.recv()
        await asyncio.sleep(0.2)


@contextlib.contextmanager
def prometheus(tmp_path, target: str):
    """A Prometheus that scrapes `target` once a second; yields its address."""
    program = need("prometheus", "prometheus")
    (tmp_path / "key").write_text(KEY)
    config = (DEPLOY / "prometheus/prometheus.yml").read_text()
    config = config.replace("/run/secrets/rtts_key", str(tmp_path / "key"))
    config = config.replace("15s", "1s").replace("rtts:8765", target)
    (tmp_path / "prometheus.yml").write_text(config)
    (tmp_path / "rtts.rules.yml").write_text((DEPLOY / "prometheus/rtts.rules.yml").read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                program, f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(10)


@pytest.mark.slow
async def test_every_query_finds_something(tmp_path):
    """No query names a metric or label that the server does not have."""
    engine = LocalEngine(
        lambda: ToneEngine(ToneOptions(first_chunk_delay_s=0.005)), backoff=Backoff(0.5, 1.0)
    )
    async with running_server(ServerOptions(port=0, api_keys=(KEY,)), engine) as server:
        talking = asyncio.create_task(traffic(server.ws_url))
        target = server.url.removeprefix("http://")
        with prometheus(tmp_path, target) as url:
            async with httpx.AsyncClient(base_url=url, timeout=10) as client:
                async with asyncio.timeout(45):
                    await until_it_knows(client, talking)
                missing = {}
                for title, query in QUERIES:
                    answer = await client.get("/api/v1/query", params={"query": filled_in(query)})
                    body = answer.json()
                    assert body["status"] == "success", (title, query, body)
                    if not body["data"]["result"] and title not in MAY_BE_EMPTY:
                        missing[title] = query
                assert not missing
                await alerts_are_known(client)
        talking.cancel()
        await asyncio.wait([talking])


async def until_it_knows(client: httpx.AsyncClient, talking: asyncio.Task[None]) -> None:
    """Wait for a dozen scrapes, so that rates have something to rate."""
    query = 'count_over_time(up{job="rtts"}[1m])'
    while True:
        await asyncio.sleep(0.5)
        if talking.done():
            talking.result()
        with contextlib.suppress(httpx.TransportError):
            answer = await client.get("/api/v1/query", params={"query": query})
            found = answer.json().get("data", {}).get("result", [])
            if found and int(found[0]["value"][1]) >= 12:
                return


async def alerts_are_known(client: httpx.AsyncClient) -> None:
    """Every rule is evaluated without an error, and no alert fires for a server in health."""
    groups = (await client.get("/api/v1/rules")).json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"^ +- (?:alert|record):", (DEPLOY / "prometheus/rtts.rules.yml").read_text(), re.M))  # fmt: skip
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule["name"] for rule in rules if rule.get("state") == "firing"]


def test_the_dashboard_is_whole():
    """Panels have their own ids and places, and every metric of the server is on it or on purpose not."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in BOARD["panels"]]
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in BOARD["panels"])
