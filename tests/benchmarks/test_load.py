from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import check_loopback, is_clean, main, measure
from benchmarks.loadgen.run import Plan
from tests.benchmarks.faulty_server import FaultyServer, faulty_server

ROOT = Path(__file__).parents[2]
# What a busy two-core machine adds to a measured time.
SLACK_MS = 40.0


def plan(server: FaultyServer, **options: Any) -> Plan:
    defaults: dict[str, Any] = {
        "codec": "pcm_s16le",
        "duration_s": 0.3,
        "timeout_s": 2.0,
        "sentences": (1, 1),
    }
    return Plan(url=server.url, **(defaults | options))


async def test_a_sound_server_is_reported_sound() -> None:
    """No fault, no underrun, exact amounts."""
    async with faulty_server() as server:
        results = await measure(plan(server))
        n = results["replies"]
        assert n > 5 and is_clean(results)
        completed = results["endings"]["completed"]
        assert completed >= n - 1
        assert results["audio_s"] >= completed * server.audio_s - 1e-6
        assert results["audio_messages"] >= 10 * completed
        assert results["first_packet_ms"]["p50"] < SLACK_MS
        assert results["real_time_factor"] == {"mean": 0.25, "max": 0.25}
        assert results["within_budget"] == 1.0
        assert results["connections"] == 1


async def test_injected_delay_is_measured() -> None:
    """First packet is the delay, at the client; beside the server's word there is little."""
    async with faulty_server(first_delay_s=0.1) as server:
        results = await measure(plan(server, duration_s=1.0))
        for name in ("first_packet_ms", "from_first_text_ms"):
            assert results[name]["min"] >= 100.0 and results[name]["p50"] <= 100.0 + SLACK_MS
        assert results["server_ttfa_ms"]["p50"] == 100.0
        assert 0.0 <= results["beside_server_ttfa_ms"]["p50"] <= SLACK_MS


async def test_both_starting_points_are_told_apart() -> None:
    """Written slowly, the first packet counts from the last word, the other figure from the first."""
    async with faulty_server(first_delay_s=0.05) as server:
        text = "one two three four five six seven eight nine ten"
        results = await measure(
            plan(server, words_per_s=40.0, texts=(text,), duration_s=1.0, seed=3)
        )
        assert 50.0 <= results["first_packet_ms"]["p50"] <= 50.0 + SLACK_MS
        assert results["from_first_text_ms"]["p50"] >= results["first_packet_ms"]["p50"] + 100.0
        assert set(server.texts.values()) >= {text}
        assert results["generator"]["late_send_ms"]["n"] > 0


@pytest.mark.parametrize("buffer_s", [0.0, 0.06])
async def test_an_injected_stall_is_one_underrun_of_its_length(buffer_s: float) -> None:
    """4 messages of 20 ms, then 200 ms of nothing: 120 ms of silence, once a reply."""
    async with faulty_server(pause_after=4, pause_s=0.2) as server:
        results = await measure(plan(server, player_buffer_s=buffer_s, duration_s=0.8))
        completed = results["endings"]["completed"]
        assert completed >= 3
        assert completed <= results["underruns"] <= completed + 1
        assert results["underruns_over_20_ms"] == results["underruns"]
        assert results["stall_ms"]["min"] >= 115.0
        assert results["stall_ms"]["p50"] <= 120.0 + SLACK_MS
        assert results["stalled_s"] == pytest.approx(
            results["underruns"] * results["stall_ms"]["mean"] / 1000, rel=1e-3
        )
        assert not is_clean(results)


async def test_a_pause_that_the_buffer_covers_is_no_underrun() -> None:
    """8 messages of 50 ms are there when 200 ms of nothing begin."""
    async with faulty_server(message_s=0.05, pause_after=8, pause_s=0.2) as server:
        results = await measure(plan(server, duration_s=1.0))
        assert results["underruns"] == 0 and is_clean(results)


