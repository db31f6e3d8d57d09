"""What is kept for a resume: bounded in bytes and in time, whatever a client does."""

from __future__ import annotations

from rtts.protocol.events import Audio, Format, Start, Text, Warned
from rtts.session import SessionOptions
from rtts.session.replay import MAX_ENDED_LOG_BYTES, MAX_LOG_BYTES, SentLog
from tests.session.world import World

SENTENCE = "Sure, I can help you with that today. "
PCM = Format(codec="pcm_s16le", sample_rate=48_000)


def audio(seq: int, n_bytes: int) -> Audio:
    return Audio(
        ctx="a", stream=1, seq=seq, segment=0, pts=seq, flags=0, npackets=0,
        duration_ms=1, data=bytes(n_bytes),
    )  # fmt: skip


def kept(world: World) -> int:
    return sum(context.delivery.log_bytes for context in world.session._roster.all())


def test_a_log_never_holds_more_than_its_bytes():
    """The cap holds after every message, not only when a timer happens to look."""
    log = SentLog(15.0, 30.0)
    for seq in range(100):
        log.add(audio(seq, 100_000), 1000.0)
        assert log.n_bytes <= MAX_LOG_BYTES
    again = log.after(10)
    assert not again.is_whole
    assert again.messages[-1].seq == 99


def test_what_nobody_confirmed_is_not_kept_for_ever():
    """Unconfirmed audio outlives the window, but only as long as a slow reader is waited for."""
    log = SentLog(15.0, 30.0)
    log.add(audio(0, 1000), 1000.0)
    log.trim(1016.0, lambda _: False)
    assert log.n_bytes
    log.trim(1045.5, lambda _: False)
    assert not log.n_bytes


def test_finished_contexts_together_keep_a_bounded_amount():
    """A conversation of many long replies keeps the newest few megabytes of them."""
    world = World()
    for index in range(12):
        name = f"c{index}"
        world.send(Start(ctx=name, format=PCM, max_lead_ms=0))
        world.send(Text(ctx=name, text=SENTENCE * 6, end=True))
        assert kept(world) <= MAX_ENDED_LOG_BYTES
    assert kept(world) > MAX_ENDED_LOG_BYTES // 2
    world.messages.clear()
    world.session.detach(world.now)
    world.session.attach(world.now)
    world.session.resumed({"c11": -1, "c0": -1}, world.now)
    world.pump()
    assert world.of(Audio, "c11") and not world.of(Audio, "c0")
    assert [warned.ctx for warned in world.of(Warned)] == ["c0"]


def test_an_idle_conversation_forgets_what_it_said():
    """Nothing is kept once no resume can ask for it, though nothing happens on the socket."""
    options = SessionOptions(resume_window_s=15.0, slow_consumer_s=30.0)
    world = World(options)
    world.say(SENTENCE)
    world.advance(10)
    assert kept(world)
    world.advance(40)
    assert not kept(world)
    assert world.session.next_deadline() > world.now + 100  # and it sleeps


def test_a_long_reply_keeps_only_its_window():
    """A context that speaks for minutes keeps the resume window of it, whoever paces it."""
    world = World(SessionOptions(resume_window_s=5.0))
    world.send(Start(ctx="a", format=PCM))
    for _ in range(40):
        world.send(Text(ctx="a", text=SENTENCE))
        world.advance(1.0)
        assert kept(world) <= 96_000 * (5 + 5 + 2 + 2)
