"""What the server's codec makes, for the tests of the JavaScript client.

Writes clients/js/test/vectors.json; a test compares.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rtts.protocol import events
from rtts.protocol.audio_message import join_packets
from rtts.protocol.native import NativeCodec
from tests.clients.js.browser import CLIENT

FILE = CLIENT / "test" / "vectors.json"

_FORMAT = events.StreamFormat(
    codec="opus",
    container="raw",
    sample_rate=24_000,
    channels=1,
    frame_ms=20,
    packets_per_message=4,
    pre_skip=312,
    bitrate=32_000,
)
_SERVER = (
    events.Started(ctx="a", stream=2**32 - 1, format=_FORMAT, voice="tone", ref="m1"),
    events.SegmentStarted(
        ctx="ä😀", segment=0, text="Hi 😀. ", chars=(0, 6), at_ms=0.5, spoken="Hi."
    ),
    events.Marks(
        ctx="a", segment=1, unit="word", quality="exact", items=[("Hi", 0, 310)], chars=[(0, 2)]
    ),
    events.FirstAudio(
        ctx="a",
        ttfa_ms=14.2,
        split_ms=0.1,
        queue_ms=1.0,
        model_ms=12.6,
        encode_ms=0.4,
        send_ms=0.1,
        from_first_text_ms=41.9,
        budget_ms=400.0,
        within_budget=True,
    ),
    events.Flushed(ctx="a", at_ms=2140.0, id="n3"),
    events.Done(
        ctx="a",
        reason="cancelled",
        segments=1,
        last_seq=-1,
        audio_ms=0.0,
        samples=0,
        text_chars=3,
        played_ms=0.0,
        spoken="",
        remaining="\ud83d half",
    ),
    events.Error(code="text_buffer_full", message="full", fatal=False, ctx="a", ref="n1"),
    events.Warned(code="no_speakable_text", message="nothing", ctx="a"),
    events.GoAway(reason="draining", deadline_ms=20_000),
    events.Pong(time_ms=1_796_040_000_000, t=7),
    events.Resumed(
        session="s",
        contexts={"a": events.ResumedContext(stream=7, next_seq=47, next_n=2, text_ended=False)},
    ),
)
_CLIENT = (
    events.Start(
        ctx="a", voice="tone", format=events.Format(codec="pcm_s16le", sample_rate=48_000)
    ),
    events.Text(ctx="a", n=0, text="Hi 😀\n", flush=True, end=True, id="n0"),
    events.Cancel(ctx="a", played_ms=12.5),
    events.Playback(ctx="a", played_ms=900.0, underruns=0),
    events.Resume(token="t", acks={"a": -1}),
    events.Ping(t=7),
    events.Close(),
)
_AUDIO = (
    ((b"\x01\x02\x03", b"", b"\xff" * 300), 1 | 4),
    ((b"\x00",), events.AudioFlags.LAST_OF_CONTEXT | events.AudioFlags.LAST_OF_SEGMENT),
    ((), 32),
)


def vectors() -> dict[str, Any]:
    """All of them."""
    codec, json_codec = NativeCodec("rtts.v1"), NativeCodec("rtts.v1.json")
    audio = []
    for packets, flags in _AUDIO:
        data = join_packets(packets) if packets else b"\x01\x00\xff\x7f"
        message = events.Audio(
            ctx="a",
            stream=2**32 - 1,
            seq=2**31,
            segment=3,
            pts=2**32 - 5,
            flags=int(flags),
            npackets=len(packets),
            duration_ms=65_535,
            data=data,
        )
        fields = msgspec.to_builtins(message)
        del fields["data"], fields["ctx"]
        audio.append(
            {
                "hex": _bytes(codec.encode(message)).hex(),
                "json": _bytes(json_codec.encode(message)).decode(),
                "fields": fields,
                "data": data.hex(),
                "packets": [packet.hex() for packet in packets] or [data.hex()],
            }
        )
    server = [
        {"wire": (wire := _bytes(codec.encode(message)).decode()), "fields": json.loads(wire)}
        for message in _SERVER
    ]
    client = []
    for message in _CLIENT:
        fields = json.loads(msgspec.json.encode(message))
        client.append(
            {"type": fields.pop("type"), "fields": fields, "wire": _spelled(codec, message)}
        )
    return {"audio": audio, "server": server, "client": client}


def _spelled(codec: NativeCodec, message: events.ClientMessage) -> str:
    """A client's message; what the server decodes of it is the message again."""
    wire = msgspec.json.encode(message).decode()
    assert codec.decode(wire) == message
    return wire


def _bytes(encoded: str | bytes) -> bytes:
    return encoded.encode() if isinstance(encoded, str) else encoded


def text() -> str:
    """The file."""
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