async def test_where_sound_begins_is_found() -> None:
    """70 ms of silence in the audio are added to the first packet."""
    async with faulty_server(silence_s=0.07) as server:
        results = await measure(plan(server, onset_dbfs=-50.0))
        assert results["onset_in_audio_ms"]["p50"] == 70.0
        assert results["first_sound_ms"]["min"] >= 70.0
        assert (await measure(plan(server)))["onset_in_audio_ms"] is None


@pytest.mark.parametrize(
    ("faults", "found"),
    [
        ({"skip": 3}, {"seq_gap", "pts_wrong", "audio_missing"}),
        ({"swallow": 3}, {"pts_wrong", "audio_missing"}),
        ({"swallow": 9}, {"audio_missing"}),
        ({"repeat": 3}, {"seq_repeated", "pts_wrong", "audio_too_long"}),
        ({"talks_on": True}, {"after_done", "unknown_stream"}),
        ({"nonsense": True}, {"not_rtts_v1"}),
    ],
)
async def test_breaches_of_the_protocol_are_named(faults: dict[str, Any], found: set[str]) -> None:
    """Audio that is missing, repeated or out of place is a fault, by name, once a reply."""
    async with faulty_server(**faults) as server:
        results = await measure(plan(server, duration_s=0.3))
        named = set(results["faults"])
        assert named and (named <= found if "talks_on" in faults else named == found)
        completed = results["endings"]["completed"]
        for count in results["faults"].values():
            assert completed - 1 <= count <= completed + 1
        assert not is_clean(results)


@pytest.mark.parametrize(
    ("faults", "ending"),
    [
        ({"fails_with": "utterance_failed"}, "utterance_failed"),
        ({"fails_with": "overloaded"}, "overloaded"),
        ({"closes_after": 2}, "closed_1006"),
        ({"status": 503}, "http_503"),
        ({"status": 401}, "http_401"),
    ],
)
async def test_every_bad_ending_is_counted(faults: dict[str, Any], ending: str) -> None:
    """Errors, broken sockets and refusals are endings, and nothing passes as completed."""
    async with faulty_server(**faults) as server:
        results = await measure(plan(server, mode="open", rate=20.0, duration_s=0.5))
        assert set(results["endings"]) == {ending}
        assert results["endings"][ending] == results["replies"] > 2
        assert not is_clean(results)


async def test_audio_of_broken_replies_counts_as_heard() -> None:
    """What arrived before the socket broke has its latency."""
    async with faulty_server(closes_after=2) as server:
        results = await measure(plan(server, mode="open", rate=20.0))
        assert results["first_packet_ms"]["n"] == results["replies"]
        assert results["audio_messages"] == 2 * results["replies"]


async def test_a_reply_that_never_ends_times_out() -> None:
    """Silence after some audio is a timeout, not a hang."""
    async with faulty_server(never_ends=True) as server:
        results = await measure(plan(server, mode="open", rate=20.0, timeout_s=0.1, seed=2))
        assert set(results["endings"]) == {"timeout"}


async def test_nobody_there() -> None:
    """A server that is not running is an ending too."""
    results = await measure(
        Plan(url="ws://127.0.0.1:1/v1/tts", mode="open", rate=20.0, duration_s=0.5)
    )
    assert set(results["endings"]) == {"unreachable"}


async def test_an_open_loop_does_not_wait() -> None:
    """Arrivals keep their Poisson times although every reply takes long."""
    async with faulty_server(first_delay_s=0.4) as server:
        results = await measure(plan(server, mode="open", rate=50.0, duration_s=0.7))
        assert 15 <= results["replies"] <= 60
        assert results["connections"] == results["replies"] == server.n_connections
        assert results["generator"]["late_start_ms"]["p50"] < SLACK_MS


async def test_a_closed_loop_waits() -> None:
    """Two clients with answers of 100 ms make at most twenty replies a second."""
    async with faulty_server(first_delay_s=0.1) as server:
        results = await measure(plan(server, clients=2, duration_s=1.0))
        assert 8 <= results["replies"] <= 22
        assert results["connections"] == 2


