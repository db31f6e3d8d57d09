"""The tone engine: pure PCM, simulated time, real caches, and faults on demand."""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    EngineLoad,
    Event,
    FinishReason,
    GrantAudio,
    LoadVoice,
    SegmentSkipped,
    UtteranceFinished,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.engine.tone.sound import SAMPLE_RATE_HZ
from rtts.errors import ConfigError, EngineDeadError
from tests.engine.conformance import (
    UNLIMITED_S,
    Driver,
    EngineCoreConformance,
    Subject,
    spoken_alone,
    state_machine,
)

TEXTS = ("Hello there.", "How are you today?", "Fine")
INSTANT = Subject(make_core=ToneEngine, voice="tone", texts=TEXTS)
# Simulated cost, a small cache and odd chunks: the same rules hold.
SLOW = Subject(
    make_core=lambda: ToneEngine(
        ToneOptions(
            chunk_s=0.033,
            first_chunk_delay_s=0.02,
            real_time_factor=0.1,
            voice_load_s=0.3,
            voice_cache=1,
            pause_after_chunks=3,
            pause_s=0.2,
        )
    ),
    voice="tone-low",
    texts=TEXTS,
    first_audio_steps=60,
    machine_examples=20,
)


class TestConformanceInstant(EngineCoreConformance):
    subject = INSTANT


class TestConformanceSlow(EngineCoreConformance):
    subject = SLOW


TestAnyOrderInstant = state_machine(INSTANT)
TestAnyOrderSlow = state_machine(SLOW)


def drive(options: ToneOptions | None = None, *, step_s: float = 0.01) -> Driver:
    return Driver(Subject(lambda: ToneEngine(options), voice="tone", texts=TEXTS, step_s=step_s))


def samples(pcm: bytes) -> npt.NDArray[np.int16]:
    return np.frombuffer(pcm, dtype="<i2")


