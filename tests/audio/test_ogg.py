from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.ogg import (
    PAGE_MAX,
    OggError,
    OggOpusWriter,
    OpusHead,
    _Page,
    _read_pages,
    packet_duration,
    page_crc,
    read_ogg_opus,
)
from rtts.audio.opus import OPUS_RATES_HZ, Application, Encoder
from tests.audio.signals import voice

HEAD = OpusHead(channels=1, pre_skip=312, input_rate_hz=24_000)

# The first page of a file that libsndfile 1.2.2 wrote.
FOREIGN_PAGE = bytes.fromhex(
    "4f676753000200000000000000007425785300000000e00255ea01134f7075734865616401013801c05d0000000000"
)


def opus_packet(config: int, size: int, seed: int) -> bytes:
    """One frame of configuration `config` (its duration), with arbitrary bytes."""
    return bytes([config << 3]) + bytes((seed + at * 7) % 256 for at in range(size))


PACKETS = st.lists(
    st.builds(
        opus_packet,
        st.integers(0, 31),
        st.one_of(st.integers(0, 300), st.sampled_from([253, 254, 255, 508, 509, 510, 1274])),
        st.integers(0, 255),
    ),
    max_size=40,
)


def write(packets: list[bytes], total: int | None = None, *, more_follow: bool = False) -> bytes:
    writer = OggOpusWriter(HEAD, serial=7)
    last = len(packets) - 1
    pages = [
        writer.write(packet, more_follow=more_follow and at < last)
        for at, packet in enumerate(packets)
    ]
    return b"".join([*pages, writer.finish(total)])


def pages_of(data: bytes) -> list[_Page]:
    return list(_read_pages(data))


def crc_by_definition(data: bytes) -> int:
    """Bit by bit: polynomial 0x04c11db7, nothing reflected, start and end at zero."""
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc


@given(st.binary(max_size=300))
def test_the_checksum_is_the_one_of_rfc_3533(data: bytes) -> None:
    """The fast way gives what the definition gives."""
    assert page_crc(data) == crc_by_definition(data)


def test_a_page_of_another_implementation() -> None:
    """Its checksum is right by our computation, and its header is read."""
    (page,) = pages_of(FOREIGN_PAGE)
    assert OpusHead.decode(page.packets[0]) == OpusHead(1, 312, 24_000)


@given(PACKETS)
def test_packets_come_back(packets: list[bytes]) -> None:
    """Reading what was written gives the packets, in whatever pages they went."""
    stream = read_ogg_opus(write(packets))
    assert stream.head == HEAD
    assert stream.packets == packets
    decoded = sum(map(packet_duration, packets))
    assert stream.total_samples == max(0, decoded - HEAD.pre_skip)


@given(PACKETS)
def test_pages_are_well_formed(packets: list[bytes]) -> None:
    """Numbers, flags and granules as RFC 3533 and RFC 7845 have them; at most 80 ms a page."""
    pages = pages_of(write(packets))
    assert [page.number for page in pages] == list(range(len(pages)))
    assert {page.serial for page in pages} == {7}
    assert [page.flags for page in pages[:2]] == [2, 0]
    assert [page.flags for page in pages[2:]] == [0] * (len(pages) - 3) + [4]
    assert [page.granule for page in pages[:2]] == [0, 0]
    assert pages[1].packets[0].startswith(b"OpusTags")
    granule = 0
    for page in pages[2:]:
        held = sum(map(packet_duration, page.packets))
        if len(page.packets) > 1:
            assert held <= PAGE_MAX
            assert granule >= PAGE_MAX, "the first 80 ms go a packet a page"
        granule += held
        assert page.granule == granule


@given(st.integers(0, 31), st.lists(st.integers(0, 1274), max_size=100))
def test_no_waiting_changes_no_byte_of_the_file(config: int, sizes: list[int]) -> None:
    """With packets of one duration, saying that more will follow only makes pages come earlier."""
    packets = [opus_packet(config, size, size % 256) for size in sizes]
    assert write(packets, more_follow=True) == write(packets)


