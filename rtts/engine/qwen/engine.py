"""The engine core: commands of the waist in, events out; between them scheduler and runner.

`step` reads: commit the step in flight, schedule the next, execute it. It knows no threads, sockets
or clocks, and no tensors beyond what loading needs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

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
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.qwen.config import ModelConfig, ModelType, load_config
from rtts.engine.qwen.endings import Ending
from rtts.engine.qwen.extra import torch
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.hub import model_folder
from rtts.engine.qwen.languages import language_name
from rtts.engine.qwen.offer import DESIGN_VOICE, capabilities
from rtts.engine.qwen.options import FRAME_S, QwenOptions
from rtts.engine.qwen.prompt import Conditioning, PromptBuilder, Reference
from rtts.engine.qwen.references import VoiceShelf
from rtts.engine.qwen.runner import Flight, Landed, Runner
from rtts.engine.qwen.scheduler import (
    FrameDone,
    Outcome,
    Scheduler,
    Utterance,
    UtteranceDone,
)
from rtts.engine.qwen.sizing import MEMORY_LIMIT, DeviceMemory, cpu_slots, size_gpu
from rtts.engine.qwen.takes import TextQueue
from rtts.engine.qwen.tokenizer import load_tokenizer
from rtts.errors import (
    BadRequestError,
    ConfigError,
    OverloadedError,
    RttsError,
    UtteranceError,
)

log = logging.getLogger(__name__)

_LOAD_EVERY_S = 0.05  # EngineLoad at most every 50 ms (the waist)
# A chunk is one frame as long as its listener has little in hand, then longer, which costs everybody
# behind the engine less. A frame more is made in 4 to 25 ms on a GPU.
_LEAD_A_FRAME_S = 0.16
_LONGEST_CHUNK = 8
_REASONS = {
    Ending.EOS: FinishReason.COMPLETED,
    Ending.BUDGET: FinishReason.BUDGET,
    Ending.STUCK: FinishReason.STUCK,
}


@dataclass(slots=True)
class _Speaker:
    """An utterance and what has been said of it.

    Attributes:
        order: Segments not closed yet, oldest first; the text why one is skipped, or "".
        heard: The segment whose `begun_s` was sent.
        held: Frames of one segment that wait for company; `last` is the last of them.
        begun_s: When the step of the first of them began.
        parts_s: What its first audio took, see `AudioProduced`; empty where that is not known.
    """

    utterance: Utterance
    order: deque[tuple[int, str]] = field(default_factory=deque)
    heard: int = -1
    held: list[bytes] = field(default_factory=list)
    last: FrameDone | None = None
    begun_s: float = 0.0
    parts_s: tuple[float, ...] = ()


@dataclass(slots=True)
class _Loading:
    """A voice whose heads are being built."""

    voice: str
    keys: tuple[Conditioning, ...]
    cached: bool
    begun_s: float | None = None


class QwenEngine:
    """Qwen3-TTS behind `EngineCore`.

    Owner: one thread at a time.
    """

    def __init__(
        self,
        options: QwenOptions,
        runner: Runner,
        builder: PromptBuilder,
        config: ModelConfig,
        shelf: VoiceShelf,
        memory: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._options, self._runner, self._builder = options, runner, builder
        self._config, self._shelf = config, shelf
        self._scheduler = Scheduler(
            builder,
            options,
            head_bytes=runner.head_row_bytes,
            smallest_bucket=runner.frames.smallest,
        )
        attention = runner.model.talker.prompt_attention
        self.capabilities = capabilities(config, options, shelf, attention, memory)
        self._outbox: list[Event] = [EngineReady(self.capabilities)]
        self._speakers: dict[int, _Speaker] = {}
        self._holding: dict[int, _Speaker] = {}  # those whose chunks are not complete
        self._loading: deque[_Loading] = deque()
        self._flight: Flight | None = None
        self._now = 0.0
        self._stepped_s: float | None = None
        self._load_sent_s, self._load = -1.0, EngineLoad(0, 0.0, 0.0)
        self._first_chunk_s = 0.0

    # --- commands ----------------------------------------------------------------------------

    def apply(self, command: Command) -> None:
        """Take one command."""
        match command:
            case LoadVoice():
                self._load_voice(command)
            case AddVoice():
                self._add_voice(command)
            case RemoveVoice():
                self._shelf.remove(command.voice)
            case StartUtterance():
                self._start(command)
            case _:
                speaker = self._speakers.get(command.utterance_id)
                if speaker is not None:
                    self._change(speaker, command)

    def _change(
        self,
        speaker: _Speaker,
        command: AppendText | FinishText | GrantAudio | CancelUtterance,
    ) -> None:
        utterance = speaker.utterance
        match command:
            case AppendText():
                self._append(speaker, command)
            case FinishText():
                utterance.queue.is_finished = True
                if self._scheduler.text_changed(utterance):
                    self._finish(speaker, _REASONS[utterance.worst])
            case GrantAudio():
                utterance.until_s = max(utterance.until_s, command.until_s)
            case CancelUtterance():
                self._scheduler.remove(utterance)
                self._finish(speaker, FinishReason.CANCELLED)

    def _append(self, speaker: _Speaker, command: AppendText) -> None:
        utterance = speaker.utterance
        if utterance.queue.is_finished:
            return
        segment = utterance.queue.append(command.segment, command.text)
        reason = "" if segment else "there is nothing to speak in it"
        speaker.order.append((command.segment, reason))
        if segment is None:
            self._close_skipped(speaker)
        self._scheduler.text_changed(utterance)

    def _start(self, command: StartUtterance) -> None:
        id_ = command.utterance_id
        if id_ in self._speakers:
            return
        if len(self._speakers) >= self.capabilities.max_utterances:
            self._refuse(id_, "as many utterances as it takes are running")
            return
        if self._runner.is_nearly_full(MEMORY_LIMIT):
            self._refuse(id_, "the device's memory is nearly full")
            return
        wait_s = self._scheduler.slot_wait_s()
        if wait_s > self._options.wait_limit_s:
            self._refuse(id_, "no slot will be free in time", wait_s)
            return
        try:
            conditioning, reference = self._voice(
                command.voice, command.language, command.instructions
            )
        except RttsError as error:
            self._outbox.append(UtteranceFailed(id_, error.code, error.message))
            return
        seed = command.seed if command.seed is not None else id_
        utterance = Utterance(
            id=id_,
            conditioning=conditioning,
            reference=reference,
            seed=(seed + 2**63) % 2**64 - 2**63,
            queue=TextQueue(self._builder),
            until_s=command.until_s,
            head_rows=len(self._builder.head(conditioning)),
        )
        self._speakers[id_] = _Speaker(utterance)

    def _refuse(self, utterance_id: int, message: str, wait_s: float = 0.0) -> None:
        self._outbox.append(
            UtteranceFailed(
                utterance_id,
                "overloaded",
                message,
                retryable=True,
                retry_after_s=max(wait_s, self._options.wait_limit_s),
            )
        )

    def _voice(
        self, voice: str, language: str, instructions: str
    ) -> tuple[Conditioning, Reference | None]:
        """What a request names, as the checkpoint needs it.

        Raises:
            UnknownVoiceError: No such voice.
            UnsupportedLanguageError: No such language.
            UtteranceError: The voice's file is damaged.
        """
        name = language_name(language)
        if self._config.model_type is ModelType.CUSTOM_VOICE:
            return self._builder.conditioning(
                speaker=voice, language=name, instruct=instructions
            ), None
        if self._config.model_type is ModelType.VOICE_DESIGN:
            if voice != DESIGN_VOICE:
                instructions = self._shelf.describe(voice, instructions)
            return self._builder.conditioning(language=name, instruct=instructions), None
        mended = self._shelf.retry(voice)
        if mended is not None:
            self._runner.add_reference(mended.key, mended.conditions)
        registered = self._shelf.find(voice)
        conditioning = self._builder.conditioning(clone=registered.key, language=name)
        frames = int(registered.conditions.codes.shape[0])
        if not frames:
            return conditioning, None
        transcript = tuple(self._builder.text_ids(registered.transcript))
        return conditioning, Reference(transcript, frames)

    def _add_voice(self, command: AddVoice) -> None:
        voice = command.voice
        if self._config.model_type is ModelType.VOICE_DESIGN and command.description:
            self._shelf.add_design(voice.id, command.description)
        elif self._config.model_type is ModelType.BASE and command.path:
            self._shelf.add(voice.id, Path(command.path))
            added = self._shelf.voices.get(voice.id)
            if added is not None:
                self._runner.add_reference(added.key, added.conditions)
                return
            message = "its file is damaged, or made for another checkpoint"
            self._outbox.append(VoiceFailed(voice.id, UtteranceError.code, message))
        else:
            message = f"{self._config.model_type} checkpoints take no such voice"
            self._outbox.append(VoiceFailed(voice.id, BadRequestError.code, message))

    def _load_voice(self, command: LoadVoice) -> None:
        try:
            keys = tuple(
                self._voice(command.voice, language, "")[0]
                for language in self._options.prewarm_languages
            )
        except RttsError as error:
            self._outbox.append(VoiceFailed(command.voice, error.code, error.message))
            return
        cached = all(self._scheduler.prefixes.has(key) for key in keys)
        for key in keys:
            self._scheduler.want_head(key, pinned=command.pinned)
        self._loading.append(_Loading(command.voice, keys, cached))

    # --- steps -------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether `step` has something to do, now or at `next_due_s`."""
        return self.next_due_s(self._now) is not None or bool(self._outbox)

    def next_due_s(self, now: float) -> float | None:
        """When `step` next has something to do: None, or a time that has passed, is at once."""
        if self._outbox or self._flight is not None or self._loading or self._holding:
            return now
        return self._scheduler.next_due_s(now)

    def step(self, now: float) -> Sequence[Event]:
        """Commit the step in flight, then schedule and execute the next."""
        self._now = now
        if self._flight is not None:
            landed, self._flight = self._runner.collect(self._flight), None
            self._commit(landed, now)
            return self._take_outbox(now)
        plan, lost = self._scheduler.schedule(now)
        self._say(lost, {})
        if self._holding:
            self._release_but({row.utterance_id for row in plan.rows})
        self._say_evicted([key for key, _ in plan.drop])
        for loading in self._loading:
            loading.begun_s = now if loading.begun_s is None else loading.begun_s
        if not plan.is_empty:
            self._flight = self._runner.execute(plan)
            self._stepped_s = now
            self._say_unbuilt(self._flight)
        self._finish_loading(now)
        return self._take_outbox(now)

    def _commit(self, landed: Landed, now: float) -> None:
        outcomes = self._scheduler.commit(landed.plan, landed.results, landed.failed, now)
        elapsed_s = now - landed.plan.now
        for row in landed.plan.rows:
            speaker = self._speakers.get(row.utterance_id)
            if speaker is not None:
                speaker.utterance.busy_s += elapsed_s / len(landed.plan.rows)
        for admit in landed.plan.admit:
            speaker = self._speakers.get(admit.utterance_id)
            if speaker is not None:
                speaker.parts_s = landed.parts_s
        self._say(outcomes, landed.pcm)

    def _say(self, outcomes: Sequence[Outcome], pcm: Mapping[int, bytes]) -> None:
        for outcome in outcomes:
            speaker = self._speakers.get(outcome.utterance.id)
            if speaker is None:
                continue
            if isinstance(outcome, FrameDone):
                self._say_frame(speaker, outcome, pcm)
                continue
            self._release(speaker)
            if isinstance(outcome, UtteranceDone):
                self._finish(speaker, _REASONS[outcome.utterance.worst])
            elif outcome.code == "overloaded":
                del self._speakers[outcome.utterance.id]
                self._refuse(outcome.utterance.id, outcome.message)
            else:
                del self._speakers[outcome.utterance.id]
                self._outbox.append(
                    UtteranceFailed(
                        outcome.utterance.id, outcome.code, outcome.message, retryable=True
                    )
                )

    def _say_frame(self, speaker: _Speaker, frame: FrameDone, pcm: Mapping[int, bytes]) -> None:
        utterance = frame.utterance
        if speaker.last is None:
            speaker.begun_s = frame.begun_s
        speaker.last = frame
        if frame.is_audible:
            speaker.held.append(pcm[frame.slot])
        if frame.is_audible and utterance.produced == 1:
            self._first_chunk_s = max(self._now - frame.begun_s, 0.0)
        said_s = (utterance.produced - len(speaker.held)) * FRAME_S
        lead_s = said_s - (self._now - utterance.first_audio_s)
        if frame.ends_segment or len(speaker.held) >= _chunk_frames(lead_s):
            self._release(speaker)
        else:
            self._holding[utterance.id] = speaker
        if frame.ends_segment:
            speaker.order.popleft()
            self._close_skipped(speaker)

    def _release(self, speaker: _Speaker) -> None:
        """Say what is held of an utterance."""
        frame, speaker.last = speaker.last, None
        if frame is None:
            return
        self._holding.pop(frame.utterance.id, None)
        begun_s = speaker.begun_s if speaker.heard != frame.segment else 0.0
        parts_s = speaker.parts_s if speaker.heard < 0 and speaker.held else ()
        speaker.heard = frame.segment
        self._outbox.append(
            AudioProduced(
                frame.utterance.id,
                frame.segment,
                b"".join(speaker.held),
                last_of_segment=frame.ends_segment,
                begun_s=begun_s,
                parts_s=parts_s,
            )
        )
        speaker.held.clear()

    def _release_but(self, running: Set[int]) -> None:
        """Say what is held of those whose chunk gets no further in this step."""
        for id_ in [id_ for id_ in self._holding if id_ not in running]:
            self._release(self._holding[id_])

    def _say_evicted(self, keys: Sequence[Conditioning]) -> None:
        names = {voice.key: name for name, voice in self._shelf.voices.items()}
        for key in keys:
            name = names.get(key.clone) or key.speaker or DESIGN_VOICE
            self._outbox.append(VoiceEvicted(name))

    def _close_skipped(self, speaker: _Speaker) -> None:
        """Say of segments without speech that they are skipped, once all before them are closed."""
        while speaker.order and speaker.order[0][1]:
            index, reason = speaker.order.popleft()
            self._outbox.append(
                SegmentSkipped(speaker.utterance.id, index, "unspeakable_text", reason)
            )

    def _finish(self, speaker: _Speaker, reason: FinishReason) -> None:
        utterance = speaker.utterance
        del self._speakers[utterance.id]
        self._holding.pop(utterance.id, None)
        stats = UtteranceStats(
            audio_s=utterance.produced * FRAME_S,
            busy_s=utterance.busy_s,
            voice_cached=utterance.voice_cached,
        )
        self._outbox.append(UtteranceFinished(utterance.id, reason, stats))

    def _say_unbuilt(self, flight: Flight) -> None:
        """Voices whose heads could not be built are not loaded; their utterances fail at commit."""
        for head in flight.plan.build:
            reason = flight.unbuilt.get(head.handle)
            if reason is None:
                continue
            self._scheduler.could_not_build(head.conditioning)
            for loading in list(self._loading):
                if head.conditioning in loading.keys:
                    self._loading.remove(loading)
                    self._outbox.append(VoiceFailed(loading.voice, OverloadedError.code, reason))

    def _finish_loading(self, now: float) -> None:
        for loading in list(self._loading):
            if not all(self._scheduler.prefixes.has(key) for key in loading.keys):
                continue
            self._loading.remove(loading)
            begun_s = now if loading.begun_s is None else loading.begun_s
            self._outbox.append(VoiceLoaded(loading.voice, loading.cached, now - begun_s))

    def _take_outbox(self, now: float) -> Sequence[Event]:
        cache = self._scheduler.prefixes.stats
        load = EngineLoad(
            len(self._speakers),
            self._scheduler.waiting * self._first_chunk_s,
            self._first_chunk_s,
            cache.entries,
            cache.size_bytes,
        )
        is_other = (load.utterances, load.cache_entries) != (
            self._load.utterances,
            self._load.cache_entries,
        )
        if is_other and now - self._load_sent_s >= _LOAD_EVERY_S:
            self._load_sent_s, self._load = now, load
            self._outbox.append(load)
        events, self._outbox = self._outbox, []
        return events


