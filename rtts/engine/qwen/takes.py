"""From segments of text to takes: what one run of the talker is given, id by id.

An utterance is one talker stream across its segments. It is cut into takes only where it must be: at
a segment end past the frame cap, where text was late, where the model ended with segments unfed.
A take also decides which segment each of its frames belongs to; the model does not say, so the end of a
segment is the first near-silent frame around where the text's length puts it. Integers and text only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from rtts.engine.qwen.endings import EndingWatch, budget_frames, expected_frames
from rtts.engine.qwen.options import EndingOptions, LayoutPolicy, TextOptions
from rtts.engine.qwen.prompt import Layout, Prompt, PromptBuilder, Reference

_EARLIEST = 0.7  # of a segment's expected length: where a pause may be its end
_LATEST = 1.3  # where it ends, pause or not


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment as ids.

    Attributes:
        index: Its number on the wire.
        ids: Text ids where it begins a take.
        joined_ids: Text ids behind the segment before it: a space first, where the script needs one.
        expected: Frames it should take.
    """

    index: int
    ids: tuple[int, ...]
    joined_ids: tuple[int, ...]
    expected: float


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
        """Take in a segment; None where it has nothing to speak.

        Segments end at word boundaries, so the ids of each are final: a space starts a new
        pre-token, and byte pairs do not merge across pre-tokens.
        """
        text = text.strip()
        if not any(character.isalnum() for character in text):
            return None
        ids = joined_ids = tuple(self._builder.text_ids(text))
        if _needs_space(self._previous, text):
            joined_ids = tuple(self._builder.text_ids(f" {text}"))
        self._previous = text
        segment = Segment(index, ids, joined_ids, expected_frames(text))
        self.waiting.append(segment)
        return segment

    def give_back(self, segments: Sequence[Segment]) -> None:
        """Segments a take did not get to are the first to wait again."""
        self.waiting.extendleft(reversed(segments))


def _needs_space(before: str, after: str) -> bool:
    if not before:
        return False
    return not (_is_wide(before[-1]) or _is_wide(after[0]))


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
    """

    prompt: Prompt
    layout: Layout
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
        self.pending.extend(segment.joined_ids)

    def close(self) -> None:
        """No more text for this take."""
        if self.is_open:
            self.is_open = False
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
        self.given += len(segment.joined_ids if self.fed else segment.ids)
        before = self.fed[-1].expected_end if self.fed else 0.0
        self.fed.append(_Fed(segment, first_frame, before + segment.expected))


def _joined(segments: Iterable[Segment]) -> list[int]:
    """The ids of segments that begin a take."""
    ids: list[int] = []
    for segment in segments:
        ids += segment.joined_ids if ids else segment.ids
    return ids


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
        known = len(_joined(queue.waiting))
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
            ids, expected = ids + len(segment.joined_ids), expected + segment.expected
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
        prompt = self._builder.complete(_joined(segments), reference)
        take = self._take(prompt, Layout.COMPLETE, head_rows, is_open=False)
        for segment in segments:
            take.enter(segment, 0)
        return take

    def _begin_streaming(
        self, queue: TextQueue, head_rows: int, reference: Reference | None
    ) -> Take:
        needed = self._builder.text_needed(reference)
        segments: list[Segment] = []
        ids: list[int] = []
        while queue.waiting and (len(ids) < needed or not segments):
            segments.append(queue.waiting.popleft())
            ids = _joined(segments)
        ended = queue.is_finished and not queue.waiting
        prompt = self._builder.streaming(ids, ended=ended, reference=reference)
        take = self._take(prompt, Layout.STREAMING, head_rows, is_open=not ended)
        take.pending.extend(prompt.trailing)
        first = -(needed - 1)
        for segment in segments:
            take.enter(segment, max(0, first))
            first += len(segment.joined_ids if len(take.fed) > 1 else segment.ids)
        return take

    def _take(self, prompt: Prompt, layout: Layout, head_rows: int, *, is_open: bool) -> Take:
        return Take(
            prompt=prompt,
            layout=layout,
            watch=EndingWatch(self._endings),
            endings=self._endings,
            is_open=is_open,
            max_frames=self._positions - head_rows - len(prompt.body) - 1,
            end_id=self._builder.end_id,
            pad_id=self._builder.pad_id,
        )
