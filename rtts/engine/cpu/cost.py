"""What the next piece of work will probably cost, learned from what the last ones did.

Knows nothing about utterances or clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WEIGHT: Final = 0.1  # of the newest measurement: the mean of about the last ten
# A first chunk costs 4 ms, and 0.06 ms for each character up to the first cut; so 65 characters'
# worth comes on top of the text's own.
_BASE_CHARS: Final = 65
_MOST_CHARS: Final = 160


@dataclass(slots=True)
class CostModel:
    """Moving averages of seconds of work. Owner: the core.

    Attributes:
        first_chunk_s: Of an utterance's first chunk.
        later_chunk_s: Of any other piece of work.
    """

    first_chunk_s: float = 0.01
    later_chunk_s: float = 0.004
    _per_char_s: float = 0.01 / (_BASE_CHARS + 40)

    def predict_first_s(self, chars: int) -> float:
        """Of the first chunk of a text of that many characters."""
        return self._per_char_s * _weight(chars)

    def learn_first(self, chars: int, seconds: float) -> None:
        """Take a measured first chunk."""
        self.first_chunk_s += _WEIGHT * (seconds - self.first_chunk_s)
        self._per_char_s += _WEIGHT * (seconds / _weight(chars) - self._per_char_s)

    def learn_later(self, seconds: float) -> None:
        """Take a measured piece of later work."""
        self.later_chunk_s += _WEIGHT * (seconds - self.later_chunk_s)


def _weight(chars: int) -> int:
    return _BASE_CHARS + min(chars, _MOST_CHARS)
