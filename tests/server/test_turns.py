"""Order within an utterance, fairness between them, and nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.interface import AudioProduced, FinishReason, UtteranceFinished, WordsTimed
from rtts.server.turns import COMFORT_S, TURN_AUDIO_S, Turns

events = st.tuples(st.integers(1, 4), st.sampled_from(["audio", "words", "end"]), st.integers(0, 8))


def made(utterance: int, kind: str, n: int, size: int = 1):
    if kind == "audio":
        return AudioProduced(utterance, n, b"\0\0" * 1920 * size)
    if kind == "words":
        return WordsTimed(utterance, n, (), True)
    return UtteranceFinished(utterance, FinishReason.COMPLETED)


def drained(turns: Turns, now: float = 1000.0) -> list:
    out = []
    while turns:
        out.append(turns.pop(now)[0])
    return out


@given(st.lists(st.one_of(events, st.just("pop")), max_size=120))
def test_every_utterances_events_come_out_in_order(steps):
    """Whatever is pushed and popped in between, an utterance's events keep their order."""
    turns, pushed, popped = Turns(), {u: [] for u in range(1, 5)}, []
    for utterance in pushed:
        turns.begin(utterance)
    for n, step in enumerate(steps):
        if step == "pop":
            if turns:
                popped.append(turns.pop(1000.0 + n / 100)[0])
        else:
            utterance, kind, size = step
            event = made(utterance, kind, n, size)
            pushed[utterance].append(event)
            turns.push(event)
    popped += drained(turns)
    for utterance, expected in pushed.items():
        assert [event for event in popped if event.utterance_id == utterance] == expected


@given(st.integers(2, 12), st.integers(1, 40))
def test_all_get_ahead_together(n_utterances, n_chunks):
    """Of many replies handed over one after the other, none gets ahead of another.

    By more than a piece while a listener has little in hand; by more than a turn when all have
    plenty.
    """
    turns = Turns()
    for utterance in range(n_utterances):
        turns.begin(utterance)
        for n in range(n_chunks):
            turns.push(made(utterance, "audio", n))
    heard = dict.fromkeys(range(n_utterances), 0)
    while turns:
        event, is_awaited = turns.pop(1000.0)
        assert is_awaited == (heard[event.utterance_id] * 0.08 < COMFORT_S)
        heard[event.utterance_id] += 1
        least, most = min(heard.values()), max(heard.values())
        assert most - least <= (1 if least * 0.08 < COMFORT_S - TURN_AUDIO_S else 5)


def test_a_turn_is_a_few_pieces_between_those_who_have_plenty():
    """Runs of one utterance, so that they share a write; singly while anybody may run dry."""
    turns, runs = Turns(), []
    for utterance in (1, 2):
        turns.begin(utterance)
        for n in range(60):
            turns.push(made(utterance, "audio", n))
    for event in drained(turns):
        if runs and runs[-1][0] == event.utterance_id:
            runs[-1][1] += 1
        else:
            runs.append([event.utterance_id, 1])
    assert all(length == 1 for _, length in runs[:20])
    assert min(length for _, length in runs[30:-2]) >= 3 and max(n for _, n in runs) <= 9


def test_who_has_heard_nothing_comes_first():
    """A first chunk is handed over before anybody's second."""
    turns = Turns()
    for utterance in (1, 2):
        turns.begin(utterance)
    turns.push(made(1, "audio", 0))
    assert turns.pop(1000.0)[0].utterance_id == 1
    turns.push(made(1, "audio", 1))
    turns.push(made(2, "words", 0))
    turns.push(made(2, "audio", 0))
    assert [event.utterance_id for event in drained(turns)] == [2, 2, 1]


def test_who_is_dry_comes_before_who_is_ahead():
    """The listener who has nothing left is served before one with seconds in hand."""
    turns = Turns()
    for utterance in (1, 2):
        turns.begin(utterance)
        turns.push(made(utterance, "audio", 0, size=1 if utterance == 2 else 50))
    drained(turns)  # 1 has heard until 1004, 2 until 1000.08
    turns.push(made(1, "audio", 1))
    turns.push(made(2, "audio", 1))
    assert turns.pop(1002.0)[0].utterance_id == 2


def test_an_end_does_not_wait_for_others_audio():
    """What costs nothing is handed over at once."""
    turns = Turns()
    for utterance in (1, 2):
        turns.begin(utterance)
        turns.push(made(utterance, "audio", 0, size=40))
    drained(turns)
    for n in range(5):
        turns.push(made(1, "audio", n))
    turns.push(made(2, "end", 0))
    assert turns.pop(1000.0)[0].utterance_id == 2


def test_what_has_ended_is_dropped():
    """Events of unknown and ended utterances go nowhere, and leave nothing behind."""
    turns = Turns()
    turns.push(made(9, "audio", 0))
    assert not turns
    turns.begin(1)
    turns.push(made(1, "audio", 0))
    turns.push(made(1, "audio", 1))
    turns.end(1)
    turns.push(made(1, "audio", 2))
    assert not turns and turns.utterances == 0 and not turns._due


def test_the_engines_rate_counts():
    """How far a listener has heard is in seconds of the engine's rate."""
    turns = Turns()
    turns.rate_hz = 48_000
    turns.begin(1)
    turns.push(made(1, "audio", 0))
    turns.pop(1000.0)
    assert turns._lines[1].heard_until == 1000.04


def test_a_held_line_waits_and_keeps_its_order():
    """Nothing comes of an utterance that is held, others go on; released, its events come in order;
    one that ended meanwhile is released without a word."""
    turns = Turns()
    for utterance in (1, 2):
        turns.begin(utterance)
    first, second, third = (made(1, "audio", n) for n in range(3))
    turns.push(first)
    turns.push(second)
    assert turns.pop(1000.0)[0] is first
    turns.hold(1)
    turns.push(third)
    other = made(2, "audio", 0)
    turns.push(other)
    assert turns and turns.is_urgent
    assert drained(turns) == [other]
    assert not turns
    turns.release(1)
    assert drained(turns) == [second, third]
    turns.hold(2)
    turns.end(2)
    turns.release(2)
    assert not turns


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["push", "pop", "hold", "release"]))))
def test_holding_loses_and_doubles_nothing(steps):
    """Held and released at any time, also with events waiting behind others': each comes once, in
    order, and never while its utterance is held."""
    turns, pushed, popped, held = Turns(), {u: [] for u in (1, 2, 3)}, [], set()
    for utterance in pushed:
        turns.begin(utterance)
    for n, (utterance, step) in enumerate(steps):
        if step == "push":
            pushed[utterance].append(made(utterance, "audio", n, size=1 + n % 5))
            turns.push(pushed[utterance][-1])
        elif step == "pop":
            if turns:
                popped.append(turns.pop(1000.0 + n / 10)[0])
                assert popped[-1].utterance_id not in held
        elif step == "hold":
            turns.hold(utterance)
            held.add(utterance)
        else:
            turns.release(utterance)
            held.discard(utterance)
    for utterance in pushed:
        turns.release(utterance)
    popped += drained(turns)
    for utterance, events_ in pushed.items():
        assert events_ == [event for event in popped if event.utterance_id == utterance]
