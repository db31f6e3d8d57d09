"""The WebSocket below the protocol: fast road, plain ASGI, and peers without manners."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError

from rtts.server.listener import Listener
from rtts.server.options import ServerOptions
from rtts.server.websocket import EXTENSION, TransportOptions, clip_reason
from tests.server.raw import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    RawClient,
    eventually,
    frame,
    handshake,
)

MAX_BYTES = 65_536


class Echo:
    """A handler that notes what it is called with, and answers."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self.calls: list = []
        self.lost = asyncio.get_running_loop().create_future()

    def on_text(self, data: bytes) -> None:
        self.calls.append(("text", data))
        self.socket.send_now(data.decode())

    def on_binary(self) -> None:
        self.calls.append(("binary",))

    def on_marker(self, number: int, rtt_s: float) -> None:
        self.calls.append(("marker", number, rtt_s))

    def on_writable(self) -> None:
        self.calls.append(("writable",))

    def on_lost(self, code: int, reason: str) -> None:
        assert not self.lost.done(), "told of the loss twice"
        self.lost.set_result((code, reason))


class App:
    """Upgrades every path; `/plain` by plain ASGI."""

    def __init__(self) -> None:
        self.handlers: list[Echo] = []
        self.plain: list = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        await receive()
        if scope["path"] == "/late":
            await asyncio.sleep(0.05)
        await send({"type": "websocket.accept"})
        if scope["path"] == "/plain":
            while (message := await receive())["type"] != "websocket.disconnect":
                self.plain.append(message)
                await send({"type": "websocket.send", "text": message.get("text") or "binary"})
            self.plain.append(message)
            return
        echo = Echo(scope["extensions"][EXTENSION])
        self.handlers.append(echo)
        echo.socket.attach(echo)
        await echo.lost

    async def handler(self) -> Echo:
        await eventually(lambda: self.handlers)
        return self.handlers[-1]


@contextlib.asynccontextmanager
async def listening(limits: TransportOptions | None = None, **options):
    app = App()
    listener = Listener(
        app,
        ServerOptions(port=0, **options),
        max_message_bytes=MAX_BYTES,
        transport=limits or TransportOptions(close_timeout_s=0.3),
    )
    await listener.open()
    try:
        yield listener.url, app
    finally:
        await listener.close(grace_s=1.0)


async def test_messages_go_both_ways_on_the_fast_road():
    """A handler gets each message whole, and what it sends arrives."""
    async with listening() as (url, app), connect("ws" + url[4:]) as ws:
        for text in ("hello", "", "grüße 👋", "x" * MAX_BYTES):
            await ws.send(text)
            assert await ws.recv() == text
        await ws.send(["frag", "men", "ted"])
        assert await ws.recv() == "fragmented"
        assert ("binary",) not in app.handlers[0].calls


async def test_plain_asgi_still_works():
    """An app that attaches nothing gets the ASGI messages it expects."""
    async with listening() as (url, app):
        async with connect("ws" + url[4:] + "/plain") as ws:
            await ws.send("a")
            assert await ws.recv() == "a"
            await ws.send(b"b")
            assert await ws.recv() == "binary"
        await eventually(lambda: app.plain[-1]["type"] == "websocket.disconnect")
        assert app.plain[-1]["code"] == 1000


async def test_what_arrives_before_the_handler_is_kept():
    """Messages that came before `attach` are told after it, and reading goes on."""
    async with listening() as (url, app):
        client = await RawClient.connect(url)
        client.send(handshake("/late"))
        await asyncio.sleep(0.01)
        client.send(frame(TEXT, b"early"), frame(BINARY, b"x"))
        handler = await app.handler()
        assert handler.calls == [("text", b"early"), ("binary",)]
        client.send(frame(TEXT, b"later"))
        await eventually(lambda: ("text", b"later") in handler.calls)
        await client.close()


async def test_a_peer_that_leaves_before_it_is_accepted_leaves_nothing():
    """The app is told by ASGI, and no handler is attached."""
    async with listening() as (url, app):
        client = await RawClient.connect(url)
        client.send(handshake("/late"))
        await asyncio.sleep(0.01)
        client.send(frame(CLOSE, struct.pack("!H", 1001)))
        assert await client.at_end()
        await asyncio.sleep(0.1)
        assert not app.handlers
        await client.close()


@given(st.text(max_size=200))
def test_close_reasons_fit_a_control_frame(reason):
    """A close reason is at most 123 bytes of valid UTF-8, and a prefix of what was given."""
    clipped = clip_reason(reason)
    assert len(clipped.encode()) <= 123
    assert reason.startswith(clipped)


