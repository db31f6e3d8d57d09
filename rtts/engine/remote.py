"""An engine whose cores run in processes of their own: the GPU engine, and more cores than one GIL.

A process keeps the core's steps clear of the event loop's Python, and its death (an exception, a
segmentation fault, the OOM killer, a hang) takes down its utterances and nothing else: they fail
typed, the sockets live on, and a new process is started after a pause.

The child is a fresh interpreter, not a fork, and not `multiprocessing` either, which would import
the server's main module into every engine process and start a tracker process beside it. This
module knows nothing about what the cores are; `rtts.engine.hosting` routes, restarts and merges,
`rtts.engine.child` is the other end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rtts.engine.hosting import Backoff, HostedEngine, Launch, Life, Reports
from rtts.engine.interface import (
    AddVoice,
    CancelUtterance,
    Capabilities,
    Command,
    EngineCore,
    EngineReady,
    Event,
    LoadVoice,
    RemoveVoice,
    UtteranceFailed,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.wire import COMMANDS, EVENTS, Channel, Failure, FrameError, FrameKind, LogLine
from rtts.errors import BadRequestError, ConfigError, UnknownVoiceError

log = logging.getLogger(__name__)

# Runs before anything of rtts can be imported: the child finds modules where the parent does.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from rtts.engine.child import main; sys.exit(main(int(sys.argv[2])))"
)
_EXIT_GRACE_S = 0.05  # after the stream ended, for the exit status that says why
_POLL_S = 0.002  # between two looks whether a process that is ending has ended
_WATCH_S = 0.5  # between two looks at a child; each costs a few microseconds on both sides
_STDERR_FD = 2


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a child process is watched.

    Attributes:
        stall_timeout_s: A core that neither answers nor says anything for this long hangs, and is
            killed; None: what the core says its longest step is (`Capabilities.step_limit_s`).
        load_timeout_s: The same, where longer, while it has a voice to load.
        start_timeout_s: The same until the engine is ready; loading a large model takes minutes.
        stop_timeout_s: How long a child may take to stop before it is killed.
        backoff: How long to wait before a dead process is started again.
    """

    stall_timeout_s: float | None = None
    load_timeout_s: float = 120.0
    start_timeout_s: float = 600.0
    stop_timeout_s: float = 5.0
    backoff: Backoff = Backoff()


class RemoteEngine(HostedEngine):
    """Hosts cores in child processes. POSIX only.

    Owner: event loop.
    """

    def __init__(
        self,
        factory: Callable[..., EngineCore],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        workers: int = 1,
        each: Sequence[Sequence[object]] = (),
        name: str = "remote",
        options: RemoteOptions | None = None,
    ) -> None:
        """Describe the engine; `start` starts it.

        Args:
            factory: Builds one core, in the child; a function or class at the top of an importable
                module.
            args: Its arguments; picklable.
            kwargs: Likewise.
            workers: Processes, each with a core of its own.
            each: Arguments of each process, where they differ (a device each), instead of `args`
                and `workers`. What the cores say of themselves must not differ.
            name: Names the engine in logs and in the process list.
            options: How the processes are watched.

        Raises:
            ConfigError: The factory cannot be found from another process, or processes cannot be
                hosted on this platform.
        """
        if sys.platform == "win32":
            raise ConfigError("an engine process needs a POSIX system; use the local host")
        if factory.__module__ == "__main__":
            raise ConfigError(f"{factory.__qualname__} is defined in a script: move it to a module")
        boots = [
            pickle.dumps((factory, tuple(one), dict(kwargs or {})))
            for one in (each or [args] * workers)
        ]
        options = options or RemoteOptions()

        def launch_of(index: int) -> Launch:
            def launch(loop: asyncio.AbstractEventLoop, reports: Reports) -> Life:
                life = _ProcessLife(f"rtts-{name}-{index}", boots[index], options, loop, reports)
                self._lives[index] = life
                return life

            return launch

        self._lives: dict[int, _ProcessLife] = {}  # latest of each worker
        super().__init__(name, [launch_of(index) for index in range(len(boots))], options.backoff)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers' latest lives, for metrics and for operators."""
        return tuple(life.pid for _, life in sorted(self._lives.items()))


