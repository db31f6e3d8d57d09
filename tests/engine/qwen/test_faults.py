"""Faults put into the engine: who fails, that it is typed, and that the others go on."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from rtts.engine.hosting import Backoff
from rtts.engine.interface import (
    CancelUtterance,
    EngineDown,
    EngineLoad,
    FinishReason,
    LoadVoice,
    UtteranceFailed,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.local import LocalEngine
from rtts.engine.qwen.engine import QwenEngine, load_engine
from rtts.engine.qwen.options import EndingOptions, LateText, LayoutPolicy, QwenOptions, TextOptions
from rtts.engine.qwen.references import save_voice
from tests.engine.conformance import Driver, Subject, state_machine
from tests.engine.hosts import Listener
from tests.engine.qwen import tiny

TEXT = ("Good day.",)
SHORT = EndingOptions(budget_base_frames=8, budget_factor=1.0)


@cache
def folder(kind: str = "custom_voice") -> Path:
    """A checkpoint that also those can have who know no fixtures."""
    return tiny.build(Path(mkdtemp(prefix="rtts-qwen-")) / kind, kind)


def core(kind: str = "custom_voice", **fields: Any) -> QwenEngine:
    given = {"slots": 4, "positions": 256, "waiting": 8, "endings": SHORT, **fields}
    return load_engine(QwenOptions(model=str(folder(kind)), **given))


def driver_for(kind: str = "custom_voice", voice: str = "ann", **fields: Any) -> Driver:
    return Driver(
        Subject(make_core=lambda: core(kind, **fields), voice=voice, texts=TEXT, max_steps=4000)
    )


TestAnyOrder = state_machine(
    Subject(
        make_core=lambda: core(
            slots=6, text=TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING)
        ),
        voice="ann",
        texts=("Yes.", "Hi."),
        max_steps=4000,
        machine_examples=25,
        machine_steps=30,
    )
)
"""Commands in any order: each utterance has the bytes that it has alone."""


def out_of_memory(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("planted")


@pytest.mark.parametrize("method", ["_build", "_admit", "_frame"])
def test_out_of_memory(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Memory that runs out in a head, an admission or a frame fails those it was for, typed; the
    next are spoken."""
    driver = driver_for()
    with monkeypatch.context() as planted:
        planted.setattr(driver.core._runner, method, out_of_memory)  # type: ignore[attr-defined]
        lost = driver.say(TEXT)
        driver.run()
    assert driver.reason(lost) == "utterance_failed"
    well = driver.say(TEXT)
    driver.run()
    assert isinstance(driver.reason(well), FinishReason)


def test_out_of_memory_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who speaks already is not concerned by a head for which there is no room."""
    driver = driver_for()
    speaks = driver.say(TEXT)
    while not driver.ledgers[speaks].audio:
        driver.step()
    with monkeypatch.context() as planted:
        planted.setattr(driver.core._runner, "_build", out_of_memory)  # type: ignore[attr-defined]
        lost = driver.say(TEXT, voice="bob")
        driver.run()
    assert driver.reason(lost) == "utterance_failed"
    assert isinstance(driver.reason(speaks), FinishReason)


def test_out_of_memory_while_loading_a_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The voice is not loaded, typed; asked again it is."""
    driver = driver_for()
    with monkeypatch.context() as planted:
        planted.setattr(driver.core._runner, "_build", out_of_memory)  # type: ignore[attr-defined]
        driver.apply(LoadVoice("ann"))
        failed = [each for each in driver.run() if isinstance(each, VoiceFailed | VoiceLoaded)]
    assert [(type(each), each.voice) for each in failed] == [(VoiceFailed, "ann")]
    assert failed[0].code == "overloaded"  # type: ignore[union-attr]
    driver.apply(LoadVoice("ann"))
    assert any(isinstance(each, VoiceLoaded) for each in driver.run())


def test_a_full_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past 90 % of the device's memory new utterances are refused at once; as soon as there is room
    again, although nothing has run meanwhile, they are taken."""
    driver = driver_for()
    runner = driver.core._runner  # type: ignore[attr-defined]
    shares = [0.95]
    monkeypatch.setattr(runner, "_read_memory", lambda: shares.pop() if shares else 0.5)
    runner._memory_share = 0.95
    refused = driver.say(TEXT)
    driver.step()
    failed = driver.ledgers[refused].terminal
    assert isinstance(failed, UtteranceFailed)
    assert (failed.code, failed.retryable, failed.retry_after_s) == ("overloaded", True, 2.0)
    taken = driver.say(TEXT)
    driver.step()
    assert driver.ledgers[taken].terminal is None


def test_no_slot_in_time_is_known_at_once() -> None:
    """Where every slot is taken by more speech than playback lets through within the wait limit, a
    new utterance is refused in the next step; where one is about to end, it waits."""
    driver = driver_for(slots=1, wait_limit_s=2.0)
    long = driver.say(("word " * 60,), until_s=1.0)
    for _ in range(4):
        driver.step()
    refused = driver.say(TEXT)
    driver.step()
    failed = driver.ledgers[refused].terminal
    assert isinstance(failed, UtteranceFailed)
    assert failed.code == "overloaded" and (failed.retry_after_s or 0) > 2.0
    driver.apply(CancelUtterance(long))
    driver.say(TEXT, until_s=0.1)
    for _ in range(4):
        driver.step()
    waits = driver.say(TEXT)
    driver.step()
    assert driver.ledgers[waits].terminal is None


def test_a_damaged_head_is_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Keys that are no numbers fail the utterance that meets them, typed; they are reported and
    dropped, and the next utterance of the voice is what it was before."""
    driver = driver_for()
    driver.apply(LoadVoice("ann", pinned=True))
    before = driver.say(TEXT, seed=3)
    driver.run()
    (head,) = driver.core._runner._heads.values()  # type: ignore[attr-defined]
    with torch.inference_mode():
        head.k.fill_(torch.nan)
    met = driver.say(TEXT, seed=3)
    with caplog.at_level(logging.CRITICAL):
        driver.run()
    assert driver.reason(met) == "utterance_failed"
    driver.run()
    after = driver.say(TEXT, seed=3)
    driver.run()
    assert driver.ledgers[after].pcm == driver.ledgers[before].pcm
    assert [each.voice for each in driver.engine_events if isinstance(each, VoiceEvicted)] == [
        "ann"
    ]
    prefixes = driver.core._scheduler.prefixes  # type: ignore[attr-defined]
    assert [entry.pinned for entry in prefixes._entries.values()] == [True]


