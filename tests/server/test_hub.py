"""Routing, timers and turns, with sessions that only note what is done to them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.interface import (
    AudioProduced,
    CancelUtterance,
    EngineLoad,
    FinishReason,
    GrantAudio,
    StartUtterance,
    UtteranceFinished,
    WordsTimed,
)
from rtts.metrics import Metrics
from rtts.server import hub as hub_module
from rtts.server.encoders import Encoders
from rtts.server.hub import Hub
from rtts.session import Service
from tests.server.raw import eventually


class FakeSession:
    """Notes calls; what it wants done is set by the test."""

    def __init__(self, *, session_id, resume_token, options, service, now) -> None:
        self.session_id, self.resume_token = session_id, resume_token
        self.closing = None
        self.is_over = False
        self.active_contexts = 0
        self.commands: list = []
        self.records: list = []
        self.events: list = []
        self.calls: list = []
        self.deadline: float | None = None
        self.cost_s = 0.0

    def take_commands(self, now):
        commands, self.commands = self.commands, []
        return commands

    def take_records(self):
        records, self.records = self.records, []
        return records

    def engine_event(self, event, now):
        self.events.append(event)
        self.world.now += self.cost_s
        self.world.log.append(("event", self.session_id))

    def next_deadline(self):
        return self.deadline

    def timer(self, now):
        self.calls.append(("timer", now))
        self.deadline = None

    def detach(self, now, resumable=True):
        self.calls.append(("detach", resumable))
        self.is_over = not resumable

    def attach(self, now):
        self.calls.append(("attach",))

    def drain(self, deadline_s, now):
        self.calls.append(("drain", deadline_s))

    def abandon(self):
        self.calls.append(("abandon",))

    def shutdown(self, now):
        self.calls.append(("shutdown",))
        self.closing, self.is_over = "shutting_down", True


class FakeOutlet:
    def __init__(self, world) -> None:
        self.world, self.host, self.calls = world, None, []

    def flush(self):
        self.world.log.append(("flush", self.host.session.session_id if self.host else "?"))

    def replaced(self):
        self.calls.append("replaced")

    def failed(self):
        self.calls.append("failed")


class World:
    """A hub with a clock of its own."""

    def __init__(self, monkeypatch, **options) -> None:
        self.now = 1000.0
        self.log: list = []
        self.submitted: list = []
        self.told: list = []
        self.records: list = []
        monkeypatch.setattr(hub_module, "Session", FakeSession)
        FakeSession.world = self
        engine = SimpleNamespace(submit=lambda commands: self.submitted.append(list(commands)))
        self.hub = Hub(
            engine, Service(epoch_s=0.0), None, Metrics(budget_s=0.5, version="0"),
            clock=lambda: self.now,
            on_engine_event=lambda event, now: self.told.append(event),
            on_record=lambda record, now: self.records.append(record),
            max_detached=options.get("max_detached", 10),
            encoders=Encoders(0),
        )  # fmt: skip

    def session(self, *utterances: int):
        outlet = FakeOutlet(self)
        host = self.hub.open(outlet)
        outlet.host = host
        host.session.commands = [StartUtterance(each, "v") for each in utterances]
        self.hub.pump(host)
        self.log.clear()
        return host


@pytest.fixture
async def world(monkeypatch):
    return World(monkeypatch)


def audio(utterance: int) -> AudioProduced:
    return AudioProduced(utterance, 0, b"\0\0")


def finished(utterance: int) -> UtteranceFinished:
    return UtteranceFinished(utterance, FinishReason.COMPLETED)


async def test_events_go_to_the_session_that_started_the_utterance(world):
    """Routing is by utterance, ends with the terminal event, and ignores what is unknown."""
    one, two = world.session(1, 2), world.session(3)
    world.hub.deliver([audio(1), audio(3), audio(99), finished(1), audio(1), audio(2)])
    assert [e for e in one.session.events if e.utterance_id == 1] == [audio(1), finished(1)]
    assert [e for e in one.session.events if e.utterance_id == 2] == [audio(2)]
    assert two.session.events == [audio(3)]
    assert set(world.hub._routes) == {2, 3} and one.utterances == {2}


async def test_first_audio_goes_first_and_each_piece_is_written_at_once(world):
    """Whoever waits in silence is served before anybody's later audio is encoded."""
    one, two = world.session(1), world.session(2)
    a, b = one.session.session_id, two.session.session_id
    world.hub.deliver([audio(1), audio(1), audio(1), audio(2)])
    turns = [a, b, a, a]
    assert world.log == [entry for who in turns for entry in (("event", who), ("flush", who))]


