"""OpenAI's speech API: what comes of a request."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.audio.mp3 import mp3_available
from rtts.audio.ogg import read_ogg_opus
from rtts.audio.wav import read_wav
from rtts.engine.tone import ToneOptions
from rtts.errors import ProtocolError, RttsError, UnknownVoiceError
from rtts.protocol import openai
from rtts.protocol.dialect import Request
from rtts.protocol.events import Done, Error
from rtts.server.handshake import said
from rtts.voices.aliases import AliasOptions
from tests.protocol.dialects.world import SpeechWorld, house
from tests.protocol.strategies import JSON

TEXT = "Hello there, this is a test. It goes on for a while."


def speak(**fields) -> SpeechWorld:
    world = SpeechWorld(openai.Speech, {"model": "tts-1", "voice": "alloy", "input": TEXT} | fields)
    world.advance(60.0)
    return world


def test_pcm_is_the_audio_and_nothing_else():
    """The body of pcm is the samples the session counts."""
    world = speak(response_format="pcm")
    [done] = world.of(Done)
    assert world.hangup.code == 1000
    assert len(world.body) == 2 * done.samples > 20_000


def test_wav_is_a_file():
    """The body of wav can be read as one, and holds the same samples as pcm."""
    wav = read_wav(speak(response_format="wav").body)
    assert (wav.sample_rate_hz, wav.channels) == (24_000, 1)
    assert wav.pcm == speak(response_format="pcm").body


def test_opus_is_an_ogg_file():
    """The body of opus is whole Ogg pages."""
    body = speak(response_format="opus").body
    assert body.startswith(b"OggS") and body.count(b"OpusHead") == 1
    assert len(read_ogg_opus(body).packets) > 50


@pytest.mark.skipif(not mp3_available(), reason="no LAME on this machine")
def test_mp3_is_the_default():
    """Who names no format gets MPEG-2 layer III at 24 kHz, about as long as the speech."""
    world = speak()
    [done] = world.of(Done)
    assert world.body[:2] == b"\xff\xf3"
    assert world.dialect.head(None).content_type == "audio/mpeg"
    assert len(world.body) == pytest.approx(8000 * done.audio_ms / 1000, rel=0.1)


def test_sse_carries_the_same_audio():
    """The deltas in a row are the body of the other stream format; `done` ends them, with usage."""
    *deltas, done = speak(response_format="pcm", stream_format="sse").sse()
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"} and len(deltas) > 3
    audio = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert audio == speak(response_format="pcm").body
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] == len(TEXT)
    assert done["usage"]["total_tokens"] == len(TEXT) + done["usage"]["output_tokens"]


def test_fields_nobody_knows_are_ignored():
    """A client of another server of this API is served all the same."""
    assert speak(response_format="pcm", task_type="CustomVoice", stream=True, x={"y": [1]}).body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": 7}, "input"),
        ({"speed": 9}, "speed"),
        ({"response_format": "aac"}, "response_format"),
        ({"response_format": "flac"}, "response_format"),
        ({"response_format": "exe"}, "response_format"),
        ({"voice": "nobody"}, "voice"),
        ({"voice": {"id": "nobody"}}, "voice"),
        ({"ref_audio": "file:///etc/passwd"}, "ref_audio"),
    ],
)
def test_what_is_wrong_is_named(fields, param):
    """A refused request gets 400 and the shape of OpenAI's errors, with the parameter."""
    body = {"model": "tts-1", "voice": "alloy", "input": TEXT} | fields
    with pytest.raises(RttsError) as refused:
        openai.Speech(Request(body=json.dumps(body).encode()), house())
    reply = openai.Speech.refusal(said(refused.value))
    error = json.loads(reply.body)["error"]
    assert reply.status == 400 and error["param"] == param
    assert error["type"] == "invalid_request_error" and error["message"] and error["code"]


def test_what_is_missing_is_named():
    """A request without `input` is told so by the parameter's name."""
    with pytest.raises(RttsError) as refused:
        openai.Speech(Request(body=b'{"model": "tts-1"}'), house())
    reply = openai.Speech.refusal(said(refused.value))
    assert json.loads(reply.body)["error"]["param"] == "input"


def test_voices_have_their_aliases():
    """OpenAI's names speak, in the operator's voice where there is one; objects name voices too."""
    aliases = AliasOptions(voices={"alloy": "tone-low", "shim*": "tone-high", "nova": ""})
    for asked, voice in [
        ("alloy", "tone-low"),
        ({"id": "ALLOY"}, "tone-low"),
        ("shimmy", "tone-high"),
        ("nova", None),
        ("tone-high", "tone-high"),
        (None, None),
    ]:
        world = SpeechWorld(openai.Speech, {"input": "Hi.", "voice": asked}, aliases=aliases)
        assert world.dialect.messages()[0].voice == voice


def test_speed_is_kept_within_what_the_voice_can_do():
    """A speed outside the engine's range is brought into it: the client gets speech."""
    low, high = house().capabilities.speed_range
    assert speak(speed=0.25).dialect.messages()[0].speed == max(0.25, low)
    assert speak(speed=4.0).dialect.messages()[0].speed == min(4.0, high)


def test_a_failure_before_the_first_audio_is_an_error_of_its_own():
    """Nothing was written yet: the client can be told with a status."""
    world = SpeechWorld(openai.Speech, {"input": TEXT}, tone=ToneOptions(fail_at_segment=0))
    world.advance(10.0)
    assert world.pieces == [] and isinstance(world.error, Error)
    reply = openai.Speech.refusal(world.error)
    assert reply.status == 500 and json.loads(reply.body)["error"]["type"] == "server_error"


@given(JSON)
def test_any_body_is_answered(value):
    """Whatever JSON comes: speech or a typed refusal, never another exception."""
    for body in (value, {"input": value}, {"input": "Hi.", "voice": value, "speed": value}):
        try:
            openai.Speech(Request(body=json.dumps(body).encode()), house())
        except ProtocolError:
            continue


@given(st.binary(max_size=40))
def test_any_bytes_are_answered(data):
    """Whatever bytes come, too."""
    with pytest.raises(ProtocolError):
        openai.Speech(Request(body=data), house())


def test_the_lists_have_both_shapes():
    """Models carry OpenAI's fields and ours; every listed name of a voice can be asked for."""
    listed = json.loads(openai.models(Request(), house()).body)
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]][:2] == ["tone", "tts-1"]
    assert all(
        {"id", "object", "created", "owned_by", "sample_rate"} <= set(m) for m in listed["data"]
    )
    names = [voice["id"] for voice in json.loads(openai.voices(Request(), house()).body)["voices"]]
    assert "alloy" in names and "tone" in names
    for name in names:
        house().names.voice(name, or_default=False)
    with pytest.raises(UnknownVoiceError):
        house().names.voice("nobody", or_default=False)
