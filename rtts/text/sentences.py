"""Does this full stop end a sentence?

The one question about text that needs knowledge of a language: abbreviations, initials, ordinals,
list markers. sentencex (Wikimedia's rules and abbreviation lists) answers most of it; the rules
here cover what it gets wrong or cannot see. It looks at one stop, the few words before it and the
word after it, and knows nothing about buffers or streaming.
"""

from __future__ import annotations

import re

import sentencex

from rtts.text.languages import HANGUL, Script, dominant_script
from rtts.text.vocabulary import (
    BEFORE_NUMBERS,
    CLOSING_TAILS,
    GERMAN_BEFORE_ORDINALS,
    GERMAN_MONTHS,
    STARTERS,
    TAILS,
    TITLES,
    UNITS,
    WORDS_OF_ANOTHER,
)

# Enough context for any rule, and a bound on what is handed to sentencex.
_MAX_LEFT = 120
_MAX_TOKEN = 64

_TOKEN_BREAK = re.compile(r"[\s\"“”‘«»„()\[\]{}<>,;:!?…—–*_`~/|]")
_ROMAN = re.compile(r"[ivxlcdm]{1,6}\Z", re.I)
_LEAD = " >#*_•◦‣▪●·⁃-–+(["
_FIRST_MARKER = re.compile(rf"[{re.escape(_LEAD)}]{{0,8}}([0-9]{{1,3}}|[A-Za-z])(?:\.\)|[.)])\s")
_MARKER = re.compile(rf"[\s{re.escape(_LEAD)}]*(?:[0-9]{{1,3}}|[A-Za-z]|[ivxIVX]{{1,5}})\s?\Z")
_BARE = dict.fromkeys(map(ord, '()[]{}"“”«»„‘`「」『』（）【】《》〈〉'), None) | {ord("\n"): " "}
_ALL = (TITLES, BEFORE_NUMBERS, TAILS)
_LATIN_ABBREVIATIONS = (
    frozenset[str]().union(
        *(
            words
            for table in (TITLES, BEFORE_NUMBERS)
            for tag, words in table.items()
            if tag != "ru"
        )
    )
    - WORDS_OF_ANOTHER
)
_JOINED = re.compile(r"['’´\-]")
_NUMERAL = re.compile(r"[0-9№(]|[IVXLC]{1,6}\Z|[A-Z]\Z")
_QUANTITY = re.compile(r"[0-9½¼¾] ?\Z")
_LAST_WORD = re.compile(r"\w+\Z")
_SPELT = re.compile(r"(?:[^\W\d_]{1,4}\. ?){1,3}[^\W\d_]\Z")
_HANGUL = re.compile(f"[{HANGUL}]")
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*\Z")


def token_before(text: str, start: int, stop: int) -> int:
    """Where the word begins that a mark at `stop` belongs to, a space between them looked over."""
    begin = stop
    if begin > start and text[begin - 1].isspace():
        begin -= 1
    low = max(start, begin - _MAX_TOKEN)
    while begin > low and not _TOKEN_BREAK.match(text, begin - 1):
        begin -= 1
    return begin


def is_risky(token: str) -> bool:
    """Whether the whole next word is needed to judge a stop after `token`."""
    if token and _HANGUL.match(token[-1]):
        return False
    return len(token) <= 4 or "." in token or any(map(str.isdigit, token))


def is_marker(left: str) -> bool:
    """Whether a segment so far is nothing but a list marker ("1", "a", "iii")."""
    line = left[left.rfind("\n") + 1 :]
    return len(line) <= 16 and _MARKER.match(line) is not None


def follows_marker(left: str, token: str) -> bool:
    """Whether `token` numbers the item after the one that `left`, a segment so far, begins with."""
    match = _FIRST_MARKER.match(left)
    if match is None or not left[-1:].isspace():
        return False
    marker, token = match.group(1), token.lstrip(_LEAD)
    if marker.isdecimal():
        return token.isdecimal() and len(token) <= 3 and int(token) == int(marker) + 1
    return len(token) == 1 and ord(token) == ord(marker) + 1


def unfinished(left: str, token: str, latin: str) -> bool:
    """Whether a stop after `token`, with nothing known to follow, may well not be an end."""
    if not token or (token.isdecimal() and len(token) <= 2) or _INITIALS.match(token):
        return True
    language = language_of(token, latin)
    keys = _keys(token)
    if any(key in table.get(language or "en", ()) for key in keys for table in _ALL):
        return True
    if not language and _is_foreign(token):
        return True
    return not _asks(language, left, "The")


