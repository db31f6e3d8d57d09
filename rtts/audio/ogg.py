"""Ogg Opus: packets to pages and back (RFC 3533, RFC 7845), one logical stream.

Granule positions, durations and totals are in samples at 48 kHz, whatever rate was encoded: that
is Opus' own clock. This module needs no libopus: a packet's duration is in its first byte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

GRANULES_PER_S: Final = 48_000

# Live streams: at most 80 ms a page, so that a page waits for no more than one codec frame of the
# model. The first 80 ms go one packet a page, because a page that waits delays the first sound.
PAGE_MAX: Final = GRANULES_PER_S * 80 // 1000

_CONTINUED: Final = 1
_FIRST: Final = 2
_LAST: Final = 4
_NO_GRANULE: Final = 0xFFFF_FFFF_FFFF_FFFF  # no packet ends on the page (RFC 3533 section 6)
_MAX_SEGMENTS: Final = 255
_PAGE: Final = struct.Struct("<4sBBQIIIB")  # magic, version, flags, granule, serial, number, crc, n
_CRC_AT: Final = 22
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<8sBBHIhB")
_VENDOR: Final = b"rtts"

# Each byte with its bits in reverse order.
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

# RFC 6716 section 3.1: frame durations by configuration (the five high bits of the first byte).
_FRAME_GRANULES: Final = (
    *(480, 960, 1920, 2880) * 3,  # SILK
    *(480, 960) * 2,  # hybrid
    *(120, 240, 480, 960) * 4,  # CELT
)


class OggError(ValueError):
    """Bytes that are not an Ogg Opus stream, or a broken one."""


@dataclass(frozen=True, slots=True)
class OpusHead:
    """The identification header (RFC 7845 section 5.1).

    Attributes:
        pre_skip: Samples at 48 kHz to drop from the start of the decoded audio.
        input_rate_hz: Rate of the audio before encoding; says nothing about decoding.
        gain: Gain to apply when decoding, in 1/256 dB.
    """

    channels: int
    pre_skip: int
    input_rate_hz: int
    gain: int = 0

    def encode(self) -> bytes:
        """The packet, version 1 and mapping family 0 (mono or stereo)."""
        return _HEAD.pack(
            b"OpusHead", 1, self.channels, self.pre_skip, self.input_rate_hz, self.gain, 0
        )

    @classmethod
    def decode(cls, packet: bytes) -> OpusHead:
        """Read the packet.

        Raises:
            OggError: It is no OpusHead, or one of another major version or mapping family.
        """
        if len(packet) < _HEAD.size or packet[:8] != b"OpusHead":
            raise OggError("the first packet is no OpusHead")
        _, version, channels, pre_skip, input_rate_hz, gain, family = _HEAD.unpack_from(packet)
        if version > 15 or family != 0 or channels not in (1, 2):
            raise OggError(
                f"OpusHead version {version}, mapping family {family}, {channels} channels"
                " is not supported"
            )
        return cls(channels, pre_skip, input_rate_hz, gain)


class OggOpus(NamedTuple):
    """A stream that was read.

    Attributes:
        head: Its identification header.
        packets: Its audio packets.
        total_samples: Samples at 48 kHz to play, after pre-skip and the cut at the end.
    """

    head: OpusHead
    packets: list[bytes]
    total_samples: int


def packet_duration(packet: bytes) -> int:
    """Samples at 48 kHz that a packet decodes to (RFC 6716 section 3.1).

    Raises:
        OggError: The packet is malformed.
    """
    if not packet:
        raise OggError("empty Opus packet")
    frames = (1, 2, 2, 0)[packet[0] & 3]
    if not frames:
        if len(packet) < 2:
            raise OggError("Opus packet ends before its frame count")
        frames = packet[1] & 0x3F
    duration = frames * _FRAME_GRANULES[packet[0] >> 3]
    if not 0 < duration <= 5760:  # 120 ms, RFC 6716 requirement R5
        raise OggError(f"Opus packet of {frames} frames lasts {duration} samples")
    return duration


def page_crc(page: bytes | bytearray) -> int:
    """The checksum of a page whose checksum field is zero (RFC 3533 section 6, field 7).

    zlib computes the same polynomial with the bits of every byte, and of the result, in the
    other order: that is 20 times faster than a table loop in Python.
    """
    mirrored = zlib.crc32(page.translate(_REVERSED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_REVERSED), "big")


class OggOpusWriter:
    """Packs Opus packets into Ogg pages as they come. Owner: its stream.

    What `write` and `finish` return, concatenated, is the file; the header pages come first. How it
    is cut into pages depends on the packets only, as long as all have one duration.

    Attributes:
        granules: Samples at 48 kHz of the packets on the pages returned so far.
    """

    def __init__(self, head: OpusHead, serial: int) -> None:
        """Prepare a stream.

        Args:
            head: Its identification header.
            serial: 32 bits; streams that end up in one file need different ones.
        """
        self.granules = 0
        self._head = head
        self._serial = serial & 0xFFFF_FFFF
        self._page_number = 0
        self._waiting: list[bytes] = []
        self._waiting_granules = 0
        self._waiting_segments = 0
        self._is_finished = False

    def write(self, packet: bytes, *, more_follow: bool = False) -> bytes:
        """Take a packet; return the pages that are complete, mostly one or none.

        Args:
            packet: The next Opus packet.
            more_follow: Whether another packet will surely come. If not, a full page waits for it,
                since the last page must say that it is the last and where the audio ends.

        Raises:
            OggError: The packet is malformed.
            ValueError: The stream is finished.
        """
        if self._is_finished:
            raise ValueError("the Ogg stream is finished")
        duration = packet_duration(packet)
        segments = len(packet) // 255 + 1
        pages = self._header_pages()
        if self._waiting and not self._fits(duration, segments):
            pages += self._flush_page()
        self._waiting.append(packet)
        self._waiting_granules += duration
        self._waiting_segments += segments
        if more_follow and not self._fits(duration, segments):
            pages += self._flush_page()
        return pages

    def finish(self, total_samples: int | None = None) -> bytes:
        """End the stream; return its last page (and the headers, if there was no packet).

        Args:
            total_samples: Samples at 48 kHz to play; the rest of the last page is cut off when
                decoding (RFC 7845 section 4.4). None plays all there is.

        Raises:
            ValueError: The stream was finished before, `total_samples` is more than the packets
                hold, or the cut does not lie on the last page.
        """
        if self._is_finished:
            raise ValueError("the Ogg stream is finished")
        decoded = self.granules + self._waiting_granules
        end = decoded
        if total_samples:
            end = self._head.pre_skip + total_samples
        elif total_samples == 0:
            end = min(decoded, self._head.pre_skip)
        if not self.granules <= end <= decoded:
            raise ValueError(
                f"cannot end at sample {end}: the last page has {self.granules} to {decoded}"
            )
        self._is_finished = True
        self.granules = decoded
        return self._header_pages() + self._page(self._waiting, end, _LAST)

    def _header_pages(self) -> bytes:
        """OpusHead and OpusTags, the first time; a page each (RFC 7845 section 3)."""
        if self._page_number:
            return b""
        tags = b"OpusTags" + struct.pack("<I", len(_VENDOR)) + _VENDOR + struct.pack("<I", 0)
        return self._page([self._head.encode()], 0, _FIRST) + self._page([tags], 0, 0)

    def _fits(self, duration: int, segments: int) -> bool:
        most = PAGE_MAX if self.granules >= PAGE_MAX else 0
        return (
            self._waiting_granules + duration <= most
            and self._waiting_segments + segments <= _MAX_SEGMENTS
        )

    def _flush_page(self) -> bytes:
        self.granules += self._waiting_granules
        page = self._page(self._waiting, self.granules, 0)
        self._waiting = []
        self._waiting_granules = self._waiting_segments = 0
        return page

    def _page(self, packets: list[bytes], granule: int, flags: int) -> bytes:
        lacing = b"".join(b"\xff" * (len(p) // 255) + bytes([len(p) % 255]) for p in packets)
        number, self._page_number = self._page_number, self._page_number + 1
        page = bytearray(
            _PAGE.pack(b"OggS", 0, flags, granule, self._serial, number, 0, len(lacing))
        )
        page += lacing
        for packet in packets:
            page += packet
        _CRC.pack_into(page, _CRC_AT, page_crc(page))
        return bytes(page)


class _Page(NamedTuple):
    """A page that was read: `packets` as cut by its lacing, the last one whole or not."""

    flags: int
    granule: int
    serial: int
    number: int
    packets: list[bytes]
    is_last_whole: bool


def read_ogg_opus(data: bytes) -> OggOpus:
    """Read a whole stream.

    A stream may end after any page (a connection that broke); it is read as far as it goes.

    Raises:
        OggError: It is no Ogg Opus, a checksum or page number is wrong, or there is more than one
            logical stream.
    """
    packets: list[bytes] = []
    partial: bytes | None = None
    serial: int | None = None
    granule = 0
    for number, page in enumerate(_read_pages(data)):
        serial = page.serial if serial is None else serial
        if page.serial != serial:
            raise OggError("more than one logical stream")
        if page.number != number:
            raise OggError(f"page {page.number} where {number} is due")
        if bool(page.flags & _FIRST) != (number == 0):
            raise OggError(f"page {number} has the wrong flag for the first page")
        if bool(page.flags & _CONTINUED) != (partial is not None):
            raise OggError(f"page {number} and the one before disagree about a packet on both")
        if page.packets:
            page.packets[0] = (partial or b"") + page.packets[0]
            partial = None if page.is_last_whole else page.packets.pop()
        packets += page.packets
        if page.granule != _NO_GRANULE:
            granule = page.granule
    if len(packets) < 2 or packets[1][:8] != b"OpusTags":
        raise OggError("an Ogg Opus stream begins with OpusHead and OpusTags")
    head = OpusHead.decode(packets[0])
    decoded = sum(map(packet_duration, packets[2:]))
    return OggOpus(head, packets[2:], max(0, min(granule, decoded) - head.pre_skip))


def _read_pages(data: bytes) -> Iterator[_Page]:
    at = 0
    while at < len(data):
        if len(data) - at < _PAGE.size:
            raise OggError(f"a page header is cut off at byte {at}")
        magic, version, flags, granule, serial, number, crc, segments = _PAGE.unpack_from(data, at)
        if magic != b"OggS" or version != 0:
            raise OggError(f"no Ogg page at byte {at}")
        lacing = data[at + _PAGE.size : at + _PAGE.size + segments]
        body = at + _PAGE.size + segments
        end = body + sum(lacing)
        if len(lacing) < segments or end > len(data):
            raise OggError(f"page {number} is cut off")
        if page_crc(data[at : at + _CRC_AT] + bytes(4) + data[at + _CRC_AT + 4 : end]) != crc:
            raise OggError(f"page {number} has a wrong checksum")
        packets, length = [], 0
        for lace in lacing:
            length += lace
            if lace < 255:
                packets.append(data[body : body + length])
                body, length = body + length, 0
        is_last_whole = not lacing or lacing[-1] < 255
        if not is_last_whole:
            packets.append(data[body : body + length])
        yield _Page(flags, granule, serial, number, packets, is_last_whole)
        at = end
