"""`rtts demo`: a server, a reply that arrives word by word, and what became of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rtts.cli.flags import Commands, add_command, add_engine_flags, resolve


def add(commands: Commands) -> None:
    """Declare the command."""
    more = "\nStart one, send it a reply word by word, write what it says to a file, stop it."
    parser = add_command(commands, "demo", "show a server at work", more=more)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("hello.opus"), help="Ogg Opus"
    )
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    resolve(arguments)  # a mistake is reported here, not by the server
    command = [sys.executable, "-m", "rtts", "serve", "--port", "0", "--log-level", "error"]
    if arguments.config:
        command += ["--config", str(arguments.config)]
    for _, key, text in arguments.settings or ():
        command += ["--set", f"{key}={text}"]

    import asyncio

    from rtts.cli.showing import show

    asyncio.run(show(command, arguments.output))
    return 0