def ends_sentence(left: str, token: str, following: str, latin: str) -> bool:
    """Whether the stop after `left`, which ends in `token`, ends a sentence.

    Args:
        left: Text of the segment before the stop.
        token: Its last word, without the stop; empty after a bracket or a quote.
        following: The next word, or at least its first letter; "" for an ideograph.
        latin: Language of the text's Latin letters; "" while it is not known.
    """
    language = language_of(token, latin)
    if not token:
        return not following[:1].islower()
    verdict = _by_lists(left, token, following, language or "en")
    if verdict is None and not language and _is_foreign(token):
        return False
    if verdict is not None:
        return verdict
    if following[:1].islower() and (len(token) == 1 or "." in token or token[-1].isdecimal()):
        return False
    return _asks(language, left, following or "The")


def _asks(language: str, left: str, following: str) -> bool:
    """What sentencex says."""
    said = left[-_MAX_LEFT:].translate(_BARE).rstrip() + ". " + following
    pieces = sentencex.segment(language or "en", said)
    return len(pieces) > 1 and pieces[-1].strip() == following.strip()


def _by_lists(left: str, token: str, following: str, language: str) -> bool | None:
    """What abbreviations, initials and ordinals say; None if they say nothing."""
    number = token.lstrip("-–+#$€£(")
    if number.isdecimal():
        return _after_number(left, number, following, language)
    if language not in TITLES:
        return None
    keys = _keys(token)
    if keys[0] in UNITS and _QUANTITY.search(left[: -len(token)]):
        return following[:1].isupper()
    if len(token) == 1 and token.isalpha():
        return _after_letter(left, token, following, language)
    verdict = _after_abbreviation(keys, following, language)
    if verdict is None and is_starter(following, language):
        german_ordinal = language == "de" and _ROMAN.match(token) and token.isupper()
        spelt = "." in token and (token[:1].isupper() or language == "en")
        return True if german_ordinal or spelt else None
    if verdict is None and language == "de" and _ROMAN.match(token) and token.isupper():
        return False
    return verdict


def _after_abbreviation(keys: tuple[str, ...], following: str, language: str) -> bool | None:
    """What the lists of abbreviations say; None if the token is in none, or they can't tell."""
    starts = is_starter(following, language)
    if _known(BEFORE_NUMBERS, language, keys):
        if _NUMERAL.match(following):
            return False
        if starts:
            return True
    if _known(TITLES, language, keys):
        return starts and language == "ru"  # "им." is a pronoun too, "см." a unit
    if not _known(TAILS, language, keys):
        return None
    if following[:1].islower():
        return False
    return True if starts or _known(CLOSING_TAILS, language, keys) else None


def _is_foreign(token: str) -> bool:
    """Whether some Latin-script language abbreviates so, the text's language being unknown."""
    return any(key in _LATIN_ABBREVIATIONS for key in _keys(token))


def _known(table: dict[str, frozenset[str]], language: str, keys: tuple[str, ...]) -> bool:
    return any(key in table[language] for key in keys)


def _keys(token: str) -> tuple[str, ...]:
    """A token as the lists spell it, whole and without what an apostrophe or hyphen joins to it."""
    folded = token.lower()
    return folded, _JOINED.split(folded)[-1]


def is_starter(word: str, language: str) -> bool:
    """Whether a capitalised word is one that sentences begin with."""
    return (
        word[:1].isupper()
        and not word[1:2].isupper()
        and word.lower() in STARTERS.get(language, ())
    )


def _after_number(left: str, number: str, following: str, language: str) -> bool | None:
    """`24. Dezember` and `2. go home` go on; `in 1990. She` does not."""
    if following[:1].islower():
        return False
    if language != "de" or len(number) > 2:
        return None
    if following.lower() in GERMAN_MONTHS:
        return False
    before = _LAST_WORD.search(left[: -len(number)].rstrip()[-24:])
    if before is not None and before.group().lower() in GERMAN_BEFORE_ORDINALS:
        return False
    return is_starter(following, language)


def _after_letter(left: str, token: str, following: str, language: str) -> bool | None:
    """Initials go on; a letter that is a word or a name of its own may end a sentence."""
    if following[:1].islower():
        return False
    if _NUMERAL.match(following) and token.lower() in BEFORE_NUMBERS[language]:
        return False
    if language == "en":
        return None
    spelt = _SPELT.search(left)
    if spelt is not None:  # "z. B.", "EE. UU.", "т. е."
        key = spelt.group().replace(" ", "").lower()
        if key in TITLES[language]:
            return False
        if key in TAILS[language]:
            return is_starter(following, language) or key in CLOSING_TAILS[language]
    if token.islower() and token in TAILS[language]:
        return is_starter(following, language)
    if token.islower() and token in TITLES[language]:
        return False
    return is_starter(following, language) and token.isupper() and language != "ru"


def language_of(token: str, latin: str) -> str:
    """The language whose rules a token follows, by its script; `latin` for Latin letters."""
    script = dominant_script(token)
    if script is Script.CYRILLIC:
        return "ru"
    if script is Script.HANGUL:
        return "ko"
    return latin
