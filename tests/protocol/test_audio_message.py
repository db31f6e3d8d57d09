from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.errors import BadRequestError
from rtts.protocol.audio_message import (
    HEADER,
    join_packets,
    pack_audio,
    split_packets,
    unpack_audio,
)
from rtts.protocol.events import Audio, AudioFlags
from tests.protocol.strategies import AUDIO


@given(AUDIO)
def test_audio_round_trips(audio: Audio) -> None:
    """unpack(pack(x)) == x."""
    assert unpack_audio(pack_audio(audio), audio.ctx) == audio


def test_the_header_is_the_documented_24_bytes() -> None:
    """Every field stands where the protocol page says, in network byte order."""
    flags = AudioFlags.FIRST_OF_CONTEXT | AudioFlags.REPLAY
    audio = Audio("c", 0x01020304, 0x11121314, 0x21222324, 0x31323334, flags, 0x4142, 0x5152, b"z")
    assert pack_audio(audio) == bytes.fromhex(
        "01 01 0021 01020304 11121314 21222324 31323334 4142 5152 7a"
    )
    assert HEADER.size == 24


@given(st.integers(0, 2**40))
def test_pts_wraps_at_32_bits(pts: int) -> None:
    """A position past 2**32 samples is sent modulo 2**32."""
    sent = pack_audio(Audio("c", 0, 0, 0, pts, 0, 0, 0, b""))
    assert unpack_audio(sent).pts == pts % 2**32


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_or_audio(data: bytes) -> None:
    """Any bytes are an audio message or a BadRequestError."""
    try:
        audio = unpack_audio(data)
    except BadRequestError:
        assert len(data) < 24 or data[:2] != b"\x01\x01"
    else:
        assert pack_audio(audio) == data


@pytest.mark.parametrize("head", [b"\x02\x01", b"\x01\x02", b"\x01"])
def test_another_version_or_kind_is_not_audio(head: bytes) -> None:
    """Version, kind and length are checked."""
    with pytest.raises(BadRequestError):
        unpack_audio(head + bytes(22))


@given(st.lists(st.binary(max_size=1300), max_size=8))
def test_packets_round_trip(packets: list[bytes]) -> None:
    """split(join(x)) == x, empty packets included."""
    assert split_packets(join_packets(packets), len(packets)) == packets


@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_a_cut_or_padded_payload_is_refused(packets: list[bytes], data: st.DataObject) -> None:
    """A payload whose lengths do not add up is an error, never a short packet."""
    payload = join_packets(packets)
    if packets:
        cut = data.draw(st.integers(0, len(payload) - 1))
        with pytest.raises(BadRequestError):
            split_packets(payload[:cut], len(packets))
    with pytest.raises(BadRequestError):
        split_packets(payload + b"\x00", len(packets))


def test_a_packet_longer_than_its_length_field_cannot_be_sent() -> None:
    """65,535 bytes is the most; more is our own bug and says so."""
    join_packets([bytes(0xFFFF)])
    with pytest.raises(OverflowError):
        join_packets([bytes(0x10000)])


def test_a_field_that_does_not_fit_is_our_own_bug() -> None:
    """Only pts wraps."""
    with pytest.raises(struct.error):
        pack_audio(Audio("c", 2**32, 0, 0, 0, 0, 0, 0, b""))
