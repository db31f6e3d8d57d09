"""What a command tells the person who waits for it, on standard error.

Lines that may be of no interest (which segment is being spoken) are held back for the first second,
so that short commands stay quiet and nothing long is silent. On a terminal a running clock is
rewritten in place; elsewhere it is plain lines. Knows nothing about what it reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from typing import TextIO

# What takes less is not worth a line; what takes more must not look hung.
PATIENCE_S = 1.0
_TERMINAL_TICK_S = 0.2
_PLAIN_TICK_S = 10.0


class Progress:
    """Progress of one command.

    Owner: the command's thread.
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
            elapsed_s = time.monotonic() - began
            if self._is_terminal and not self._is_quiet:
                print(f"\r\x1b[K{what} … {elapsed_s:.0f} s", end="", file=self._stream, flush=True)
                self._has_clock = True
            else:
                self.say(f"{what} ({elapsed_s:.0f} s)")
            await asyncio.sleep(_TERMINAL_TICK_S if self._is_terminal else _PLAIN_TICK_S)

    def _erase_clock(self) -> None:
        if self._has_clock:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._has_clock = False
