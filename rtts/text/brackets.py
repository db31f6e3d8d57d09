"""Brackets, inside which no sentence ends if they close soon enough."""

from __future__ import annotations

OPENERS = "([{（【《〈「『"
CLOSERS = ")]}）】》〉」』"

# No cut inside brackets that close within this many characters.
_MAX_INSIDE = 80

_CLOSER_OF = dict(zip(OPENERS, CLOSERS, strict=True))
_EYES = frozenset(":;=8-")  # what stands before the mouth of a smiley


class Brackets:
    """The open brackets of a segment. Owner: one splitter.

    Attributes:
        suppressed: A sentence ended inside the brackets that are open.
    """

    __slots__ = ("_ignored", "_open", "suppressed")

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []  # their closers, and where they opened
        self._ignored = 0  # brackets that open before here are text
        self.suppressed = False

    def __bool__(self) -> bool:
        """Whether any is open."""
        return bool(self._open)

    def restart(self) -> None:
        """A segment begins, or is read again."""
        self._open.clear()
        self.suppressed = False

    def meet(self, mark: str, at: int, before: str) -> None:
        """A bracket.

        Args:
            mark: Which.
            at: Clean index of it.
            before: The character before it.
        """
        closer = _CLOSER_OF.get(mark)
        if closer is not None:
            if at >= self._ignored and before not in _EYES:
                self._open.append((closer, at))
            return
        for depth in range(len(self._open) - 1, -1, -1):
            if self._open[depth][0] == mark:
                del self._open[depth:]
                break
        if not self._open:
            self.suppressed = False

    def are_stale(self, at: int) -> bool:
        """Whether the outermost has been open for too long."""
        return bool(self._open) and at - self._open[0][1] > _MAX_INSIDE

    def give_up(self, at: int) -> bool:
        """Take what is open for text; returns whether the segment must be read again for it."""
        self._ignored = at
        self._open.clear()
        return self.suppressed
