"""Qwen-TTS-Realtime: responses in both modes, whose events come in the one order there is."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.ogg import read_ogg_opus
from rtts.audio.wav import read_wav
from rtts.engine.tone import ToneOptions
from rtts.errors import BadRequestError
from rtts.protocol import dashscope
from rtts.protocol.dialect import Request
from rtts.protocol.events import Done, Error, Start, Started
from rtts.voices.aliases import AliasOptions
from tests.protocol.dialects.world import SocketWorld
from tests.protocol.strategies import JSON

ONE, TWO = "Hello there, this is a test. ", "It goes on for a while. "
TEXT = ONE + TWO
SLOW = ToneOptions(real_time_factor=0.5)
MODEL = "qwen3-tts-flash-realtime"
OPENING = ["response.created", "response.output_item.added", "response.content_part.added"]
ENDING = [
    *("response.audio.done", "response.content_part.done"),
    *("response.output_item.done", "response.done"),
]
RESPONSE = [*OPENING, "response.audio.delta", *ENDING]


def event(kind: str, **fields) -> dict:
    return {"event_id": "event_1", "type": kind, **fields}


def update(**session) -> dict:
    return event("session.update", session={"voice": "Cherry", "mode": "server_commit"} | session)


def append(text: str) -> dict:
    return event("input_text_buffer.append", text=text)


COMMIT, CLEAR = event("input_text_buffer.commit"), event("input_text_buffer.clear")
CANCEL, FINISH = event("response.cancel"), event("session.finish")


def connect(**rest) -> SocketWorld:
    return SocketWorld(dashscope.Realtime, Request(query={"model": MODEL}), **rest)


def talk(*messages, seconds: float = 60.0, **rest) -> SocketWorld:
    world = connect(**rest)
    world.tell(*messages)
    world.advance(seconds)
    return world


def audio(world: SocketWorld) -> bytes:
    deltas = world.of_type("response.audio.delta")
    return b"".join(base64.b64decode(delta["delta"]) for delta in deltas)


def kinds(world: SocketWorld) -> list[str]:
    """Types of events in order, runs of audio as one."""
    found: list[str] = []
    for frame in world.frames:
        kind = frame["type"]
        if not found or kind != "response.audio.delta" or found[-1] != kind:
            found.append(kind)
    return found


def test_a_session_from_end_to_end():
    """Everything that is announced, in its order, as text; then the server closes."""
    words = [append(word + " ") for word in TEXT.split()]
    world = talk(update(), *words, FINISH)
    assert kinds(world) == ["session.created", "session.updated", *RESPONSE, "session.finished"]
    assert world.hangup.code == 1000
    assert len(audio(world)) == 2 * world.of(Done)[0].samples > 20_000
    ids = [frame["event_id"] for frame in world.frames]
    assert len(set(ids)) == len(ids)
    [created], [ended] = world.of_type("response.created"), world.of_type("response.done")
    assert created["response"]["id"] == ended["response"]["id"]
    assert created["response"]["status"] == "in_progress"
    assert ended["response"]["status"] == "completed"
    assert ended["response"]["usage"]["characters"] == len(TEXT)
    deltas = world.of_type("response.audio.delta")
    for delta in deltas:
        assert (delta["output_index"], delta["content_index"]) == (0, 0)
    assert {delta["response_id"] for delta in deltas} == {created["response"]["id"]}
    assert {delta["item_id"] for delta in deltas} == {ended["response"]["output"][0]["id"]}


def test_the_session_is_told_at_once_and_after_each_change():
    """With the model's name as the client wrote it, and what was not changed as it was."""
    world = talk(update(sample_rate=16_000), update(voice=None, mode="commit", volume=70))
    [created], updated = world.of_type("session.created"), world.of_type("session.updated")
    assert created["session"]["model"] == MODEL and created["session"]["mode"] == "server_commit"
    assert created["session"]["object"] == "realtime.session"
    assert updated[1]["session"] | {"id": ""} == {
        "id": "",
        "object": "realtime.session",
        "model": MODEL,
        "voice": "Cherry",
        "mode": "commit",
        "response_format": "pcm",
        "sample_rate": 16_000,
        "volume": 70,
    }


def test_server_commit_speaks_before_the_end():
    """A finished sentence is spoken at once."""
    world = connect()
    world.tell(append(ONE + "and"))
    world.advance(1.0)
    assert kinds(world) == ["session.created", *OPENING, "response.audio.delta"]


