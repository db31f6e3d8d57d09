"""`rtts doctor`: what this machine can run, what is missing and how to get it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rtts.cli.flags import Commands, add_command, add_engine_flags, resolve

if TYPE_CHECKING:
    from rtts.cli.checks import Check

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
    import asyncio
    import dataclasses

    from rtts.cli import checks

    resolved = resolve(arguments)
    found: list[Check] = []
    for check in checks.machine_checks(resolved.settings):
        found.append(check)
        _show([check], arguments.json)
    speech = asyncio.run(checks.speech_check(resolved.settings))
    found.append(speech)
    _show([speech], arguments.json)
    can_speak = speech.status == "ok"
    if arguments.json:
        report = {"can_speak": can_speak, "checks": [dataclasses.asdict(check) for check in found]}
        print(json.dumps(report, ensure_ascii=False))
    else:
        problems = sum(check.status == "problem" for check in found)
        verdict = "This machine can speak." if can_speak else "This machine cannot speak yet."
        print(f"\n{verdict}" + (f" {problems} problem(s), see FAIL." if problems else ""))
    return 0 if can_speak else 1


def _show(checks: Iterable[Check], as_json: bool) -> None:
    if as_json:
        return
    for check in checks:
        print(f"{_MARKS[check.status]}  {check.name:<22} {check.found}", flush=True)
        if check.remedy:
            print(f"{'':28} {check.remedy}", flush=True)
