"""Which WebSocket client costs a load generator least.

A server (its own process) sends every connection one 344-byte binary message each 80 ms, as raw Opus
comes. Each client in turn receives them on uvloop; reported is its CPU time a message, minimum and
median of the rounds. picows takes part if it is installed.

    python benchmarks/websocket_clients.py [--connections 150] [--seconds 4] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import importlib.util
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from websockets.asyncio.client import connect
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.uri import parse_uri

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.loadgen.wire import open_connection  # noqa: E402
from benchmarks.record import record, write  # noqa: E402

FRAME = b"\x82\x7e" + (344).to_bytes(2, "big") + bytes(344)
PERIOD_S = 0.08
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3

received = 0


def count(*_: Any) -> None:
    global received  # noqa: PLW0603
    received += 1


class Sender(asyncio.Protocol):
    """Upgrades, then sends a message each period."""

    n_connections = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"GET"):
            return
        (key,) = (
            line.split(b": ")[1] for line in data.split(b"\r\n") if b"websocket-key" in line.lower()
        )
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        Sender.n_connections += 1
        loop = asyncio.get_running_loop()
        loop.call_later(PERIOD_S * (Sender.n_connections % 97) / 97, self.send)

    def send(self) -> None:
        if not self.is_lost:
            self.transport.write(FRAME)
            asyncio.get_running_loop().call_later(PERIOD_S, self.send)


def serve(port: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Sender, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(main())


# --- clients: each opens connections that call `count` for every message, returns their closers ---


async def ours(url: str, n: int) -> list[Callable[[], Any]]:
    class Ear:
        on_text = on_binary = staticmethod(count)

        def on_closed(self, code: int) -> None:
            pass

    return [(await open_connection(url, Ear(), protocol="rtts.v1")).abort for _ in range(n)]


async def websockets_asyncio(url: str, n: int) -> list[Callable[[], Any]]:
    async def listen() -> None:
        async with connect(url, compression=None, proxy=None, ping_interval=None) as ws:
            async for _ in ws:
                count()

    return [asyncio.create_task(listen()).cancel for _ in range(n)]


async def websockets_sansio(url: str, n: int) -> list[Callable[[], Any]]:
    class Client(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.core = ClientProtocol(parse_uri(url))
            self.core.send_request(self.core.connect())
            self.flush()

        def flush(self) -> None:
            for data in self.core.data_to_send():
                self.transport.write(data)

        def data_received(self, data: bytes) -> None:
            self.core.receive_data(data)
            for event in self.core.events_received():
                if isinstance(event, Frame):
                    count()
            self.flush()

    loop = asyncio.get_running_loop()
    port = parse_uri(url).port
    transports = [(await loop.create_connection(Client, "127.0.0.1", port))[0] for _ in range(n)]
    return [transport.abort for transport in transports]


async def picows(url: str, n: int) -> list[Callable[[], Any]]:
    import picows

    class Client(picows.WSListener):
        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            frame.get_payload_as_bytes()
            count()

    transports = [(await picows.ws_connect(Client, url))[0] for _ in range(n)]
    return [transport.disconnect for transport in transports]


async def us_a_message(client: Any, url: str, options: argparse.Namespace) -> float:
    closers = await client(url, options.connections)
    await asyncio.sleep(1.0)
    before, cpu_began_s = received, time.process_time()
    await asyncio.sleep(options.seconds)
    cpu_s = time.process_time() - cpu_began_s
    n_messages = received - before
    for close in closers:
        close()
    await asyncio.sleep(0.2)
    return 1e6 * cpu_s / n_messages


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    clients = [ours, websockets_sansio, websockets_asyncio]
    if importlib.util.find_spec("picows"):
        clients.append(picows)
    ports: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    url = f"ws://127.0.0.1:{ports.get()}/v1/tts"
    measured: dict[str, list[float]] = {client.__name__: [] for client in clients}
    for _ in range(options.rounds):
        for client in clients:
            measured[client.__name__].append(uvloop.run(us_a_message(client, url, options)))
    server.terminate()
    results = {
        f"{name}_cpu_us_a_message": {
            "min": round(min(values), 1),
            "median": round(statistics.median(values), 1),
        }
        for name, values in measured.items()
    }
    results["messages_per_s"] = round(options.connections / PERIOD_S)  # type: ignore[assignment]
    paths = ("benchmarks/websocket_clients.py", "benchmarks/loadgen/wire.py")
    write(
        record("websocket_clients", results, measured=paths, packages=("uvloop", "websockets")),
        options.output,
    )


if __name__ == "__main__":
    main()
