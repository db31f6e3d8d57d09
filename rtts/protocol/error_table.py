"""What each error costs a connection: fatal or not, WebSocket close code, HTTP status.

The one place where the codes of `rtts.errors` become numbers of the wire. Knows nothing about why
an error was raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of the error table.

    Attributes:
        fatal: `always` closes the socket; `connection` closes it when the error is about the
            connection and not about one context; `never` leaves it open.
        close: WebSocket close code, should the socket be closed for it (for `never`: when too
            many of them came, or at the handshake).
        http: HTTP status at the handshake, and of the HTTP surfaces.
    """

    code: str
    fatal: Literal["never", "connection", "always"]
    close: int
    http: int


ERROR_TABLE: tuple[ErrorRow, ...] = (
    ErrorRow("bad_json", "never", 4400, 400),
    ErrorRow("bad_request", "never", 4400, 400),
    ErrorRow("unknown_type", "never", 4400, 400),
    ErrorRow("unknown_ctx", "never", 4400, 400),
    ErrorRow("ctx_exists", "never", 4400, 400),
    ErrorRow("unknown_voice", "never", 4400, 400),
    ErrorRow("unsupported_format", "never", 4400, 400),
    ErrorRow("unsupported_language", "never", 4400, 400),
    ErrorRow("unsupported", "never", 4400, 501),
    ErrorRow("text_too_long", "never", 4400, 413),
    ErrorRow("text_buffer_full", "never", 4400, 429),
    ErrorRow("too_many_contexts", "never", 4429, 429),
    ErrorRow("resume_failed", "never", 4400, 400),
    ErrorRow("message_too_big", "always", 1009, 413),
    ErrorRow("unauthorized", "always", 4401, 401),
    ErrorRow("forbidden_origin", "always", 4403, 403),
    ErrorRow("auth_timeout", "always", 4408, 408),
    ErrorRow("idle_timeout", "always", 4408, 408),
    ErrorRow("slow_consumer", "always", 4408, 408),
    ErrorRow("session_replaced", "always", 4409, 409),
    ErrorRow("rate_limited", "connection", 4429, 429),
    ErrorRow("overloaded", "connection", 1013, 503),
    ErrorRow("shutting_down", "connection", 1012, 503),
    ErrorRow("engine_dead", "never", 1013, 503),
    ErrorRow("utterance_failed", "never", 1011, 500),
    ErrorRow("internal", "connection", 1011, 500),
    ErrorRow("bad_config", "connection", 1011, 500),
)

_ROWS = {row.code: row for row in ERROR_TABLE}

#: Codes that close the socket whatever they are about; `is_fatal` knows the rest.
FATAL: frozenset[str] = frozenset(row.code for row in ERROR_TABLE if row.fatal == "always")


def is_fatal(code: str, *, ctx: str | None = None) -> bool:
    """Whether an error of this code closes the socket; `ctx` is the context it is about."""
    fatal = _ROWS[code].fatal
    return fatal == "always" or (fatal == "connection" and ctx is None)


def close_code(code: str) -> int:
    """The WebSocket close code of an error code; "" (no error) is 1000.

    Raises:
        KeyError: No error of `rtts.errors` has that code.
    """
    return _ROWS[code].close if code else 1000


def http_status(code: str) -> int:
    """The HTTP status of an error code.

    Raises:
        KeyError: No error of `rtts.errors` has that code.
    """
    return _ROWS[code].http
