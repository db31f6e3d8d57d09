"""What a tone engine pretends to be: its options, and the capabilities that follow from them.

It knows nothing about where options come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rtts.engine.interface import Capabilities, TextUnit, Voice, WordTimings
from rtts.engine.tone.sound import BASE_HZ, SAMPLE_RATE_HZ
from rtts.errors import ConfigError

# The ten of Qwen3-TTS, so that a client tested against tones finds every language it will meet.
LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")


@dataclass(frozen=True, slots=True)
class ToneOptions:
    """What the tone engine pretends to be. The defaults are instant and healthy.

    Attributes:
        voices: Ids offered, of "tone", "tone-low" and "tone-high"; the first is the default.
        chunk_s: Audio of one `AudioProduced`, (0, 1] s; 0.08 is one codec frame of Qwen3-TTS.
        char_s: Audio of one character at speed 1; 0.06 is about 17 characters a second, a brisk
            reading voice.
        max_utterances: Concurrent utterances before `overloaded`.
        voice_cache: Voices held at once; the least recently used unpinned one is evicted.
        first_chunk_delay_s: Simulated engine time an utterance's first chunk costs on top.
        real_time_factor: Simulated engine time of a second of audio. The engine does one thing at
            a time, so that 20 streams at 0.1 fall behind.
        voice_load_s: Simulated engine time of loading a voice.
        pause_after_chunks: Fault: each utterance rests once, after this many chunks ...
        pause_s: ... for this long, without holding up others: an underrun of known length.
        fail_at_segment: Fault: an utterance fails on reaching the segment of this index.
        die_after_chunks: Fault: the core raises instead of making chunk number this + 1.
        clones: Take on the pitch of reference recordings, so that tests have an engine with voices
            of its users.
        never_finish: Fault: `FinishText` is never answered; only a cancel ends an utterance.
        skip_scripts: Segments with a letter of one of these scripts (first word of its Unicode
            name, "CJK", "CYRILLIC") are skipped as unspeakable.
        unspeakable: Segments containing one of these words are skipped as unspeakable.
    """

    voices: tuple[str, ...] = ("tone", "tone-low", "tone-high")
    chunk_s: float = 0.08
    char_s: float = 0.06
    max_utterances: int = 256
    voice_cache: int = 8
    first_chunk_delay_s: float = 0.0
    real_time_factor: float = 0.0
    voice_load_s: float = 0.0
    pause_after_chunks: int | None = None
    pause_s: float = 0.0
    fail_at_segment: int | None = None
    die_after_chunks: int | None = None
    clones: bool = False
    never_finish: bool = False
    skip_scripts: tuple[str, ...] = ()
    unspeakable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [voice for voice in self.voices if voice not in BASE_HZ]
        if unknown or not self.voices:
            raise ConfigError(f"tone.voices: {unknown or 'empty'}; it has {', '.join(BASE_HZ)}")
        if not 1 / SAMPLE_RATE_HZ <= self.chunk_s <= 1.0:
            raise ConfigError(f"tone.chunk_s: {self.chunk_s} is outside (0, 1] s")
        if not 0.001 <= self.char_s <= 1.0:
            raise ConfigError(f"tone.char_s: {self.char_s} is outside 0.001..1 s")
        for name in ("max_utterances", "voice_cache"):
            if getattr(self, name) < 1:
                raise ConfigError(f"tone.{name}: {getattr(self, name)} is below 1")
        for name in ("first_chunk_delay_s", "real_time_factor", "voice_load_s", "pause_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"tone.{name}: {getattr(self, name)} is not a time to take")


def capabilities(options: ToneOptions) -> Capabilities:
    """What a tone engine with these options says of itself."""
    voices = tuple(
        Voice(
            id=name,
            languages=LANGUAGES,
            licence="Apache-2.0",
            description=f"A tone of {BASE_HZ[name]:.0f} Hz and up, one note a segment",
            notes=("Not speech: a stand-in for tests, examples and load measurements.",),
        )
        for name in options.voices
    )
    return Capabilities(
        engine="tone",
        model="tone",
        voices=voices,
        default_voice=options.voices[0],
        sample_rate_hz=SAMPLE_RATE_HZ,
        text_unit=TextUnit.SEGMENT,
        word_timings=WordTimings.EXACT,
        streams_within_segment=True,
        speed_range=(0.25, 4.0),
        added_languages=LANGUAGES,
        clones_voices=options.clones,
        designs_voices=options.clones,
        max_utterances=options.max_utterances,
    )
