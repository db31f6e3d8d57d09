"""Cartesia's API: what clients send in whatever order, and what they can rely on."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.wav import read_wav, wav_header
from rtts.engine.tone import ToneOptions
from rtts.errors import ProtocolError
from rtts.protocol import cartesia
from rtts.protocol.dialect import Request
from rtts.protocol.events import Audio, Done
from tests.protocol.dialects.world import SocketWorld, SpeechWorld, house
from tests.protocol.strategies import JSON

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
TEXT = "Hello there, this is a test. It goes on for a while."


def asking(transcript: str = "", ctx: str = "a", **fields) -> dict:
    return {
        "context_id": ctx,
        "model_id": "sonic-3",
        "transcript": transcript,
        "voice": {"mode": "id", "id": "79a125e8-cd45-4c13-8a67-188112f4dd22"},
        "output_format": RAW,
        "language": "en",
        **fields,
    }


def talk(*messages, **rest) -> SocketWorld:
    world = SocketWorld(cartesia.Socket, **rest)
    world.tell(*messages)
    world.advance(60.0)
    return world


def audio(world: SocketWorld, ctx: str = "a") -> bytes:
    chunks = [f for f in world.of_type("chunk") if f["context_id"] == ctx]
    return b"".join(base64.b64decode(chunk["data"]) for chunk in chunks)


def well_formed(world: SocketWorld) -> None:
    """Every message has what the SDKs and frameworks index without looking."""
    for frame in world.frames:
        assert {"type", "context_id", "done"} <= set(frame)
        if frame["type"] != "error":
            assert frame["status_code"] in (200, 206)


def test_one_message_speaks():
    """`continue` is false unless said: one message is one whole utterance, ended by one `done`."""
    world = talk(asking(TEXT))
    well_formed(world)
    assert len(audio(world)) == 2 * world.done().samples > 20_000
    assert [f["type"] for f in world.frames][-1] == "done" and len(world.of_type("done")) == 1


@pytest.mark.parametrize("last", ["", " "])
def test_a_continued_context_is_one_utterance(last):
    """Pieces are joined as they are; an empty or blank last one ends the context."""
    pieces = [
        asking(piece, **{"continue": True}) for piece in ("Hello th", "ere, this is ", "a test. ")
    ]
    world = talk(*pieces, asking(last, **{"continue": False}))
    assert world.done().text_chars == len("Hello there, this is a test. " + last)
    assert len(world.of_type("done")) == 1 and len(audio(world)) > 20_000


def test_finished_sentences_are_not_waited_for():
    """A client that sends whole sentences (delay 0) is spoken to without punctuation or an end."""
    piece = {"continue": True, "max_buffer_delay_ms": 0}
    world = SocketWorld(cartesia.Socket)
    world.tell(asking("hello there", **piece))
    world.advance(0.01)
    assert len(audio(world)) > 1000


def test_a_delay_is_the_longest_wait():
    """Without punctuation the buffer is spoken when the client's delay has passed."""
    world = SocketWorld(cartesia.Socket)
    world.tell(asking("hello there ", **{"continue": True, "max_buffer_delay_ms": 100}))
    assert not audio(world)
    world.advance(0.2)
    assert audio(world)


def test_each_flush_is_acknowledged_after_its_audio():
    """`flush_done` counts from 1, comes behind the audio of its text, and chunks say theirs."""
    flush = {"continue": True, "flush": True}
    world = talk(asking("Hello there", **flush), asking("and you", **flush), asking(""))
    acks = [f["flush_id"] for f in world.of_type("flush_done")]
    assert acks == [1, 2]
    ids = [f["flush_id"] for f in world.frames if f["type"] in ("chunk", "flush_done")]
    assert ids == sorted(ids) and set(ids) == {1, 2}


def test_a_cancel_stops_and_says_so():
    """After `cancel` no chunk comes, the engine is told, and loops that wait for `done` end."""
    world = SocketWorld(cartesia.Socket, tone=ToneOptions(real_time_factor=0.5))
    world.tell(asking(TEXT * 5))
    world.advance(0.5)
    heard = len(world.of_type("chunk"))
    assert heard
    world.tell({"context_id": "a", "cancel": True})
    world.advance(10.0)
    assert len(world.of_type("chunk")) == heard and len(world.of_type("done")) == 1
    assert world.service.live_utterances == 0
    well_formed(world)


def test_a_cancelled_name_speaks_again():
    """The same id may be used right after a cancel, and its `done` is not taken for the new one's."""
    world = SocketWorld(cartesia.Socket, tone=ToneOptions(real_time_factor=0.5))
    world.tell(asking(TEXT * 5))
    world.advance(0.5)
    world.writable = False
    world.tell({"context_id": "a", "cancel": True}, asking("Again.", **{"continue": True}))
    world.writable = True
    world.advance(0.01)
    world.tell(asking(" And on."))
    world.advance(20.0)
    first, second = world.of(Done)
    assert (first.reason, second.reason) == ("cancelled", "completed")
    assert second.text_chars == len("Again. And on.")
    assert len(world.of_type("done")) == 2 and not world.of_type("error")