def of(kind: type[Event], events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# --- the sound -----------------------------------------------------------------------------------

speech = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@given(text=speech, chunk_s=st.floats(0.0005, 1.0), speed=st.floats(0.25, 4.0))
@settings(max_examples=40, deadline=None)
def test_chunking_does_not_change_the_pcm(text: str, chunk_s: float, speed: float) -> None:
    """The same samples for any chunk length, as many as the text takes to say."""
    chunked, whole = (
        spoken_alone(
            Subject(lambda options=options: ToneEngine(options), voice="tone", texts=(text,)),
            [text],
            speed=speed,
        )
        for options in (ToneOptions(chunk_s=chunk_s), ToneOptions(chunk_s=1.0))
    )
    assert whole == chunked
    assert abs(len(whole[0]) / 2 - len(text) * 0.06 / speed * SAMPLE_RATE_HZ) <= 1


def test_pcm_is_the_same_on_every_machine_and_in_every_process() -> None:
    """A known text has known bytes: nothing depends on hash seeds or platforms."""
    assert zlib.crc32(spoken_alone(INSTANT, ["Hello there."])[0]) == 0x949F7EBF


@pytest.mark.parametrize(
    ("voice", "base_hz"), [("tone", 440), ("tone-low", 220), ("tone-high", 880)]
)
def test_a_voice_is_an_octave(voice: str, base_hz: int) -> None:
    """Every note of a voice lies in its octave, and a reply has several notes."""
    texts = [f"segment number {n} of a reply" for n in range(12)]
    notes = []
    for pcm in spoken_alone(INSTANT, texts, voice=voice).values():
        spectrum = np.abs(np.fft.rfft(samples(pcm)))
        notes.append(np.argmax(spectrum) * SAMPLE_RATE_HZ / (len(pcm) / 2))
    assert all(base_hz - 2 <= note <= 2 * base_hz + 2 for note in notes)
    assert len({round(note / 5) for note in notes}) >= 4


def test_seed_changes_the_note() -> None:
    """PCM depends on the seed, and no seed means seed 0."""
    heard = {seed: spoken_alone(INSTANT, ["Hello there."], seed=seed)[0] for seed in range(10)}
    assert len(set(heard.values())) > 1
    assert heard[0] == spoken_alone(INSTANT, ["Hello there."], seed=None)[0]


def test_a_segment_begins_and_ends_softly() -> None:
    """No click at either end, no step and no zero run inside, far from clipping."""
    pcm = samples(spoken_alone(INSTANT, ["How are you today, my friend?"])[0]).astype(int)
    assert abs(pcm[0]) < 200 and abs(pcm[-1]) < 200
    steepest = 8192 * 2 * np.pi * 880 / SAMPLE_RATE_HZ
    assert np.abs(np.diff(pcm)).max() <= steepest + 100
    assert not np.any((pcm[:-2] == 0) & (pcm[1:-1] == 0) & (pcm[2:] == 0))
    assert np.abs(pcm).max() <= 8192


@given(text=speech, speed=st.floats(0.25, 4.0))
@settings(max_examples=50, deadline=None)
def test_words_share_the_time_by_characters(text: str, speed: float) -> None:
    """Words are split at white space; each gets its characters' share of the audio."""
    driver = drive()
    utterance = driver.say([text], speed=speed)
    driver.run()
    ledger = driver.ledgers[utterance]
    words = ledger.words[0].words
    assert text.split() == [text[word.start : word.end] for word in words]
    for word in words:
        assert word.start_s == pytest.approx(word.start / len(text) * ledger.audio_s)
        assert word.end_s == pytest.approx(word.end / len(text) * ledger.audio_s)


def test_words_come_before_the_audio_they_time() -> None:
    """A segment's word times are in the same step as its first audio, ahead of it."""
    driver = drive()
    driver.say(["Hello there."])
    kinds = [type(event).__name__ for event in driver.run()]
    assert kinds.index("WordsTimed") < kinds.index("AudioProduced")


# --- who is next ---------------------------------------------------------------------------------


def test_the_unheard_come_first_and_in_order() -> None:
    """Utterances without audio are served before everybody else, first come first served."""
    driver = drive()
    old = driver.say(["a long text " * 20])
    driver.step()
    new = [driver.say(["a long text " * 20]) for _ in range(3)]
    heard = [of(AudioProduced, driver.step())[0].utterance_id for _ in range(3)]
    assert new == heard
    assert old not in heard


def test_whoever_runs_dry_first_is_next() -> None:
    """Unlimited credit buys no speed: nobody gets a second chunk ahead of a hungrier listener."""
    driver = drive(step_s=0.001)
    greedy = driver.say(["a long text " * 50])
    for _ in range(200):
        driver.step()
    live = [driver.say(["a long text " * 20], until_s=5.0) for _ in range(4)]
    made = [of(AudioProduced, driver.step())[0].utterance_id for _ in range(4 * 60)]
    assert greedy not in made
    counts = [made.count(each) for each in live]
    assert max(counts) - min(counts) <= 1


def test_an_old_stream_is_not_starved_by_new_ones() -> None:
    """What counts is how soon a listener runs dry, not how much was made in all."""
    driver = drive(step_s=0.001)
    old = driver.say(["a long text " * 50], until_s=2.0)
    driver.run()
    driver.now += 1.9
    driver.say(["a long text " * 50])
    driver.apply(GrantAudio(old, UNLIMITED_S))
    made = [of(AudioProduced, driver.step())[0].utterance_id for _ in range(4)]
    assert old in made


def test_late_text_buys_no_catching_up() -> None:
    """An utterance that waited for text shares with others, however long it had waited."""
    driver = drive(step_s=0.001)
    late = driver.start()
    driver.apply(AppendText(late, 0, "Hm."))
    driver.run()
    driver.now += 60.0
    driver.apply(AppendText(late, 1, "a long text " * 20))
    other = driver.say(["a long text " * 20])
    made = [of(AudioProduced, driver.step())[0].utterance_id for _ in range(100)]
    assert abs(made.count(late) - made.count(other)) <= 2


# --- simulated time ------------------------------------------------------------------------------


def arrivals(driver: Driver) -> list[tuple[float, int]]:
    """When each chunk came, and whose it was, until the core has nothing to do."""
    times: list[tuple[float, int]] = []
    while driver.core.has_work():
        events = driver.step()
        at_s = driver.now - driver.subject.step_s
        times += [(at_s, each.utterance_id) for each in of(AudioProduced, events)]
    return times


def test_chunks_take_the_time_they_are_said_to() -> None:
    """First chunk after its delay and its share, later ones after theirs."""
    driver = drive(ToneOptions(first_chunk_delay_s=0.1, real_time_factor=0.5), step_s=0.0)
    began_s = driver.now
    driver.say(["ten chars."])  # 0.6 s: seven chunks of 80 ms and one of 40
    times = [at_s - began_s for at_s, _ in arrivals(driver)]
    assert times == pytest.approx([0.14, 0.18, 0.22, 0.26, 0.30, 0.34, 0.38, 0.40])


def test_the_device_does_one_thing_at_a_time() -> None:
    """Two streams at a factor of 0.6 come at 1.2 times their own length."""
    driver = drive(ToneOptions(real_time_factor=0.6), step_s=0.0)
    began_s = driver.now
    both = [driver.say(["a text of 20 chars.."]) for _ in range(2)]
    last_s = {whose: at_s for at_s, whose in arrivals(driver)}
    assert last_s[both[1]] - began_s == pytest.approx(2 * 1.2 * 0.6)
    assert driver.ledgers[both[0]].terminal.stats.busy_s == pytest.approx(1.2 * 0.6)


def test_begun_is_when_the_work_began() -> None:
    """`begun_s` leaves out the queue and includes the computing."""
    driver = drive(ToneOptions(first_chunk_delay_s=0.1), step_s=0.0)
    began_s = driver.now
    driver.say(["Hello."])
    second = driver.say(["Hello."])
    events = driver.run()
    first_audio = next(e for e in of(AudioProduced, events) if e.utterance_id == second)
    assert first_audio.begun_s == pytest.approx(began_s + 0.1)


def test_a_cancelled_chunk_is_dropped_and_the_device_is_free() -> None:
    """Cancel during a chunk: the terminal event at once, and the next utterance begins at once."""
    driver = drive(ToneOptions(first_chunk_delay_s=10.0), step_s=0.001)
    slow = driver.say(["Hello."])
    driver.core.step(driver.now)
    driver.apply(CancelUtterance(slow))
    waiting = driver.say(["Hello."])
    began_s = driver.now
    driver.step()
    assert driver.reason(slow) is FinishReason.CANCELLED
    events = driver.run()
    assert of(AudioProduced, events)[0].utterance_id == waiting
    assert of(AudioProduced, events)[0].begun_s == pytest.approx(began_s, abs=0.01)


def test_a_pause_holds_up_nobody_else() -> None:
    """`pause_s` rests one utterance after so many chunks while its neighbours are served."""
    options = ToneOptions(pause_after_chunks=2, pause_s=1.0)
    driver = drive(options, step_s=0.0)
    resting = driver.say(["a text of 20 chars.."])
    began_s = driver.now
    times = arrivals(driver)
    assert [whose for _, whose in times] == [resting] * 15
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(times)]
    assert gaps == pytest.approx([0.0, 1.0] + [0.0] * 12)
    other = drive(options, step_s=0.0)
    other.say(["a text of 20 chars.."])
    for _ in range(2):
        other.step()
    hasty = other.say(["Hi"])
    assert (began_s, hasty) in arrivals(other)


