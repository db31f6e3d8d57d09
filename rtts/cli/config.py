"""`rtts config`: the settings as they are, each with where it comes from."""

from __future__ import annotations

import argparse
import json

from rtts.cli.flags import Commands, add_command, add_engine_flags, resolve


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "config",
        "print the resolved settings",
        more=" The output is an rtts.toml; secrets are hidden.\n"
        "Order: defaults < profile < rtts.toml (here, then ~/.config/rtts) < RTTS_* variables < flags.",
    )
    add_engine_flags(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    resolved = resolve(arguments)
    if arguments.json:
        shown = {"settings": resolved.as_data(), "sha256": resolved.fingerprint()}
        print(json.dumps(shown))
    else:
        print(f"# file: {resolved.file or 'none'}")
        print(resolved.as_toml(), end="")
    return 0
