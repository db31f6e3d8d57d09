"""What a foreign surface adds to the first packet of rtts.v1, in one run.

    python benchmarks/dialects.py [--rounds 400]

Starts `rtts serve` with the tone engine, which costs nothing, and keeps one connection to each surface
open. In turn each is asked for the same sentence as PCM, in one message; measured is the time from the
first byte of the request until the first byte of audio was read, on a plain socket that does the
least a client of that protocol can do. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.record import record, write  # noqa: E402
from benchmarks.service import RunningServer  # noqa: E402

TEXT = "Hello there, this is the first sentence of a reply."
MEASURED = ("rtts", "benchmarks/dialects.py")
TEXT_FRAME, BINARY_FRAME, PING, PONG = 1, 2, 9, 10


class Wire:
    """A socket with exact reads."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.host = f"{where.hostname}:{where.port}"
        self.socket = socket.create_connection((where.hostname, where.port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def exactly(self, n_bytes: int) -> bytes:
        while len(self._buffer) < n_bytes:
            self._buffer += self.socket.recv(262_144)
        data, self._buffer = self._buffer[:n_bytes], self._buffer[n_bytes:]
        return data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._buffer += self.socket.recv(262_144)
        return self.exactly(self._buffer.index(mark) + len(mark))


class WebSocket(Wire):
    """As much of RFC 6455 as it takes; the mask is zero."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(url)
        self.send(
            f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b" 101 " in self.until(b"\r\n\r\n")

    def say(self, message: Any, opcode: int = TEXT_FRAME) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        size = bytes([0x80 | min(len(data), 125)])
        if len(data) > 125:
            size = bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
        self.send(bytes([0x80 | opcode]) + size + bytes(4) + data)

    def next(self) -> tuple[int, bytes]:
        """The next data frame: opcode and payload. Pings are answered."""
        while True:
            first, size = self.exactly(2)
            if size == 126:
                size = int.from_bytes(self.exactly(2), "big")
            elif size == 127:
                size = int.from_bytes(self.exactly(8), "big")
            data = self.exactly(size)
            if first & 15 != PING:
                return first & 15, data
            self.say(data, PONG)


Ask = Callable[[], float]


def native(url: str) -> Ask:
    ws, n = WebSocket(url, "/v1/tts"), 0

    def ask() -> float:
        nonlocal n
        n += 1
        began = time.perf_counter()
        form = {"codec": "pcm_s16le", "sample_rate": 24_000}
        ws.say({"type": "start", "ctx": f"c{n}", "format": form, "timestamps": "none"})
        ws.say({"type": "text", "ctx": f"c{n}", "text": TEXT, "end": True})
        heard_s = 0.0
        while True:
            opcode, data = ws.next()
            if opcode == BINARY_FRAME:
                heard_s = heard_s or time.perf_counter() - began
            elif b'"type":"done"' in data:
                return heard_s

    return ask


def openai(url: str, stream_format: str) -> Ask:
    body = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": "pcm"}
    return posting(url, "/v1/audio/speech", body | {"stream_format": stream_format})


def posting(url: str, path: str, body: dict[str, str]) -> Ask:
    """A client of an HTTP surface, whose answer is chunked."""
    wire = Wire(url)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {wire.host}\r\nContent-Length: {len(data)}"

    def ask() -> float:
        began = time.perf_counter()
        wire.send(head.encode() + b"\r\n\r\n" + data)
        wire.until(b"\r\n\r\n")
        heard_s = 0.0
        while size := int(wire.until(b"\r\n"), 16):
            wire.exactly(min(size, 64))
            heard_s = heard_s or time.perf_counter() - began
            wire.exactly(size - min(size, 64) + 2)
        wire.exactly(2)
        return heard_s

    return ask


def cartesia(url: str) -> Ask:
    ws, n = WebSocket(url, "/tts/websocket"), 0

    def ask() -> float:
        nonlocal n
        n += 1
        began = time.perf_counter()
        form = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
        voice = {"mode": "id", "id": "a0e99841-438c-4a64-b679-ae501e7d6091"}
        asked = {"context_id": f"c{n}", "model_id": "sonic-3", "transcript": TEXT, "voice": voice}
        ws.say(asked | {"output_format": form, "language": "en"})
        heard_s = 0.0
        while True:
            _, data = ws.next()
            if b'"type":"chunk"' in data[:40]:
                heard_s = heard_s or time.perf_counter() - began
            elif b'"type":"done"' in data:
                return heard_s

    return ask


def elevenlabs(url: str) -> Ask:
    ws, n = WebSocket(url, "/v1/text-to-speech/v/multi-stream-input?output_format=pcm_24000"), 0

    def ask() -> float:
        nonlocal n
        n += 1
        began = time.perf_counter()
        ws.say({"text": TEXT, "context_id": f"c{n}", "flush": True})
        ws.say({"context_id": f"c{n}", "close_context": True})
        heard_s = 0.0
        while True:
            _, data = ws.next()
            if b'"isFinal":true' in data:
                return heard_s
            heard_s = heard_s or time.perf_counter() - began

    return ask


def elevenlabs_http(url: str) -> Ask:
    return posting(url, "/v1/text-to-speech/v/stream?output_format=pcm_24000", {"text": TEXT})


def deepgram(url: str, path: str, last: bytes) -> Ask:
    ws = WebSocket(url, path + "&encoding=linear16&sample_rate=24000")

    def ask() -> float:
        began = time.perf_counter()
        ws.say({"type": "Speak", "text": TEXT})
        ws.say({"type": "Flush"})
        heard_s = 0.0
        while True:
            opcode, data = ws.next()
            if opcode == BINARY_FRAME:
                heard_s = heard_s or time.perf_counter() - began
            elif last in data:
                return heard_s

    return ask


def deepgram_http(url: str) -> Ask:
    return posting(url, "/v1/speak?encoding=linear16&container=none", {"text": TEXT})


def dashscope(url: str) -> Ask:
    ws = WebSocket(url, "/api-ws/v1/realtime?model=qwen3-tts-flash-realtime")
    ws.say({"type": "session.update", "session": {"voice": "Cherry", "mode": "commit"}})

    def ask() -> float:
        began = time.perf_counter()
        ws.say({"type": "input_text_buffer.append", "text": TEXT})
        ws.say({"type": "input_text_buffer.commit"})
        heard_s = 0.0
        while True:
            _, data = ws.next()
            if b'"response.audio.delta"' in data[:80]:
                heard_s = heard_s or time.perf_counter() - began
            elif b'"response.done"' in data[:80]:
                return heard_s

    return ask


def vllm_omni(url: str) -> Ask:
    ws = WebSocket(url, "/v1/audio/speech/stream")
    ws.say({"type": "session.config", "response_format": "pcm", "stream_audio": True})

    def ask() -> float:
        began = time.perf_counter()
        ws.say({"type": "input.text", "text": TEXT})
        ws.say({"type": "input.done"})
        heard_s = 0.0
        while True:
            opcode, data = ws.next()
            if opcode == BINARY_FRAME:
                heard_s = heard_s or time.perf_counter() - began
            elif b'"session.done"' in data:
                return heard_s

    return ask


SURFACES: dict[str, Callable[[str], Ask]] = {
    "rtts.v1": native,
    "openai": lambda url: openai(url, "audio"),
    "openai sse": lambda url: openai(url, "sse"),
    "cartesia": cartesia,
    "elevenlabs": elevenlabs,
    "elevenlabs http": elevenlabs_http,
    "deepgram": lambda url: deepgram(url, "/v1/speak?model=aura-2-thalia-en", b'"Flushed"'),
    "deepgram flux": lambda url: deepgram(
        url, "/v2/speak?model=flux-alexis-en", b'"SpeechMetadata"'
    ),
    "deepgram http": deepgram_http,
    "dashscope": dashscope,
    "vllm-omni": vllm_omni,
}


def measure(rounds: int, pause_s: float) -> dict[str, Any]:
    server = RunningServer(("--engine", "tone"))
    try:
        url = server.url.replace("ws://", "http://").removesuffix("/v1/tts")
        surfaces = {name: make(url) for name, make in SURFACES.items()}
        took: dict[str, list[float]] = {name: [] for name in surfaces}
        for n in range(rounds + 20):
            for name, ask in surfaces.items():
                time.sleep(pause_s)  # what comes next finds the caches as a listener would
                heard_s = ask()
                if n >= 20:
                    took[name].append(1000 * heard_s)
    finally:
        server.stop()
    usual = statistics.median(took["rtts.v1"])
    return {
        name: {
            "first_packet_p50_ms": round(statistics.median(values), 3),
            "first_packet_p95_ms": round(sorted(values)[int(0.95 * len(values))], 3),
            "added_p50_ms": round(statistics.median(values) - usual, 3),
        }
        for name, values in took.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--pause-ms", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = measure(options.rounds, options.pause_ms / 1000)
    results["rounds"] = options.rounds
    results["load_average_1min"] = round(os.getloadavg()[0], 2)
    packages = ("uvicorn", "uvloop", "websockets", "msgspec")
    write(record("dialects", results, measured=MEASURED, packages=packages), options.output)


if __name__ == "__main__":
    main()
