"""Text: from the tokens of an LLM to segments worth speaking."""

from rtts.text.languages import (
    LANGUAGES,
    Language,
    Script,
    dominant_script,
    estimate_duration_s,
    normalise_language,
    words,
)
from rtts.text.segments import Mode, Reason, Segment, SplitterOptions
from rtts.text.splitter import Splitter

__all__ = [
    "LANGUAGES",
    "Language",
    "Mode",
    "Reason",
    "Script",
    "Segment",
    "Splitter",
    "SplitterOptions",
    "dominant_script",
    "estimate_duration_s",
    "make_splitter",
    "normalise_language",
    "words",
]


def make_splitter(lang: str = "auto") -> Splitter:
    """A splitter for plain text, for measuring where it cuts: service defaults, markup off."""
    return Splitter(SplitterOptions(language=lang, markup=False))
