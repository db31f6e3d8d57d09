from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.cli.standard import PipeWriter, typed_text


async def read_all(fd: int) -> list[str]:
    return [piece async for piece in typed_text(fd)]


@given(st.text(), st.data())
@settings(max_examples=30, deadline=None)
def test_any_cut_gives_the_same_text(text: str, data: st.DataObject) -> None:
    """Wherever reads cut the bytes, also inside a character, the pieces join to the text."""
    raw = text.encode("utf-8", "replace")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=5)))

    async def feed() -> list[str]:
        out, into = os.pipe()
        reading = asyncio.create_task(read_all(out))
        for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            if raw[begin:end]:
                await asyncio.to_thread(os.write, into, raw[begin:end])
            await asyncio.sleep(0)
        os.close(into)
        try:
            return await reading
        finally:
            os.close(out)

    assert "".join(asyncio.run(feed())) == raw.decode()


async def test_pieces_come_at_once() -> None:
    """A piece is passed on while the writer is still there: nothing is buffered."""
    out, into = os.pipe()
    pieces = typed_text(out)
    for word in ("Hello ", "there"):
        os.write(into, word.encode())
        assert await asyncio.wait_for(anext(pieces), 5) == word
    os.close(into)
    assert [piece async for piece in pieces] == []
    os.close(out)


async def test_broken_bytes() -> None:
    """Bytes that are no UTF-8 become the replacement character; a cut-off end too."""
    out, into = os.pipe()
    os.write(into, b"a\xffb\xe2\x82")
    os.close(into)
    assert "".join(await read_all(out)) == "a\ufffdb\ufffd"
    os.close(out)


async def test_unreadable() -> None:
    """An input that cannot be read is an error, not an empty text."""
    out, into = os.pipe()
    os.close(into)
    os.close(out)
    try:
        await read_all(out)
    except OSError:
        return
    raise AssertionError("no error")


def test_silent_input_does_not_keep_the_loop() -> None:
    """A reader that is left while its input says nothing does not block the end of the program."""
    out, into = os.pipe()

    async def leave() -> None:
        reading = asyncio.create_task(read_all(out))
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(leave())
    os.close(into)  # the thread now ends by itself


async def test_pipe_takes_everything() -> None:
    """However slow the reader, every byte arrives in order, and the loop goes on meanwhile."""
    out, into = os.pipe()
    writer = PipeWriter(into)
    pieces = [bytes([n]) * 50_000 for n in range(10)]

    async def write() -> None:
        for piece in pieces:
            await writer.write(piece)
        os.close(into)

    writing = asyncio.create_task(write())
    read = b""
    while piece := await asyncio.to_thread(os.read, out, 10_000):
        read += piece
    await writing
    os.close(out)
    assert read == b"".join(pieces)


async def test_pipe_that_was_closed() -> None:
    """A reader that left is a BrokenPipeError."""
    out, into = os.pipe()
    os.close(out)
    with pytest.raises(BrokenPipeError):
        await PipeWriter(into).write(b"x")
    os.close(into)


def test_stuck_pipe_does_not_keep_the_loop() -> None:
    """A reader that takes nothing does not block the end of the program."""
    out, into = os.pipe()

    async def leave() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await PipeWriter(into).write(bytes(1_000_000))

    asyncio.run(leave())
    os.close(out)  # the thread's write now fails
