"""Which voice speaks: from what a client asked for to a voice and a language the engine has.

Knows nothing about files, models or sockets; an engine's `Capabilities` are the whole truth.
"""

from __future__ import annotations

import difflib

from rtts.engine.interface import Capabilities, Voice
from rtts.errors import UnknownVoiceError, UnsupportedLanguageError
from rtts.text.languages import normalise_language


def resolve_voice(
    capabilities: Capabilities, voice_id: str | None, language: str | None
) -> tuple[Voice, str]:
    """Find the voice and the language to speak.

    Args:
        voice_id: What the client named; None takes the engine's default, or the first voice that
            speaks `language`.
        language: BCP 47 tag or English name; None and "auto" let the text decide.

    Returns:
        The voice, and a BCP 47 primary tag it speaks or "auto".

    Raises:
        UnknownVoiceError: No such voice; the message names the nearest ones.
        UnsupportedLanguageError: The voice, or no voice at all, speaks that language.
    """
    is_auto = not language or language.casefold() == "auto"
    tag = "auto" if is_auto else normalise_language(language or "")
    if tag is None:
        raise UnsupportedLanguageError(
            f"language {language!r} is not known; this server speaks "
            + ", ".join(capabilities.languages)
        )
    if voice_id is None:
        return _voice_for(capabilities, tag), tag
    voice = capabilities.voice(voice_id)
    if voice is None:
        names = [known.id for known in capabilities.voices]
        nearest = difflib.get_close_matches(voice_id, names, n=3) or names[:8]
        raise UnknownVoiceError(f"there is no voice {voice_id!r}; try {', '.join(nearest)}")
    if tag != "auto" and tag not in voice.languages:
        raise UnsupportedLanguageError(
            f"voice {voice.id!r} speaks {', '.join(voice.languages)}, not {tag!r}"
        )
    return voice, tag


def _voice_for(capabilities: Capabilities, tag: str) -> Voice:
    default = capabilities.voice(capabilities.default_voice)
    if default is None:
        raise UnknownVoiceError("this server has no voice yet: add one with POST /v1/voices")
    if tag == "auto" or tag in default.languages:
        return default
    for voice in capabilities.voices:
        if tag in voice.languages:
            return voice
    raise UnsupportedLanguageError(
        f"no voice speaks {tag!r}; this server speaks {', '.join(capabilities.languages)}"
    )
