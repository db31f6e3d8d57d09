"""`rtts checkpoint`: a Qwen3-TTS checkpoint of random weights, to size hardware and to test with."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rtts.cli.failure import CommandError
from rtts.cli.flags import Commands

_MORE = """.
It has the shapes, names and special ids of a release and says nothing anybody understands: it is for
sizing hardware, and for tests without a download. The same arguments give the same bytes.

  rtts checkpoint --size tiny --type custom_voice tiny
  rtts serve --engine qwen --model tiny"""
_SIZES = ("tiny", "0.6b", "1.7b")
_TYPES = ("custom_voice", "base", "voice_design")


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "write a Qwen3-TTS checkpoint of random weights"
    parser = commands.add_parser(
        "checkpoint",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}{_MORE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="new, or empty")
    parser.add_argument("--size", choices=_SIZES, required=True, help="tiny is of no release")
    parser.add_argument("--type", choices=_TYPES, default=_TYPES[0], help=f"default {_TYPES[0]}")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write it."""
    from rtts.cli.terminal import Progress
    from rtts.engine.qwen.factory import check_packages

    check_packages()
    progress = Progress(is_quiet=arguments.quiet)
    with progress.working("loading torch"):
        from rtts.engine.qwen.checkpoint import write_checkpoint

    def show(written: int, total: int) -> None:
        progress.meter(f"{written / 1e6:,.0f} of {total / 1e6:,.0f} MB written")

    with _whole(arguments.folder) as folder:
        try:
            write_checkpoint(folder, arguments.size, arguments.type, arguments.seed, show)
        finally:
            progress.end_meter()
    size = sum(path.stat().st_size for path in arguments.folder.rglob("*") if path.is_file())
    progress.say(f"wrote {arguments.folder} ({size / 1e6:,.1f} MB)")
    return 0


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder to write to that becomes `folder` when all is written, and else leaves nothing.

    Raises:
        CommandError: There is something already, or it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{folder} is there already; name a folder that is new or empty")
    target = folder.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            yield workplace / "checkpoint"
            (workplace / "checkpoint").rename(target)
        finally:
            shutil.rmtree(workplace)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror or error}") from error
