"""The waist: everything the front half and an engine say to each other.

Frozen commands go in, frozen events come out; both hold only ints, floats, strings and bytes, so
they cross a thread or a process unchanged. An engine *core* is three synchronous methods; a *host*
(`rtts.engine.local`, `rtts.engine.remote`) runs cores and is what the server holds. This module
knows nothing about sockets, sessions, models or clocks: time is an argument named `now`, monotonic
seconds of the machine's `CLOCK_MONOTONIC` (the same in every process of one host).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

# --- what an engine is -------------------------------------------------------------------------


class TextUnit(StrEnum):
    """What an engine can be fed."""

    SEGMENT = "segment"  # whole segments only
    TOKEN = "token"  # a stream across segments (one talker stream per utterance)


class WordTimings(StrEnum):
    """What an engine knows about when its words are heard."""

    NONE = "none"  # the session estimates, and marks so
    ESTIMATED = "estimated"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice a client can name.

    Attributes:
        id: What `start.voice` names.
        languages: BCP 47 primary tags it can speak, best first ("en", "zh").
        licence: SPDX expression of its weights.
        name: What people call it, where that is not its id; it names the voice as well.
        notes: What it cannot do, in words, for `/v1/voices`.
        kind: `preset` comes with the model, `clone` was taken from a recording, `design` from a
            description.
    """

    id: str
    languages: tuple[str, ...]
    licence: str
    description: str = ""
    gender: str = ""
    locale: str = ""
    notes: tuple[str, ...] = ()
    kind: Literal["preset", "clone", "design"] = "preset"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; data, not subclasses.

    Attributes:
        sample_rate_hz: Of every `AudioProduced.pcm`.
        max_utterances: Concurrent utterances it accepts before it answers `overloaded`.
        slots: How many of them it speaks at the same time, while the others wait; 0 where all
            share what there is.
        memory: Bytes of its device by what they are for ("weights", "slots", ...), where it counts
            them.
        speed_range: Lowest and highest `StartUtterance.speed` that keep quality.
        streams_within_segment: Audio of a segment starts before the segment is rendered whole.
        attention: What computes attention over prompts, for reports.
        added_languages: What voices speak that users bring (`AddVoice`).
        degraded: One sentence for each thing that works less well here than it could.
        step_limit_s: The longest a step takes, loading a voice apart: an engine process that is
            silent for longer hangs, and is killed.
    """

    engine: str
    model: str
    voices: tuple[Voice, ...]
    default_voice: str
    sample_rate_hz: int = 24_000
    text_unit: TextUnit = TextUnit.SEGMENT
    word_timings: WordTimings = WordTimings.NONE
    streams_within_segment: bool = False
    clones_voices: bool = False
    designs_voices: bool = False
    takes_instructions: bool = False
    takes_seed: bool = True
    speed_range: tuple[float, float] = (1.0, 1.0)
    max_utterances: int = 256
    attention: str = ""
    added_languages: tuple[str, ...] = ()
    slots: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    degraded: tuple[str, ...] = ()
    step_limit_s: float = 15.0

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language some voice speaks, in order of first mention."""
        return tuple(dict.fromkeys(tag for voice in self.voices for tag in voice.languages))

    def voice(self, voice_id: str) -> Voice | None:
        """The voice of that id, else the one of that name, or None."""
        found = next((voice for voice in self.voices if voice.id == voice_id), None)
        if found is None and voice_id:
            found = next((voice for voice in self.voices if voice.name == voice_id), None)
        return found


# --- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadVoice:
    """Load a voice and let it speak once, so that its next utterance finds everything warm."""

    voice: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class AddVoice:
    """Know one more voice until the process ends; a damaged one is answered by `VoiceFailed`.

    Attributes:
        path: What was made of a `clone`'s reference, a file of the engine's own kind; "" for a
            `design`.
        description: Of a `design`, how it sounds, in words.
    """

    voice: Voice
    path: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class RemoveVoice:
    """Know an added voice no more; what it is speaking it finishes."""

    voice: str


