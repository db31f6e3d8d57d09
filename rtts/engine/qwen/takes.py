"""From segments of text to takes: what one run of the talker is given, id by id.

An utterance is one talker stream across its segments. It is cut into takes only where it must be: at
a segment end past the frame cap, where text was late, where the model ended with segments unfed.
A take also decides which segment each of its frames belongs to; the model does not say, so the end of a
segment is the first near-silent frame around where the text's length puts it. Integers and text only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from rtts.engine.qwen.endings import EndingWatch, budget_frames, expected_frames
from rtts.engine.qwen.options import EndingOptions, LayoutPolicy, TextOptions
from rtts.engine.qwen.prompt import Layout, Prompt, PromptBuilder, Reference

_EARLIEST = 0.7  # of a segment's expected length: where a pause may be its end
_LATEST = 1.3  # where it ends, pause or not


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment.

    Attributes:
        index: Its number on the wire.
        text: Without white space around it.
        joined: `text` behind the segment before it: a space first, where the script needs one.
        ids: How many text ids it has, or one fewer or more, depending on what it is joined to.
        expected: Frames it should take.
    """

    index: int
    text: str
    joined: str
    ids: int
    expected: float


class Reader:
    """Segments of a take to ids, released as soon as no later segment can change them.

    However a text is cut, at a space or behind the punctuation of a script without spaces, the ids are
    those of the whole text. A space begins a pre-token, so a text before one is final; wide
    punctuation joins the letters behind it into one, so it is held until they come. Where a text is
    cut between letters (a word without end, or a client that wants to hear it now) it is released.

    Owner: engine thread.
    """

    def __init__(self, builder: PromptBuilder) -> None:
        self._stable = builder.stable_text()
        self._has_begun = False

    def read(self, segment: Segment) -> list[int]:
        """Take a segment in; the ids that are certain, at least one of the first segment's."""
        ids = self._stable.feed(segment.joined if self._has_begun else segment.text)
        if not ids or not _joins_letters(segment.text[-1]):
            ids += self._stable.flush()
        self._has_begun = True
        return ids

    def end(self) -> list[int]:
        """No segment follows: the ids that were held."""
        return self._stable.flush()


class TextQueue:
    """Segments of an utterance that no take has taken yet, and whether more may come.

    Owner: engine thread.
    """

    def __init__(self, builder: PromptBuilder) -> None:
        self._builder = builder
        self._previous = ""
        self.waiting: deque[Segment] = deque()
        self.is_finished = False

    def append(self, index: int, text: str) -> Segment | None:
        """Take in a segment; None where it has nothing to speak."""
        text = text.strip()
        if not any(character.isalnum() for character in text):
            return None
        joined = f" {text}" if self._previous and not _is_wide(self._previous) else text
        self._previous = text[-1]
        ids = len(self._builder.text_ids(text))
        segment = Segment(index, text, joined, ids, expected_frames(text))
        self.waiting.append(segment)
        return segment

    def give_back(self, segments: Sequence[Segment]) -> None:
        """Segments a take did not get to are the first to wait again."""
        self.waiting.extendleft(reversed(segments))


def _joins_letters(last: str) -> bool:
    """Whether letters behind this character would be one pre-token with it, no space between."""
    return _is_wide(last) and not last.isalnum()


def _is_wide(character: str) -> bool:
    """Scripts without spaces between words, and their punctuation."""
    return "\u2e80" <= character <= "\u9fff" or "\uff00" <= character <= "\uffef"


class Next(Enum):
    """What a take wants for its next step."""

    WAIT = auto()  # its text is used up and more may come


@dataclass(slots=True)
class _Fed:
    """A segment in a take, and the frame its first id went in with."""

    segment: Segment
    first_frame: int
    expected_end: float


@dataclass(slots=True)
class Take:
    """One run of the talker from a prompt to an end.

    Owner: engine thread.

    Attributes:
        prompt: What it starts from.
        layout: Of the prompt.
        watch: For states it will not leave.
        is_open: Whether text may still be added.
        max_frames: What the slot has room for.
        frames: Steps taken so far.
        current: Which of `fed` the last frame belongs to.
        given: Text ids of its segments; it takes at least as many steps.
        fed: Its segments, in order.
        pending: Text ids of the steps after the next prompt row.
        reader: Makes them of segments that are added.
    """

    prompt: Prompt
    layout: Layout
    reader: Reader
    watch: EndingWatch
    endings: EndingOptions
    is_open: bool
    max_frames: int
    end_id: int
    pad_id: int
    frames: int = 0
    current: int = 0
    given: int = 0
    fed: list[_Fed] = field(default_factory=list)
    pending: deque[int] = field(default_factory=deque)

    def next_text(self) -> int | Next:
        """The text id of the next step, or that it must wait. Does not consume it."""
        if self.frames == 0 and self.prompt.last.text is not None:
            return self.prompt.last.text
        if self.pending:
            return self.pending[0]
        return Next.WAIT if self.is_open else self.pad_id

    def consume(self) -> None:
        """The next text id went into a step."""
        if self.pending and not (self.frames == 0 and self.prompt.last.text is not None):
            self.pending.popleft()
        self.frames += 1

    def add(self, segment: Segment) -> None:
        """Give an open take another segment."""
        assert self.is_open
        first = self.frames + len(self.pending) + (1 if self.frames == 0 else 0)
        self.enter(segment, first)
        self.pending.extend(self.reader.read(segment))

    def close(self) -> None:
        """No more text for this take."""
        if self.is_open:
            self.is_open = False
            self.pending.extend(self.reader.end())
            self.pending.append(self.end_id)

    @property
    def expected(self) -> float:
        """Frames all its text should take."""
        return self.fed[-1].expected_end

    @property
    def budget(self) -> int:
        """Frames it may produce."""
        return min(self.max_frames, budget_frames(self.expected, self.endings))

    @property
    def text_consumed(self) -> bool:
        """Whether everything it will be given has gone in."""
        return not self.is_open and not self.pending

    @property
    def segment(self) -> Segment:
        """The segment that the last frame belongs to."""
        return self.fed[self.current].segment

    def ends_segment(self, *, is_silent: bool) -> bool:
        """Whether the frame just consumed is the last of `segment`, another one following."""
        if self.current + 1 >= len(self.fed):
            return False
        here, following = self.fed[self.current], self.fed[self.current + 1]
        if self.frames <= following.first_frame:
            return False  # speech does not come before its text
        start = self.fed[self.current - 1].expected_end if self.current else 0.0
        length = here.expected_end - start
        early, late = start + length * _EARLIEST, start + length * _LATEST
        return self.frames >= late or (is_silent and self.frames >= early)

    def unfed(self) -> list[Segment]:
        """Segments none of whose ids have gone in; they leave the take."""
        kept = [item for item in self.fed if item.first_frame < self.frames]
        dropped = [item.segment for item in self.fed[len(kept) :]]
        self.fed = kept
        return dropped

    def enter(self, segment: Segment, first_frame: int) -> None:
        """Note that a segment's first id goes in with the frame of that number."""
        self.given += segment.ids
        before = self.fed[-1].expected_end if self.fed else 0.0
        self.fed.append(_Fed(segment, first_frame, before + segment.expected))


