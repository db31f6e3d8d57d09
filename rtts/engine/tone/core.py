"""The core of the tone engine: who is spoken next, at what simulated cost, and with which faults.

It knows nothing about threads, sockets or the clock; see `rtts.engine.tone`.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
import wave
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count

import numpy as np
import numpy.typing as npt

from rtts.engine.interface import (
    AddVoice,
    AppendText,
    AudioProduced,
    CancelUtterance,
    Command,
    EngineLoad,
    EngineReady,
    Event,
    FinishReason,
    FinishText,
    GrantAudio,
    LoadVoice,
    RemoveVoice,
    SegmentSkipped,
    StartUtterance,
    UtteranceFailed,
    UtteranceFinished,
    UtteranceStats,
    Voice,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
    Word,
    WordsTimed,
)
from rtts.engine.tone.options import ToneOptions, capabilities
from rtts.engine.tone.sound import (
    BASE_HZ,
    REMOVED_HZ,
    SAMPLE_RATE_HZ,
    Notes,
    VoiceCache,
    pitch_for,
    pitch_of,
    render,
)
from rtts.errors import (
    BadRequestError,
    EngineDeadError,
    OverloadedError,
    UnknownVoiceError,
    UnsupportedLanguageError,
    UtteranceError,
)

_LOAD_INTERVAL_S = 0.05  # `EngineLoad` at most this often (its docstring)
_WORD = re.compile(r"\S+")


class _Phase(Enum):
    OPEN = "open"  # more text may come
    CLOSING = "closing"  # FinishText came
    ENDED = "ended"  # its terminal event is out or waiting in the outbox


@dataclass(slots=True)
class _Segment:
    index: int
    text: str
    length_samples: int
    made_samples: int = 0
    table: npt.NDArray[np.int16] | None = None  # set when its first chunk is begun
    begun_s: float = 0.0  # set with `table`


@dataclass(slots=True, eq=False)
class _Utterance:
    """One live utterance. Owner: the core."""

    start: StartUtterance
    order: int
    until_s: float
    voice_cached: bool
    notes: Notes | None  # None until its voice is loaded; kept when the voice is evicted
    phase: _Phase = _Phase.OPEN
    segments: deque[_Segment] = field(default_factory=deque)  # the head is being spoken
    made_samples: int = 0
    made_chunks: int = 0
    busy_s: float = 0.0
    deadline_s: float = 0.0  # when a listener who began at the first chunk has heard it all
    scheduled: bool = False  # in the queue, resting, or being worked on

    @property
    def id(self) -> int:
        return self.start.utterance_id


@dataclass(slots=True)
class _Work:
    """What the simulated device is doing: one chunk of an utterance, or a voice being loaded."""

    begun_s: float
    due_s: float
    utterance: _Utterance | None = None
    load: LoadVoice | None = None


class ToneEngine:
    """An `EngineCore` that makes tones.

    Owner: one thread at a time. It also offers `next_due_s`, see `rtts.engine.drive.TimedCore`.
    """

    def __init__(self, options: ToneOptions | None = None) -> None:
        self._options = options or ToneOptions()
        self._capabilities = capabilities(self._options)
        self._chunk_samples = round(self._options.chunk_s * SAMPLE_RATE_HZ)
        self._voices = VoiceCache(self._options.voice_cache)
        self._added_hz: dict[str, float] = {}
        self._live: dict[int, _Utterance] = {}
        self._order = count()
        # Runnable utterances, (rank, deadline, order, utterance): those without audio first, then
        # whoever's listener runs dry first. Entries of ended utterances are dropped when met.
        self._queue: list[tuple[int, float, int, _Utterance]] = []
        self._resting: list[tuple[float, int, _Utterance]] = []  # `pause_s`, by waking time
        self._loads: deque[LoadVoice] = deque()
        self._work: _Work | None = None
        self._chunks_made = 0
        self._load_told = (0, 0)  # (live, waiting for a first chunk) of the last EngineLoad
        self._load_due_s = -math.inf  # when the next one may be told
        self._outbox: list[Event] = [EngineReady(self._capabilities)]

    # --- the three methods of a core, and the hint for its host ---------------------------------

    def apply(self, command: Command) -> None:
        """Take one command; what comes of it is returned by the next `step`."""
        match command:
            case GrantAudio():
                self._grant(command)
            case AppendText():
                self._append(command)
            case StartUtterance():
                self._start(command)
            case FinishText():
                self._finish_text(command)
            case CancelUtterance():
                self._cancel(command)
            case LoadVoice():
                self._loads.append(command)
            case AddVoice():
                self._add_voice(command)
            case RemoveVoice():
                self._remove_voice(command.voice)

    def has_work(self) -> bool:
        """Whether `step` would do something, now or at `next_due_s`."""
        return bool(
            self._outbox
            or self._work
            or self._queue
            or self._loads
            or self._resting
            or self._load() != self._load_told
        )

    def next_due_s(self, now: float) -> float | None:
        """When `step` next has something to do; None: as soon as `has_work` says."""
        if self._outbox or (self._work is None and (self._queue or self._loads)):
            return None
        due_s = [] if self._work is None else [self._work.due_s]
        if self._resting:
            due_s.append(self._resting[0][0])
        if self._load() != self._load_told:
            due_s.append(self._load_due_s)
        return min(due_s, default=None)

    def step(self, now: float) -> Sequence[Event]:
        """Make at most one chunk, or load one voice, and return what came of it.

        Raises:
            EngineDeadError: `die_after_chunks` was reached.
        """
        while self._resting and self._resting[0][0] <= now:
            rested = heapq.heappop(self._resting)[2]
            rested.scheduled = False
            self._enqueue(rested)
        if self._work is None:
            self._work = self._begin(now)
        if self._work is not None and self._work.due_s <= now:
            work, self._work = self._work, None
            if work.utterance is not None:
                self._make_chunk(work.utterance, work.due_s - work.begun_s, now)
            elif work.load is not None:
                self._load_voice(work.load)
        self._tell_load(now)
        events, self._outbox = self._outbox, []
        return events

    # --- commands -------------------------------------------------------------------------------

    def _start(self, command: StartUtterance) -> None:
        if command.utterance_id in self._live:
            return  # ids are unique in a server's life; a second start has nobody to answer to
        refusal = self._refusal(command)
        if refusal is not None:
            self._outbox.append(refusal)
            return
        notes = self._voices.get(command.voice)
        self._live[command.utterance_id] = _Utterance(
            start=command,
            order=next(self._order),
            until_s=command.until_s,
            voice_cached=notes is not None,
            notes=notes,
        )

    def _refusal(self, command: StartUtterance) -> UtteranceFailed | None:
        """Why this utterance cannot be spoken, or None."""
        utterance_id = command.utterance_id
        voice = self._capabilities.voice(command.voice)
        low, high = self._capabilities.speed_range
        if voice is None:
            known = ", ".join(self._options.voices)
            return UtteranceFailed(
                utterance_id, UnknownVoiceError.code, f"no voice {command.voice!r}; have {known}"
            )
        if command.language not in ("auto", *voice.languages):
            message = f"voice {voice.id!r} does not speak {command.language!r}"
            return UtteranceFailed(utterance_id, UnsupportedLanguageError.code, message)
        if not low <= command.speed <= high:  # written so that NaN is refused too
            message = f"speed {command.speed} is outside {low}..{high}"
            return UtteranceFailed(utterance_id, BadRequestError.code, message)
        if len(self._live) >= self._options.max_utterances:
            return UtteranceFailed(
                utterance_id,
                OverloadedError.code,
                f"{len(self._live)} utterances are being spoken",
                retryable=True,
                retry_after_s=1.0,
            )
        return None

    def _append(self, command: AppendText) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is None or utterance.phase is not _Phase.OPEN:
            return
        seconds = len(command.text) * self._options.char_s / utterance.start.speed
        length_samples = max(1, round(seconds * SAMPLE_RATE_HZ))
        utterance.segments.append(_Segment(command.segment, command.text, length_samples))
        if len(utterance.segments) == 1:
            self._advance(utterance)

    def _finish_text(self, command: FinishText) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None and utterance.phase is _Phase.OPEN:
            utterance.phase = _Phase.CLOSING
            if not utterance.segments:
                self._advance(utterance)

    def _grant(self, command: GrantAudio) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None and command.until_s > utterance.until_s:
            utterance.until_s = command.until_s
            self._enqueue(utterance)

    def _cancel(self, command: CancelUtterance) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None:
            self._end(utterance, FinishReason.CANCELLED)

    # --- work -----------------------------------------------------------------------------------

    def _advance(self, utterance: _Utterance) -> None:
        """Go on to the next segment that can be spoken, or end."""
        while utterance.segments:
            segment = utterance.segments[0]
            if segment.index == self._options.fail_at_segment:
                message = f"segment {segment.index} failed, as `fail_at_segment` asks"
                self._drop(utterance)
                self._outbox.append(UtteranceFailed(utterance.id, UtteranceError.code, message))
                return
            reason = self._unspeakable(segment.text)
            if not reason:
                self._enqueue(utterance)
                return
            utterance.segments.popleft()
            self._outbox.append(
                SegmentSkipped(utterance.id, segment.index, "unspeakable_text", reason)
            )
        if utterance.phase is _Phase.CLOSING and not self._options.never_finish:
            self._end(utterance, FinishReason.COMPLETED)

    def _unspeakable(self, text: str) -> str:
        """Why this voice cannot speak the text; empty if it can."""
        for word in self._options.unspeakable:
            if word in text:
                return f"the voice cannot say {word!r}"
        for script in self._options.skip_scripts:
            if any(unicodedata.name(char, "").split(" ")[0] == script for char in text):
                return f"the voice does not know the script {script.lower()}"
        return ""

    def _next_samples(self, utterance: _Utterance) -> int:
        """Length of the utterance's next chunk; 0 when it has no text."""
        if not utterance.segments:
            return 0
        segment = utterance.segments[0]
        return min(self._chunk_samples, segment.length_samples - segment.made_samples)

    def _enqueue(self, utterance: _Utterance) -> None:
        """Queue the utterance for its next chunk, if it has text and credit for all of it."""
        samples = self._next_samples(utterance)
        # In floats, for an unlimited credit is `inf`; a thousandth of a sample forgives rounding.
        credit_samples = utterance.until_s * SAMPLE_RATE_HZ + 1e-3
        if (
            samples
            and not utterance.scheduled
            and utterance.made_samples + samples <= credit_samples
        ):
            utterance.scheduled = True
            rank = 1 if utterance.made_chunks else 0
            entry = (rank, utterance.deadline_s, utterance.order, utterance)
            heapq.heappush(self._queue, entry)

    def _begin(self, now: float) -> _Work | None:
        """Choose what to do next: a voice somebody waits for, else the most urgent chunk."""
        if self._loads:
            load = self._loads.popleft()
            is_cached = self._voices.get(load.voice) is not None
            return _Work(now, now + (0.0 if is_cached else self._options.voice_load_s), load=load)
        while self._queue:
            utterance = heapq.heappop(self._queue)[3]
            if utterance.phase is not _Phase.ENDED:
                segment = utterance.segments[0]
                segment.begun_s = segment.begun_s or now
                return _Work(now, now + self._cost_s(utterance), utterance=utterance)
        return None

    def _cost_s(self, utterance: _Utterance) -> float:
        """Simulated engine time of the utterance's next chunk."""
        options = self._options
        cost_s = options.real_time_factor * self._next_samples(utterance) / SAMPLE_RATE_HZ
        if not utterance.made_chunks:
            cost_s += options.first_chunk_delay_s
        if utterance.notes is None and self._voices.get(utterance.start.voice) is None:
            cost_s += options.voice_load_s
        return cost_s

    def _make_chunk(self, utterance: _Utterance, cost_s: float, now: float) -> None:
        if self._chunks_made == self._options.die_after_chunks:
            raise EngineDeadError(f"died after {self._chunks_made} chunks, as asked")
        segment = utterance.segments[0]
        samples = self._next_samples(utterance)
        begun_s = 0.0
        if segment.table is None:
            begun_s = segment.begun_s
            segment.table = self._notes_for(utterance).table(segment.text, utterance.start.seed)
            if utterance.start.word_timings:
                self._outbox.append(self._time_words(utterance, segment))
        stop_samples = segment.made_samples + samples
        last = stop_samples == segment.length_samples
        pcm = render(segment.table, segment.made_samples, stop_samples, segment.length_samples)
        parts_s: tuple[float, ...] = ()
        if not utterance.made_chunks and cost_s > 0:  # what it pretends to do first is the prompt
            delay_s = self._options.first_chunk_delay_s
            parts_s = (delay_s, max(0.0, cost_s - delay_s), 0.0)  # differences of clocks
        self._outbox.append(AudioProduced(utterance.id, segment.index, pcm, last, begun_s, parts_s))
        segment.made_samples = stop_samples
        self._account(utterance, samples, cost_s, now)
        if last:
            utterance.segments.popleft()
            self._advance(utterance)
        else:
            self._enqueue(utterance)

    def _account(self, utterance: _Utterance, samples: int, cost_s: float, now: float) -> None:
        """Book a chunk that was made and decide whether its utterance may queue again."""
        self._chunks_made += 1
        utterance.made_chunks += 1
        utterance.made_samples += samples
        utterance.busy_s += cost_s
        # A listener who ran dry starts again now: an utterance that waited for its text must not
        # catch up ahead of everybody for as long as it waited.
        utterance.deadline_s = max(utterance.deadline_s, now) + samples / SAMPLE_RATE_HZ
        utterance.scheduled = utterance.made_chunks == self._options.pause_after_chunks
        if utterance.scheduled:
            wake_s = now + self._options.pause_s
            heapq.heappush(self._resting, (wake_s, utterance.order, utterance))

    def _time_words(self, utterance: _Utterance, segment: _Segment) -> WordsTimed:
        """Word times of a segment, proportional to its characters, and so exact by definition."""
        char_s = segment.length_samples / SAMPLE_RATE_HZ / len(segment.text)
        words = tuple(
            Word(match.start(), match.end(), match.start() * char_s, match.end() * char_s)
            for match in _WORD.finditer(segment.text)
        )
        return WordsTimed(utterance.id, segment.index, words, exact=True)

    def _end(self, utterance: _Utterance, reason: FinishReason) -> None:
        """End the utterance; its terminal event leaves with the next step."""
        self._drop(utterance)
        stats = UtteranceStats(
            audio_s=utterance.made_samples / SAMPLE_RATE_HZ,
            busy_s=utterance.busy_s,
            voice_cached=utterance.voice_cached,
        )
        self._outbox.append(UtteranceFinished(utterance.id, reason, stats))

    def _drop(self, utterance: _Utterance) -> None:
        utterance.phase = _Phase.ENDED
        del self._live[utterance.id]
        if self._work is not None and self._work.utterance is utterance:
            self._work = None  # a cancelled chunk is not finished first

    # --- voices and load ------------------------------------------------------------------------

    def _notes_for(self, utterance: _Utterance) -> Notes:
        """The utterance's voice, loaded now if nobody did before."""
        if utterance.notes is None:
            voice = utterance.start.voice
            utterance.notes = self._voices.get(voice) or self._insert(voice, pin=False)
        return utterance.notes

    def _insert(self, voice: str, *, pin: bool) -> Notes:
        """Load a voice and keep it, where there is room."""
        base_hz = self._added_hz.get(voice) or BASE_HZ.get(voice, REMOVED_HZ)
        notes = Notes(base_hz, self._chunk_samples)
        fits, evicted = self._voices.make_room()
        self._outbox.extend(VoiceEvicted(name) for name in evicted)
        if fits:
            self._voices.insert(voice, notes, pin=pin)
            self._outbox.append(VoiceLoaded(voice, cached=False, load_s=self._options.voice_load_s))
        elif pin:
            message = f"all {self._options.voice_cache} places of `voice_cache` hold pinned voices"
            self._outbox.append(VoiceFailed(voice, OverloadedError.code, message))
        return notes

    def _add_voice(self, command: AddVoice) -> None:
        """Sing at the pitch of a reference, or at one that a description stands for."""
        voice = command.voice
        self._remove_voice(voice.id)
        try:
            base_hz = pitch_of(command.path) if command.path else pitch_for(command.description)
        except (OSError, EOFError, wave.Error, ValueError) as error:
            self._outbox.append(VoiceFailed(voice.id, UtteranceError.code, str(error)))
            return
        self._added_hz[voice.id] = base_hz
        self._offer((*self._capabilities.voices, voice))

    def _remove_voice(self, voice_id: str) -> None:
        if self._added_hz.pop(voice_id, None) is not None:
            self._voices.remove(voice_id)
            self._offer(tuple(each for each in self._capabilities.voices if each.id != voice_id))

    def _offer(self, voices: tuple[Voice, ...]) -> None:
        self._capabilities = replace(self._capabilities, voices=voices)

    def _load_voice(self, command: LoadVoice) -> None:
        if self._capabilities.voice(command.voice) is None:
            message = f"no voice {command.voice!r}; have {', '.join(self._options.voices)}"
            self._outbox.append(VoiceFailed(command.voice, UnknownVoiceError.code, message))
        elif self._voices.get(command.voice, pin=command.pinned) is not None:
            self._outbox.append(VoiceLoaded(command.voice, cached=True, load_s=0.0))
        else:
            self._insert(command.voice, pin=command.pinned)

    def _load(self) -> tuple[int, int]:
        """Live utterances, and how many of them wait in the queue for their first chunk."""
        waiting = sum(
            1
            for rank, _, _, utterance in self._queue
            if not rank and utterance.phase is not _Phase.ENDED
        )
        return len(self._live), waiting

    def _tell_load(self, now: float) -> None:
        """Say how busy the engine is, if that changed and it was not said just now."""
        if now < self._load_due_s or self._load() == self._load_told:
            return
        self._load_told, self._load_due_s = self._load(), now + _LOAD_INTERVAL_S
        options = self._options
        first_s = options.first_chunk_delay_s + options.real_time_factor * options.chunk_s
        backlog_s = self._load_told[1] * first_s
        if self._work is not None:
            backlog_s += max(0.0, self._work.due_s - now)
        self._outbox.append(EngineLoad(self._load_told[0], backlog_s, first_s))