async def test_a_marker_is_answered_by_the_peers_websocket_layer():
    """Markers come back in order with a round trip; forged and repeated pongs are ignored."""
    async with listening() as (url, app), connect("ws" + url[4:]) as ws:
        handler = await app.handler()
        handler.socket.send_marker(1)
        handler.socket.send_marker(2**40)
        await eventually(lambda: len(handler.calls) == 2)
        assert [call[:2] for call in handler.calls] == [("marker", 1), ("marker", 2**40)]
        assert all(0 <= call[2] < 1 for call in handler.calls)
        await ws.pong(struct.pack("!2sHI", b"rm", 0, 1))  # again
        await ws.pong(struct.pack("!2sHI", b"rm", 0, 77))  # never sent
        await ws.pong(b"rm")
        await ws.send("after")
        assert await ws.recv() == "after"
        assert handler.calls[2:] == [("text", b"after")]


async def test_the_latest_pong_answers_earlier_markers():
    """RFC 6455 5.5.3 lets a peer answer only the latest ping."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        handler = await app.handler()
        payloads = []
        for number in (1, 2, 3):
            handler.socket.send_marker(number)
            payloads.append((await client.frame())[1])
        client.send(frame(PONG, payloads[2]), frame(PONG, payloads[0]))
        await eventually(lambda: handler.calls)
        await asyncio.sleep(0.02)
        assert [call[1] for call in handler.calls] == [3]
        await client.close()


async def test_a_marker_counts_as_a_sign_of_life():
    """A peer that answers a later marker instead of the keepalive ping is not cut off."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        handler = await app.handler()
        transport = handler.socket
        transport.ping_interval, transport.ping_timeout = 0.05, 0.1
        transport.schedule_ping()
        opcode, keepalive = await client.frame()
        assert opcode == PING and len(keepalive) == 4
        for number in range(1, 8):
            transport.send_marker(number)
            while True:
                opcode, payload = await client.frame()
                if payload.startswith(b"rm"):
                    client.send(frame(PONG, payload))
                    break
            await asyncio.sleep(0.04)
        assert not handler.lost.done()
        await client.close()


async def test_more_frames_leave_in_one_write():
    """Messages sent with `more` arrive in order, only once flushed."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        socket_ = (await app.handler()).socket
        assert socket_.send_now("one", more=True)
        assert socket_.send_now(b"two", more=True)
        assert socket_.send_marker(5, more=True)
        assert socket_.send_now("three")
        data = await client.reader.read(100)
        assert (
            data
            == b"\x81\x03one\x82\x03two\x89\x08rm" + struct.pack("!HI", 0, 5) + b"\x81\x05three"
        )
        await client.close()


async def test_a_reader_that_stops_stops_the_writer_early():
    """Against a peer that never reads, the socket is soon not writable and says so."""
    async with listening() as (url, app):
        client = await RawClient.connect(url, rcvbuf=4096, limit=1024)
        client.writer.transport.pause_reading()
        client.send(handshake())
        handler = await app.handler()
        sent = 0
        while handler.socket.is_writable and sent < 10_000:
            handler.socket.send_now(b"x" * 88)
            sent += 1
            if sent % 50 == 0:
                await asyncio.sleep(0.001)
        # 38 s of 20 ms packets is what a client with a default receive buffer swallows.
        assert sent < 2_500
        assert not handler.socket.send_now(b"one more")
        assert handler.socket.write_buffer_size() > 0
        handler.calls.clear()
        client.writer.transport.resume_reading()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    await client.reader.read(65_536)
        assert ("writable",) in handler.calls
        assert handler.socket.is_writable and handler.socket.write_buffer_size() == 0
        await client.close()


async def test_closing_does_not_wait_for_a_peer_that_never_reads():
    """A close with a full buffer ends in an abort after the close timeout."""
    async with listening() as (url, app):
        client = await RawClient.connect(url, rcvbuf=4096, limit=1024)
        client.writer.transport.pause_reading()
        client.send(handshake())
        handler = await app.handler()
        while handler.socket.is_writable:
            handler.socket.send_now(b"x" * 1000)
        began = time.monotonic()
        handler.socket.close(4408, "slow")
        handler.socket.close(1000, "again")
        assert (await handler.lost)[0] == 1006
        assert 0.2 < time.monotonic() - began < 1.0
        await client.close()


async def test_close_codes_and_reasons_reach_the_peer():
    """A close frame carries code and clipped reason behind everything that was sent."""
    async with listening() as (url, app), connect("ws" + url[4:]) as ws:
        handler = await app.handler()
        handler.socket.send_now("last words")
        handler.socket.close(4429, "é" * 100)
        assert await ws.recv() == "last words"
        with pytest.raises(ConnectionClosedError) as closed:
            await ws.recv()
        assert closed.value.rcvd.code == 4429
        assert closed.value.rcvd.reason == "é" * 61


async def test_a_huge_frame_is_refused_by_its_header():
    """A frame that declares 10 MB gets 1009 at once, and the close frame survives the flood."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(frame(TEXT, b"x" * 500_000, declare=10_000_000))
        code, _ = await client.until_close()
        assert code == 1009
        client.send(b"x" * 500_000)
        assert await client.reader.read() == b""  # the end, and no reset
        handler = await app.handler()
        assert (await handler.lost)[0] == 1009
        assert handler.calls == []
        await client.close()


