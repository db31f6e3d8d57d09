"""The core of the CPU engine: whose turn it is, how far each utterance may go, what to say of it.

Every step does one bounded piece of work for the most urgent utterance: its first chunk, a window of
a later one, or the loading of a voice. It knows nothing about threads, sockets, models or the clock:
`now` orders the work, and a clock that is handed in only measures what the work costs.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from rtts.engine.cpu.cost import CostModel
from rtts.engine.cpu.level import to_pcm
from rtts.engine.cpu.library import VoiceLibrary
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.cpu.refusals import explain_unknown, no_such_voice, refusal
from rtts.engine.cpu.utterance import Phase, Utterance
from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, CpuVoice, SegmentSpeech
from rtts.engine.interface import (
    AddVoice,
    AppendText,
    AudioProduced,
    CancelUtterance,
    Capabilities,
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
    SegmentWarned,
    StartUtterance,
    UtteranceFailed,
    UtteranceFinished,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
    WordsTimed,
)
from rtts.errors import BadRequestError, EngineError, UnknownVoiceError, UtteranceError

log = logging.getLogger(__name__)

_LOAD_INTERVAL_S = 0.05  # `EngineLoad` at most this often (its docstring)
_LOAD_PATIENCE_S = 1.0  # a voice that is asked for waits this long for a quiet moment


class CpuEngine:
    """An `EngineCore` that speaks.

    Owner: one thread at a time. It also offers `next_due_s`, see `rtts.engine.drive.TimedCore`.

    Args:
        options: What it can be told.
        clock: Monotonic seconds, the clock of `now`; measures work.
        library: Shared with other cores of the process.
        described: What the engine says of itself.
    """

    def __init__(
        self,
        options: CpuOptions,
        clock: Callable[[], float],
        library: VoiceLibrary,
        described: Capabilities,
    ) -> None:
        self._options = options
        self._clock = clock
        self._library = library
        self._capabilities = described
        self._gain = 10 ** (options.gain_db / 20)
        self._live: dict[int, Utterance] = {}
        self._runnable: dict[int, Utterance] = {}
        self._arrived: list[Utterance] = []  # since the last step, which knows the time
        self._loads: deque[LoadVoice] = deque()
        self._loads_due_s = math.inf
        self._order = count()
        self._cost = CostModel()
        self._load_told = (0, 0)  # (live, waiting for a first chunk) of the last EngineLoad
        self._load_told_s = -math.inf
        self._outbox: list[Event] = [EngineReady(described)]

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
            case AddVoice(voice=voice):
                message = "the cpu engine takes no other voices"
                self._outbox.append(VoiceFailed(voice.id, BadRequestError.code, message))
            case RemoveVoice():
                pass  # it has none that were added

    def has_work(self) -> bool:
        """Whether `step` would do something, now or at `next_due_s`."""
        return bool(
            self._outbox or self._runnable or self._loads or self._load() != self._load_told
        )

    def next_due_s(self, now: float) -> float | None:
        """When `step` next has something to do; None: as soon as `has_work` says."""
        if self._outbox or self._runnable or self._loads or self._load() == self._load_told:
            return None
        return self._load_told_s + _LOAD_INTERVAL_S

    def step(self, now: float) -> Sequence[Event]:
        """Hand out what waits, or else do one piece of work and return what came of it."""
        for utterance in self._arrived:
            utterance.due_s = now + utterance.start.budget_s
        self._arrived.clear()
        if not self._outbox:
            self._work(now)
        self._tell_load(now)
        events, self._outbox = self._outbox, []
        return events

    # --- commands -------------------------------------------------------------------------------

    def _start(self, command: StartUtterance) -> None:
        if command.utterance_id in self._live:
            return  # ids are unique in a server's life; a second start has nobody to answer to
        refused = refusal(command, self._capabilities, len(self._live))
        if refused is not None:
            self._outbox.append(refused)
            return
        voice = self._library.get(command.voice)
        utterance = Utterance(
            start=command,
            order=next(self._order),
            until_s=command.until_s,
            voice=voice,
            voice_cached=voice is not None,
        )
        self._live[utterance.id] = utterance
        self._arrived.append(utterance)

    def _append(self, command: AppendText) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None and utterance.phase is Phase.OPEN:
            utterance.segments.append(command)
            self._refresh(utterance)

    def _finish_text(self, command: FinishText) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None and utterance.phase is Phase.OPEN:
            utterance.phase = Phase.CLOSING
            if not utterance.segments:
                self._end(utterance, FinishReason.COMPLETED)

    def _grant(self, command: GrantAudio) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None and command.until_s > utterance.until_s:
            utterance.until_s = command.until_s
            self._refresh(utterance)

    def _cancel(self, command: CancelUtterance) -> None:
        utterance = self._live.get(command.utterance_id)
        if utterance is not None:
            self._end(utterance, FinishReason.CANCELLED)

    # --- whose turn it is -----------------------------------------------------------------------

    def _refresh(self, utterance: Utterance) -> None:
        """Note whether there is something to do for the utterance."""
        if utterance.is_runnable:
            self._runnable[utterance.id] = utterance
        else:
            self._runnable.pop(utterance.id, None)

    def _work(self, now: float) -> None:
        """Do the most urgent piece of work there is."""
        lead_s = self._options.urgent_lead_s
        utterance = min(
            self._runnable.values(), key=lambda each: each.urgency(now, lead_s), default=None
        )
        if self._loads:
            self._loads_due_s = min(self._loads_due_s, now + _LOAD_PATIENCE_S)
            is_quiet = utterance is None or utterance.urgency(now, lead_s)[0] > 1
            if is_quiet or now >= self._loads_due_s:
                self._loads_due_s = math.inf
                self._load_voice(self._loads.popleft())
                return
        if utterance is not None:
            self._work_on(utterance, now)

    def _work_on(self, utterance: Utterance, now: float) -> None:
        """Load the utterance's voice, or speak some of it; if that fails, it fails alone."""
        begun = self._clock()
        is_making = not utterance.pcm  # else the audio is at hand, and costs nothing
        speech: SegmentSpeech | None = None
        try:
            utterance.voice = utterance.voice or self._library.get(utterance.start.voice)
            if utterance.voice is None:
                utterance.voice = self._bring(utterance.start.voice, pinned=False)
            else:
                speech = self._make(utterance, utterance.voice, now)
        except Exception as error:  # noqa: BLE001 - what models and G2P raise is not declared
            self._fail(utterance, error)
            return
        cost_s = self._clock() - begun
        utterance.busy_s += cost_s
        if speech is not None:
            if is_making:
                self._learn(utterance, cost_s)
            self._give(utterance, speech, now)
        if utterance.phase is not Phase.ENDED:
            self._refresh(utterance)

    # --- speaking -------------------------------------------------------------------------------

    def _make(self, utterance: Utterance, voice: CpuVoice, now: float) -> SegmentSpeech:
        """Begin the first segment or go on with it, where no audio is at hand."""
        head = utterance.segments[0]
        began = self._clock()
        if utterance.speech is None:
            seed = self._options.seed if utterance.start.seed is None else utterance.start.seed
            utterance.speech = voice.begin(
                head.text,
                speed=utterance.start.speed,
                # Segments are counted here, for their own numbers may have gaps.
                seed=(abs(seed), int(seed < 0), utterance.begun_segments),
                is_first=not utterance.is_heard,
            )
            utterance.begun_segments += 1
            utterance.begun_s = now
        read = self._clock()
        if not utterance.pcm and not utterance.speech.is_done:
            made = utterance.speech.advance()
            utterance.pcm = to_pcm(made.samples, self._gain)
            if made.words and utterance.start.word_timings:
                self._outbox.append(WordsTimed(utterance.id, head.segment, made.words, exact=True))
            if not utterance.is_heard:
                utterance.read_s += made.planned_s
                utterance.rendered_s += made.rendered_s
                utterance.made_s -= made.planned_s + made.rendered_s
        if not utterance.is_heard:
            utterance.read_s += read - began
            utterance.made_s += self._clock() - read
        return utterance.speech

    def _give(self, utterance: Utterance, speech: SegmentSpeech, now: float) -> None:
        """Hand out the next chunk, and close the segment after its last."""
        options = self._options
        chunk_s = options.chunk_s if utterance.is_heard else options.first_chunk_s
        made_s = max(0.0, utterance.made_s)  # differences of clocks
        parts_s = () if utterance.is_heard else (utterance.read_s, made_s, utterance.rendered_s)
        chunk = utterance.take_chunk(2 * round(chunk_s * SAMPLE_RATE_HZ), now)
        is_last = speech.is_done and not utterance.pcm
        is_begun = utterance.begun_s > 0.0  # and not told yet
        segment = utterance.segments[0].segment
        if is_last and is_begun and not chunk:
            message = explain_unknown(utterance.start.voice, speech.unknown, self._capabilities)
            self._outbox.append(SegmentSkipped(utterance.id, segment, "unspeakable_text", message))
        elif chunk or is_last:
            if is_begun and speech.unknown:
                message = explain_unknown(utterance.start.voice, speech.unknown, self._capabilities)
                self._outbox.append(
                    SegmentWarned(utterance.id, segment, "partly_unspeakable", message)
                )
            self._outbox.append(
                AudioProduced(utterance.id, segment, chunk, is_last, utterance.begun_s, parts_s)
            )
            utterance.begun_s = 0.0
        if is_last:
            utterance.segments.popleft()
            utterance.speech = None
            if utterance.phase is Phase.CLOSING and not utterance.segments:
                self._end(utterance, FinishReason.COMPLETED)

    def _learn(self, utterance: Utterance, cost_s: float) -> None:
        if utterance.is_heard:
            self._cost.learn_later(cost_s)
        else:
            self._cost.learn_first(len(utterance.segments[0].text), cost_s)

    # --- ends -----------------------------------------------------------------------------------

    def _end(self, utterance: Utterance, reason: FinishReason) -> None:
        """End the utterance; its terminal event leaves with this step or the next."""
        self._drop(utterance)
        self._outbox.append(UtteranceFinished(utterance.id, reason, utterance.stats()))

    def _fail(self, utterance: Utterance, error: Exception) -> None:
        """End the utterance because its work raised. Its text stays out of logs and messages."""
        self._drop(utterance)
        what = type(error).__name__
        where = traceback.extract_tb(error.__traceback__)[-1]
        log.error(
            "utterance %d failed: %s in %s, %s:%d",
            utterance.id,
            what,
            where.name,
            where.filename,
            where.lineno or 0,
        )
        doing = "load" if utterance.voice is None else "speak with"
        message = f"could not {doing} voice {utterance.start.voice!r}: {what}"
        self._outbox.append(UtteranceFailed(utterance.id, UtteranceError.code, message))

    def _drop(self, utterance: Utterance) -> None:
        utterance.phase = Phase.ENDED
        utterance.speech, utterance.pcm = None, b""
        del self._live[utterance.id]
        self._runnable.pop(utterance.id, None)

    # --- voices and load ------------------------------------------------------------------------

    def _load_voice(self, command: LoadVoice) -> None:
        """Answer a `LoadVoice`."""
        if command.voice not in self._library:
            message = no_such_voice(command.voice, self._capabilities)
            self._outbox.append(VoiceFailed(command.voice, UnknownVoiceError.code, message))
            return
        try:
            self._bring(command.voice, pinned=command.pinned)
        except Exception as error:  # noqa: BLE001 - what loading a model raises is not declared
            log.error("voice %s: %s: %s", command.voice, type(error).__name__, error)
            message = f"could not load voice {command.voice!r}: {error}"
            self._outbox.append(VoiceFailed(command.voice, EngineError.code, message))

    def _bring(self, name: str, *, pinned: bool) -> CpuVoice:
        """Load a voice unless it is loaded, and say what that did to the others."""
        begun = self._clock()
        voice, is_cached, evicted = self._library.load(name, pinned=pinned)
        load_s = 0.0 if is_cached else self._clock() - begun
        self._outbox.extend(VoiceEvicted(each) for each in evicted)
        self._outbox.append(VoiceLoaded(name, cached=is_cached, load_s=load_s))
        return voice

    def _load(self) -> tuple[int, int]:
        """Live utterances, and how many of them wait for their first chunk."""
        return len(self._live), sum(not each.is_heard for each in self._runnable.values())

    def _tell_load(self, now: float) -> None:
        """Say how busy the engine is, if that changed and it was not said just now."""
        if now - self._load_told_s < _LOAD_INTERVAL_S or self._load() == self._load_told:
            return
        self._load_told, self._load_told_s = self._load(), now
        lead_s = self._options.urgent_lead_s
        backlog_s = 0.0
        for each in self._runnable.values():
            if not each.is_heard:
                backlog_s += self._cost.predict_first_s(len(each.segments[0].text))
            elif each.urgency(now, lead_s)[0] == 0:
                backlog_s += self._cost.later_chunk_s
        self._outbox.append(EngineLoad(len(self._live), backlog_s, self._cost.first_chunk_s))
