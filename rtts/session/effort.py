"""How hard Opus tries: less when so many listen that the encoder would fill the event loop.

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
# Effort comes back only well below the limit, or it would change with every context.
RELAXED = 0.8


class OpusEffort:
    """The complexity of all Opus encoders of a server.

    Owner: event loop.

    Attributes:
        level: What encoders use now.
        max_live: Live utterances at the usual complexity.
    """

    def __init__(self, complexity: int, packet_s: float) -> None:
        """Set the limit from what a packet costs here.

        Args:
            complexity: The usual libopus complexity.
            packet_s: Seconds that encoding one packet takes at that complexity.
        """
        self.level = complexity
        self.max_live = max(1, int(ENCODING_SHARE / (PACKETS_PER_S * packet_s)))
        self._usual = complexity

    @property
    def is_saving(self) -> bool:
        """Whether encoders try less hard than configured."""
        return self.level < self._usual

    def follow(self, n_live: int) -> None:
        """So many utterances are live."""
        if n_live > self.max_live:
            self.level = min(self._usual, SAVING_COMPLEXITY)
        elif n_live <= RELAXED * self.max_live:
            self.level = self._usual
