"""What every `EngineCore` must do, as tests to inherit. Apply it to an engine like this:

    from tests.engine.conformance import EngineCoreConformance, Subject, state_machine

    SUBJECT = Subject(make_core=MyCore, voice="my-voice", texts=("Hello there.", "How are you?"))

    class TestConformance(EngineCoreConformance):
        subject = SUBJECT

    TestAnyOrder = state_machine(SUBJECT)

`Driver` runs a core step by step with a clock of its own and checks every event as it comes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar
from unittest import TestCase

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    Capabilities,
    Command,
    EngineCore,
    EngineDown,
    EngineReady,
    Event,
    FinishReason,
    FinishText,
    GrantAudio,
    LoadVoice,
    SegmentSkipped,
    StartUtterance,
    UtteranceEvent,
    UtteranceFailed,
    UtteranceFinished,
    VoiceFailed,
    VoiceLoaded,
    WordsTimed,
    WordTimings,
)
from rtts.metrics import ENGINE_PARTS

UNLIMITED_S = 1e6

# Nothing a splitter should emit, and nothing a core may die of.
ODD_TEXTS = (
    " ",
    "\n\t",
    "...",
    "\x00\x07\x1b[0m",
    "\ud800 a lone surrogate",
    "\N{FAMILY} \N{GRINNING FACE}\ufe0f\u200d",
    "e\u0301" * 40,
    "\u202eright to left \u0627\u0644\u0633\u0644\u0627\u0645",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "a" * 2_000,
    "1234567890 " * 20,
)


@dataclass(frozen=True)
class Subject:
    """A core under test.

    Attributes:
        voice: One of its voices, able to speak `texts`.
        texts: At least two different segments, short, each with audio.
        step_s: How far the clock goes on with each step.
        max_steps: Steps in which a few segments must be done.
        first_audio_steps: Steps until a new utterance is heard beside eight that run.
        is_deterministic: Whether a seed fixes the PCM bit by bit.
        machine_examples: Runs of the state machine.
        machine_steps: Commands in each.
    """

    make_core: Callable[[], EngineCore]
    voice: str
    texts: tuple[str, ...]
    odd_texts: tuple[str, ...] = ODD_TEXTS
    step_s: float = 0.01
    max_steps: int = 20_000
    first_audio_steps: int = 12
    is_deterministic: bool = True
    machine_examples: int = 30
    machine_steps: int = 40


@dataclass
class Ledger:
    """What one utterance was asked for and what came of it; refuses what may not come."""

    start: StartUtterance
    rate_hz: int
    until_s: float
    texts: dict[int, str] = field(default_factory=dict)
    pcm: dict[int, bytearray] = field(default_factory=dict)
    words: dict[int, WordsTimed] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    is_finished: bool = False
    is_cancelled: bool = False
    terminal: UtteranceFinished | UtteranceFailed | None = None

    @property
    def audio(self) -> bytes:
        """All PCM so far."""
        return b"".join(bytes(self.pcm[segment]) for segment in sorted(self.pcm))

    @property
    def audio_s(self) -> float:
        return len(self.audio) / 2 / self.rate_hz

    def take(self, event: UtteranceEvent, now: float) -> None:
        assert self.terminal is None, f"{event} after {self.terminal}"
        match event:
            case AudioProduced():
                self._take_audio(event, now)
            case WordsTimed():
                self._take_words(event)
            case SegmentSkipped():
                self._open(event.segment)
                assert event.segment not in self.pcm, "skipped after some of it was spoken"
                assert event.code and event.message
                self.skipped.append(event.segment)
                self.closed.append(event.segment)
            case UtteranceFinished():
                self._take_finished(event)
            case UtteranceFailed():
                assert event.code and event.message
                self.terminal = event

    def _open(self, segment: int) -> None:
        """The segment must be the oldest that is not closed."""
        pending = [each for each in self.texts if each not in self.closed]
        assert pending, f"segment {segment}, but every appended segment is closed"
        assert segment == pending[0], f"segment {segment} before {pending[0]} is closed"

    def _take_audio(self, event: AudioProduced, now: float) -> None:
        self._open(event.segment)
        assert len(event.pcm) % 2 == 0, "half a sample"
        assert event.pcm or event.last_of_segment, "an event without audio or news"
        if event.segment in self.pcm:
            assert event.begun_s == 0.0, "begun_s belongs to a segment's first audio"
        else:
            assert 0.0 < event.begun_s <= now, "begun_s is the engine's clock"
        if event.parts_s:
            assert not any(self.pcm.values()), "parts are of an utterance's first audio"
            assert len(event.parts_s) == len(ENGINE_PARTS) and min(event.parts_s) >= 0.0
        self.pcm.setdefault(event.segment, bytearray()).extend(event.pcm)
        assert self.audio_s <= self.until_s + 1e-4, "audio outside the credit"
        if event.last_of_segment:
            self.closed.append(event.segment)
            self._check_exact_words(event.segment)

    def _take_words(self, event: WordsTimed) -> None:
        assert self.start.word_timings, "nobody asked for word times"
        assert event.segment not in self.words, "word times twice"
        assert event.segment not in self.closed, "word times of a segment that is over"
        self.words[event.segment] = event
        text = self.texts[event.segment]
        at, at_s = 0, 0.0
        for word in event.words:
            assert at <= word.start < word.end <= len(text), f"{word} in {text!r}"
            assert at_s - 1e-6 <= word.start_s <= word.end_s, f"{word} after {at_s} s"
            at, at_s = word.end, word.end_s

    def _check_exact_words(self, segment: int) -> None:
        words = self.words.get(segment)
        if words is not None and words.exact and words.words:
            heard_s = len(self.pcm[segment]) / 2 / self.rate_hz
            assert words.words[-1].end_s <= heard_s + 1e-3, "a word after the audio's end"

    def _take_finished(self, event: UtteranceFinished) -> None:
        self.terminal = event
        assert abs(event.stats.audio_s - self.audio_s) < 1e-3, "stats.audio_s is not the audio"
        if event.reason is FinishReason.CANCELLED:
            assert self.is_cancelled, "cancelled by nobody"
        if event.reason is FinishReason.COMPLETED:
            assert self.is_finished, "completed while text may come"
            assert self.closed == list(self.texts), "completed with text unspoken"


class Driver:
    """Runs a core in a `for` loop, with a clock, and keeps a ledger of each utterance."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.core = subject.make_core()
        self.now = 1000.0
        self.ledgers: dict[int, Ledger] = {}
        self.engine_events: list[Event] = []
        self.ids = count(1)
        for _ in range(subject.max_steps):
            if self.engine_events:
                break
            self.step()
        ready = self.engine_events[0]
        assert isinstance(ready, EngineReady), f"{ready} before EngineReady"
        self.capabilities: Capabilities = ready.capabilities

    def apply(self, command: Command) -> None:
        """Note the command in its ledger, then hand it to the core."""
        self._note(command)
        self.core.apply(command)

    def _note(self, command: Command) -> None:
        if isinstance(command, StartUtterance):
            rate_hz = self.capabilities.sample_rate_hz
            self.ledgers[command.utterance_id] = Ledger(command, rate_hz, command.until_s)
        elif not isinstance(command, LoadVoice) and command.utterance_id in self.ledgers:
            ledger = self.ledgers[command.utterance_id]
            match command:
                case AppendText():
                    ledger.texts[command.segment] = command.text
                case FinishText():
                    ledger.is_finished = True
                case GrantAudio():
                    ledger.until_s = max(ledger.until_s, command.until_s)
                case CancelUtterance():
                    ledger.is_cancelled = True

    def step(self) -> list[Event]:
        """One step, at the time the core asks for if it asks for one."""
        next_due_s = getattr(self.core, "next_due_s", lambda now: None)(self.now)
        if next_due_s is not None:
            self.now = max(self.now, next_due_s)
        events = list(self.core.step(self.now))
        for event in events:
            if isinstance(event, UtteranceEvent):
                assert event.utterance_id in self.ledgers, f"{event} of nobody"
                self.ledgers[event.utterance_id].take(event, self.now)
            else:
                assert not isinstance(event, EngineDown), "only hosts send EngineDown"
                self.engine_events.append(event)
        self.now += self.subject.step_s
        return events

    def run(self, max_steps: int | None = None) -> list[Event]:
        """Step until the core has nothing to do, which it must come to; what came."""
        events: list[Event] = []
        for _ in range(max_steps or self.subject.max_steps):
            if not self.core.has_work():
                return events
            events += self.step()
        raise AssertionError("the core never has nothing to do: a host would spin")

    def start(self, **fields: object) -> int:
        """Start an utterance with the subject's voice, unlimited credit and a seed."""
        utterance_id = next(self.ids)
        given = {"voice": self.subject.voice, "until_s": UNLIMITED_S, "seed": 7, **fields}
        self.apply(StartUtterance(utterance_id, **given))  # type: ignore[arg-type]
        return utterance_id

    def say(self, texts: Sequence[str], **fields: object) -> int:
        """Start an utterance with all of its text."""
        utterance_id = self.start(**fields)
        for segment, text in enumerate(texts):
            self.apply(AppendText(utterance_id, segment, text))
        self.apply(FinishText(utterance_id))
        return utterance_id

    def reason(self, utterance_id: int) -> FinishReason | str:
        """How the utterance ended: a reason, or the code of a failure."""
        terminal = self.ledgers[utterance_id].terminal
        assert terminal is not None, "no terminal event"
        return terminal.code if isinstance(terminal, UtteranceFailed) else terminal.reason


