import logging
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.cpu.engine import CpuEngine
from rtts.engine.cpu.hibari_voice import HibariVoice
from rtts.engine.cpu.level import CEILING, FULL_SCALE
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.cpu.voice import Trim
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    EngineLoad,
    Event,
    FinishReason,
    FinishText,
    GrantAudio,
    LoadVoice,
    SegmentSkipped,
    SegmentWarned,
    StartUtterance,
    UtteranceFailed,
    UtteranceFinished,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
    WordsTimed,
)
from tests.engine.cpu.fakes import FakeClock, FakeVoice, engine, real_engine

TEXTS = ("Hello there, how are you?", "It costs $3.50.")


def run(core: CpuEngine, now: float = 1000.0, steps: int = 5_000) -> list[Event]:
    """Everything until the core has nothing to do."""
    events: list[Event] = []
    for _ in range(steps):
        if not core.has_work():
            return events
        now = max(now, core.next_due_s(now) or now)
        events += core.step(now)
        now += 0.005
    raise AssertionError("the core never comes to rest")


def say(core: CpuEngine, texts: tuple[str, ...], utterance: int = 1, **fields: object) -> None:
    given = {"voice": "fake", "until_s": 1e6, **fields}
    core.apply(StartUtterance(utterance, **given))  # type: ignore[arg-type]
    for segment, text in enumerate(texts):
        core.apply(AppendText(utterance, segment, text))
    core.apply(FinishText(utterance))


def pcm(events: list[Event], utterance: int = 1) -> bytes:
    return b"".join(
        event.pcm
        for event in events
        if isinstance(event, AudioProduced) and event.utterance_id == utterance
    )


def of(kind: type, events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# --- the embedded voice through the core ---------------------------------------------------------


@given(
    first_chunk_s=st.floats(0.02, 1.0),
    chunk_s=st.floats(0.02, 1.0),
    grants=st.lists(st.floats(0.001, 1.0), max_size=12),
)
@settings(max_examples=15, deadline=None)
def test_chunks_are_not_heard(first_chunk_s: float, chunk_s: float, grants: list[float]) -> None:
    """Any chunk sizes and credit schedule give the same bytes, chunk by chunk within the credit."""
    core = real_engine()
    say(core, TEXTS, voice="heart")
    expected = pcm(run(core))

    core = real_engine(CpuOptions(first_chunk_s=first_chunk_s, chunk_s=chunk_s))
    say(core, TEXTS, voice="heart", until_s=0.0)
    until_s, heard = 0.0, run(core)
    for more_s in [*grants, 1e6]:
        until_s += more_s
        core.apply(GrantAudio(1, until_s))
        heard += run(core)
        assert len(pcm(heard)) / 48_000 <= until_s + 1e-7  # a thousandth of a sample
    assert pcm(heard) == expected
    sizes = [len(event.pcm) / 48_000 for event in of(AudioProduced, heard)]
    assert sizes[0] <= first_chunk_s + 1e-4
    assert max(sizes) <= max(first_chunk_s, chunk_s) + 1e-4


def test_credit_is_used_up() -> None:
    """All of the credit is spoken, to the sample, and nothing beyond."""
    core = real_engine()
    say(core, TEXTS, voice="heart", until_s=0.333)
    assert len(pcm(run(core))) == 2 * round(0.333 * 24_000)


def test_credit_for_all_the_audio_ends_it() -> None:
    """Nothing more is asked for when all audio was given, and silence was all that was left."""
    core = engine()
    say(core, ("Speech and trailing silence.",), until_s=0.4)
    assert of(UtteranceFinished, run(core))[0].reason is FinishReason.COMPLETED


def test_it_is_loud_and_does_not_clip() -> None:
    """Speech comes at a usual level, and no sample is near full scale."""
    core = real_engine(CpuOptions(gain_db=20.0))
    say(core, TEXTS, voice="heart")
    loud = np.frombuffer(pcm(run(core)), "<i2").astype(int)
    assert np.abs(loud).max() <= np.ceil(CEILING * FULL_SCALE)
    core = real_engine()
    say(core, TEXTS, voice="heart")
    usual = np.frombuffer(pcm(run(core)), "<i2").astype(float) / FULL_SCALE
    assert 0.3 < np.abs(usual).max() < 0.98
    assert -26 < 10 * np.log10(np.mean(usual**2)) < -18


def test_first_audio_comes_with_its_words() -> None:
    """Word times come with the first audio, exact; the first chunk takes one step."""
    core = real_engine()
    core.apply(LoadVoice("heart"))
    run(core)
    say(core, TEXTS[:1], voice="heart")
    events = list(core.step(1000.0))
    (words,) = of(WordsTimed, events)
    assert words.exact
    assert events.index(words) < events.index(of(AudioProduced, events)[0])
    assert [TEXTS[0][w.start : w.end] for w in words.words] == [
        "Hello",
        "there",
        "how",
        "are",
        "you",
    ]


def test_seeds() -> None:
    """Without a seed the same text is the same audio; a seed may be any integer."""
    heard = []
    for seed in (None, None, 0, -5, 2**80):
        core = real_engine()
        say(core, TEXTS[1:], voice="heart", seed=seed)
        heard.append(pcm(run(core)))
    assert heard[0] == heard[1] == heard[2]
    assert len(set(heard)) == 3


# --- text the voice cannot speak -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["你好，世界。", "Привет", "😀", "…"])
def test_unspeakable_text_is_skipped(text: str) -> None:
    """A segment the voice cannot speak is skipped with a reason; the rest is spoken."""
    core = real_engine()
    say(core, ("Hello.", text, "Bye."), voice="heart")
    events = run(core)
    (skipped,) = of(SegmentSkipped, events)
    assert (skipped.segment, skipped.code) == (1, "unspeakable_text")
    assert skipped.message
    assert {event.segment for event in of(AudioProduced, events)} == {0, 2}
    assert of(UtteranceFinished, events)[0].reason is FinishReason.COMPLETED
    assert not of(SegmentWarned, events)


def test_the_reason_names_script_and_help() -> None:
    """A skip says which script, and which voice could speak it."""
    core = real_engine()
    say(core, ("你好", "Привет"), voice="heart")
    chinese, russian = (event.message for event in of(SegmentSkipped, run(core)))
    assert "Chinese characters" in chinese
    assert "kokoro" in chinese
    assert "Cyrillic" in russian


def test_partly_unspeakable_text_is_warned_of() -> None:
    """Text with some unknown letters is spoken, with one warning before its audio."""
    core = real_engine()
    say(core, ("The word мир means peace.",), voice="heart")
    events = run(core)
    (warned,) = of(SegmentWarned, events)
    assert warned.code == "partly_unspeakable"
    assert "Cyrillic (3 letters left out)" in warned.message
    assert events.index(warned) < events.index(of(AudioProduced, events)[0])
    assert not of(SegmentSkipped, events)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [-1, 0, 1, 2])
