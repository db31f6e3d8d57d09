"""The binary audio message of `rtts.v1`: a 24-byte header and a payload.

Knows bytes only: not what Opus is, nor when a message may be sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rtts.errors import BadRequestError
from rtts.protocol.events import Audio

HEADER = struct.Struct("!BBHIIIIHH")  # version kind flags stream seq segment pts npackets duration
HEADER_VERSION = 1
KIND_AUDIO = 1
_PTS_MASK = 0xFFFF_FFFF


def pack_audio(audio: Audio) -> bytes:
    """One binary message: the 24-byte header, then the payload.

    `pts` is sent modulo 2**32 (24.8 hours at 48 kHz).
    """
    return (
        HEADER.pack(
            HEADER_VERSION,
            KIND_AUDIO,
            audio.flags,
            audio.stream,
            audio.seq,
            audio.segment,
            audio.pts & _PTS_MASK,
            audio.npackets,
            audio.duration_ms,
        )
        + audio.data
    )


def unpack_audio(message: bytes, ctx: str = "") -> Audio:
    """Read a binary message back.

    Args:
        message: Header and payload.
        ctx: The context its `stream` stands for; the wire does not repeat it.

    Raises:
        BadRequestError: It is too short, or of a version or kind that is not audio.
    """
    if len(message) < HEADER.size:
        raise BadRequestError(f"a binary message has {HEADER.size} bytes of header")
    version, kind, flags, stream, seq, segment, pts, npackets, duration_ms = HEADER.unpack_from(
        message
    )
    if (version, kind) != (HEADER_VERSION, KIND_AUDIO):
        raise BadRequestError(f"not an audio message: version {version}, kind {kind}")
    return Audio(
        ctx=ctx,
        stream=stream,
        seq=seq,
        segment=segment,
        pts=pts,
        flags=flags,
        npackets=npackets,
        duration_ms=duration_ms,
        data=message[HEADER.size :],
    )


def join_packets(packets: Iterable[bytes]) -> bytes:
    """The payload of a raw Opus message: each packet behind its u16 length, network byte order."""
    return b"".join(len(packet).to_bytes(2, "big") + packet for packet in packets)


def split_packets(payload: bytes, npackets: int) -> list[bytes]:
    """The Opus packets of a payload.

    Raises:
        BadRequestError: The lengths do not add up to the payload.
    """
    packets = []
    at = 0
    for _ in range(npackets):
        start = at + 2
        at = start + int.from_bytes(payload[at:start], "big")
        if start > len(payload) or at > len(payload):
            raise BadRequestError(f"the payload ends inside one of its {npackets} packets")
        packets.append(payload[start:at])
    if at != len(payload):
        raise BadRequestError(f"{len(payload) - at} bytes follow the last packet")
    return packets
