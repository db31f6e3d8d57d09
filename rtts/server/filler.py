"""Silence in place of speech, for clients that cannot bear a reply without audio.

Agent frameworks take a reply without audio for a failure: one speaks the text again three times,
another gives the service up. Where a text has nothing to speak in it (an emoji, a dash), their
clients are sent a tenth of a second of silence. Clients of rtts.v1 are told in words instead.
"""

from __future__ import annotations

from typing import cast

from rtts.audio.formats import make_encoder, resolve_format
from rtts.protocol.audio_message import join_packets
from rtts.protocol.events import (
    AnyServerMessage,
    Audio,
    AudioFlags,
    Done,
    ServerMessage,
    Started,
)

SILENCE_MS = 100
_SOURCE_HZ = 24_000


class Filler:
    """Puts silence before the end of replies that have no audio. Owner: a connection."""

    def __init__(self) -> None:
        self._started: dict[str, Started] = {}  # contexts that run

    def fill(self, message: ServerMessage) -> list[AnyServerMessage]:
        """The message, with what has to come before it."""
        if isinstance(message, Started):
            self._started[message.ctx] = message
        elif isinstance(message, Done):
            started = self._started.pop(message.ctx, None)
            is_silent = message.reason == "completed" and message.last_seq < 0
            if started is not None and is_silent and message.text_chars:
                return [silence(started), message]
        return [cast(AnyServerMessage, message)]


def silence(started: Started) -> Audio:
    """The one audio message of a context in which nothing is spoken."""
    asked = started.format
    fmt = resolve_format(
        asked.codec,
        asked.container,
        asked.sample_rate,
        asked.bitrate or None,
        asked.frame_ms or None,
    )
    encoder = make_encoder(fmt, _SOURCE_HZ)
    packets = encoder.encode(bytes(2 * _SOURCE_HZ * SILENCE_MS // 1000)) + encoder.flush()
    payloads = [packet.payload for packet in packets]
    is_packets = fmt.codec == "opus" and fmt.container == "raw"
    return Audio(
        ctx=started.ctx,
        stream=started.stream,
        seq=0,
        segment=0,
        pts=0,
        flags=int(AudioFlags.FIRST_OF_CONTEXT | AudioFlags.LAST_OF_CONTEXT | AudioFlags.SILENCE),
        npackets=len(packets) if is_packets else 0,
        duration_ms=SILENCE_MS,
        data=join_packets(payloads) if is_packets else b"".join(payloads),
    )
