"""Threads that encode, several listeners' audio at the same time, beside the event loop.

libopus needs no interpreter, so its calls can run side by side. What is around them stays on the
loop, in order. This module knows nothing about sessions or audio.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

# More would take the interpreter lock from each other: a packet needs it for about 10 us of 100.
MOST_THREADS = 8
# The loop and an engine have a core each.
OTHER_CORES = 2
# Work begun for each thread: one at it, one waiting. What is not begun is still put in order.
AHEAD = 2
# A thread comes back for the lock after each packet, and gets it after so long if the loop has it.
SWITCH_INTERVAL_S = 0.001

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
        width: Threads; below 2 there are none.
    """

    def __init__(self, threads: int) -> None:
        self.width = threads if threads > 1 else 0
        self._n_begun = 0
        self._jobs: SimpleQueue[tuple[Job, Job, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"rtts-encoder-{index}", daemon=True)
            for index in range(self.width)
        ]
        if self._threads:
            sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
        for thread in self._threads:
            thread.start()

    @property
    def has_room(self) -> bool:
        """Whether another job would be begun soon; always, where there are no threads."""
        return not self.width or self._n_begun < AHEAD * self.width

    def begin(self, job: Job, done: Job) -> None:
        """Have a job done on a thread, then `done` called on the loop. One that raises is logged."""
        self._n_begun += 1
        self._jobs.put((job, done, asyncio.get_running_loop()))

    def close(self) -> None:
        """End the threads once they have done what was begun; idempotent."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self.width = 0
        self._threads.clear()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done, loop = item
            try:
                job()
            except Exception:
                log.exception("encoding failed")
            loop.call_soon_threadsafe(self._end, done)

    def _end(self, done: Job) -> None:
        self._n_begun -= 1
        done()
