"""What `rtts serve --record` wrote, read and summed up. Pure: rows in, figures out; prints nothing.

Percentiles are by nearest rank, as in `/v1/stats`. Knows no server.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rtts.advice import Finding, Window, advise
from rtts.cli.failure import CommandError

# Without these a file is no recording.
NEEDED = ("timestamp", "characters", "first_packet_ms", "error")
# Fewer pairs say nothing about a correlation.
MIN_PAIRS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One row; what was not measured is None.

    Attributes:
        at: When it ended, UTC.
        missed: Whether it missed its budget; None without audio.
        stages_ms: By stage, those that the file has.
    """

    at: datetime
    characters: int
    voice: str
    language: str
    first_packet_ms: float | None
    total_ms: float | None
    rtf: float | None
    audio_s: float
    cache_hit: bool | None
    underruns: int
    error: str
    outcome: str
    budget_ms: float | None
    missed: bool | None
    guilty_stage: str
    client_first_sound_ms: float | None
    stages_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and percentiles of what was measured."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A recording in figures; None where nothing was measured.

    Attributes:
        unread: Rows that could not be read.
        length_correlation: Pearson's r of characters and first packet, -1 to 1.
    """

    replies: int
    unread: int
    begun: datetime | None
    ended: datetime | None
    first_packet_ms: Spread | None
    total_ms: Spread | None
    rtf: Spread | None
    client_first_sound_ms: Spread | None
    characters: int
    audio_s: float
    hit_rate: float | None
    error_rate: float
    budget_hit_rate: float | None
    underruns: int
    outcomes: dict[str, int]
    errors: dict[str, int]
    misses_by_stage: dict[str, int]
    length_correlation: float | None
    advice: tuple[Finding, ...]


def read(paths: Iterable[Path], budget_ms: float | None = None) -> tuple[list[Reply], int]:
    """The rows of recordings, oldest first, and how many could not be read.

    Args:
        paths: Files, in any order.
        budget_ms: Judge by this budget instead of each reply's own.

    Raises:
        CommandError: A file cannot be opened, or is no recording.
    """
    replies: list[Reply] = []
    unread = 0
    for path in paths:
        for reply in _rows(path, budget_ms):
            if reply is None:
                unread += 1
            else:
                replies.append(reply)
    return sorted(replies, key=lambda reply: reply.at), unread


def _rows(path: Path, budget_ms: float | None) -> Iterator[Reply | None]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            # A power cut can leave zeros at the end of a file.
            rows = csv.DictReader(line.replace("\0", "") for line in file)
            missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
            if missing:
                raise CommandError(
                    f"{path} is no recording of rtts serve --record: no column {missing[0]}"
                )
            for row in rows:
                yield _reply(row, budget_ms)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except csv.Error as error:
        raise CommandError(f"{path} is no CSV file: {error}") from error


def _reply(row: dict[str, str | None], budget_ms: float | None) -> Reply | None:
    if None in row.values():  # torn: written while the power went
        return None
    try:
        first_ms = _number(row.get("first_packet_ms"))
        budget = _number(row.get("budget_ms")) if budget_ms is None else budget_ms
        hit = _number(row.get("cache_hit"))
        at = datetime.fromisoformat(row["timestamp"] or "")
        return Reply(
            at=at if at.tzinfo else at.replace(tzinfo=UTC),
            characters=int(row["characters"] or ""),
            voice=row.get("voice") or "",
            language=row.get("language") or "",
            first_packet_ms=first_ms,
            total_ms=_number(row.get("total_ms")),
            rtf=_number(row.get("rtf")),
            audio_s=_number(row.get("audio_s")) or 0.0,
            cache_hit=None if hit is None else bool(hit),
            underruns=int(_number(row.get("underruns")) or 0),
            error=row["error"] or "",
            outcome=row.get("outcome") or ("error" if row["error"] else "completed"),
            budget_ms=budget,
            missed=None if first_ms is None or budget is None else first_ms > budget,
            guilty_stage=row.get("guilty_stage") or "",
            client_first_sound_ms=_number(row.get("client_first_sound_ms")),
            stages_ms={
                name.removesuffix("_ms"): value
                for name in ("split_ms", "queue_ms", "engine_ms", "encode_ms", "send_ms")
                if (value := _number(row.get(name))) is not None
            },
        )
    except (ValueError, TypeError, KeyError):
        return None  # counted and told


def _number(text: str | None) -> float | None:
    if not text:
        return None
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and nearest-rank percentiles; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Spread(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=rank(0.5),
        p95=rank(0.95),
        p99=rank(0.99),
        worst=ordered[-1],
    )


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's r; None of few pairs, or where one side does not vary."""
    if len(pairs) < MIN_PAIRS:
        return None
    n = len(pairs)
    mean_x = math.fsum(x for x, _ in pairs) / n
    mean_y = math.fsum(y for _, y in pairs) / n
    xx = math.fsum((x - mean_x) ** 2 for x, _ in pairs)
    yy = math.fsum((y - mean_y) ** 2 for _, y in pairs)
    xy = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else None


