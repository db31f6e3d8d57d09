"""Every finished context becomes a row; files rotate; a disk that fails costs rows, not speech."""

from __future__ import annotations

import csv
import errno
import os
import threading

import httpx
import pytest

from rtts.cli.recorded import read
from rtts.errors import ConfigError
from rtts.metrics import STAGES
from rtts.server.recording import COLUMNS, Recording, row
from tests.e2e.test_server import HELLO, serving, speak
from tests.server.raw import eventually
from tests.server.test_records import record

EPOCH_S = 1_796_000_000.0


def opened(path, **options):
    lost = []
    made = Recording(
        path,
        **{
            "max_bytes": 10**6,
            "keep": 3,
            "epoch_s": lambda: EPOCH_S,
            "on_lost": lambda: lost.append(1),
        }
        | options,
    )
    made.told = lost
    return made


def test_a_row_has_the_columns_and_no_text_or_ids():
    """Columns are those promised, in their order; client's names are in none of them."""
    fields = row(record(session="s_secret", ctx="c_secret"), EPOCH_S)
    assert tuple(fields) == COLUMNS
    assert "secret" not in str(fields)
    assert fields["timestamp"] == "2026-11-30T01:10:03.500Z"
    assert fields["first_packet_ms"] == 12.3 and fields["total_ms"] == 3500.0
    assert fields["queue_ms"] == 11.3 and fields["cache_hit"] == 1 and fields["within_budget"] == 1


def test_what_is_written_is_read_back(tmp_path):
    """Rows come back as they were taken, in order, also appended to an older file."""
    path = tmp_path / "a.csv"
    for run in range(2):
        recording = opened(path)
        for n in range(50):
            recording.take(record(chars=100 * run + n, ended_at=1000.0 + run * 100 + n))
        recording.close()
        assert recording.lost == 0 and recording.trouble == ""
    replies, unread = read([path])
    assert [r.characters for r in replies] == [*range(50), *range(100, 150)] and unread == 0
    assert path.read_text().count("timestamp") == 1


def test_files_rotate_and_each_has_its_header(tmp_path):
    """Past its size a file is put aside; as many are kept as asked for; nothing between is lost."""
    path = tmp_path / "a.csv"
    recording = opened(path, max_bytes=4000, keep=2)
    for n in range(200):
        recording.take(record(chars=n, ended_at=1000.0 + n))
    recording.close()
    files = [path, tmp_path / "a.csv.1", tmp_path / "a.csv.2"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    for each in files:
        assert each.stat().st_size <= 4000 + 300
        with each.open() as file:
            assert tuple(next(csv.reader(file))) == COLUMNS
    replies, _ = read(files)
    assert [r.characters for r in replies] == list(range(200 - len(replies), 200))
    assert len(replies) > 30


def test_other_columns_are_put_aside(tmp_path):
    """A file of another version is kept whole beside the new one."""
    path = tmp_path / "a.csv"
    path.write_text("timestamp,something\n1,2\n")
    recording = opened(path)
    recording.take(record())
    recording.close()
    assert (tmp_path / "a.csv.1").read_text() == "timestamp,something\n1,2\n"
    assert len(read([path])[0]) == 1


def test_a_place_that_cannot_be_written_is_a_setting_that_is_wrong(tmp_path):
    """It ends the start, and names the setting."""
    with pytest.raises(ConfigError, match="server.record_file"):
        opened(tmp_path / "nowhere" / "a.csv")


def test_a_pipe_is_no_file(tmp_path):
    """Opening one would hold the server up until somebody reads it."""
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match="not a regular file"):
        opened(tmp_path / "a.csv")


def test_a_torn_row_takes_no_other_with_it(tmp_path):
    """After a power cut in mid-row the next row has a line of its own."""
    path = tmp_path / "a.csv"
    for _ in range(2):
        recording = opened(path)
        recording.take(record())
        recording.close()
        path.write_bytes(path.read_bytes()[:-30])
    recording = opened(path)
    recording.take(record())
    recording.close()
    replies, unread = read([path])
    assert (len(replies), unread) == (1, 2)


def test_a_full_disk_costs_rows_and_is_told_once(tmp_path, monkeypatch, caplog):
    """Rows are lost and counted, the log says so once; when there is room again it goes on."""
    recording = opened(tmp_path / "a.csv")
    stream = recording._rows.stream
    written = threading.Event()

    class Full:
        def __getattr__(self, name):
            return getattr(stream, name)

        def write(self, text):
            written.set()
            raise OSError(errno.ENOSPC, "No space left on device")

    recording._rows.stream = Full()
    for _ in range(5):
        recording.take(record())
    assert written.wait(5)
    recording.close()
    assert recording.lost == len(recording.told) == 5
    assert "No space left" in recording.trouble
    assert len([e for e in caplog.records if "not recorded" in e.getMessage()]) == 1
    again = opened(tmp_path / "a.csv")
    again.trouble = recording.trouble
    again.take(record())
    again.close()
    assert again.trouble == "" and len(read([tmp_path / "a.csv"])[0]) == 1


def test_a_slow_disk_never_blocks(tmp_path, monkeypatch):
    """With the writer stuck, taking goes on; past the queue's bound rows are lost and counted."""
    monkeypatch.setattr("rtts.server.recording.MAX_WAITING", 10)
    recording = opened(tmp_path / "a.csv")
    gate = threading.Event()
    emit = recording._rows.emit
    recording._rows.emit = lambda each: (gate.wait(10), emit(each))
    for _ in range(30):
        recording.take(record())
    assert 18 <= recording.lost <= 20 and recording.trouble == "the disk is too slow"
    gate.set()
    recording.close()
    assert len(read([tmp_path / "a.csv"])[0]) == 30 - recording.lost


async def test_a_server_records_what_it_spoke(tmp_path):
    """With --record each reply of a real server is a row once the server has stopped."""
    path = tmp_path / "a.csv"
    async with serving(record_file=path) as server:
        for _ in range(3):
            await speak(server)
    replies, unread = read([path])
    assert len(replies) == 3 and unread == 0
    for reply in replies:
        assert reply.outcome == "completed" and reply.voice == "tone" and reply.missed is False
        assert reply.characters == len(HELLO) + 1 and 0 < reply.first_packet_ms < reply.total_ms
    with path.open() as file:
        for each in csv.DictReader(file):
            stages_ms = [float(each[f"{stage}_ms"]) for stage in STAGES]
            assert sum(stages_ms) == pytest.approx(float(each["first_packet_ms"]), abs=0.1)


async def test_a_disk_that_fails_shows_in_readyz(tmp_path):
    """Speech goes on; /readyz and rtts_degraded say that rows are missing."""
    async with serving(record_file=tmp_path / "a.csv") as server:
        server._recording._rows.emit = lambda _: server._recording._failed("disk full")
        await speak(server)
        await eventually(lambda: server._recording.trouble, 5)
        async with httpx.AsyncClient() as http:
            body = (await http.get(server.url + "/readyz")).text
            metrics = (await http.get(server.url + "/metrics")).text
    assert "contexts are not recorded: disk full" in body
    assert (
        'rtts_degraded{what="recording"} 1.0' in metrics and "rtts_record_lost_total 1.0" in metrics
    )
