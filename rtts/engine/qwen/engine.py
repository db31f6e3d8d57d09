"""The engine core: commands of the waist in, events out; between them scheduler and runner.

`step` reads: commit the step in flight, schedule the next, execute it. It knows no threads, sockets
or clocks, and no tensors beyond what loading needs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rtts.engine.interface import (
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
    SegmentSkipped,
    StartUtterance,
    TextUnit,
    UtteranceFailed,
    UtteranceFinished,
    UtteranceStats,
    Voice,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.qwen.attention import PromptAttention
from rtts.engine.qwen.config import ModelConfig, ModelType, load_config
from rtts.engine.qwen.endings import Ending
from rtts.engine.qwen.extra import torch
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.hub import model_folder
from rtts.engine.qwen.languages import NAMES, TAGS, language_name
from rtts.engine.qwen.options import FRAME_S, QwenOptions
from rtts.engine.qwen.prompt import Conditioning, PromptBuilder, Reference
from rtts.engine.qwen.references import RegisteredVoice, load_voices
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
from rtts.errors import ConfigError, RttsError, UnknownVoiceError

log = logging.getLogger(__name__)

DESIGN_VOICE = "design"
"""The one voice of a VoiceDesign checkpoint: its instructions are the voice."""

LICENCE = "Apache-2.0"  # of the released Qwen3-TTS checkpoints
_LOAD_EVERY_S = 0.05  # EngineLoad at most every 50 ms (the waist)
_KINDS: dict[ModelType, Literal["preset", "clone", "design"]] = {
    ModelType.CUSTOM_VOICE: "preset",
    ModelType.BASE: "clone",
    ModelType.VOICE_DESIGN: "design",
}
# A frame is 4 to 25 ms on a GPU, a prompt less than 100. On a CPU a long prompt of the 1.7B takes
# 30 s of two cores.
_STEP_LIMIT_S = {"cuda": 5.0, "cpu": 60.0}
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
    """

    utterance: Utterance
    order: deque[tuple[int, str]] = field(default_factory=deque)
    heard: int = -1


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
        voices: Mapping[str, RegisteredVoice],
        memory: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._options, self._runner, self._builder = options, runner, builder
        self._config, self._voices = config, voices
        self._scheduler = Scheduler(
            builder,
            options,
            head_bytes=runner.head_row_bytes,
            smallest_bucket=runner.frames.smallest,
        )
        capabilities = _capabilities(config, options, voices, runner.model.talker.prompt_attention)
        self.capabilities = replace(capabilities, memory=memory)
        self._outbox: list[Event] = [EngineReady(self.capabilities)]
        self._speakers: dict[int, _Speaker] = {}
        self._loading: deque[_Loading] = deque()
        self._flight: Flight | None = None
        self._now = 0.0
        self._stepped_s: float | None = None
        self._load_sent: tuple[float, int] = (-1.0, 0)
        self._first_chunk_s = 0.0

    # --- commands ----------------------------------------------------------------------------

    def apply(self, command: Command) -> None:
        """Take one command."""
        match command:
            case LoadVoice():
                self._load_voice(command)
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

    def _refuse(self, utterance_id: int, message: str) -> None:
        self._outbox.append(
            UtteranceFailed(
                utterance_id,
                "overloaded",
                message,
                retryable=True,
                retry_after_s=self._options.wait_limit_s,
            )
        )

    def _voice(
        self, voice: str, language: str, instructions: str
    ) -> tuple[Conditioning, Reference | None]:
        """What a request names, as the checkpoint needs it.

        Raises:
            UnknownVoiceError: No such voice.
            UnsupportedLanguageError: No such language.
        """
        name = language_name(language)
        if self._config.model_type is ModelType.CUSTOM_VOICE:
            return self._builder.conditioning(
                speaker=voice, language=name, instruct=instructions
            ), None
        if self._config.model_type is ModelType.VOICE_DESIGN:
            if voice != DESIGN_VOICE:
                raise UnknownVoiceError(f"voice {voice!r} is not {DESIGN_VOICE}")
            return self._builder.conditioning(language=name, instruct=instructions), None
        registered = self._voices.get(voice)
        if registered is None:
            raise UnknownVoiceError(f"voice {voice!r} is not one of {', '.join(self._voices)}")
        conditioning = self._builder.conditioning(clone=registered.key, language=name)
        frames = int(registered.conditions.codes.shape[0])
        if not frames:
            return conditioning, None
        transcript = tuple(self._builder.text_ids(registered.transcript))
        return conditioning, Reference(transcript, frames)

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
        if self._outbox or self._flight is not None or self._loading:
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
        self._say_evicted([key for key, _ in plan.drop])
        for loading in self._loading:
            loading.begun_s = now if loading.begun_s is None else loading.begun_s
        if not plan.is_empty:
            self._flight = self._runner.execute(plan)
            self._stepped_s = now
        self._finish_loading(now)
        return self._take_outbox(now)

    def _commit(self, landed: Landed, now: float) -> None:
        outcomes = self._scheduler.commit(landed.plan, landed.results, landed.failed, now)
        elapsed_s = now - landed.plan.now
        for row in landed.plan.rows:
            speaker = self._speakers.get(row.utterance_id)
            if speaker is not None:
                speaker.utterance.busy_s += elapsed_s / len(landed.plan.rows)
        self._say(outcomes, landed.pcm)

    def _say(self, outcomes: Sequence[Outcome], pcm: Mapping[int, bytes]) -> None:
        for outcome in outcomes:
            speaker = self._speakers.get(outcome.utterance.id)
            if speaker is None:
                continue
            if isinstance(outcome, FrameDone):
                self._say_frame(speaker, outcome, pcm)
            elif isinstance(outcome, UtteranceDone):
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
        begun_s = frame.begun_s if speaker.heard != frame.segment else 0.0
        speaker.heard = frame.segment
        if frame.is_audible and frame.utterance.produced == 1:
            self._first_chunk_s = max(self._now - frame.begun_s, 0.0)
        self._outbox.append(
            AudioProduced(
                frame.utterance.id,
                frame.segment,
                pcm[frame.slot] if frame.is_audible else b"",
                last_of_segment=frame.ends_segment,
                begun_s=begun_s,
            )
        )
        if frame.ends_segment:
            speaker.order.popleft()
            self._close_skipped(speaker)

    def _say_evicted(self, keys: Sequence[Conditioning]) -> None:
        names = {voice.key: name for name, voice in self._voices.items()}
        for key in keys:
            if not self._scheduler.prefixes.has_voice(key):
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
        stats = UtteranceStats(
            audio_s=utterance.produced * FRAME_S,
            busy_s=utterance.busy_s,
            voice_cached=utterance.voice_cached,
        )
        self._outbox.append(UtteranceFinished(utterance.id, reason, stats))

    def _finish_loading(self, now: float) -> None:
        for loading in list(self._loading):
            if not all(self._scheduler.prefixes.has(key) for key in loading.keys):
                continue
            self._loading.remove(loading)
            begun_s = now if loading.begun_s is None else loading.begun_s
            self._outbox.append(VoiceLoaded(loading.voice, loading.cached, now - begun_s))

    def _take_outbox(self, now: float) -> Sequence[Event]:
        sent_s, count = self._load_sent
        if len(self._speakers) != count and now - sent_s >= _LOAD_EVERY_S:
            self._load_sent = (now, len(self._speakers))
            backlog_s = self._scheduler.waiting * self._first_chunk_s
            self._outbox.append(EngineLoad(len(self._speakers), backlog_s, self._first_chunk_s))
        events, self._outbox = self._outbox, []
        return events


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
    voices: dict[str, RegisteredVoice] = {}
    if options.voices_dir:
        if model.config.model_type is not ModelType.BASE:
            raise ConfigError(
                f"qwen.voices_dir: {model.config.model_type} checkpoints do not clone voices"
            )
        voices = load_voices(Path(options.voices_dir), model.config, dtype, model.device)
    sampling = model.config.sampling
    if options.greedy:
        sampling = replace(sampling, do_sample=False, subtalker_dosample=False)
    references = {voice.key: voice.conditions for voice in voices.values()}
    runner = Runner(model, builder, sampling, options.slot_count, options.positions, references)
    if not memory:
        memory = _cpu_memory(model, runner, options)
    return QwenEngine(options, runner, builder, model.config, voices, memory)


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