async def test_fragments_over_the_size_limit_are_refused():
    """The limit holds for the message, however it is cut."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(frame(TEXT, b"x" * 40_000, fin=False), frame(CONT, b"x" * 40_000))
        assert (await client.until_close())[0] == 1009
        await client.close()


async def test_crumbs_are_refused():
    """A message in more fragments than allowed is refused, empty ones included."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(frame(TEXT, b"", fin=False), *[frame(CONT, b"", fin=False)] * 300)
        assert (await client.until_close()) == (1009, "too many fragments")
        await client.close()


async def test_a_flood_of_frames_is_cut_off():
    """Pings without end cost the loop milliseconds, then the connection."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(*[frame(PING)] * 50_000)
        assert (await client.until_close()) == (1008, "too many frames")
        await client.close()


async def test_answers_we_asked_for_are_no_flood():
    """Pongs of our own markers do not count against a peer."""
    limits = TransportOptions(max_frames_per_s=20)
    async with listening(limits) as (url, app), connect("ws" + url[4:]):
        handler = await app.handler()
        for number in range(200):
            handler.socket.send_marker(number)
            await asyncio.sleep(0.001)
        await eventually(lambda: len(handler.calls) == 200)
        assert not handler.lost.done()


async def test_pings_are_answered():
    """Every ping of a polite peer gets its pong."""
    async with listening() as (url, _):
        client = await RawClient.upgraded(url)
        client.send(frame(PING, b"1"), frame(PING, b"2"))
        assert [await client.frame(), await client.frame()] == [(PONG, b"1"), (PONG, b"2")]
        await client.close()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([frame(TEXT, b"\xff")], 1007),
        ([frame(TEXT, b"\xc3", fin=False), frame(CONT, b"\x28")], 1007),
        ([frame(3)], 1002),
        ([frame(CONT, b"x")], 1002),
        ([frame(PING, b"x" * 126)], 1002),
        ([b"\x81\x01x"], 1002),  # not masked
        ([frame(TEXT, b"ok"), frame(TEXT, b"\xff")], 1007),
        ([frame(TEXT, b"ok"), frame(3)], 1002),
    ],
)
async def test_broken_frames_close_with_the_codes_of_the_rfc(frames, code):
    """Protocol errors are 1002, bad UTF-8 is 1007; good messages before them are delivered."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(*frames)
        assert (await client.until_close())[0] == code
        handler = await app.handler()
        await handler.lost
        assert handler.calls == (
            [("text", b"ok")] if len(frames) == 2 and b"ok" in frames[0] else []
        )
        await client.close()


async def test_utf8_cut_between_fragments_is_whole_again():
    """A character split over two fragments is no error."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        client.send(frame(TEXT, "é".encode()[:1], fin=False), frame(CONT, "é".encode()[1:]))
        assert await client.frame() == (TEXT, "é".encode())
        await client.close()


async def test_a_reset_is_told_once():
    """A peer that vanishes is 1006."""
    async with listening() as (url, app):
        client = await RawClient.upgraded(url)
        handler = await app.handler()
        client.reset()
        assert await handler.lost == (1006, "")
        assert not handler.socket.is_writable
        assert handler.socket.write_buffer_size() == 0
        assert not handler.socket.send_now("nobody")
        handler.socket.close(1000)


async def test_a_clean_close_is_told_with_its_code():
    """The peer's code and reason arrive."""
    async with listening() as (url, app):
        async with connect("ws" + url[4:]) as ws:
            handler = await app.handler()
            await ws.close(4000, "bye")
        assert await handler.lost == (4000, "bye")