def test_a_commit_ends_a_response_also_in_server_commit():
    """What was buffered is spoken at once, and text behind it is the next response."""
    world = talk(append("no end"), COMMIT, append(TWO), COMMIT, tone=SLOW)
    assert [k for k in kinds(world) if "committed" not in k] == ["session.created", *2 * RESPONSE]
    assert len(world.of_type("input_text_buffer.committed")) == 2
    characters = [r["response"]["usage"]["characters"] for r in world.of_type("response.done")]
    assert characters == [6, len(TWO)]


def test_text_that_stays_away_ends_a_response():
    """Clients that never commit hear of the end; text that comes in time is of the same response."""
    world = connect()
    world.tell(append(ONE))
    world.advance(1.5)
    world.tell(append(TWO))
    world.advance(1.5)
    assert not world.of_type("response.done")
    world.advance(10.0)
    assert kinds(world) == ["session.created", *RESPONSE]
    world.tell(append(ONE))
    world.advance(10.0)
    assert kinds(world) == ["session.created", *RESPONSE, *RESPONSE]


def test_in_commit_nothing_is_spoken_without_one():
    """Each commit is a response, with the item that `committed` names; they come in order."""
    world = connect(tone=SLOW)
    world.tell(update(mode="commit"), append("Hello th"), append("ere. "))
    world.advance(30.0)
    assert kinds(world) == ["session.created", "session.updated"]
    world.tell(COMMIT, append(TWO), COMMIT)
    world.advance(30.0)
    assert [k for k in kinds(world)[2:] if "committed" not in k] == 2 * RESPONSE
    items = [r["response"]["output"][0]["id"] for r in world.of_type("response.done")]
    assert [c["item_id"] for c in world.of_type("input_text_buffer.committed")] == items


def test_finish_speaks_what_was_not_committed():
    """And everything that waits."""
    world = talk(update(mode="commit"), append(ONE), COMMIT, append(TWO), FINISH, tone=SLOW)
    assert len(world.of_type("response.done")) == 2
    assert kinds(world)[-1] == "session.finished" and world.hangup.code == 1000
    assert kinds(talk(FINISH)) == ["session.created", "session.finished"]


def test_clear_stops_speech():
    """The response is cancelled, the engine is told, and no audio follows `cleared`."""
    world = connect(tone=SLOW)
    world.tell(append(TEXT * 5))
    world.advance(0.5)
    heard = len(audio(world))
    assert heard
    world.tell(CLEAR)
    world.advance(10.0)
    assert kinds(world)[-5:] == [*ENDING, "input_text_buffer.cleared"]
    assert world.of_type("response.done")[0]["response"]["status"] == "cancelled"
    assert len(audio(world)) == heard and world.service.live_utterances == 0
    world.tell(append(ONE), FINISH)
    world.advance(10.0)
    assert kinds(world)[-9:] == [*RESPONSE, "session.finished"]


def test_clear_in_commit_forgets_what_was_not_committed():
    """What was committed is spoken on; a second clear, with nothing to forget, stops it."""
    world = connect(tone=SLOW)
    world.tell(update(mode="commit"), append(TEXT * 5), COMMIT, append("Oops."))
    world.advance(0.5)
    world.tell(CLEAR)
    assert not world.of_type("response.done")
    world.tell(COMMIT)
    assert world.of_type("error")[0]["error"]["message"] == "input_text_buffer: is empty"
    world.tell(CLEAR)
    assert world.of_type("response.done")[0]["response"]["status"] == "cancelled"
    assert world.service.live_utterances == 0
    assert len(world.of_type("input_text_buffer.cleared")) == 2


def test_cancel_stops_speech_and_what_waits():
    """Uncommitted text stays; without a response it is nothing."""
    world = connect(tone=SLOW)
    world.tell(CANCEL, update(mode="commit"), append(TEXT), COMMIT, append(TWO), COMMIT)
    world.tell(append("Left."))
    world.advance(0.3)
    world.tell(CANCEL, COMMIT)
    world.advance(10.0)
    ends = [done["response"] for done in world.of_type("response.done")]
    assert [end["status"] for end in ends] == ["cancelled", "completed"]
    assert ends[1]["usage"]["characters"] == len("Left.")


