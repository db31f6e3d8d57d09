"""One reply: the text of a turn on its way to the server, and how it ended. Knows nothing of frames."""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto

from rtts_client import Context, Marks

# Thai, Lao, Burmese, Khmer, kana and Han: written without spaces between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


class Outcome(Enum):
    """How a reply is getting on."""

    RUNNING = auto()
    SPOKEN = auto()
    FAILED = auto()


class Reply:
    """The text of one audio context.

    Attributes:
        task: What reads the reply's events.
        outcome: Whether more is to be heard of it.
        has_ended: No more text comes.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.outcome = Outcome.RUNNING
        self.has_ended = False
        self._context: Context | None = None
        self._waiting = ""  # text said before the context was open

    async def say(self, text: str) -> None:
        """Append text; it goes out at once where the context is open."""
        if self._context is None:
            self._waiting += text
        elif self.outcome is Outcome.RUNNING:
            await self._context.send(text)

    async def end(self) -> None:
        """No more text comes."""
        self.has_ended = True
        if self._context is not None and self.outcome is Outcome.RUNNING:
            await self._context.end()

    async def begin(self, context: Context) -> None:
        """The context is open: give it what was said meanwhile."""
        self._context = context
        await context.send(self._waiting)
        if self.has_ended:
            await context.end()


def split_by_spacing(marks: Marks) -> list[tuple[bool, list[tuple[str, float]]]]:
    """Words and when they are heard, in seconds, in runs that are written with spaces or without.

    Returns:
        Runs of (whether its words follow each other without spaces, its words).
    """
    runs: list[tuple[bool, list[tuple[str, float]]]] = []
    for word, start_ms, _ in marks.items:
        is_unspaced = _UNSPACED.search(word) is not None
        if not runs or runs[-1][0] != is_unspaced:
            runs.append((is_unspaced, []))
        runs[-1][1].append((word, start_ms / 1000))
    return runs
