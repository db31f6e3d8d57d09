"""What Pipecat calls the errors of rtts; it gives up on a service for some kinds of them."""

from __future__ import annotations

from pipecat.utils.errors import ErrorCategory, classify_http_status_code
from rtts_client import ConnectError, ConnectionLostError, RttsError

# Codes of docs/protocol/rtts-v1.md. Pipecat takes an invalid request for one that fails every time,
# so only what a setting is to blame for is one.
_CATEGORIES = {
    "unauthorized": ErrorCategory.AUTHENTICATION,
    "auth_timeout": ErrorCategory.AUTHENTICATION,
    "forbidden": ErrorCategory.AUTHORIZATION,
    "forbidden_origin": ErrorCategory.AUTHORIZATION,
    "unknown_voice": ErrorCategory.INVALID_REQUEST,
    "unsupported_format": ErrorCategory.INVALID_REQUEST,
    "unsupported_language": ErrorCategory.INVALID_REQUEST,
    "bad_request": ErrorCategory.INVALID_REQUEST,
    "rate_limited": ErrorCategory.RATE_LIMIT,
    "too_many_contexts": ErrorCategory.RATE_LIMIT,
    "overloaded": ErrorCategory.RATE_LIMIT,
    "resume_failed": ErrorCategory.CONNECTIVITY,
    "shutting_down": ErrorCategory.CONNECTIVITY,
    "shutdown": ErrorCategory.CONNECTIVITY,
}


def category_of(error: RttsError) -> ErrorCategory:
    """The kind of an error, as Pipecat knows it."""
    known = _CATEGORIES.get(error.code)
    if known is not None:
        return known
    if isinstance(error, ConnectError) and error.status is not None:
        return classify_http_status_code(error.status)
    if isinstance(error, ConnectError | ConnectionLostError):
        return ErrorCategory.CONNECTIVITY
    return ErrorCategory.SERVER
