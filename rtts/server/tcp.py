"""TCP sockets made fit for live audio, and for peers that vanish.

Knows socket options and nothing above them.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

# A client that never reads otherwise buries 16 minutes of Opus in kernel buffers (measured: 982 s
# with the defaults, 38 s with this, most of that in the client's own receive buffer).
NOTSENT_LOWAT_BYTES = 4096
# Where the kernel cannot do that, a small send buffer does nearly the same.
SMALL_SNDBUF_BYTES = 16_384
# A peer that is gone without a word, or whose window stays shut, is found after this long. Beyond
# the session's own 30 s for slow consumers, which has better manners.
USER_TIMEOUT_MS = 60_000
KEEPALIVE_IDLE_S = 30
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_PROBES = 3


def tune(transport: asyncio.BaseTransport) -> None:
    """Set the options of a connection's socket; a Unix socket needs none."""
    sock: Any = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    try:
        for level, option, value in _options():
            sock.setsockopt(level, option, value)
    except OSError:  # the peer is gone already, which the transport will find by itself
        return


def _options() -> list[tuple[int, int, int]]:
    tcp = socket.IPPROTO_TCP
    wanted = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (tcp, "TCP_NODELAY", 1),
        (tcp, "TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        (tcp, "TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        (tcp, "TCP_KEEPCNT", KEEPALIVE_PROBES),
        (tcp, "TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
        (tcp, "TCP_NOTSENT_LOWAT", NOTSENT_LOWAT_BYTES),
    ]
    options = [
        (level, getattr(socket, name), value)
        for level, name, value in wanted
        if hasattr(socket, name)
    ]
    if not hasattr(socket, "TCP_NOTSENT_LOWAT"):
        options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_SNDBUF_BYTES))
    return options
