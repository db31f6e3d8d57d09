"""From `start` to a context's options: defaults, capabilities and limits applied, or a typed error.

Also says what of a `start` the engine will ignore. Decides nothing that depends on time.
"""

from __future__ import annotations

from rtts.audio.formats import AudioFormat, resolve_format
from rtts.engine.interface import Capabilities
from rtts.errors import BadRequestError
from rtts.protocol.events import Chunking, Format, Start
from rtts.session.context import ContextOptions
from rtts.session.options import SessionOptions
from rtts.text import SplitterOptions
from rtts.voices.registry import resolve_voice


def resolve_start(
    start: Start, *, stream: int, options: SessionOptions, capabilities: Capabilities
) -> ContextOptions:
    """Resolve what a client asked for.

    Raises:
        UnknownVoiceError: No such voice.
        UnsupportedLanguageError: No voice, or not this one, speaks that language.
        UnsupportedFormatError: The server cannot make that format.
        BadRequestError: The speed is outside what keeps the voice intelligible.
    """
    voice, language = resolve_voice(
        capabilities, start.voice or options.voice, start.language or options.language
    )
    speed = 1.0 if start.speed is None else start.speed
    slowest, fastest = capabilities.speed_range
    if not slowest <= speed <= fastest:
        raise BadRequestError(f"speed: {speed:g} is outside {slowest:g} to {fastest:g}")
    lead_s = options.max_lead_s if start.max_lead_ms is None else start.max_lead_ms / 1000
    if options.max_lead_s and lead_s > options.max_lead_s:
        lead_s = options.max_lead_s
    return ContextOptions(
        name=start.ctx,
        stream=stream,
        voice=voice,
        language=language,
        instructions=start.instructions or "",
        speed=speed,
        seed=start.seed,
        audio_format=_audio_format(start.format, options, capabilities),
        splitter=_splitter_options(start.chunking or Chunking(), language),
        word_marks=start.timestamps == "word",
        max_lead_s=lead_s,
        budget_s=options.budget_s if start.budget_ms is None else start.budget_ms / 1000,
        traceparent=start.traceparent or "",
    )


def ignored_options(start: Start, capabilities: Capabilities) -> list[str]:
    """What this engine cannot honour of a `start`, in words."""
    ignored = []
    if start.instructions and not capabilities.takes_instructions:
        ignored.append(f"the {capabilities.engine} engine takes no instructions")
    if start.seed is not None and not capabilities.takes_seed:
        ignored.append(f"the {capabilities.engine} engine takes no seed")
    return ignored


def _audio_format(
    asked: Format | None, options: SessionOptions, capabilities: Capabilities
) -> AudioFormat:
    asked = asked or Format(bitrate=options.opus_bitrate)
    return resolve_format(
        asked.codec,
        asked.container,
        asked.sample_rate,
        asked.bitrate,
        asked.frame_ms,
        capabilities.sample_rate_hz,
    )


def _splitter_options(chunking: Chunking, language: str) -> SplitterOptions:
    return SplitterOptions(
        language=language,
        mode=chunking.mode,
        first_min_weight=chunking.min_chars,
        first_max_delay_s=chunking.first_max_delay_ms / 1000,
        max_delay_s=chunking.max_delay_ms / 1000,
    )
