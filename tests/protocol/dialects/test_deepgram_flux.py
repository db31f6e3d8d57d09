"""Deepgram's `/v2/speak`: turns one after another, and what an interruption says was heard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.tone import ToneOptions
from rtts.errors import BadRequestError, UnknownVoiceError, UnsupportedFormatError
from rtts.protocol import deepgram_flux
from rtts.protocol.dialect import Request
from rtts.protocol.events import Done
from tests.protocol.dialects.world import SocketWorld
from tests.protocol.strategies import JSON

ONE, TWO = "Hello there, this is a test. ", "It goes on for a while. "
TEXT = ONE + TWO
FLUSH, INTERRUPT, CLOSE = {"type": "Flush"}, {"type": "Interrupt"}, {"type": "Close"}
SLOW = ToneOptions(real_time_factor=0.5)
QUERY = {"model": "flux-alexis-en", "encoding": "linear16", "sample_rate": "24000"}


def speak(text: str) -> dict:
    return {"type": "Speak", "text": text}


def interrupt(value: float) -> dict:
    return INTERRUPT | {"playback_offset": {"type": "time_ms", "value": value}}


def connect(query: dict | None = None, **rest) -> SocketWorld:
    request = Request(query=QUERY | (query or {}))
    return SocketWorld(deepgram_flux.Flux, request, **rest)


def talk(*messages, seconds: float = 60.0, **rest) -> SocketWorld:
    world = connect(**rest)
    world.tell(*messages)
    world.advance(seconds)
    return world


def audio(world: SocketWorld) -> bytes:
    return b"".join(frame for frame in world.frames if isinstance(frame, bytes))


def kinds(world: SocketWorld) -> list[str]:
    """Types of frames in order, runs of audio as one."""
    found: list[str] = []
    for frame in world.frames:
        kind = "audio" if isinstance(frame, bytes) else frame["type"]
        if not found or kind != "audio" or found[-1] != "audio":
            found.append(kind)
    return found


def test_a_turn():
    """Its audio is between `SpeechStarted` and `SpeechMetadata`, which count it."""
    world = talk(*[speak(word + " ") for word in TEXT.split()], FLUSH)
    assert kinds(world) == [
        *("Connected", "SpeechStarted", "Flushed", "audio", "SpeechMetadata")
    ] or kinds(world) == [
        "Connected",
        "SpeechStarted",
        "audio",
        "Flushed",
        "audio",
        "SpeechMetadata",
    ]
    started, [ended] = world.of_type("SpeechStarted")[0], world.of_type("SpeechMetadata")
    assert started["speech_id"] == ended["speech_id"] == world.of_type("Flushed")[0]["speech_id"]
    assert started["speech_id"].startswith("dg_sp_") and len(started["speech_id"]) == 18
    [done] = world.of(Done)
    assert len(audio(world)) == 2 * done.samples
    assert ended["audio_duration_ms"] == pytest.approx(done.audio_ms, abs=1)
    assert ended["input_character_count"] == ended["billable_character_count"] == len(TEXT)
    assert ended["controls_applied"]["breaks_applied"] == 0


def test_the_first_message_says_who_speaks():
    """`Connected` comes at once."""
    [connected] = connect().frames
    assert connected["type"] == "Connected" and connected["model_name"] == "flux-alexis-en"
    assert len(connected["request_id"]) == 36 and len(connected["model_uuids"]) == 1


def test_speech_begins_before_the_flush():
    """A finished sentence is spoken at once."""
    world = connect()
    world.tell(speak(ONE + "and"))
    world.advance(1.0)
    assert kinds(world) == ["Connected", "SpeechStarted", "audio"]


def test_turns_wait_for_one_another():
    """Text behind a `Flush` is the next turn, which begins when the last is complete."""
    world = talk(speak(ONE), FLUSH, speak("It goes "), speak("on."), FLUSH, tone=SLOW)
    assert kinds(world)[1:] == 2 * ["SpeechStarted", "Flushed", "audio", "SpeechMetadata"]
    assert [m["input_character_count"] for m in world.of_type("SpeechMetadata")] == [len(ONE), 11]
    first, second = world.of_type("SpeechStarted")
    assert first["speech_id"] != second["speech_id"]


def test_an_interruption_says_what_was_heard():
    """With an offset: the text on both sides of it, together all of the turn."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 3), FLUSH)
    world.advance(3.0)
    heard = len(audio(world))
    world.tell(interrupt(1200))
    world.advance(10.0)
    assert len(audio(world)) == heard and world.service.live_utterances == 0
    [said] = world.of_type("SpeechInterrupted")
    assert said["audio_played_ms"] == 1200
    assert said["text_spoken"] + said["text_remaining"] == TEXT * 3
    assert said["text_spoken"].startswith("Hello") and said["text_remaining"]
    assert said["metadata"]["audio_duration_ms"] == heard / 48
    assert not world.of_type("SpeechMetadata")


