"""Whether a full stop ends a sentence, language by language."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.text.sentences import (
    ends_sentence,
    follows_marker,
    is_marker,
    is_risky,
    is_starter,
    language_of,
    token_before,
    unfinished,
)

# A bar stands after the stop in question.
GO_ON = {
    "en": [
        "I met Dr.| Smith", "Prof. X.| Y. Lee", "at 5 p.m.| on Monday", "see p.| 55", "in Fig.| 3", "Room No.| 5",
        "e.g.| apples", "the U.S.| Army", "Apple Inc.| and", "Smith & Co.| at", "St.| Mary", "J.| K. Rowling",
        "Vol.| II", "approx.| Ten", "he is 5 ft.| 6 in", "on Jan.| 5", "cf.| Smith", "vs.| Germany",
        "Gen.| Lee", "op. 3.| above",
    ],
    "de": [
        "Am 24.| Dezember", "Das ist der 3.| Versuch", "z.| B. Äpfel", "z. B.| Äpfel", "d. h.| Obst", "usw.| und",
        "Dr.| Meyer", "Dr. med.| Meyer", "bzw.| Haus", "ca.| Zehn", "Nr.| 5", "S.| 225", "im 19.| Jahrhundert", "Abb.| 3",
        "inkl.| Steuer", "Friedrich II.| von", "v. Chr.| gab", "J.| Meier",
    ],
    "fr": ["M.| Dupont", "MM.| Dupont", "Mme.| Curie", "av.| Foch", "p.| 5", "cf.| Dupont", "etc.| sont", "J.| Chirac", "bd.| Foch"],
    "es": ["El Sr.| García", "EE.| UU. desde", "EE. UU.| desde", "la Dra.| Ana", "pág.| 5", "N°.| 1026", "p. ej.| Juan", "J.| Borges"],
    "it": ["Il dott.| Rossi", "l'art.| 5", "l'Avv.| Fabrizi", "la Sig.ra.| Rossi", "a.C.| con", "pag.| 5", "S.| Pietro", "V.| Rossi"],
    "pt": ["O Sr.| Silva", "a Dra.| Ana", "a Profa.| Ana", "pág.| 5", "nº.| 5", "p. ex.| Silva", "Sta.| Maria", "J.| Andrade"],
    "ru": [
        "А.| С. Пушкин", "А. С.| Пушкин", "в 1799 г.| в", "т.| е. дом", "т. е.| дом", "ул.| Ленина", "им.| Ленина", "рис.| 5",
        "и т.| д. и", "проф.| Иванов", "г.| Москва", "св.| Николай",
    ],
}  # fmt: skip
END = {
    "en": [
        "Pi is 3.14.| Then", "went to $1.| Then", "in 1990.| She", "Lunch is at 12:15 p.m.| Bring", "in the U.S.| She", "in the U.S.A.| I",
        "It is late.| Go", "i think so.| you", "and co.| They", "papel, etc.| They", "earned her Ph.D.| The", "you and I.| Did",
        "on page 12.| It", "Ask Co.| It", "6 in.| The", "3 ft.| Tom", "No.| That", "the docs [2].| You", "an 8 oz.| The",
    ],
    "de": ["auf Seite 12.| Dort", "im Jahr 2010.| Danach", "Bier usw.| Dann", "Es ist spät.| Geh", "Haus.| Und", "10 km.| Das", "v. Chr.| Das"],
    "fr": ["Il est tard.| Va", "papier, etc.| Il", "av. J.-C.| Il", "en 1990.| Elle", "vitamine C.| Elle", "800 hab.| La"],
    "es": ["Es tarde.| Ve", "en 1990.| Ella", "papel, etc.| El", "100 a. C.| El", "vitamina C.| El", "Banco S.A.| El"],
    "it": ["È tardi.| Vai", "nel 1990.| Lei", "carta, ecc.| Il", "nel 100 a.C.| Il", "la Fiat S.p.A.| Il"],
    "pt": ["É tarde.| Vá", "em 1990.| Ela", "papel, etc.| O", "100 a.C.| O", "a Cia.| O", "Oi S.A.| O"],
    "ru": ["Уже поздно.| Иди", "в 1990 г.| Он", "и т. д.| Он", "и др.| Она", "5 кг.| Это", "бумага и т.п.| Здесь"],
    "ko": ["현대적이다.| 그는"],
}  # fmt: skip


def judge(text: str, language: str) -> bool:
    left, following = text.split(".| ")
    begin = token_before(left, 0, len(left))
    return ends_sentence(left, left[begin:], following, language)


@pytest.mark.parametrize(
    ("language", "text"), [(tag, text) for tag, texts in GO_ON.items() for text in texts]
)
def test_stops_that_go_on(language: str, text: str) -> None:
    """Abbreviations, initials and ordinals end nothing."""
    assert not judge(text, language)


@pytest.mark.parametrize(
    ("language", "text"), [(tag, text) for tag, texts in END.items() for text in texts]
)
def test_stops_that_end(language: str, text: str) -> None:
    """Words, years and quantities do, and abbreviations before a word that begins sentences."""
    assert judge(text, language)


@pytest.mark.parametrize(
    "text",
    ["Il dott.| Rossi", "Hola Srta.| Ledesma", "Frau Dr.| Meier", "Mme.| Curie", "la Dra.| Ana"],
)
def test_unknown_language_knows_all_abbreviations(text: str) -> None:
    """Until the language is known, the titles of all Latin-script languages count."""
    assert not judge(text, "")


@settings(deadline=None)
@given(
    st.text(max_size=80),
    st.text(min_size=1, max_size=20),
    st.sampled_from(["en", "de", "ru", "", "xx"]),
)
def test_any_text_is_judged(left: str, following: str, language: str) -> None:
    """Any text without surrogates gets an answer."""
    begin = token_before(left, 0, len(left))
    assert ends_sentence(left, left[begin:].strip(), following, language) in (True, False)


@pytest.mark.parametrize(
    ("left", "marker"),
    [("1", True), ("10", True), ("a", True), ("iii", True), ("(2", True), ("• 3", True), ("No", False), ("Section 1", False),
     ("Intro\n2", True), ("1234", False)],
)  # fmt: skip
def test_list_markers(left: str, marker: bool) -> None:
    """What a line may begin with and a stop does not end."""
    assert is_marker(left) is marker


@pytest.mark.parametrize(
    ("left", "token", "follows"),
    [
        ("1. one ", "2", True), ("9.) nine ", "10", True), ("a) one ", "b", True), ("1. one ", "3", False),
        ("In chapter 1. one ", "2", False), ("1. one", "2", False), ("z) last ", "aa", False), ("1. x ", "²", False),
    ],
)  # fmt: skip
def test_next_list_marker(left: str, token: str, follows: bool) -> None:
    """The number after the one an item began with begins the next item."""
    assert follows_marker(left, token) is follows


@pytest.mark.parametrize(
    ("left", "is_unfinished"),
    [("Hello there", False), ("about 3.14", False), ("I met Dr", True), ("we count to 3", True), ("in the U.S", True),
     ("see fig", True), ("in 1990", False), ("Hola Srta", True)],
)  # fmt: skip
def test_what_may_still_go_on(left: str, is_unfinished: bool) -> None:
    """With nothing known to follow, abbreviations and small numbers are not taken for ends."""
    begin = token_before(left, 0, len(left))
    assert unfinished(left, left[begin:], "") is is_unfinished


def test_small_questions() -> None:
    """Which token, whose rules, how much of the next word, which words begin sentences."""
    assert token_before('He said "well', 0, 13) == 9
    assert token_before("Mr ", 0, 3) == 0
    assert [language_of(token, "fr") for token in ("est", "дом", "이다", "3")] == [
        "fr",
        "ru",
        "ko",
        "fr",
    ]
    assert [is_risky(token) for token in ("etc", "3.14", "morning", "1990", "합니다")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert is_starter("The", "en")
    assert not is_starter("the", "en")
    assert not is_starter("THE", "en")
    assert not is_starter("The", "de")
