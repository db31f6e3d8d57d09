"""`rtts report` says what a recording holds, whatever its rows look like."""

from __future__ import annotations

import csv
import json
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.cli import main
from rtts.cli.recorded import correlation, spread
from rtts.server.recording import COLUMNS, row
from tests.server.test_records import record


def written(path, records):
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        rows.writerows(row(each, 1_796_000_000.0) for each in records)
    return path


@pytest.fixture
def recorded(tmp_path):
    """A hundred replies: ten late by the engine, four failed, five cold, latency grows with length."""
    draw = random.Random(7)
    made = []
    for n in range(100):
        late = n % 10 == 0
        first_s = (0.7 if late else 0.05) + n / 10_000
        failed = n in (3, 33, 63, 93)
        made.append(
            record(
                chars=20 + n,
                first_packet_s=None if failed else first_s,
                stages={} if failed else {"queue": 0.01, "engine": first_s - 0.01},
                within_budget=None if failed else not late,
                guilty_stage="engine" if late and not failed else "",
                reason="error" if failed else "completed",
                code="utterance_failed" if failed else "",
                voice_cached=n >= 5,
                rtf=draw.uniform(0.1, 0.2),
                stalls=0,
                ended_at=1000.0 + n,
            )
        )
    return written(tmp_path / "r.csv", made)


def report(capsys, *arguments):
    assert main(["report", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_its_figures(recorded, capsys):
    """Counts, rates and percentiles are those of the rows."""
    found = json.loads(report(capsys, recorded, "--json"))
    latencies = [
        1000 * ((0.7 if n % 10 == 0 else 0.05) + n / 10_000)
        for n in range(100)
        if n not in (3, 33, 63, 93)
    ]
    assert found["replies"] == 100 and found["error_rate"] == 0.04
    assert found["errors"] == {"utterance_failed": 4}
    assert found["first_packet_ms"]["count"] == 96
    assert found["first_packet_ms"]["mean"] == pytest.approx(np.mean(latencies), abs=0.01)
    assert found["first_packet_ms"]["p95"] == pytest.approx(
        np.percentile(latencies, 95, method="inverted_cdf"), abs=0.01
    )
    assert found["budget_hit_rate"] == pytest.approx(86 / 96)
    assert found["misses_by_stage"] == {"engine": 10}
    assert found["hit_rate"] == 0.95
    assert found["begun"] < found["ended"]
    assert {each["stage"] for each in found["advice"]} >= {"engine"}


def test_it_is_readable(recorded, capsys):
    """A reader finds the figures and the advice in lines."""
    text = report(capsys, recorded)
    assert "100 replies" in text and "within budget         89.58 %   late by: engine 10" in text
    assert "failed                4.00 %   codes: utterance_failed 4" in text
    assert "\n- " in text


def test_another_budget_is_judged_anew(recorded, capsys):
    """--budget takes the place of what was configured; the longest stage is guilty."""
    found = json.loads(report(capsys, recorded, "--budget", "40", "--json"))
    assert found["budget_hit_rate"] == 0 and found["misses_by_stage"] == {"engine": 96}


def test_several_files_are_one(recorded, tmp_path, capsys):
    """Files put aside are read with the newest, in the order of time."""
    other = written(tmp_path / "r.csv.1", [record(started_at=499.0, ended_at=500.0)])
    found = json.loads(report(capsys, recorded, other, "--json"))
    assert found["replies"] == 101 and found["begun"].startswith("2026-11-30T01:01:40")


def test_bad_rows_cost_themselves(recorded, capsys):
    """Torn, binary and foreign rows are counted, and nothing else is lost."""
    with recorded.open("ab") as file:
        file.write(b"2026-11-30T01:00:00Z,12,heart\n\x00\x00\xff\xfe,,,\nnow,x,y,z,nan,inf\n")
    text = report(capsys, recorded)
    assert "100 replies" in text and "rows could not be read" in text


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("first_packet_ms", value) for value in ("1e308", "-5", "nan", "inf", "9" * 400)),
        *(("characters", value) for value in ("9" * 400, "-1", "", "12.x")),
        *(("audio_s", "1e308"), ("rtf", "1e308"), ("underruns", "-3"), ("underruns", "1e308")),
        *(("timestamp", f"{year}-01-01T00:00:00Z") for year in ("0001", "9999")),
        ("timestamp", "9999-12-31T23:59:59-23:00"),
        ("voice", "x" * 200_000),
        ("voice", '"open'),
        ("codec", "opus,and,more"),
    ],
)
def test_nonsense_costs_its_row(recorded, tmp_path, capsys, column, value):
    """A row that no server writes is counted, and spoils neither figures nor picture nor others."""
    honest = json.loads(report(capsys, recorded, "--json"))
    head, *rows = recorded.read_text().splitlines()
    cells = rows[50].split(",")
    cells[COLUMNS.index(column)] = value
    nonsense = ",".join(cells)
    recorded.write_text("\n".join([head, *rows[:60], nonsense, nonsense, *rows[60:]]) + "\n")
    picture = ["--png", tmp_path / "r.png"] if column == "timestamp" else []
    found = json.loads(report(capsys, recorded, *picture, "--json"))
    assert found == honest | {"unread": 2}


