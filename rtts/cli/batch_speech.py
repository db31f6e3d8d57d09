"""Speaks the items of a batch through one server, several at a time, each into a file of its own.

A *lane* takes one item after the other. What goes wrong with an item costs that item; an engine
that dies costs nothing: its items are spoken again, and one that was there at two deaths is kept
for the end and spoken alone, so that a text that kills engines is known from those beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rtts_client import (
    Audio,
    ConnectError,
    ConnectionLostError,
    ContextFailedError,
    Done,
    Format,
    RttsError,
    Started,
    Warned,
    connect,
)

from rtts.audio.formats import make_encoder, resolve_format
from rtts.audio.wav import wav_header
from rtts.cli.batch_input import Item
from rtts.cli.batch_manifest import Entry, Manifest
from rtts.cli.failure import CommandError

if TYPE_CHECKING:
    from rtts_client import Client

    from rtts.audio.formats import Packet, StreamEncoder
    from rtts.cli.servers import Target

SAMPLE_RATE_HZ = 24_000
_PCM = Format("pcm_s16le", "raw", SAMPLE_RATE_HZ)
_ENCODE_BYTES = 4 * SAMPLE_RATE_HZ  # two seconds: some ms of encoding for each change of threads
# Without a sign of life for this long the server is given up. An engine that loads a large model
# again is back by then on anything but a disk that is asleep.
GIVE_UP_S = 300.0
_RETRY_S = 1.0  # where the server does not say when to come back
_DEATHS = 2  # at which an item is kept for the end; then, at which it is at fault
_REFUSED = ("unauthorized", "auth_timeout", "forbidden_origin")
_COME_BACK = ("overloaded", "rate_limited", "too_many_contexts", "shutting_down", "resume_failed")
_NOTHING_TO_SPEAK = "no_speakable_text"  # the warning about it
_NOT_THE_TEXT = ("session_replaced", "slow_consumer", "idle_timeout")


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file.

    Attributes:
        format: What the server is asked for.
        is_wav: A WAV header stands before it.
    """

    suffix: str
    format: Format
    is_wav: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What is common to every item of a batch.

    Attributes:
        folder: Where files go.
        kind: Of the files.
        defaults: Options of items that say nothing else: voice, language, ...
        context: All of it and the engine, for the digest.
        complexity: libopus effort where files are encoded here: a server of our own would lower it
            while many texts are spoken at once, and a file should not depend on its neighbours.
            None leaves encoding to the server, which is right where audio comes over a network.
    """

    folder: Path
    kind: FileKind
    defaults: dict[str, Any]
    context: str
    complexity: int | None


@dataclass(slots=True)
class Tally:
    """What a run has come to. Owner: event loop."""

    done: int = 0
    empty: int = 0
    failed: int = 0
    warned: int = 0
    audio_s: float = 0.0

    @property
    def settled(self) -> int:
        """Items that need no further work."""
        return self.done + self.empty + self.failed


@dataclass(slots=True, eq=False)
class _Work:
    """An item and what it went through. Owner: its lane."""

    item: Item
    begun_s: float
    attempts: int = 0
    deaths: int = 0  # of the engine, while it spoke this
    warnings: list[str] = field(default_factory=list)
    is_alone: bool = False  # it was kept for the end, and nobody else is speaking
    is_empty: bool = False  # the server said that there is nothing to speak


class Speech:
    """Speaks a batch.

    Owner: event loop.
    """

    def __init__(
        self, job: Job, target: Target, manifest: Manifest, tell: Callable[[], None]
    ) -> None:
        """Describe it.

        Args:
            target: The server.
            manifest: Is told of every item.
            tell: Called when there is progress.
        """
        self.tally = Tally()
        self._job, self._target, self._manifest, self._tell = job, target, manifest, tell
        self._suspects: list[_Work] = []  # were there at two deaths: at most lanes x deaths
        self._alive_s = time.monotonic()  # when audio came, or an item was settled

    async def run(self, items: Iterator[Item], lanes: int) -> None:
        """Speak them all; returns when each is settled.

        Args:
            items: Those to be spoken.
            lanes: How many at once.

        Raises:
            CommandError: The server cannot be reached any more, or files cannot be written.
        """
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(_Connection(self._target))
            each = await self._contexts_of(first)
            more = [_Connection(self._target) for _ in range((lanes - 1) // each)]
            connections = [first, *[await stack.enter_async_context(one) for one in more]]
            try:
                async with asyncio.TaskGroup() as group:
                    for lane in range(lanes):
                        group.create_task(self._lane(connections[lane // each], items))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
            for work in self._suspects:
                work.deaths, work.is_alone = 0, True
                await self._settle(first, work)

    async def _contexts_of(self, connection: _Connection) -> int:
        """How many texts a connection carries at once."""
        while True:
            try:
                return max(1, (await connection.client()).ready.limits.max_contexts)
            except ConnectError as error:
                await self._on_refusal(error)

    async def _lane(self, connection: _Connection, items: Iterator[Item]) -> None:
        for item in items:
            work = _Work(item, time.monotonic())
            if item.problem:
                self._write(work, "failed", code="bad_line", message=item.problem)
            else:
                await self._settle(connection, work)

    async def _settle(self, connection: _Connection, work: _Work) -> None:
        """Speak an item until it is spoken, has failed, or is kept for the end."""
        while True:
            work.warnings.clear()
            client: Client | None = None
            try:
                client = await connection.client()
                done = await self._speak(client, work)
            except ContextFailedError as error:
                if not await self._can_go_on(work, error):
                    return
            except ConnectError as error:
                await self._on_refusal(error)
            except ConnectionLostError as error:
                connection.lost(client)
                await self._wait(error)
            else:
                self._conclude(work, done)
                return

    async def _can_go_on(self, work: _Work, error: ContextFailedError) -> bool:
        """What a failure means for an item; whether it is to be spoken again now."""
        if error.code in _COME_BACK + _NOT_THE_TEXT:
            await self._wait(error)
            return True
        if error.code == "engine_dead":
            if work.deaths < _DEATHS:
                await self._wait(error)
                return True
            if work.is_alone:
                message = "the engine dies of this text"
                self._write(work, "failed", code=error.code, message=message)
            else:
                self._suspects.append(work)
            return False
        if error.code == "utterance_failed" and work.attempts < 2:
            return True  # out of memory, perhaps: it may fit the second time
        self._write(work, "failed", code=error.code, message=error.message)
        return False

    async def _on_refusal(self, error: ConnectError) -> None:
        """No connection was made: wait, unless waiting will not help.

        Raises:
            CommandError: It will not.
        """
        if error.code in _REFUSED:
            raise CommandError(f"the server refuses: {error}; see --api-key") from error
        await self._wait(error)

    async def _wait(self, error: RttsError) -> None:
        """Wait until trying again is worth it.

        Raises:
            CommandError: It was not, for too long.
        """
        if time.monotonic() - self._alive_s > GIVE_UP_S:
            raise CommandError(
                f"nothing was spoken for {GIVE_UP_S:.0f} s: {error}; what is done stays done, "
                "the same command goes on from there"
            ) from error
        await asyncio.sleep(error.retry_after_s or _RETRY_S)

    async def _speak(self, client: Client, work: _Work) -> Done:
        """Speak an item into its file, which appears when it is complete.

        Raises:
            RttsError: It was not spoken.
            CommandError: The file cannot be written.
        """
        wanted, job = work.item.wanted, self._job
        assert wanted is not None
        options = dict(job.defaults)
        for name in ("voice", "language", "instructions", "seed", "speed"):
            if getattr(wanted, name) is not None:
                options[name] = getattr(wanted, name)
        is_begun = False
        context = client.context(
            format=_PCM if job.complexity is not None else job.kind.format,
            max_lead_ms=0,
            timestamps="none",
            priority="batch",
            buffer_s=math.inf,
            max_buffer_s=math.inf,
            reports=False,
            **options,
        )
        with _NewFile(self._path(work.item), job.kind, self._encoder(work.item)) as file:
            done: Done | None = None
            try:
                async with context:
                    async for event in context.speak(wanted.text):
                        match event:
                            case Started():
                                work.attempts += 1
                                is_begun = True
                            case Audio():
                                await file.write(event.data)
                                self._alive_s = time.monotonic()
                            case Warned():
                                self._note(work, event)
                            case Done():
                                done = event
                            case _:
                                pass
            except ContextFailedError as error:
                work.deaths += is_begun and error.code == "engine_dead"
                raise
            assert done is not None, "a context ends with done"
            if done.audio_ms > 0:
                await file.complete()
            return done

    def _encoder(self, item: Item) -> StreamEncoder | None:
        """What encodes an item here; the same item gives the same bytes."""
        job, wanted = self._job, self._job.kind.format
        if job.complexity is None or wanted.codec == "pcm_s16le":
            return None
        audio = resolve_format(wanted.codec, wanted.container, wanted.sample_rate, wanted.bitrate)
        return make_encoder(
            audio, SAMPLE_RATE_HZ, complexity=job.complexity, serial=item.index & 0xFFFFFFFF
        )

    def _note(self, work: _Work, warning: Warned) -> None:
        work.is_empty = warning.code == _NOTHING_TO_SPEAK
        work.warnings.append(f"{warning.code}: {warning.message}")

    def _path(self, item: Item) -> Path:
        return self._job.folder / f"{item.name}{self._job.kind.suffix}"

    def _conclude(self, work: _Work, done: Done) -> None:
        if done.audio_ms > 0:
            self._write(work, "done", audio_s=done.audio_ms / 1000)
        elif work.is_empty:
            self._write(work, "empty")
        else:
            message = work.warnings[-1] if work.warnings else "there was no sound"
            self._write(work, "failed", code="nothing_spoken", message=message)

    def _write(self, work: _Work, status: Any, **fields: Any) -> None:
        """Put an item's end into the manifest."""
        item = work.item
        has_digest = item.wanted is not None and status != "failed"
        entry = Entry(
            index=item.index,
            line=item.line,
            status=status,
            id=item.wanted.id if item.wanted else None,
            sha256=item.digest(self._job.context) if has_digest else "",
            file=self._path(item).name if status == "done" else "",
            wall_s=round(time.monotonic() - work.begun_s, 3),
            attempts=work.attempts,
            warnings=tuple(work.warnings),
            **fields,
        )
        self._manifest.write(entry)
        self._alive_s = time.monotonic()
        setattr(self.tally, status, getattr(self.tally, status) + 1)
        self.tally.warned += status == "done" and bool(work.warnings)
        self.tally.audio_s += entry.audio_s
        self._tell()


