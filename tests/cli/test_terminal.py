from __future__ import annotations

import asyncio
import io
import os
import time

import pytest

from rtts.cli import terminal
from rtts.cli.terminal import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestDetails:
    def test_short_commands_stay_quiet(self) -> None:
        """Details of the first second are held back, and shown only if asked for."""
        stream = io.StringIO()
        progress = Progress(stream)
        progress.detail("one")
        assert stream.getvalue() == ""
        progress.flush()
        assert stream.getvalue() == "one\n"

    def test_long_commands_show_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a second the held details and all later ones are shown, in order."""
        now = 1000.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
        stream = io.StringIO()
        progress = Progress(stream)
        progress.detail("one")
        now += 1.0
        progress.detail("two")
        progress.detail("three")
        assert stream.getvalue() == "one\ntwo\nthree\n"

    def test_quiet(self) -> None:
        """A quiet command says nothing."""
        stream = io.StringIO()
        progress = Progress(stream, is_quiet=True)
        progress.say("x")
        progress.detail("y")
        progress.flush()
        assert stream.getvalue() == ""


class TestWaiting:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terminal, "PATIENCE_S", 0.02)
        monkeypatch.setattr(terminal, "_TERMINAL_TICK_S", 0.01)
        monkeypatch.setattr(terminal, "_PLAIN_TICK_S", 30.0)

    async def test_nothing_for_short_waits(self) -> None:
        """What does not take long is not mentioned."""
        stream = io.StringIO()
        async with Progress(stream).waiting("loading"):
            pass
        assert stream.getvalue() == ""

    async def test_plain_line(self) -> None:
        """Where there is no terminal, waiting is one plain line, without control characters."""
        stream = io.StringIO()
        async with Progress(stream).waiting("loading"):
            await asyncio.sleep(0.1)
        assert stream.getvalue() == "loading (0 s)\n"

    async def test_clock_is_erased(self) -> None:
        """On a terminal a clock runs in place, other lines stand clear of it, nothing of it stays."""
        stream = Terminal()
        progress = Progress(stream)
        async with progress.waiting("loading"):
            await asyncio.sleep(0.1)
            progress.say("a line")
        shown = stream.getvalue()
        assert "\r\x1b[Kloading … 0 s" in shown
        assert "\r\x1b[Ka line\n" in shown
        assert shown.endswith(("\r\x1b[K", "a line\n"))

    async def test_errors_pass(self) -> None:
        """An error inside comes through and ends the clock."""
        with pytest.raises(ZeroDivisionError):
            async with Progress(io.StringIO()).waiting("loading"):
                raise ZeroDivisionError


class TestWorking:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terminal, "PATIENCE_S", 0.02)
        monkeypatch.setattr(terminal, "_TERMINAL_TICK_S", 0.01)
        monkeypatch.setattr(terminal, "_PLAIN_TICK_S", 30.0)

    def test_clock_without_a_loop(self) -> None:
        """A clock runs beside work that blocks, and nothing of it stays, not even after an error."""
        stream = Terminal()
        with pytest.raises(ValueError, match="x"), Progress(stream).working("loading"):
            time.sleep(0.1)
            raise ValueError("x")
        assert "loading … 0 s" in stream.getvalue()
        assert stream.getvalue().endswith("\r\x1b[K")

    def test_short_work_is_not_mentioned(self) -> None:
        """What does not take long is not mentioned."""
        stream = io.StringIO()
        with Progress(stream).working("loading"):
            pass
        assert stream.getvalue() == ""


class TestMeter:
    @pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
    def test_rate(self, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
        """Nothing in the first second; then a line every 10 s, on a terminal five a second in place."""
        now = 1000.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
        progress = Progress(stream)
        now += 60.0  # what came before does not count
        for eighth in range(120):
            progress.meter(str(eighth))
            now += 0.125
        progress.end_meter()
        shown = stream.getvalue()
        if isinstance(stream, Terminal):
            lines = shown.split("\r\x1b[K")
            assert (lines[1], lines[-1]) == ("8", "")
            assert 50 <= len(lines) <= 60
        else:
            assert shown.split() == ["8", "88"]

    @pytest.mark.parametrize("columns", [0, 20, 300])
    def test_narrow_terminal(self, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        """A line never goes on in the next one, where nothing would erase it."""
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(terminal.os, "get_terminal_size", lambda fd: size)
        monkeypatch.setattr(Terminal, "fileno", lambda self: 2)
        monkeypatch.setattr(terminal, "PATIENCE_S", 0.0)
        stream = Terminal()
        progress = Progress(stream)
        progress._metered_s = 0.0
        progress.meter("x" * 200)
        assert stream.getvalue().count("x") == {0: 79, 20: 19, 300: 200}[columns]
