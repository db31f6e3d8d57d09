"""The JavaScript client and the page to try it, as files: `/js/` and `/try/`.

They hold no secret, need no key and fetch nothing from anywhere else. Knows nothing about sessions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from rtts.server.dashboard import PageFiles

#: What needs no key.
OPEN_PATHS: Final = ("/js", "/try")

# Nothing but our own files; the wasm decoder has to be compiled.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def routes() -> list[BaseRoute]:
    """Where the files are served."""
    return [
        Route("/try", _to_directory),
        Mount("/try", PageFiles(_directory("try"), _POLICY)),
        Mount("/js", PageFiles(_directory("src"), _POLICY)),
    ]


def _directory(name: str) -> Path:
    """The files of `clients/js/{name}`: in the installed package, or in the source tree."""
    packed = Path(__file__).parent / "browser" / name
    return packed if packed.is_dir() else Path(__file__).parents[2] / "clients" / "js" / name


async def _to_directory(request: Request) -> Response:
    return RedirectResponse(request.url.path + "/", status_code=308)
