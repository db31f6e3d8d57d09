from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rtts.cli.failure import CommandError
from rtts.cli.servers import Target, answering_server, native_url
from rtts.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("localhost:8765", "ws://localhost:8765/v1/tts"),
        ("10.0.0.1", "ws://10.0.0.1/v1/tts"),
        ("[::1]:8765", "ws://[::1]:8765/v1/tts"),
        ("http://h:1", "ws://h:1/v1/tts"),
        ("http://h:1/", "ws://h:1/v1/tts"),
        ("https://h", "wss://h/v1/tts"),
        ("wss://h/speech/v1/tts", "wss://h/speech/v1/tts"),
    ],
)
def test_native_url(written: str, url: str) -> None:
    """Every way to write a server's address leads to its native protocol."""
    assert native_url(written) == url


@pytest.mark.parametrize("written", ["ftp://h", "http://", "h:port", "h:99999", "://", "ws://:1"])
def test_no_url(written: str) -> None:
    """What is no address is refused, with an example."""
    with pytest.raises(ConfigError, match=r"client\.server: .* ws://host:8765"):
        native_url(written)


class Other(BaseHTTPRequestHandler):
    """Something that is no rtts server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *args: object) -> None:
        pass


def test_probe_of_another_server() -> None:
    """Another program on the port is not taken for a server, and asking it fails clearly."""
    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert answering_server("127.0.0.1", other.server_port) is None
            target = Target(f"ws://127.0.0.1:{other.server_port}/v1/tts", None, is_ours=False)
            with pytest.raises(CommandError, match="does not answer like a server"):
                target.get("/v1/voices")
        finally:
            other.shutdown()
            thread.join()


def test_probe_is_quick() -> None:
    """A port that nobody listens on, or where nobody answers, costs less than half a second."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        assert answering_server("127.0.0.1", silent.getsockname()[1]) is None
        assert answering_server("127.0.0.1", 1) is None
        assert answering_server("127.0.0.1", 0) is None
        assert time.monotonic() - began < 0.5


def test_voices_of_a_server_that_is_not_there(rtts: Callable[..., object]) -> None:
    """`rtts voices --server` of nobody ends with 1 and one line."""
    outcome = rtts("voices", "--server", "127.0.0.1:1")
    assert outcome.status == 1
    assert outcome.err.startswith("rtts: 127.0.0.1:1 does not answer")
