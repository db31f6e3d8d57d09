"""The loaded voices: loading on demand, warming up, evicting.

One library serves every core of a process: a voice's weights are read-only and are held once. Cores
on several threads hand in a lock, so that two of them do not load the same voice at once. Knows
nothing about utterances or events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Final

from rtts.engine.cpu.options import CpuOptions
from rtts.engine.cpu.voice import CpuVoice

# Spoken once after loading: an unknown word, a number and two clauses wake everything that is lazy.
_WARM_UP: Final[Mapping[str, str]] = {
    "en": "Hello, brave new world of 42 rtts voices.",
    "zh": "你好，世界。",
}


@dataclass(frozen=True, slots=True)
class VoiceSource:
    """How a voice is loaded.

    Attributes:
        load: Makes the voice; called again after an eviction.
        language: In which it is warmed up.
        weight_mb: Memory of its own.
        model: Name of a model that it shares with other voices, or "".
        model_mb: Memory of that model, held while one of its voices is loaded.
        release_model: Called when the last voice of the model was evicted.
    """

    load: Callable[[], CpuVoice]
    language: str
    weight_mb: float
    model: str = ""
    model_mb: float = 0.0
    release_model: Callable[[], None] | None = None


@dataclass(slots=True)
class _Held:
    voice: CpuVoice
    is_pinned: bool
    used: int  # by the library's own count


class VoiceLibrary:
    """Voices by name, loaded when first asked for.

    Owner: shared by the cores of a process.

    Args:
        sources: Every voice that can be loaded.
        options: `voice_cache` and `voice_cache_mb` count.
        lock: Held while loading and evicting; needed where cores run on several threads.
    """

    def __init__(
        self,
        sources: Mapping[str, VoiceSource],
        options: CpuOptions,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._sources = sources
        self._max_voices = options.voice_cache
        self._max_mb = options.voice_cache_mb
        self._lock = nullcontext() if lock is None else lock
        self._held: dict[str, _Held] = {}
        self._uses = count()

    def __contains__(self, name: str) -> bool:
        """Whether there is such a voice, loaded or not."""
        return name in self._sources

    def get(self, name: str) -> CpuVoice | None:
        """The voice, if it is loaded."""
        held = self._held.get(name)
        if held is None:
            return None
        held.used = next(self._uses)
        return held.voice

    def load(self, name: str, *, pinned: bool = False) -> tuple[CpuVoice, bool, tuple[str, ...]]:
        """Load a voice, unless it is loaded, and let it speak once.

        Returns:
            The voice, whether nothing had to be loaded, and the voices evicted to make room.

        Raises:
            OSError, ValueError, RuntimeError: Its files are missing or wrong; onnxruntime raises
                exceptions of its own besides.
        """
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held.is_pinned |= pinned
                held.used = next(self._uses)
                return held.voice, True, ()
            source = self._sources[name]
            voice = source.load()
            _warm_up(voice, source.language)
            self._held[name] = _Held(voice, pinned, next(self._uses))
            return voice, False, self._evict_but(name)

    def _evict_but(self, name: str) -> tuple[str, ...]:
        """Evict until the limits hold, or nothing is left that may be evicted."""
        evicted: list[str] = []
        while len(self._held) > self._max_voices or self._size_mb() > self._max_mb:
            free = [
                each for each, held in self._held.items() if not held.is_pinned and each != name
            ]
            if not free:
                break
            victim = min(free, key=lambda each: self._held[each].used)
            del self._held[victim]
            evicted.append(victim)
            self._release_model_of(victim)
        return tuple(evicted)

    def _release_model_of(self, victim: str) -> None:
        source = self._sources[victim]
        in_use = any(self._sources[each].model == source.model for each in self._held)
        if source.release_model is not None and not in_use:
            source.release_model()

    def _size_mb(self) -> float:
        sources = [self._sources[name] for name in self._held]
        models = {source.model: source.model_mb for source in sources if source.model}
        return sum(source.weight_mb for source in sources) + sum(models.values())


def _warm_up(voice: CpuVoice, language: str) -> None:
    speech = voice.begin(_WARM_UP[language], speed=1.0, seed=(0,), is_first=True)
    while not speech.is_done:
        speech.advance()
