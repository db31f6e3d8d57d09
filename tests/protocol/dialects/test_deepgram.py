"""Deepgram's `/v1/speak`: what clients send in whatever order, and what they can rely on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.ogg import read_ogg_opus
from rtts.audio.wav import read_wav, wav_header
from rtts.engine.tone import ToneOptions
from rtts.errors import (
    BadRequestError,
    ProtocolError,
    UnknownVoiceError,
    UnsupportedFormatError,
    UnsupportedLanguageError,
)
from rtts.protocol import deepgram, deepgram_socket
from rtts.protocol.dialect import Request
from rtts.protocol.events import Done, Error, Started
from rtts.session import SessionOptions
from rtts.voices.aliases import AliasOptions
from tests.protocol.dialects.world import SocketWorld, SpeechWorld, house
from tests.protocol.strategies import JSON

ONE, TWO = "Hello there, this is a test. ", "It goes on for a while. "
TEXT = ONE + TWO
FLUSH, CLEAR, CLOSE = {"type": "Flush"}, {"type": "Clear"}, {"type": "Close"}
SLOW = ToneOptions(real_time_factor=0.5)
QUERY = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": "24000"}


def speak(text: str) -> dict:
    return {"type": "Speak", "text": text}


def connect(query: dict | None = None, **rest) -> SocketWorld:
    return SocketWorld(deepgram_socket.Socket, Request(query=QUERY | (query or {})), **rest)


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


def test_the_first_message_says_who_speaks():
    """`Metadata` comes at once, with the ids that the headers of the handshake have."""
    world = connect()
    [metadata] = world.frames
    assert metadata["type"] == "Metadata" and metadata["model_name"] == "aura-2-thalia-en"
    assert dict(world.dialect.headers)["dg-request-id"] == metadata["request_id"]
    assert len(metadata["request_id"]) == len(metadata["model_uuid"]) == 36


def test_speech_begins_before_the_flush():
    """A finished sentence is spoken at once; the flush speaks the rest and is answered after it."""
    world = connect()
    world.tell(speak(ONE), speak("and then"))
    world.advance(1.0)
    assert kinds(world) == ["Metadata", "audio"]
    world.tell(FLUSH)
    world.advance(60.0)
    assert kinds(world) == ["Metadata", "audio", "Flushed"]
    assert len(audio(world)) == 2 * world.of(Done)[-1].samples


def test_words_are_joined_as_they_come():
    """Word by word and in one piece it is the same speech."""
    words = [speak(word + " ") for word in TEXT.split()]
    assert audio(talk(*words, FLUSH)) == audio(talk(speak(TEXT), FLUSH)) != b""


def test_every_flush_has_one_answer():
    """Also one for which there is nothing to speak, and one that is repeated."""
    world = talk(FLUSH, speak(ONE), FLUSH, FLUSH, speak(TWO), FLUSH, seconds=100.0)
    flushed = world.of_type("Flushed")
    assert [each["sequence_id"] for each in flushed] == [0, 1, 2, 3]
    assert kinds(world) == [
        *("Metadata", "Flushed", "audio", "Flushed", "Flushed", "audio", "Flushed")
    ]
    assert world.session.active_contexts == 0


def test_replies_that_follow_one_another_have_contexts_of_their_own():
    """A reply ends with its last flush: records are of replies, not of sockets."""
    world = talk(speak(ONE), FLUSH)
    world.tell(speak(TWO), FLUSH)
    world.advance(60.0)
    first, second = world.of(Done)
    assert (first.text_chars, second.text_chars) == (len(ONE), len(TWO))


def test_clear_stops_and_nothing_old_follows():
    """After `Cleared` there is no audio and no `Flushed` until more comes; the engine is told."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 5), FLUSH)
    world.advance(0.5)
    heard = len(audio(world))
    assert heard
    world.tell(CLEAR)
    world.advance(10.0)
    assert kinds(world) == ["Metadata", "audio", "Cleared"] and len(audio(world)) == heard
    assert world.service.live_utterances == 0 and world.of(Done)[-1].reason == "cancelled"
    world.tell(speak("Again."), FLUSH)
    world.advance(10.0)
    assert kinds(world)[-2:] == ["audio", "Flushed"]


