"""How hard Opus tries: less when so many listen that encoding would fill the event loop.

The loop encodes itself, or waits while threads of its own encode for several listeners at once.

Encoding is the largest part of what the server itself costs: 125 us for 20 ms of speech at
complexity 5, 53 us at 0 and little more at 1 (two EPYC cores). PESQ on the embedded voice is 4.39 at
5 and 4.20 at 0 (benchmarks/results/opus-*.json).
All encoders of a server follow one level, in the middle of a stream too, which Opus allows.
"""

from __future__ import annotations

SAVING_COMPLEXITY = 1
# With packets of 20 ms, this share of a core is left to encoding before effort is saved. The rest
# of the loop needs about 3 ms for a second of a stream's audio; together they must not fill it.
ENCODING_SHARE = 0.35
PACKETS_PER_S = 50
# What a thread more is worth: the interpreter lock is taken twice for each packet.
THREAD_GAIN = 0.7
# Effort comes back only well below the limit, or it would change with every context.
RELAXED = 0.8


class OpusEffort:
    """The complexity of all Opus encoders of a server.

    Owner: event loop.

    Attributes:
        level: What encoders use now.
        max_live: Listeners at the usual complexity.
        threads: Encoders that may be at work at the same time; 0 where the loop encodes.
    """

    def __init__(self, complexity: int, packet_s: float, threads: int = 0) -> None:
        """Set the limit from what a packet costs here.

        Args:
            complexity: The usual libopus complexity.
            packet_s: Seconds that encoding one packet takes at that complexity.
            threads: That share the work; 0 or 1 is the loop alone.
        """
        self.level = complexity
        self.threads = threads if threads > 1 else 0
        share = ENCODING_SHARE * max(1.0, THREAD_GAIN * threads)
        self.max_live = max(1, int(share / (PACKETS_PER_S * packet_s)))
        self._usual = complexity

    @property
    def is_saving(self) -> bool:
        """Whether encoders try less hard than configured."""
        return self.level < self._usual

    def follow(self, n_live: int) -> None:
        """So many listen."""
        if n_live > self.max_live:
            self.level = min(self._usual, SAVING_COMPLEXITY)
        elif n_live <= RELAXED * self.max_live:
            self.level = self._usual
