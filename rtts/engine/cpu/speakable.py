"""What of a text an English voice can say, with every piece tied to where it stood.

Splits a segment into units: stretches of the text with the words to be read for them. Letters of
scripts the voice does not know, emoji and invisible characters stay outside. On the way it spells
out what the voice's own normaliser reads badly: phone numbers in brackets, number lists, very long
numbers, heights, names of programming languages.

Knows nothing about phonemes or audio. Pure functions of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

# What the voice makes of a character.
_SPACE, _SPOKEN, _FOREIGN, _SILENT, _INVISIBLE = range(5)

_LONGEST_NUMBER = 12  # digits; longer ones are codes and account numbers, and are spelled
_GREEK_NAME = re.compile(r"GREEK (?:SMALL|CAPITAL) LETTER (?:FINAL )?(\w+)$")
# Letters outside the Latin blocks that are read like Latin text once folded.
_FOLDED = ("FULLWIDTH", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "ROMAN NUMERAL")
_FOLDED_TOO = ("CIRCLED", "PARENTHESIZED", "LATIN SMALL LIGATURE", "SUBSCRIPT")
_SCRIPT_NAMES: Final = {
    "CJK": "Chinese characters",
    "HIRAGANA": "Japanese kana",
    "KATAKANA": "Japanese kana",
    "HANGUL": "Korean Hangul",
    "CYRILLIC": "Cyrillic",
    "ARABIC": "Arabic",
    "DEVANAGARI": "Devanagari",
}

# Stretches that reach across spaces, so that they must be found before the text is split at them.
_BRACKETED_PHONE = r"(?:\+?1[-. ]?)?\(\d{3}\) ?\d{3}[-. ]\d{4}(?!\w)"
_WORLD_PHONE = r"\+(?:[ ().-]*\d){8,15}(?!\w)"
_DASH = r"—|―|(?<![-\w])--+(?![-\w])|(?<=\w)--(?=\w)"
_FEET = r"\d+ ?['′’] ?\d+ ?(?:\"|″|”|'')"
_WIDE = re.compile(
    rf"(?P<phone>(?<![\w+]){_BRACKETED_PHONE}|(?<![\w+]){_WORLD_PHONE})"
    rf"|(?P<dash>{_DASH})|(?P<feet>(?<![\w.]){_FEET})"
)
# 555-123-4567, 555.123.4567, 555-1234; hibari's normaliser misses them before a full stop.
_PHONE = re.compile(r"(?<![\w.-])(?:\d{3}([-.])\d{3}\1|\d{3}-)\d{4}(?![\w-]|\.\w)")
_NUMBER_LIST = re.compile(r"(?<![\w.,$€£¥])\d+(?:,\d+)+(?![\w])")
# 1,234,567 and, as in India, 12,34,567.
_GROUPED_NUMBER = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d{2})+,\d{3}")
_LONG_NUMBER = re.compile(rf"\d{{{_LONGEST_NUMBER + 1},}}|\d+(?:,\d{{3}}){{4,}}")
_PADDED_NUMBER = re.compile(r"(?<![\w.,:/-])0\d{2,}(?![\w]|[.,:/-]\d)")
# 3-5, where hibari's normaliser misses it: before a full stop.
_RANGE = re.compile(r"(?<![\w.,–-])(\d{1,4})[-–](\d{1,4})(?=\.\W*$)")
_SHARP = re.compile(r"(?<!\w)([A-G])#(?!\w)")
_ABOUT = re.compile(r"(?<!\w)~(?=[$€£]?\d)")
_POWER = re.compile(r"(?<=\w)(⁻?[⁰¹²³⁴-⁹]{2,}|⁻?[⁰¹⁴-⁹]|⁻[²³])")  # ² and ³ alone have names
# The G2P takes time with the cube of the parts of a run: 0.8 s for "a-a-a-..." of 160 characters. No
# word has so many, but hashes, base64 and rows of marks do.
_REPEATED = re.compile(r"([^\w\s])\1{3,}")
_PART = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+|\d+|.", re.DOTALL)
_MOST_PARTS, _PARTS_KEPT = 16, 10
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")  # others count as spaces
_BRACKETS = str.maketrans("", "", "[]{}")
_PUNCTUATION = str.maketrans("。｡、《》〈〉「」『』【】〔〕", '..,""""""""""""')
_CLOSING = frozenset(",.;:!?…)\"”'’")


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of the text and the words that are read for it.

    Attributes:
        start: First character in the text.
        end: One past the last.
        reading: Words, separated by single spaces; never empty.
    """

    start: int
    end: int
    reading: str


