"""The HTTP side: every answer and every error is JSON, and says what it should to whom it should."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest

from rtts.engine.tone import ToneOptions
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready, started, talking


def client(server, **rest) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, **rest)


async def test_healthz_is_always_ok():
    """Alive is not ready."""
    async with started(InlineEngine(starts=False)) as server, client(server) as http:
        response = await http.get("/healthz")
        assert response.status_code == 200 and response.json() == {"status": "ok"}


async def test_a_get_of_the_websocket_says_what_it_is():
    """Somebody who tries the address in a browser is not told that it does not exist."""
    async with started(InlineEngine()) as server, client(server) as http:
        response = await http.get("/v1/tts")
        assert response.status_code == 426 and response.headers["upgrade"] == "websocket"
        assert "rtts.v1" in response.json()["error"]["message"]


async def test_readyz_says_why_not():
    """loading, prewarming, ready, engine_down and draining, in that life."""
    engine = InlineEngine(starts=False)
    async with started(engine) as server, client(server) as http:

        async def look():
            response = await http.get("/readyz")
            return response.status_code, response.json()

        status, body = await look()
        assert (status, body["reasons"]) == (503, ["loading"])
        assert body["opus"]["path"] and body["opus"]["version"]
        engine.hold()
        engine.come_up()
        engine.is_held = False
        engine._work()
        engine.hold()
        status, body = await look()
        assert (status, body["reasons"]) == (503, ["prewarming"])
        engine.release()
        await server.ready()
        status, body = await look()
        assert (status, body["reasons"], body["ready"]) == (200, [], True)
        assert body["slots_free"] == body["slots"] == 256
        assert body["model"] == "tone" and body["voices"] == 3 and body["degraded"] == []
        assert body["attention"] == ""  # the tone engine computes none
        async with talking(server) as talk:
            engine.hold()
            await talk.say("text", ctx="c", text="Hello there, this is a test. ")
            await eventually(lambda: server.service.live_utterances == 1)
            assert (await look())[1]["slots_free"] == 255
            engine.release()
            engine.die(restart_in_s=7.0)
            response = await http.get("/readyz")
            assert response.status_code == 503
            assert response.json()["reasons"] == ["engine_down"]
            assert 5 <= int(response.headers["retry-after"]) <= 7
        server.service.is_draining = True
        assert (await look())[1]["reasons"] == ["draining", "engine_down"]


async def test_voices_and_models():
    """Each voice with languages, licence and notes; the model in the shape clients know."""
    async with ready() as server, client(server) as http:
        voices = (await http.get("/v1/voices")).json()
        assert voices["default_voice"] == "tone"
        assert [voice["default"] for voice in voices["voices"]] == [True, False, False]
        needed = {"id", "languages", "licence", "description", "notes", "engine", "sample_rate"}
        assert needed <= set(voices["voices"][0])
        models = (await http.get("/v1/models")).json()
        assert models["object"] == "list"
        assert models["data"][0]["id"] == "tone" and models["data"][0]["object"] == "model"


@pytest.mark.parametrize("path", ["/v1/voices", "/v1/models"])
async def test_what_is_not_known_yet_is_503(path):
    """Before the engine has said what it can do: 503 with Retry-After."""
    async with started(InlineEngine(starts=False)) as server, client(server) as http:
        response = await http.get(path)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "overloaded" and response.headers["retry-after"]


async def test_stats_are_one_object():
    """The figures move with what is spoken."""
    async with ready() as server, client(server) as http:
        before = (await http.get("/v1/stats")).json()
        assert before["first_packet_ms"] == {"p50": None, "p95": None, "p99": None}
        assert before["first_packets"] == 0
        async with talking(server) as talk:
            await talk.say("text", ctx="c", text="Hello there, this is a test. ", end=True)
            await talk.until("done")
            await talk.ws.send("nonsense")
            await talk.until("error")
            after = (await http.get("/v1/stats")).json()
        assert after["first_packets"] == 1 and after["first_packet_ms"]["p50"] > 0
        assert after["budget_hit_rate"] == 1.0 and after["budget_ms"] == 500.0
        assert after["sessions"] == 1 and after["contexts"] == 0
        assert after["voice_cache"]["hits"] >= 1 and after["voice_cache"]["misses"] == 1
        assert after["errors"] == {"bad_json": 1}
        assert after["engine"]["slots"] == 256 and after["ready"] is True


async def test_metrics_are_prometheus_text():
    """Gauges are read when they are scraped."""
    async with ready() as server, client(server) as http, talking(server) as talk:
        await talk.say("text", ctx="c", text="Hello there, this is a test. ", end=True)
        await talk.until("done")
        response = await http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        lines = response.text.splitlines()
        for line in (
            "rtts_connections 1.0",
            "rtts_sessions 1.0",
            "rtts_ready 1.0",
            "rtts_draining 0.0",
            'rtts_streams_total{outcome="ok"} 1.0',
            'rtts_first_packet_seconds_count{codec="opus",voice_kind="preset"} 1.0',
            'rtts_degraded{what="opus"} 0.0',
            'rtts_errors_total{code="bad_json"} 0.0',
        ):
            assert line in lines
        assert "c" not in [line.split(" ")[0] for line in lines]
        assert talk.hello["session"] not in response.text
        more = await http.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert more.text.endswith("# EOF\n")


async def test_degraded_is_said_everywhere():
    """What works less well than it could is in /readyz and a gauge, and does not stop readiness."""
    engine = InlineEngine()
    engine.failing_voices = {"tone-low"}
    voices = ("tone-low", "tone-high")
    async with ready(engine, prewarm_voices=voices) as server, client(server) as http:
        body = (await http.get("/readyz")).json()
        assert body["ready"]
        assert body["troubles"] == ["voice tone-low could not be loaded: its file is broken"]
        assert 'rtts_degraded{what="voices"} 1.0' in (await http.get("/metrics")).text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/tts", 426, "bad_request"),
        ("GET", "/v1/voices/nobody", 404, "not_found"),
        ("GET", "/healthz/x", 404, "not_found"),
        ("POST", "/v1/voices", 415, "bad_request"),
        ("PUT", "/v1/voices", 405, "bad_request"),
        ("DELETE", "/metrics", 405, "bad_request"),
    ],
)
async def test_errors_are_json(method, path, status, code):
    """Unknown paths and methods answer in the one shape of errors."""
    async with ready() as server, client(server) as http:
        response = await http.request(method, path)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == code and response.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/v1/voices", "/v1/models", "/v1/stats"]
)
async def test_head_works(path):
    """HEAD is GET without the body."""
    async with ready() as server, client(server) as http:
        response = await http.head(path)
        assert response.status_code == 200 and response.content == b""


async def test_our_own_mistake_is_500_json(monkeypatch):
    """A bug in an endpoint is `internal`, without details."""
    async with ready() as server, client(server) as http:
        monkeypatch.setattr(type(server._figures), "snapshot", lambda self: 1 / 0)
        response = await http.get("/v1/stats")
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "internal"
        assert "division" not in response.text


async def test_keys_guard_all_but_the_probes():
    """With keys, everything but /healthz and /readyz needs one."""
    async with ready(api_keys=("k1",)) as server, client(server) as http:
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200
        for path in ("/metrics", "/v1/voices", "/v1/models", "/v1/stats", "/nothing"):
            response = await http.get(path)
            assert response.status_code == 401, path
            assert response.json()["error"]["code"] == "unauthorized"
            assert response.headers["www-authenticate"] == "Bearer"
            wrong = await http.get(path, headers={"authorization": "Bearer nope"})
            assert wrong.status_code == 401 and "nope" not in wrong.text
            right = await http.get(path, headers={"x-api-key": "k1"})
            assert right.status_code == (404 if path == "/nothing" else 200)
            query = await http.get(path, params={"api_key": "k1"})
            assert query.status_code == 401  # queries end in logs


async def test_rebound_names_are_403():
    """On loopback without keys a foreign Host gets nothing."""
    async with ready() as server, client(server) as http:
        response = await http.get("/v1/voices", headers={"host": "evil.com"})
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "forbidden_origin"


async def test_cors_is_for_listed_origins():
    """A listed page may read GETs; others get no header; preflights need no key."""
    ours = "https://app.example.com"
    options = {"allowed_origins": ("https://App.example.com:443/",), "api_keys": ("k1",)}
    async with ready(**options) as server, client(server) as http:
        key = {"authorization": "Bearer k1"}
        response = await http.get("/v1/voices", headers={"origin": ours, **key})
        assert response.headers["access-control-allow-origin"] == ours
        assert "origin" in response.headers["vary"].lower()
        response = await http.get("/v1/voices", headers={"origin": "https://evil.com", **key})
        assert "access-control-allow-origin" not in response.headers
        ask = {
            "access-control-request-method": "GET",
            # what SDKs in a page add, in every version something else
            "access-control-request-headers": "authorization,x-stainless-lang,cartesia-version",
        }
        preflight = await http.options("/v1/voices", headers={"origin": ours, **ask})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ours
        evil = await http.options("/v1/voices", headers={"origin": "https://evil.com", **ask})
        assert "access-control-allow-origin" not in evil.headers
        put = {**ask, "access-control-request-method": "PUT"}
        assert (
            await http.options("/v1/voices", headers={"origin": ours, **put})
        ).status_code == 400


async def test_the_dashboard_is_static_files(tmp_path):
    """Served under /dashboard/ without a key; nothing outside the directory."""
    (tmp_path / "index.html").write_text("<p>hello")
    (tmp_path.parent / "secret.txt").write_text("secret")
    async with ready(dashboard_dir=tmp_path, api_keys=("k",)) as server, client(server) as http:
        assert (await http.get("/dashboard/")).text == "<p>hello"
        moved = await http.get("/dashboard")
        assert moved.status_code == 308 and moved.headers["location"] == "/dashboard/"
        for path in (
            "/dashboard/nothing.js",
            "/dashboard/..%2fsecret.txt",
            "/dashboard/%2e%2e/secret.txt",
        ):
            response = await http.get(path)
            assert response.status_code in (401, 404) and "secret" not in response.text
            assert response.json()["error"]


async def test_the_dashboard_is_served_by_default():
    """Open, with the headers of a page that trusts nothing; every file it names is there."""
    async with ready(api_keys=("k",)) as server, client(server) as http:
        page = await http.get("/dashboard/")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        named = re.findall(r'(?:src|href)="([^"#:]+)"', page.text)
        assert "main.js" in named
        for file in named:
            assert (await http.get(f"/dashboard/{file}")).status_code == 200, file
    async with ready(dashboard=False) as server, client(server) as http:
        assert (await http.get("/dashboard/")).status_code == 404


async def test_nothing_of_a_query_is_logged(caplog):
    """Queries may hold tokens."""
    caplog.set_level("DEBUG")
    async with ready() as server, client(server) as http:
        caplog.clear()
        await http.get("/v1/voices?token=topsecret")
        async with talking(server):
            pass
    mine = [
        record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
    ]
    assert "topsecret" not in " ".join(record.getMessage() for record in mine)


async def test_a_slow_engine_does_not_slow_the_probes():
    """The loop turns while the engine works."""
    engine = InlineEngine(ToneOptions(first_chunk_delay_s=0.5))
    async with ready(engine) as server, client(server) as http, asyncio.timeout(0.4):
        assert (await http.get("/healthz")).status_code == 200
