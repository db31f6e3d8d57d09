"""Standard input and output without buffers, on threads that never keep the program from ending.

A terminal or a pipe may say nothing, or take nothing, for ever; the threads are daemons and use the
descriptors themselves, not Python's buffered files, whose locks would be held at exit.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue

_READ_BYTES = 65_536


async def typed_text(fd: int) -> AsyncIterator[str]:
    """Text of a file descriptor, unbuffered: whatever a read returns is one piece.

    Bytes that are not UTF-8 become U+FFFD; a character cut by a read is held until it is whole.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()

    def hand_over(piece: bytes | OSError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody listens any more
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def read() -> None:
        try:
            while piece := os.read(fd, _READ_BYTES):
                hand_over(piece)
        except OSError as error:
            hand_over(error)
        else:
            hand_over(b"")

    threading.Thread(target=read, name="rtts-stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        piece = await pieces.get()
        if isinstance(piece, OSError):
            raise piece
        text = decoder.decode(piece, final=not piece)
        if text:
            yield text
        if not piece:
            return


class PipeWriter:
    """Writes to a file descriptor and waits, without holding up anything else.

    Owner: event loop, except `_run`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._run, name="rtts-stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of it; returns when that is done.

        Raises:
            OSError: It cannot be written; BrokenPipeError where nobody reads any more.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        await done

    def _run(self) -> None:
        while True:
            data, done = self._jobs.get()
            view, error = memoryview(data), None
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
