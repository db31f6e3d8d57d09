"""Languages, scripts, durations and words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.text import (
    LANGUAGES,
    Script,
    dominant_script,
    estimate_duration_s,
    normalise_language,
    words,
)
from rtts.text.languages import LatinGuess

SENTENCES = {
    "en": "The weather will be fine and you can go out with them.",
    "de": "Das Wetter wird schön und ihr könnt mit ihnen nach draußen gehen.",
    "fr": "Le temps sera beau et vous pourrez sortir avec eux dans la rue.",
    "es": "El tiempo será bueno y ustedes pueden salir con ellos por la calle.",
    "it": "Il tempo sarà bello e voi potete uscire con loro nella strada.",
    "pt": "O tempo vai ser bom e vocês podem sair com eles para a rua também.",
}


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("zh", "zh"), ("zh-CN", "zh"), ("zh_Hans", "zh"), ("Chinese", "zh"), ("MANDARIN", "zh"), (" en-US ", "en"), ("Deutsch", "de"),
        ("pt-BR", "pt"), ("日本語", "ja"), ("rus", "ru"), ("auto", "auto"), ("klingon", None), ("", None), ("english-ish", "en"),
    ],
)  # fmt: skip
def test_names_of_languages(tag: str, expected: str | None) -> None:
    """Tags with regions, English and native names are known; others are not."""
    assert normalise_language(tag) == expected


def test_the_ten_languages() -> None:
    """Each answers to its tag and its name."""
    assert list(LANGUAGES) == ["zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it"]
    for tag, language in LANGUAGES.items():
        assert normalise_language(language.name) == tag


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Hello", Script.LATIN), ("Être", Script.LATIN), ("Привет, Tom", Script.CYRILLIC), ("你好 OK", Script.HAN), ("私は学生です", Script.KANA),
        ("한국어", Script.HANGUL), ("123 !", Script.OTHER), ("", Script.OTHER), ("שלום", Script.OTHER),
    ],
)  # fmt: skip
def test_dominant_script(text: str, script: Script) -> None:
    """Most letters decide; kana make Han Japanese."""
    assert dominant_script(text) is script


@pytest.mark.parametrize("tag", SENTENCES)
def test_latin_languages_are_told_apart(tag: str) -> None:
    """One sentence is enough, and English beside it does not hide it."""
    guess = LatinGuess()
    assert guess.best() == ""
    guess.count(SENTENCES[tag])
    assert guess.best() == tag
    guess.count("OK, Node.js version")
    assert guess.best() == tag


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("The quick brown fox jumps over the lazy dog.", 2.9), ("今天天气非常好，我们去公园散步吧。", 3.5), ("今日はとてもいい天気ですね。", 2.2),
        ("오늘 날씨가 정말 좋네요.", 1.8), ("2024", 1.0), ("", 0.0),
    ],
)  # fmt: skip
def test_durations_are_about_right(text: str, seconds: float) -> None:
    """Estimates are within a third of ordinary speech."""
    assert estimate_duration_s(text) == pytest.approx(seconds, rel=0.34)


@given(st.text(), st.text())
def test_durations_add_up(one: str, other: str) -> None:
    """A text takes as long as its parts."""
    whole = estimate_duration_s(one + other)
    assert whole == pytest.approx(estimate_duration_s(one) + estimate_duration_s(other))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sure, I can't.", ["Sure,", "I", "can't."]), ("  two  words ", ["two", "words"]), ("今天，好。", ["今", "天，", "好。"]),
        ("これはペンです。", ["これは", "ペン", "です。"]), ("用Python 3.11运行", ["用", "Python", "3.11", "运", "行"]), ("「行こう」と", ["「行", "こう」", "と"]),
        ("안녕 하세요.", ["안녕", "하세요."]), ("— Да", ["—", "Да"]), ("", []),
    ],
)  # fmt: skip
def test_words(text: str, expected: list[str]) -> None:
    """White space parts words; ideographs and small groups of kana are words; marks go with them."""
    found = [text[start:end] for start, end in words(text)]
    if text.startswith("これはペン"):
        assert "".join(found) == text and all(len(word) <= 4 for word in found)
    else:
        assert found == expected


@given(st.text())
def test_words_are_everything_but_white_space(text: str) -> None:
    """Words are disjoint, in order, and leave out only white space."""
    spans = words(text)
    assert spans == sorted(spans)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())
