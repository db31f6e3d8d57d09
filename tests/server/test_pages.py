"""The JavaScript client and its page, served."""

from __future__ import annotations

import httpx
import pytest

from rtts.server import ServerOptions
from tests.clients.js.serving import serving


@pytest.mark.parametrize("keys", [(), ("secret",)])
async def test_the_client_is_served_to_everybody(keys: tuple[str, ...]) -> None:
    """Page and modules need no key, come as what they are, and may load nothing from elsewhere."""
    options = ServerOptions(port=0, api_keys=keys)
    async with serving(options) as server, httpx.AsyncClient(base_url=server.url) as http:
        for path, kind in {
            "/try/": "text/html",
            "/try/try.js": "text/javascript",
            "/js/index.js": "text/javascript",
            "/js/jitter.js": "text/javascript",
            "/js/vendor/opus-decoder.min.js": "text/javascript",
        }.items():
            answer = await http.get(path)
            assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "http" not in policy
            again = await http.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
        assert (await http.get("/try")).headers["location"] == "/try/"


@pytest.mark.parametrize(
    "path", ["/js/none.js", "/js/../server/http.py", "/js/%2e%2e/package.json"]
)
async def test_nothing_else_is_served(path: str) -> None:
    """What is not there, or lies beside it, is not found."""
    async with serving() as server, httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get(path)).status_code == 404