def test_two_rows_in_one_line_are_no_row(recorded, capsys):
    """However much of a row was written when the power went, what was appended to it is not read."""
    head, first, second, *_ = recorded.read_text().splitlines()
    for kept in range(1, len(first)):
        recorded.write_text(f"{head}\n{first[:kept]}{second}\n{second}\n")
        assert "1 replies" in (text := report(capsys, recorded)) and "; 1 rows" in text, kept


def test_a_terminal_is_shown_words(recorded, capsys):
    """Control characters in a file do not reach the terminal."""
    recorded.write_text(recorded.read_text().replace("utterance_failed", "\x1b[31mred"))
    text = report(capsys, recorded)
    assert "\x1b" not in text and "codes: ? 4" in text


def test_a_file_saved_by_a_spreadsheet_is_read(recorded, capsys):
    """With a byte order mark and with CRLF it is the same recording."""
    plain = report(capsys, recorded)
    recorded.write_bytes(b"\xef\xbb\xbf" + recorded.read_bytes().replace(b"\n", b"\r\n"))
    assert report(capsys, recorded) == plain


@pytest.mark.parametrize(
    ("content", "message"),
    [("a,b\n1,2\n", "no column timestamp"), ("", "no column timestamp"), (None, "No such file")],
)
def test_what_is_no_recording_is_refused(tmp_path, capsys, content, message):
    """One line says why, the status is 1."""
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_text(content)
    assert main(["report", str(path)]) == 1
    assert message in capsys.readouterr().err


def test_an_empty_recording_is_no_error(tmp_path, capsys):
    """A header alone: no replies, and no division by nothing."""
    assert "no replies" in report(capsys, written(tmp_path / "e.csv", []))
    assert json.loads(report(capsys, tmp_path / "e.csv", "--json"))["first_packet_ms"] is None


def test_a_picture(recorded, tmp_path, capsys):
    """--png draws a PNG of a sensible size, also where little was measured."""
    report(capsys, recorded, "--png", tmp_path / "r.png")
    head = (tmp_path / "r.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) > 800 and int.from_bytes(head[20:24]) > 500
    report(capsys, written(tmp_path / "e.csv", []), "--png", tmp_path / "e.png")


def test_a_picture_without_matplotlib_says_what_is_missing(recorded, tmp_path, capsys, monkeypatch):
    """One line, how to install it, status 1."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["report", str(recorded), "--png", str(tmp_path / "r.png")]) == 1
    assert "pip install 'rtts[report]'" in capsys.readouterr().err


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_nearest_rank(values):
    """As numpy has them by the inverted distribution function."""
    found = spread(values)
    for name, share in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert getattr(found, name) == np.percentile(values, share, method="inverted_cdf")
    assert found.count == len(values) and found.worst == max(values)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10_000)), max_size=60))
def test_correlation_is_pearsons(pairs):
    """numpy's, where there is one; None of few or constant values."""
    found = correlation([(float(x), float(y)) for x, y in pairs])
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    if len(pairs) < 5 or len(set(xs)) == 1 or len(set(ys)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(xs, ys)[0, 1], abs=1e-9)