@dataclass(slots=True)
class Speakable:
    """A text as a voice will say it.

    Attributes:
        units: In text order, not overlapping.
        unknown: Number of letters left out, by the script they are of.
    """

    units: list[Unit] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def can_be_said(self) -> bool:
        """Whether there is any letter or number to say."""
        return any(char.isalnum() for unit in self.units for char in unit.reading)


def speakable(text: str) -> Speakable:
    """Split a text into units an English voice can read."""
    result = Speakable()
    done = 0
    for match in _WIDE.finditer(text):
        _add_runs(text, done, match.start(), result)
        reading = _WIDE_READINGS[match.lastgroup or ""](match.group())
        result.units.append(Unit(match.start(), match.end(), reading))
        done = match.end()
    _add_runs(text, done, len(text), result)
    return result


def unknown_letters(text: str, *, known: tuple[str, ...]) -> Counter[str]:
    """Letters of a text that are neither Latin nor of the scripts named, by script.

    Args:
        known: First words of Unicode names: "CJK", "HIRAGANA".
    """
    return Counter(
        _script(char)
        for char in text
        if _kind(char) == _FOREIGN and not unicodedata.name(char, "").startswith(known)
    )


# --- stretches that reach across spaces ----------------------------------------------------------


def _read_phone(text: str) -> str:
    """Digit by digit, with a pause between groups."""
    plus = ["plus"] if text.startswith("+") else []
    groups = (" ".join(digits) for digits in re.findall(r"\d+", text))
    return " ".join([*plus, ", ".join(groups)])


def _read_dash(text: str) -> str:
    return "—"


def _read_feet(text: str) -> str:
    feet, inches = re.findall(r"\d+", text)
    return f"{feet} foot {inches}"


_WIDE_READINGS: Final[dict[str, Callable[[str], str]]] = {
    "phone": _read_phone,
    "dash": _read_dash,
    "feet": _read_feet,
}


# --- runs of characters between spaces -----------------------------------------------------------


def _add_runs(text: str, start: int, end: int, result: Speakable) -> None:
    """Units for the runs of speakable characters in `text[start:end]`."""
    if text.isascii() and not _CONTROLS.search(text):  # the common case, at a tenth of the cost
        for match in re.finditer(r"[!-~]+", text[start:end]):
            _add_unit(match.start() + start, match.end() + start, match.group(), result)
        return
    begun: int | None = None
    chars: list[str] = []
    last = start
    for at in range(start, end):
        kind = _kind(text[at])
        if kind == _INVISIBLE:
            continue
        if kind == _SPOKEN or (kind == _FOREIGN and _is_lone_greek(text, at)):
            begun = at if begun is None else begun
            chars.append(text[at] if kind == _SPOKEN else _greek_name(text[at]))
            last = at + 1
            continue
        if kind == _FOREIGN:
            result.unknown[_script(text[at])] += 1
        if begun is not None:
            _add_unit(begun, last, "".join(chars), result)
            begun, chars = None, []
    if begun is not None:
        _add_unit(begun, last, "".join(chars), result)


def _add_unit(start: int, end: int, run: str, result: Speakable) -> None:
    reading = _read_run(run)
    if _CLOSING.issuperset(reading):
        # A mark that stands apart, behind an emoji or a word left out, closes what came before.
        if result.units and reading:
            before = result.units[-1]
            result.units[-1] = Unit(before.start, before.end, before.reading + reading)
        return
    result.units.append(Unit(start, end, reading))


