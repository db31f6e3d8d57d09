"""What the caller said to one context, as numbered texts, and how much of it the server has.

Flushes and the end are numbered too (as texts that may be empty), so the server can neither miss
nor repeat one: it refuses a gap and ignores what it has seen. Everything is kept until the context
is over and can be said again after a reconnect. Text goes out only as far as the server has room
for it. Knows nothing about sockets or time.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts_client.messages import encode

# Text not yet sent is merged into messages of at most this many characters.
MERGE_CHARS = 1000


@dataclass(slots=True)
class Step:
    """One `text` message; its `n` is its place in the script."""

    text: str
    end_at: int  # characters of the context's text so far
    flush: bool = False
    end: bool = False


class Script:
    """The saying half of a context.

    Attributes:
        n_chars: Characters said.
        has_ended: Nothing more can be said.
    """

    def __init__(self, ctx: str, *, keeps_pieces: bool) -> None:
        """Make one; with `keeps_pieces` every text stays a message of its own."""
        self.n_chars = 0
        self.has_ended = False
        self._ctx = ctx
        self._keeps_pieces = keeps_pieces
        self._steps: list[Step] = []
        self._cursor = 0  # next step to send
        self._half = ""  # first half of a character that was cut in two
        self._spoken_chars = 0  # the server's buffer holds at most what lies behind this

    def say(self, text: str, limit: int) -> None:
        """Append text; `limit` is the most characters the server takes at once.

        Raises:
            ValueError: After `end`.
        """
        if self.has_ended:
            raise ValueError(f"context {self._ctx!r} has ended; no text can follow")
        text = self._join_halves(text)
        size = len(text) if self._keeps_pieces else max(1, min(MERGE_CHARS, limit // 4))
        for at in range(0, len(text), size or 1):
            self._append(text[at : at + size], size)

    def flush(self) -> str:
        """Append a flush; returns the id of its answer."""
        step = self._unsent()
        if step is None or step.flush:
            step = self._add("")
        step.flush = True
        return f"n{len(self._steps) - 1}"

    def end(self) -> None:
        """Append the end; a second one is ignored."""
        if not self.has_ended:
            if self._half:
                self._append(self._half, 0)
                self._half = ""
            step = self._unsent() or self._add("")
            step.end = self.has_ended = True

    def next_message(self, limit: int, *, is_forced: bool = False) -> tuple[str | None, bool]:
        """The next message to send, and whether one waits for room in the server's buffer.

        Args:
            limit: Characters of a context that the server buffers.
            is_forced: Send even if there seems to be no room.
        """
        if self._cursor == len(self._steps):
            return None, False
        step = self._steps[self._cursor]
        if step.end_at - self._spoken_chars > limit:
            if not is_forced:
                return None, True
            self._spoken_chars = step.end_at - limit  # true unless it is refused
        n = self._cursor
        self._cursor += 1
        message = encode(
            "text",
            ctx=self._ctx,
            n=n,
            text=step.text,
            flush=step.flush or None,
            end=step.end or None,
            id=f"n{n}",
        )
        return message, False

    @property
    def text(self) -> str:
        """Everything said."""
        return "".join(step.text for step in self._steps) + self._half

    def spoken(self, n_chars: int) -> bool:
        """The server has spoken the text up to here; returns whether that is new."""
        is_new = n_chars > self._spoken_chars
        self._spoken_chars = max(n_chars, self._spoken_chars)
        return is_new

    def rewind(self, next_n: int) -> None:
        """Go back to the first text the server has not got."""
        self._cursor = min(next_n, len(self._steps))

    def take_back(self, ref: str | None) -> bool:
        """A text was refused for want of room: send it again later. False if `ref` is none."""
        n = self._number(ref)
        if n is not None:
            self._cursor = min(self._cursor, n)
        return n is not None

    def was_taken_back(self, ref: str | None) -> bool:
        """Whether `ref` is a text behind one that was taken back, so refused as a gap."""
        n = self._number(ref)
        return n is not None and n >= self._cursor

    def _join_halves(self, text: str) -> str:
        """Keep back half a character at the end until its other half comes."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if text.isascii():
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _append(self, piece: str, merge_chars: int) -> None:
        self.n_chars += len(piece)
        last = self._unsent()
        if (
            last is None
            or last.flush
            or self._keeps_pieces
            or len(last.text) + len(piece) > merge_chars
        ):
            self._add(piece)
        else:
            last.text += piece
            last.end_at = self.n_chars

    def _add(self, text: str) -> Step:
        step = Step(text, self.n_chars)
        self._steps.append(step)
        return step

    def _unsent(self) -> Step | None:
        """The last step, if it can still change."""
        return self._steps[-1] if self._cursor < len(self._steps) else None

    def _number(self, ref: str | None) -> int | None:
        return int(ref[1:]) if ref and ref[0] == "n" and ref[1:].isdecimal() else None