@given(PACKETS.filter(bool), st.data())
def test_the_end_is_cut_where_it_is_said(packets: list[bytes], data: st.DataObject) -> None:
    """Any total whose end lies on the last page is read back; any other is refused."""
    last = pages_of(write(packets))[-1]
    begin = last.granule - sum(map(packet_duration, last.packets))
    total = data.draw(st.integers(0, last.granule + 100))
    end = total + HEAD.pre_skip if total else min(HEAD.pre_skip, last.granule)
    if begin <= end <= last.granule:
        assert read_ogg_opus(write(packets, total)).total_samples == total
    else:
        with pytest.raises(ValueError, match="cannot end"):
            write(packets, total)


def test_a_page_waits_for_80_ms_only_after_the_first_80() -> None:
    """20 ms packets that more will follow: four pages at once, then one for each four packets."""
    writer = OggOpusWriter(HEAD, 1)
    packets = [opus_packet(1, 80, seed) for seed in range(16)]
    counts = [len(pages_of(writer.write(packet, more_follow=True))) for packet in packets]
    assert counts == [3, 1, 1, 1, *[0, 0, 0, 1] * 3]


@pytest.mark.parametrize("config", [0, 2, 3])
def test_full_pages_do_not_wait_for_the_next_packet(config: int) -> None:
    """Packets of 10, 40 and 60 ms: a page goes with the last packet that fits, not after it."""
    writer = OggOpusWriter(HEAD, 1)
    duration = packet_duration(opus_packet(config, 9, 0))
    waiting = 0
    for seed in range(60):
        waiting += duration
        pages = pages_of(writer.write(opus_packet(config, 9, seed), more_follow=True))
        if pages:
            waiting = 0
        assert waiting + duration <= PAGE_MAX


def test_a_stream_without_audio() -> None:
    """Is three pages, and nothing to play; its total may be given as zero."""
    assert write([]) == write([], 0)
    assert read_ogg_opus(write([])) == (HEAD, [], 0)
    with pytest.raises(ValueError, match="cannot end"):
        write([], 1)


def test_nothing_goes_in_after_the_end() -> None:
    """Neither a packet nor another end."""
    writer = OggOpusWriter(HEAD, 1)
    writer.finish()
    with pytest.raises(ValueError, match="finished"):
        writer.write(opus_packet(1, 9, 0))
    with pytest.raises(ValueError, match="finished"):
        writer.finish()


@settings(max_examples=200)
@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    """Any byte changed, anywhere, is an error."""
    file = bytearray(write([opus_packet(1, 80, seed) for seed in range(9)]))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(OggError):
        read_ogg_opus(bytes(file))


@given(st.integers(1, 700))
def test_a_file_that_ends_early(size: int) -> None:
    """After a whole page it is read as far as it goes; inside one it is an error."""
    packets = [opus_packet(1, 80, seed) for seed in range(9)]
    file = write(packets)
    cut = file[:size]
    try:
        stream = read_ogg_opus(cut)
    except OggError:
        return
    assert file[size : size + 4] in (b"OggS", b"")
    assert stream.packets == packets[: len(stream.packets)]
    assert stream.total_samples == max(0, 960 * len(stream.packets) - 312)