def test_a_cancel_for_nothing_is_nothing():
    """It crossed the end on its way."""
    world = talk(asking(TEXT), {"context_id": "zzz", "cancel": True})
    world.tell({"context_id": "a", "cancel": True})
    assert not world.of_type("error") and world.session.closing is None


def test_contexts_interleave():
    """Two contexts on one socket each get their own audio, whole."""
    world = talk(asking(TEXT, "a"), asking(TEXT, "b"))
    assert audio(world, "a") == audio(world, "b") and len(audio(world, "a")) > 20_000


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le"])
def test_every_rate_and_encoding(rate, encoding):
    """Each documented rate can be asked for; floats are the same samples."""
    world = talk(asking(TEXT, output_format=RAW | {"encoding": encoding, "sample_rate": rate}))
    data = audio(world)
    width = {"pcm_s16le": "<i2", "pcm_f32le": "<f4"}[encoding]
    samples = np.frombuffer(data, width)
    assert len(samples) == world.done().samples
    assert len(samples) / rate == pytest.approx(world.done().audio_ms / 1000, abs=0.01)
    if encoding == "pcm_f32le":
        assert 0.05 < np.abs(samples).max() <= 1.0


@pytest.mark.parametrize("encoding", ["pcm_mulaw", "pcm_alaw"])
def test_telephone_encodings(encoding):
    """G.711 at 8 kHz is one byte a sample."""
    world = talk(asking(TEXT, output_format=RAW | {"encoding": encoding, "sample_rate": 8000}))
    assert len(audio(world)) == world.done().samples


def test_word_times_come_if_asked_for():
    """Times are seconds from the context's start, in order, and cover every word."""
    world = talk(asking(TEXT, add_timestamps=True))
    words = [w for f in world.of_type("timestamps") for w in f["word_timestamps"]["words"]]
    starts = [s for f in world.of_type("timestamps") for s in f["word_timestamps"]["start"]]
    assert " ".join(words) == TEXT and starts == sorted(starts)
    assert 0 < starts[-1] < world.done().audio_ms / 1000
    assert not talk(asking(TEXT)).of_type("timestamps")


def test_nothing_to_speak_is_a_little_silence():
    """An emoji yields a chunk and `done`: a context without audio counts as an outage."""
    world = talk(asking("\N{GRINNING FACE}"))
    assert len(world.of_type("chunk")) == 1 and not any(audio(world))
    assert len(world.of_type("done")) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"output_format": RAW | {"container": "wav"}},
        {"output_format": RAW | {"encoding": "pcm_mulaw"}},
        {"output_format": RAW | {"sample_rate": 12_345}},
        {"voice": {"mode": "embedding", "embedding": [0.1]}},
        {"language": "tlh"},
    ],
)
def test_what_cannot_be_done_is_an_error_of_its_context(fields):
    """One `error` with the context's id, nothing else of it, and the socket goes on."""
    world = talk(asking(TEXT, **fields))
    [error] = world.frames
    assert error["type"] == "error" and error["context_id"] == "a" and error["done"]
    assert error["status_code"] == 400 and error["title"] and error["message"]
    world.tell(asking("Hi."))
    world.advance(5.0)
    assert audio(world)


def test_text_after_the_end_is_refused():
    """`continue: false` closes a context for text until it has ended."""
    world = SocketWorld(cartesia.Socket, tone=ToneOptions(real_time_factor=0.5))
    world.tell(asking(TEXT), asking("more"))
    assert [f["type"] for f in world.frames].count("error") == 1
    world.advance(30.0)
    assert len(world.of_type("done")) == 1 and world.done().reason == "completed"


def test_an_utterance_that_fails_is_an_error():
    """One `error`, and no `done` beside it."""
    world = talk(asking(TEXT), tone=ToneOptions(fail_at_segment=0))
    assert [f["type"] for f in world.frames] == ["error"]
    assert world.frames[0]["status_code"] == 500


NAMES = st.sampled_from(["a", "b"])
MESSAGES = st.one_of(
    st.builds(
        lambda text, ctx, on, flush, delay: asking(
            text, ctx, **{"continue": on, "flush": flush, "max_buffer_delay_ms": delay}
        ),
        st.sampled_from(
            ["", " ", "Hello.", "Hello th", "\N{GRINNING FACE}", "so it goes, and on. "]
        ),
        NAMES,
        st.booleans(),
        st.booleans(),
        st.sampled_from([None, 0, 500]),
    ),
    st.builds(lambda ctx: {"context_id": ctx, "cancel": True}, NAMES),
    st.builds(lambda seconds: seconds, st.sampled_from([0.05, 1.0])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, max_size=12))