def test_a_failure_is_one_utterances(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """What the network or the G2P raises fails its utterance, typed; neighbours do not notice."""
    core = engine({"fake": lambda: FakeVoice(raise_on={"secret": at})})
    say(core, ("This is fine.", "My secret is safe."), utterance=1)
    say(core, ("This is fine.", "So is this."), utterance=2)
    with caplog.at_level(logging.DEBUG):
        events = run(core)
    (failed,) = of(UtteranceFailed, events)
    assert (failed.utterance_id, failed.code) == (1, "utterance_failed")
    assert "secret" not in failed.message + caplog.text
    (finished,) = of(UtteranceFinished, events)
    assert (finished.utterance_id, finished.reason) == (2, FinishReason.COMPLETED)
    alone = engine()
    say(alone, ("This is fine.", "So is this."), utterance=2)
    assert pcm(events, 2) == pcm(run(alone), 2)


def test_a_voice_that_does_not_load_fails_who_wants_it() -> None:
    """Its LoadVoice and its utterances fail typed; another voice speaks."""

    def broken() -> FakeVoice:
        raise FileNotFoundError("weights.bin")

    core = engine({"broken": broken, "fake": FakeVoice})
    core.apply(LoadVoice("broken"))
    core.apply(LoadVoice("nobody"))
    say(core, TEXTS[:1], utterance=1, voice="broken")
    say(core, TEXTS[:1], utterance=2)
    events = run(core)
    failures = {event.voice: event for event in of(VoiceFailed, events)}
    assert failures["nobody"].code == "unknown_voice"
    assert "weights.bin" in failures["broken"].message
    assert of(UtteranceFailed, events)[0].utterance_id == 1
    assert of(UtteranceFinished, events)[0].utterance_id == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voice": "nobody"}, "unknown_voice"),
        ({"language": "zh"}, "unsupported_language"),
        ({"speed": 1.5}, "bad_request"),
        ({"speed": 0.5}, "bad_request"),
        ({"speed": float("nan")}, "bad_request"),
    ],
)
def test_refusals(fields: dict[str, object], code: str) -> None:
    """What cannot be spoken is refused at once, typed, and only once."""
    core = engine()
    say(core, TEXTS, **fields)
    events = run(core)
    (failed,) = of(UtteranceFailed, events)
    assert failed.code == code
    assert not of(AudioProduced, events)


