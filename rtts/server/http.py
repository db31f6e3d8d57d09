"""The HTTP side: is it alive, is it ready, what can it speak, how is it doing.

Every answer is JSON (but `/metrics` and files), every error `{"error": {"code", "message"}}`.
Knows nothing about sockets and sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from rtts.audio.opus import OpusLibrary
from rtts.engine.interface import EngineMembers
from rtts.errors import AuthError, InternalError, RttsError
from rtts.metrics import Metrics
from rtts.protocol import native
from rtts.server import pages
from rtts.server.auth import Gate
from rtts.server.dashboard import PageFiles, dashboard_dir
from rtts.server.figures import Figures
from rtts.server.handshake import error_body, error_headers
from rtts.server.json_reply import json_reply
from rtts.server.options import ServerOptions
from rtts.server.readiness import Readiness
from rtts.server.voice_http import VoiceEndpoints
from rtts.session import Service

NATIVE_PATH = "/v1/tts"

# Probes of a cluster have no key and learn nothing from these.
_OPEN_PATHS = ("/healthz", "/readyz", "/dashboard", *pages.OPEN_PATHS)

_Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What the endpoints read.

    Attributes:
        opus: The libopus that encodes; None where there is none.
        clock: Monotonic seconds.
        troubles: What went wrong while getting ready, in sentences.
    """

    gate: Gate
    service: Service
    readiness: Readiness
    metrics: Metrics
    figures: Figures
    options: ServerOptions
    opus: OpusLibrary | None
    clock: Callable[[], float]
    troubles: Callable[[], list[str]]
    voices: VoiceEndpoints


def build(surface: Surface) -> Starlette:
    """The HTTP application."""
    endpoints = _Endpoints(surface)
    routes: list[BaseRoute] = [
        Route("/healthz", endpoints.healthz),
        Route("/readyz", endpoints.readyz),
        Route("/metrics", endpoints.metrics),
        *surface.voices.routes(),
        Route("/v1/stats", endpoints.stats),
        Route(NATIVE_PATH, _upgrade_required),
        *pages.routes(),
    ]
    if surface.options.dashboard:
        files = PageFiles(surface.options.dashboard_dir or dashboard_dir())
        routes.append(Route("/dashboard", _to_dashboard))
        routes.append(Mount("/dashboard", files))
    cors = Middleware(
        CORSMiddleware,
        allow_origins=surface.gate.origins,
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=["*"],  # SDKs in pages send headers of their own, in every version others
        max_age=600,
    )
    return Starlette(
        routes=routes,
        middleware=[cors, Middleware(_GateMiddleware, gate=surface.gate)],
        exception_handlers={
            RttsError: _on_refusal,
            HTTPException: _on_http_error,
            Exception: _on_bug,
        },
    )


class _Endpoints:
    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    async def healthz(self, request: Request) -> Response:
        """The process is alive and its loop turns."""
        del request
        return json_reply({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Whether new sessions are accepted; if not, why."""
        del request
        surface, service = self._surface, self._surface.service
        reasons, capabilities = surface.readiness.reasons, service.capabilities
        body: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
        troubles = surface.troubles()
        if troubles:
            body["troubles"] = troubles
        if capabilities is not None:
            body |= {
                "engine": capabilities.engine,
                "model": capabilities.model,
                "voices": len(capabilities.voices),
                "default_voice": capabilities.default_voice,
                "slots": capabilities.max_utterances,
                "slots_free": max(0, capabilities.max_utterances - service.live_utterances),
                "attention": capabilities.attention,
                "spoken_at_once": capabilities.slots,
                "memory_bytes": dict(capabilities.memory),
                "engine_processes": _members(service.members),
                "degraded": list(capabilities.degraded),
            }
        opus = surface.opus
        body["opus"] = None if opus is None else {"path": opus.path, "version": opus.version}
        refusal = surface.readiness.refusal(surface.clock())
        headers = [] if refusal is None else error_headers(refusal)
        return json_reply(body, status=503 if reasons else 200, headers=headers)

    async def metrics(self, request: Request) -> Response:
        """Prometheus text, or OpenMetrics if asked for."""
        body, content_type = self._surface.metrics.expose(request.headers.get("accept", ""))
        return Response(body, media_type=None, headers={"content-type": content_type})

    async def stats(self, request: Request) -> Response:
        """The server's figures now."""
        del request
        return json_reply(self._surface.figures.snapshot())


def _members(members: EngineMembers | None) -> dict[str, int]:
    """How many of the engine's processes are up; of an engine that is one, that is all."""
    up, total = (1, 1) if members is None else (members.up, members.total)
    return {"up": up, "total": total}


class _GateMiddleware:
    """Checks host and key before a request reaches an endpoint; plain ASGI."""

    def __init__(self, app: Any, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            try:
                self._gate.check_host(scope["headers"])
                if not _is_open(scope["path"]) and not self._gate.authenticate(scope["headers"]):
                    raise AuthError("this server needs an API key")
            except RttsError as error:
                await _refusal(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return any(path == known or path.startswith(known + "/") for known in _OPEN_PATHS)


async def _upgrade_required(request: Request) -> Response:
    """Whoever looks at the WebSocket with curl or a browser's address bar is told what it is."""
    del request
    raise HTTPException(
        426,
        f"{NATIVE_PATH} is a WebSocket: connect with the subprotocol rtts.v1",
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
    )


async def _to_dashboard(request: Request) -> Response:
    return RedirectResponse(request.url.path + "/", status_code=308)


async def _on_refusal(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RttsError)
    return _refusal(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "bad_request"
    body = msgspec.json.encode({"error": {"code": code, "message": error.detail}})
    return Response(
        body, error.status_code, media_type="application/json", headers=dict(error.headers or {})
    )


async def _on_bug(request: Request, error: Exception) -> Response:
    del request, error  # Starlette raises it again, and it is logged with its traceback
    return _refusal(InternalError("the server failed; this is not your fault"))


def _refusal(error: RttsError) -> Response:
    response = Response(
        error_body(error), native.http_status(error.code), media_type="application/json"
    )
    response.raw_headers.extend(error_headers(error))
    return response
