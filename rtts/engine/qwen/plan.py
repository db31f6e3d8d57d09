"""What the scheduler hands the runner for one step, and what comes back: integers by slot.

It knows nothing about who is scheduled or what is executed.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.engine.qwen.prompt import Conditioning, Prompt


@dataclass(frozen=True, slots=True)
class BuildHead:
    """Compute a voice head into the store under `handle`."""

    handle: int
    conditioning: Conditioning


@dataclass(frozen=True, slots=True)
class Admit:
    """Put a prompt into a slot: copy the head, prefill the body, start the codec anew.

    Attributes:
        steps: The utterance's steps so far: where its random draws go on.
    """

    slot: int
    utterance_id: int
    head: int
    head_rows: int
    prompt: Prompt
    conditioning: Conditioning
    seed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Move:
    """Take what a slot holds, so many positions, to another slot."""

    source: int
    target: int
    positions: int


@dataclass(frozen=True, slots=True)
class RowStep:
    """One frame of one slot, with the text id that goes in."""

    slot: int
    utterance_id: int
    text_id: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: drops, builds, moves, admissions, then a frame of `rows` in a batch of `bucket` slots.

    Attributes:
        positions: Positions the longest row will hold.
    """

    now: float
    drop: tuple[tuple[Conditioning, int], ...]
    build: tuple[BuildHead, ...]
    admit: tuple[Admit, ...]
    rows: tuple[RowStep, ...]
    bucket: int
    positions: int
    moves: tuple[Move, ...] = ()

    def concerns(self, slot: int, utterance_id: int) -> bool:
        """Whether it does anything for that utterance in that slot."""
        return any(
            (item.slot, item.utterance_id) == (slot, utterance_id) for item in self.admit
        ) or any((row.slot, row.utterance_id) == (slot, utterance_id) for row in self.rows)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to execute."""
        return not (self.drop or self.build or self.moves or self.admit or self.rows)


@dataclass(frozen=True, slots=True)
class RowResult:
    """What a frame gave for one slot.

    Attributes:
        code: Group-0 code.
        rms: Level of the frame, of 1.0 full scale.
    """

    code: int
    rms: float
    ended: bool
    finite: bool


def bucket_for(rows: int, slots: int, smallest: int) -> int:
    """The batch size for that many slots: powers of two from `smallest`, at most all slots."""
    bucket = smallest
    while bucket < rows:
        bucket *= 2
    return max(smallest, min(bucket, slots))
