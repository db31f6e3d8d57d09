"""The `rtts` command: the composition root.

Each command is a module with `add(commands)`, which declares its flags, and imports what it needs
only when it runs, so that `rtts --help` answers at once. A command returns its exit status: 0 done,
1 failed, 2 asked wrongly (usage or settings), 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

from rtts import __version__
from rtts.cli import batch, checkpoint, config, demo, doctor, report, say, serve, synth, voices
from rtts.cli.failure import CommandError
from rtts.cli.flags import refuse_unknown
from rtts.errors import ConfigError, RttsError

FAILED = 1
ASKED_WRONGLY = 2
# What a shell reports for a command that died of the signal: 128 + SIGINT, 128 + SIGPIPE.
INTERRUPTED = 130
PIPE_CLOSED = 141

_DESCRIPTION = "Real-time text-to-speech: text that is still being written, heard as it is written."
_EPILOG = """\
try:
  rtts say "Hello there."              speak, or write rtts.opus where there is no sound device
  llm "Tell me a story" | rtts say -   speak a reply while it is being written
  rtts serve                           WebSocket server on ws://127.0.0.1:8765/v1/tts
  rtts doctor                          what this machine can run, and what is missing
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="rtts",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rtts {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command")
    for module in (serve, say, batch, voices, doctor, config, demo, synth, checkpoint, report):
        module.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None takes the process's.

    Returns:
        The exit status.
    """
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal cannot show is shown escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader left (`rtts voices | head -1`)
        return PIPE_CLOSED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"rtts: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        _drop_output()
        return FAILED
    except ConfigError as error:
        print(f"rtts: {error}", file=sys.stderr)
        return ASKED_WRONGLY
    except (CommandError, RttsError) as error:
        print(f"rtts: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        if (error.name or "rtts").partition(".")[0] in ("rtts", "rtts_client"):
            raise  # our own mistake
        print(f"rtts: the package {error.name} is missing; see rtts doctor", file=sys.stderr)
        return FAILED


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        refuse_unknown(getattr(arguments, "parser", parser), unknown)
    if not hasattr(arguments, "run"):  # no command: say what there is
        parser.print_help(sys.stderr)
        return ASKED_WRONGLY
    status: int = arguments.run(arguments)
    sys.stdout.flush()
    return status


def _open_what_is_closed() -> None:
    """Open the standard files the program was started without (`<&-`).

    Sockets would get their numbers, and uvloop aborts over that.
    """
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))


def _drop_output() -> None:
    """Python flushes stdout once more at exit, which must find somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
