"""Bytes under the app: uvicorn's WebSocket protocol with a direct road for audio.

An ASGI app sends by awaiting and receives through a queue and a task switch. Audio cannot wait for
that, so this subclass of uvicorn's `websockets-sansio` protocol offers itself to the app as a
`WebSocket` (in the scope's extensions): whoever attaches a `WebSocketHandler` is called
as frames arrive and writes frames at once. Apps that attach nothing get plain ASGI.

It also closes what uvicorn leaves open: peers that never read, never answer a close, send frames
faster than any speech needs, or cut a message into crumbs. It knows nothing about sessions.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from rtts.server.tcp import tune
from rtts.server.websocket import (
    EXTENSION,
    TransportOptions,
    WebSocketHandler,
    clip_reason,
)

# uvloop reads up to 256 kB at once; a slice of that holds at most 680 frames (6 bytes each), so
# that the frame rate is checked before a flood has cost more than a few milliseconds.
_SLICE_BYTES = 4096
# Pongs are written whether or not the peer reads; with this much unread it is not a peer.
_MAX_UNREAD_BYTES = 1_048_576
_MARKER = struct.Struct("!2sHI")  # "rm", high and low part of the number: 8 bytes
_MARKER_TAG = b"rm"
# Unanswered markers kept; a peer that answers none is found by its other limits.
_MAX_MARKERS = 1024

log = logging.getLogger(__name__)


class _Parser(ServerProtocol):
    """The parser of `websockets`, which takes a close between fragments for a broken message."""

    def recv_frame(self, frame: Frame) -> None:
        """See `websockets`. RFC 6455 section 5.4: control frames may come between fragments."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection. Owner: event loop."""

    def __init__(self, *args: Any, limits: TransportOptions | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Parser(max_size=self.config.ws_max_size, logger=self.logger)
        self._limits = limits or TransportOptions()
        self._handler: WebSocketHandler | None = None  # set by attach, unset when told of the loss
        self._markers: deque[tuple[int, float]] = deque()  # unanswered: number, sent at
        self._frames_left = 2.0 * self._limits.max_frames_per_s
        self._frames_at = self.loop.time()

    # --- what the app calls ---------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        """See `WebSocket`."""
        return self.writable.is_set() and not self.close_sent and not self.transport.is_closing()

    def write_buffer_size(self) -> int:
        """See `WebSocket`."""
        return 0 if self.disconnected else self.transport.get_write_buffer_size()

    def attach(self, handler: WebSocketHandler) -> None:
        """See `WebSocket`. The app calls it once, after it has accepted."""
        self._handler = handler
        while not self.queue.empty():
            self._replay(self.queue.get_nowait())
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def _replay(self, event: ASGIReceiveEvent) -> None:
        if self._handler is None:
            return
        if event["type"] == "websocket.disconnect":
            self._tell_lost(event.get("code", 1006), event.get("reason") or "")
        elif event["type"] == "websocket.receive":
            text = event.get("text")
            if text is not None:
                self._handler.on_text(text.encode())
            else:
                self._handler.on_binary()

    def expect_pongs(self, timeout_s: float) -> None:
        """See `WebSocket`. Before accepting: the first ping is scheduled then."""
        self.ping_timeout = timeout_s

    def send_now(self, data: str | bytes, *, more: bool = False) -> bool:
        """See `WebSocket`."""
        if not self.is_writable:
            return False
        try:
            if isinstance(data, str):
                self.conn.send_text(data.encode())
            else:
                self.conn.send_binary(data)
        except InvalidState:  # the peer's close frame was parsed and is being handled
            return False
        if not more:
            self.flush()
        return True

    def send_marker(self, number: int, *, more: bool = False) -> bool:
        """See `WebSocket`."""
        if not self.is_writable:
            return False
        try:
            self.conn.send_ping(_MARKER.pack(_MARKER_TAG, number >> 32, number & 0xFFFFFFFF))
        except InvalidState:
            return False
        if len(self._markers) >= _MAX_MARKERS:
            self._markers.popleft()
        self._markers.append((number, self.loop.time()))
        if not more:
            self.flush()
        return True

    def flush(self) -> None:
        """See `WebSocket`."""
        frames = self.conn.data_to_send()
        if not frames or self.transport.is_closing():
            return
        self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            log.info("a peer that sends but does not read was cut off")
            self.transport.abort()

    def close(self, code: int, reason: str = "") -> None:
        """See `WebSocket`."""
        if self.close_sent or self.transport.is_closing():
            return
        try:
            self.conn.send_close(code, clip_reason(reason))
        except InvalidState:
            return
        self.flush()
        self._linger()

    # --- the connection's life ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the TCP socket. See uvicorn."""
        super().connection_made(transport)
        tune(transport)
        # Stop writing as soon as the kernel takes no more: what waits, waits in the session, where
        # a cancel still finds it and contexts take turns. (Not 0: uvloop's TLS pauses at "size >=
        # high", which is always.)
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(high=1, low=0)

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        super().connection_lost(exc)
        self._tell_lost(1006, "")

    def resume_writing(self) -> None:
        """See uvicorn."""
        super().resume_writing()
        if self._handler is not None and self.is_writable:
            self._handler.on_writable()

    def shutdown(self) -> None:
        """Stop now: the server goes down."""
        if self.handshake_complete:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012})
            self.close(1012, "the server is shutting down")
        else:
            super().shutdown()

    def _linger(self) -> None:
        """A close frame was sent: wait for the peer, but not for ever."""
        self.close_sent = True
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._abort_later()

    def _abort_later(self) -> None:
        # Not transport.close(): it waits for a peer to read what was sent, which may be never.
        if self.close_timer is None and not self.disconnected:
            delay_s = self._limits.close_timeout_s
            self.close_timer = self.loop.call_later(delay_s, self.transport.abort)

    def _end(self) -> None:
        """Both sides are done: close once everything written has been read."""
        self.transport.close()
        self._abort_later()

    def _tell_lost(self, code: int, reason: str) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_lost(code, reason)

    # --- arriving bytes -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """See uvicorn."""
        for start in range(0, len(data), _SLICE_BYTES):
            piece = data if len(data) <= _SLICE_BYTES else data[start : start + _SLICE_BYTES]
            self.conn.receive_data(piece)
            self.handle_events()
            if self.conn.parser_exc is not None:
                self.handle_parser_exception()
            elif not self.handshake_initiated and self.conn.handshake_exc is not None:
                self._refuse_handshake()
            if self.transport.is_closing():
                return

    def handle_events(self) -> None:
        """Pass on what the bytes meant."""
        events = self.conn.events_received()
        if not self._within_frame_rate(len(events)):
            self._fail(1008, "too many frames")
            return
        for event in events:
            if isinstance(event, Request):
                self.handle_connect(event)
            else:
                self._on_frame(cast(Frame, event))

    def _on_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.TEXT:
                self.handle_text(frame)
            case Opcode.BINARY:
                self.handle_bytes(frame)
            case Opcode.CONT:
                self.handle_cont(frame)
            case Opcode.PING:
                self.flush()  # the pong was made by the parser
            case Opcode.PONG:
                self.handle_pong(frame)
            case Opcode.CLOSE:
                self.handle_close(frame)

    def _within_frame_rate(self, count: int) -> bool:
        now, rate = self.loop.time(), self._limits.max_frames_per_s
        refilled = self._frames_left + (now - self._frames_at) * rate
        self._frames_left = min(refilled, 2.0 * rate) - count
        self._frames_at = now
        return self._frames_left >= 0

    def handle_connect(self, event: Request) -> None:
        """See uvicorn."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][EXTENSION] = self  # type: ignore[assignment]
        else:
            self._abort_later()

    def handle_cont(self, event: Frame) -> None:
        """See uvicorn."""
        if len(self.frames) >= self._limits.max_fragments:
            self._fail(1009, "too many fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Deliver a whole message, to the handler where there is one."""
        if self.close_sent:
            self.frames = []
            return
        if self.curr_msg_data_type == "text" and not self._is_utf8():
            self._fail(1007, "a text message is not UTF-8")
            return
        if self._handler is None:
            super().send_receive_event_to_app()
            return
        data = bytes(self.frames[0]) if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type == "text":
            self._handler.on_text(data)
        else:
            self._handler.on_binary()

    def _is_utf8(self) -> bool:
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        if data.isascii():
            return True
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def handle_pong(self, event: Frame) -> None:
        """See uvicorn. The pong of a marker proves the peer alive as well as any."""
        number = self._marker_of(bytes(event.data))
        if number is None:
            super().handle_pong(event)
            return
        self._frames_left += 1  # we asked for it
        sent_at = 0.0
        # RFC 6455 section 5.5.3: only the latest ping need be answered, so older ones are too.
        while self._markers and self._markers[0][0] <= number:
            _, sent_at = self._markers.popleft()
        if self.pong_timer is not None:
            self.pong_timer.cancel()
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        if self._handler is not None:
            self._handler.on_marker(number, self.loop.time() - sent_at)

    def _marker_of(self, payload: bytes) -> int | None:
        """The number of an unanswered marker; None for any other pong, asked for or not."""
        if len(payload) != _MARKER.size or not payload.startswith(_MARKER_TAG):
            return None
        _, high, low = _MARKER.unpack(payload)
        number = high << 32 | low
        return number if any(number == sent for sent, _ in self._markers) else None

    # --- endings --------------------------------------------------------------------------------

    def handle_close(self, event: Frame) -> None:
        """The peer closes, or answers our close."""
        self.flush()
        if not self.close_sent:
            assert self.conn.close_rcvd is not None
            code, reason = self.conn.close_rcvd.code, self.conn.close_rcvd.reason
            self.close_sent = True
            self.stop_keepalive()
            disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self.queue.put_nowait(disconnect)  # type: ignore[arg-type]
            self._tell_lost(code, reason)
        self._end()

    def handle_parser_exception(self) -> None:
        """The peer broke the WebSocket protocol; the parser has made the close frame."""
        close = self.conn.close_sent or self.conn.close_rcvd
        code, reason = (close.code, close.reason) if close is not None else (1006, "")
        if self.close_sent:
            return
        disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self.queue.put_nowait(disconnect)  # type: ignore[arg-type]
        self.flush()
        self._linger()
        # Closing with unread bytes would reset the connection and destroy the close frame on its
        # way, so only our half is closed; what still comes is thrown away until the peer is done.
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._tell_lost(code, reason)

    def keepalive_timeout(self) -> None:
        """See uvicorn. The peer may be gone: do not wait for it to read."""
        super().keepalive_timeout()
        self._abort_later()

    def _fail(self, code: int, reason: str) -> None:
        """Close over what the WebSocket library lets pass."""
        if self.close_sent or self.transport.is_closing():
            return
        self.frames = []
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def _refuse_handshake(self) -> None:
        """A handshake the WebSocket library cannot read: it has made a reply, or none."""
        self.handshake_complete = self.close_sent = True
        frames = b"".join(self.conn.data_to_send())
        reply = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(frames or reply)
        self._end()

    async def send(self, message: ASGISendEvent) -> None:
        """See ASGI. Closing never waits for a peer that does not read."""
        if message["type"] == "websocket.close" and self.handshake_complete:
            if not self.close_sent:
                code = message.get("code", 1000)
                self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
                self.close(code, message.get("reason") or "")
            return
        if message["type"] == "websocket.send" and self.handshake_complete and self.close_sent:
            raise ClientDisconnected  # the peer's close overtook the app's message
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # or uvicorn logs every refusal as an app's mistake
            self._abort_later()