def test_an_interruption_that_crosses_the_end():
    """A turn that was made whole but is not sent: the text on both sides is all of it, all the same."""
    world = connect()
    world.tell(speak(ONE))
    world.advance(0.01)
    world.writable = False
    world.tell(FLUSH)
    world.advance(30.0)
    world.tell(interrupt(600))
    world.writable = True
    world.advance(1.0)
    [said] = world.of_type("SpeechInterrupted")
    assert said["text_spoken"] + said["text_remaining"] == ONE and said["text_remaining"]
    assert kinds(world)[-1] == "SpeechInterrupted"


def test_an_interruption_without_an_offset():
    """Says how much was made, and nothing about text."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 3))
    world.advance(1.0)
    world.tell(INTERRUPT)
    [said] = world.of_type("SpeechInterrupted")
    assert said["audio_played_ms"] == len(audio(world)) / 48
    assert "text_spoken" not in said and "text_remaining" not in said


def test_offsets_are_of_the_session():
    """An offset counts from the session's start, and from the last one that was reported."""
    world = talk(speak(ONE), FLUSH)
    length_ms = len(audio(world)) / 48
    world.tell(speak(TEXT * 3))
    world.advance(1.0)
    world.tell(interrupt(length_ms + 700))
    first = world.of_type("SpeechInterrupted")[0]
    assert 0 < len(first["text_spoken"]) < len(ONE)
    world.tell(speak(TEXT * 3))
    world.advance(1.0)
    world.tell(interrupt(length_ms + 700))
    assert world.of_type("Warning")[-1]["code"] == "INVALID_INTERRUPT_OFFSET"
    world.tell(interrupt(length_ms + 1400))
    second = world.of_type("SpeechInterrupted")[1]
    assert abs(len(second["text_spoken"]) - len(first["text_spoken"])) < 8
    world.tell(CLOSE)
    assert world.of_type("SessionMetadata")[0]["total_audio_duration_ms"] == round(length_ms + 1400)


def test_an_interruption_takes_what_waits_with_it():
    """Turns that were sent before it are not spoken; those that come after it are."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT), FLUSH, speak(TWO), FLUSH)
    world.advance(0.5)
    world.tell(INTERRUPT, speak("New."), FLUSH)
    world.advance(20.0)
    assert kinds(world)[-5:] == [
        *("SpeechInterrupted", "SpeechStarted", "Flushed", "audio", "SpeechMetadata")
    ]
    assert len(world.of_type("SpeechStarted")) == 2


def test_an_interruption_is_answered_before_the_next_turn():
    """Also to a client that was not reading when it sent both."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 3))
    world.advance(1.0)
    world.writable = False
    world.advance(1.0)
    world.tell(INTERRUPT, speak("New."), FLUSH)
    world.writable = True
    world.advance(10.0)
    assert kinds(world)[3:] == [
        *("SpeechInterrupted", "SpeechStarted", "Flushed", "audio", "SpeechMetadata")
    ]


def test_an_interruption_before_the_first_sound():
    """Cancels the turn: who interrupts wants silence."""
    world = talk(speak("no end"), INTERRUPT)
    assert kinds(world) == ["Connected", "SpeechStarted", "SpeechInterrupted"]


def test_warnings_about_nothing():
    """A flush or an interruption without a turn is a warning, by name."""
    world = talk(INTERRUPT, FLUSH, speak(""), FLUSH, speak(ONE), FLUSH)
    world.tell(INTERRUPT)
    codes = [warning["code"] for warning in world.of_type("Warning")]
    assert codes == ["NO_AUDIO_GENERATED", "NO_ACTIVE_SPEECH", "NO_ACTIVE_SPEECH"] + [
        "NO_ACTIVE_SPEECH"
    ]


def test_nothing_to_speak_is_a_little_silence():
    """With the warning that says why."""
    world = talk(speak("\N{GRINNING FACE}"), FLUSH)
    assert kinds(world)[1:] == ["SpeechStarted", "Flushed", "audio", "Warning", "SpeechMetadata"]
    assert world.of_type("Warning")[0]["code"] == "NO_SYNTHESIZABLE_TEXT"
    assert world.of_type("SpeechMetadata")[0]["audio_duration_ms"] == 100


def test_speed_is_configured():
    """In its range and steps, with the codes for what is not."""
    world = talk(
        {"type": "Configure"},
        *({"type": "Configure", "speed": value} for value in (1.0, 3, 1.01)),
        {"type": "Configure", "speed": "fast"},
    )
    ok = world.of_type("ConfigureSuccess")
    assert ok[0]["applied"] == {} and ok[1]["applied"] == {"speed": 1.0}
    codes = [failure["code"] for failure in world.of_type("ConfigureFailure")]
    assert codes == ["SPEED_OUT_OF_RANGE", "SPEED_INCREMENT_INVALID"]
    assert len(world.of_type("Error")) == 1