async def test_words_wait_for_the_audio_they_are_of(world):
    """Word times are not written alone."""
    one = world.session(1)
    world.hub.deliver([WordsTimed(1, 0, (), True), audio(1)])
    assert [kind for kind, _ in world.log] == ["event", "event", "flush"]
    assert len(one.session.events) == 2


async def test_pieces_for_who_has_plenty_share_a_write(world):
    """Once a listener has a second in hand, pieces are written together, and the last ones too."""
    one = world.session(1)
    world.hub.deliver([AudioProduced(1, 0, bytes(2 * 1920)) for _ in range(40)])
    kinds = [kind for kind, _ in world.log]
    assert kinds.count("event") == 40 and one.session.events
    assert kinds[:24] == ["event", "flush"] * 12
    assert kinds.count("flush") < 25 and kinds[-1] == "flush"


async def test_engine_events_go_to_the_server(world):
    """What is not about an utterance is told once, in order."""
    one = world.session(1)
    load = EngineLoad(1, 0.0, 0.1)
    world.hub.deliver([audio(1), load, audio(1)])
    assert world.told == [load]
    assert one.session.events == [audio(1), audio(1)]


async def test_a_long_batch_lets_the_loop_breathe(world):
    """After a few milliseconds of encoding the loop turns; nothing is lost, order is kept."""
    hosts = [world.session(n) for n in range(1, 51)]
    for host in hosts:
        host.session.cost_s = 0.001
    turns = []

    def tick(n=0):
        turns.append(sum(len(host.session.events) for host in hosts))
        if n < 100:
            asyncio.get_running_loop().call_soon(tick, n + 1)

    tick()
    load = EngineLoad(1, 0.0, 0.1)
    world.hub.deliver([*(audio(n) for n in range(1, 51)), load])
    world.hub.deliver([audio(n) for n in range(1, 51)])  # while the first is still being handled
    done_at_once = sum(len(host.session.events) for host in hosts)
    assert 3 <= done_at_once <= 8
    await eventually(lambda: sum(len(host.session.events) for host in hosts) == 100)
    assert all(len(host.session.events) == 2 for host in hosts)
    assert world.told == [load]
    assert max(b - a for a, b in zip(turns, turns[1:], strict=False)) <= 8


