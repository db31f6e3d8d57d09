"""Where log records go: standard error, as text for people or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

# Its records are complete lines by themselves (`rtts.server.records`): JSON or key=value.
_UTTERANCES = "rtts.utterance"


def set_up(level: str, *, as_json: bool | None) -> None:
    """Log to standard error.

    Args:
        level: Least important level: "debug", "info", "warning", "error".
        as_json: JSON lines; None decides by whether standard error is a terminal.
    """
    is_json = not sys.stderr.isatty() if as_json is None else as_json
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # The transport's own chatter says nothing that our records do not.
    for name in ("uvicorn", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def set_up_quiet() -> None:
    """For commands that host a server on the side: only what is broken."""
    set_up("error", as_json=False)


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {"time": time, "level": record.levelname.lower()}
        message = record.getMessage()
        if record.name == _UTTERANCES and message.startswith("{"):
            return json.dumps(fields)[:-1] + ", " + message[1:]
        fields |= {"logger": record.name, "message": message}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
