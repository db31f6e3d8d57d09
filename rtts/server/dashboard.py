"""The dashboard's files: where they are, and how they are served.

They hold no secret, need no key and fetch nothing from anywhere else. Knows nothing about what the
page does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

# The page loads its own files and talks to its own server, and nobody puts it in a frame: what a
# client named its context can then do no harm, even if a bug let it into the markup.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",  # asks each time, and is answered 304 until rtts is upgraded
}


class PageFiles(StaticFiles):
    """Static files with the headers of a page that shows other people's names."""

    def __init__(self, directory: Path, policy: str = _POLICY) -> None:
        super().__init__(directory=directory, html=True)
        self._headers = _HEADERS | {"content-security-policy": policy}

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """See `StaticFiles`."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(self._headers)
        return response


def dashboard_dir() -> Path:
    """Where the dashboard's files are: in the installed package, or in the source tree."""
    packed = Path(__file__).parent / "browser" / "dashboard"
    source = Path(__file__).parents[2] / "clients" / "dashboard"
    return packed if packed.is_dir() else source