@pytest.mark.parametrize("language", ["auto", "en", "en-US", "en-GB"])
def test_regions_of_a_language_are_spoken(language: str) -> None:
    """A language tag with a region names the language."""
    core = engine()
    say(core, TEXTS, language=language)
    assert of(UtteranceFinished, run(core))


def test_too_many_utterances() -> None:
    """Over the limit an utterance is refused, to be retried; one that ends makes room."""
    core = engine(options=CpuOptions(max_utterances=2))
    for utterance in (1, 2, 3):
        core.apply(StartUtterance(utterance, "fake"))
    (failed,) = of(UtteranceFailed, run(core))
    assert (failed.utterance_id, failed.code, failed.retryable) == (3, "overloaded", True)
    assert failed.retry_after_s
    core.apply(CancelUtterance(1))
    core.apply(StartUtterance(4, "fake"))
    assert not of(UtteranceFailed, run(core))


# --- voices --------------------------------------------------------------------------------------


def test_voices_are_loaded_when_needed() -> None:
    """A cold voice is loaded once, by the first who needs it; later utterances find it warm."""
    core = engine(clock=FakeClock(tick_s=0.25))
    say(core, TEXTS[:1], utterance=1)
    say(core, TEXTS[:1], utterance=2)
    events = run(core)
    (loaded,) = of(VoiceLoaded, events)
    assert (loaded.cached, loaded.load_s > 0) == (False, True)
    say(core, TEXTS[:1], utterance=3)
    events += run(core)
    ends = {event.utterance_id: event.stats for event in of(UtteranceFinished, events)}
    assert [ends[each].voice_cached for each in (1, 2, 3)] == [False, False, True]
    core.apply(LoadVoice("fake"))
    (again,) = of(VoiceLoaded, run(core))
    assert (again.cached, again.load_s) == (True, 0.0)


def test_evictions_are_told_and_harm_nobody() -> None:
    """A voice that is evicted while it speaks speaks to its end; the eviction is an event."""
    core = engine(
        {"fake": FakeVoice, "other": FakeVoice, "third": FakeVoice}, CpuOptions(voice_cache=1)
    )
    say(core, TEXTS, utterance=1)
    events = [event for _ in range(4) for event in core.step(1000.0)]
    core.apply(LoadVoice("other", pinned=False))
    core.apply(LoadVoice("third", pinned=True))
    events += run(core)
    assert [event.voice for event in of(VoiceEvicted, events)] == ["fake", "other"]
    alone = engine()
    say(alone, TEXTS)
    assert pcm(events) == pcm(run(alone))


def test_a_load_waits_for_who_is_not_heard_yet() -> None:
    """Loading a voice does not come before a first chunk, unless it has waited long."""
    core = engine({"fake": FakeVoice, "other": FakeVoice})
    core.apply(LoadVoice("fake"))
    run(core)
    core.apply(LoadVoice("other"))
    say(core, TEXTS, until_s=0.0)
    core.apply(GrantAudio(1, 0.05))
    kinds = [type(event) for event in run(core)]
    assert kinds.index(AudioProduced) < kinds.index(VoiceLoaded)


# --- whose turn it is ----------------------------------------------------------------------------


def heard_order(core: CpuEngine, steps: int, now: float = 1000.0) -> list[int]:
    order = []
    for _ in range(steps):
        order += [e.utterance_id for e in core.step(now) if isinstance(e, AudioProduced)]
        now += 0.001
    return order


def warm(options: CpuOptions | None = None) -> CpuEngine:
    core = engine(options=options)
    core.apply(LoadVoice("fake"))
    run(core)
    return core


