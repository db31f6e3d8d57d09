"""What the server's shell adds to a message on its way in, and to audio on its way out.

In process, one client on loopback, a scripted engine. In: from the bytes of a `text` message in
`data_received` to `Session.receive`. Out: from `Hub.deliver` with 80 ms of audio to the return of
the socket write that carries it, less the time spent inside the session (which encodes Opus).
Messages are milliseconds apart, so caches are as cold as they are in service; `warm` repeats one
message without a pause. The last line is the result as JSON.

    python benchmarks/shell_overhead.py -o benchmarks/results/shell_overhead-MACHINE-COMMIT.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record import record, write  # noqa: E402
from rtts.engine.interface import AudioProduced, StartUtterance  # noqa: E402
from rtts.engine.local import LocalEngine  # noqa: E402
from rtts.engine.tone import ToneEngine  # noqa: E402
from rtts.server import ServerOptions, new_event_loop, running_server  # noqa: E402
from rtts.server.hub import Hub  # noqa: E402
from rtts.server.transport import WebSocketProtocol  # noqa: E402
from rtts.session import Session  # noqa: E402

MEASURED = ("rtts/server", "benchmarks/shell_overhead.py")
PACKAGES = ("uvicorn", "uvloop", "websockets")

CHUNK = b"\1\0" * 1920


class Probe:
    """Time stamps taken by wrapping methods."""

    def __init__(self) -> None:
        self.arrived = 0.0
        self.inward: list[float] = []
        self.outward: list[float] = []
        self.in_session = 0.0
        self.delivered_at = 0.0  # set while a delivery waits for its first write
        self.is_measuring = False

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))


def install(probe: Probe) -> None:
    def data_received(original: Any, *args: Any) -> Any:
        probe.arrived = time.perf_counter()
        return original(*args)

    def receive(original: Any, *args: Any) -> Any:
        if probe.is_measuring:
            probe.inward.append(time.perf_counter() - probe.arrived)
        return session(original, *args)

    def session(original: Any, *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*args)
        finally:
            probe.in_session += time.perf_counter() - began

    def flush(original: Any, protocol: Any) -> Any:
        writes = bool(protocol.conn.writes)
        result = original(protocol)
        if writes and probe.delivered_at:  # the first write of this delivery
            spent = time.perf_counter() - probe.delivered_at - probe.in_session
            probe.outward.append(spent)
            probe.delivered_at = 0.0
        return result

    def deliver(original: Any, hub: Any, batch: Any) -> Any:
        probe.in_session = 0.0
        if probe.is_measuring and isinstance(batch[0], AudioProduced):
            probe.delivered_at = time.perf_counter()
        return original(hub, batch)

    probe.wrap(WebSocketProtocol, "data_received", data_received)
    probe.wrap(WebSocketProtocol, "flush", flush)
    probe.wrap(Session, "receive", receive)
    for name in ("engine_event", "next_message", "sent", "take_commands", "next_deadline"):
        probe.wrap(Session, name, session)
    probe.wrap(Hub, "deliver", deliver)


class Script(LocalEngine):
    """The tone engine for prewarming; after that the benchmark delivers the audio."""

    def __init__(self) -> None:
        super().__init__(ToneEngine)
        self.is_scripted = False
        self.started: list[int] = []

    def submit(self, commands: Any) -> None:
        if not self.is_scripted:
            super().submit(commands)
        self.started += [c.utterance_id for c in commands if isinstance(c, StartUtterance)]


async def measure(n: int) -> dict[str, Any]:
    probe, engine = Probe(), Script()
    install(probe)
    async with running_server(ServerOptions(port=0), engine) as server:
        engine.is_scripted = True
        engine.started.clear()
        async with connect(server.ws_url, subprotocols=["rtts.v1"]) as ws:
            await ws.recv()
            await ws.send(json.dumps({"type": "start", "ctx": "c", "max_lead_ms": 0}))
            await ws.send(json.dumps({"type": "text", "ctx": "c", "text": "Hello there. "}))
            while not engine.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            probe.is_measuring = True
            for _ in range(n):
                await ws.send(json.dumps({"type": "text", "ctx": "c", "text": "."}))
                await asyncio.sleep(0.006)
            loop, reading = asyncio.get_running_loop(), asyncio.create_task(drain(ws))
            for _ in range(n):
                loop.call_soon(server._hub.deliver, [AudioProduced(engine.started[0], 0, CHUNK)])
                await asyncio.sleep(0.002)
            probe.is_measuring = False
            warm = warm_us(server, hub_host(server))
            reading.cancel()
    return {"in_us": summary(probe.inward), "out_us": summary(probe.outward), "warm_us": warm}


def hub_host(server: Any) -> Any:
    return next(iter(server._hub._hosts.values()))


def warm_us(server: Any, host: Any, n: int = 3000) -> dict[str, float]:
    """Microseconds of the parts in a tight loop: least of five runs."""
    socket = host.outlet._socket
    text = b'{"type":"ping","t":1}'
    frame = bytes([0x81, 0x80 | len(text)]) + b"\0\0\0\0" + text

    class Nobody:
        def on_text(self, data: bytes) -> None:
            pass

    def least(call: Callable[[], Any]) -> float:
        runs = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(n):
                call()
            runs.append(1e6 * (time.perf_counter() - began) / n)
        return round(min(runs), 2)

    def receive() -> None:
        socket._frames_left = 1e9
        socket.data_received(frame)

    handler, socket._handler = socket._handler, Nobody()
    received = least(receive)
    socket._handler = handler
    return {
        "data_received_to_handler": received,
        "empty_pump": least(lambda: server._hub.pump(host)),
    }


async def drain(ws: Any) -> None:
    async for _ in ws:
        pass


def summary(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles([1e6 * value for value in values], n=100)
    return {
        "n": len(values),
        "p50": round(cuts[49], 1),
        "p95": round(cuts[94], 1),
        "p99": round(cuts[98], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=500, help="messages each way")
    parser.add_argument("-o", "--output", type=Path, help="write the result here as well")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        results = runner.run(measure(arguments.n))
    result = record("shell_overhead", results, measured=MEASURED, packages=PACKAGES)
    write(result, arguments.output)


if __name__ == "__main__":
    main()
