"""What `rtts serve --record` wrote, read and summed up. Pure: rows in, figures out; prints nothing.

Percentiles are by nearest rank, as in `/v1/stats`. Knows no server.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rtts.advice import Finding, Window, advise
from rtts.cli.failure import CommandError

# Without these a file is no recording.
NEEDED = ("timestamp", "characters", "first_packet_ms", "error")
# Fewer pairs say nothing about a correlation.
MIN_PAIRS = 5
# More of anything (30 years in milliseconds), or another century, is no measurement: a torn row or
# a foreign one.
MOST = 1e12
YEARS = range(1970, 2100)
STAGES = ("split", "queue", "engine", "encode", "send")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One row; what was not measured is None.

    Attributes:
        at: When it ended, UTC.
        missed: Whether it missed its budget; None without audio.
        guilty_stage: If it did: the stage that the server found guilty, or by another budget than
            the server's the longest one; "" where the file does not tell.
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
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            columns = _cells(file.readline())
            missing = [name for name in NEEDED if name not in columns]
            if missing:
                raise CommandError(
                    f"{path} is no recording of rtts serve --record: no column {missing[0]}"
                )
            for line in file:
                # A power cut can leave zeros at the end of a file.
                if line := line.strip("\0\n"):
                    yield _reply(columns, _cells(line), budget_ms)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def _cells(line: str) -> list[str]:
    """A line is a row, so that a quote which a torn one leaves open takes no other with it."""
    try:
        return next(csv.reader((line,)), [])
    except csv.Error:  # no row of ours is that long
        return []


def _reply(columns: Sequence[str], cells: Sequence[str], budget_ms: float | None) -> Reply | None:
    if len(cells) != len(columns):  # torn: written while the power went
        return None
    row = dict(zip(columns, cells, strict=True))
    try:
        first_ms = _number(row["first_packet_ms"])
        budget = _number(row.get("budget_ms")) if budget_ms is None else budget_ms
        missed = None if first_ms is None or budget is None else first_ms > budget
        hit, characters = _number(row.get("cache_hit")), _number(row["characters"])
        if characters is None:
            return None
        error = _word(row["error"])
        return Reply(
            at=_time(row["timestamp"]),
            characters=int(characters),
            voice=_word(row.get("voice")),
            language=_word(row.get("language")),
            first_packet_ms=first_ms,
            total_ms=_number(row.get("total_ms")),
            rtf=_number(row.get("rtf")),
            audio_s=_number(row.get("audio_s")) or 0.0,
            cache_hit=None if hit is None else bool(hit),
            underruns=int(_number(row.get("underruns")) or 0),
            error=error,
            outcome=_word(row.get("outcome")) or ("error" if error else "completed"),
            budget_ms=budget,
            missed=missed,
            guilty_stage=_guilty_stage(row) if missed else "",
            client_first_sound_ms=_number(row.get("client_first_sound_ms")),
        )
    except (ValueError, OverflowError):
        return None  # counted and told


def _guilty_stage(row: Mapping[str, str]) -> str:
    if told := _word(row.get("guilty_stage")):
        return told
    took_ms = {stage: _number(row.get(f"{stage}_ms")) or 0.0 for stage in STAGES}
    longest = max(STAGES, key=lambda stage: took_ms[stage])
    return longest if took_ms[longest] else ""


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    if at.year not in YEARS:
        raise ValueError(text)
    return at


def _number(text: str | None) -> float | None:
    if not text:
        return None
    value = float(text)
    if not 0 <= value < MOST:  # nor what is not a number
        raise ValueError(text)
    return value


def _word(text: str | None) -> str:
    """What a terminal may be shown."""
    return "?" if text and not text.isprintable() else text or ""


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
    """Misses by stage."""
    return Counter(reply.guilty_stage or "unknown" for reply in replies if reply.missed)


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
