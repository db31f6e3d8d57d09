"""An HTTP exchange as the app sees it, where the body is written as it comes into being.

`rtts.server.http_protocol` implements it. Knows nothing about bytes of HTTP, routes or sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# Where in `scope["extensions"]` an `Exchange` is found.
EXTENSION = "rtts.exchange"


class ExchangeHandler(Protocol):
    """Who is called back. Nothing is called after `on_lost`."""

    def on_writable(self) -> None:
        """What was written has left; more can be."""

    def on_lost(self) -> None:
        """The client is gone before the response was complete."""


class Exchange(Protocol):
    """What an app may do with a response beside ASGI. ASGI's `send` is not used with it."""

    @property
    def is_writable(self) -> bool:
        """Whether a write would go straight to the kernel."""

    def write_buffer_size(self) -> int:
        """Bytes handed over that the kernel has not taken."""

    def attach(self, handler: ExchangeHandler) -> None:
        """Call `handler` from now on; `on_lost` at once if the client is gone already."""

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Write the head; without a content-length the body is chunked."""

    def write(self, data: bytes) -> None:
        """Write a piece of body."""

    def finish(self) -> None:
        """The body is whole."""

    def abort(self) -> None:
        """Cut the connection, so that the client does not take the body for whole."""
