"""What a hasty, unlucky or hostile client meets: bounded, typed, and never worse than its mistake."""

from __future__ import annotations

import pytest

from rtts.engine.interface import EngineDown, UtteranceFailed
from rtts.errors import BadRequestError
from rtts.protocol.events import Audio, Done, Error, Flush, Format, Playback, Start, Started, Text
from rtts.session import SessionOptions
from tests.session.world import World

SENTENCE = "Sure, I can help you with that today. "


@pytest.mark.parametrize("silent", ["\n```python\n" + "x = call(1, 2)\n" * 1200, " \n" * 9000])
def test_text_with_nothing_to_speak_does_not_fill_the_buffer(silent):
    """Text that was dropped waits for nothing, so it takes no room: a long listing goes through."""
    world = World()
    world.say(SENTENCE, end=False)
    for start in range(0, len(silent), 100):
        world.say(silent[start : start + 100], end=False)
        world.advance(0.1)
    world.say("\n```\n\nThat is all of it.")
    world.advance(20)
    assert not world.of(Error)
    assert world.done().reason == "completed"
    assert world.done().text_chars > 16_000


def test_a_bomb_of_breaks_costs_a_bounded_silence():
    """Breaks in a row add up to a minute at most, however many are sent."""
    world = World()
    for _ in range(20):
        world.say("<break time='10s'/>" * 100, end=False)
    world.say("And now.")
    world.advance(100)
    done = world.done()
    assert done.reason == "completed"
    assert 60_000 < done.audio_ms < 63_000


def test_stray_text_after_an_ending_costs_no_connection():
    """Tokens that cross a barge-in, or the engine's death, are refused and are no mistakes."""
    world = World()
    world.engine_runs = False
    world.send(Text(ctx="a", text=SENTENCE * 8))
    world.deliver(UtteranceFailed(1, "engine_dead", "gone", True, 1.0))
    world.pump()
    assert world.done("a").reason == "error"
    for _ in range(40):
        world.send(Text(ctx="a", text="token "))
    assert {error.code for error in world.of(Error, "a")} == {"engine_dead", "unknown_ctx"}
    assert not any(error.fatal for error in world.of(Error))
    assert world.session.closing is None


def test_numbered_text_behind_a_refused_one_is_refused_alike():
    """When the buffer is full, what was on its way is refused with it and is no mistake."""
    world = World()
    world.send(Text(ctx="a", text=SENTENCE * 100, n=0))
    for n in range(1, 41):
        world.send(Text(ctx="a", text=SENTENCE * 10, n=n, id=str(n)))
    errors = world.of(Error, "a")
    assert [error.code for error in errors] == ["text_buffer_full"] * 40
    assert all(error.retry_after_ms for error in errors)
    assert world.session.closing is None
    world.advance(300)
    world.send(Text(ctx="a", text="Last.", n=1, end=True))
    world.advance(30)
    assert world.done().reason == "completed"
    world.send(Text(ctx="c", text="One. ", n=0), Text(ctx="c", text="Two. ", n=2))
    assert world.of(Error, "c")[0].code == "bad_request"  # a gap of the client's own


@pytest.mark.parametrize(
    ("text", "code"), [(Text(ctx="a", text="b", n=3), "bad_request"),
                       (Text(ctx="a", text="x" * 5000), "text_too_long")],
)  # fmt: skip
def test_a_text_that_cannot_be_taken_opens_nothing(text, code):
    """It is refused as a broken `start` is: error, `done`, and what follows it is ignored."""
    world = World()
    world.send(text)
    assert [type(message) for message in world.messages] == [Error, Done]
    assert world.done().code == world.of(Error)[0].code == code
    world.send(Text(ctx="a", text="and the rest of it, too"), Flush(ctx="a"))
    assert len(world.messages) == 2
    world.send(Start(ctx="a"))
    assert world.of(Started, "a")


def test_a_broken_text_that_would_have_opened_a_context_opens_nothing():
    """The rest of a text with a hole at its beginning is not spoken."""
    world = World()

    def broken(ctx):
        error = BadRequestError("text: NUL")
        error.message_type = "text"
        world.session.reject(error, world.now, ctx=ctx)
        world.pump()

    broken("a")
    assert [type(message) for message in world.messages] == [Error, Done]
    broken("a")  # refused already: the error, and no second end
    assert [type(message) for message in world.messages] == [Error, Done, Error]
    world.say("the rest of it")
    assert not world.of(Audio)


@pytest.mark.parametrize("markers", [True, False])
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("lead_ms", [0, 5000])
def test_a_long_pause_ends_by_itself(markers, reports, lead_ms):
    """Where there is room for silence it is made at once, whatever the pace is kept by."""
    world = World(SessionOptions(delivery_markers=markers))
    world.send(Start(ctx="a", max_lead_ms=lead_ms))
    if reports:
        world.send(Playback(ctx="a", played_ms=0))
    world.say("One.<break time='10s'/>Two.")
    world.advance(0.1)
    assert world.audio_s() > (4.9 if lead_ms else 10.0)


def test_a_listener_who_never_plays_is_not_waited_for_for_ever():
    """A context whose client reports no progress, and says nothing, expires and frees the engine."""
    world = World(SessionOptions(idle_timeout_s=20.0, max_lead_s=2.0))
    world.send(Start(ctx="a"), Playback(ctx="a", played_ms=0))
    world.say(SENTENCE * 20, end=True)
    world.advance(15)
    assert not world.of(Done)
    world.advance(10)
    assert world.done().reason == "expired"
    assert world.service.live_utterances == 0


def test_a_context_that_is_paced_does_not_expire():
    """A lead longer than the idle limit is no idleness."""
    world = World(SessionOptions(idle_timeout_s=1.0, max_lead_s=20.0))
    world.say(SENTENCE * 30, end=True)
    world.advance(120)
    assert world.done().reason == "completed"


@pytest.mark.parametrize(
    ("fmt", "most_s"), [(Format(codec="pcm_s16le", sample_rate=48_000), 11), (Format(), 61)]
)
def test_a_file_nobody_reads_is_bounded_in_bytes(fmt, most_s):
    """Without a lead limit what is unconfirmed is a minute, and a megabyte: also of PCM."""
    world = World()
    world.reads = False
    world.send(Start(ctx="a", format=fmt, max_lead_ms=0))
    world.say(SENTENCE * 100)
    world.advance(5)
    assert most_s - 3 < world.audio_s() < most_s
    world.reads = True
    world.session.delivered(10_000, world.now)
    world.advance(5)
    assert world.done().reason == "completed"


def test_a_fatal_error_is_the_code_of_what_it_ended():
    """`done` with reason `error` says which, also where the whole connection ends."""
    world = World()
    world.say(SENTENCE, end=False)
    for _ in range(10):
        world.send(Flush(ctx="nobody"))
    assert world.session.closing.code == "unknown_ctx"
    assert (world.done().reason, world.done().code) == ("error", "unknown_ctx")


def test_an_engine_that_is_down_refuses_and_keeps_the_socket():
    """Refused again and again, a client keeps its connection and its other contexts."""
    world = World()
    world.deliver(EngineDown("gone", 1.0))
    for index in range(30):
        world.say("Hello.", ctx=f"c{index}")
    assert {error.code for error in world.of(Error)} == {"engine_dead"}
    assert world.session.closing is None