def _chunk_frames(lead_s: float) -> int:
    """How many frames one chunk has for a listener with that much audio in hand."""
    return min(_LONGEST_CHUNK, max(1, int(lead_s / _LEAD_A_FRAME_S)))


def load_engine(options: QwenOptions) -> QwenEngine:
    """Load a checkpoint and make its engine.

    Raises:
        ConfigError: The folder, a voice file or an option is wrong.
    """
    folder = model_folder(options.model)
    dtype = _dtype(options)
    options, memory = _with_slots(options, load_config(folder), dtype)
    model = Model(folder, dtype, options.device)
    attention = model.talker.prompt_attention
    log.info("voice heads are prefilled with %s", attention.name)
    if attention.trouble:
        log.warning("%s", attention.trouble)
    builder = PromptBuilder(model.config, load_tokenizer(folder))
    shelf = _shelf(options, model)
    sampling = model.config.sampling
    if options.greedy:
        sampling = replace(sampling, do_sample=False, subtalker_dosample=False)
    references = {voice.key: voice.conditions for voice in shelf.voices.values()}
    runner = Runner(model, builder, sampling, options.slot_count, options.positions, references)
    if not memory:
        memory = _cpu_memory(model, runner, options)
    return QwenEngine(options, runner, builder, model.config, shelf, memory)


