"""Threads that encode for several listeners while the event loop waits.

libopus needs no interpreter, so its calls can run side by side; what is around them stays on the
loop, in one turn and in order. The loop waits rather than goes on: a session is then never asked
anything while half of its audio is encoded. This module knows nothing about sessions or audio.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

# More would take the interpreter lock from each other: a packet needs it for about 10 us of 100.
MOST_THREADS = 8
# The loop and an engine have a core each.
OTHER_CORES = 2

Job = Callable[[], None]

log = logging.getLogger(__name__)


def threads_here() -> int:
    """How many this machine has a use for: half the cores that nothing else needs; one is none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = min(MOST_THREADS, ((cores or 1) - OTHER_CORES) // 2)
    return threads if threads > 1 else 0


class Encoders:
    """A few threads and their work.

    Owner: event loop.

    Attributes:
        width: Threads; below 2 there are none, and `run` works by itself.
    """

    def __init__(self, threads: int) -> None:
        self.width = threads if threads > 1 else 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        for index in range(self.width):
            name = f"rtts-encoder-{index}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, jobs: Sequence[Job]) -> None:
        """Have all jobs done; returns when they are. One that raises is logged."""
        if not self.width or len(jobs) < 2:
            for job in jobs:
                job()
            return
        for job in jobs:
            self._jobs.put(job)
        for _ in jobs:
            self._done.get()

    def close(self) -> None:
        """End the threads; idempotent. Nothing may be running."""
        for _ in range(self.width):
            self._jobs.put(None)
        self.width = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("encoding failed")
            finally:
                self._done.put(None)
