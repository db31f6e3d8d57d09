"""Finding a server to speak with: one that runs, or one hosted inside the command itself.

Either way the command talks to it over a real socket with the Python client, so that what a user
hears from `rtts say` is what a client of the server hears.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from rtts.cli.failure import CommandError
from rtts.cli.terminal import Progress
from rtts.errors import ConfigError

if TYPE_CHECKING:
    from rtts.settings import Resolved, Settings

NO_SERVER = "none"
_NATIVE_PATH = "/v1/tts"
# Loopback answers in well under a millisecond, and a port nobody listens on refuses at once.
_PROBE_TIMEOUT_S = 0.3
_REQUEST_TIMEOUT_S = 10.0
_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


@dataclass(frozen=True, slots=True)
class Target:
    """A server to speak with.

    Attributes:
        url: Of its native protocol, "ws://127.0.0.1:8765/v1/tts".
        is_ours: It runs inside this command.
    """

    url: str
    api_key: str | None
    is_ours: bool

    def get(self, path: str) -> dict[str, object]:
        """GET a JSON object of its HTTP side; blocks.

        Raises:
            CommandError: It does not answer, or refuses.
        """
        where = urlsplit(self.url)
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        try:
            status, body = _get(where, path, headers, _REQUEST_TIMEOUT_S)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CommandError(f"{where.netloc} does not answer like a server: {error}") from error
        if status != 200:
            error_body = body.get("error")
            message = error_body.get("message") if isinstance(error_body, dict) else None
            raise CommandError(f"{where.netloc} refuses: {message or f'HTTP {status}'}")
        return body


def with_own_engine(resolved: Resolved) -> Settings:
    """The settings; whoever names engine or model in the command wants that one, not a server's."""
    settings = resolved.settings
    names = [key for key in ("engine.kind", "qwen.model") if key in resolved.given]
    is_named = any(resolved.given[key].origin.startswith("--") for key in names)
    if not is_named or settings.client.server:
        return settings
    client = dataclasses.replace(settings.client, server=NO_SERVER)
    return dataclasses.replace(settings, client=client)


@contextlib.asynccontextmanager
async def server_for(settings: Settings, progress: Progress) -> AsyncIterator[Target]:
    """The server to use: the one that was named, or one that runs here, or our own for the time.

    Raises:
        ConfigError: The settings name no usable server, or the engine cannot be had.
    """
    client = settings.client
    key = client.api_key or None
    if client.server not in ("", NO_SERVER):
        yield Target(native_url(client.server), key, is_ours=False)
        return
    if client.server == "" and settings.server.unix_socket is None:
        host = _reachable(settings.server.host)
        if answering_server(host, settings.server.port) is not None:
            url = f"ws://{_bracketed(host)}:{settings.server.port}{_NATIVE_PATH}"
            progress.detail(f"using the server at {url}")
            yield Target(url, key, is_ours=False)
            return
    async with hosted(settings, progress) as target:
        yield target


@contextlib.asynccontextmanager
async def hosted(
    settings: Settings, progress: Progress, *, is_brief: bool = True
) -> AsyncIterator[Target]:
    """A server of our own on a free loopback port, for this command only.

    Args:
        is_brief: A process for the engine is not worth its start.
    """
    from rtts.audio.opus import load_library
    from rtts.cli.engines import make_engine
    from rtts.server import running_server

    if settings.audio.opus_library is not None:
        load_library(str(settings.audio.opus_library))
    key = secrets.token_urlsafe(24)  # others on this machine have no business with it
    options = dataclasses.replace(
        settings.server,
        host="127.0.0.1",
        port=0,
        unix_socket=None,
        api_keys=(key,),
        ssl_certfile=None,
        ssl_keyfile=None,
        prewarm_voices=(),
        dashboard=False,
        dashboard_dir=None,
    )
    engine = make_engine(settings, is_brief=is_brief)
    async with contextlib.AsyncExitStack() as stack:
        running = running_server(
            options,
            engine,
            session_options=settings.session,
            max_backlog_s=settings.engine.max_backlog_s,
        )
        async with progress.waiting(f"loading the {settings.engine.kind} engine"):
            server = await stack.enter_async_context(running)
        yield Target(server.ws_url, key, is_ours=True)


def answering_server(host: str, port: int) -> str | None:
    """Which rtts server answers there ("rtts/0.1.0"); None if none does."""
    if port == 0:
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        name = connection.getresponse().getheader("Server", "")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return name if name.startswith("rtts/") else None


def native_url(server: str) -> str:
    """The native protocol's URL of what a user wrote: a URL of any scheme, or host:port.

    Raises:
        ConfigError: It is neither.
    """
    url = urlsplit(server if "://" in server else f"ws://{server}")
    try:
        is_usable = url.scheme in _SCHEMES and url.hostname and (url.port is None or url.port > 0)
    except ValueError:  # the port is no number
        is_usable = False
    if not is_usable:
        raise ConfigError(f"client.server: {server!r} is not like ws://host:8765 or host:8765")
    path = url.path if url.path.strip("/") else _NATIVE_PATH
    return f"{_SCHEMES[url.scheme]}://{url.netloc}{path}"


def _get(
    where: SplitResult, path: str, headers: dict[str, str], timeout_s: float
) -> tuple[int, dict[str, object]]:
    is_secure = where.scheme == "wss"
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = kind(where.hostname or "", where.port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        if not isinstance(body, dict):
            raise ValueError("not a JSON object")
        return response.status, body
    finally:
        connection.close()


def _reachable(host: str) -> str:
    """Where a server that listens on `host` can be reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
