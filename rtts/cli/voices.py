"""`rtts voices`: who can speak, which languages, under which licence, and with which limits."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rtts.cli.flags import Commands, add_command, add_engine_flags, add_setting, resolve


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "voices", "list voices, their languages and licences")
    parser.add_argument("--json", action="store_true", help="one JSON object, as /v1/voices")
    add_setting(parser, "--server", "client.server", metavar="URL", help="those of this server")
    add_setting(parser, "--api-key", "client.api_key", metavar="KEY", help="key for that server")
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    import asyncio

    from rtts.cli import logs
    from rtts.cli.servers import server_for, with_own_engine
    from rtts.cli.terminal import Progress

    settings = with_own_engine(resolve(arguments))

    async def ask() -> dict[str, Any]:
        progress = Progress()
        async with server_for(settings, progress) as target, progress.waiting("asking the server"):
            return await asyncio.to_thread(target.get, "/v1/voices")

    logs.set_up_quiet()
    answer = asyncio.run(ask())
    if arguments.json:
        print(json.dumps(answer))
    else:
        print(_table(answer["voices"]), end="")
    return 0


def _table(voices: list[dict[str, Any]]) -> str:
    rows = [("voice", "languages", "licence", "description")]
    for voice in voices:
        mark = " *" if voice.get("default") else ""
        languages = ", ".join(voice["languages"])
        # A voice that a user brought can be asked for by a name, too.
        name = voice.get("name") if voice.get("name") != voice["id"] else ""
        about = ": ".join(filter(None, (name, voice["description"])))
        rows.append((voice["id"] + mark, languages, voice["licence"], about))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
    return "\n".join([*lines, "", "* default", *_notes(voices)]) + "\n"


def _notes(voices: list[dict[str, Any]]) -> list[str]:
    """What voices cannot do, each note once, with the voices it is about."""
    about: dict[str, list[str]] = {}
    for voice in voices:
        for note in voice["notes"]:
            about.setdefault(note, []).append(voice["id"])
    return [f"{', '.join(ids)}: {note}" for note, ids in about.items()]
