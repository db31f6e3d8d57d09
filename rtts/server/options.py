"""What an operator can set about the server: where it listens, who may connect, how many."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from rtts.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where the server listens, whom it lets in and how it stops.

    Attributes:
        host: Address to listen on. Anything but loopback needs `api_keys`, or `insecure`.
        port: TCP port; 0 takes a free one.
        unix_socket: Listen on this path instead of host and port, for a proxy on the same machine.
        api_keys: Keys of which a client must show one; none means that everybody is let in. A key
            may be given as `sha256:` and the hex digest of it, so that the file holds no secret.
        allowed_origins: Web origins (scheme://host[:port]) whose pages may connect, besides the
            server's own.
        insecure: Allow an address other than loopback without keys.
        max_sessions: Conversations at once; more are refused with 503. Most listen only now and
            then: far fewer can be spoken to at the same moment.
        max_sessions_per_ip: Conversations at once of one client address (IPv6: one /64); more are
            refused with 429. Clients on the same machine are not counted: they are the owner's own,
            or a proxy.
        drain_timeout_s: How long running speech may go on after SIGTERM.
        handshake_timeout_s: A connection that has sent no complete request by then is closed.
        auth_timeout_s: How long a browser that connected without a key has to send one.
        ssl_certfile: PEM certificate chain; serves https and wss itself.
        ssl_keyfile: Its private key, unless the certificate file holds it.
        prewarm_voices: Voices to load and try before the server says ready; none means the default
            voice.
        dashboard: Serve the page that shows latencies, at /dashboard/. It holds no figures itself:
            they come over `/v1/stats`, which needs a key where the server needs keys.
        dashboard_dir: Serve this directory of static files there instead of the page rtts has.
        record_file: CSV file to which every finished context adds a row, for `rtts report`.
        record_max_mb: Size, in MB, at which that file is put aside as FILE.1 and begun anew.
        record_keep: How many files put aside are kept.
        otlp_endpoint: Where traces go, as OTLP over HTTP ("http://localhost:4318/v1/traces"); needs
            the extra `otel`. None means that no traces are made.
        encoder_threads: Threads that encode Opus for several listeners at once; unset, `rtts serve`
            takes half of the cores that the loop and an engine leave, at most 8, or none where the
            engine shares its process. 0 or 1: the loop encodes by itself.
        log_json: Write the line about each utterance as JSON; unset, where stderr is no terminal.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    unix_socket: Path | None = None
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    max_sessions: int = 512
    max_sessions_per_ip: int = 128
    drain_timeout_s: float = 20.0
    handshake_timeout_s: float = 10.0
    auth_timeout_s: float = 5.0
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    prewarm_voices: tuple[str, ...] = ()
    dashboard: bool = True
    dashboard_dir: Path | None = None
    record_file: Path | None = None
    record_max_mb: float = 64.0
    record_keep: int = 9
    otlp_endpoint: str = ""
    encoder_threads: int | None = None
    log_json: bool | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.unix_socket is not None or is_loopback(self.host)

    def check(self) -> None:
        """Refuse what must not be started.

        Raises:
            ConfigError: The setting, and what would be right.
        """
        if not self.is_local and not self.api_keys and not self.insecure:
            raise ConfigError(
                f"server.host is {self.host!r}, which other machines can reach, and there are no "
                "server.api_keys: set keys, or listen on 127.0.0.1, or say server.insecure = true "
                "(--insecure) if everybody who can reach it may use it"
            )
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"server.port is {self.port}, it must be 0 to 65535")
        if self.max_sessions < 1 or self.max_sessions_per_ip < 1:
            raise ConfigError(
                "server.max_sessions and server.max_sessions_per_ip must be 1 or more"
            )
        if self.encoder_threads is not None and self.encoder_threads < 0:
            raise ConfigError("server.encoder_threads must be 0 or more")
        for name in ("handshake_timeout_s", "auth_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"server.{name} must be more than 0")
        if self.record_max_mb < 0.01 or self.record_keep < 1:
            raise ConfigError(
                "server.record_max_mb must be at least 0.01 and server.record_keep at least 1"
            )
        self._check_files()

    def _check_files(self) -> None:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("server.ssl_keyfile is set but server.ssl_certfile is not")
        for name in ("ssl_certfile", "ssl_keyfile", "dashboard_dir"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.exists():
                raise ConfigError(f"server.{name} is {path}, which does not exist")


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine only ("localhost", 127.0.0.0/8, ::1)."""
    if host.lower() == "localhost":
        return True
    address = parse_ip(host)
    return address is not None and address.is_loopback


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address `text` spells, IPv4 in IPv6 unwrapped; None when it is a name or nothing."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