def test_clear_while_the_client_does_not_read():
    """What was made before it and is still unsent is never sent."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 5))
    world.advance(0.5)
    heard = len(audio(world))
    world.writable = False
    world.advance(2.0)
    world.tell(CLEAR, speak("New."))
    world.writable = True
    world.advance(10.0)
    assert kinds(world) == ["Metadata", "audio", "Cleared", "audio"]
    [_, new] = world.of(Done) if len(world.of(Done)) == 2 else [None, None]
    assert new is None  # not flushed: it is open
    world.tell(FLUSH)
    world.advance(10.0)
    assert len(audio(world)) == heard + 2 * world.of(Done)[-1].samples


def test_clear_without_speech_is_answered():
    """It crossed the end on its way."""
    assert kinds(talk(CLEAR)) == ["Metadata", "Cleared"]


def test_close_finishes_what_was_flushed():
    """The socket ends with 1000 behind the answer; text that was not flushed is not spoken."""
    world = talk(speak(ONE), FLUSH, CLOSE, speak("Too late."))
    assert kinds(world) == ["Metadata", "audio", "Flushed"] and world.hangup.code == 1000
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 5))
    world.advance(0.5)
    world.tell(CLOSE)
    assert world.hangup.code == 1000 and world.service.live_utterances == 0
    assert talk(CLOSE).hangup.code == 1000


def test_close_and_then_clear_is_a_close():
    """An interruption while the rest is spoken ends it."""
    world = connect(tone=SLOW)
    world.tell(speak(TEXT * 5), FLUSH, CLOSE)
    world.advance(0.5)
    assert world.hangup is None
    world.tell(CLEAR)
    assert world.hangup.code == 1000 and kinds(world) == ["Metadata", "audio", "Cleared"]


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
def test_every_rate(rate):
    """As many samples as it says, and all of them before `Flushed`."""
    world = talk(speak(TEXT), FLUSH, query={"sample_rate": str(rate)})
    done = world.of(Done)[-1]
    assert len(audio(world)) == 2 * done.samples
    assert done.samples / rate == pytest.approx(done.audio_ms / 1000, abs=0.01)
    assert kinds(world)[-1] == "Flushed"


@pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
@pytest.mark.parametrize("rate", ["", "8000", "16000.0"])
def test_telephone_encodings(encoding, rate):
    """G.711 is a byte a sample, at 8 kHz unless said; its silence is silence."""
    query = {"encoding": encoding, "sample_rate": rate}
    world = talk(speak(TEXT), FLUSH, query=query)
    assert len(audio(world)) == world.of(Done)[-1].samples
    world = talk(speak("Hi."), FLUSH, speak("\N{GRINNING FACE}"), FLUSH, query=query)
    assert world.frames[-1]["type"] == "Flushed"
    silence = world.frames[-2]
    assert len(silence) == int(float(rate or 8000)) // 10 and len(set(silence)) == 1


def test_nothing_to_speak_is_a_little_silence():
    """An emoji has audio before its `Flushed`, alone and behind a text."""
    world = talk(speak("\N{GRINNING FACE}"), FLUSH)
    assert kinds(world) == ["Metadata", "audio", "Flushed"] and not any(audio(world))
    for tone in (None, SLOW):  # behind it, and while it is still spoken
        world = talk(speak("Hi."), FLUSH, speak("\N{GRINNING FACE}"), FLUSH, tone=tone)
        assert kinds(world) == ["Metadata", "audio", "Flushed", "audio", "Flushed"]


@pytest.mark.parametrize(
    "message", ["nonsense", {"type": "Dance"}, {"text": "Hi."}, {"type": "Speak", "text": 5}, "[]"]
)
def test_a_wrong_message_is_a_warning(message):
    """In both spellings that clients read; the conversation goes on."""
    world = talk(message, speak(ONE), FLUSH)
    [warning] = world.of_type("Warning")
    assert warning["description"] == warning["warn_msg"] and warning["code"]
    assert kinds(world)[-2:] == ["audio", "Flushed"] and world.hangup is None


def test_a_failure_closes_the_socket():
    """There is no other way to tell a client that waits for `Flushed`."""
    world = talk(speak(TEXT * 3), FLUSH, tone=ToneOptions(fail_at_segment=1))
    assert world.hangup.code == 1011 and not world.of_type("Flushed")


def test_unknown_fields_are_ignored():
    """As the SDKs of tomorrow may send them; so is what keeps their other sockets alive."""
    world = talk(*40 * [{"type": "KeepAlive"}])
    assert kinds(world) == ["Metadata"] and world.hangup is None
    world = talk({**speak(ONE), "mood": {"x": [1]}}, {"type": "Flush", "hurry": None})
    assert kinds(world) == ["Metadata", "audio", "Flushed"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"encoding": "mp3"}, UnsupportedFormatError),
        ({"sample_rate": "12345"}, UnsupportedFormatError),
        ({"encoding": "mulaw", "sample_rate": "24000"}, UnsupportedFormatError),
        ({"sample_rate": "fast"}, BadRequestError),
        ({"sample_rate": "1e999"}, BadRequestError),
        ({"sample_rate": "8000.5"}, BadRequestError),
        ({"speed": "9"}, BadRequestError),
        ({"speed": "nan"}, BadRequestError),
        ({"model": "nobody"}, UnknownVoiceError),
        ({"model": "aura-2-lars-nl"}, UnsupportedLanguageError),
    ],
)
def test_a_wrong_query_is_refused_at_the_handshake(query, error):
    """Before the first message, with a type that becomes a 400."""
    with pytest.raises(error):
        connect(query)


def test_names_of_voices():
    """Own names, hosted ones and tomorrow's hosted ones are voices; the operator's table counts."""
    for model in ("aura-2-nextyear-en", "flux-alexis-multi", "AURA-ZEUS-EN", "flux-max-en-us"):
        assert connect({"model": model}).frames[0]["model_name"] == model
    assert connect({"model": ""}).frames[0]["model_name"] == house().capabilities.default_voice
    other = house().capabilities.voices[-1].id
    aliases = AliasOptions(voices={"aura-2-thalia-en": other})
    world = talk(speak(ONE), FLUSH, aliases=aliases)
    assert world.of(Started)[0].voice == other


def test_keys_and_subprotocols():
    """A browser's key is found wherever it stands, and never selected."""
    offered = ["x-deepgram-session-id", "5", "token", "secret"]
    assert deepgram_socket.Socket.keys(Request(subprotocols=offered)) == ["secret"]
    assert deepgram_socket.Socket.subprotocol(offered) == "token"
    assert deepgram_socket.Socket.subprotocol(["bearer", "jwt"]) == "bearer"
    assert deepgram_socket.Socket.subprotocol([]) is None