@dataclass(frozen=True, slots=True)
class StartUtterance:
    """Begin an utterance. Its first `AppendText` follows in the same batch of commands.

    Attributes:
        utterance_id: Unique in the life of the server process.
        language: BCP 47 primary tag, or "auto".
        until_s: Initial credit: seconds of this utterance's audio the engine may produce.
        seed: Fixes every random draw; None lets the engine choose.
        budget_s: First-packet budget, a scheduling hint.
    """

    utterance_id: int
    voice: str
    language: str = "auto"
    instructions: str = ""
    speed: float = 1.0
    seed: int | None = None
    until_s: float = 5.0
    word_timings: bool = True
    budget_s: float = 0.5


@dataclass(frozen=True, slots=True)
class AppendText:
    """One segment of text to speak, after all earlier ones of the utterance.

    Attributes:
        segment: 0, 1, 2, ... without gaps, except for segments that have no text to speak.
        text: Speakable text, markup already gone. Never empty.
    """

    utterance_id: int
    segment: int
    text: str


@dataclass(frozen=True, slots=True)
class FinishText:
    """No more text: finish when what was appended has been spoken."""

    utterance_id: int


@dataclass(frozen=True, slots=True)
class GrantAudio:
    """Raise the credit: the utterance may now run to `until_s` seconds of its own audio."""

    utterance_id: int
    until_s: float


@dataclass(frozen=True, slots=True)
class CancelUtterance:
    """Stop. Answered by exactly one terminal event unless one was already sent."""

    utterance_id: int


Command = (
    LoadVoice
    | StartUtterance
    | AppendText
    | FinishText
    | GrantAudio
    | CancelUtterance
    | AddVoice
    | RemoveVoice
)

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The engine is loaded and can speak. Comes again after a restart."""

    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine died; its utterances have failed. Sent by the host, not by cores.

    Attributes:
        is_final: A setting is wrong, and it was never ready: it is not started again.
    """

    message: str
    restart_in_s: float
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class EngineMembers:
    """How much of an engine that is several processes is up; sent by their host when it changes.

    Attributes:
        up: Processes (or threads) that speak.
        total: All there should be.
        max_utterances: What those that are up accept; as in `Capabilities`.
        slots: Likewise.
    """

    up: int
    total: int
    max_utterances: int
    slots: int


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy the engine is; sent when it changes, at most every 50 ms.

    Attributes:
        utterances: Live utterances.
        backlog_s: Predicted seconds until a new utterance's first chunk would be begun.
        first_chunk_s: Recent typical compute time of an utterance's first chunk.
        cache_entries: What its cache of voices holds.
        cache_bytes: The memory of that.
    """

    utterances: int
    backlog_s: float
    first_chunk_s: float
    cache_entries: int = 0
    cache_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VoiceLoaded:
    """A voice is warm: it is loaded and has spoken.

    Attributes:
        cached: True when nothing had to be loaded (a cache hit).
        load_s: Seconds the load took.
    """

    voice: str
    cached: bool
    load_s: float


@dataclass(frozen=True, slots=True)
class VoiceEvicted:
    """A voice, or one manner of it (a language, an instruction), left the cache."""

    voice: str


@dataclass(frozen=True, slots=True)
class VoiceFailed:
    """A voice could not be loaded."""

    voice: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AudioProduced:
    """Audio of one segment, in order, never of two segments at once.

    Attributes:
        pcm: s16le mono at `Capabilities.sample_rate_hz`; may be empty with `last_of_segment`.
        last_of_segment: Nothing more of this segment follows.
        begun_s: Monotonic time at which the engine began to compute this segment; set on a
            segment's first event, else 0.
        parts_s: Of an utterance's first audio, and only where the engine knows: how long each of
            `rtts.metrics.ENGINE_PARTS` took, in seconds. Their sum is at most the time since
            `begun_s`.
    """

    utterance_id: int
    segment: int
    pcm: bytes
    last_of_segment: bool = False
    begun_s: float = 0.0
    parts_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """One word and when it is heard.

    Attributes:
        start: First character, an offset into the segment's `AppendText.text`.
        end: One past the last character.
        start_s: Seconds from the start of the segment's audio.
        end_s: Likewise; `start_s <= end_s`, and words do not overlap.
    """

    start: int
    end: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class WordsTimed:
    """Word times of a segment, once and whole.

    Sent before or with the segment's first audio where possible. An engine that plans a segment in
    parts knows them when it begins the last one.
    """

    utterance_id: int
    segment: int
    words: tuple[Word, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class SegmentSkipped:
    """A segment this voice cannot speak. Counts as the segment's `last_of_segment`.

    Attributes:
        code: A warning code: "unspeakable_text" (a script or language the voice does not know).
    """

    utterance_id: int
    segment: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SegmentWarned:
    """A segment that is spoken, but not all of it or not well.

    Attributes:
        code: A warning code: "partly_unspeakable" (words the voice does not know were left out).
    """

    utterance_id: int
    segment: int
    code: str
    message: str


class FinishReason(StrEnum):
    """Why an utterance ended without failing."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    BUDGET = "budget"  # the frame budget ran out: the model did not stop by itself
    STUCK = "stuck"  # silence or repetition was cut off


