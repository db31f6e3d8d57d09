"""`rtts report`: what a recording says about latency, in figures, in words and as a picture."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtts.cli.failure import CommandError
from rtts.cli.flags import Commands, add_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtts.cli.recorded import Reply, Spread, Summary

# More dots than that cover each other, and a million take a minute.
MOST_DOTS = 20_000

_MORE = """

FILE is what `rtts serve --record FILE.csv` wrote; name the files put aside too (FILE.csv.1, ...)
and they are read as one."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "report", "sum up a recording of rtts serve --record", more=_MORE
    )
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    parser.add_argument("--budget", metavar="MS", type=_budget, help="judge by this budget instead")
    parser.add_argument("--png", metavar="FILE", type=Path, help="draw it too (needs rtts[report])")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def _budget(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError("milliseconds, more than 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Read, sum up, print."""
    from rtts.cli.recorded import read, summarise

    replies, unread = read(arguments.files, arguments.budget)
    summary = summarise(replies, unread)
    if arguments.png is not None:
        draw(replies, summary, arguments.png)
    if arguments.json:
        print(json.dumps(asdict(summary), default=_as_text))
    else:
        print("\n".join(lines(summary)))
    return 0


def _as_text(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat().replace("+00:00", "Z")


def lines(summary: Summary) -> list[str]:
    """A summary for a reader."""
    if not summary.replies:
        return [f"no replies{_unread(summary)}"]
    assert summary.begun is not None and summary.ended is not None
    head = [
        f"{summary.replies} replies from {_as_text(summary.begun)} to {_as_text(summary.ended)}"
        f"{_unread(summary)}",
        f"{summary.characters} characters, {summary.audio_s:.0f} s of audio",
        "",
        f"{'':22}{'count':>8}{'mean':>10}{'p50':>10}{'p95':>10}{'p99':>10}{'worst':>10}",
        *_row("first packet, ms", summary.first_packet_ms, 1),
        *_row("total, ms", summary.total_ms, 0),
        *_row("real-time factor", summary.rtf, 3),
        *_row("client: sound, ms", summary.client_first_sound_ms, 1),
        "",
        f"within budget         {_percent(summary.budget_hit_rate)}{_counts(summary.misses_by_stage, 'late by')}",
        f"voice cached          {_percent(summary.hit_rate)}",
        f"failed                {_percent(summary.error_rate)}{_counts(summary.errors, 'codes')}",
        f"outcomes              {_counts(summary.outcomes)}",
        f"underruns             {summary.underruns}",
        f"length and latency    {_correlated(summary.length_correlation)}",
    ]
    return [*head, "", *_advice(summary)]


def _unread(summary: Summary) -> str:
    return f"; {summary.unread} rows could not be read" if summary.unread else ""


def _row(name: str, spread: Spread | None, digits: int) -> list[str]:
    if spread is None:
        return []
    values = (spread.mean, spread.p50, spread.p95, spread.p99, spread.worst)
    return [f"{name:22}{spread.count:>8}" + "".join(f"{value:>10.{digits}f}" for value in values)]


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.2f} %"


def _counts(counts: dict[str, int], title: str = "") -> str:
    if not counts:
        return ""
    text = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"   {title}: {text}" if title else text


def _correlated(r: float | None) -> str:
    if r is None:
        return "too little to tell"
    size = abs(r)
    word = "none" if size < 0.1 else "weak" if size < 0.4 else "clear" if size < 0.7 else "strong"
    return f"r = {r:+.2f} ({word})"


def _advice(summary: Summary) -> list[str]:
    if not summary.advice:
        return ["Nothing to advise."]
    return [f"- {finding.text} {finding.remedy}" for finding in summary.advice]


# --- the picture ---------------------------------------------------------------------------------


def draw(replies: Sequence[Reply], summary: Summary, path: Path) -> None:
    """Draw first packets over time and as a distribution, against length, and the late stages.

    Raises:
        CommandError: matplotlib is missing, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise CommandError(f"--png needs {error.name}: pip install 'rtts[report]'") from error
    figure: Any = Figure(figsize=(11, 7), layout="constrained")
    over_time, shape, length, late = figure.subplots(2, 2).flat
    timed = [reply for reply in replies if reply.first_packet_ms is not None]
    latencies = [reply.first_packet_ms for reply in timed]
    step = 1 + len(timed) // MOST_DOTS
    for colour, is_late in (("#2471a3", False), ("#c0392b", True)):
        dots = [reply for reply in timed if bool(reply.missed) is is_late][::step]
        dots_ms = [reply.first_packet_ms for reply in dots]
        over_time.scatter([reply.at for reply in dots], dots_ms, s=6, c=colour)
        length.scatter([reply.characters for reply in dots], dots_ms, s=6, c=colour)
    some = f", one dot for {step}" if step > 1 else ""
    over_time.set(title=f"first packet (red: late{some})", ylabel="ms", ylim=(0, None))
    over_time.tick_params(axis="x", rotation=30)
    shape.hist(latencies, bins=min(60, max(5, len(latencies) // 5)), color="#2471a3")
    shape.set(title="distribution", xlabel="ms", ylabel="replies")
    if summary.first_packet_ms is not None:
        for name, colour in (("p50", "#1e8449"), ("p95", "#b9770e"), ("p99", "#c0392b")):
            value = getattr(summary.first_packet_ms, name)
            shape.axvline(value, color=colour, label=f"{name} {value:.0f} ms")
        shape.legend()
    length.set(
        title=f"against length: {_correlated(summary.length_correlation)}",
        xlabel="characters",
        ylabel="ms",
    )
    late.bar(list(summary.misses_by_stage), list(summary.misses_by_stage.values()), color="#c0392b")
    late.set(title="late, by guilty stage", ylabel="replies")
    try:
        figure.savefig(path, format="png", dpi=110)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
