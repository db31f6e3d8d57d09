"""A real Chromium for the tests, and what was heard in it as NumPy arrays."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import signal
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
CLIENT = HERE.parents[2] / "clients" / "js"
ANSWER_S = 30.0  # more than any reply here takes

Samples = npt.NDArray[np.float32]


class Browser:
    """A browser, driven through `driver.mjs`. Owner: any loop; one reader thread."""

    def __init__(self, executable: str, *args: str) -> None:
        command = ["node", str(HERE / "driver.mjs"), str(CLIENT), executable]
        self._process = subprocess.Popen(
            [*command, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that all of it can be ended
        )
        self._ids = itertools.count()
        self._asked: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            asked = self._asked.pop(answer["id"])
            if "error" in answer:
                asked.set_exception(RuntimeError(answer["error"]))
            else:
                asked.set_result(answer.get("value"))
        for asked in self._asked.values():
            asked.set_exception(RuntimeError("the browser is gone"))

    async def do(self, op: str, **fields: Any) -> Any:
        """Run one operation of the driver."""
        assert self._process.stdin is not None
        number = next(self._ids)
        self._asked[number] = asked = Future[Any]()
        asked.set_running_or_notify_cancel()  # a test that gives up must not stop the reader
        self._process.stdin.write(json.dumps({"id": number, "op": op, **fields}) + "\n")
        self._process.stdin.flush()
        return await asyncio.wait_for(asyncio.wrap_future(asked), ANSWER_S)

    async def open(self, url: str, init: str = "") -> Page:
        """A page of its own, with nothing of other pages; `init` is run before its own scripts."""
        page = Page(self, f"p{next(self._ids)}")
        await self.do("open", page=page.name, url=url, init=init)
        return page

    def close(self) -> None:
        """End the browser."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()


@dataclass(frozen=True)
class Page:
    """One page of a browser."""

    browser: Browser
    name: str

    async def run(self, script: str) -> Any:
        """What an expression gives in the page, awaited."""
        return await self.browser.do("evaluate", page=self.name, script=script)

    async def do(self, op: str, **fields: Any) -> Any:
        """Any other operation."""
        return await self.browser.do(op, page=self.name, **fields)

    async def call(self, function: str, *args: Any) -> Any:
        """What a function of the page gives."""
        return await self.run(f"{function}({', '.join(json.dumps(arg) for arg in args)})")

    async def hear(self, text: str, **options: Any) -> Heard:
        """Speak a text to its end."""
        return Heard(**await self.call("hear", text, options))

    async def close(self) -> None:
        """Leave it."""
        await self.do("close")


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What came of one reply in a page."""

    events: list[dict[str, Any]]
    words: list[dict[str, Any]]
    statuses: list[dict[str, Any]]
    cancel: dict[str, Any] = field(default_factory=dict)
    sound: dict[str, Any] | None = None
    value: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def report(self) -> dict[str, Any]:
        """The player's report of a reply that went well."""
        assert self.error is None, self.error
        assert self.value is not None
        return self.value

    @property
    def done(self) -> dict[str, Any]:
        """The server's last word."""
        return dict(self.report["done"])

    @property
    def samples(self) -> Samples:
        """Everything the destination was given while it was heard."""
        return sound_of(self.sound)


def sound_of(sound: dict[str, Any] | None) -> Samples:
    """Samples of a tap, block by block."""
    assert sound is not None
    return np.frombuffer(base64.b64decode(sound["samples"]), "<f4")


def index_of(frame: int, sound: dict[str, Any]) -> int:
    """Where a frame of the audio clock is in the samples of a tap."""
    skipped = sum(missing for at, missing in sound["gaps"] if at <= frame)
    return int(frame - sound["frame"] - skipped)


def place_of(reference: Samples, within: Samples) -> tuple[int, float]:
    """Where a sound is in another, and how alike they are there (-1 to 1)."""
    size = 1 << int(np.ceil(np.log2(reference.size + within.size)))
    spectrum = np.fft.rfft(within, size) * np.conj(np.fft.rfft(reference, size))
    at = int(np.argmax(np.fft.irfft(spectrum, size)[: within.size]))
    part = within[at : at + reference.size]
    whole = reference[: part.size]
    norm = float(np.linalg.norm(part) * np.linalg.norm(whole)) or 1.0
    return at, float(part @ whole) / norm


def trimmed(samples: Samples, level: float = 0.0) -> Samples:
    """Without the silence around."""
    (loud,) = np.nonzero(np.abs(samples) > level)
    return samples[loud[0] : loud[-1] + 1] if loud.size else samples[:0]


def longest_silence_ms(samples: Samples, rate_hz: int, level: float = 0.001) -> float:
    """The longest silence between sounds."""
    (loud,) = np.nonzero(np.abs(samples) > level)
    return float(np.diff(loud).max() - 1) * 1000 / rate_hz if loud.size > 1 else 0.0