async def test_live_streams_listen_in_real_time() -> None:
    """Each stream hears about as much audio as time passes, replies one after the other."""
    async with faulty_server(n_messages=10, message_s=0.02) as server:
        results = await measure(plan(server, mode="live", streams=5, duration_s=1.5))
        heard_s = 5 * 1.5 - 5 * 0.5 / 2  # less the staggered beginning
        assert heard_s - 1.5 <= results["audio_s"] <= heard_s + 1.5
        assert results["connections"] == 5
        assert is_clean(results)


async def test_replies_can_share_connections() -> None:
    """Many contexts a connection, in every mode."""
    async with faulty_server() as server:
        live = await measure(plan(server, mode="live", streams=6, contexts_per_connection=3))
        assert live["connections"] == 2 and is_clean(live)
        opened = await measure(plan(server, mode="open", rate=60.0, contexts_per_connection=4))
        assert opened["connections"] < opened["replies"] and is_clean(opened)


async def test_warmup_is_not_counted() -> None:
    """Replies that start early are left out."""
    async with faulty_server(first_delay_s=0.05) as server:
        results = await measure(plan(server, duration_s=0.6, warmup_s=0.3))
        assert 1 <= results["replies"] < len(server.texts)


async def test_the_generator_says_what_it_cost_and_how_late_it_was() -> None:
    """A block of the generator's own loop shows in its lag, not only in the server's figures."""

    async def block() -> None:
        await asyncio.sleep(0.2)
        end = asyncio.get_running_loop().time() + 0.15
        while asyncio.get_running_loop().time() < end:
            pass

    async with faulty_server() as server:
        blocking = asyncio.create_task(block())
        results = await measure(plan(server))
        await blocking
        generator = results["generator"]
        assert generator["loop_lag_ms"]["max"] >= 130.0
        assert generator["cpu_percent"] > 0.0 and generator["cpu_us_per_message"] > 0.0


async def test_the_servers_cpu_is_watched() -> None:
    """With `server_pid` its CPU and memory are in the report."""
    async with faulty_server() as server:
        results = await measure(plan(server, server_pid=os.getpid()))
        assert results["server"]["cpu_percent"] > 0.0
        assert results["server"]["rss_mb"] > 10.0


@pytest.mark.parametrize("url", ["ws://127.0.0.1:8765/v1/tts", "ws://[::1]/x", "ws://localhost/x"])
def test_loopback_is_allowed(url: str) -> None:
    """This machine, by any name."""
    check_loopback(url)


@pytest.mark.parametrize("url", ["ws://192.0.2.1/x", "ws://0.0.0.0/x", "ws://no.such.invalid/x"])
def test_other_machines_are_refused(url: str) -> None:
    """Load is not sent to strangers by a slip of the keyboard."""
    with pytest.raises(ValueError, match=r"192|0\.0|invalid"):
        check_loopback(url)


async def test_the_command_writes_a_report(tmp_path: Path) -> None:
    """The report has what benchmarks/README.md asks for; `--expect-clean` decides the status."""

    async def load(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "benchmarks" / "load.py"), *arguments]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False
        )

    options = ("--codec", "pcm_s16le", "--duration", "0.5", "--expect-clean")
    async with faulty_server() as server:
        done = await load("closed", "--url", server.url, *options, "--output", str(tmp_path / "r"))
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert json.loads((tmp_path / "r").read_text()) == report
        assert set(report) == {
            "benchmark", "command", "date", "commit", "machine", "versions", "results",
        }  # fmt: skip
        assert report["benchmark"] == "load" and report["results"]["replies"] > 0
    async with faulty_server(swallow=2) as server:
        done = await load("closed", "--url", server.url, *options)
        assert done.returncode == 1 and "audio_missing" in done.stdout


def test_the_command_stays_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another address is refused before anything is sent; the way to allow it is named."""
    monkeypatch.setattr("sys.argv", ["load.py", "closed", "--url", "ws://192.0.2.1/x"])
    assert main() == 2
    assert "--allow-remote" in capsys.readouterr().err
