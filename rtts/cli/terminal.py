"""What a command tells the person who waits for it, on standard error.

Lines that may be of no interest (which segment is being spoken) are held back for the first second,
so that short commands stay quiet and nothing long is silent. On a terminal a running clock is
rewritten in place; elsewhere it is plain lines. Knows nothing about what it reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TextIO

# What takes less is not worth a line; what takes more must not look hung.
PATIENCE_S = 1.0
_TERMINAL_TICK_S = 0.2
_PLAIN_TICK_S = 10.0
_USUAL_COLUMNS = 80


class Progress:
    """Progress of one command.

    Owner: the command's thread, and while `working` the clock's.
    """

    def __init__(self, stream: TextIO | None = None, *, is_quiet: bool = False) -> None:
        """Start the clock.

        Args:
            stream: Where lines go, by default standard error.
            is_quiet: Say nothing but errors.
        """
        self._stream = stream or sys.stderr
        self._is_quiet = is_quiet
        self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._held: list[str] = []  # details of the first second
        self._metered_s: float | None = None  # last shown; None while nothing is metered
        self._has_clock = False  # the last line on the terminal is a running clock

    def say(self, line: str) -> None:
        """Show a line."""
        if not self._is_quiet:
            self._erase_clock()
            print(line, file=self._stream, flush=True)

    def detail(self, line: str) -> None:
        """Show a line if the command has taken, or comes to take, more than a second."""
        self._held.append(line)
        if time.monotonic() - self._began >= PATIENCE_S:
            self.flush()

    def flush(self) -> None:
        """Show every detail held back."""
        for line in self._held:
            self.say(line)
        self._held.clear()

    @contextlib.asynccontextmanager
    async def waiting(self, what: str) -> AsyncIterator[None]:
        """Show that something is going on, if it takes more than a second.

        Args:
            what: "loading the cpu engine".
        """
        ticking = asyncio.create_task(self._tick(what))
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            self._erase_clock()

    async def _tick(self, what: str) -> None:
        began = time.monotonic()
        await asyncio.sleep(PATIENCE_S)
        while True:
            self._show_clock(what, time.monotonic() - began)
            await asyncio.sleep(self._tick_s)

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """The same for work that leaves no event loop to run: a thread shows it."""
        is_over = threading.Event()

        def tick() -> None:
            began, wait_s = time.monotonic(), PATIENCE_S
            while not is_over.wait(wait_s):
                self._show_clock(what, time.monotonic() - began)
                wait_s = self._tick_s

        clock = threading.Thread(target=tick, name="rtts-clock", daemon=True)
        clock.start()
        try:
            yield
        finally:
            is_over.set()
            clock.join()
            self._erase_clock()

    def meter(self, line: str) -> None:
        """Show how far something has come: after its first second, as often as is worth it."""
        now = time.monotonic()
        if self._metered_s is None:
            self._metered_s = now + PATIENCE_S - self._tick_s
        if now - self._metered_s < self._tick_s:
            return
        self._metered_s = now
        self._rewrite(line, line)

    def end_meter(self) -> None:
        """What was metered has come to its end: leave nothing of it on a terminal."""
        self._metered_s = None
        self._erase_clock()

    @property
    def _tick_s(self) -> float:
        return _TERMINAL_TICK_S if self._is_terminal else _PLAIN_TICK_S

    def _show_clock(self, what: str, elapsed_s: float) -> None:
        self._rewrite(f"{what} … {elapsed_s:.0f} s", f"{what} ({elapsed_s:.0f} s)")

    def _rewrite(self, line: str, plain: str) -> None:
        """Put a line in place of the one before on a terminal; elsewhere a plain one below it."""
        if self._is_terminal and not self._is_quiet:
            # What a line is too long for would go on in the next one, and stay there.
            cut = line[: self._columns() - 1]
            print(f"\r\x1b[K{cut}", end="", file=self._stream, flush=True)
            self._has_clock = True
        else:
            self.say(plain)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
        except OSError:
            return _USUAL_COLUMNS

    def _erase_clock(self) -> None:
        if self._has_clock:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._has_clock = False
