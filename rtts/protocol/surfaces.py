"""Every foreign surface, and where it is found. A new one is a dialect file and lines here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from rtts.protocol import (
    cartesia,
    dashscope,
    deepgram,
    deepgram_flux,
    deepgram_socket,
    elevenlabs,
    elevenlabs_lists,
    elevenlabs_sockets,
    openai,
    vllm_omni,
)
from rtts.protocol.dialect import Route

ROUTES: tuple[Route, ...] = (
    *elevenlabs_lists.ROUTES,  # first, since some are only for requests of its clients
    *elevenlabs.ROUTES,
    *elevenlabs_sockets.ROUTES,
    *openai.ROUTES,
    *cartesia.ROUTES,
    *deepgram.ROUTES,
    *deepgram_socket.ROUTES,
    *deepgram_flux.ROUTES,
    *dashscope.ROUTES,
    *vllm_omni.ROUTES,
)


_NONE: Mapping[str, str] = MappingProxyType({})


class RouteTable:
    """Finds the route of a path."""

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._routes = [(route, route.path.split("/")) for route in routes]

    def find(
        self, method: str, path: str, headers: Mapping[str, str] = _NONE
    ) -> tuple[Route, dict[str, str]] | None:
        """The route, and what stands in the places of its path.

        Args:
            method: Of HTTP, or "WS".
            path: As sent, so that an encoded slash is no separator.
            headers: Of the request, by lower-case name.
        """
        segments = path.split("/")
        method = "GET" if method == "HEAD" else method  # whose body the transport leaves out
        for route, wanted in self._routes:
            params = _match(wanted, segments) if route.method == method else None
            if params is not None and (route.meant is None or route.meant(headers)):
                return route, params
        return None


def _match(wanted: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(wanted) != len(segments):
        return None
    params: dict[str, str] = {}
    for want, have in zip(wanted, segments, strict=True):
        if want.startswith("{") and have:
            params[want[1:-1]] = unquote(have)
        elif want != have:
            return None
    return params