def _read_run(run: str) -> str:
    """The words for a run of characters without spaces; empty if there are none."""
    if run.isalpha() and run.isascii() and len(run) <= _MOST_PARTS:
        return run
    reading = _REPEATED.sub(r"\1\1\1", run.translate(_BRACKETS))
    if not reading.isascii():
        reading = _fold(_POWER.sub(_read_power, reading.translate(_PUNCTUATION)))
    if any(char.isdigit() for char in reading):
        reading = _PHONE.sub(lambda match: _read_phone(match.group()), reading)
        reading = _NUMBER_LIST.sub(_read_number_list, reading)
        reading = _LONG_NUMBER.sub(_spell, reading)
        reading = _PADDED_NUMBER.sub(_spell, reading)
        reading = _RANGE.sub(r"\1 to \2", reading)
        reading = _ABOUT.sub("about ", reading)
        if reading == "24/7":
            return "24 7"
    if "#" in reading:
        reading = _SHARP.sub(r"\1 sharp", reading)
    return " ".join(part for word in reading.split() for part in _bearable(word))


def _bearable(word: str) -> Iterator[str]:
    """The word, or pieces of it where it has too many parts."""
    if len(word) <= _MOST_PARTS:
        yield word
        return
    parts = _PART.findall(word)
    if len(parts) <= _MOST_PARTS:
        yield word
        return
    for begin in range(0, len(parts), _PARTS_KEPT):
        yield "".join(parts[begin : begin + _PARTS_KEPT])


def _read_number_list(match: re.Match[str]) -> str:
    """`1,2,3` as three numbers, `1,234` as one."""
    if _GROUPED_NUMBER.fullmatch(match.group()):
        return match.group()
    return match.group().replace(",", ", ")


def _read_power(match: re.Match[str]) -> str:
    exponent = unicodedata.normalize("NFKC", match.group()).replace("−", "minus ")
    return f" to the power of {exponent}"


def _spell(match: re.Match[str]) -> str:
    """Digit by digit."""
    return " ".join(match.group().replace(",", ""))


def _fold(text: str) -> str:
    """Full-width, mathematical and ligature letters, and digits of any script, as ASCII."""
    return unicodedata.normalize("NFC", "".join(map(_folded, text)))


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    if char.isascii():
        return char
    if char in "²³½¼¾":
        return char  # the G2P's normaliser has words for them
    if char.isdigit():
        return str(unicodedata.digit(char))
    name = unicodedata.name(char, "")
    if name.startswith("VULGAR FRACTION"):
        return " " + unicodedata.normalize("NFKC", char).replace("⁄", "/") + " "
    return unicodedata.normalize("NFKC", char) if name.startswith(_FOLDED + _FOLDED_TOO) else char


@lru_cache(maxsize=4096)
def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    category = unicodedata.category(char)
    if category[0] == "C":
        return _INVISIBLE  # controls, joiners, half characters, private use
    if category[0] in "LM":
        name = unicodedata.name(char, "")
        if name.startswith("MODIFIER") or "ORDINAL INDICATOR" in name:
            return _INVISIBLE  # the mark in Hawai\u02bbi, the \u00ba of 1\u00ba
        is_latin = name.startswith(("LATIN", "COMBINING", "MICRO SIGN", *_FOLDED))
        return _SPOKEN if is_latin else _FOREIGN if category[0] == "L" else _SILENT
    return _SILENT if category in ("So", "Sk") and char not in "°©®™" else _SPOKEN


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    word = unicodedata.name(char, "unknown letters").partition(" ")[0]
    word = word.partition("-")[0]
    return _SCRIPT_NAMES.get(word, word.capitalize())


def _greek_name(char: str) -> str:
    match = _GREEK_NAME.match(unicodedata.name(char, ""))
    return f" {match.group(1).lower()} " if match else ""


def _is_lone_greek(text: str, at: int) -> bool:
    """Whether this is a Greek letter used as a symbol: no letter of a Greek word beside it."""
    if not _greek_name(text[at]):
        return False
    around: Iterator[str] = iter(text[max(0, at - 1) : at] + text[at + 1 : at + 2])
    return not any(unicodedata.name(char, "").startswith("GREEK") for char in around)