def test_an_idle_core_asks_to_be_left_alone() -> None:
    """`next_due_s` says when simulated work is done, and nothing when a command is awaited."""
    core = ToneEngine(ToneOptions(first_chunk_delay_s=1.0))
    driver = Driver(Subject(lambda: core, voice="tone", texts=TEXTS))
    driver.run()
    assert core.next_due_s(driver.now) is None and not core.has_work()
    driver.say(["Hello."])
    assert core.next_due_s(driver.now) is None and core.has_work()
    now = driver.now
    driver.step()
    assert core.next_due_s(now) <= now + 1.0
    while not of(AudioProduced, driver.step()):
        pass
    assert driver.now == pytest.approx(now + 1.0, abs=0.02)


# --- voices --------------------------------------------------------------------------------------


def test_the_least_recently_used_voice_goes() -> None:
    """Loads fill the cache, uses keep a voice in it, and evictions are told."""
    driver = drive(ToneOptions(voice_cache=2, voice_load_s=0.5))
    for voice in ("tone", "tone-low"):
        driver.apply(LoadVoice(voice, pinned=False))
    assert [each.load_s for each in of(VoiceLoaded, driver.run())] == [0.5, 0.5]
    driver.say(["Hi"], voice="tone")  # a hit: now tone-low is the oldest
    assert not of(VoiceLoaded, driver.run())
    missed = driver.say(["Hi"], voice="tone-high")
    events = driver.run()
    assert [VoiceEvicted("tone-low")] == of(VoiceEvicted, events)
    assert [VoiceLoaded("tone-high", cached=False, load_s=0.5)] == of(VoiceLoaded, events)
    terminal = driver.ledgers[missed].terminal
    assert isinstance(terminal, UtteranceFinished) and not terminal.stats.voice_cached


