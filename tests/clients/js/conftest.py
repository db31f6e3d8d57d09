"""Node, its packages and a Chromium; where they are missing the tests say how to get them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.clients.js.browser import CLIENT, Browser


def missing(what: str) -> None:
    """Skip, but not where CI must see it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} (and CI must run this)")
    pytest.skip(what)


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node, whose packages are installed."""
    path = shutil.which("node")
    if path is None:
        missing("there is no node: install nodejs 20 or newer and npm")
    if not (CLIENT / "node_modules").is_dir():
        missing("packages are missing: npm ci in clients/js")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def chromium(node: str) -> str:
    """The path of Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        missing("there is no Chromium: apt-get install chromium, or your system's package")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser that may play at once."""
    made = Browser(chromium, "--autoplay-policy=no-user-gesture-required")
    yield made
    made.close()
