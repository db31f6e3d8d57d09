"""The contexts of one conversation: running, lately finished, refused; and whose turn it is.

Bookkeeping by name, by utterance and by turn in one place, so that no two of them disagree. Knows
nothing about messages' contents, limits or time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rtts.session.context import Context
from rtts.session.phase import Phase
from rtts.session.replay import MAX_ENDED_LOG_BYTES

# Finished and refused names that are remembered for late messages and for resume.
MAX_REMEMBERED = 64


class Roster:
    """Who is here.

    Owner: its session.

    Attributes:
        running: By name.
        ended: Finished lately, by name, oldest first.
        refused: Names whose `start` was refused, oldest first.
    """

    def __init__(self) -> None:
        self.running: dict[str, Context] = {}
        self.ended: dict[str, Context] = {}
        self.refused: dict[str, None] = {}
        self._by_utterance: dict[int, Context] = {}
        self._turns: deque[Context] = deque()
        self._unrecorded: list[Context] = []  # finished, still with something to say

    def add(self, context: Context) -> None:
        """A context begins."""
        self.running[context.options.name] = context
        self._turns.append(context)

    def refuse(self, name: str) -> None:
        """A context of that name was not admitted."""
        self.refused[name] = None
        while len(self.refused) > MAX_REMEMBERED:
            del self.refused[next(iter(self.refused))]

    def forget(self, name: str) -> Context | None:
        """Make the name free; returns the finished context that had it."""
        self.refused.pop(name, None)
        ended = self.ended.pop(name, None)
        if ended is not None and ended in self._turns:
            self._turns.remove(ended)
        return ended

    def settle(self, context: Context) -> None:
        """Follow what happened to a context: an utterance begun or ended, the context done."""
        if context.is_with_engine:
            self._by_utterance[context.utterance_id] = context
        else:
            self._by_utterance.pop(context.utterance_id, None)
        name = context.options.name
        if context.phase is Phase.DONE and self.running.get(name) is context:
            del self.running[name]
            self.ended[name] = context
            self._unrecorded.append(context)

    def take_silent(self, *, is_heard: bool) -> list[Context]:
        """Finished contexts not taken before that have nothing more to say.

        Args:
            is_heard: Whether anybody listens; if not, none of them will say anything more.
        """
        silent = [c for c in self._unrecorded if not (is_heard and c.has_message)]
        self._unrecorded = [c for c in self._unrecorded if c not in silent]
        return silent

    def take_overdue(self) -> list[Context]:
        """Make room: forget the oldest finished contexts when there are too many."""
        names = list(self.ended)[: max(0, len(self.ended) - MAX_REMEMBERED)]
        return [context for name in names if (context := self.forget(name)) is not None]

    def bound_logs(self) -> None:
        """Keep no more for a resume than the bound; what ended first is given up first."""
        n_bytes = sum(context.delivery.log_bytes for context in self.ended.values())
        for context in self.ended.values():
            if n_bytes <= MAX_ENDED_LOG_BYTES:
                return
            n_bytes -= context.delivery.log_bytes
            context.delivery.forget_log()

    def of_utterance(self, utterance_id: int) -> Context | None:
        """The context the engine works for under that number."""
        return self._by_utterance.get(utterance_id)

    def is_known(self, name: str) -> bool:
        """Whether a context of that name ended or was refused lately."""
        return name in self.ended or name in self.refused

    def all(self) -> Iterator[Context]:
        """Running and finished ones."""
        yield from self.running.values()
        yield from self.ended.values()

    def give_turn(self, context: Context) -> None:
        """Let a finished context speak again (it has something to repeat)."""
        if context not in self._turns:
            self._turns.append(context)

    def next_speaker(self) -> Context | None:
        """The next context that has a message, in turn."""
        for _ in range(len(self._turns)):
            context = self._turns[0]
            self._turns.rotate(-1)
            if context.has_message:
                return context
            if context.phase is Phase.DONE:
                self._turns.pop()
        return None
