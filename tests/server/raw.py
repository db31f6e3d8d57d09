"""A WebSocket client without manners: frames by hand on a plain socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from urllib.parse import urlsplit

TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, declare: int | None = None):
    """A masked frame (mask of zeros); `declare` lies about its length."""
    length = len(payload) if declare is None else declare
    head = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65_536:
        head += bytes([0x80 | 126]) + struct.pack("!H", length)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", length)
    return head + b"\0\0\0\0" + payload


def handshake(path: str = "/v1/tts", **headers: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def eventually(condition, timeout_s: float = 2.0):
    """Wait until something is true, and return it; it never needs long."""
    async with asyncio.timeout(timeout_s):
        while not (found := condition()):  # noqa: ASYNC110 - conditions of any kind, in tests
            await asyncio.sleep(0.002)
        return found


class RawClient:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, url: str, *, rcvbuf: int | None = None, limit: int = 2**16) -> RawClient:
        where = urlsplit(url)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if rcvbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (where.hostname, where.port))
        return cls(*await asyncio.open_connection(sock=sock, limit=limit))

    @classmethod
    async def upgraded(cls, url: str, path: str = "/v1/tts", **headers: str) -> RawClient:
        client = await cls.connect(url)
        client.writer.write(handshake(path, **headers))
        status, _ = await client.response()
        assert status == 101
        return client

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def response(self) -> tuple[int, str]:
        """Status and head of an HTTP response."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        return int(head.split(" ", 2)[1]), head

    async def frame(self) -> tuple[int, bytes]:
        """The next frame from the server: opcode and payload."""
        first, second = await self.reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(length)

    async def until_close(self) -> tuple[int, str]:
        """Code and reason of the close frame; what comes before is thrown away."""
        while True:
            opcode, payload = await self.frame()
            if opcode == CLOSE:
                code = struct.unpack("!H", payload[:2])[0] if payload else 1005
                return code, payload[2:].decode()

    async def at_end(self) -> bool:
        """Whether the server closed the connection (cleanly or not)."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Vanish with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
