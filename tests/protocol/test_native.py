from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtts.errors import (
    BadRequestError,
    MalformedJsonError,
    ProtocolError,
    UnknownTypeError,
    UnsupportedFormatError,
)
from rtts.protocol import events, native
from rtts.protocol.native import NativeCodec, auth_token, negotiate
from tests.protocol.strategies import (
    AUDIO,
    CLIENT_MESSAGES,
    CLIENT_TYPES,
    JSON,
    SERVER_MESSAGES,
    wire,
)

CODEC = NativeCodec("rtts.v1")
JSON_CODEC = NativeCodec("rtts.v1.json")
SERVER_DECODER = msgspec.json.Decoder(events.AnyServerMessage)


def refused(data: str | bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        CODEC.decode(data)
    return caught.value


# --- subprotocols --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], "rtts.v1"),
        (["rtts.v1"], "rtts.v1"),
        (["rtts.v1.json"], "rtts.v1.json"),
        (["rtts.v1.json", "rtts.v1"], "rtts.v1.json"),
        (["chat", "rtts.v1"], "rtts.v1"),
        (["rtts.auth.a2V5", "rtts.v1.json"], "rtts.v1.json"),
        (["rtts.auth.a2V5"], "rtts.v1"),
        (["chat"], None),
        (["rtts.v2", "rtts.auth.a2V5"], None),
        (["RTTS.V1"], None),
    ],
)
def test_the_clients_first_known_subprotocol_is_spoken(
    offered: list[str], chosen: str | None
) -> None:
    """The client's order decides; credentials are no offer; no overlap is None."""
    assert negotiate(offered) == chosen


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_a_key_survives_its_subprotocol(token: str) -> None:
    """auth_token reads back any key that was offered as unpadded base64url."""
    coded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    assert auth_token(["rtts.v1", f"rtts.auth.{coded}"]) == token


@pytest.mark.parametrize(
    "coded", ["", "a2V5=", "a", "a2V5.", "a2+5", "a2/5", "a2V5 ", "_____w", "a2W", "é"]
)
def test_a_key_that_is_not_canonical_base64url_is_none(coded: str) -> None:
    """Padding, the other alphabet, stray bits, bad lengths and non-UTF-8 are no key."""
    assert auth_token([f"rtts.auth.{coded}"]) is None


def test_no_offer_is_no_key() -> None:
    """Without an rtts.auth offer there is no key."""
    assert auth_token(["rtts.v1"]) is None


def test_a_codec_of_an_unknown_subprotocol_cannot_be_made() -> None:
    """The caller negotiates first."""
    with pytest.raises(ValueError, match="rtts.v2"):
        NativeCodec("rtts.v2")


# --- decoding ------------------------------------------------------------------------------------


@given(CLIENT_MESSAGES)
def test_every_client_message_round_trips(message: Any) -> None:
    """decode(encode(x)) == x, as text and as bytes."""
    assert CODEC.decode(wire(message)) == message
    assert JSON_CODEC.decode(wire(message).encode()) == message


@given(CLIENT_MESSAGES)
def test_the_careful_decoder_equals_the_fast_one(message: Any) -> None:
    """What both can decode they decode alike."""
    assert native._decode_carefully(wire(message)) == message


@given(CLIENT_MESSAGES, st.dictionaries(st.text(max_size=5).map("x_".__add__), JSON, max_size=3))
def test_unknown_fields_are_ignored(message: Any, extra: dict[str, Any]) -> None:
    """Any field the version does not know changes nothing."""
    fields = json.loads(wire(message))
    assert CODEC.decode(json.dumps(extra | fields)) == message


def test_the_last_of_a_repeated_field_counts() -> None:
    """Duplicate keys are legal JSON (RFC 8259 section 4); the last one wins, even of `type`."""
    assert CODEC.decode('{"type":"end","ctx":"a","ctx":"b"}') == events.End(ctx="b")
    assert CODEC.decode('{"type":"end","ctx":"a","type":"flush"}') == events.Flush(ctx="a")


@given(st.text(st.characters(exclude_characters="\x00"), max_size=20))
@example("\ud83d")
@example("\ude00 and \ud83d")
@example("\ud83d\ude00")
def test_half_a_character_reaches_the_splitter(text: str) -> None:
    """Lone surrogate escapes survive decoding; a whole pair becomes its character."""
    decoded = CODEC.decode(json.dumps({"type": "text", "ctx": "a", "text": text}))
    assert isinstance(decoded, events.Text)
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert decoded.text == expected


def test_halves_of_two_messages_join() -> None:
    """A client that cuts a string in UTF-16 units sends an emoji as two halves."""
    halves = [
        CODEC.decode('{"type":"text","ctx":"a","text":"hi \\ud83d"}'),
        CODEC.decode('{"type":"text","ctx":"a","text":"\\ude00!"}'),
    ]
    joined = "".join(half.text for half in halves if isinstance(half, events.Text))
    assert joined.encode("utf-16", "surrogatepass").decode("utf-16") == "hi \N{GRINNING FACE}!"