def test_admission_of_arriving_text_prefills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm voice and the streaming layout: a copy of the head and one row of the next step."""
    text = TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING)
    driver = driver_for(text=text)
    driver.apply(LoadVoice("ann"))
    driver.run()
    runner = driver.core._runner  # type: ignore[attr-defined]

    def never(*_: object) -> None:
        raise AssertionError("a prefill")

    monkeypatch.setattr(runner.frames, "prefill", never)
    monkeypatch.setattr(runner.model.talker, "prefill", never)
    utterance = driver.say(TEXT)
    steps = 0
    while not driver.ledgers[utterance].audio:
        driver.step()
        steps += 1
    assert steps <= 2  # one executes, one commits


def test_damaged_voice_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One stops no start: it is in the log, in the capabilities and its `VoiceFailed`, the others
    speak; mended, it is spoken with, without a restart."""
    x_vector = torch.randn(48, generator=torch.Generator().manual_seed(1))
    save_voice(tmp_path / "well.safetensors", x_vector, None)
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    save_voice(tmp_path / "nan.safetensors", x_vector * torch.nan, None)
    with caplog.at_level(logging.CRITICAL):
        driver = driver_for("base", voice="well", voices_dir=str(tmp_path))
    assert driver.capabilities.default_voice == "well"
    assert [voice.id for voice in driver.capabilities.voices] == ["well", "bad", "nan"]
    assert driver.capabilities.degraded == (
        "registered voices whose files are damaged cannot be had: bad, nan",
    )
    said = {voice: driver.say(TEXT, voice=voice) for voice in ("well", "bad")}
    driver.apply(LoadVoice("bad"))
    (failed,) = [each for each in driver.run() if isinstance(each, VoiceFailed)]
    assert (failed.voice, failed.code) == ("bad", "utterance_failed")
    assert driver.reason(said["bad"]) == "utterance_failed"
    assert isinstance(driver.reason(said["well"]), FinishReason)
    codes = torch.randint(0, 64, (6, 16), generator=torch.Generator().manual_seed(2))
    save_voice(tmp_path / "bad.safetensors", x_vector, codes, "a tone")
    fresh = driver_for("base", voice="well", voices_dir=str(tmp_path))
    heard = []
    for each in (driver, fresh):
        mended = each.say(TEXT, voice="bad", seed=3)
        each.run()
        heard.append(each.ledgers[mended].pcm)
    assert heard[0] == heard[1] and heard[0]


def test_what_the_cache_holds_is_told() -> None:
    """Entries and bytes of voice heads go with the load."""
    driver = driver_for()
    for voice in ("ann", "bob"):
        driver.apply(LoadVoice(voice))
    driver.run()
    driver.step()
    stats = driver.core._scheduler.prefixes.stats  # type: ignore[attr-defined]
    loads = [each for each in driver.engine_events if isinstance(each, EngineLoad)]
    assert (loads[-1].cache_entries, loads[-1].cache_bytes) == (2, stats.size_bytes)


async def test_a_device_error_ends_the_life_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What torch raises for a fault of the device fails every utterance as `engine_dead`, at once;
    the next life speaks."""
    made: list[QwenEngine] = []

    def make() -> QwenEngine:
        made.append(core())
        return made[-1]

    engine = LocalEngine(make, backoff=Backoff(first_s=0.01, max_s=0.01))
    listener = Listener(engine)
    await engine.start(listener.deliver)
    try:
        await listener.ready()
        ledgers = [listener.say(*TEXT, voice="ann", until_s=0.4) for _ in range(3)]
        await listener.heard(ledgers[-1])
        broken = torch.AcceleratorError("CUDA error: an illegal memory access")
        planted = made[0]._runner.frames

        def fault(*_: object) -> None:
            raise broken

        with caplog.at_level(logging.CRITICAL):
            monkeypatch.setattr(planted, "start", fault)
            ledgers.append(listener.say(*TEXT, voice="bob"))
            assert await listener.ended(*ledgers) == ["engine_dead"] * 4
            await listener.ready(times=2)
        assert "illegal memory access" in listener.of(EngineDown)[0].message
        well = listener.say(*TEXT, voice="ann")
        async with asyncio.timeout(10):
            (reason,) = await listener.ended(well)
        assert isinstance(reason, FinishReason)
    finally:
        await engine.close()