def test_cancel_while_the_rest_is_spoken_ends_the_session():
    """After `session.finish` an interruption still counts."""
    world = connect(tone=SLOW)
    world.tell(append(TEXT * 5), FINISH)
    world.advance(0.5)
    world.tell(CANCEL)
    assert kinds(world)[-5:] == [*ENDING, "session.finished"] and world.hangup.code == 1000


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_rates_of_pcm_and_wav(rate):
    """As many samples as were made; each response is a file of its own."""
    world = talk(update(sample_rate=rate), append(TEXT), FINISH)
    assert len(audio(world)) == 2 * world.of(Done)[0].samples
    older = talk(update(sample_rate=rate, response_format="pcm16"), append(TEXT), FINISH)
    assert audio(older) == audio(world)
    world = talk(update(sample_rate=rate, response_format="wav"), append(TEXT), FINISH)
    assert len(read_wav(audio(world)).pcm) == 2 * world.of(Done)[0].samples


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("bit_rate", [None, 6, 510])
def test_opus_and_mp3(rate, bit_rate):
    """Ogg at every rate and MP3 from 16 kHz, with the nearest bit rate there is."""
    asked = {"sample_rate": rate, "bit_rate": bit_rate}
    world = talk(update(response_format="opus", **asked), append(TEXT), FINISH)
    assert len(read_ogg_opus(audio(world)).packets) > 50
    world = talk(update(response_format="mp3", **asked), append(TEXT), FINISH)
    if rate == 8000:
        assert world.of_type("error")[0]["error"]["param"] == "session.sample_rate"
    else:
        assert audio(world)[0] == 0xFF


def test_nothing_to_speak_is_a_little_silence():
    """An emoji yields a delta and an end."""
    world = talk(append("\N{GRINNING FACE}"), COMMIT)
    assert [k for k in kinds(world) if "committed" not in k] == ["session.created", *RESPONSE]
    assert not any(audio(world))


@pytest.mark.parametrize(
    "wrong",
    [
        {"voice": "Nobody"},
        {"mode": "whenever"},
        {"response_format": "flac"},
        {"sample_rate": 12_345},
        {"bit_rate": 5},
        {"speech_rate": 9},
        {"language_type": "Klingon"},
        {"instructions": 5},
    ],
)
def test_wrong_settings_change_nothing(wrong):
    """An error that repeats the event's id; what held before holds."""
    world = talk(update(sample_rate=16_000), update(**wrong), append(ONE), FINISH)
    [error] = world.of_type("error")
    assert error["error"]["event_id"] == "event_1" and error["error"]["message"]
    assert error["error"]["type"] == "invalid_request_error"
    assert len(world.of_type("session.updated")) == 1
    assert kinds(world)[-1] == "session.finished" and audio(world)


def test_what_the_session_is_asked_for():
    """Language, instructions and speed get there, if they were said."""
    world = connect()
    asked = {"language_type": "English", "instructions": "Softly.", "speech_rate": 2.0}
    world.tell(update(**asked, mode="commit"), append(ONE))
    [start] = [s for s in world.dialect.receive(json.dumps(COMMIT).encode(), 0.0) if is_start(s)]
    assert (start.language, start.instructions) == ("English", "Softly.")
    assert start.speed == 2.0
    world = connect()
    world.tell(update(language_type="Auto", instructions=""), update())
    [start] = [
        s for s in world.dialect.receive(json.dumps(append(ONE)).encode(), 0.0) if is_start(s)
    ]
    assert start.language is None and start.instructions is None and start.speed is None


def is_start(step) -> bool:
    return isinstance(step, Start)


def test_settings_change_between_responses():
    """Not inside one."""
    world = talk(append(ONE), update(sample_rate=8000), COMMIT)
    assert len(world.of_type("error")) == 1 and not world.of_type("session.updated")
    world.tell(update(sample_rate=8000), append(ONE), FINISH)
    world.advance(10.0)
    first, second = world.of(Done)
    assert first.samples == pytest.approx(3 * second.samples, rel=0.01)


@pytest.mark.parametrize("wrong", ["nonsense", "[]", {"type": "response.create"}, {"x": 1}])
def test_a_wrong_event_is_an_error(wrong):
    """And the session goes on; so it does after any number of events at the wrong time."""
    world = talk(wrong, append(ONE), FINISH)
    assert len(world.of_type("error")) == 1 and kinds(world)[-1] == "session.finished"
    world = talk(update(mode="commit"), *20 * [COMMIT], append(ONE), FINISH)
    assert len(world.of_type("error")) == 20 and audio(world)


