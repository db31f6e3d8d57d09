"""The ten languages rtts speaks, their scripts, and how long text takes to say.

It knows names and tags, which script a character belongs to, a guess at the language of
Latin-script text, and speaking rates that are good enough for pacing and for word times that are
marked as estimates. It knows nothing about voices or engines: a voice says itself what it speaks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rtts.text.vocabulary import FUNCTION_WORDS, STARTERS

AUTO = "auto"


class Script(StrEnum):
    """The scripts of the ten languages; everything else is OTHER."""

    LATIN = "latin"
    CYRILLIC = "cyrillic"
    HAN = "han"
    KANA = "kana"
    HANGUL = "hangul"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Language:
    """A language that can be asked for.

    Attributes:
        tag: BCP 47 primary subtag, the name used everywhere inside rtts.
        name: English name, as Qwen3-TTS spells it.
        script: What it is written in; Japanese is told from Chinese by its kana.
        aliases: Further spellings `normalise_language` accepts, casefolded.
    """

    tag: str
    name: str
    script: Script
    aliases: tuple[str, ...]


LANGUAGES: dict[str, Language] = {
    language.tag: language
    for language in (
        Language("zh", "Chinese", Script.HAN, ("zho", "chi", "cmn", "mandarin", "中文", "汉语")),
        Language("en", "English", Script.LATIN, ("eng",)),
        Language("ja", "Japanese", Script.KANA, ("jpn", "jp", "日本語")),
        Language("ko", "Korean", Script.HANGUL, ("kor", "kr", "한국어")),
        Language("de", "German", Script.LATIN, ("deu", "ger", "deutsch")),
        Language("fr", "French", Script.LATIN, ("fra", "fre", "français")),
        Language("ru", "Russian", Script.CYRILLIC, ("rus", "русский")),
        Language("pt", "Portuguese", Script.LATIN, ("por", "português")),
        Language("es", "Spanish", Script.LATIN, ("spa", "español", "castilian")),
        Language("it", "Italian", Script.LATIN, ("ita", "italiano")),
    )
}

_BY_ALIAS: dict[str, str] = {AUTO: AUTO} | {
    alias.casefold(): language.tag
    for language in LANGUAGES.values()
    for alias in (language.tag, language.name, *language.aliases)
}


def normalise_language(tag: str) -> str | None:
    """The primary tag of a language given by tag or by name.

    Args:
        tag: "zh", "zh-CN", "zh_Hans", "Chinese", "deutsch", "auto"; case and surrounding white
            space do not matter.

    Returns:
        A key of `LANGUAGES`, or "auto" for "auto", or None for a language rtts does not know.
    """
    folded = tag.strip().casefold()
    found = _BY_ALIAS.get(folded)
    if found is None:
        found = _BY_ALIAS.get(re.split(r"[-_]", folded, maxsplit=1)[0])
    return found


# --- scripts -------------------------------------------------------------------------------------

# Blocks of Unicode 15. The iteration mark 々 and the closing mark 〆 count as Han, the long-vowel
# mark ー and half-width forms as kana.
HAN = "々〆〇\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HANGUL = "\u1100-\u11ff\u3131-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa1-\uffdc"
_CYRILLIC = "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f"
_LATIN = "A-Za-zªº\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff"

_RUNS = re.compile(
    f"(?P<latin>[{_LATIN}]+)|(?P<cyrillic>[{_CYRILLIC}]+)|(?P<kana>[{KANA}]+)"
    f"|(?P<han>[{HAN}]+)|(?P<hangul>[{HANGUL}]+)"
)


_ALPHABETS = (Script.LATIN, Script.CYRILLIC)


def dominant_script(text: str) -> Script:
    """The script most of `text` is written in; OTHER if it has no letters of the five.

    An ideograph, a kana or a hangul block counts as two letters, and Han beside any kana as kana.
    """
    if text.isascii():
        return Script.LATIN if any(map(str.isalpha, text)) else Script.OTHER
    counts = dict.fromkeys(Script, 0)
    for match in _RUNS.finditer(text):
        script = Script(match.lastgroup or Script.OTHER)
        counts[script] += (match.end() - match.start()) * (1 if script in _ALPHABETS else 2)
    if counts[Script.KANA]:
        counts[Script.KANA] += counts.pop(Script.HAN)
    best = max(counts, key=lambda script: counts[script])
    return best if counts[best] else Script.OTHER


# --- which Latin-script language -----------------------------------------------------------------

_LANGUAGES_OF_WORD: dict[str, tuple[str, ...]] = {}
for _tag, _words in FUNCTION_WORDS.items():
    for _word in _words | STARTERS[_tag]:
        if len(_word) > 1:  # "a", "e", "o" are words of too many
            _LANGUAGES_OF_WORD[_word] = (*_LANGUAGES_OF_WORD.get(_word, ()), _tag)

# Letters that only one of the six writes.
_LANGUAGES_OF_LETTER = {"ß": "de", "ñ": "es", "¿": "es", "¡": "es", "ã": "pt", "õ": "pt", "œ": "fr"}

# More than one function word that no other language has.
_SURE = 1.5

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


class LatinGuess:
    """Which of the six Latin-script languages a growing text is in.

    Owner: one splitter. It only ever counts forward, so the answer at a place depends on the text
    before it and not on how that text arrived.
    """

    __slots__ = ("_scores",)

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}

    def count(self, text: str) -> None:
        """Take the next piece of the text, cut between words, as evidence."""
        scores = self._scores
        for word in _WORD.findall(text.lower().replace("’", "'")):
            found = _LANGUAGES_OF_WORD.get(word)
            if found:
                share = 1.0 / len(found)
                for tag in found:
                    scores[tag] = scores.get(tag, 0.0) + share
        if not text.isascii():
            for letter, tag in _LANGUAGES_OF_LETTER.items():
                if letter in text:
                    scores[tag] = scores.get(tag, 0.0) + 1.0

    def best(self) -> str:
        """The likeliest tag so far; "" until there is more than one word of evidence."""
        scores = self._scores
        if not scores:
            return ""
        best = max(scores, key=lambda tag: scores[tag])
        return best if scores[best] >= _SURE else ""


# --- how long it takes to say --------------------------------------------------------------------

# Characters a second of unhurried speech. Latin and Cyrillic count their spaces in. A digit is a
# word, an ideograph a syllable, a kana a mora, a hangul block a syllable.
_LETTERS_PER_S = 15.0
_DIGITS_PER_S = 4.0
_HAN_PER_S = 4.5
_KANA_PER_S = 7.5
_HANGUL_PER_S = 6.5

_SLOW = re.compile(
    f"(?P<digit>[0-9０-９])|(?P<han>[{HAN}])|(?P<kana>[{KANA}])|(?P<hangul>[{HANGUL}])"
)
_SLOW_S = {
    "digit": 1.0 / _DIGITS_PER_S,
    "han": 1.0 / _HAN_PER_S,
    "kana": 1.0 / _KANA_PER_S,
    "hangul": 1.0 / _HANGUL_PER_S,
}


def estimate_duration_s(text: str) -> float:
    """Seconds an ordinary voice needs to say `text`: right to about a third, zero for no text."""
    total_s, slow = 0.0, 0
    for match in _SLOW.finditer(text):
        total_s += _SLOW_S[match.lastgroup or ""]
        slow += 1
    return total_s + (len(text) - slow) / _LETTERS_PER_S


# An ideograph is a word, kana go in threes (a mora is too short to highlight); marks stay with
# what they follow, opening marks with what they precede.
_SPANS = re.compile(
    rf"[「『（《【〈“‘]*(?:[{HAN}]|[{KANA}]{{1,3}}|[^\s{HAN}{KANA}。、，！？；：「」『』（）《》【】〈〉…]+)"
    r"[。、，！？；：」』）》】〉…”’]*"
    r"|[^\s]+"
)


def words(text: str) -> list[tuple[int, int]]:
    """The words of `text` as `(start, end)` spans, in order and disjoint, white space left out.

    Words are what stands between white space; Chinese and Japanese, which have none, are cut into
    ideographs and groups of up to three kana. Marks belong to the word beside them.
    """
    return [match.span() for match in _SPANS.finditer(text)]