def _dtype(options: QwenOptions) -> torch.dtype:
    if options.dtype == "auto":
        return torch.float32 if options.device == "cpu" else torch.bfloat16
    dtypes = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    return dtypes[options.dtype]


def _capabilities(
    config: ModelConfig,
    options: QwenOptions,
    registered: Mapping[str, RegisteredVoice],
    attention: PromptAttention,
) -> Capabilities:
    languages = tuple(TAGS[name] for name in NAMES.values() if name in config.talker.languages)
    if config.model_type is ModelType.CUSTOM_VOICE:
        names = [(name, "") for name in config.talker.speakers]
    elif config.model_type is ModelType.VOICE_DESIGN:
        names = [(DESIGN_VOICE, "")]
    else:
        names = [(voice.name, voice.language) for voice in registered.values()]
    kind = _KINDS[config.model_type]
    voices = tuple(
        Voice(name, _first(languages, language), LICENCE, kind=kind) for name, language in names
    )
    return Capabilities(
        engine="qwen",
        model=Path(options.model).name,
        voices=voices,
        default_voice=voices[0].id if voices else "",
        text_unit=TextUnit.TOKEN,
        streams_within_segment=True,
        clones_voices=config.model_type is ModelType.BASE,
        designs_voices=config.model_type is ModelType.VOICE_DESIGN,
        takes_instructions=config.takes_instructions,
        max_utterances=options.slot_count + options.waiting,
        slots=options.slot_count,
        step_limit_s=_STEP_LIMIT_S[options.device.partition(":")[0]],
        attention=attention.name,
        degraded=(attention.trouble,) if attention.trouble else (),
    )


def _first(languages: tuple[str, ...], best: str) -> tuple[str, ...]:
    """The languages with the best one first."""
    return tuple(sorted(languages, key=lambda tag: tag != best))
