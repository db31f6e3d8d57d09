"""What the splitter makes and how it is told to: segments and options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rtts.errors import ConfigError
from rtts.text.languages import AUTO, LANGUAGES, normalise_language

Reason = Literal["sentence", "line", "clause", "length", "stall", "flush", "message"]
Mode = Literal["auto", "client", "flush"]

# With less room than a long word takes, every cut would tear one.
_LEAST_MAXIMUM = 20


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the input that is spoken in one go.

    Attributes:
        text: The input from `start` to `end`, as it came.
        spoken: What the engine is to say; empty for a silence.
        start: Index of its first character in the whole input. A surrogate pair that came in two
            halves counts as one character.
        end: Index after its last character.
        reason: Why it ends where it ends.
        pause_s: Silence to play after it.
        offsets: For each character of `spoken`, the index of the input it came from.
    """

    text: str
    spoken: str
    start: int
    end: int
    reason: Reason
    pause_s: float = 0.0
    offsets: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SplitterOptions:
    """How text is cut. Weights are in Latin characters; an ideograph, kana or hangul is 2.5.

    Attributes:
        language: "auto", a tag or a name; decides the rules for Latin letters.
        mode: "auto" cuts by itself; "client" takes each message for a finished piece; "flush"
            cuts only when told. All three keep to the maximum.
        markup: Whether markdown, tags, addresses and emoji are interpreted.
        first_min_weight: The first segment may end at a clause mark from this weight on (20 is
            about 1.3 s of speech).
        first_max_weight: The first segment is cut at a space at this weight.
        max_weight: No segment is longer (13 s of Latin speech, 18 s of Chinese).
        min_weight: A shorter sentence waits for the next one: short inputs are what speech models
            fail on.
        max_chars: No segment has more characters, whatever they weigh.
        urls: A bare URL is spoken as its host name, dropped, or kept.
        emoji: Emoji are dropped or kept.
        paragraph_pause_s: Silence after a paragraph.
        commit_delay_s: After so long without text, a sentence that only lacks what follows it is
            taken for finished.
        first_max_delay_s: The same for the first segment, which also may end at a short clause.
        max_delay_s: After so long without text and with nothing to hear, speak what there is, up
            to the last clause or whole word.
    """

    language: str = AUTO
    mode: Mode = "auto"
    markup: bool = True
    first_min_weight: float = 20.0
    first_max_weight: float = 80.0
    max_weight: float = 200.0
    min_weight: float = 8.0
    max_chars: int = 200
    urls: Literal["host", "drop", "keep"] = "host"
    emoji: Literal["drop", "keep"] = "drop"
    paragraph_pause_s: float = 0.3
    commit_delay_s: float = 0.25
    first_max_delay_s: float = 0.15
    max_delay_s: float = 1.5

    def __post_init__(self) -> None:
        if normalise_language(self.language) is None:
            known = ", ".join([AUTO, *LANGUAGES])
            raise ConfigError(f"text.language is {self.language!r}; allowed are {known}")
        if min(self.max_weight, self.first_max_weight, self.max_chars) < _LEAST_MAXIMUM:
            raise ConfigError(
                "text.max_weight, text.first_max_weight and text.max_chars must be at least "
                f"{_LEAST_MAXIMUM}"
            )
