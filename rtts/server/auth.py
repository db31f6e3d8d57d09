"""Who may connect: API keys, web origins and host names.

Pure functions of request headers. A key is compared by its SHA-256 digest in constant time and is
never kept, logged or put into an error. This module knows nothing about sockets or HTTP replies;
it raises what the taxonomy calls the refusal.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from rtts.errors import AuthError, ConfigError, ForbiddenOriginError
from rtts.protocol import native
from rtts.server.options import ServerOptions, parse_ip

Headers = Sequence[tuple[bytes, bytes]]

_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class KeyRing:
    """The API keys a server accepts, as digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Hash the keys.

        Args:
            keys: Each the key itself, or `sha256:` and its hex digest.

        Raises:
            ConfigError: A key is empty, or looks like a digest and is none.
        """
        self._digests = tuple(_digest(key) for key in keys)

    @property
    def is_required(self) -> bool:
        """Whether a client needs a key at all."""
        return bool(self._digests)

    def accepts(self, token: str) -> bool:
        """Whether `token` is one of the keys. Takes as long for a wrong one as for a right one."""
        shown = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        # Every digest is compared, whichever matches.
        return sum(hmac.compare_digest(shown, digest) for digest in self._digests) > 0


def _digest(key: str) -> bytes:
    if key.startswith("sha256:"):
        match = _DIGEST.fullmatch(key)
        if match is None:
            raise ConfigError("server.api_keys: sha256: must be followed by 64 hex digits")
        return bytes.fromhex(match[1])
    if not key.strip():
        raise ConfigError("server.api_keys: a key must not be empty")
    return hashlib.sha256(key.encode()).digest()


class Gate:
    """Decides about one request from its headers."""

    def __init__(self, options: ServerOptions) -> None:
        self.keys = KeyRing(options.api_keys)
        self._origins = frozenset(_origin(text) for text in options.allowed_origins)
        self._origin_hosts = frozenset(host for _, host, _ in self._origins)
        #: The allowed origins as browsers spell them.
        self.origins = tuple(sorted(_spelled(*origin) for origin in self._origins))
        # A page of any site can have its name resolve to 127.0.0.1 (DNS rebinding) and then counts
        # as same-origin. Its Host header still says the name, so where no key stands in the way
        # the name must be ours. (No browser reaches a Unix socket.)
        has_port = options.unix_socket is None and options.is_local
        self._checks_host = has_port and not self.keys.is_required

    def check_host(self, headers: Headers) -> None:
        """Refuse a name that is not this machine's, where that is the only defence.

        Raises:
            ForbiddenOriginError: The Host header names somebody else.
        """
        host = header(headers, b"host")
        if not self._checks_host or not host:
            return
        name = _split_host(host)[0]
        if name == "localhost" or name.endswith(".localhost") or parse_ip(name) is not None:
            return
        if name not in self._origin_hosts:
            raise ForbiddenOriginError(
                f"the host name {name[:64]!r} is not this server's; use localhost, or list its "
                "origin in server.allowed_origins"
            )

    def check_origin(self, headers: Headers) -> None:
        """Refuse pages of other sites.

        Raises:
            ForbiddenOriginError: A browser page of an origin that is neither ours nor listed.
        """
        text = header(headers, b"origin")
        if not text:
            return  # not a browser
        try:
            origin = _origin(text)
        except ConfigError:
            raise ForbiddenOriginError("pages of this origin may not connect") from None
        if origin in self._origins:
            return
        host = header(headers, b"host")
        scheme, name, port = origin
        if host and _split_host(host, _DEFAULT_PORTS.get(scheme)) == (name, port):
            return
        raise ForbiddenOriginError(f"pages of {text[:128]} may not connect")

    def authenticate(
        self, headers: Headers, subprotocols: Sequence[str] = (), more: Sequence[str] = ()
    ) -> bool:
        """Check the key a request shows.

        Args:
            headers: Of the request.
            subprotocols: What it offers.
            more: Keys it shows elsewhere.

        Returns:
            True when the client may go on, False when it showed no key and needs one.

        Raises:
            AuthError: It showed keys and none is right.
        """
        if not self.keys.is_required:
            return True
        shown = [*credentials(headers, subprotocols), *more]
        if any(self.keys.accepts(token) for token in shown):
            return True
        if shown:
            raise AuthError("the API key is not valid")
        return False


def credentials(headers: Headers, subprotocols: Sequence[str] = ()) -> list[str]:
    """The keys a request shows.

    Authorization (Bearer, Token), X-API-Key, xi-api-key (ElevenLabs), rtts.auth.<base64url>.
    """
    shown: list[str] = []
    scheme, _, token = header(headers, b"authorization").partition(" ")
    if scheme.lower() in ("bearer", "token") and token.strip():
        shown.append(token.strip())
    for name in (b"x-api-key", b"xi-api-key"):
        key = header(headers, name).strip()
        if key:
            shown.append(key)
    if any(offer.startswith(native.AUTH_PREFIX) for offer in subprotocols):
        # An offer that cannot be read is a wrong key, not a missing one.
        shown.append(native.auth_token(subprotocols) or "")
    return shown


def header(headers: Headers, name: bytes) -> str:
    """The first value of a header, or "". `name` is lower case."""
    value = next((value for key, value in headers if key.lower() == name), b"")
    return value.decode("latin-1")


def _origin(text: str) -> tuple[str, str, int | None]:
    """(scheme, host, port) of an origin, default port filled in.

    Raises:
        ConfigError: It is not an origin ("null" is not).
    """
    try:
        parts = urlsplit(text.strip().lower())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not parts.scheme or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ConfigError(
            f"server.allowed_origins: {text[:128]!r} is no origin; "
            "one looks like https://app.example.com or http://localhost:3000"
        )
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS.get(parts.scheme)


def _spelled(scheme: str, host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    is_default = port is None or port == _DEFAULT_PORTS.get(scheme)
    return f"{scheme}://{name}" if is_default else f"{scheme}://{name}:{port}"


def _split_host(host: str, default_port: int | None = None) -> tuple[str, int | None]:
    """(name, port) of a Host header; ("", None) when it is malformed."""
    try:
        parts = urlsplit("//" + host.strip().lower())
        return parts.hostname or "", parts.port or default_port
    except ValueError:
        return "", None
