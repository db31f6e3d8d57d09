"""What became of each text of a batch: one JSON object a line, appended as it happens.

The last line about an item counts. A run that was cut off may have left half a line; it is ended
and passed over. In memory an item costs nine bytes, so that a million are nothing. Knows nothing
about speech.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from array import array
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from rtts.cli.failure import CommandError

log = logging.getLogger(__name__)

FILE_NAME = "manifest.jsonl"
# An item's index is data of a file that anybody may have edited: it must not size our memory.
_MAX_INDEX = 100_000_000


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item.

    Attributes:
        line: Where it begins in the input.
        status: `done`; `empty`: there was nothing to speak in it; `failed`.
        sha256: Of its text and all settings it depends on; "" where it could not be read.
        file: Its audio, in the manifest's folder; "" where there is none.
        wall_s: From its start to its end, beside others.
        attempts: How often the server began with it; 0 where it refused to.
        warnings: What was not spoken, or not well.
        code: Of a failure: a stable word.
    """

    index: int
    line: int
    status: Literal["done", "empty", "failed"]
    id: str | int | None = None
    sha256: str = ""
    file: str = ""
    audio_s: float = 0.0
    wall_s: float = 0.0
    attempts: int = 0
    warnings: tuple[str, ...] = ()
    code: str = ""
    message: str = ""


class Manifest:
    """The manifest of a folder, held by one command at a time; a context manager.

    Owner: event loop.
    """

    def __init__(self, folder: Path) -> None:
        """Describe it; entering reads what there is.

        Args:
            folder: Exists.
        """
        self._folder = folder
        self._path = folder / FILE_NAME
        self._digests = array("Q")  # first eight bytes, by index
        self._has_file = bytearray()  # by index: 0 nothing is known, 1 done, 2 empty

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            try:
                self._file = stack.enter_context(self._path.open("ab+"))
                self._lock()
                self._read()
            except OSError as error:
                raise CommandError(f"{self._path} cannot be written: {error.strerror}") from error
            stack.pop_all()  # it stays open until the batch is over
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def settled(self, index: int, digest: str, file_name: str) -> bool:
        """Whether an item with this digest was spoken before, and what came of it is there."""
        if index >= len(self._digests) or self._digests[index] != _short(digest):
            return False
        if self._has_file[index] != 1:
            return self._has_file[index] == 2  # known to be empty
        try:
            return (self._folder / file_name).stat().st_size > 0
        except OSError:
            return False

    def write(self, entry: Entry) -> None:
        """Append an entry; it is with the system when this returns.

        Raises:
            CommandError: It cannot be written.
        """
        try:
            self._file.write(msgspec.json.encode(entry) + b"\n")
            self._file.flush()
        except OSError as error:
            raise CommandError(f"{self._path} cannot be written: {error.strerror}") from error
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        index = entry.index
        if index >= len(self._digests):
            missing = index + 1 - len(self._digests)
            self._digests.extend([0] * missing)
            self._has_file.extend(bytes(missing))
        self._digests[index] = _short(entry.sha256)
        self._has_file[index] = {"done": 1, "empty": 2, "failed": 0}[entry.status]

    def _read(self) -> None:
        self._file.seek(0)
        last = b"\n"
        for number, last in enumerate(self._file, start=1):
            try:
                entry = msgspec.json.decode(last, type=Entry)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("%s:%d is passed over: %s", self._path, number, error)
                continue
            if 1 <= entry.index <= _MAX_INDEX:
                self._note(entry)
        if not last.endswith(b"\n"):  # a run that was cut off
            self._file.write(b"\n")

    def _lock(self) -> None:
        """Keep other batches out of the folder.

        Raises:
            CommandError: One is at work there.
        """
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"another rtts batch is writing to {self._folder}") from error


def _short(digest: str) -> int:
    """Eight bytes of a digest; of none, 0."""
    try:
        return int(digest[:16] or "0", 16)
    except ValueError:
        return 0