def test_pinned_voices_stay() -> None:
    """A pinned voice is never evicted; where all are, others are spoken without being kept."""
    driver = drive(ToneOptions(voice_cache=1))
    driver.apply(LoadVoice("tone", pinned=True))
    driver.run()
    driver.apply(LoadVoice("tone-low", pinned=True))
    assert [each.code for each in of(VoiceFailed, driver.run())] == ["overloaded"]
    for _ in range(2):
        utterance = driver.say(["Hi"], voice="tone-low")
        assert not of(VoiceEvicted, driver.run())
        assert driver.reason(utterance) is FinishReason.COMPLETED
    driver.apply(LoadVoice("tone"))
    assert [each.cached for each in of(VoiceLoaded, driver.run())] == [True]


def test_an_evicted_voice_finishes_its_sentence() -> None:
    """Eviction changes nothing for an utterance that is being spoken."""
    driver = drive(ToneOptions(voice_cache=1))
    long = driver.say(["a long text " * 5], voice="tone")
    driver.step()
    driver.say(["Hi"], voice="tone-low")
    assert VoiceEvicted("tone") in driver.run()
    alone = spoken_alone(INSTANT, ["a long text " * 5], voice="tone")
    assert alone[0] == driver.ledgers[long].audio


# --- load ----------------------------------------------------------------------------------------


def test_load_is_told_when_it_changes_and_not_too_often() -> None:
    """At most every 50 ms, with the last word on an idle engine, and silence after it."""
    driver = drive(step_s=0.003)
    told: list[tuple[float, EngineLoad]] = []
    for _ in range(40):
        driver.say(["Hello."], until_s=0.1)
        driver.apply(CancelUtterance(driver.say(["Hello."])))
        told += [(driver.now, each) for each in of(EngineLoad, driver.step())]
    for utterance, ledger in driver.ledgers.items():
        if ledger.terminal is None:
            driver.apply(GrantAudio(utterance, UNLIMITED_S))
    while driver.core.has_work():
        told += [(driver.now, each) for each in of(EngineLoad, driver.step())]
    assert len(told) >= 3
    assert all(later - earlier > 0.0499 for (earlier, _), (later, _) in pairwise(told))
    assert EngineLoad(0, 0.0, 0.0) == told[-1][1]


