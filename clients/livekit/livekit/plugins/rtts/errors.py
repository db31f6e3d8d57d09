"""What LiveKit calls the errors of rtts; its class says whether it tries again."""

from __future__ import annotations

from livekit.agents import APIConnectionError, APIError, APIStatusError
from rtts_client import ConnectError, ConnectionLostError, RttsError

# HTTP status of each code that ends a reply, as in docs/protocol/rtts-v1.md. LiveKit tries again after
# 408, 429 and 5xx.
_STATUS = {
    "bad_request": 400,
    "unknown_voice": 400,
    "unsupported_format": 400,
    "unsupported_language": 400,
    "unauthorized": 401,
    "forbidden_origin": 403,
    "auth_timeout": 408,
    "text_too_long": 413,
    "too_many_contexts": 429,
    "rate_limited": 429,
    "utterance_failed": 500,
    "internal": 500,
    "overloaded": 503,
    "engine_dead": 503,
    "shutting_down": 503,
    "shutdown": 503,
}


def api_error(error: RttsError, request_id: str) -> APIError:
    """The same error as LiveKit knows it."""
    text = f"rtts: {error}"
    status = error.status if isinstance(error, ConnectError) else _STATUS.get(error.code)
    if status is not None:
        return APIStatusError(text, status_code=status, request_id=request_id)
    if isinstance(error, ConnectError | ConnectionLostError) or error.code == "resume_failed":
        return APIConnectionError(text)
    return APIError(text)
