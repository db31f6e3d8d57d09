"""What a Qwen engine offers: its voices, languages and limits, as the waist's capabilities.

It knows the checkpoint's settings and the shelf of registered voices, nothing that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rtts.engine.interface import Capabilities, TextUnit, Voice
from rtts.engine.qwen.attention import PromptAttention
from rtts.engine.qwen.config import DecoderConfig, ModelConfig, ModelType
from rtts.engine.qwen.languages import NAMES, TAGS
from rtts.engine.qwen.options import QwenOptions
from rtts.engine.qwen.references import VoiceShelf

DESIGN_VOICE = "design"
"""The one voice of a VoiceDesign checkpoint: its instructions are the voice."""

_LICENCE = "Apache-2.0"  # of the released Qwen3-TTS checkpoints
_KINDS: dict[ModelType, Literal["preset", "clone", "design"]] = {
    ModelType.CUSTOM_VOICE: "preset",
    ModelType.BASE: "clone",
    ModelType.VOICE_DESIGN: "design",
}
_SHORTEST_LIMIT_S = 5.0  # on a GPU a frame is 4 to 25 ms, a prompt less than 100
_CPU_FLOPS = 10e9  # what the slowest machine that is worth it computes a second, others beside it
_CODEC_FLOP = 5e9  # of a released codec's frame, whose widest convolution has 1536 channels


def capabilities(
    config: ModelConfig,
    options: QwenOptions,
    shelf: VoiceShelf,
    attention: PromptAttention,
    memory: tuple[tuple[str, int], ...],
) -> Capabilities:
    """What the waist is told; voices whose files are damaged come last, and say so."""
    voices = tuple(_voices(config, shelf))
    degraded = [attention.trouble] if attention.trouble else []
    if shelf.damaged:
        names = ", ".join(shelf.damaged)
        degraded.append(f"registered voices whose files are damaged cannot be had: {names}")
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
        attention=attention.name,
        added_languages=_languages(config),
        memory=memory,
        degraded=tuple(degraded),
        step_limit_s=_step_limit_s(config, options),
    )


def _step_limit_s(config: ModelConfig, options: QwenOptions) -> float:
    """How long a step may take: on a CPU what its longest prompt and a frame of all slots cost."""
    if options.device != "cpu":
        return _SHORTEST_LIMIT_S
    talker, predictor = (_multiplied(each.stack) for each in (config.talker, config.predictor))
    frame = (
        2 * talker
        + 2 * predictor * (config.predictor.groups - 1)
        + _CODEC_FLOP * (config.codec.decoder_dim / 1536) ** 2
    )
    work = 2 * talker * options.prefill_rows + frame * options.slot_count
    return _SHORTEST_LIMIT_S + work / _CPU_FLOPS


def _multiplied(stack: DecoderConfig) -> int:
    """Weights that one row is multiplied with."""
    attention = stack.hidden * stack.head_dim * 2 * (stack.heads + stack.kv_heads)
    return stack.layers * (attention + 3 * stack.hidden * stack.intermediate)


def _languages(config: ModelConfig) -> tuple[str, ...]:
    return tuple(TAGS[name] for name in NAMES.values() if name in config.talker.languages)


def _voices(config: ModelConfig, shelf: VoiceShelf) -> Iterator[Voice]:
    languages = _languages(config)
    kind = _KINDS[config.model_type]
    if config.model_type is ModelType.CUSTOM_VOICE:
        for name in config.talker.speakers:
            yield Voice(name, languages, _LICENCE, kind=kind)
    elif config.model_type is ModelType.VOICE_DESIGN:
        yield Voice(DESIGN_VOICE, languages, _LICENCE, kind=kind)
    for voice in shelf.voices.values():
        yield Voice(voice.name, _first(languages, voice.language), _LICENCE, kind=kind)
    for name in shelf.damaged:
        yield Voice(name, languages, _LICENCE, notes=("its file is damaged",), kind=kind)


def _first(languages: tuple[str, ...], best: str) -> tuple[str, ...]:
    """The languages with the best one first."""
    return tuple(sorted(languages, key=lambda tag: tag != best))
