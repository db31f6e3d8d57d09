"""What the CPU engine cannot do, in words: utterances it refuses, text it leaves out.

Knows nothing about models or audio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtts.engine.interface import Capabilities, StartUtterance, UtteranceFailed
from rtts.errors import (
    BadRequestError,
    OverloadedError,
    UnknownVoiceError,
    UnsupportedLanguageError,
)

# Languages to look for among the voices when a script is unknown.
_LANGUAGE_OF: Final[Mapping[str, str]] = {
    "Chinese characters": "zh",
    "Japanese kana": "ja",
    "Korean Hangul": "ko",
    "Cyrillic": "ru",
    "Arabic": "ar",
    "Devanagari": "hi",
}


def refusal(
    command: StartUtterance, capabilities: Capabilities, live: int
) -> UtteranceFailed | None:
    """Why an utterance cannot be spoken, or None.

    Args:
        command: That would start it.
        capabilities: Of the engine.
        live: Utterances being spoken.
    """
    utterance_id = command.utterance_id
    voice = capabilities.voice(command.voice)
    low, high = capabilities.speed_range
    if voice is None:
        message = no_such_voice(command.voice, capabilities)
        return UtteranceFailed(utterance_id, UnknownVoiceError.code, message)
    if command.language != "auto" and command.language.partition("-")[0] not in voice.languages:
        message = f"voice {voice.id!r} does not speak {command.language!r}"
        return UtteranceFailed(utterance_id, UnsupportedLanguageError.code, message)
    if not low <= command.speed <= high:  # written so that NaN is refused too
        message = f"speed {command.speed} is outside {low}..{high}"
        return UtteranceFailed(utterance_id, BadRequestError.code, message)
    if live >= capabilities.max_utterances:
        return UtteranceFailed(
            utterance_id,
            OverloadedError.code,
            f"{live} utterances are being spoken",
            retryable=True,
            retry_after_s=1.0,  # utterances last a few seconds
        )
    return None


def no_such_voice(name: str, capabilities: Capabilities) -> str:
    """That a voice is unknown, and which are there."""
    return f"no voice {name!r}; there is {', '.join(voice.id for voice in capabilities.voices)}"


def explain_unknown(name: str, unknown: Mapping[str, int], capabilities: Capabilities) -> str:
    """What a voice left out of a text, and which voice could say it.

    Args:
        name: Of the voice.
        unknown: Letters left out, by script, most frequent first.
        capabilities: Of the engine.
    """
    if not unknown:
        return f"there is nothing to say for voice {name!r}: no letters or digits"
    letters = sum(unknown.values())
    scripts = " and ".join(list(unknown)[:3])
    return (
        f"voice {name!r} does not know {scripts} ({letters} {'letter' if letters == 1 else 'letters'} "
        f"left out); {_who_could(next(iter(unknown)), capabilities)}"
    )


def _who_could(script: str, capabilities: Capabilities) -> str:
    language = _LANGUAGE_OF.get(script, "")
    able = [voice.id for voice in capabilities.voices if language in voice.languages]
    if able:
        return f"voice {able[0]!r} does"
    if language == "zh":
        return "the Chinese voices of rtts[kokoro] do"
    return "no voice of this engine does"