def spoken_alone(subject: Subject, texts: Sequence[str], **fields: object) -> dict[int, bytes]:
    """The PCM of each segment when nothing else is spoken and the credit is unlimited."""
    driver = Driver(subject)
    ledger = driver.ledgers[driver.say(texts, **fields)]
    driver.run()
    return {segment: bytes(pcm) for segment, pcm in ledger.pcm.items()}


class EngineCoreConformance:
    """The rules, one by one. Inherit and set `subject`."""

    subject: ClassVar[Subject]

    @pytest.fixture
    def driver(self) -> Driver:
        return Driver(self.subject)

    def test_ready_comes_first_and_once(self, driver: Driver) -> None:
        """A core says what it can do before anything else, and then is quiet."""
        driver.run()
        assert sum(isinstance(each, EngineReady) for each in driver.engine_events) == 1
        capabilities = driver.capabilities
        assert capabilities.voice(capabilities.default_voice) is not None
        assert capabilities.voice(self.subject.voice) is not None
        low, high = capabilities.speed_range
        assert 0 < low <= 1.0 <= high

    def test_every_segment_is_spoken(self, driver: Driver) -> None:
        """All segments, in order, each closed once, then exactly one terminal event."""
        ledger = driver.ledgers[driver.say(self.subject.texts)]
        driver.run()
        assert driver.reason(ledger.start.utterance_id) is FinishReason.COMPLETED
        assert list(range(len(self.subject.texts))) == ledger.closed
        assert all(ledger.pcm[segment] for segment in ledger.closed)

    def test_text_may_come_late(self, driver: Driver) -> None:
        """Text appended after the core fell idle is spoken; waiting for it is no work."""
        utterance = driver.start()
        driver.run()
        for segment, text in enumerate(self.subject.texts):
            driver.apply(AppendText(utterance, segment, text))
            driver.run()
            assert segment in driver.ledgers[utterance].closed
        driver.apply(FinishText(utterance))
        driver.run()
        assert driver.reason(utterance) is FinishReason.COMPLETED

    def test_segment_numbers_may_have_gaps(self, driver: Driver) -> None:
        """Segments without text to speak never reach the engine."""
        utterance = driver.start()
        for segment in (0, 3, 4):
            driver.apply(AppendText(utterance, segment, self.subject.texts[0]))
        driver.apply(FinishText(utterance))
        driver.run()
        assert driver.ledgers[utterance].closed == [0, 3, 4]

    def test_no_text_completes(self, driver: Driver) -> None:
        """An utterance without text completes without audio."""
        utterance = driver.say(())
        driver.run()
        assert driver.reason(utterance) is FinishReason.COMPLETED
        assert driver.ledgers[utterance].audio == b""

    def test_no_credit_no_audio_no_work(self, driver: Driver) -> None:
        """Without credit nothing is produced, and the host may sleep."""
        utterance = driver.say(self.subject.texts, until_s=0.0)
        driver.run()
        assert driver.ledgers[utterance].audio == b""
        assert driver.ledgers[utterance].terminal is None

    def test_credit_in_small_grants(self, driver: Driver) -> None:
        """However the credit comes, the audio is the same and never ahead of it."""
        utterance = driver.say(self.subject.texts, until_s=0.0)
        ledger = driver.ledgers[utterance]
        rng = random.Random(5)
        for _ in range(100_000):
            if ledger.terminal is not None:
                break
            driver.apply(GrantAudio(utterance, ledger.until_s + rng.choice((0.01, 0.1, 0.7))))
            driver.run()
        assert driver.reason(utterance) is FinishReason.COMPLETED
        if self.subject.is_deterministic:
            alone = spoken_alone(self.subject, self.subject.texts)
            assert alone == {segment: bytes(pcm) for segment, pcm in ledger.pcm.items()}

    def test_a_lower_grant_takes_nothing_back(self, driver: Driver) -> None:
        """Grants only raise the credit."""
        utterance = driver.say(self.subject.texts)
        driver.apply(GrantAudio(utterance, 0.0))
        driver.run()
        assert driver.reason(utterance) is FinishReason.COMPLETED

    @pytest.mark.parametrize("steps", [0, 1, 2, 5])
    def test_cancel_ends_within_one_step(self, driver: Driver, steps: int) -> None:
        """After a cancel the very next step brings the terminal event, and it is the last."""
        utterance = driver.start()
        for segment, text in enumerate(self.subject.texts * 20):
            driver.apply(AppendText(utterance, segment, text))
        for _ in range(steps):
            driver.step()
        driver.apply(CancelUtterance(utterance))
        driver.step()
        assert driver.reason(utterance) is FinishReason.CANCELLED
        driver.run()  # the ledger refuses anything after the terminal event

    def test_cancel_of_the_waiting(self, driver: Driver) -> None:
        """Utterances that wait for text or for credit are cancelled like any other."""
        waiting = [driver.start(), driver.say(self.subject.texts, until_s=0.0)]
        driver.run()
        for utterance in waiting:
            driver.apply(CancelUtterance(utterance))
        driver.step()
        assert [driver.reason(each) for each in waiting] == [FinishReason.CANCELLED] * 2

    def test_after_a_cancel_others_go_on(self, driver: Driver) -> None:
        """A cancelled neighbour changes nothing for those who stay."""
        stays, goes = driver.say(self.subject.texts), driver.say(self.subject.texts)
        driver.step()
        driver.apply(CancelUtterance(goes))
        driver.run()
        assert driver.reason(stays) is FinishReason.COMPLETED
        if self.subject.is_deterministic:
            alone = spoken_alone(self.subject, self.subject.texts)
            assert alone == {s: bytes(pcm) for s, pcm in driver.ledgers[stays].pcm.items()}

    def test_commands_to_nobody_are_ignored(self, driver: Driver) -> None:
        """Commands that cross a terminal event, or name no utterance, do nothing."""
        ended = driver.say(self.subject.texts[:1])
        driver.run()
        for utterance in (ended, 999_999):
            for command in (
                AppendText(utterance, 1, self.subject.texts[0]),
                GrantAudio(utterance, UNLIMITED_S),
                FinishText(utterance),
                CancelUtterance(utterance),
                CancelUtterance(utterance),
            ):
                driver.core.apply(command)
        driver.run()

    def test_unknown_voice(self, driver: Driver) -> None:
        """A voice nobody has fails the utterance, typed, and only it."""
        utterance = driver.say(self.subject.texts, voice="no such voice")
        driver.run()
        assert driver.reason(utterance) == "unknown_voice"

    def test_unsupported_language(self, driver: Driver) -> None:
        """A language the voice does not speak fails the utterance, typed."""
        utterance = driver.say(self.subject.texts, language="tlh")
        driver.run()
        assert driver.reason(utterance) == "unsupported_language"

    def test_one_too_many(self, driver: Driver) -> None:
        """Beyond `max_utterances` a start is refused as retryable; a place freed is a place."""
        places = driver.capabilities.max_utterances
        taken = [driver.start() for _ in range(places)]
        refused = driver.say(self.subject.texts[:1])
        driver.run()
        assert driver.reason(refused) == "overloaded"
        failed = driver.ledgers[refused].terminal
        assert isinstance(failed, UtteranceFailed) and failed.retryable
        driver.apply(CancelUtterance(taken[0]))
        driver.run()
        accepted = driver.say(self.subject.texts[:1])
        driver.run()
        assert driver.reason(accepted) is FinishReason.COMPLETED

    def test_voices_are_loaded_once(self, driver: Driver) -> None:
        """The first load is a miss at most once; the second is a hit."""
        answers: list[VoiceLoaded | VoiceFailed] = []
        for voice in (self.subject.voice, self.subject.voice, "no such voice"):
            driver.apply(LoadVoice(voice))
            heard = [e for e in driver.run() if isinstance(e, VoiceLoaded | VoiceFailed)]
            assert len(heard) == 1
            answers += heard
        assert isinstance(answers[0], VoiceLoaded) and answers[0].load_s >= 0
        assert isinstance(answers[1], VoiceLoaded) and answers[1].cached
        assert isinstance(answers[2], VoiceFailed) and answers[2].code == "unknown_voice"

    def test_a_loaded_voice_is_warm(self, driver: Driver) -> None:
        """An utterance after `VoiceLoaded` finds the voice cached, and says so."""
        driver.apply(LoadVoice(self.subject.voice))
        driver.run()
        utterance = driver.say(self.subject.texts[:1])
        driver.run()
        terminal = driver.ledgers[utterance].terminal
        assert isinstance(terminal, UtteranceFinished) and terminal.stats.voice_cached

    def test_neighbours_change_nothing(self, driver: Driver) -> None:
        """An utterance's PCM does not depend on what else is spoken, or in which order."""
        if not self.subject.is_deterministic:
            return
        texts = self.subject.texts
        said = {driver.say(texts[n % 2 :], seed=n % 3): (n % 2, n % 3) for n in range(6)}
        driver.run()
        for utterance, (skip, seed) in said.items():
            alone = spoken_alone(self.subject, texts[skip:], seed=seed)
            spoken = driver.ledgers[utterance].pcm
            assert alone == {segment: bytes(pcm) for segment, pcm in spoken.items()}

    def test_a_new_utterance_is_heard_soon(self, driver: Driver) -> None:
        """Eight utterances with endless text and credit do not keep a ninth waiting."""
        for _ in range(8):
            busy = driver.start()
            for segment in range(40):
                driver.apply(AppendText(busy, segment, self.subject.texts[0]))
        for _ in range(3 * 8):
            driver.step()
        new = driver.say(self.subject.texts)
        for _ in range(self.subject.first_audio_steps):
            driver.step()
        assert driver.ledgers[new].audio

    def test_speed_changes_the_length(self, driver: Driver) -> None:
        """Faster is shorter, across the range the core names."""
        low, high = driver.capabilities.speed_range
        if low == high:
            return
        slow, fast = (driver.say(self.subject.texts[:1], speed=speed) for speed in (low, high))
        driver.run()
        assert driver.ledgers[slow].audio_s > driver.ledgers[fast].audio_s

    def test_words_are_timed_as_promised(self, driver: Driver) -> None:
        """Word times come where the core has them, cover the text's words, or nobody asked."""
        promise = driver.capabilities.word_timings
        asked, unasked = (
            driver.say(self.subject.texts, word_timings=wanted) for wanted in (True, False)
        )
        driver.run()
        assert not driver.ledgers[unasked].words
        timed = driver.ledgers[asked].words
        assert (promise is not WordTimings.NONE) == bool(timed)
        for segment, words in timed.items():
            assert words.exact == (promise is WordTimings.EXACT)
            text = self.subject.texts[segment]
            covered = [text[word.start : word.end] for word in words.words]
            assert all(any(part in word for word in text.split()) for part in covered)

    def test_odd_text_kills_nobody(self, driver: Driver) -> None:
        """Whatever the text, its own utterance ends typed and a neighbour is spoken."""
        for text in self.subject.odd_texts:
            odd = driver.say([text], until_s=1.0)
            neighbour = driver.say(self.subject.texts[:1])
            driver.run()
            driver.apply(CancelUtterance(odd))
            driver.run()
            assert driver.ledgers[odd].terminal is not None
            assert driver.reason(neighbour) is FinishReason.COMPLETED


