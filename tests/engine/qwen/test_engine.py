"""The engine core: what every core must do, batch independence, endings, late text, voices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    FinishReason,
    FinishText,
    GrantAudio,
    VoiceEvicted,
)
from rtts.engine.qwen.engine import QwenEngine, load_engine
from rtts.engine.qwen.options import EndingOptions, LateText, LayoutPolicy, QwenOptions, TextOptions
from rtts.engine.qwen.plan import Plan
from rtts.engine.qwen.references import save_voice
from rtts.engine.qwen.runner import Flight
from rtts.errors import ConfigError
from tests.engine.conformance import Driver, EngineCoreConformance, Subject
from tests.engine.qwen import tiny

TEXTS = ("Hello there.", "How are you?")
PURE = TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING)
"""What is heard depends on the text alone, not on when it arrives."""


@pytest.fixture(scope="module")
def make(checkpoint: Callable[[str, int], Path]) -> Callable[..., QwenEngine]:
    def build(kind: str = "custom_voice", **fields: object) -> QwenEngine:
        given = {
            "model": str(checkpoint(kind, 0)),
            "slots": 10,
            "positions": 256,
            "waiting": 4,
            **fields,
        }
        return load_engine(QwenOptions(**given))  # type: ignore[arg-type]

    return build


def _tiny_core() -> QwenEngine:
    raise NotImplementedError("set by the fixture, which knows the checkpoint")


class TestConformance(EngineCoreConformance):
    """The shared suite, on the default options. Not marked deterministic: under them the layout and
    the place of a cut depend on when text comes (see `PURE`, and the tests below)."""

    subject = Subject(
        make_core=_tiny_core,
        voice="ann",
        texts=("Hello there.", "Good day."),
        odd_texts=("\x00\x07\x1b[0m", "\ud800 a", "a" * 2000),
        max_steps=4000,
        is_deterministic=False,
    )

    @pytest.fixture(autouse=True)
    def _make(self, make: Callable[..., QwenEngine]) -> None:
        type(self).subject = replace(self.subject, make_core=make)


def driver_for(make: Callable[..., QwenEngine], **fields: object) -> Driver:
    """A driver of an engine with these options."""
    voice = str(fields.pop("voice", "ann"))
    subject = Subject(make_core=lambda: make(**fields), voice=voice, texts=TEXTS, max_steps=4000)
    return Driver(subject)


def pcm_of(driver: Driver, utterance: int) -> dict[int, bytes]:
    return {segment: bytes(pcm) for segment, pcm in driver.ledgers[utterance].pcm.items()}


def test_batch_independence(make: Callable[..., QwenEngine]) -> None:
    """The bytes of an utterance are those it has alone, in the smallest batch, whatever its
    neighbours, slot, bucket, time of joining, credit, and whoever is cancelled or added."""
    words = ("Hello there.", "Good day.", "Yes.", "I see.", "So it is.")
    asked = [
        ((words[n % 5], words[(n * 3 + 1) % 5]), n, ("ann", "bob", "dylan")[n % 3])
        for n in range(7)
    ]
    alone = driver_for(make, slots=1, text=PURE)
    expected = []
    for texts, seed, voice in asked:
        utterance = alone.say(texts, seed=seed, voice=voice, until_s=1.2)
        alone.run()
        expected.append(pcm_of(alone, utterance))
        if alone.ledgers[utterance].terminal is None:
            alone.apply(CancelUtterance(utterance))
            alone.step()
    crowd = driver_for(make, slots=9, waiting=20, text=PURE, wait_limit_s=1e9)
    said = {}
    for n, (texts, seed, voice) in enumerate(asked):
        if n % 4 == 3:  # text in parts, credit in parts, a neighbour that is cancelled
            utterance = crowd.start(seed=seed, voice=voice, until_s=0.5)
            crowd.apply(AppendText(utterance, 0, texts[0]))
            doomed = crowd.say(words, seed=99)
            for _ in range(5):
                crowd.step()
            crowd.apply(CancelUtterance(doomed))
            crowd.apply(AppendText(utterance, 1, texts[1]))
            crowd.apply(FinishText(utterance))
            crowd.apply(GrantAudio(utterance, 1.2))
        else:
            utterance = crowd.say(texts, seed=seed, voice=voice, until_s=1.2)
        said[utterance] = n
        for _ in range(n % 3):
            crowd.step()
    crowd.run()
    waiting = [u for u in said if not crowd.ledgers[u].pcm]
    while waiting:  # those that had no slot: others hold theirs without credit
        for utterance in said:
            if crowd.ledgers[utterance].pcm and crowd.ledgers[utterance].terminal is None:
                crowd.apply(CancelUtterance(utterance))
        crowd.run()
        waiting = [u for u in said if not crowd.ledgers[u].pcm]
    assert expected == [pcm_of(crowd, utterance) for utterance in said]


def test_cancel_between_execute_and_commit(make: Callable[..., QwenEngine]) -> None:
    """A cancel while a frame is in flight: no audio of it comes, and its slot serves the next."""
    driver = driver_for(make, slots=1)
    first = driver.say(TEXTS)
    while not driver.ledgers[first].audio:
        driver.step()
    driver.step()
    assert driver.core._flight is not None  # type: ignore[attr-defined]
    heard = driver.ledgers[first].audio
    driver.apply(CancelUtterance(first))
    second = driver.say(("Good day.",))
    driver.step()
    assert driver.reason(first) is FinishReason.CANCELLED
    assert heard == driver.ledgers[first].audio
    driver.run()
    assert driver.reason(second) is FinishReason.COMPLETED


def never_ending(make: Callable[..., QwenEngine], **fields: object) -> Driver:
    """An engine whose model never chooses the end."""
    driver = driver_for(make, **fields)
    sampler = driver.core._runner.frames._sampler  # type: ignore[attr-defined]
    sampler._suppressed = sampler._suppressed.clone()
    sampler._suppressed[tiny.CONTROLS["codec_eos_token_id"]] = True
    return driver


def test_never_ending_model(make: Callable[..., QwenEngine]) -> None:
    """Without an end, an utterance stops at its frame budget, its slot is free, the next speaks."""
    endings = EndingOptions(budget_base_frames=8, budget_factor=1.0)
    driver = never_ending(make, slots=1, endings=endings)
    for texts in (("Hi.",), ("Hi.", "Good day.")):
        utterance = driver.say(texts)
        driver.run()
        ledger = driver.ledgers[utterance]
        assert driver.reason(utterance) is FinishReason.BUDGET
        budget = 8 + sum(4 if text == "Hi." else 8 for text in texts)
        assert len(ledger.audio) // 3840 <= budget + 1
        assert list(range(len(texts))) == ledger.closed


@pytest.mark.parametrize(
    "endings",
    [
        EndingOptions(silence_frames=5, silence_rms=2.0),
        EndingOptions(silence_frames=9, silence_rms=2.0),
    ],
)
def test_silence_ends_it(make: Callable[..., QwenEngine], endings: EndingOptions) -> None:
    """Near-silent frames in a row after the text is consumed end a take as stuck."""
    driver = never_ending(make, slots=1, endings=endings)
    utterance = driver.say(("Good day.",))
    driver.run()
    assert driver.reason(utterance) is FinishReason.STUCK
    assert endings.silence_frames == len(driver.ledgers[utterance].audio) // 3840


def test_late_text_is_held_or_closed(make: Callable[..., QwenEngine]) -> None:
    """Waiting for text: held without work and without end, or spoken to the end of what there is
    before playback runs dry; either way later text is spoken."""
    hold = never_ending(make, text=TextOptions(late=LateText.HOLD))
    utterance = hold.start()
    hold.apply(AppendText(utterance, 0, "Good day."))
    hold.run()
    ids = len("Good day.")
    assert ids == len(hold.ledgers[utterance].audio) // 3840  # one id a frame
    close = driver_for(make, text=TextOptions(late=LateText.CLOSE))
    utterance = close.start()
    close.apply(AppendText(utterance, 0, "Good day."))
    begun = close.now
    close.run()
    assert close.ledgers[utterance].closed == [0]
    assert close.now - begun > ids * 0.08 - 0.3 - 0.1  # it waited while playback had audio
    close.apply(AppendText(utterance, 1, "Yes."))
    close.apply(FinishText(utterance))
    close.run()
    assert close.ledgers[utterance].closed == [0, 1]
    assert close.ledgers[utterance].audio


def test_chunks_grow_with_the_lead(make: Callable[..., QwenEngine]) -> None:
    """The first frame comes alone and at once; further chunks are never longer than a listener's lead
    allows, some are eight frames; credit that runs out leaves nothing behind, and nothing is lost."""
    driver = never_ending(make, slots=1, endings=EndingOptions(budget_base_frames=60))
    utterance = driver.say(("Good day.",), until_s=45 * 0.08)
    sizes, lead_s = [], 0.0
    for event in driver.run():
        if isinstance(event, AudioProduced) and event.pcm:
            sizes.append(len(event.pcm) // 3840)
            assert sizes[-1] <= max(1, lead_s / 0.16)
            lead_s = sum(sizes) * 0.08
    assert sizes[:2] == [1, 1]
    assert max(sizes) == 8
    assert sum(sizes) == 45
    driver.apply(GrantAudio(utterance, 1e6))
    driver.run()
    assert driver.reason(utterance) is FinishReason.BUDGET
    assert len(driver.ledgers[utterance].audio) > 60 * 3840


def test_re_anchored_at_segment_ends(make: Callable[..., QwenEngine]) -> None:
    """Past the frame cap the talker starts anew, only between segments; all text is spoken."""
    text = TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING, anchor_frames=20)
    driver = driver_for(make, slots=1, text=text)
    admitted: list[int] = []
    execute = driver.core._runner.execute  # type: ignore[attr-defined]

    def spy(plan: Plan) -> Flight:
        admitted.extend(len(admit.prompt.trailing) for admit in plan.admit)
        return execute(plan)

    driver.core._runner.execute = spy  # type: ignore[attr-defined]
    said = ("Hello there.", "Good day.", "So it is.", "I see.", "Well done.", "Come in!")
    utterance = driver.say(said)
    driver.run()
    assert list(range(len(said))) == driver.ledgers[utterance].closed
    assert len(admitted) >= 3


def test_no_slot_in_time(make: Callable[..., QwenEngine]) -> None:
    """Who waits past the limit is refused as overloaded, retryable; who runs is not disturbed."""
    driver = never_ending(
        make, slots=1, wait_limit_s=0.2, endings=EndingOptions(budget_base_frames=15)
    )
    runs, waits = driver.say(("Good day.",)), driver.say(("Yes.",))
    driver.run()
    assert driver.reason(waits) == "overloaded"
    assert driver.reason(runs) is FinishReason.BUDGET


def test_broken_numbers_fail_one(make: Callable[..., QwenEngine]) -> None:
    """Scores that are not numbers fail their utterance, typed; neighbours go on, bytes unchanged."""
    alone = driver_for(make)
    expected = alone.say(("Good day.",), seed=3)
    alone.run()
    driver = driver_for(make)
    broken, well = driver.say(TEXTS), driver.say(("Good day.",), seed=3)
    while not driver.ledgers[broken].audio:
        driver.step()
    driver.core._runner._state.codec_side[0] = torch.nan  # type: ignore[attr-defined]
    driver.run()
    assert driver.reason(broken) == "utterance_failed"
    assert pcm_of(alone, expected) == pcm_of(driver, well)
    again = driver.say(("Good day.",), seed=3)  # in the slot that held the broken one
    driver.run()
    assert pcm_of(alone, expected) == pcm_of(driver, again)


def test_cached_heads_change_nothing(make: Callable[..., QwenEngine]) -> None:
    """A cached head gives the bytes of a computed one; evicted voices are said and rebuilt."""
    driver = driver_for(make, prefix_bytes=1)
    heard = []
    for voice in ("ann", "ann", "bob", "ann"):
        utterance = driver.say(("Good day.",), voice=voice, until_s=0.4)
        driver.run()
        heard.append(pcm_of(driver, utterance))
        driver.apply(CancelUtterance(utterance))
    assert heard[0] == heard[1] == heard[3]
    assert heard[0] != heard[2]
    stats = driver.core._scheduler.prefixes.stats  # type: ignore[attr-defined]
    assert stats.evictions >= 2
    assert stats.hits + stats.misses == 4
    assert any(isinstance(event, VoiceEvicted) for event in driver.engine_events)


def test_registered_voices(
    make: Callable[..., QwenEngine], checkpoint: Callable[[str, int], Path], tmp_path: Path
) -> None:
    """Voices of a Base checkpoint are files; with a transcript they continue the reference."""
    generator = torch.Generator().manual_seed(1)
    x_vector = torch.randn(48, generator=generator)
    codes = torch.randint(0, 64, (6, 16), generator=generator)
    save_voice(tmp_path / "vec.safetensors", x_vector, None)
    save_voice(tmp_path / "icl.safetensors", x_vector, codes, "a tone", "en")
    driver = driver_for(make, kind="base", voices_dir=str(tmp_path), voice="vec")
    assert [voice.id for voice in driver.capabilities.voices] == ["icl", "vec"]
    said = [driver.say(("Good day.",), voice=voice, until_s=0.4) for voice in ("vec", "icl", "vec")]
    driver.run()
    heard = [pcm_of(driver, utterance) for utterance in said]
    assert heard[0] == heard[2] != heard[1]
    for path in tmp_path.iterdir():
        path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=r"icl\.safetensors"):
        make(kind="base", voices_dir=str(tmp_path))
    save_voice(tmp_path / "icl.safetensors", x_vector[:5], None)
    with pytest.raises(ConfigError, match="x-vector has"):
        make(kind="base", voices_dir=str(tmp_path))


def test_designed_voices(make: Callable[..., QwenEngine]) -> None:
    """The instructions of a VoiceDesign checkpoint are its voice."""
    driver = driver_for(make, kind="voice_design", voice="design")
    said = [
        driver.say(("Good day.",), instructions=text, until_s=0.4)
        for text in ("an old man", "", "an old man")
    ]
    driver.run()
    heard = [pcm_of(driver, utterance) for utterance in said]
    assert heard[0] == heard[2] != heard[1]
    assert driver.capabilities.designs_voices


class FakeMark:
    """An event of a device that needs 1 ms from one mark to the next."""

    made = 0

    def __init__(self) -> None:
        self.at_ms: int | None = None
        self.is_reached = False

    def record(self) -> None:
        FakeMark.made += 1
        self.at_ms = FakeMark.made

    def synchronize(self) -> None:
        self.is_reached = True

    def elapsed_time(self, end: FakeMark) -> float:
        assert self.at_ms is not None and end.at_ms is not None, "an event that was not recorded"
        return float(end.at_ms - self.at_ms)


def test_where_the_device_keeps_time_the_first_audio_says_what_it_took(
    make: Callable[..., QwenEngine],
) -> None:
    """Prefill and frame of an utterance's first audio, once; nothing where nothing keeps time."""
    for new_mark in (None, FakeMark):
        driver = driver_for(make)
        driver.core._runner._new_mark = new_mark
        driver.say(TEXTS)
        audio = [event for event in driver.run() if isinstance(event, AudioProduced)]
        assert len(audio) > 2
        assert audio[0].parts_s == (() if new_mark is None else (0.001, 0.001, 0.0))
        assert all(event.parts_s == () for event in audio[1:])
