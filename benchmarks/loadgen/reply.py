"""One reply under observation: everything the client can see of it, and what is wrong with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.loadgen.player import Player
from rtts.audio.opus import Decoder
from rtts.protocol.audio_message import HEADER, split_packets
from rtts.protocol.events import (
    Done,
    Error,
    FirstAudio,
    SegmentStarted,
    Started,
    StreamFormat,
)

_BYTES_PER_SAMPLE = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}
# A finished context is watched a little longer for messages that must not come.
AFTER_DONE_S = 0.2


@dataclass
class Outcome:
    """What became of one reply. Times are seconds; None where it did not get that far.

    Attributes:
        ending: "completed", a `done` reason, an error code, "closed_1006", "timeout", "http_503",
            "cut" (the run ended first).
        first_packet_s: From sending the message with the last character of the first segment to
            its first audio.
        from_first_text_s: From sending the first message with text.
        onset_s: Where in the audio sound begins.
        first_sound_s: `first_packet_s + onset_s`: when a player without a buffer is heard.
        faults: What rtts.v1 does not allow, counted by name.
    """

    started_at: float
    ending: str = ""
    first_packet_s: float | None = None
    from_first_text_s: float | None = None
    onset_s: float | None = None
    first_sound_s: float | None = None
    server_ttfa_s: float | None = None
    server_within_budget: bool | None = None
    rtf: float | None = None
    audio_s: float = 0.0
    wall_s: float = 0.0
    chars: int = 0
    n_messages: int = 0
    n_bytes: int = 0
    stalls_s: list[float] = field(default_factory=list)
    starved_s: float = 0.0
    late_sends_s: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)


class Reply:
    """The client's side of one context, fed by its connection.

    Attributes:
        finished: Set when nothing more will come.
        ends_at: When a listener has heard it all.
    """

    def __init__(
        self,
        ctx: str,
        *,
        started_at: float,
        player_buffer_s: float,
        onset_level: float | None,
        on_stream: Callable[[int], None] = lambda stream: None,
    ) -> None:
        """Make one; `onset_level` is the sample value (of 32768) that counts as sound."""
        self.ctx = ctx
        self.outcome = Outcome(started_at)
        self.finished = asyncio.Event()
        self._player = Player(player_buffer_s)
        self._onset_level = onset_level
        self._on_stream = on_stream
        self._sent: list[tuple[int, float]] = []  # (characters so far, when)
        self._written_at: dict[int, float] = {}  # by segment: when its last character was sent
        self._format: StreamFormat | None = None
        self._decoder: Decoder | None = None
        self._is_done = False  # the server's own end, not one of ours
        self._next_seq = 0
        self._next_pts = 0
        self._samples = 0  # as a decoder puts them out

    @property
    def ends_at(self) -> float:
        """When a listener has heard what arrived."""
        return self._player.ends_at

    def sent(self, n_chars: int, at: float) -> None:
        """A message brought the text to `n_chars` characters."""
        self._sent.append((n_chars, at))
        self.outcome.chars = n_chars

    def _sent_at(self, n_chars: int) -> float:
        return next((at for n, at in self._sent if n >= n_chars), self.outcome.started_at)

    # --- messages ----------------------------------------------------------------------------

    def receive(self, message: Any, at: float) -> None:
        """Take a control message of this context."""
        if self.outcome.ending:
            self.outcome.faults["after_done"] += self._is_done
            return
        match message:
            case Started():
                self._format = message.format
                self._on_stream(message.stream)
            case SegmentStarted():
                self._written_at[message.segment] = self._sent_at(message.chars[1])
            case FirstAudio():
                self.outcome.server_ttfa_s = message.ttfa_ms / 1000
                self.outcome.server_within_budget = message.within_budget
            case Error():
                self.outcome.faults["error_" + message.code] += 1
            case Done():
                self._take_done(message, at)
            case _:
                pass

    def receive_audio(self, data: bytes, at: float) -> None:
        """Take a binary message of this context."""
        if self.outcome.ending:
            self.outcome.faults["after_done"] += self._is_done
            return
        _, _, _, _, seq, segment, pts, npackets, _ = HEADER.unpack_from(data)
        if self._format is None:
            self.outcome.faults["audio_before_started"] += 1
            return
        self._check_order(seq, segment, pts)
        self.outcome.n_messages += 1
        self.outcome.n_bytes += len(data)
        payload = data[HEADER.size :]
        n_samples = self._count(payload, npackets)
        written_at = self._written_at.get(segment, self.outcome.started_at)
        if self.outcome.first_packet_s is None:
            self.outcome.from_first_text_s = at - self._sent_at(0)
            self.outcome.first_packet_s = at - written_at
        if self.outcome.onset_s is None and self._onset_level is not None:
            self._listen(payload, npackets)
        self._samples += n_samples
        self._next_pts = pts + n_samples
        self._player.feed(n_samples / self._format.sample_rate, at, written_at)

    def closed(self, ending: str, at: float) -> None:
        """The connection ended, or the run did."""
        if not self.outcome.ending:
            self._end(ending, at)

    # --- checks ------------------------------------------------------------------------------

    def _check_order(self, seq: int, segment: int, pts: int) -> None:
        faults = self.outcome.faults
        if seq > self._next_seq:
            faults["seq_gap"] += seq - self._next_seq
        elif seq < self._next_seq:
            faults["seq_repeated"] += 1
        if pts != self._next_pts:
            faults["pts_wrong"] += 1
        if segment not in self._written_at:
            faults["audio_before_segment"] += 1
        self._next_seq = seq + 1

    def _count(self, payload: bytes, npackets: int) -> int:
        """Samples a decoder will put out, at the format's rate."""
        assert self._format is not None
        if npackets:
            return npackets * self._format.frame_ms * self._format.sample_rate // 1000
        return len(payload) // _BYTES_PER_SAMPLE.get(self._format.codec, 1)

    def _listen(self, payload: bytes, npackets: int) -> None:
        """Look for the first sample that can be heard."""
        assert self._format is not None and self._onset_level is not None
        rate = self._format.sample_rate
        if self._format.codec == "opus":
            self._decoder = self._decoder or Decoder(rate, 1)
            pcm = b"".join(self._decoder.decode(p) for p in split_packets(payload, npackets))
        else:
            pcm = payload if self._format.codec == "pcm_s16le" else b""
        samples = np.frombuffer(pcm, np.int16).astype(np.int32)
        loud = np.flatnonzero(np.abs(samples) >= self._onset_level)
        if loud.size:
            at = self._samples + int(loud[0]) - self._format.pre_skip * rate // 48_000
            self.outcome.onset_s = max(0, at) / rate
            if self.outcome.first_packet_s is not None:
                self.outcome.first_sound_s = self.outcome.first_packet_s + self.outcome.onset_s

    def _take_done(self, done: Done, at: float) -> None:
        self._is_done = True
        is_whole = done.reason == "completed"
        self._end("completed" if is_whole else done.code or done.reason, at)
        self.outcome.rtf = done.metrics.rtf if done.metrics is not None else None
        if self._format is None:
            return
        frame = self._format.frame_ms * self._format.sample_rate // 1000
        skipped = self._format.pre_skip * self._format.sample_rate // 48_000
        surplus = self._samples - skipped * bool(self._samples) - done.samples
        if surplus < 0:
            self.outcome.faults["audio_missing"] += 1
        elif is_whole and surplus > 2 * frame:
            self.outcome.faults["audio_too_long"] += 1
        if done.last_seq != self._next_seq - 1:
            self.outcome.faults["last_seq_wrong"] += 1
        if is_whole and not self._samples:
            self.outcome.faults["no_audio"] += 1

    def _end(self, ending: str, at: float) -> None:
        self._player.end(at)
        outcome = self.outcome
        outcome.ending = ending
        outcome.audio_s = self._player.audio_s
        outcome.stalls_s = self._player.stalls_s
        outcome.starved_s = self._player.starved_s
        outcome.wall_s = at - outcome.started_at
        self.finished.set()