class _AnyOrder(RuleBasedStateMachine):
    """Commands in any order, from any number of utterances, with steps in between."""

    subject: ClassVar[Subject]
    alone: ClassVar[dict[tuple[object, ...], dict[int, bytes]]]

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(self.subject)
        self.live: list[int] = []

    def _pick(self, pick: int) -> int:
        return self.live[pick % len(self.live)]

    @rule(until_s=st.sampled_from((0.0, 0.3, 2.0, UNLIMITED_S)), seed=st.integers(0, 1))
    def start(self, until_s: float, seed: int) -> None:
        if len(self.live) < 6:
            self.live.append(self.driver.start(until_s=until_s, seed=seed))

    @rule()
    def start_unknown_voice(self) -> None:
        self.live.append(self.driver.start(voice="no such voice"))

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 9), which=st.integers(0, 9), gap=st.sampled_from((0, 0, 1)))
    def append(self, pick: int, which: int, gap: int) -> None:
        utterance = self._pick(pick)
        ledger = self.driver.ledgers[utterance]
        if not ledger.is_finished and len(ledger.texts) < 4:
            segment = max(ledger.texts, default=-1) + 1 + gap
            text = self.subject.texts[which % len(self.subject.texts)]
            self.driver.apply(AppendText(utterance, segment, text))

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 9))
    def finish(self, pick: int) -> None:
        self.driver.apply(FinishText(self._pick(pick)))

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 9), more_s=st.floats(-1.0, 2.0))
    def grant(self, pick: int, more_s: float) -> None:
        utterance = self._pick(pick)
        until_s = self.driver.ledgers[utterance].until_s + more_s
        self.driver.apply(GrantAudio(utterance, until_s))

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        utterance = self._pick(pick)
        self.driver.apply(CancelUtterance(utterance))
        self.driver.step()
        assert self.driver.ledgers[utterance].terminal is not None
        self.live.remove(utterance)

    @rule(pinned=st.booleans())
    def load(self, pinned: bool) -> None:
        self.driver.apply(LoadVoice(self.subject.voice, pinned))

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.driver.step()

    def teardown(self) -> None:
        """Let everything end; then every utterance has one terminal event and its own PCM."""
        for utterance in self.live:
            self.driver.apply(GrantAudio(utterance, UNLIMITED_S))
            self.driver.apply(FinishText(utterance))
        self.driver.run()
        for ledger in self.driver.ledgers.values():
            assert ledger.terminal is not None
            if self.subject.is_deterministic:
                self._compare(ledger)

    def _compare(self, ledger: Ledger) -> None:
        key = (tuple(ledger.texts.values()), ledger.start.seed)
        if key not in self.alone:
            self.alone[key] = spoken_alone(self.subject, key[0], seed=ledger.start.seed)
        alone = self.alone[key]
        for place, segment in enumerate(ledger.texts):
            spoken = bytes(ledger.pcm.get(segment, b""))
            if segment in ledger.closed:
                assert spoken == alone.get(place, b"")
            else:  # cut off by a cancel
                assert alone.get(place, b"").startswith(spoken)


def state_machine(subject: Subject) -> type[TestCase]:
    """A test case that runs the subject through commands in any order."""
    machine = type("AnyOrder", (_AnyOrder,), {"subject": subject, "alone": {}})
    case: type[TestCase] = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=subject.machine_examples,
        stateful_step_count=subject.machine_steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case