class TakePlanner:
    """Begins takes and feeds them, under the text options.

    Args:
        positions: Talker positions of a slot.
    """

    def __init__(
        self,
        builder: PromptBuilder,
        text: TextOptions,
        endings: EndingOptions,
        positions: int,
    ) -> None:
        self._builder, self._text, self._endings = builder, text, endings
        self._positions = positions

    def can_begin(self, queue: TextQueue, reference: Reference | None) -> bool:
        """Whether there is enough text for a take to start."""
        if not queue.waiting:
            return False
        if queue.is_finished or reference is None:
            return True
        reader = Reader(self._builder)
        known = sum(len(reader.read(segment)) for segment in queue.waiting)
        return known >= self._builder.text_needed(reference)

    def begin(self, queue: TextQueue, head_rows: int, reference: Reference | None) -> Take:
        """Start a take with the queue's first segments."""
        room = self._positions - head_rows - 2
        if reference is not None:
            room -= reference.frames + len(reference.text)
        whole = self._whole(queue, room)
        if whole is not None:
            return self._begin_complete(queue, whole, head_rows, reference)
        return self._begin_streaming(queue, head_rows, reference)

    def feed(self, take: Take, queue: TextQueue) -> None:
        """Move waiting segments into an open take, or close it."""
        while take.is_open and queue.waiting:
            if max(take.expected, take.given) >= self._text.anchor_frames:
                take.close()
                return
            take.add(queue.waiting.popleft())
        if take.is_open and queue.is_finished:
            take.close()

    def _whole(self, queue: TextQueue, room: int) -> int | None:
        """How many of the waiting segments a complete layout takes; None for the streaming one."""
        if not queue.is_finished or self._text.layout is LayoutPolicy.STREAMING:
            return None
        count, ids, expected = 0, 0, 0.0
        for segment in queue.waiting:
            ids, expected = ids + segment.ids + 1, expected + segment.expected
            # the text's rows and the frames it may take must fit into the slot
            if ids + budget_frames(expected, self._endings) > room:
                break
            if count and expected > self._text.anchor_frames:
                break
            count += 1
        return count or None  # a first segment too long for its rows streams them

    def _begin_complete(
        self, queue: TextQueue, count: int, head_rows: int, reference: Reference | None
    ) -> Take:
        segments = [queue.waiting.popleft() for _ in range(count)]
        reader = Reader(self._builder)
        ids = [id_ for segment in segments for id_ in reader.read(segment)]
        prompt = self._builder.complete([*ids, *reader.end()], reference)
        take = self._take(prompt, Layout.COMPLETE, reader, head_rows, is_open=False)
        for segment in segments:
            take.enter(segment, 0)
        return take

    def _begin_streaming(
        self, queue: TextQueue, head_rows: int, reference: Reference | None
    ) -> Take:
        needed = self._builder.text_needed(reference)
        reader = Reader(self._builder)
        begun: list[tuple[Segment, int]] = []
        ids: list[int] = []
        while queue.waiting and (len(ids) < needed or not begun):
            segment = queue.waiting.popleft()
            begun.append((segment, len(ids) - (needed - 1)))
            ids += reader.read(segment)
        ended = queue.is_finished and not queue.waiting
        if ended:
            ids += reader.end()
        prompt = self._builder.streaming(ids, ended=ended, reference=reference)
        take = self._take(prompt, Layout.STREAMING, reader, head_rows, is_open=not ended)
        take.pending.extend(prompt.trailing)
        for segment, first in begun:
            take.enter(segment, max(0, first))
        return take

    def _take(
        self, prompt: Prompt, layout: Layout, reader: Reader, head_rows: int, *, is_open: bool
    ) -> Take:
        return Take(
            prompt=prompt,
            layout=layout,
            reader=reader,
            watch=EndingWatch(self._endings),
            endings=self._endings,
            is_open=is_open,
            max_frames=self._positions - head_rows - len(prompt.body) - 1,
            end_id=self._builder.end_id,
            pad_id=self._builder.pad_id,
        )
