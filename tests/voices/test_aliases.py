"""Foreign names: in which order they are looked up, and what nothing explains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.interface import Capabilities, Voice
from rtts.errors import BadRequestError, UnknownVoiceError, UnsupportedLanguageError
from rtts.voices.aliases import KNOWN_VOICES, AliasOptions, AliasTable


def table(*voices: str, **options) -> AliasTable:
    known = tuple(Voice(id=name, languages=("en",), licence="MIT") for name in voices)
    capabilities = Capabilities(engine="e", model="Qwen-1", voices=known, default_voice=voices[0])
    return AliasTable(AliasOptions(**options), capabilities)


def test_the_order():
    """Own ids, then the operator's names, then ours, then patterns, the longest first."""
    names = table(
        "heart", "vivian", "Alloy2", "nova",
        voices={"alloy": "vivian", "coral": "", "a*": "heart", "abc*": "vivian", "nova": "heart"},
    )  # fmt: skip
    expected = {
        "heart": "heart",
        "HEART": "heart",
        "alloy2": "Alloy2",
        "Alloy": "vivian",
        "nova": "nova",  # an own id is itself, whatever a table says
        "coral": None,
        "axe": "heart",
        "abcd": "vivian",
        "": None,
        None: None,
    }
    for name, voice in expected.items():
        assert names.voice(name, or_default=False) == voice, name


def test_names_nothing_explains():
    """The default voice for ids of an account, an error with what there is for words."""
    names = table("heart")
    assert names.voice("79a125e8", or_default=True) is None
    with pytest.raises(UnknownVoiceError, match="heart"):
        names.voice("herat", or_default=False)
    assert table("heart", voices={"*": "heart"}).voice("anything", or_default=False) == "heart"


def test_known_names_take_the_first_voice_there_is():
    """A list of ours names voices of several engines; without any of them it is the default."""
    assert table("x", "ryan").voice("alloy", or_default=False) == "ryan"
    assert table("x").voice("alloy", or_default=False) is None
    assert set(table("x").voices) == set(KNOWN_VOICES) and set(table("x").voices.values()) == {"x"}


def test_known_families_of_names():
    """Any of them is a voice that resembles it; the operator's patterns come first, lists have none."""
    names = table("x", "ryan", "vivian")
    for name, voice in {"aura-2-Thalia-en": "vivian", "aura-zeus-en": "ryan"}.items():
        assert names.voice(name, or_default=False) == voice
    assert table("x").voice("aura-2-lars-nl", or_default=False) is None
    with pytest.raises(UnknownVoiceError):
        names.voice("aura-2-nobody-en", or_default=False)
    names = table("x", "ryan", "vivian", voices={"aura*": "ryan"})
    assert names.voice("aura-2-thalia-en", or_default=False) == "ryan"
    assert not any("*" in name or "thalia" in name for name in names.voices)


def test_a_speaker_speaks_the_language():
    """The voice that was asked for or one that can; an error where nobody does."""
    en, de = (Voice(id=tag, languages=(tag,), licence="") for tag in ("en", "de"))
    capabilities = Capabilities(engine="e", model="m", voices=(en, de), default_voice="en")
    names = AliasTable(AliasOptions(), capabilities)
    assert names.speaker(None, "German") == ("de", "de") and names.speaker(None, None)[0] == "en"
    for voice, language in (("en", "de"), (None, "nl")):
        with pytest.raises(UnsupportedLanguageError):
            names.speaker(voice, language)


def test_a_table_with_a_wrong_voice():
    """The entry means nothing and is named; a voice that comes later makes it right."""
    names = table("heart", voices={"alloy": "nobody", "*": "heart"})
    [sentence] = names.missing
    assert "'alloy'" in sentence and "'nobody'" in sentence and "e engine" in sentence
    assert names.voice("alloy", or_default=False) is None  # as without the entry
    names = table("heart", "nobody", voices={"alloy": "nobody"})
    assert not names.missing and names.voice("alloy", or_default=False) == "nobody"


def test_voices_of_users_have_names():
    """They are found by the name they were given; an id comes first."""
    heart = Voice(id="heart", languages=("en",), licence="MIT")
    anna = Voice(id="v_1", languages=("en",), licence="", name="Anna")
    fake = Voice(id="v_2", languages=("en",), licence="", name="Heart")
    capabilities = Capabilities(
        engine="e", model="m", voices=(heart, anna, fake), default_voice="heart"
    )
    names = AliasTable(AliasOptions(voices={"alloy": "anna"}), capabilities)
    expected = {"anna": "v_1", "v_1": "v_1", "alloy": "v_1", "HEART": "heart"}
    for name, voice in expected.items():
        assert names.voice(name, or_default=False) == voice


def test_models():
    """Any name is the loaded model, unless the operator says it is another one."""
    names = table("x", models={"tts-1-hd": "Qwen-2", "mine": "qwen-1"})
    for name in (None, "", "anything", "tts-1", "Qwen-1", "MINE"):
        assert names.model(name) == "Qwen-1"
    with pytest.raises(BadRequestError, match="tts-1-hd is Qwen-2 here, and Qwen-1 is loaded"):
        names.model("tts-1-hd")
    assert names.models[0] == "Qwen-1" and "tts-1" in names.models
    assert "tts-1-hd" not in names.models


@given(st.text(max_size=20), st.booleans())
def test_any_name(name, or_default):
    """Whatever a client calls a voice: one of the engine's, the default, or the typed error."""
    names = table("heart", "vivian", voices={"*[x": "vivian", "?q*": "heart"})
    try:
        assert names.voice(name, or_default=or_default) in ("heart", "vivian", None)
    except UnknownVoiceError:
        assert not or_default
