"""Classes of characters that cutting text depends on, and where a character may be cut from the next.

It knows Unicode, and nothing of sentences or markup.
"""

from __future__ import annotations

import re
import unicodedata

from rtts.text.languages import HAN, HANGUL, KANA

# How much longer an ideograph, a kana or a hangul block takes to say than a Latin letter: 15
# letters a second against 4 to 8 of these; 2.5 lies between Chinese (3.3) and Japanese (2.1).
WIDE_WEIGHT = 2.5
_WIDE = re.compile(f"[{HAN}{KANA}{HANGUL}]+")
_EXTRA = WIDE_WEIGHT - 1.0
_UNSPACED = re.compile(f"[{HAN}{KANA}\u3000-\u303f\uff01-\uff65]")

# Emoji and the pictographs around them (Unicode emoji-data.txt), without what reads as text:
# digits, #, *, ©, ®, ™ and the circled digits U+2776-2793. Misc Symbols and Dingbats (2600-27BF)
# go as a whole: a voice can say no star and no tick, emoji or not.
EMOJI = (
    "\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe"
    "\u2600-\u2775\u2794-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297"
    "\u3299\U0001f000-\U0001faff"
)
# What only ever modifies or joins emoji: variation selectors, the keycap, tags.
EMOJI_GLUE = "\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f"
ZERO_WIDTH_JOINER = "\u200d"

_EXTENDERS = re.compile(
    f"[{EMOJI_GLUE}{ZERO_WIDTH_JOINER}\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\uff9e\uff9f\u200c]"
)


def weight(text: str) -> float:
    """How long `text` is to say, in Latin characters; a line end may become a comma and a space."""
    total = len(text) + text.count("\n")
    return float(total) if text.isascii() else total + _EXTRA * sum(map(len, _WIDE.findall(text)))


def prefix_of_weight(text: str, start: int, limit: float) -> int:
    """The largest `end` for which `text[start:end]` weighs no more than `limit`."""
    total = 0.0
    for index in range(start, len(text)):
        total += weight(text[index])
        if total > limit:
            return index
    return len(text)


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to Chinese or Japanese, which put no spaces between words."""
    return _UNSPACED.match(character) is not None


# --- graphemes -----------------------------------------------------------------------------------


def extends(character: str) -> bool:
    """Whether a character belongs to whatever stands before it (UAX #29 GB9, GB9a)."""
    if character < "\u0300":
        return False
    if unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    return _EXTENDERS.match(character) is not None


def joins(text: str, index: int) -> bool:
    """Whether cutting `text` before `index` would tear a grapheme apart.

    UAX #29 without its Indic conjuncts: marks, joiners, modifiers, CR LF, hangul jamo and pairs of
    regional indicators.
    """
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if before == "\r":
        return after == "\n"
    if after < "\u0300":
        return False
    return (
        extends(after)
        or before == ZERO_WIDTH_JOINER
        or _joins_jamo(before, after)
        or _joins_flag(text, index)
    )


def _joins_jamo(before: str, after: str) -> bool:
    """GB6 to GB8: leading consonants take vowels, vowels take trailing consonants."""
    if "\u1160" <= after <= "\u11a7" or "\ud7b0" <= after <= "\ud7c6":  # vowel
        return "\u1100" <= before <= "\u11a7" or _is_open_syllable(before)
    if "\u11a8" <= after <= "\u11ff" or "\ud7cb" <= after <= "\ud7fb":  # trailing consonant
        return "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7fb"
    if "\u1100" <= after <= "\u115f" or "\ua960" <= after <= "\ua97c":  # leading consonant
        return "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97c"
    return "\uac00" <= after <= "\ud7a3" and "\u1100" <= before <= "\u115f"


def _is_open_syllable(character: str) -> bool:
    """A leading consonant of the extended block, or a precomposed syllable (taken as open)."""
    return "\ua960" <= character <= "\ua97c" or "\uac00" <= character <= "\ud7c6"


def _joins_flag(text: str, index: int) -> bool:
    """GB12: regional indicators pair up from the start of their run, at most 64 back."""
    first, last = "\U0001f1e6", "\U0001f1ff"
    if not first <= text[index] <= last:
        return False
    count = 0
    while count < 64 and index - count > 0 and first <= text[index - count - 1] <= last:
        count += 1
    return count % 2 == 1