def test_close_speaks_the_rest_and_sums_up():
    """Also turns that wait, and a turn without its flush; then 1000."""
    world = talk(speak(ONE), FLUSH, speak(TWO), CLOSE, speak("Too late."), tone=SLOW)
    assert kinds(world)[-2:] == ["SpeechMetadata", "SessionMetadata"]
    [sums] = world.of_type("SessionMetadata")
    assert sums["total_input_character_count"] == len(TEXT)
    assert sums["total_audio_duration_ms"] == pytest.approx(len(audio(world)) / 48, abs=1)
    assert world.hangup.code == 1000
    assert kinds(talk(CLOSE)) == ["Connected", "SessionMetadata"]


@pytest.mark.parametrize("message", ["nonsense", {"type": "Dance"}, interrupt(-1), "[]"])
def test_a_wrong_message_is_an_error(message):
    """With a code of the API; the conversation goes on."""
    world = talk(message, speak(ONE), FLUSH)
    [error] = world.of_type("Error")
    assert error["code"] in ("MESSAGE-0000", "DATA-0000") and error["description"]
    assert kinds(world)[-1] == "SpeechMetadata" and world.hangup is None


def test_a_failure_is_told_and_closes():
    """`Error`, and 1011."""
    world = talk(speak(TEXT * 3), FLUSH, tone=ToneOptions(fail_at_segment=1))
    assert world.of_type("Error")[0]["code"] == "NET-0000" and world.hangup.code == 1011


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"encoding": "opus"}, UnsupportedFormatError),
        ({"sample_rate": "11025"}, UnsupportedFormatError),
        ({"speed": "0.4"}, BadRequestError),
        ({"expressivity": "7"}, BadRequestError),
        ({"model": "nobody"}, UnknownVoiceError),
    ],
)
def test_a_wrong_query_is_refused_at_the_handshake(query, error):
    """Before the first message."""
    with pytest.raises(error):
        connect(query)


def test_waiting_is_bounded():
    """A client that sends and sends is told that it is too much."""
    world = connect(tone=SLOW)
    world.tell(speak(ONE), FLUSH, speak("x " * 15_000), FLUSH, speak("x " * 15_000))
    assert len(world.of_type("Error")) == 1


MESSAGES = st.one_of(
    st.sampled_from([ONE, "Hello th", "", "\N{GRINNING FACE} ", TEXT]).map(speak),
    st.sampled_from([FLUSH, INTERRUPT, {"type": "?"}, {"type": "Configure", "speed": 1.05}]),
    st.integers(0, 20_000).map(interrupt),
    st.sampled_from([0.05, 2.0, "stall", "read"]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=14))
def test_any_order_of_messages(messages):
    """Every turn that starts ends once, audio is inside a turn, and the sums add up."""
    world = connect(tone=ToneOptions(real_time_factor=0.2))
    for message in messages:
        if isinstance(message, dict):
            world.tell(message)
        elif isinstance(message, float):
            world.advance(message)
        else:
            world.writable = message == "read"
    world.writable = True
    world.tell(CLOSE)
    world.advance(300.0)
    assert world.hangup.code == 1000 and kinds(world)[-1] == "SessionMetadata"
    current = None
    for frame in world.frames:
        if isinstance(frame, bytes):
            assert current is not None
        elif frame["type"] == "SpeechStarted":
            assert current is None
            current = frame["speech_id"]
        elif frame["type"] == "SpeechMetadata":
            assert frame["speech_id"] == current
            current = None
        elif frame["type"] == "SpeechInterrupted":
            assert frame["metadata"]["speech_id"] == current
            current = None
    assert current is None
    ends = world.of_type("SpeechMetadata") + [
        each["metadata"] for each in world.of_type("SpeechInterrupted")
    ]
    [sums] = world.of_type("SessionMetadata")
    assert sums["total_input_character_count"] == sum(e["input_character_count"] for e in ends)
    assert sum(e["audio_duration_ms"] for e in ends) == pytest.approx(
        len(audio(world)) / 48, abs=len(ends)
    )
    assert world.session.active_contexts == 0 and world.service.live_utterances == 0


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or an error, never another exception."""
    for body in (
        *(value, {"type": value}, speak(value), {"type": "Configure", "speed": value}),
        INTERRUPT | {"playback_offset": value},
        INTERRUPT | {"playback_offset": {"value": value}},
    ):
        world = connect()
        world.tell(speak(ONE), json.dumps(body), FLUSH)
        world.advance(1.0)
        assert world.session.closing is None or world.session.closing.code != "internal"