def test_who_is_not_heard_comes_first() -> None:
    """A new utterance is heard before those with audio in hand go on, the earliest due first."""
    core = warm()
    say(core, ("one two three four five six seven eight nine ten",) * 3, utterance=1)
    assert set(heard_order(core, 4)) == {1}
    say(core, TEXTS, utterance=2, budget_s=2.0)
    say(core, TEXTS, utterance=3, budget_s=0.2)
    assert heard_order(core, 2) == [3, 2]


def test_who_is_about_to_run_dry_comes_before() -> None:
    """A listener with less than `urgent_lead_s` in hand is served before a new one."""
    core = warm(CpuOptions(urgent_lead_s=0.05))
    say(core, ("one two three four five six",) * 2, utterance=1)
    assert heard_order(core, 1) == [1]
    say(core, TEXTS, utterance=2)
    # 0.1 s of audio were given at 1000.0.
    assert heard_order(core, 1, now=1000.06) == [1]
    assert heard_order(core, 1, now=1000.06) == [2]


def test_nobody_waits_for_ever() -> None:
    """Where all listeners run dry, a new utterance is heard after a tenth of its budget."""
    core = warm(CpuOptions(urgent_lead_s=1.0))
    for utterance in range(1, 5):
        say(core, ("one two three four five six",) * 50, utterance=utterance)
    heard_order(core, 4)
    say(core, TEXTS, utterance=9, budget_s=0.5)
    now, waited = 1000.0, 0
    while 9 not in heard_order(core, 1, now):
        now += 0.01
        waited += 1
    assert 4 <= waited <= 10


def test_many_get_their_share() -> None:
    """Of many utterances none gets far ahead of another."""
    core = warm()
    for utterance in range(1, 9):
        say(core, ("one two three four five six seven eight nine ten",) * 8, utterance=utterance)
    given = dict.fromkeys(range(1, 9), 0.0)
    now = 1000.0
    for _ in range(400):
        for event in core.step(now):
            if isinstance(event, AudioProduced):
                given[event.utterance_id] += len(event.pcm) / 48_000
        if all(given.values()):
            assert max(given.values()) - min(given.values()) <= 0.6
        now += 0.001


def test_load_is_told() -> None:
    """EngineLoad comes when the load changed, not oftener than every 50 ms, and at the end."""
    core = warm()
    for utterance in range(1, 5):
        say(core, TEXTS, utterance=utterance)
    now, told = 1000.0, []
    for _ in range(2_000):
        if not core.has_work():
            break
        now = max(now, core.next_due_s(now) or now)
        told += [(now, e) for e in core.step(now) if isinstance(e, EngineLoad)]
        now += 0.004
    assert all(b - a >= 0.05 - 1e-9 for (a, _), (b, _) in pairwise(told))
    assert told[0][1].backlog_s > 0
    assert told[-1][1].utterances == 0
    assert told[-1][1].backlog_s == 0.0


def test_cancel_frees_at_once() -> None:
    """A cancel is answered by the next step, whatever else there is to do."""
    core = warm()
    for utterance in (1, 2, 3):
        say(core, TEXTS, utterance=utterance)
    core.step(1000.0)
    core.apply(CancelUtterance(2))
    (finished,) = core.step(1000.0)
    assert isinstance(finished, UtteranceFinished)
    assert (finished.utterance_id, finished.reason) == (2, FinishReason.CANCELLED)
    core.apply(CancelUtterance(2))
    assert 2 not in {getattr(event, "utterance_id", None) for event in run(core)}


def test_parts_of_the_first_audio_are_told() -> None:
    """Planning, spectra and samples each took their time, together no more than was spent on it."""
    clock = time.perf_counter
    core = engine({"heart": lambda: HibariVoice(Trim(0.01, 0.3), clock)}, clock=clock)
    say(core, TEXTS[:1], voice="heart")
    events = run(core)
    first, *later = of(AudioProduced, events)
    prefill_s, first_frame_s, codec_s = first.parts_s
    assert min(prefill_s, first_frame_s, codec_s) > 1e-4
    assert sum(first.parts_s) <= of(UtteranceFinished, events)[0].stats.busy_s
    assert all(event.parts_s == () for event in later)


def test_work_is_booked() -> None:
    """The stats of an utterance hold the time of the clock spent on it, and its audio."""
    core = engine(clock=FakeClock(tick_s=0.25))
    say(core, TEXTS)
    (finished,) = of(UtteranceFinished, run(core))
    assert finished.stats.busy_s >= 0.25
    assert finished.stats.audio_s == pytest.approx(0.8)
