"""Which voice heads are kept: an index of keys and handles, least recently used first out.

Integers only; the tensors behind a handle are the runner's. Byte sizes are given, not measured.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from rtts.engine.qwen.prompt import Conditioning


@dataclass(slots=True)
class _Entry:
    handle: int
    size_bytes: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """Counters since start."""

    hits: int
    misses: int
    evictions: int
    entries: int
    size_bytes: int


class PrefixIndex:
    """Keys of cached heads.

    Owner: engine thread. Pinned entries stay, and count; where they alone exceed the limit, the
    others live only as long as nothing else is added.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[Conditioning, _Entry] = OrderedDict()
        self._next_handle = 1
        self._size_bytes = 0
        self._hits = self._misses = self._evictions = 0

    def find(self, key: Conditioning) -> int | None:
        """The handle of a cached head; counts a hit or a miss."""
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry.handle

    def has(self, key: Conditioning) -> bool:
        """Whether a head is cached; counts nothing."""
        return key in self._entries

    def has_voice(self, key: Conditioning) -> bool:
        """Whether any head of the same voice is cached."""
        voice = (key.speaker, key.clone)
        return any((other.speaker, other.clone) == voice for other in self._entries)

    def add(self, key: Conditioning, size_bytes: int) -> int:
        """Note a head that will be built; its handle."""
        assert key not in self._entries
        entry = _Entry(self._next_handle, size_bytes, pinned=False)
        self._next_handle += 1
        self._entries[key] = entry
        self._size_bytes += size_bytes
        return entry.handle

    def is_pinned(self, key: Conditioning) -> bool:
        """Whether a head is cached to stay."""
        return key in self._entries and self._entries[key].pinned

    def pin(self, key: Conditioning) -> None:
        """Keep a head whatever else comes."""
        self._entries[key].pinned = True

    def drop(self, key: Conditioning) -> int:
        """Forget a head (it could not be built, or is damaged); its handle."""
        entry = self._entries.pop(key)
        self._size_bytes -= entry.size_bytes
        return entry.handle

    def evict(self, in_use: frozenset[int] = frozenset()) -> list[tuple[Conditioning, int]]:
        """Drop least recently used heads until the limit is kept; what was dropped."""
        dropped: list[tuple[Conditioning, int]] = []
        for key, entry in list(self._entries.items()):
            if self._size_bytes <= self._limit_bytes:
                break
            if entry.pinned or entry.handle in in_use:
                continue
            dropped.append((key, self.drop(key)))
        self._evictions += len(dropped)
        return dropped

    @property
    def stats(self) -> PrefixStats:
        """Counters since start."""
        return PrefixStats(
            self._hits, self._misses, self._evictions, len(self._entries), self._size_bytes
        )
