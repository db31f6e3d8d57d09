"""Voices for tests: cheap ones that behave, and ones that do not; and the real one, loaded once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rtts.engine.cpu.engine import CpuEngine
from rtts.engine.cpu.hibari_voice import HibariVoice
from rtts.engine.cpu.library import VoiceLibrary, VoiceSource
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.cpu.voice import CpuVoice, Speech, Trim
from rtts.engine.interface import Capabilities, Voice, Word, WordTimings

TRIM = Trim(leading_s=0.025, trailing_s=0.2)


@cache
def heart() -> HibariVoice:
    """The embedded voice."""
    return HibariVoice(TRIM, time.monotonic)


class FakeClock:
    """Monotonic seconds that pass when a test says so, or a little with each look."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now = 1000.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now


@dataclass
class FakeSpeech:
    """0.1 s of noise a word, three windows of it, one of them empty: the second, or the last."""

    samples: np.ndarray
    words: tuple[Word, ...]
    unknown: Mapping[str, int]
    raise_at: int | None = None
    is_last_empty: bool = False
    made: int = 0

    @property
    def is_done(self) -> bool:
        return self.made >= 3 or not len(self.samples)

    def advance(self) -> Speech:
        if self.made == self.raise_at:
            raise RuntimeError("the network broke: secret text")
        half = len(self.samples) // 2
        parts = [self.samples[:half], self.samples[:0], self.samples[half:]]
        if self.is_last_empty:
            parts[1:] = reversed(parts[1:])
        words = self.words if self.made == 0 else ()
        self.made += 1
        return Speech(parts[self.made - 1], words)


@dataclass
class FakeVoice:
    """Speaks noise that is a function of text, speed and seed.

    Attributes:
        raise_on: Texts containing this word break, at the window of that number; -1: in `begin`.
        texts: What it was asked to speak.
    """

    raise_on: Mapping[str, int] = field(default_factory=dict)
    times_words: bool = True
    texts: list[str] = field(default_factory=list)

    def begin(
        self, text: str, *, speed: float, seed: tuple[int, ...], is_first: bool
    ) -> FakeSpeech:
        self.texts.append(text)
        broken = next((at for word, at in self.raise_on.items() if word in text), None)
        if broken == -1:
            raise KeyError(text)
        words = [w for w in text.split() if w.isascii() and any(c.isalnum() for c in w)]
        key = [*seed, *text.encode("utf-8", "replace"), round(100 * speed)]
        count = round(2400 * len(words) / speed)
        samples = np.random.default_rng(key).uniform(-0.3, 0.3, count).astype(np.float32)
        timed, at = [], 0
        for place, word in enumerate(words):
            start = text.index(word, at)
            at = start + len(word)
            timed.append(Word(start, at, 0.1 * place / speed, 0.1 * (place + 1) / speed - 1e-4))
        foreign = sum(c.isalpha() and not c.isascii() for c in text)
        return FakeSpeech(
            samples,
            tuple(timed) if self.times_words else (),
            {"Cyrillic": foreign} if foreign else {},
            broken,
            "trailing" in text,
        )


def described(options: CpuOptions, names: tuple[str, ...]) -> Capabilities:
    voices = tuple(Voice(name, ("en",), "Apache-2.0") for name in names)
    return Capabilities(
        engine="cpu",
        model="fake",
        voices=voices,
        default_voice=names[0],
        word_timings=WordTimings.EXACT,
        streams_within_segment=True,
        speed_range=(0.7, 1.3),
        max_utterances=options.max_utterances,
    )


def library(
    voices: Mapping[str, Callable[[], CpuVoice]],
    options: CpuOptions | None = None,
    weight_mb: float = 1.0,
    **fields: Any,
) -> VoiceLibrary:
    sources = {
        name: VoiceSource(load, "en", weight_mb=weight_mb, **fields)
        for name, load in voices.items()
    }
    return VoiceLibrary(sources, options or CpuOptions())


def engine(
    voices: Mapping[str, Callable[[], CpuVoice]] | None = None,
    options: CpuOptions | None = None,
    clock: Callable[[], float] | None = None,
) -> CpuEngine:
    """A core with fake voices, "fake" by default."""
    options = options or CpuOptions()
    voices = {"fake": FakeVoice} if voices is None else voices
    return CpuEngine(
        options,
        clock or FakeClock(0.001),
        library(voices, options),
        described(options, tuple(voices)),
    )


def real_engine(options: CpuOptions | None = None) -> CpuEngine:
    """A core with the embedded voice, loaded once for all tests."""
    return engine({"heart": heart}, options)
