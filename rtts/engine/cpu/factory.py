"""Puts the CPU engine together: options in, cores out.

Imports no model until a voice is loaded, so that a server starts and lists its voices quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from rtts.engine.cpu.catalogue import HEART, capabilities, voices
from rtts.engine.cpu.engine import CpuEngine
from rtts.engine.cpu.library import VoiceLibrary, VoiceSource
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.cpu.voice import CpuVoice, Trim

_HEART_MB: Final = 170.0  # resident, measured: networks 70, lexica and tagger 100


class CpuEngineFactory:
    """Makes cores that share their voices; picklable, for a host in another process.

    Args:
        options: Of every core.
        clock: Monotonic seconds, the clock of the cores' `now`.
        lock: Held while voices are loaded; for cores on several threads. It does not travel with a
            pickle: a child process runs one core.
    """

    def __init__(
        self,
        options: CpuOptions,
        clock: Callable[[], float],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self.capabilities = capabilities(options)
        self._library = VoiceLibrary(embedded_sources(options, clock), options, lock)

    def __call__(self) -> CpuEngine:
        """One more core."""
        return CpuEngine(self._options, self._clock, self._library, self.capabilities)

    def __reduce__(self) -> tuple[object, ...]:
        return CpuEngineFactory, (self._options, self._clock)


def make_cpu_engine(
    options: CpuOptions,
    clock: Callable[[], float],
    lock: AbstractContextManager[object] | None = None,
) -> CpuEngineFactory:
    """A factory of CPU engine cores; see `CpuEngineFactory`.

    Raises:
        ConfigError: `options.voice` is not available here.
    """
    return CpuEngineFactory(options, clock, lock)


def embedded_sources(options: CpuOptions, clock: Callable[[], float]) -> dict[str, VoiceSource]:
    """How to load each voice there is on this machine."""
    trim = Trim(options.leading_silence_s, options.trailing_silence_s)

    def load_heart() -> CpuVoice:
        from rtts.engine.cpu.hibari_voice import HibariVoice

        return HibariVoice(trim, clock, threads=options.threads)

    sources = {HEART.id: VoiceSource(load_heart, "en", weight_mb=_HEART_MB)}
    extra = [voice for voice in voices(options) if voice.id != HEART.id]
    if extra:
        from rtts.engine.cpu.kokoro_voice import KokoroModel

        model = KokoroModel(trim, threads=options.kokoro_threads)
        sources.update((voice.id, model.source(voice)) for voice in extra)
    return sources