@given(st.lists(st.lists(st.integers(1, 6), max_size=12), max_size=6))
async def test_any_batches_arrive_whole_and_in_order(batches):
    """However events are cut into batches, each utterance's arrive in order and none is lost."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(patch)
        owners = {1: world.session(1, 2), 3: world.session(3), 4: world.session(4, 5, 6)}
        owners |= {2: owners[1], 5: owners[4], 6: owners[4]}
        number, expected = 0, {utterance: [] for utterance in owners}
        for batch in batches:
            events = []
            for utterance in batch:
                number += 1
                event = AudioProduced(utterance, number, b"")
                events.append(event)
                expected[utterance].append(event)
            world.now += 0.003
            world.hub.deliver(events)
        for utterance, host in owners.items():
            heard = [e for e in host.session.events if e.utterance_id == utterance]
            assert heard == expected[utterance]
        assert not world.hub._turns


async def test_commands_leave_before_and_after_speaking(world):
    """What a session wants of the engine is submitted in the same turn, in order."""
    host = world.session()
    host.session.commands = [StartUtterance(7, "v"), GrantAudio(7, 1.0)]
    world.submitted.clear()
    world.hub.pump(host)
    assert world.submitted == [[StartUtterance(7, "v"), GrantAudio(7, 1.0)]]
    assert world.hub._routes[7] is host


async def test_one_timer_follows_the_deadline(world):
    """A later deadline costs no new timer, an earlier one replaces it, an early wake-up waits on."""
    host = world.session()
    host.session.deadline = 1000.05
    world.hub.pump(host)
    first = host.timer
    host.session.deadline = 1000.2
    world.hub.pump(host)
    assert host.timer is first
    host.session.deadline = 1000.02
    world.hub.pump(host)
    assert host.timer is not first and first.cancelled()
    host.session.deadline = 1000.04
    world.now = 1000.021
    await asyncio.sleep(0.04)  # fires for 1000.02: too early by the session's clock
    assert ("timer", 1000.021) not in host.session.calls
    assert host.timer is not None and host.timer_at == 1000.04
    world.now = 1000.5
    await eventually(lambda: ("timer", 1000.5) in host.session.calls)
    assert host.timer is None


async def test_a_lost_socket_waits_or_ends(world):
    """A session whose client left on purpose is forgotten, another waits to be found."""
    gone, waits = world.session(), world.session()
    world.hub.lost(gone, is_resumable=False)
    world.hub.lost(waits, is_resumable=True)
    assert world.hub.sessions == 1
    assert world.hub.find(gone.session.resume_token) is None
    assert world.hub.find(waits.session.resume_token) is waits
    assert world.hub.find("nonsense") is None


async def test_taking_over_tells_the_former_socket(world):
    """The session moves to the new outlet; the old one hears of it; the id stays."""
    host = world.session()
    former, latter = host.outlet, FakeOutlet(world)
    world.hub.take_over(host, latter)
    assert former.calls == ["replaced"] and host.outlet is latter
    assert host.session.calls == [("detach", True), ("attach",)]
    assert world.hub.sessions == 1 and not world.hub._detached


async def test_the_longest_away_goes_first(monkeypatch):
    """Waiting sessions are bounded."""
    world = World(monkeypatch, max_detached=2)
    hosts = [world.session() for _ in range(4)]
    for host in hosts:
        world.hub.lost(host, is_resumable=True)
    assert [("shutdown",) in host.session.calls for host in hosts] == [True, True, False, False]
    assert world.hub.sessions == 2


async def test_draining(world):
    """Idle and absent sessions end at once, busy ones when their contexts have."""
    idle, busy, away = world.session(), world.session(1), world.session()
    busy.session.active_contexts = 1
    world.hub.lost(away, is_resumable=True)
    world.hub.drain(20.0)
    assert ("drain", 20.0) in idle.session.calls and ("shutdown",) in idle.session.calls
    assert ("shutdown",) in away.session.calls
    assert busy.session.calls == [("drain", 20.0)]
    assert world.hub.sessions == 1 and not world.hub.is_empty.is_set()
    busy.session.active_contexts = 0
    world.hub.deliver([finished(1)])
    assert ("shutdown",) in busy.session.calls
    assert world.hub.is_empty.is_set()


async def test_stop_all_ends_everybody(world):
    """Busy or not, every session is shut down once."""
    hosts = [world.session(n) for n in (1, 2, 3)]
    hosts[0].session.active_contexts = 5
    world.hub.stop_all()
    world.hub.stop_all()
    assert [host.session.calls for host in hosts] == [[("shutdown",)]] * 3


async def test_a_broken_session_is_cut_out(world, caplog):
    """It is logged, its utterances are cancelled, its client told; events for it are dropped."""
    bad, good = world.session(1, 2), world.session(3)
    outlet = bad.outlet
    bad.session.engine_event = lambda event, now: 1 / 0
    world.hub.deliver([audio(1), audio(3), audio(2)])
    assert outlet.calls == ["failed"]
    assert world.submitted[-1] == [CancelUtterance(1), CancelUtterance(2)]
    assert "ZeroDivisionError" in caplog.text and bad.session.session_id in caplog.text
    assert good.session.events == [audio(3)]
    assert world.hub.sessions == 1 and set(world.hub._routes) == {3}
    world.hub.deliver([finished(1), finished(2)])


async def test_an_engine_event_that_breaks_the_server_does_not_stop_the_rest(world, caplog):
    """A bug in handling one engine event leaves the routing alive."""
    one = world.session(1)
    world.hub._on_engine_event = lambda event, now: 1 / 0
    world.hub.deliver([EngineLoad(0, 0, 0), audio(1)])
    assert one.session.events == [audio(1)]
    assert "ZeroDivisionError" in caplog.text


async def test_a_bug_in_the_hub_itself_does_not_silence_everybody(world, monkeypatch):
    """Whatever raises, events that come later are handled."""
    one = world.session(1)
    monkeypatch.setattr(world.hub, "_hand_over", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.hub.deliver([audio(1)])
    monkeypatch.undo()
    world.hub.deliver([audio(1)])
    assert one.session.events == [audio(1)]
