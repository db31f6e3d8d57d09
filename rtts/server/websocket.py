"""A WebSocket as the app sees it: what it can do, who is called back, within which limits.

`rtts.server.transport` implements it. Knows nothing about bytes, HTTP or sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# Where in `scope["extensions"]` a `WebSocket` is found.
EXTENSION = "rtts.transport"
# RFC 6455 section 5.5: a control frame holds at most 125 bytes, 2 of them the code.
MAX_REASON_BYTES = 123


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Limits below the protocol. None of them is met by speech.

    Attributes:
        max_frames_per_s: Sustained frames of any kind from one peer; twice as many in a burst.
            Sessions allow 200 messages, and pongs and fragments come on top.
        max_fragments: Fragments of one message.
        close_timeout_s: How long a peer may take to answer a close, or to read what was sent
            before it.
    """

    max_frames_per_s: int = 1000
    max_fragments: int = 256
    close_timeout_s: float = 5.0


class WebSocketHandler(Protocol):
    """Who is called back. Nothing is called after `on_lost`."""

    def on_text(self, data: bytes) -> None:
        """A text message arrived: valid UTF-8."""

    def on_binary(self) -> None:
        """A binary message arrived (and was thrown away)."""

    def on_marker(self, number: int, rtt_s: float) -> None:
        """The peer answered a marker: everything sent before it has arrived there."""

    def on_writable(self) -> None:
        """What was written has left; more can be."""

    def on_lost(self, code: int, reason: str) -> None:
        """The peer closed, broke the protocol or is gone (1006)."""


class WebSocket(Protocol):
    """What an app may do with its WebSocket beside ASGI."""

    @property
    def is_writable(self) -> bool:
        """Whether a write would go straight to the kernel."""

    def write_buffer_size(self) -> int:
        """Bytes handed over that the kernel has not taken."""

    def attach(self, handler: WebSocketHandler) -> None:
        """Call `handler` from now on, first with what arrived before."""

    def expect_pongs(self, timeout_s: float) -> None:
        """Close 1011 when a keepalive ping is not answered in time."""

    def send_now(self, data: str | bytes, *, more: bool = False) -> bool:
        """Send one message: text for str, binary for bytes.

        Args:
            data: The message.
            more: Another message follows in this turn; write them together.

        Returns:
            False when the socket is not writable: nothing was sent.
        """

    def send_marker(self, number: int, *, more: bool = False) -> bool:
        """Send a mark that the peer's WebSocket layer answers by itself. False as `send_now`."""

    def flush(self) -> None:
        """Write what was sent with `more`."""

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame behind everything else and let the socket go; idempotent."""


def clip_reason(reason: str) -> str:
    """At most 123 bytes of UTF-8, no half character."""
    return reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")
