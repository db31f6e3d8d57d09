"""The texts of a batch, read as they are needed: an object a line, or the paragraphs of a text.

What cannot be used is an item too, with the reason: it costs itself and nothing else. Knows nothing
about speech or files to be written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from rtts.cli.failure import CommandError

# About five hours of speech. Beyond it a file of another kind was named, and reading on for the end
# of its line would fill the memory.
MAX_ITEM_BYTES = 1 << 18
_LINES = (".jsonl", ".ndjson")
_PARAGRAPHS = (".txt", ".text", ".md")
_MAX_NAME_BYTES = 100
# Scripts without spaces between words: a line break inside a paragraph stands for nothing.
_UNSPACED = re.compile(
    r"(?<=[\u3040-\u30ff\u3400-\u9fff\uff00-\uffef\u3000-\u303f])\n(?=[\u3040-\u9fff\uff00-\uffef\u3000-\u303f])"
)


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One text and how it is to be spoken; what is left out is as the command says."""

    text: str
    id: str | int | None = None
    voice: str | None = None
    language: str | None = None
    instructions: str | None = None
    seed: int | None = None
    speed: float | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One text of the batch.

    Attributes:
        index: 1, 2, 3, ... in the order of the input.
        line: Where it begins in the input, from 1.
        wanted: What to speak; None where that cannot be read.
        problem: Why it cannot be used, else "".
    """

    index: int
    line: int
    wanted: Line | None
    problem: str = ""

    @property
    def name(self) -> str:
        """Of its file, without suffix: its place in the order, and its id where it has one."""
        number = f"{self.index:06d}"
        if self.wanted is None or self.wanted.id is None:
            return number
        word = re.sub(r"[^\w.-]+", "_", str(self.wanted.id)).strip("._")
        word = word.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
        return f"{number}-{word}" if word else number

    def digest(self, context: str) -> str:
        """SHA-256 of everything its audio and its file's name depend on.

        Args:
            context: What is common to the whole batch: voice, format, engine.
        """
        assert self.wanted is not None
        parts = (context.encode(), self.name.encode(), msgspec.json.encode(self.wanted))
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check_input(path: Path) -> None:
    """Find out whether it can be read at all.

    Raises:
        CommandError: It cannot, or its name does not say what it is.
    """
    if path.suffix.lower() not in _LINES + _PARAGRAPHS:
        names = ", ".join(_LINES + _PARAGRAPHS)
        raise CommandError(f"{path}: the name must end in one of {names}")
    if path.is_dir():
        raise CommandError(f"{path} is a directory")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def read_items(path: Path) -> Iterator[Item]:
    """Every item in order; holds one at a time.

    Raises:
        CommandError: The file cannot be read on.
    """
    is_lines = path.suffix.lower() in _LINES
    try:
        with path.open("rb") as file:
            pieces = _lines(file) if is_lines else _paragraphs(file)
            for index, (line, piece) in enumerate(pieces, start=1):
                yield _item(index, line, piece, is_object=is_lines)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def _item(index: int, line: int, piece: bytes | None, *, is_object: bool) -> Item:
    if piece is None:
        return Item(index, line, None, f"it is longer than {MAX_ITEM_BYTES} bytes")
    try:
        wanted = msgspec.json.decode(piece, type=Line) if is_object else Line(_joined(piece))
    except UnicodeDecodeError as error:
        return Item(index, line, None, f"it is not UTF-8 (byte {error.start})")
    except msgspec.DecodeError as error:
        return Item(index, line, None, str(error))
    if not wanted.text.strip():
        return Item(index, line, wanted, "its text is empty")
    return Item(index, line, wanted)


def _joined(paragraph: bytes) -> str:
    """A paragraph as one line: its line breaks are where the page ended, not the thought."""
    lines = [line.strip() for line in paragraph.decode().splitlines()]
    return _UNSPACED.sub("", "\n".join(lines)).replace("\n", " ")


def _raw_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Every line and its number; None for one that is too long, which is read past."""
    number = 0
    while line := file.readline(MAX_ITEM_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        is_whole = line.endswith(b"\n") or len(line) <= MAX_ITEM_BYTES
        while not is_whole:
            rest = file.readline(MAX_ITEM_BYTES)
            is_whole = rest.endswith(b"\n") or not rest
            if is_whole:
                line = b""
        yield number, line or None


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not blank."""
    for number, line in _raw_lines(file):
        if line is None or line.strip():
            yield number, line


def _paragraphs(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Stretches of lines between blank ones, each with the number of its first line."""
    begun, parts, size = 0, list[bytes](), 0
    for number, line in _raw_lines(file):
        if line is None or line.strip():
            begun = begun or number
            size += MAX_ITEM_BYTES + 1 if line is None else len(line)
            if line is not None and size <= MAX_ITEM_BYTES:
                parts.append(line)
        elif begun:
            yield begun, b"".join(parts) if size <= MAX_ITEM_BYTES else None
            begun, parts, size = 0, [], 0
    if begun:
        yield begun, b"".join(parts) if size <= MAX_ITEM_BYTES else None
