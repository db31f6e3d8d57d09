"""Which of several equal engines speaks an utterance: the one that owes the least audio.

Unless another has its voice in hand, and owes hardly more. What an engine owes is the speech of the text it was given, less what it has produced. Counting
utterances instead would give a chapter and a "yes" the same weight. This module knows neither
processes nor devices nor clocks: it hears commands and events, and names an index.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rtts.engine.interface import (
    AddVoice,
    AppendText,
    AudioProduced,
    Capabilities,
    Command,
    Event,
    FinishText,
    LoadVoice,
    RemoveVoice,
    StartUtterance,
    VoiceEvicted,
    VoiceLoaded,
)

BYTES_PER_S = 15.0
"""UTF-8 bytes of text in a second of speech: English at 150 to 160 words a minute has about 15
letters, Chinese at 4.5 to 5 syllables a second three bytes each."""

OPEN_S = 5.0
"""What an utterance whose text goes on may be asked for at any moment: a sentence or two."""

LIVE_S = 0.5
"""What an utterance still owes that has outlasted the estimate."""

AFFINITY_S = 2.0
"""How much more audio an engine may owe and still be preferred for a voice it has in hand. A voice
that is not costs from some milliseconds (a head of the Qwen engine) to two seconds (reading one)."""

_WARM_VOICES = 64  # remembered of each engine; its cache holds fewer
_BYTES_PER_SAMPLE = 2


@dataclass(slots=True)
class _Owed:
    """What an utterance is owed. Owner: the cluster."""

    member: int
    bytes_per_s: float
    text_bytes: int = 0
    pcm_bytes: int = 0
    is_open: bool = True

    def seconds(self, pcm_bytes_per_s: float) -> float:
        rest = self.text_bytes / self.bytes_per_s - self.pcm_bytes / pcm_bytes_per_s
        return max(rest, OPEN_S if self.is_open else LIVE_S)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that could speak an utterance.

    Attributes:
        rank: Lower is better, whatever is owed: ready before loading, a free slot before a full one.
    """

    member: int
    rank: int


class Cluster:
    """The ledger of several engines.

    Owner: event loop.
    """

    def __init__(self, members: int) -> None:
        self._owed: dict[int, _Owed] = {}  # live utterances
        self._warm: list[OrderedDict[tuple[str, str], None]] = [
            OrderedDict() for _ in range(members)
        ]
        self._everywhere: set[str] = set()  # voices that each engine was told to load
        self._pcm_bytes_per_s = 48_000.0

    def owed_s(self) -> dict[int, float]:
        """Audio each engine owes, in seconds; those that owe none may be missing."""
        owed: dict[int, float] = {}
        for each in self._owed.values():
            owed[each.member] = owed.get(each.member, 0.0) + each.seconds(self._pcm_bytes_per_s)
        return owed

    def place(self, start: StartUtterance, candidates: Sequence[Candidate]) -> int:
        """Choose an engine for an utterance and note that it speaks it.

        Args:
            candidates: At least one.
        """
        member = self._choose(start, candidates)
        self._owed[start.utterance_id] = _Owed(member, BYTES_PER_S * start.speed)
        self._remember(member, (start.voice, start.instructions))
        return member

    def on_command(self, command: Command) -> None:
        """Take a command that is on its way to the utterance's engine."""
        if isinstance(command, LoadVoice):
            self._everywhere.add(command.voice)
            return
        if isinstance(command, AddVoice | RemoveVoice):
            return
        owed = self._owed.get(command.utterance_id)
        if owed is None:
            return
        if isinstance(command, AppendText):
            owed.text_bytes += len(command.text.encode("utf-8", "surrogatepass"))
        elif isinstance(command, FinishText):
            owed.is_open = False

    def on_event(self, member: int, event: Event) -> None:
        """Take an event of an engine."""
        if isinstance(event, AudioProduced):
            owed = self._owed.get(event.utterance_id)
            if owed is not None:
                owed.pcm_bytes += len(event.pcm)
        elif isinstance(event, VoiceLoaded):
            self._remember(member, (event.voice, ""))
        elif isinstance(event, VoiceEvicted):
            self._everywhere.discard(event.voice)
            for key in [key for key in self._warm[member] if key[0] == event.voice]:
                del self._warm[member][key]

    def ended(self, utterance_id: int) -> None:
        """An utterance is over, however it ended."""
        self._owed.pop(utterance_id, None)

    def died(self, member: int) -> None:
        """An engine is gone, with every voice it had in hand; its utterances end one by one."""
        self._warm[member].clear()

    def set_rate(self, sample_rate_hz: int) -> None:
        """Of the engines' PCM."""
        self._pcm_bytes_per_s = float(sample_rate_hz * _BYTES_PER_SAMPLE)

    def _choose(self, start: StartUtterance, candidates: Sequence[Candidate]) -> int:
        best = min(each.rank for each in candidates)
        owed = self.owed_s()
        members = sorted(
            (each.member for each in candidates if each.rank == best),
            key=lambda member: (owed.get(member, 0.0), member),
        )
        least = members[0]
        limit_s = owed.get(least, 0.0) + AFFINITY_S
        key = (start.voice, start.instructions)
        if start.voice in self._everywhere and not start.instructions:
            return least
        warm = (each for each in members if key in self._warm[each])
        return next((each for each in warm if owed.get(each, 0.0) <= limit_s), least)

    def _remember(self, member: int, key: tuple[str, str]) -> None:
        warm = self._warm[member]
        warm[key] = None
        warm.move_to_end(key)
        if len(warm) > _WARM_VOICES:
            warm.popitem(last=False)


def difference(one: Capabilities, other: Capabilities) -> str:
    """What two engines of a cluster do not have in common and should; "" where nothing."""
    names = (
        "engine",
        "model",
        "voices",
        "default_voice",
        "sample_rate_hz",
        "text_unit",
        "word_timings",
        "takes_instructions",
        "takes_seed",
        "speed_range",
    )
    return ", ".join(name for name in names if getattr(one, name) != getattr(other, name))


def merged(all_: Sequence[Capabilities]) -> Capabilities:
    """One engine's capabilities of several equal engines': what they hold is added up.

    Args:
        all_: At least one.
    """
    memory: dict[str, int] = {}
    for each in all_:
        for name, count in each.memory:
            memory[name] = memory.get(name, 0) + count
    return replace(
        all_[-1],
        max_utterances=sum(each.max_utterances for each in all_),
        slots=sum(each.slots for each in all_),
        memory=tuple(memory.items()),
        degraded=tuple(dict.fromkeys(each for one in all_ for each in one.degraded)),
    )


def rank(*, is_ready: bool, live: int, capabilities: Capabilities | None) -> int:
    """How good a candidate an engine is, apart from what it owes: 0 is best."""
    if not is_ready or capabilities is None:
        return 3
    if live >= capabilities.max_utterances:
        return 2
    return 1 if capabilities.slots and live >= capabilities.slots else 0