@pytest.mark.parametrize("name", [7, None, {}, "x" * 500])
def test_events_of_any_name(name):
    """An id that is none, or no id: the event counts all the same."""
    world = talk(append(ONE) | {"event_id": name}, COMMIT | {"event_id": name}, FINISH)
    assert kinds(world)[-1] == "session.finished" and audio(world) and not world.of_type("error")


def test_a_response_that_fails_says_so():
    """`error`, the events of its end, status "failed"; the next one is spoken."""
    world = talk(append(TEXT * 3), COMMIT, tone=ToneOptions(fail_at_segment=1))
    assert world.of_type("error")[0]["error"]["type"] == "server_error"
    assert [kind for kind in kinds(world) if "committed" not in kind][-4:] == ENDING
    assert world.of_type("response.done")[0]["response"]["status"] == "failed"
    world.tell(append("Hi."), FINISH)
    world.advance(10.0)
    assert world.of_type("response.done")[1]["response"]["status"] == "completed"


def test_names_of_voices():
    """Hosted names are voices here; the operator's table counts."""
    voices = connect().dialect.house.capabilities.voices
    aliases = AliasOptions(voices={"Cherry": voices[-1].id})
    world = talk(update(), append(ONE), FINISH, aliases=aliases)
    assert world.of(Started)[0].voice == voices[-1].id
    for name in ("Ethan", "Ono Anna", "Eldric Sage", "Serena"):
        assert not talk(update(voice=name)).of_type("error"), name


def test_a_model_can_be_refused():
    """If the operator's table says that it is another one."""
    with pytest.raises(BadRequestError):
        connect(aliases=AliasOptions(models={MODEL: "something-else"}))


def test_waiting_is_bounded():
    """A client that sends and sends is told that it is too much."""
    world = connect(tone=SLOW)
    world.tell(update(mode="commit"), append("x " * 15_000), append("x " * 15_000))
    assert len(world.of_type("error")) == 1


def test_refusals():
    """A body of the service's fields."""
    reply = dashscope.Realtime.refusal(Error(code="unauthorized", message="no", fatal=True))
    body = json.loads(reply.body)
    assert (reply.status, body["code"], body["message"]) == (401, "InvalidApiKey", "no")
    assert len(body["request_id"]) == 36


MESSAGES = st.one_of(
    st.sampled_from([ONE, "Hello th", "", "\N{GRINNING FACE} ", TEXT, "\x00"]).map(append),
    st.sampled_from([COMMIT, CLEAR, CANCEL, event("?")]),
    st.builds(update, mode=st.sampled_from(["commit", "server_commit"])),
    st.sampled_from([0.05, 2.0, "stall", "read"]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=14))
def test_any_order_of_messages(messages):
    """Responses do not overlap, each has all its events in their order, and the session ends."""
    world = connect(tone=ToneOptions(real_time_factor=0.2))
    for message in messages:
        if isinstance(message, dict):
            world.tell(message)
        elif isinstance(message, float):
            world.advance(message)
        else:
            world.writable = message == "read"
    world.writable = True
    world.tell(FINISH)
    world.advance(300.0)
    assert world.hangup.code == 1000 and kinds(world)[-1] == "session.finished"
    order = [*OPENING, "response.audio.delta", *ENDING]
    at = -1
    for kind in (k for k in kinds(world) if k.startswith("response.")):
        step = order.index(kind)
        # A response that was cancelled or failed before its first sound has no audio.
        assert step == at + 1 or (at == 2 and step == 4) or (kind == order[3] and at == 3), kind
        at = -1 if step == len(order) - 1 else step
    assert at == -1
    said = [m for m in messages if isinstance(m, dict)]
    assert len(world.of_type("input_text_buffer.cleared")) == said.count(CLEAR)
    assert world.session.active_contexts == 0 and world.service.live_utterances == 0


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or an error, never another exception."""
    names = ("voice", "mode", "response_format", "sample_rate", "language_type", "instructions")
    for body in (
        *(value, {"type": value}, append(value), event("session.update", session=value)),
        *(update(**{name: value}) for name in names),
        COMMIT | {"event_id": value},
    ):
        world = connect()
        world.tell(json.dumps(body), append(ONE), COMMIT)
        world.advance(1.0)
        assert world.session.closing is None or world.session.closing.code != "internal"
