"""Language tags of the waist (BCP 47 primary tags) and the names Qwen3-TTS checkpoints use."""

from __future__ import annotations

NAMES = {
    "zh": "chinese",
    "en": "english",
    "de": "german",
    "it": "italian",
    "pt": "portuguese",
    "es": "spanish",
    "ja": "japanese",
    "ko": "korean",
    "fr": "french",
    "ru": "russian",
}
"""The ten languages of the release."""

TAGS = {name: tag for tag, name in NAMES.items()}


def language_name(tag: str) -> str:
    """The checkpoint's name for a tag; a name or "auto" is itself; what is unknown is too."""
    return NAMES.get(tag.lower().split("-")[0], tag.lower())