async def test_an_unreadable_handshake_gets_an_answer():
    """Headers the WebSocket library refuses are answered and closed, not left hanging."""
    async with listening() as (url, _):
        client = await RawClient.connect(url)
        client.send(handshake(**{f"X_{n}": "y" for n in range(200)}))
        status, _ = await client.response()
        assert status == 431
        await client.close()
        client = await RawClient.connect(url)
        client.send(handshake(X_A="y" * 9000))
        assert (await client.response())[0] == 431
        await client.close()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ((b"Version: 13", b"Version: 8"), 426),
        ((b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), 400),
    ],
)
async def test_bad_handshakes_get_their_status(change, status):
    """A wrong version or key is an HTTP error."""
    async with listening() as (url, _):
        client = await RawClient.connect(url)
        client.send(handshake().replace(*change))
        got, _ = await client.response()
        assert got in (status, 400)
        await client.close()


async def test_half_requests_are_dropped_and_hurt_nobody():
    """200 half-open handshakes do not delay others, and are closed when their time is up."""
    async with listening(handshake_timeout_s=0.4) as (url, _):
        clients = [await RawClient.connect(url) for _ in range(200)]
        for n, client in enumerate(clients):
            client.send(handshake()[: n % 150])
        async with httpx.AsyncClient() as http:
            await http.get(url)
            began = time.monotonic()
            assert (await http.get(url)).text == "ok"
            assert time.monotonic() - began < 0.1
        async with asyncio.timeout(2.0):
            assert all([await client.at_end() for client in clients])
        for client in clients:
            await client.close()


async def test_a_head_that_trickles_is_dropped():
    """A byte now and then does not keep a request alive for ever."""
    async with listening(handshake_timeout_s=0.2) as (url, _):
        client = await RawClient.connect(url)
        for byte in handshake()[:60]:
            if client.writer.is_closing():
                break
            client.send(bytes([byte]))
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("it is still open")
        assert await client.at_end()
        await client.close()


async def test_a_head_without_end_is_refused():
    """More than 32 KiB of headers is 431."""
    async with listening() as (url, _):
        client = await RawClient.connect(url)
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        client.send(*[b"X-%d: " % n + b"y" * 1000 + b"\r\n" for n in range(40)])
        assert (await client.response())[0] == 431
        await client.close()


async def test_a_body_nobody_wants_ends_the_connection():
    """A request's surplus body is read a little, not for ever."""
    async with listening() as (url, _):
        client = await RawClient.connect(url)
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        assert (await client.response())[0] == 200
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.send(b"x" * 65_536)
                await client.writer.drain()
        assert client.writer.is_closing()
        await client.close()


async def test_socket_options_are_set():
    """Nagle is off, and the kernel keeps little that was not sent."""
    async with listening() as (url, app), connect("ws" + url[4:]):
        sock = (await app.handler()).socket.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 4096


async def test_no_compression_is_negotiated():
    """permessage-deflate is offered by most clients and never taken."""
    async with listening() as (url, _), connect("ws" + url[4:]) as ws:
        assert "Sec-WebSocket-Extensions" in ws.request.headers
        assert "Sec-WebSocket-Extensions" not in ws.response.headers


async def test_closing_the_listener_closes_everybody():
    """Open WebSockets get 1012; the listener waits for them."""
    async with listening() as (url, app):
        ws = await connect("ws" + url[4:])
        await app.handler()
        plain = await connect("ws" + url[4:] + "/plain")
    for each in (ws, plain):
        with pytest.raises(ConnectionClosed) as closed:
            await each.recv()
        assert closed.value.rcvd.code == 1012


async def test_a_unix_socket(tmp_path):
    """The server listens on a path; a dead socket there is replaced, a live one is not."""
    from websockets.asyncio.client import unix_connect

    from rtts.errors import ConfigError

    path = tmp_path / "rtts.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with listening(unix_socket=path) as (url, _):
        assert url == f"unix:{path}"
        async with unix_connect(str(path), uri="ws://localhost/") as ws:
            await ws.send("hi")
            assert await ws.recv() == "hi"
        with pytest.raises(ConfigError, match="Then remove the file, or choose another"):
            async with listening(unix_socket=path):
                pass
    assert not path.exists()
    with pytest.raises(ConfigError, match="No such file or directory; choose another"):
        async with listening(unix_socket=tmp_path / "no" / "rtts.sock"):
            pass


async def test_a_taken_port_is_a_config_error():
    """The message names the address and what to do."""
    from rtts.errors import ConfigError

    async with listening() as (url, _):
        port = int(url.rsplit(":", 1)[1])
        listener = Listener(App(), ServerOptions(port=port), max_message_bytes=1)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*--port"):
            await listener.open()


async def test_the_date_and_server_headers_are_sent():
    """Responses carry Date and our name, not the library's."""
    async with listening() as (url, _), httpx.AsyncClient() as http:
        response = await http.get(url)
        assert response.headers["server"].startswith("rtts/")
        assert response.headers["date"].endswith("GMT")
        assert json.loads("1") == 1
