"""uvicorn's protocols on sockets of our own, without uvicorn's server loop.

`uvicorn.Server` takes the signals, polls ten times a second and closes every WebSocket the moment
it is asked to stop; a server that lets speech finish needs none of that. What is left of it is
here: configuration, sockets, the Date header, and closing. Knows nothing about routes or sessions.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
import stat
import sys
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from rtts import __version__
from rtts.errors import ConfigError
from rtts.server.http_protocol import HttpProtocol
from rtts.server.options import ServerOptions
from rtts.server.transport import WebSocketProtocol
from rtts.server.websocket import TransportOptions

BACKLOG = 2048
# A ping from the server keeps NAT mappings and proxies alive; who must answer is told apart by
# the app (`Socket.expect_pongs`), since pooled sockets of some agent frameworks never do.
PING_INTERVAL_S = 20.0
# Room above the sessions for probes, scrapes, watchers and half-open handshakes.
SPARE_CONNECTIONS = 512
_DATE_INTERVAL_S = 1.0
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class _Connections(set[Any]):
    """uvicorn's set of open connections, which says when it is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    def add(self, connection: Any) -> None:
        super().add(connection)
        self.is_empty.clear()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if not self:
            self.is_empty.set()

    def remove(self, connection: Any) -> None:
        self.discard(connection)


class Listener:
    """Listening sockets and the connections they brought.

    Owner: event loop.
    """

    def __init__(
        self,
        app: Any,
        options: ServerOptions,
        *,
        max_message_bytes: int,
        transport: TransportOptions | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            app: The ASGI application.
            options: Where to listen.
            max_message_bytes: Largest WebSocket message handed to the app; a larger one closes the
                connection with 1009.
            transport: Limits below the protocol.
        """
        self._options = options
        self._config = uvicorn.Config(
            app,
            loop="none",
            http=cast(Any, functools.partial(
                HttpProtocol,
                head_timeout_s=options.handshake_timeout_s,
                max_connections=options.max_sessions + SPARE_CONNECTIONS,
            )),
            ws=cast(Any, functools.partial(WebSocketProtocol, limits=transport)),
            ws_max_size=max_message_bytes,
            ws_ping_interval=PING_INTERVAL_S,
            ws_ping_timeout=None,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            # uvicorn logs request lines with their query, which may hold a token.
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            headers=[("server", f"rtts/{__version__}")],
            ssl_certfile=options.ssl_certfile,
            ssl_keyfile=options.ssl_keyfile,
        )  # fmt: skip
        self._connections = _Connections()
        self._state = ServerState()
        self._state.connections = self._connections
        self._servers: list[asyncio.AbstractServer] = []
        self._sockets: list[socket.socket] = []
        self._date_timer: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Where to find the server: "http://127.0.0.1:8765", or "unix:/path". Valid once open."""
        if self._options.unix_socket is not None:
            return f"unix:{self._options.unix_socket}"
        scheme = "https" if self._options.ssl_certfile else "http"
        host, port = self._sockets[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def open(self) -> None:
        """Listen.

        Raises:
            ConfigError: The address cannot be used; the message says why and what to do.
        """
        self._load()
        loop = asyncio.get_running_loop()
        create = functools.partial(
            cast(Any, self._config.http_protocol_class),
            config=self._config, server_state=self._state, app_state={},
        )  # fmt: skip
        tls: dict[str, Any] = {}
        if self._config.ssl is not None:
            limit_s = self._options.handshake_timeout_s
            tls = {"ssl": self._config.ssl, "ssl_handshake_timeout": limit_s}
        self._refresh_date()
        if self._options.unix_socket is not None:
            self._sockets = [_bind_unix(self._options.unix_socket)]
            server = await loop.create_unix_server(create, sock=self._sockets[0], **tls)
            self._servers.append(server)
            return
        self._sockets = await _bind_tcp(self._options.host, self._options.port)
        for sock in self._sockets:
            server = await loop.create_server(create, sock=sock, backlog=BACKLOG, **tls)
            self._servers.append(server)

    def stop_listening(self) -> None:
        """Take no new connection; open ones go on."""
        for server in self._servers:
            server.close()
        if self._options.unix_socket is not None and self._servers:
            self._options.unix_socket.unlink(missing_ok=True)
        self._servers.clear()

    async def close(self, *, grace_s: float) -> None:
        """Close every connection: politely, then after `grace_s` for good."""
        self.stop_listening()
        if self._date_timer is not None:
            self._date_timer.cancel()
        for connection in list(self._connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(grace_s):
                await self._connections.is_empty.wait()
        except TimeoutError:
            self.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        """Drop every connection without a word."""
        for connection in list(self._connections):
            connection.transport.abort()

    def _load(self) -> None:
        if self._config.loaded:
            return
        try:
            self._config.load()
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(f"server.ssl_certfile cannot be used: {error}") from None

    def _refresh_date(self) -> None:
        # RFC 9110 section 6.6.1: an origin server with a clock sends Date.
        date = format_datetime(datetime.now(UTC), usegmt=True).encode()
        self._state.default_headers = [(b"date", date), *self._config.encoded_headers]
        loop = asyncio.get_running_loop()
        self._date_timer = loop.call_later(_DATE_INTERVAL_S, self._refresh_date)


async def _bind_tcp(host: str, port: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise ConfigError(f"server.host is {host!r}, which is no address: {error}") from None
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        if sockets and port == 0:  # "localhost" may be two addresses; one port for both
            address = (address[0], sockets[0].getsockname()[1], *address[2:])
        try:
            sockets.append(_listening(family, address))
        except OSError as error:
            absent = error
            if error.errno not in _NO_SUCH_ADDRESS:  # a host without IPv6 still has "localhost"
                break
    if not sockets or (absent is not None and absent.errno not in _NO_SUCH_ADDRESS):
        for sock in sockets:
            sock.close()
        reason = absent.strerror if absent is not None else "no address"
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; {_rival(absent, 'stop it')}choose another "
            "server.port (--port) or server.host"
        )
    return sockets


def _listening(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_unix(path: Path) -> socket.socket:
    """Bind a Unix socket that only this user can open; a dead one in its place is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()
        sock.bind(str(path))
        path.chmod(0o600)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"cannot listen on {path}: {error.strerror or error}; "
            f"{_rival(error, 'remove the file')}choose another server.unix_socket"
        ) from None
    return sock


def _rival(error: OSError | None, remedy: str) -> str:
    """What to do about whoever is there already, if somebody is."""
    is_taken = error is not None and error.errno == errno.EADDRINUSE
    return f"is another server running there? Then {remedy}, or " if is_taken else ""