@given(st.text() | st.binary())
@example("[" * 100_000)
@example('{"type":"ping","x":' + "[" * 100_000 + "]" * 100_000 + "}")
@example('{"type":"ping","t":1' + "0" * 5000 + "}")
@example('{"type":"ping","t":1e999}')
@example('{"type":"ping","t":"\\ud83d","x":1e999}')
@example('{"type":"ping","t":"\\ud83d","x":NaN}')
@example('{"type":"ping","t":-Infinity}')
@example('\ufeff{"type":"ping"}')
@example('{"type":"ping"} {"type":"ping"}')
@example(b'{"type":"text","ctx":"a","text":"\xff"}')
@example(b'{"type":"text","ctx":"a","text":"\xed\xa0\xbd"}')
@example('{"type":"text","ctx":"a","text":"\ud83d"}')
@example("null")
@example("[]")
@example("")
def test_what_is_not_a_json_object_is_bad_json(data: str | bytes) -> None:
    """Garbage of any kind is one typed error, never another exception."""
    error = refused(data)
    assert error.code in {"bad_json", "unknown_type", "bad_request"}


@pytest.mark.parametrize(
    "data",
    [
        "",
        "nonsense",
        "[]",
        '"start"',
        "{",
        '{"type":"ping","t":NaN}',
        '{"type":"ping","x":Infinity}',
        '{"type":"text","ctx":"a","text":"\\ud83d","x":-Infinity}',
        '{"type":"text","ctx":"a","text":"\\ud83d","x":1e999}',
        '{"type":"ping","t":1e999}',
        '{"type":"ping","x":' + "[" * 50_000 + "]" * 50_000 + "}",
        b'{"type":"ping","t":"\xff"}',
        '{"type":"ping"}{}',
        '{"type":"text","ctx":"a","text":"line\nbreak"}',
    ],
)
def test_broken_json_is_malformed(data: str | bytes) -> None:
    """Each way of not being JSON is bad_json."""
    assert isinstance(refused(data), MalformedJsonError)


@given(st.data(), CLIENT_MESSAGES)
def test_any_field_with_any_value_is_decoded_or_refused(data: st.DataObject, message: Any) -> None:
    """One wrong value in a right message never raises anything but a ProtocolError."""
    fields = json.loads(wire(message))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(JSON)
    try:
        decoded = CODEC.decode(json.dumps(fields))
    except ProtocolError as error:
        assert error.code in {"bad_json", "bad_request", "unknown_type", "unsupported_format"}
        assert error.message
    else:
        assert isinstance(decoded, CLIENT_TYPES)


@pytest.mark.parametrize("data", ['{"ctx":"a"}', '{"type":7}', '{"type":null}'])
def test_a_missing_type_is_named(data: str) -> None:
    """A message without a type is unknown_type, and says so."""
    error = refused(data)
    assert isinstance(error, UnknownTypeError)
    assert "no `type`" in error.message


def test_an_unknown_type_is_named_with_the_known_ones() -> None:
    """The error tells the author of a client what there is."""
    error = refused('{"type":"speak","ctx":"c","id":"i"}')
    assert isinstance(error, UnknownTypeError)
    assert "'speak'" in error.message
    assert all(tag in error.message for tag in ("start", "text", "playback"))
    assert (error.ctx, error.ref, error.message_type) == ("c", "i", None)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ('{"type":"text","ctx":"a"}', "missing required field text"),
        ('{"type":"text","ctx":"a","text":1}', "text: expected str, got int"),
        ('{"type":"text","ctx":"a","text":"x","n":1.5}', "n: expected int or null, got float"),
        ('{"type":"text","ctx":"a","text":"x","n":-1}', "n: expected int >= 0"),
        ('{"type":"text","ctx":"","text":"x"}', "ctx: expected str of length >= 1"),
        ('{"type":"text","ctx":"%s","text":"x"}' % ("a" * 129), "ctx: expected str of length <="),
        ('{"type":"text","ctx":"a\\u0007","text":"x"}', "ctx: control characters"),
        ('{"type":"end","ctx":"\\ud83d"}', "ctx: control characters"),
        ('{"type":"end","ctx":"a","id":"\\n"}', "id: control characters"),
        ('{"type":"text","ctx":"a","text":"x\\u0000"}', "text: NUL"),
        ('{"type":"start","ctx":"a","voice":"x\\u0000"}', "voice: NUL"),
        ('{"type":"start","ctx":"a","instructions":"x\\u0000"}', "instructions: NUL"),
        ('{"type":"start","ctx":"a","seed":-1}', "seed: expected int >= 0"),
        ('{"type":"start","ctx":"a","seed":9223372036854775808}', "seed: expected int <="),
        ('{"type":"start","ctx":"a","speed":0}', "speed: expected float >= 0.1"),
        ('{"type":"start","ctx":"a","max_lead_ms":999}', "max_lead_ms: 0 or at least 1000"),
        ('{"type":"start","ctx":"a","budget_ms":0}', "budget_ms: expected float > 0"),
        ('{"type":"start","ctx":"a","format":[]}', "format: expected object or null, got array"),
        ('{"type":"start","ctx":"a","format":{"bitrate":100}}', "format.bitrate: expected int >="),
        ('{"type":"start","ctx":"a","chunking":{"max_delay_ms":-1}}', "chunking.max_delay_ms:"),
        ('{"type":"start","ctx":"a","priority":"x"}', "allowed are batch, interactive"),
        ('{"type":"playback","ctx":"a","played_ms":-1}', "played_ms: expected float >= 0.0"),
        ('{"type":"playback","ctx":"a","played_ms":1e300}', "played_ms: expected float <="),
        ('{"type":"playback","ctx":"a","underruns":-1}', "underruns: expected int >= 0"),
        ('{"type":"cancel"}', "name `ctx` or set `all`"),
        ('{"type":"cancel","all":false}', "name `ctx` or set `all`"),
        ('{"type":"stats","interval_ms":99}', "interval_ms: 0 or at least 100"),
        ('{"type":"resume","token":"r","acks":{"a":-2}}', "acks[...]: expected int >= -1"),
        ('{"type":"ping","t":36893488147419103232}', "t: expected int <="),
    ],
)
def test_a_bad_field_is_named(data: str, complaint: str) -> None:
    """Every range has its refusal, and the refusal names the field."""
    error = refused(data)
    assert isinstance(error, BadRequestError)
    assert complaint in error.message