class _ProcessLife:
    """One child process with one core. Owner: event loop."""

    def __init__(
        self,
        name: str,
        boot: bytes,
        options: RemoteOptions,
        loop: asyncio.AbstractEventLoop,
        reports: Reports,
    ) -> None:
        self._name = name
        self._options = options
        self._loop = loop
        self._reports = reports
        ours, theirs = socket.socketpair()
        try:
            self._process = _spawn(name, theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._channel = Channel(ours)
        self._is_over = False  # the stream ended, the core failed or hung, or stop was called
        self._is_stopped = False  # stop was called
        self._is_writing = False  # the loop watches for room in the socket
        self._is_ready = False  # the core has said something: it was built
        self._step_limit_s = Capabilities("", "", (), "").step_limit_s  # until it says its own
        self._loading: set[str] = set()  # voices it was told to load
        # Since when the child owes an answer; None when it has said something since it was asked.
        self._asked_s: float | None = loop.time()
        self._watchdog = loop.call_later(self._interval_s(), self._watch)
        loop.add_reader(ours, self._read)
        self._send(FrameKind.BOOT, boot)

    # --- to the child ---------------------------------------------------------------------------

    def send(self, commands: Sequence[Command]) -> None:
        try:
            self._send(FrameKind.COMMANDS, COMMANDS.encode(commands))
            self._loading |= {each.voice for each in commands if isinstance(each, LoadVoice)}
        except (UnicodeEncodeError, OverflowError):
            for command in commands:
                self._send_or_fail(command)

    def _send_or_fail(self, command: Command) -> None:
        """Send one command; one that cannot cross fails its utterance and nobody else's."""
        try:
            self._send(FrameKind.COMMANDS, COMMANDS.encode([command]))
        except (UnicodeEncodeError, OverflowError):
            if isinstance(command, LoadVoice | AddVoice | RemoveVoice):
                name = command.voice.id if isinstance(command, AddVoice) else command.voice
                code, message = UnknownVoiceError.code, "not a name a voice can have"
                self._loop.call_soon(self._tell, VoiceFailed(name, code, message))
                return
            failed = UtteranceFailed(
                command.utterance_id,
                BadRequestError.code,
                "the text is not valid Unicode, or a number has more than 64 bits",
            )
            self._loop.call_soon(self._tell, failed)
            self._send(FrameKind.COMMANDS, COMMANDS.encode([CancelUtterance(command.utterance_id)]))

    def _tell(self, event: Event) -> None:
        if not self._is_over:
            self._reports.events([event])

    def _send(self, kind: FrameKind, body: bytes = b"") -> None:
        if not self._is_over:
            self._channel.send(kind, body)
            self._watch_room()

    def _watch_room(self) -> None:
        """Have the loop call `_write` as long as the socket is too full to take everything."""
        if bool(self._channel.unsent_bytes) == self._is_writing:
            return
        self._is_writing = not self._is_writing
        if self._is_writing:
            self._loop.add_writer(self._channel, self._write)
        else:
            self._loop.remove_writer(self._channel)

    def _write(self) -> None:
        self._channel.flush()
        self._watch_room()

    # --- from the child -------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            frames = self._channel.receive()
            if frames is None:
                self._on_end()
                return
            events, failure = _sort(frames)
        except (FrameError, msgspec.DecodeError) as error:
            self._die(f"the engine process sends what nobody understands: {error}")
            return
        if frames:
            self._asked_s = None
        if events:
            self._is_ready = True
            self._note(events)
            self._reports.events(events)
        if failure is not None and not self._is_over:
            if not failure.is_config:  # its message says all
                log.error("%s: the core raised\n%s", self._name, failure.traceback)
            # It is about to exit by itself.
            self._die(failure.message, kill=False, is_config=failure.is_config)

    def _note(self, events: Sequence[Event]) -> None:
        """What the core's words say about how long it may be silent."""
        for event in events:
            if isinstance(event, EngineReady):
                self._step_limit_s = event.capabilities.step_limit_s
            elif isinstance(event, VoiceLoaded | VoiceFailed):
                self._loading.discard(event.voice)

    def _on_end(self) -> None:
        """The stream ended: the process is gone, or will be in a moment; find out why."""
        self._leave()
        self._report_exit(self._loop.time() + _EXIT_GRACE_S)

    def _report_exit(self, deadline_s: float) -> None:
        status = self._process.poll()
        if status is None and self._loop.time() < deadline_s:
            self._loop.call_later(_POLL_S, self._report_exit, deadline_s)
            return
        if status is None:
            self._process.kill()
        if not self._is_stopped:
            self._reports.died(f"the engine process {_ending(status)}")

    def _die(self, message: str, *, kill: bool = True, is_config: bool = False) -> None:
        self._leave()
        if kill:
            self._process.kill()
        self._reports.died(message, is_config=is_config)

    def _leave(self) -> None:
        """Stop listening and talking; the socket stays open, for its closing would kill."""
        self._is_over = True
        self._watchdog.cancel()
        self._loop.remove_reader(self._channel)
        if self._is_writing:
            self._loop.remove_writer(self._channel)

    # --- watching and stopping ------------------------------------------------------------------

    def _interval_s(self) -> float:
        return min(_WATCH_S, self._stall_limit_s() / 4)

    def _stall_limit_s(self) -> float:
        given_s = self._options.stall_timeout_s
        return self._step_limit_s if given_s is None else given_s

    def _silence_limit_s(self) -> float:
        """How long the core may be silent now."""
        if not self._is_ready:
            return self._options.start_timeout_s
        limit_s = self._stall_limit_s()
        return max(limit_s, self._options.load_timeout_s) if self._loading else limit_s

    def _watch(self) -> None:
        """Ask whether the core still steps, and kill it when it did not answer in time."""
        self._watchdog = self._loop.call_later(self._interval_s(), self._watch)
        # First hear what has arrived: it may be this loop that stood still.
        self._read()
        if self._is_over:
            return
        if self._process.poll() is not None:
            self._on_end()  # a process that it forked still holds its end of the socket
            return
        if self._asked_s is None:
            self._asked_s = self._loop.time()
            self._send(FrameKind.PING)
            return
        silent_s = self._loop.time() - self._asked_s
        if silent_s > self._silence_limit_s():
            self._die(f"the engine process did not answer for {silent_s:.1f} s and was killed")

    async def stop(self) -> None:
        self._is_stopped = True
        if not self._is_over:
            self._leave()
            self._channel.end()
            if not self._is_ready:  # it may be reading weights for a minute, and hears nothing
                self._process.kill()
        if not await self._has_exited(self._options.stop_timeout_s):
            log.warning("%s does not stop and is killed", self._name)
            self._process.kill()
            if not await self._has_exited(self._options.stop_timeout_s):
                log.error("%s, process %d, cannot be killed", self._name, self.pid)
        self._channel.close()

    async def _has_exited(self, timeout_s: float) -> bool:
        """Wait for the process to end, and reap it."""
        deadline_s = self._loop.time() + timeout_s
        while self._process.poll() is None:
            if self._loop.time() >= deadline_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def _sort(frames: Sequence[tuple[int, memoryview]]) -> tuple[list[Event], Failure | None]:
    """The events of these frames, and the failure if one tells of it."""
    events: list[Event] = []
    failure = None
    for kind, body in frames:
        if kind == FrameKind.EVENTS:
            events += EVENTS.decode(body)
        elif kind == FrameKind.FAILED:
            failure = msgspec.msgpack.decode(body, type=Failure)
        elif kind == FrameKind.LOG:
            line = msgspec.msgpack.decode(body, type=LogLine)
            logging.getLogger(line.logger).log(line.level, "%s", line.message)
    return events, failure


def _ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "closed its socket and was killed"
    if status < 0:
        names = {each.value: each.name for each in signal.Signals}
        return f"was killed by {names.get(-status, f'signal {-status}')}"
    return f"exited with status {status}"


def _spawn(name: str, theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start the interpreter of a child that inherits one socket and nothing else."""
    fd = theirs.fileno()
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            _BOOTSTRAP,
            name,
            str(fd),
            json.dumps([str(each) for each in sys.path]),
        ],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR_FD,  # stdout may be the audio that `rtts say` pipes into a player
        pass_fds=[fd],
        start_new_session=True,  # Ctrl-C at the terminal is the parent's to answer
    )