@dataclass(frozen=True, slots=True)
class UtteranceStats:
    """What one utterance cost.

    Attributes:
        audio_s: Seconds of audio produced.
        busy_s: Seconds of engine time spent on it (its share, where steps are batched).
        voice_cached: Whether the voice was warm when the utterance started.
    """

    audio_s: float = 0.0
    busy_s: float = 0.0
    voice_cached: bool = True


@dataclass(frozen=True, slots=True)
class UtteranceFinished:
    """Terminal: all text was spoken, or the utterance was cancelled."""

    utterance_id: int
    reason: FinishReason
    stats: UtteranceStats = field(default_factory=UtteranceStats)


@dataclass(frozen=True, slots=True)
class UtteranceFailed:
    """Terminal: the utterance could not be spoken.

    Attributes:
        code: Of `rtts.errors`: "utterance_failed", "engine_dead", "overloaded", "unknown_voice", ...
    """

    utterance_id: int
    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None


UtteranceEvent = (
    AudioProduced
    | WordsTimed
    | SegmentSkipped
    | SegmentWarned
    | UtteranceFinished
    | UtteranceFailed
)
EngineEvent = (
    EngineReady | EngineDown | EngineMembers | EngineLoad | VoiceLoaded | VoiceEvicted | VoiceFailed
)
Event = UtteranceEvent | EngineEvent

# --- cores and hosts -----------------------------------------------------------------------------


class EngineCore(Protocol):
    """An engine without threads, sockets or clocks. Used by one thread at a time.

    Rules: exactly one terminal event per started utterance and nothing after it; audio only inside
    the credit; a command for an utterance that is unknown or ended is ignored (it crossed the
    terminal event on the way); `apply` never raises for what a client can cause.
    """

    def apply(self, command: Command) -> None:
        """Take one command. Its events come from the next `step`."""

    def has_work(self) -> bool:
        """Whether `step` would do anything: compute, or hand out waiting events."""

    def step(self, now: float) -> Sequence[Event]:
        """Do one bounded piece of work (a chunk, a batch, a load) and return what came of it."""


class Engine(Protocol):
    """A hosted engine, as the server sees it. All methods are called on the event loop."""

    async def start(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        """Start hosting; returns at once. `deliver` is called on the event loop with each batch."""

    def submit(self, commands: Sequence[Command]) -> None:
        """Hand commands over, in order; never blocks.

        Commands to a dead engine's utterances fail typed: `UtteranceFailed` with "engine_dead".
        """

    async def close(self) -> None:
        """Stop hosting and free everything; idempotent."""
