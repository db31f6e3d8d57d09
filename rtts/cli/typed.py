"""Standard input as text that is still being written: each read is passed on as it comes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import threading
from collections.abc import AsyncIterator

_READ_BYTES = 65_536


async def typed_text(fd: int) -> AsyncIterator[str]:
    """Text of a file descriptor, unbuffered: whatever a read returns is one piece.

    Bytes that are not UTF-8 become U+FFFD; a character cut by a read is held until it is whole.

    The reading thread is a daemon: a terminal or a pipe that says nothing more must not keep the
    command from ending.
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