def test_any_order_of_messages(messages):
    """Each run of a context ends once; nothing of it follows; nothing is left behind."""
    world = SocketWorld(cartesia.Socket, tone=ToneOptions(real_time_factor=0.3))
    for message in messages:
        if isinstance(message, float):
            world.advance(message)
        else:
            world.tell(message)
    for ctx in ("a", "b"):
        world.tell(asking("", ctx))
    world.advance(400.0)
    assert world.session.closing is None or world.session.closing.code != "internal"
    well_formed(world)
    assert len(world.of_type("done")) == sum(done.reason != "error" for done in world.of(Done))
    assert world.service.live_utterances == 0 and world.session.active_contexts == 0
    assert not world.dialect._contexts and not world.dialect._cancelled
    assert len(world.of_type("chunk")) >= len(world.of(Audio))


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or a typed error, never another exception."""
    fields = ("transcript", "voice", "output_format", "generation_config", "speed", "context_id")
    for body in (value, *(asking("Hi.") | {name: value} for name in fields)):
        world = SocketWorld(cartesia.Socket)
        world.tell(json.dumps(body))
        assert all(frame["type"] for frame in world.frames)


# --- HTTP ----------------------------------------------------------------------------------------


def request(**fields) -> dict:
    return {k: v for k, v in asking(TEXT).items() if k != "context_id"} | fields


def test_bytes_are_raw_audio():
    """`/tts/bytes` is the audio and nothing else."""
    world = SpeechWorld(cartesia.Bytes, request())
    world.advance(60.0)
    assert world.hangup.code == 1000
    assert len(world.body) == 2 * world.of(Done)[0].samples > 20_000


def test_wav_bytes():
    """A WAV of 16-bit PCM is one; of floats it has the header of one and as many samples."""
    wav = {"container": "wav", "sample_rate": 44_100}
    world = SpeechWorld(cartesia.Bytes, request(output_format=wav | {"encoding": "pcm_s16le"}))
    world.advance(60.0)
    assert len(read_wav(world.body).pcm) == 2 * world.of(Done)[0].samples
    world = SpeechWorld(cartesia.Bytes, request(output_format=wav | {"encoding": "pcm_f32le"}))
    world.advance(60.0)
    assert world.body.startswith(wav_header(44_100, coding="f32"))
    assert len(world.body) == 44 + 4 * world.of(Done)[0].samples
    assert world.dialect.head(None).content_type == "audio/wav"


def test_events_carry_chunks_times_and_an_end():
    """`/tts/sse` says the same in events."""
    world = SpeechWorld(cartesia.Events, request(add_timestamps=True, context_id="c"))
    world.advance(60.0)
    kinds = [event["type"] for event in world.sse()]
    assert kinds[-1] == "done" and {"chunk", "timestamps", "done"} == set(kinds)
    assert {event["context_id"] for event in world.sse()} == {"c"}
    data = b"".join(base64.b64decode(e["data"]) for e in world.sse() if e["type"] == "chunk")
    assert len(data) == 2 * world.of(Done)[0].samples


def test_requests_without_text_are_refused():
    """An empty transcript is a mistake over HTTP, where no more can follow."""
    with pytest.raises(ProtocolError):
        cartesia.Bytes(Request(body=json.dumps(request(transcript="")).encode()), house())


def test_the_voices_are_turned_in_pages():
    """Following `starting_after`, as the SDKs do until a page is empty, ends."""
    seen, after = [], {}
    for _ in range(10):
        page = json.loads(cartesia.voices(Request(query={"limit": "2"} | after), house()).body)
        if not page["data"]:
            break
        seen += [voice["id"] for voice in page["data"]]
        after = {"starting_after": seen[-1]}
    assert seen == [voice.id for voice in house().capabilities.voices]


def test_keys_in_the_query():
    """Browsers put them there."""
    assert cartesia.Socket.keys(Request(query={"api_key": "k", "x": "y"})) == ["k"]
    assert cartesia.Socket.keys(Request(query={"access_token": "t"})) == ["t"]


def cut_off(ctx: str) -> Done:
    """The end of a context that the server's shutdown cut off."""
    return Done(
        ctx=ctx, reason="shutdown", segments=1, last_seq=3, audio_ms=1.0, samples=24, text_chars=9
    )


def test_a_server_that_stops_is_an_error():
    """Speech that the server cut off has no `done`, which would pass half a text for the whole."""
    dialect = cartesia.Socket(Request(), house())
    start, *_ = dialect.receive(json.dumps(asking(TEXT)).encode(), 0.0)
    (said,) = dialect.send(cut_off(start.ctx))
    frame = json.loads(said)
    assert (frame["type"], frame["context_id"], frame["done"]) == ("error", "a", True)
    assert (frame["error_code"], frame["status_code"]) == ("shutting_down", 503)


@pytest.mark.parametrize(
    "wrong", [{"max_buffer_delay_ms": 99_999_999}, {"transcript": None}, {"continue": "yes"}]
)
def test_what_is_wrong_with_a_message_is_told_to_its_context(wrong):
    """The SDKs hand an error to whoever waits for the context; one of no context is lost to them."""
    (error,) = talk(asking(TEXT) | wrong).frames
    assert error["type"] == "error" and error["context_id"] == "a"
    (error,) = talk(asking(TEXT) | {"context_id": 5}).frames
    assert error["type"] == "error" and error["context_id"] is None