class _Connection:
    """A connection that lanes share: opened when it is needed, and anew when it is lost or to end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Client | None = None

    async def __aenter__(self) -> _Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def client(self) -> Client:
        """The connection.

        Raises:
            ConnectError: It cannot be made.
        """
        async with self._opening:
            if self._client is None or self._client.goaway is not None:
                # One that was asked to go away still carries what its other lanes have begun.
                opening = connect(self._target.url, api_key=self._target.api_key)
                self._client = await self._stack.enter_async_context(opening)
            return self._client

    def lost(self, client: Client | None) -> None:
        """That one carries nothing any more; the next use opens another."""
        if self._client is client:
            self._client = None


class _NewFile:
    """A file under a temporary name that gets its own when it is complete, and else is removed.

    Args:
        encoder: Makes what the file holds of the PCM that arrives; None where that arrives.
    """

    def __init__(self, path: Path, kind: FileKind, encoder: StreamEncoder | None) -> None:
        self._path, self._kind, self._encoder = path, kind, encoder
        self._temporary = path.with_name(f".{path.name}.part")
        self._file: IO[bytes] | None = None  # from the first audio
        self._is_complete = False
        self._audio_bytes = 0
        self._waiting: list[bytes] = []  # PCM that is not worth a thread's attention yet

    def __enter__(self) -> _NewFile:
        return self

    async def write(self, data: bytes) -> None:
        """Append audio."""
        if self._encoder is None:
            self._append(data)
            return
        self._waiting.append(data)
        if sum(map(len, self._waiting)) >= _ENCODE_BYTES:
            await self._encode(self._encoder.encode)

    async def complete(self) -> None:
        """There is no more audio: the file may have its name, if there was any."""
        if self._encoder is not None:
            encoder = self._encoder
            await self._encode(lambda pcm: [*encoder.encode(pcm), *encoder.flush()])
        self._is_complete = True

    async def _encode(self, encode: Callable[[bytes], list[Packet]]) -> None:
        """Encode what waits, on a thread: libopus works without Python's lock."""
        pcm = b"".join(self._waiting)
        self._waiting.clear()
        for packet in await asyncio.to_thread(encode, pcm):
            self._append(packet.payload)

    def _append(self, data: bytes) -> None:
        with _writing(self._path):
            if self._file is None:
                self._file = self._temporary.open("wb")
                self._file.write(self._header())
            self._file.write(data)
            self._audio_bytes += len(data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        try:
            with _writing(self._path):
                with self._file as file:
                    if self._is_complete:
                        file.seek(0)
                        file.write(self._header())
                if self._is_complete and kind is None:
                    os.replace(self._temporary, self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _header(self) -> bytes:
        if not self._kind.is_wav:
            return b""
        return wav_header(self._kind.format.sample_rate or 0, self._audio_bytes // 2)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
