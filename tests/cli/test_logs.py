from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from rtts.cli import logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every record is one JSON object a line, tracebacks and line breaks included."""
    logs.set_up("info", as_json=True)
    log = logging.getLogger("rtts.test")
    log.info("two\nlines %d", 1)
    log.debug("not this")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    logging.getLogger("rtts.utterance").info("%s", '{"event": "utterance", "chars": 3}')

    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["message"] == "two\nlines 1"
    assert first["logger"] == "rtts.test"
    assert "ValueError: broken" in second["traceback"]
    assert (third["event"], third["chars"], third["level"]) == ("utterance", 3, "info")
    assert third["time"].endswith("+00:00")


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    """For people a record is a line with time, level and name."""
    logs.set_up("warning", as_json=False)
    logging.getLogger("rtts.test").warning("careful")
    logging.getLogger("rtts.test").info("not this")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING rtts.test: careful")


def test_auto(capsys: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal, JSON is the default."""
    logs.set_up("info", as_json=None)
    logging.getLogger("rtts.test").info("x")
    assert json.loads(capsys.readouterr().err)["message"] == "x"


def test_transport_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """What libraries chat about is not logged at info."""
    logs.set_up("info", as_json=True)
    logging.getLogger("uvicorn.error").info("chat")
    assert capsys.readouterr().err == ""