@pytest.mark.parametrize(
    "chosen", [{"codec": "vorbis"}, {"container": "webm"}, {"frame_ms": 30}, {"codec": ""}]
)
def test_an_unknown_format_is_unsupported(chosen: dict[str, Any]) -> None:
    """A format that does not exist is unsupported_format, and the error lists what does."""
    error = refused(json.dumps({"type": "start", "ctx": "a", "format": chosen}))
    assert isinstance(error, UnsupportedFormatError)
    assert "allowed are" in error.message
    assert error.message_type == "start"


@pytest.mark.parametrize(
    ("data", "about"),
    [
        ('{"type":"start","ctx":"c","id":"i","seed":-1}', ("c", "i", "start")),
        ('{"type":"start","ctx":"c","id":"i","max_lead_ms":5}', ("c", "i", "start")),
        ('{"type":"text","ctx":"c"}', ("c", None, "text")),
        ('{"type":"text","ctx":7,"id":[],"text":""}', (None, None, "text")),
        ('{"type":"text","ctx":"\\u0000","id":"\\u0001","text":""}', (None, None, "text")),
        ('{"type":"cancel","id":"i"}', (None, "i", "cancel")),
        ('{"type":"resume","token":"","id":"i"}', (None, "i", "resume")),
        ("[]", (None, None, None)),
    ],
)
def test_an_error_knows_which_message_it_is_about(data: str, about: tuple[str | None, ...]) -> None:
    """Context, id and type are read from a broken message where they are usable."""
    error = refused(data)
    assert (error.ctx, error.ref, error.message_type) == about


def test_every_client_type_can_be_decoded_and_checked() -> None:
    """No message type is missing from the codec's tables."""
    assert set(native._CLIENT_TYPES.values()) == set(CLIENT_TYPES)
    assert set(native._CHECKS) == set(CLIENT_TYPES)
    for tag, cls in native._CLIENT_TYPES.items():
        assert cls.__struct_config__.tag == tag


# --- encoding ------------------------------------------------------------------------------------


@given(SERVER_MESSAGES)
def test_every_server_message_round_trips(message: Any) -> None:
    """decode(encode(x)) == x in both subprotocols; only audio of rtts.v1 is binary."""
    assert SERVER_DECODER.decode(JSON_CODEC.encode(message)) == message
    sent = CODEC.encode(message)
    if isinstance(message, events.Audio):
        assert isinstance(sent, bytes)
        assert native.unpack_audio(sent, message.ctx) == message
    else:
        assert sent == JSON_CODEC.encode(message)
        assert isinstance(sent, str)


@given(AUDIO)
def test_json_audio_is_base64(audio: events.Audio) -> None:
    """`data` is standard base64, and every header field has its name."""
    fields = json.loads(JSON_CODEC.encode(audio))
    assert base64.b64decode(fields.pop("data"), validate=True) == audio.data
    assert set(fields) == {
        "type", "ctx", "stream", "seq", "segment", "pts", "flags", "npackets", "duration_ms",
    }  # fmt: skip


@given(st.text(max_size=20), st.text(max_size=20))
@example("cut \ud83d", "\ude00 here")
def test_half_a_character_goes_back_as_an_escape(spoken: str, remaining: str) -> None:
    """Text a client got to send can be sent back, whatever it holds."""
    done = events.Done("a", "cancelled", 0, -1, 0.0, 0, 0, spoken=spoken, remaining=remaining)
    sent = CODEC.encode(done)
    assert isinstance(sent, str)
    sent.encode("utf-8")
    fields = json.loads(sent)
    assert (fields["spoken"], fields["remaining"]) == (spoken, remaining)
    assert "code" not in fields
