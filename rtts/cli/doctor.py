"""`rtts doctor`: what this machine can run, what is missing and how to get it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rtts.cli.flags import Commands, add_command, add_engine_flags, resolve

if TYPE_CHECKING:
    from rtts.cli.looking import Check

_MARKS = {"ok": "ok  ", "missing": "  - ", "problem": "FAIL"}


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "doctor",
        "say what this machine can run, what is missing and how to get it",
        more="\nExit status 1 if the engine of the settings cannot speak.",
    )
    add_engine_flags(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything, print it."""
    import dataclasses

    report = _Report(is_shown=not arguments.json)
    can_speak = _check(arguments, report)
    if arguments.json:
        found = [dataclasses.asdict(check) for check in report.checks]
        print(json.dumps({"can_speak": can_speak, "checks": found}))
    else:
        problems = sum(check.status == "problem" for check in report.checks)
        verdict = "This machine can speak." if can_speak else "This machine cannot speak yet."
        print(f"\n{verdict}" + (f" {problems} problem(s), see FAIL." if problems else ""))
    return 0 if can_speak else 1


def _check(arguments: argparse.Namespace, report: _Report) -> bool:
    """Look at everything; whether the engine of the settings speaks."""
    from rtts.cli import checks

    report.add(*checks.installation_checks())
    try:
        # Nearly every package is needed by now, so a missing one ends it here.
        settings = resolve(arguments).settings
        for check in checks.machine_checks(settings):
            report.add(check)
        import asyncio

        speech = asyncio.run(checks.speech_check(settings))
    except ImportError as error:
        speech = checks.broken_installation(error)
    report.add(speech)
    return speech.status == "ok"


class _Report:
    """Collects checks, and shows each as it comes."""

    def __init__(self, *, is_shown: bool) -> None:
        self.checks: list[Check] = []
        self._is_shown = is_shown

    def add(self, *checks: Check) -> None:
        """Take checks."""
        self.checks += checks
        if not self._is_shown:
            return
        for check in checks:
            print(f"{_MARKS[check.status]}  {check.name:<22} {check.found}", flush=True)
            if check.remedy:
                print(f"{'':28} {check.remedy}", flush=True)
