"""Each finished context as a row of a CSV file that rotates: what `rtts report` reads.

Rows are handed to a thread, because a disk may take its time and the event loop may not. Times,
sizes and words of a closed list; no text, no ids of clients. Knows nothing about sockets.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from rtts.errors import ConfigError
from rtts.server.records import milliseconds
from rtts.session import UtteranceRecord

COLUMNS = (
    *("timestamp", "characters", "voice", "language", "first_packet_ms", "total_ms", "rtf"),
    *("cache_hit", "underruns", "error", "outcome", "budget_ms", "within_budget", "guilty_stage"),
    *("split_ms", "queue_ms", "engine_ms", "encode_ms", "send_ms", "audio_s", "codec"),
    *("client_first_sound_ms", "engine"),
)
# Rows that wait for the disk. At a thousand contexts a minute a disk may stand still for ten.
MAX_WAITING = 10_000

log = logging.getLogger(__name__)


class Recording:
    """The CSV file.

    Owner: event loop; the thread it starts owns the file.

    Attributes:
        lost: Rows that were not written: the disk is full, or too slow.
        trouble: Why the last row was not written; "" once one was.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        keep: int,
        epoch_s: Callable[[], float],
        on_lost: Callable[[], None],
    ) -> None:
        """Open the file and start writing.

        Args:
            path: Appended to. What it held under other columns is kept as `path`.1.
            max_bytes: A file that would pass this becomes `path`.1, the former .1 .2 and so on.
            keep: How many of those are kept.
            epoch_s: Unix time at monotonic 0, as it is known at present.
            on_lost: Called on any thread for each row that was not written.

        Raises:
            ConfigError: The file cannot be written, or is none: a pipe would wait for its reader.
        """
        if path.exists() and not path.is_file():
            raise ConfigError(f"server.record_file: {path} is not a regular file")
        self.lost = 0
        self.trouble = ""
        self._epoch_s = epoch_s
        self._on_lost = on_lost
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        try:
            rows = _Rows(path, max_bytes, keep, on_written=self._written, on_error=self._failed)
        except OSError as error:
            raise ConfigError(f"server.record_file: {path}: {error.strerror}") from error
        self._rows = rows
        self._writer = threading.Thread(target=self._write, name="rtts-recording", daemon=True)
        self._writer.start()

    def take(self, record: UtteranceRecord) -> None:
        """Write one context down, soon."""
        line = _line(row(record, self._epoch_s()))
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._failed("the disk is too slow")

    def close(self) -> None:
        """Write what waits and close the file; takes as long as the disk does."""
        self._waiting.put(None)
        self._writer.join()
        self._rows.close()

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._rows.emit(logging.makeLogRecord({"msg": line}))

    def _written(self) -> None:
        self.trouble = ""

    def _failed(self, why: str) -> None:
        self.lost += 1
        self._on_lost()
        if self.trouble != why:  # once, not for every row
            log.error("contexts are not recorded: %s", why)
        self.trouble = why


class _Rows(RotatingFileHandler):
    """Writes rows under a header. Owner: the writer's thread, once open."""

    terminator = "\n"

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        keep: int,
        *,
        on_written: Callable[[], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._on_written = on_written
        self._on_error = on_error
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")
        with path.open(encoding="utf-8", errors="replace") as file:
            is_ours = file.readline().rstrip() == _line(COLUMNS)
        if not is_ours:
            self.doRollover()

    def _open(self) -> io.TextIOWrapper:
        stream = super()._open()
        if stream.tell() == 0:
            stream.write(_line(COLUMNS) + "\n")
            stream.flush()
            return stream
        with Path(self.baseFilename).open("rb") as file:
            file.seek(-1, os.SEEK_END)
            is_torn = file.read() != b"\n"  # in the row during which the power went
        if is_torn:
            stream.write("\n")
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        """Write one row; `handleError` is called instead of raising."""
        self._has_failed = False
        super().emit(record)
        if not self._has_failed:
            self._on_written()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Tell instead of printing a traceback for each row."""
        import sys

        del record
        self._has_failed = True
        self._on_error(str(sys.exc_info()[1]))


def row(record: UtteranceRecord, epoch_s: float) -> dict[str, Any]:
    """A record as the fields of a row, in the order of `COLUMNS`; what was not measured is None."""
    ended = datetime.fromtimestamp(epoch_s + record.ended_at, UTC)
    underruns = record.stalls if record.client_underruns is None else record.client_underruns
    values = {
        "timestamp": ended.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "characters": record.chars,
        "voice": record.voice,
        "language": record.language,
        "first_packet_ms": milliseconds(record.first_packet_s),
        "total_ms": milliseconds(record.ended_at - record.started_at),
        "rtf": None if record.rtf is None else round(record.rtf, 4),
        "cache_hit": int(record.voice_cached) if record.segments else None,
        "underruns": underruns,
        "error": record.code,
        "outcome": record.reason,
        "budget_ms": milliseconds(record.budget_s),
        "within_budget": None if record.within_budget is None else int(record.within_budget),
        "guilty_stage": record.guilty_stage,
        "audio_s": round(record.audio_s, 3),
        "codec": record.codec,
        "client_first_sound_ms": milliseconds(record.client_first_sound_s),
        "engine": record.engine,
        **{f"{stage}_ms": milliseconds(seconds) for stage, seconds in record.stages.items()},
    }
    return {name: values.get(name) for name in COLUMNS}


def _line(values: Any) -> str:
    fields = values.values() if isinstance(values, dict) else values
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(["" if v is None else v for v in fields])
    return text.getvalue()
