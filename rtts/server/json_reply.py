"""One JSON answer of the HTTP side, never cached. Knows nothing about what is said."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


def json_reply(
    body: dict[str, Any], *, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> Response:
    """An answer that says `body`."""
    response = Response(msgspec.json.encode(body), status, media_type="application/json")
    response.headers["cache-control"] = "no-store"
    response.raw_headers.extend(headers or [])
    return response
