"""The dialect `rtts.v1`: messages to wire and back.

Two subprotocols share every message: `rtts.v1` sends audio as binary messages behind a 24-byte
header, `rtts.v1.json` sends it as base64 inside JSON. This module does not know sockets, sessions,
HTTP or the order in which messages may come; it knows what one message may look like.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from rtts.errors import (
    BadRequestError,
    ProtocolError,
    UnknownTypeError,
    UnsupportedFormatError,
)
from rtts.protocol import reading
from rtts.protocol.audio_message import join_packets, pack_audio, split_packets, unpack_audio
from rtts.protocol.error_table import (
    ERROR_TABLE,
    FATAL,
    ErrorRow,
    close_code,
    http_status,
    is_fatal,
)
from rtts.protocol.events import (
    AnyClientMessage,
    AnyServerMessage,
    Audio,
    Auth,
    Cancel,
    Close,
    End,
    Flush,
    Ping,
    Playback,
    Resume,
    Start,
    StatsRequest,
    Text,
)

__all__ = [
    "AUTH_PREFIX",
    "ERROR_TABLE",
    "FATAL",
    "SUBPROTOCOLS",
    "ErrorRow",
    "NativeCodec",
    "auth_token",
    "check",
    "close_code",
    "http_status",
    "is_fatal",
    "join_packets",
    "negotiate",
    "pack_audio",
    "split_packets",
    "unpack_audio",
]

SUBPROTOCOLS = ("rtts.v1", "rtts.v1.json")
AUTH_PREFIX = "rtts.auth."

# --- subprotocol negotiation ---------------------------------------------------------------------


def negotiate(offered: Sequence[str]) -> str | None:
    """Choose the subprotocol: the client's first that the server speaks.

    Args:
        offered: The values of Sec-WebSocket-Protocol, in the client's order.

    Returns:
        The subprotocol to speak, "rtts.v1" without an offer (`rtts.auth.*` offers nothing to
        speak), or None when nothing offered is known. A server may answer only with a value that
        was offered (RFC 6455 section 4.2.2), so without an offer it answers none.
    """
    spoken = [name for name in offered if not name.startswith(AUTH_PREFIX)]
    if not spoken:
        return SUBPROTOCOLS[0]
    return next((name for name in spoken if name in SUBPROTOCOLS), None)


def auth_token(offered: Iterable[str]) -> str | None:
    """The API key in an offered `rtts.auth.<base64url without padding>`, for browsers.

    Returns:
        The key of the first such offer; None without one, or when it is not the canonical
        base64url of non-empty UTF-8.
    """
    coded = next((name for name in offered if name.startswith(AUTH_PREFIX)), "")
    coded = coded.removeprefix(AUTH_PREFIX)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", coded):
        return None
    try:
        raw = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
        token = raw.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    is_canonical = base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == coded
    return token if is_canonical else None


# --- messages ------------------------------------------------------------------------------------

_CLIENT_TYPES: dict[str, type[AnyClientMessage]] = {
    "start": Start,
    "text": Text,
    "flush": Flush,
    "end": End,
    "cancel": Cancel,
    "playback": Playback,
    "ping": Ping,
    "resume": Resume,
    "stats": StatsRequest,
    "close": Close,
    "auth": Auth,
}


class NativeCodec:
    """Decodes client messages and encodes server messages of one connection. Stateless."""

    __slots__ = ("_is_binary", "subprotocol")

    def __init__(self, subprotocol: str = SUBPROTOCOLS[0]) -> None:
        if subprotocol not in SUBPROTOCOLS:
            raise ValueError(f"unknown subprotocol {subprotocol!r}")
        self.subprotocol = subprotocol
        self._is_binary = subprotocol == "rtts.v1"

    def decode(self, data: str | bytes) -> AnyClientMessage:
        r"""Decode and check one message of a client.

        A lone surrogate escape (`"\ud83d"`, half a character a client cut in two) is legal JSON and
        arrives as such in `text`; unknown fields are ignored; of a repeated field the last counts.

        Args:
            data: JSON text; as bytes UTF-8.

        Raises:
            MalformedJsonError: Not JSON, not an object, nested too deep, NaN or Infinity.
            UnknownTypeError: `type` is missing or unknown.
            UnsupportedFormatError: An audio format no server of this version makes.
            BadRequestError: A field is missing, of the wrong type, or out of range.
            All carry `ctx`, `ref` and `message_type` where the message lets them be read.
        """
        try:
            message = _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            message = _decode_carefully(data)
        if message.id is not None and _has_controls(message.id):
            _refuse(message, "id: control characters are not allowed")
        _CHECKS[type(message)](message)
        return message

    def encode(self, message: AnyServerMessage) -> str | bytes:
        """Encode one message: bytes for a binary WebSocket message, str for a text message."""
        if self._is_binary and type(message) is Audio:
            return pack_audio(message)
        return reading.encode(message)


def check(message: AnyClientMessage) -> AnyClientMessage:
    """Check a message that was made in Python (by another dialect) as if it had been decoded.

    Raises:
        ProtocolError: As `NativeCodec.decode`.
    """
    try:
        checked = msgspec.convert(msgspec.to_builtins(message), type(message))
    except msgspec.ValidationError as error:
        fields = msgspec.structs.asdict(message) | {"type": _tag(message)}
        raise _about(fields, _explain(type(message), str(error))) from None
    if checked.id is not None and _has_controls(checked.id):
        _refuse(checked, "id: control characters are not allowed")
    _CHECKS[type(checked)](checked)
    return checked


_DECODER: msgspec.json.Decoder[AnyClientMessage] = msgspec.json.Decoder(AnyClientMessage)


def _decode_carefully(data: str | bytes) -> AnyClientMessage:
    """Decode what the fast decoder refused: name what is wrong, or find that nothing is."""
    fields = reading.load_object(data)
    tag = fields.get("type")
    if not isinstance(tag, str):
        raise _about(fields, UnknownTypeError("the message has no `type`"))
    if tag not in _CLIENT_TYPES:
        known = ", ".join(_CLIENT_TYPES)
        raise _about(fields, UnknownTypeError(f"unknown type {tag[:64]!r}; known are {known}"))
    try:
        return msgspec.convert(fields, _CLIENT_TYPES[tag])
    except msgspec.ValidationError as error:
        raise _about(fields, _explain(_CLIENT_TYPES[tag], str(error))) from None


# --- what the types cannot say -------------------------------------------------------------------

# C0, DEL and lone surrogates have no place in an identifier that goes to logs and back.
_CONTROLS = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
# Lower bounds that leave 0 free for its own meaning.
_MIN_LEAD_MS = 1000
_MIN_STATS_INTERVAL_MS = 100


def _has_controls(name: str) -> bool:
    return not name.isprintable() and _CONTROLS.search(name) is not None


def _check_nothing(message: Any) -> None:
    pass


def _check_ctx(message: Any) -> None:
    if _has_controls(message.ctx):
        _refuse(message, "ctx: control characters are not allowed")


def _check_text(message: Text) -> None:
    _check_ctx(message)
    if "\x00" in message.text:
        _refuse(message, "text: NUL is not allowed")


def _check_start(message: Start) -> None:
    _check_ctx(message)
    lead_ms = message.max_lead_ms
    if lead_ms is not None and 0 < lead_ms < _MIN_LEAD_MS:
        _refuse(message, f"max_lead_ms: 0 or at least {_MIN_LEAD_MS}")
    for name in ("voice", "language", "instructions"):
        if "\x00" in (getattr(message, name) or ""):
            _refuse(message, f"{name}: NUL is not allowed")


def _check_cancel(message: Cancel) -> None:
    if message.ctx is not None:
        _check_ctx(message)
    elif not message.all:
        _refuse(message, "cancel: name `ctx` or set `all`")


def _check_stats(message: StatsRequest) -> None:
    interval_ms = message.interval_ms
    if interval_ms is not None and 0 < interval_ms < _MIN_STATS_INTERVAL_MS:
        _refuse(message, f"interval_ms: 0 or at least {_MIN_STATS_INTERVAL_MS}")


_CHECKS: dict[type, Callable[[Any], None]] = {
    Start: _check_start,
    Text: _check_text,
    Flush: _check_ctx,
    End: _check_ctx,
    Cancel: _check_cancel,
    Playback: _check_ctx,
    Ping: _check_nothing,
    Resume: _check_nothing,
    StatsRequest: _check_stats,
    Close: _check_nothing,
    Auth: _check_nothing,
}

# --- errors about a message ----------------------------------------------------------------------

_ErrorT = TypeVar("_ErrorT", bound=ProtocolError)
_FORMAT_CHOICES = ("format.codec", "format.container", "format.frame_ms")


def _refuse(message: AnyClientMessage, text: str) -> NoReturn:
    raise _about(msgspec.structs.asdict(message) | {"type": _tag(message)}, BadRequestError(text))


def _tag(message: AnyClientMessage) -> str:
    return str(message.__struct_config__.tag)


def _about(fields: dict[str, Any], error: _ErrorT) -> _ErrorT:
    """Note on the error which message it is about, as far as that can be read."""
    error.ctx = _identifier(fields.get("ctx")) or None
    error.ref = _identifier(fields.get("id"))
    tag = fields.get("type")
    error.message_type = tag if isinstance(tag, str) and tag in _CLIENT_TYPES else None
    return error


def _identifier(value: object) -> str | None:
    if isinstance(value, str) and len(value) <= 128 and not _has_controls(value):
        return value
    return None


def _explain(message_type: type, complaint: str) -> ProtocolError:
    """Turn msgspec's complaint into one that names the field first."""
    path, what = reading.explain(message_type, complaint)
    if not path:
        return BadRequestError(what)
    if path in _FORMAT_CHOICES and what.startswith("invalid enum value"):
        return UnsupportedFormatError(f"{path}: {what}")
    return BadRequestError(f"{path}: {what}")
