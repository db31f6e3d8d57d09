"""An engine whose cores run on threads of this process: the CPU voice, tests, everything small.

One thread a worker, one core a thread. Commands go in through a queue, events come out through a
deque and one wake-up of the event loop for as many events as are waiting. For engines that hold the
GIL for long, or that can take the process down with them, there is `rtts.engine.remote`.

It knows nothing about what the cores are; `rtts.engine.hosting` routes, restarts and merges.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from rtts.engine.drive import drive
from rtts.engine.hosting import Backoff, HostedEngine, Launch, Life, Reports
from rtts.engine.interface import Command, EngineCore, Event
from rtts.errors import ConfigError

log = logging.getLogger(__name__)

# A step is bounded (see EngineCore.step); a thread that has not come back from one by then hangs.
_STOP_TIMEOUT_S = 10.0

# A core that steps in pure Python without a pause is asked for the GIL only every 5 ms
# (sys.getswitchinterval). It lets the event loop in this often instead: the loop's lag p99 beside
# such a core falls from 9.7 ms to 0.5, at no cost in throughput where a core of the machine is
# free for each thread ("saturated" in benchmarks/engine_host.py).
_YIELD_AFTER_S = 0.0005


class LocalEngine(HostedEngine):
    """Hosts cores on threads.

    Owner: event loop. Commands are applied between steps; a cancel is seen within one step.
    """

    def __init__(
        self,
        make_core: Callable[[], EngineCore],
        workers: int = 1,
        name: str = "local",
        *,
        backoff: Backoff | None = None,
    ) -> None:
        """Describe the engine; `start` starts it.

        Args:
            make_core: Builds one core; called on the worker's own thread, again after a death.
            workers: Threads, each with a core of its own.
            name: Names the threads, and the engine in logs.
            backoff: How long to wait before a dead core is built again.
        """

        def launch_of(index: int) -> Launch:
            def launch(loop: asyncio.AbstractEventLoop, reports: Reports) -> Life:
                return _ThreadLife(make_core, f"rtts-{name}-{index}", loop, reports)

            return launch

        super().__init__(name, [launch_of(index) for index in range(workers)], backoff or Backoff())


class _ThreadLife:
    """One thread with one core. Owner: event loop, except `_run` and the port."""

    def __init__(
        self,
        make_core: Callable[[], EngineCore],
        name: str,
        loop: asyncio.AbstractEventLoop,
        reports: Reports,
    ) -> None:
        self._make_core = make_core
        self._port = _ThreadPort(loop, reports)
        self._ended = asyncio.Event()
        # A daemon, so that an engine nobody closed cannot keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def send(self, commands: Sequence[Command]) -> None:
        self._port.commands.put(commands)

    async def stop(self) -> None:
        self._port.close()
        try:
            await asyncio.wait_for(self._ended.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            log.error("%s did not stop within %g s", self._thread.name, _STOP_TIMEOUT_S)
        else:
            self._thread.join()  # it has nothing left to do but to return

    def _run(self) -> None:
        """The thread: build the core, drive it, and say how it ended."""
        message, is_config = "the engine thread ended by itself", False
        try:
            core = self._make_core()
            drive(core, self._port)
        except ConfigError as error:
            message, is_config = str(error), True
        except (Exception, SystemExit) as error:  # the thread's root: all of it is a death
            log.exception("%s: the core raised", threading.current_thread().name)
            message = f"{type(error).__name__}: {error}"
        finally:
            self._port.end(message, self._ended.set, is_config=is_config)


class _ThreadPort:
    """The core's `Port`: a queue in, a deque and a wake-up out.

    No lock is needed: the deque's methods are atomic, and the flag is cleared before the deque is
    emptied, so an event appended meanwhile is either taken or wakes the loop again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reports: Reports) -> None:
        self.commands: SimpleQueue[Sequence[Command] | None] = SimpleQueue()  # None: stop
        self._loop = loop
        self._reports = reports
        self._events: deque[Sequence[Event]] = deque()
        self._is_woken = False  # the loop is due to empty the deque
        self._paused_s = 0.0  # when the thread last waited or yielded

    # --- on the thread --------------------------------------------------------------------------

    def receive(self, wait_s: float | None) -> Sequence[Command] | None:
        if wait_s == 0.0:
            self._yield_sometimes()
            return self._take([])
        try:
            first = self.commands.get(timeout=wait_s)
        except Empty:
            first = []
        self._paused_s = time.monotonic()
        return self._take(first)

    def _take(self, first: Sequence[Command] | None) -> Sequence[Command] | None:
        """A batch, and all that has come since; None once a stop is among it."""
        if first is None:
            return None
        received = list(first)
        while not self.commands.empty():
            batch = self.commands.get_nowait()
            if batch is None:
                return None
            received.extend(batch)
        return received

    def _yield_sometimes(self) -> None:
        """Sleep for as short as the system can, when the thread has run for long without."""
        if time.monotonic() - self._paused_s >= _YIELD_AFTER_S:
            time.sleep(0)  # about 60 us on Linux: unlike sched_yield, another thread gets the GIL
            self._paused_s = time.monotonic()

    def emit(self, events: Sequence[Event]) -> None:
        self._events.append(events)
        # A loop that was closed will never run what it was woken for; `_call` finds out.
        if not self._is_woken or self._loop.is_closed():
            self._is_woken = True
            self._call(self._empty)

    def end(self, message: str, ended: Callable[[], None], *, is_config: bool) -> None:
        """Have the loop hear the last events, then of the death, then that the thread is done."""
        self._call(self._end, message, ended, is_config)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed before the engine: nobody is left to hear anything.
            self.commands.put(None)

    # --- on the event loop ----------------------------------------------------------------------

    def close(self) -> None:
        """Stop the thread after the step it is in."""
        self.commands.put(None)

    def _empty(self) -> None:
        self._is_woken = False
        events: list[Event] = []
        while self._events:
            events.extend(self._events.popleft())
        if events:
            self._reports.events(events)

    def _end(self, message: str, ended: Callable[[], None], is_config: bool) -> None:
        self._empty()
        self._reports.died(message, is_config=is_config)
        ended()