def test_backlog_predicts_the_wait() -> None:
    """A new utterance's first chunk begins when the load said it would."""
    driver = drive(ToneOptions(first_chunk_delay_s=0.1, real_time_factor=0.25), step_s=0.0)
    for _ in range(5):
        driver.say(["a long text " * 5], until_s=0.2)
    (load,) = of(EngineLoad, driver.step())
    new, asked_s = driver.say(["Hello."]), driver.now
    events = driver.run()
    begun_s = next(e for e in of(AudioProduced, events) if e.utterance_id == new).begun_s
    assert load.utterances == 5
    assert load.first_chunk_s == pytest.approx(0.12)
    assert begun_s - asked_s == pytest.approx(load.backlog_s) == pytest.approx(5 * 0.12)


# --- refusals and faults -------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [0.2, 4.1, 0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_outside_the_range_is_refused(speed: float) -> None:
    """A speed nobody can speak at fails the utterance and nobody else."""
    driver = drive()
    refused = driver.say(["Hello."], speed=speed)
    driver.run()
    assert driver.reason(refused) == "bad_request"


def test_fail_at_segment() -> None:
    """The utterance fails where asked; what came before was spoken, neighbours go on."""
    driver = drive(ToneOptions(fail_at_segment=1))
    fails, short = driver.say(TEXTS), driver.say(TEXTS[:1])
    driver.run()
    assert driver.reason(fails) == "utterance_failed"
    assert driver.ledgers[fails].closed == [0]
    assert driver.reason(short) is FinishReason.COMPLETED


def test_die_after_chunks() -> None:
    """The core raises instead of making one chunk too many."""
    driver = drive(ToneOptions(die_after_chunks=3))
    utterance = driver.say(["a long text " * 5])
    with pytest.raises(EngineDeadError):
        driver.run()
    assert driver.ledgers[utterance].audio_s == pytest.approx(3 * 0.08)


def test_never_finish() -> None:
    """All audio comes, the end does not; a cancel is still obeyed."""
    driver = drive(ToneOptions(never_finish=True))
    utterance = driver.say(TEXTS)
    driver.run()
    ledger = driver.ledgers[utterance]
    assert list(range(len(TEXTS))) == ledger.closed
    assert ledger.terminal is None
    driver.apply(CancelUtterance(utterance))
    driver.run()
    assert driver.reason(utterance) is FinishReason.CANCELLED


@pytest.mark.parametrize(
    ("options", "texts", "skipped"),
    [
        (ToneOptions(skip_scripts=("CJK",)), ("Hi", "\u4f60\u597d", "there"), [1]),
        (ToneOptions(skip_scripts=("CYRILLIC", "CJK")), ("\u041f\u0440\u0438", "\u4f60"), [0, 1]),
        (ToneOptions(unspeakable=("xyzzy",)), ("say xyzzy", "Hi"), [0]),
        (ToneOptions(skip_scripts=("CJK",)), ("Hi", "there"), []),
    ],
)
def test_unspeakable_segments_are_skipped_in_order(
    options: ToneOptions, texts: tuple[str, ...], skipped: list[int]
) -> None:
    """A skipped segment is announced in its place, costs no credit, and the rest is spoken."""
    driver = drive(options)
    utterance = driver.say(texts)
    events = driver.run()
    assert driver.reason(utterance) is FinishReason.COMPLETED
    ledger = driver.ledgers[utterance]
    assert skipped == ledger.skipped
    assert list(range(len(texts))) == ledger.closed
    assert all(each.code == "unspeakable_text" for each in of(SegmentSkipped, events))


@pytest.mark.parametrize(
    "fields",
    [
        {"voices": ()},
        {"voices": ("tone", "bell")},
        {"chunk_s": 0.0},
        {"chunk_s": 1.5},
        {"char_s": 0.0},
        {"max_utterances": 0},
        {"voice_cache": 0},
        {"real_time_factor": -1.0},
        {"pause_s": float("nan")},
        {"voice_load_s": float("inf")},
    ],
)
def test_senseless_options_are_refused_by_name(fields: dict[str, object]) -> None:
    """A wrong option is found before ready, and the message names it."""
    with pytest.raises(ConfigError, match=f"tone.{next(iter(fields))}"):
        ToneOptions(**fields)  # type: ignore[arg-type]
