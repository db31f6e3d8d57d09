"""The process host: deaths of every kind, and a child that outlives nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from rtts.engine.hosting import Backoff, HostState
from rtts.engine.interface import (
    AppendText,
    CancelUtterance,
    EngineDown,
    EngineReady,
    FinishReason,
    LoadVoice,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.remote import RemoteEngine, RemoteOptions
from rtts.engine.wire import Channel, FrameKind
from rtts.errors import ConfigError
from tests.engine.cores import Brisk, Stubborn, Touchy, never, tone
from tests.engine.hosts import Listener

QUICK = Backoff(first_s=0.05, max_s=0.2)


@pytest.fixture
async def hosted() -> AsyncIterator[Callable[..., Any]]:
    listeners: list[Listener] = []

    async def start(
        factory: Callable[..., Any] = Touchy, *args: object, workers: int = 1, **options: object
    ) -> Listener:
        given = RemoteOptions(**{"backoff": QUICK, **options})  # type: ignore[arg-type]
        listener = Listener(RemoteEngine(factory, args, workers=workers, options=given))
        listeners.append(listener)
        await listener.engine.start(listener.deliver)
        return listener

    yield start
    for listener in listeners:
        await listener.engine.close()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def pid(listener: Listener) -> int:
    assert isinstance(listener.engine, RemoteEngine)
    return listener.engine.pids[-1]


def lives(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(process_id: int) -> None:
    async with asyncio.timeout(10.0):
        while lives(process_id):  # noqa: ASYNC110 - nothing tells of a stranger's end
            await asyncio.sleep(0.01)


# --- deaths --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
async def test_a_killed_process_is_noticed_at_once(hosted: Callable[..., Any]) -> None:
    """SIGKILL, as the OOM killer sends it: failed within 100 ms, down, ready again."""
    listener = await hosted()
    took_s = []
    for life in (1, 2):
        await listener.ready(times=life)
        ledgers = [listener.say("a long text", until_s=0.2) for _ in range(5)]
        await listener.heard(ledgers[-1])
        killed_s = time.monotonic()
        os.kill(pid(listener), signal.SIGKILL)
        assert await listener.ended(*ledgers) == ["engine_dead"] * 5
        took_s.append(listener.when(EngineDown)[-1] - killed_s)
        assert "SIGKILL" in listener.of(EngineDown)[-1].message
    assert min(took_s) < 0.1  # of two, for other people's work may delay one
    await listener.ready(times=3)
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]
    assert listener.engine.restarts == 2


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("segfault", "SIGSEGV"),
        ("quit", "exited with status 3"),
        ("exit", "SystemExit: 3"),
        ("raise", "ZeroDivisionError"),
    ],
)
async def test_every_death_is_told_by_its_name(
    hosted: Callable[..., Any], how: str, message: str
) -> None:
    """A crash in a library, an exit, an exception: the host survives and says what it was."""
    listener = await hosted()
    await listener.ready()
    assert await listener.ended(listener.say("Hi", instructions=how)) == ["engine_dead"]
    await listener.ready(times=2)
    assert message in listener.of(EngineDown)[0].message


async def test_the_traceback_crosses(
    hosted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Where the core raised is in the parent's log, not lost on a child's stderr."""
    listener = await hosted(never, backoff=Backoff(first_s=30.0, max_s=30.0))
    await listener.until(lambda: bool(listener.of(EngineDown)))
    assert "no weights at ? /nowhere" in listener.of(EngineDown)[0].message
    assert "cores.py" in caplog.text