def _with_slots(
    options: QwenOptions, config: ModelConfig, dtype: torch.dtype
) -> tuple[QwenOptions, tuple[tuple[str, int], ...]]:
    """The options with a number of slots, and what the memory of a GPU goes to.

    Raises:
        ConfigError: Not even one slot fits, or not as many as were asked for.
    """
    if options.device == "cpu":
        return replace(options, slots=cpu_slots(options)), ()
    sizing = size_gpu(
        options, config, dtype.itemsize, DeviceMemory(*torch.cuda.mem_get_info(options.device))
    )
    log.info("%s: %s", options.device, sizing)
    return replace(options, slots=sizing.slots), sizing.memory


def _cpu_memory(model: Model, runner: Runner, options: QwenOptions) -> tuple[tuple[str, int], ...]:
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    slots = runner.frames.state.kv.nbytes
    log.info(
        "cpu: weights %d MiB, keys and values of %d slots %d MiB",
        weights >> 20, options.slot_count, slots >> 20,
    )  # fmt: skip
    return (("weights", weights), ("slots", slots), ("heads_and_scratch", options.prefix_bytes))


def _shelf(options: QwenOptions, model: Model) -> VoiceShelf:
    """The registered voices of the options' folder; one that is damaged stops no start.

    Raises:
        ConfigError: The checkpoint clones no voices, or all of them are damaged.
    """
    folder = Path(options.voices_dir) if options.voices_dir else None
    if folder and model.config.model_type is not ModelType.BASE:
        raise ConfigError(
            f"qwen.voices_dir: {model.config.model_type} checkpoints do not clone voices"
        )
    shelf = VoiceShelf(folder, model.config, model.dtype, model.device)
    if shelf.damaged and not shelf.voices:
        raise ConfigError(next(iter(shelf.damaged.values())))
    return shelf


def _dtype(options: QwenOptions) -> torch.dtype:
    if options.dtype == "auto":
        return torch.float32 if options.device == "cpu" else torch.bfloat16
    dtypes = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    return dtypes[options.dtype]