def _share(verdicts: Sequence[bool]) -> float | None:
    return sum(verdicts) / len(verdicts) if verdicts else None


def _measured(values: Iterable[float | None]) -> Spread | None:
    return spread([value for value in values if value is not None])


def _guilty(replies: Sequence[Reply]) -> Counter[str]:
    """Misses by stage; judged by another budget than the server's the longest stage is guilty."""
    return Counter(
        reply.guilty_stage
        or max(reply.stages_ms, key=lambda stage: reply.stages_ms[stage], default="unknown")
        for reply in replies
        if reply.missed
    )


def window(replies: Sequence[Reply]) -> Window:
    """The same as the rules of advice take it."""
    audio_s = math.fsum(reply.audio_s for reply in replies)
    busy_s = math.fsum((reply.rtf or 0.0) * reply.audio_s for reply in replies)
    return Window(
        contexts=len(replies),
        measured=sum(reply.first_packet_ms is not None for reply in replies),
        misses=_guilty(replies),
        cold=sum(reply.cache_hit is False for reply in replies),
        stalled=sum(reply.underruns > 0 for reply in replies),
        rtf=busy_s / audio_s if audio_s else None,
        errors=Counter(reply.error for reply in replies if reply.error),
    )


def summarise(replies: Sequence[Reply], unread: int = 0) -> Summary:
    """A recording in figures, with advice."""
    failed = [reply.outcome == "error" or bool(reply.error) for reply in replies]
    return Summary(
        replies=len(replies),
        unread=unread,
        begun=replies[0].at if replies else None,
        ended=replies[-1].at if replies else None,
        first_packet_ms=_measured(reply.first_packet_ms for reply in replies),
        total_ms=_measured(reply.total_ms for reply in replies),
        rtf=_measured(reply.rtf for reply in replies),
        client_first_sound_ms=_measured(reply.client_first_sound_ms for reply in replies),
        characters=sum(reply.characters for reply in replies),
        audio_s=math.fsum(reply.audio_s for reply in replies),
        hit_rate=_share([r.cache_hit for r in replies if r.cache_hit is not None]),
        error_rate=_share(failed) or 0.0,
        budget_hit_rate=_share([not r.missed for r in replies if r.missed is not None]),
        underruns=sum(reply.underruns for reply in replies),
        outcomes=dict(Counter(reply.outcome for reply in replies).most_common()),
        errors=dict(Counter(reply.error for reply in replies if reply.error).most_common()),
        misses_by_stage=dict(_guilty(replies).most_common()),
        length_correlation=correlation(
            [
                (float(reply.characters), reply.first_packet_ms)
                for reply in replies
                if reply.first_packet_ms is not None
            ]
        ),
        advice=tuple(advise(window(replies))),
    )