def page(packets: list[bytes], number: int, *, flags: int = 0, granule: int = 0, serial: int = 7,
         lacing: bytes | None = None) -> bytes:  # fmt: skip
    """A page by hand."""
    if lacing is None:
        lacing = b"".join(b"\xff" * (len(p) // 255) + bytes([len(p) % 255]) for p in packets)
    head = struct.pack("<4sBBqIII", b"OggS", 0, flags, granule, serial, number, 0)
    data = head + bytes([len(lacing)]) + lacing + b"".join(packets)
    return data[:22] + struct.pack("<I", crc_by_definition(data)) + data[26:]


TAGS = b"OpusTags" + struct.pack("<I", 0) + struct.pack("<I", 0)
HEADERS = page([HEAD.encode()], 0, flags=2) + page([TAGS], 1)


def test_a_packet_may_lie_on_several_pages() -> None:
    """We write none like that, others do; pages on which no packet ends have granule -1."""
    big = opus_packet(1, 700, 3)
    file = (
        HEADERS
        + page([big[:255]], 2, granule=-1, lacing=b"\xff")
        + page([], 3, flags=1, granule=-1)
        + page([big[255:], big], 4, flags=1 | 4, granule=1920)
    )
    stream = read_ogg_opus(file)
    assert stream.packets == [big, big]
    assert stream.total_samples == 1920 - 312


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "begins with OpusHead"),
        (b"RIFF" + bytes(100), "no Ogg page"),
        (HEADERS[:20], "header is cut off"),
        (HEADERS[:50], "page 1 is cut off|header is cut off"),
        (HEADERS[:-1], "page 1 is cut off"),
        (page([HEAD.encode()], 0, flags=2), "begins with OpusHead"),
        (page([HEAD.encode(), TAGS], 0), "wrong flag for the first"),
        (HEADERS + page([], 3), "page 3 where 2"),
        (HEADERS + page([], 2, flags=2), "wrong flag for the first"),
        (HEADERS + page([], 2, serial=8), "more than one"),
        (HEADERS + page([b"x"], 2, flags=1), "disagree"),
        (HEADERS + page([b"x" * 255], 2, lacing=b"\xff") + page([b"x"], 3), "disagree"),
        (HEADERS + page([b""], 2), "empty Opus packet"),
        (page([TAGS], 0, flags=2) + page([TAGS], 1), "no OpusHead"),
        (page([HEAD.encode()[:18]], 0, flags=2) + page([TAGS], 1), "no OpusHead"),
        (page([OpusHead(3, 0, 0).encode()], 0, flags=2) + page([TAGS], 1), "3 channels"),
        (page([b"OpusHead\x10\x01" + bytes(9)], 0, flags=2) + page([TAGS], 1), "version 16"),
        (page([b"OpusHead\x01\x01" + bytes(8) + b"\x01"], 0, flags=2) + page([TAGS], 1), "family"),
    ],
)
def test_what_is_not_read(file: bytes, reason: str) -> None:
    """Each kind of wrong stream is refused with its reason."""
    with pytest.raises(OggError, match=reason):
        read_ogg_opus(file)


def test_the_identification_header_byte_by_byte() -> None:
    """RFC 7845 section 5.1, figure 3."""
    head = OpusHead(channels=2, pre_skip=0x0138, input_rate_hz=24_000, gain=-256)
    assert head.encode() == b"OpusHead\x01\x02\x38\x01\xc0\x5d\x00\x00\x00\xff\x00"
    assert OpusHead.decode(head.encode()) == head
    assert OpusHead.decode(b"OpusHead\x02" + head.encode()[9:] + b"more") == head


@pytest.mark.parametrize("frame_ms", [2.5, 5, 10, 20, 40, 60, 80, 100, 120])
@pytest.mark.parametrize("fs", OPUS_RATES_HZ)
@pytest.mark.parametrize("application", list(Application))
def test_durations_are_in_the_first_bytes(
    application: Application, fs: int, frame_ms: float
) -> None:
    """Whatever libopus makes, its duration is read without it."""
    size = int(fs * frame_ms / 1000)
    packet = Encoder(fs, 1, application).encode(voice(size, fs), size)
    assert packet_duration(packet) == frame_ms * 48


@pytest.mark.parametrize("packet", [b"", b"\x03", b"\x03\x00", b"\x1b\x03", b"\x9b\x31"])
def test_packets_without_a_duration(packet: bytes) -> None:
    """Empty, cut before the frame count, no frames, or more than 120 ms of them."""
    with pytest.raises(OggError):
        packet_duration(packet)