async def test_what_the_core_logs_is_logged_here(
    hosted: Callable[..., Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Under its own logger and level, whatever the characters; from other threads of the child, which
    may not use the socket, on stderr."""
    listener = await hosted()
    await listener.ready()
    assert await listener.ended(listener.say("Hi", instructions="log")) == [FinishReason.COMPLETED]
    said = [each for each in caplog.record_tuples if each[0] == "rtts.engine.cores"]
    assert said == [("rtts.engine.cores", logging.WARNING, "something ? to know")]
    assert "warning rtts.engine.cores: from elsewhere" in capfd.readouterr().err


@pytest.mark.usefixtures("quiet")
async def test_a_hanging_step_is_killed(hosted: Callable[..., Any]) -> None:
    """A core that answers no ping for `stall_timeout_s` is dead, and its process is gone."""
    listener = await hosted(stall_timeout_s=0.4, stop_timeout_s=60.0)  # not by asking it to stop
    await listener.ready()
    hanging, bystander = pid(listener), listener.say(finish=False)
    hung = listener.say("Hi", instructions="hang")
    assert await listener.ended(hung, bystander) == ["engine_dead"] * 2
    assert "did not answer" in listener.of(EngineDown)[0].message
    await gone(hanging)
    await listener.ready(times=2)


@pytest.mark.usefixtures("quiet")
async def test_a_stopped_process_is_killed(hosted: Callable[..., Any]) -> None:
    """So is one that does not run at all."""
    listener = await hosted(stall_timeout_s=0.4)
    await listener.ready()
    os.kill(pid(listener), signal.SIGSTOP)
    await listener.ready(times=2)
    assert "did not answer" in listener.of(EngineDown)[0].message


@pytest.mark.usefixtures("quiet")
async def test_a_core_says_how_long_its_steps_are(hosted: Callable[..., Any]) -> None:
    """Without a limit of the host's, what the core says is one: a hang of 60 s is over in two, and
    a voice that takes three limits to load is loaded."""
    listener = await hosted(Brisk)
    await listener.ready()
    listener.submit(LoadVoice("tone-low"))
    await listener.until(lambda: bool(listener.of(VoiceLoaded)))
    assert not listener.of(EngineDown)
    hung_s = time.monotonic()
    assert await listener.ended(listener.say("Hi", instructions="hang")) == ["engine_dead"]
    assert 0.3 <= time.monotonic() - hung_s < 3.0
    await listener.ready(times=2)


async def test_a_slow_step_is_not_a_hang(hosted: Callable[..., Any]) -> None:
    """A step shorter than the timeout, and idleness for longer, are healthy."""
    listener = await hosted(stall_timeout_s=0.6)
    await listener.ready()
    await listener.ended(listener.say("Hi", instructions="doze"))
    await asyncio.sleep(0.8)
    assert not listener.of(EngineDown)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_loop_that_stands_still_blames_nobody(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent asks, does not listen for longer than the timeout, and then hears the answer."""
    ours, theirs = socket.socketpair()
    plain = Channel.send

    def send(channel: Channel, kind: FrameKind, body: bytes = b"") -> None:
        if kind == FrameKind.PING:
            theirs.send(b"!")
        plain(channel, kind, body)

    def stand_still() -> None:
        # From a reader: after one, uvloop looks at its timers before it looks at sockets again.
        asyncio.get_running_loop().remove_reader(ours)
        time.sleep(0.6)

    async def main() -> None:
        options = RemoteOptions(stall_timeout_s=0.3, backoff=QUICK)
        listener = Listener(RemoteEngine(Touchy, options=options))
        await listener.engine.start(listener.deliver)
        await listener.ready()
        asyncio.get_running_loop().add_reader(ours, stand_still)
        begun_s = time.monotonic()
        await asyncio.sleep(0.3)
        assert time.monotonic() - begun_s > 0.6
        await asyncio.sleep(0.1)
        assert not listener.of(EngineDown)
        await listener.engine.close()

    monkeypatch.setattr(Channel, "send", send)
    with ours, theirs:
        run(main())


@pytest.mark.usefixtures("quiet")
async def test_a_start_that_hangs_has_its_own_limit(hosted: Callable[..., Any]) -> None:
    """Loading may take longer than a step, but not for ever."""
    listener = await hosted(time.sleep, 60.0, stall_timeout_s=0.1, start_timeout_s=0.5)
    started_s = time.monotonic()
    await listener.until(lambda: bool(listener.of(EngineDown)))
    assert 0.5 <= time.monotonic() - started_s < 3.0


# --- the two processes ---------------------------------------------------------------------------


async def test_close_leaves_no_process(hosted: Callable[..., Any]) -> None:
    """Every child is gone and reaped when `close` returns, idle or loading."""
    for ready in (True, False):
        listener = await hosted(workers=2)
        if ready:
            await listener.ready()
        children = listener.engine.pids
        assert all(lives(child) for child in children)
        await listener.engine.close()
        assert not any(psutil.pid_exists(child) for child in children)


@pytest.mark.usefixtures("quiet")
async def test_a_child_that_does_not_stop_is_killed(hosted: Callable[..., Any]) -> None:
    """`close` asks first and kills after `stop_timeout_s`."""
    listener = await hosted(Stubborn, stop_timeout_s=0.2)
    await listener.ready()
    child = pid(listener)
    await listener.engine.close()
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize("instructions", ["", "hang"])
def test_a_child_does_not_outlive_its_parent(tmp_path: Path, instructions: str) -> None:
    """The parent is killed without a chance to say goodbye: the child exits, even mid-step."""
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio
        from rtts.engine.remote import RemoteEngine
        from tests.engine.cores import Touchy
        from tests.engine.hosts import Listener

        async def main():
            listener = Listener(RemoteEngine(Touchy))
            await listener.engine.start(listener.deliver)
            await listener.ready()
            listener.say("a long text " * 5000, instructions={instructions!r})
            await asyncio.sleep(0.1)
            print(*listener.engine.pids, flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert lives(child)
        parent.kill()
        asyncio.run(gone(child))


async def test_signals_to_the_group_do_not_reach_the_child(hosted: Callable[..., Any]) -> None:
    """Ctrl-C and a supervisor's SIGTERM are the parent's to answer; the child speaks on."""
    listener = await hosted()
    await listener.ready()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid(listener), number)
    assert os.getpgid(pid(listener)) != os.getpgid(0)
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]
    assert not listener.of(EngineDown)


@pytest.mark.usefixtures("quiet")
async def test_the_child_inherits_no_sockets(hosted: Callable[..., Any]) -> None:
    """A listening socket, even an inheritable one, stays the parent's; so do files."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        listener = await hosted()
        await listener.ended(listener.say("Hi", instructions="fds"))
    message = listener.of(EngineDown)[0].message
    assert message.count("socket:") == 1
    ours = os.readlink(f"/proc/self/fd/{server.fileno()}") if server.fileno() >= 0 else "closed"
    assert ours not in message


@pytest.mark.usefixtures("quiet")
async def test_a_grandchild_does_not_hide_a_death(hosted: Callable[..., Any]) -> None:
    """A process forked by the core holds the socket open, and a death is noticed nevertheless."""
    listener = await hosted()
    await listener.ready()
    await listener.ended(listener.say("Hi", instructions="orphan"))
    killed_s = time.monotonic()
    os.kill(pid(listener), signal.SIGKILL)
    await listener.until(lambda: bool(listener.of(EngineDown)))
    assert time.monotonic() - killed_s < 5.0  # the grandchild lives for 10
    assert "SIGKILL" in listener.of(EngineDown)[0].message


async def test_stdout_stays_clean(
    hosted: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """What a library prints in the child goes to stderr: stdout may be audio."""
    listener = await hosted()
    await listener.ended(listener.say("Hi", instructions="print"))
    await listener.engine.close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "a library that prints" in err


# --- the pipe ------------------------------------------------------------------------------------


async def test_a_loop_that_stands_still_loses_nothing(hosted: Callable[..., Any]) -> None:
    """More audio than the socket holds waits in the child, and comes in order, whole."""
    listener = await hosted(tone)
    await listener.ready()
    ledger = listener.say("a long text " * 100)  # 3.4 MB
    time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still
    assert await listener.ended(ledger) == [FinishReason.COMPLETED]
    assert ledger.audio_s == pytest.approx(1_200 * 0.06)


async def test_more_text_than_the_socket_holds(
    hosted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that do not fit wait in the parent; `submit` does not block on a busy child."""
    monkeypatch.setattr("rtts.engine.remote._WATCH_S", 100.0)  # no ping may push the rest along
    listener = await hosted(stall_timeout_s=400.0)
    await listener.ready()
    asked_s = time.monotonic()
    listener.say("Hi", instructions="doze")
    ledgers = [listener.say("x" * 100_000, finish=False, until_s=0.1) for _ in range(20)]
    assert time.monotonic() - asked_s < 0.3
    for ledger in ledgers:
        await listener.heard(ledger)
    for ledger in ledgers:
        listener.submit(CancelUtterance(ledger.start.utterance_id))
    assert await listener.ended(*ledgers) == [FinishReason.CANCELLED] * 20


async def test_text_that_cannot_cross_fails_alone(hosted: Callable[..., Any]) -> None:
    """A lone surrogate or a huge seed fails its utterance, typed; its batch goes through."""
    listener = await hosted()
    await listener.ready()
    good = listener.say("Hi", finish=False)
    bad = [listener.say("half \ud800 a pair"), listener.say("Hi", seed=2**70)]
    number = good.start.utterance_id
    late = listener.say("Hi", finish=False)
    listener.submit(
        AppendText(number, 1, "there"),
        AppendText(late.start.utterance_id, 1, "\udfff"),
        AppendText(number, 2, "again"),
        LoadVoice("\ud800"),
    )
    assert await listener.ended(*bad, late) == ["bad_request"] * 3
    await listener.until(lambda: good.closed == [0, 1, 2])
    assert [each.code for each in listener.of(VoiceFailed)] == ["unknown_voice"]
    listener.submit(CancelUtterance(number))
    assert await listener.ended(good) == [FinishReason.CANCELLED]


def test_a_factory_nobody_could_import_is_refused() -> None:
    """Found when the engine is described, not in a loop of restarts."""
    script = "from rtts.engine.remote import RemoteEngine\ndef f(): pass\nRemoteEngine(f)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert "ConfigError: f is defined in a script" in ran.stderr
    with pytest.raises((AttributeError, TypeError, ValueError), match="pickle"):
        RemoteEngine(lambda: tone())


def test_windows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no Unix sockets to inherit, the local host is named instead."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="local host"):
        RemoteEngine(tone)


async def test_states_and_processes_are_visible(hosted: Callable[..., Any]) -> None:
    """Metrics read state, restarts and process ids."""
    listener = await hosted(workers=2)
    assert listener.engine.state is HostState.STARTING
    await listener.ready()
    assert len(set(listener.engine.pids)) == 2
    assert len(listener.of(EngineReady)) == 1
    assert listener.engine.restarts == 0