def test_refusals_have_an_id_and_a_reason_in_headers():
    """The body has the API's fields; the header has no character that a header cannot have."""
    error = Error(code="unauthorized", message="no k\u00e9y\r\nX: y", fatal=True)
    reply = deepgram_socket.Socket.refusal(error)
    body, headers = json.loads(reply.body), dict(reply.headers)
    assert reply.status == 401 and body["err_code"] == "INVALID_AUTH" and body["err_msg"]
    assert headers["dg-request-id"] == body["request_id"]
    assert headers["dg-error"] == "no k?y??X: y"


MESSAGES = st.one_of(
    st.sampled_from([ONE, "Hello th", "", "\N{GRINNING FACE} ", TEXT]).map(speak),
    st.sampled_from([FLUSH, CLEAR, {"type": "?"}]),
    st.sampled_from([0.05, 2.0, "stall", "read"]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=14))
def test_any_order_of_messages(messages):
    """Every `Clear` has its answer and every `Flush` that or its own; no old audio follows."""
    world = connect(tone=ToneOptions(real_time_factor=0.2))
    is_cleared, quiet_from, waiting = False, 0, 0
    for message in messages:
        if isinstance(message, dict):
            if message["type"] == "Speak" and is_cleared:
                assert not any(isinstance(frame, bytes) for frame in world.frames[quiet_from:])
                is_cleared = False
            world.tell(message)
            if message == FLUSH:
                waiting += 1
            if message == CLEAR:
                is_cleared, quiet_from = True, len(world.frames)
                overtaken = waiting - len(world.of_type("Flushed"))
                waiting -= overtaken
        elif isinstance(message, float):
            world.advance(message)
        else:
            world.writable = message == "read"
    world.writable = True
    world.tell(FLUSH)
    world.advance(300.0)
    said = [m for m in messages if isinstance(m, dict)]
    assert len(world.of_type("Flushed")) == waiting + 1
    assert len(world.of_type("Cleared")) == said.count(CLEAR)
    answers = [f for f in world.frames if isinstance(f, dict) and "sequence_id" in f]
    numbers = [answer["sequence_id"] for answer in answers]
    assert numbers == list(range(len(numbers)))
    assert world.session.active_contexts == 0 and world.service.live_utterances == 0
    assert not world.dialect._live and world.dialect._open is None
    heard = sum(done.samples for done in world.of(Done))
    fillers = sum(not any(f) for f in world.frames if isinstance(f, bytes) and len(f) == 4800)
    assert len(audio(world)) <= 2 * heard + 4800 * fillers


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or a warning, never another exception."""
    for body in (value, {"type": value}, speak(value), {"type": "Flush", "text": value}):
        world = connect(options=SessionOptions())
        world.tell(json.dumps(body), FLUSH)
        world.advance(1.0)
        assert world.session.closing is None or world.session.closing.code != "internal"


# --- HTTP ----------------------------------------------------------------------------------------


def file(query: dict, text: str = TEXT, **rest) -> SpeechWorld:
    world = SpeechWorld(deepgram.Speech, {"text": text}, query=query, **rest)
    world.advance(60.0)
    return world


def test_a_request_is_an_mp3_unless_it_says_otherwise():
    """With the headers that tell what was done."""
    world = file({"model": "aura-asteria-en"})
    assert world.body[0] == 0xFF and world.hangup.code == 1000
    head = world.dialect.head(None)
    headers = dict(head.headers)
    assert head.content_type == "audio/mpeg" and headers["dg-char-count"] == str(len(TEXT))
    assert headers["dg-model-name"] == "aura-asteria-en" and len(headers["dg-request-id"]) == 36


@pytest.mark.parametrize(
    ("query", "samples"),
    [
        ({"encoding": "linear16", "container": "none"}, 2),
        ({"encoding": "linear16", "container": "none", "sample_rate": "8000"}, 2),
        ({"encoding": "mulaw", "container": "none"}, 1),
        ({"encoding": "alaw", "container": "none", "sample_rate": "16000"}, 1),
    ],
)
def test_raw_samples(query, samples):
    """Without a container the body is samples and nothing else."""
    world = file(query)
    assert len(world.body) == samples * world.of(Done)[0].samples > 5000


def test_containers():
    """WAV is the default of samples, with a header of their coding; Opus comes in Ogg."""
    world = file({"encoding": "linear16", "sample_rate": "48000"})
    assert len(read_wav(world.body).pcm) == 2 * world.of(Done)[0].samples
    world = file({"encoding": "mulaw", "container": "wav", "sample_rate": "16000"})
    assert world.body.startswith(wav_header(16_000, coding="mulaw"))
    assert len(world.body) == 44 + world.of(Done)[0].samples
    world = file({"encoding": "opus", "bit_rate": "650000"})
    assert len(read_ogg_opus(world.body).packets) > 50


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ({"encoding": "flac"}, {"text": "Hi."}),
        ({"encoding": "aac"}, {"text": "Hi."}),
        ({"encoding": "exe"}, {"text": "Hi."}),
        ({"encoding": "mp3", "container": "wav"}, {"text": "Hi."}),
        ({"encoding": "opus", "container": "none"}, {"text": "Hi."}),
        ({"callback": "http://127.0.0.1/"}, {"text": "Hi."}),
        ({"bit_rate": "x"}, {"text": "Hi."}),
        ({}, {"url": "file:///etc/passwd"}),
        ({}, {"text": ""}),
        ({}, {}),
        ({}, "Hi."),
    ],
)
def test_wrong_requests_are_refused(query, body):
    """With an error, before anything is spoken."""
    with pytest.raises(ProtocolError):
        deepgram.Speech(Request(query=query, body=json.dumps(body).encode()), house())


def test_a_bit_rate_that_mp3_does_not_have():
    """Is refused by the session, as an error without a body."""
    world = file({"bit_rate": "47000"})
    assert world.error is not None and world.error.code == "unsupported_format"


def test_plain_text():
    """A body may be the text itself."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    query = {"encoding": "linear16", "container": "none"}
    world = SpeechWorld(deepgram.Speech, TEXT.encode(), query=query, headers=headers)
    world.advance(60.0)
    assert world.body == file(query).body
    with pytest.raises(BadRequestError):
        deepgram.Speech(Request(body=b"\xff", headers=headers), house())


def test_version_two_has_its_own_limits():
    """A speed and an expressivity; both are checked, the second does nothing."""
    body = json.dumps({"text": "Hi."}).encode()
    deepgram.FluxSpeech(Request(query={"speed": "0.5", "expressivity": "-2"}, body=body), house())
    for query in ({"speed": "1.6"}, {"expressivity": "3"}, {"expressivity": "0.5"}):
        with pytest.raises(BadRequestError):
            deepgram.FluxSpeech(Request(query=query, body=body), house())
    with pytest.raises(BadRequestError):
        deepgram.Speech(Request(query={"speed": "0.5"}, body=body), house())


def test_g711_at_16_khz_is_the_coded_pcm():
    """The samples are those of linear16."""
    coded = file({"encoding": "mulaw", "container": "none", "sample_rate": "16000"}).body
    plain = file({"encoding": "linear16", "container": "none", "sample_rate": "16000"}).body
    coding = deepgram.raw_coding({"encoding": "mulaw", "sample_rate": "16000"})
    assert coding.code(plain) == coded and np.frombuffer(plain, "<i2").any()
