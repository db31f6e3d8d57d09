"""`rtts batch`: many texts into many files, through as many slots as the engine has."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtts.cli.failure import CommandError
from rtts.cli.flags import Commands, add_command, add_engine_flags, add_setting, resolve

if TYPE_CHECKING:
    from rtts.cli.batch_input import Item
    from rtts.cli.batch_manifest import Manifest
    from rtts.cli.batch_speech import FileKind, Job, Tally
    from rtts.cli.servers import Target
    from rtts.cli.terminal import Progress
    from rtts.settings import Settings

_MORE = """
INPUT is .jsonl, an object a line: {"text": "...", "id", "voice", "language", "instructions", "seed",
"speed"}, all but the text optional; or .txt, an item for each paragraph between blank lines.
DIR gets a file for each, named in their order, and manifest.jsonl, which says what became of each.
The same command goes on where it was stopped, and does again only what has changed. A text that
cannot be spoken costs itself: it is in the manifest, and the exit status is 1.

  rtts batch book.txt -o book
  rtts batch lines.jsonl -o lines --format wav --engine qwen --model DIR --device cuda"""
_FORMATS = ("opus", "ogg", "wav", "pcm", "ulaw", "alaw")
_BAR = 24
# Enough to keep an engine process busy that has no slots: while one text waits for its file to be
# closed, others are spoken.
_LANES = 6
# Beyond the slots, so that one that gets free finds the next text waiting.
_SPARE_LANES = 0.25
# What does not change a sample, but only when it comes and how many at a time.
_INAUDIBLE = frozenset(
    [
        "device",
        "threads",
        "kokoro_threads",
        "slots",
        "waiting",
        "wait_limit_s",
        "prefill_rows",
        "prefix_bytes",
        "prewarm_languages",
        "voice_cache",
        "voice_cache_mb",
        "max_utterances",
        "first_chunk_s",
        "chunk_s",
        "urgent_lead_s",
    ]
)


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "speak many texts into files, resumable"
    parser = add_command(commands, "batch", summary, more=_MORE)
    parser.add_argument("input", metavar="INPUT", type=Path, help="a .jsonl or .txt file")
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="a folder")
    out.add_argument("--format", choices=_FORMATS, default="opus", help="default opus (Ogg)")
    out.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    speech = parser.add_argument_group("speech, of texts that do not say it themselves")
    speech.add_argument("--voice", metavar="ID", help="see `rtts voices`")
    speech.add_argument("--language", metavar="TAG", help="en, zh, ...; default: by the text")
    speech.add_argument(
        "--instructions", metavar="TEXT", help="how to speak, where voices take any"
    )
    speech.add_argument("--speed", type=float, metavar="X", help="1.0 is the voice's own")
    speech.add_argument("--seed", type=int, metavar="N", help="the same speech every time")
    where = parser.add_argument_group("where")
    where.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="texts at once; default: what fills every slot"
    )
    add_setting(
        where,
        "--server",
        "client.server",
        metavar="URL",
        help="speak through this server; default: an engine of this command's own",
    )
    add_setting(where, "--api-key", "client.api_key", metavar="KEY", help="key for that server")
    add_engine_flags(where)
    add_setting(where, "--workers", "engine.workers", metavar="N", help="engines that share work")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Speak them."""
    if arguments.jobs is not None and arguments.jobs < 1:
        arguments.parser.error("--jobs must be at least 1")
    settings = resolve(arguments, profile="throughput").settings

    import asyncio

    from rtts.cli import logs
    from rtts.cli.batch_input import check_input
    from rtts.cli.batch_manifest import Manifest
    from rtts.cli.terminal import Progress
    from rtts.server import new_event_loop

    logs.set_up("warning", as_json=False)
    check_input(arguments.input)
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{arguments.output} cannot be made: {error.strerror}") from error
    progress = Progress(is_quiet=arguments.quiet)
    with Manifest(arguments.output) as manifest:
        batch = _Batch(arguments, settings, manifest, progress)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(batch.speak())
        except KeyboardInterrupt:
            progress.end_meter()
            progress.say(f"interrupted; {batch.so_far()}; the same command goes on from there")
            raise


class _Batch:
    """One run of the command. Owner: event loop."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        manifest: Manifest,
        progress: Progress,
    ) -> None:
        self._arguments, self._settings = arguments, settings
        self._manifest, self._progress = manifest, progress
        self._kind = _kind(arguments.format, settings)
        self._total = self._settled = 0  # items of the input; those settled by earlier runs
        self._tally: Tally | None = None  # once speech has begun
        self._began_s = time.monotonic()

    async def speak(self) -> int:
        """Speak what is missing; the exit status."""
        from rtts.cli.servers import NO_SERVER, hosted, native_url

        settings = self._settings
        if settings.client.server not in ("", NO_SERVER):
            from rtts.cli.servers import Target

            url, key = native_url(settings.client.server), settings.client.api_key or None
            target = Target(url, key, is_ours=False)
            return await self._speak_through(target, self._job(await _model_of(target), None))
        job = self._job(_identity(settings), settings.session.opus_complexity)
        if self._is_nothing_left(job):  # no need to load an engine for that
            return self._summarise()
        async with hosted(settings, self._progress, is_brief=False) as target:
            return await self._speak_through(target, job)

    async def _speak_through(self, target: Target, job: Job) -> int:
        from rtts.cli.batch_speech import Speech

        if self._is_nothing_left(job):
            return self._summarise()
        lanes = self._arguments.jobs or await _lanes(target)
        speech = Speech(job, target, self._manifest, self._show)
        self._tally = speech.tally
        self._began_s = time.monotonic()
        if self._settled:
            self._progress.say(f"{self._settled} of {self._total} are there already")
        try:
            await speech.run(self._missing(job), min(lanes, self._total - self._settled))
        finally:
            self._progress.end_meter()
        return self._summarise()

    # --- what there is to do ---------------------------------------------------------------------

    def _job(self, identity: str, complexity: int | None) -> Job:
        from rtts.cli.batch_speech import Job

        arguments = self._arguments
        names = ("voice", "language", "instructions", "speed", "seed")
        defaults = {name: getattr(arguments, name) for name in names}
        defaults = {name: value for name, value in defaults.items() if value is not None}
        context = repr((self._kind, sorted(defaults.items()), identity, complexity))
        return Job(arguments.output, self._kind, defaults, context, complexity)

    def _missing(self, job: Job) -> Iterator[Item]:
        """The items that no earlier run has settled as they are now."""
        from rtts.cli.batch_input import read_items

        for item in read_items(self._arguments.input):
            if item.problem or not self._is_settled(job, item):
                yield item

    def _is_settled(self, job: Job, item: Item) -> bool:
        name = f"{item.name}{job.kind.suffix}"
        return self._manifest.settled(item.index, item.digest(job.context), name)

    def _is_nothing_left(self, job: Job) -> bool:
        """Count the items and those that are settled; whether that is all of them."""
        from rtts.cli.batch_input import read_items

        self._total = self._settled = 0
        for item in read_items(self._arguments.input):
            self._total += 1
            self._settled += not item.problem and self._is_settled(job, item)
        if not self._total:
            raise CommandError(f"{self._arguments.input}: there is no text in it")
        return self._settled == self._total

    # --- telling ---------------------------------------------------------------------------------

    def so_far(self) -> str:
        """How much is done."""
        settled = self._tally.settled if self._tally else 0
        return f"{self._settled + settled} of {self._total or '?'} texts are settled"

    def _show(self) -> None:
        tally = self._tally
        assert tally is not None
        settled = self._settled + tally.settled
        elapsed_s = time.monotonic() - self._began_s
        left_s = elapsed_s / tally.settled * (self._total - settled)
        full = _BAR * settled // self._total
        self._progress.meter(
            f"[{'#' * full}{'.' * (_BAR - full)}] {settled}/{self._total}"
            f"{f', {tally.failed} failed' if tally.failed else ''}, {_clock(left_s)} left, "
            f"{_clock(tally.audio_s)} of speech, {_pace(tally.audio_s, elapsed_s)}"
        )

    def _summarise(self) -> int:
        from rtts.cli.batch_speech import Tally

        tally = self._tally or Tally()
        elapsed_s = time.monotonic() - self._began_s
        parts = [f"{tally.done} spoken"]
        parts += [f"{self._settled} there already"] if self._settled else []
        parts += [f"{tally.empty} with nothing to speak"] if tally.empty else []
        parts += [f"{tally.warned} spoken in part or with a warning"] if tally.warned else []
        parts += [f"{tally.failed} failed"] if tally.failed else []
        if tally.done:
            pace = _pace(tally.audio_s, elapsed_s)
            parts.append(f"{tally.audio_s:.1f} s of speech in {elapsed_s:.1f} s ({pace})")
        self._progress.say(f"{self._arguments.output}: {', '.join(parts)}")
        if tally.failed:
            self._progress.say(f"what failed, and why: {self._arguments.output}/manifest.jsonl")
        return 1 if tally.failed else 0


async def _lanes(target: Target) -> int:
    """How many texts at once fill every slot of the engine."""
    import asyncio

    body: dict[str, Any] = await asyncio.to_thread(target.get, "/readyz")
    slots, places = int(body.get("spoken_at_once", 0)), int(body.get("slots_free", _LANES))
    processes = body.get("engine_processes", {}).get("total", 1)
    wanted = slots + max(2, int(slots * _SPARE_LANES)) if slots else _LANES * int(processes)
    return max(1, min(wanted, places))


async def _model_of(target: Target) -> str:
    """Which model a server speaks with."""
    import asyncio

    body: dict[str, Any] = await asyncio.to_thread(target.get, "/readyz")
    return f"{body.get('engine')} {body.get('model')} {body.get('default_voice')}"


def _identity(settings: Settings) -> str:
    """Everything of our own engine's settings that can be heard."""
    kind = settings.engine.kind
    options = dataclasses.asdict(getattr(settings, kind))
    heard = {name: value for name, value in options.items() if name not in _INAUDIBLE}
    session = settings.session
    return repr((kind, sorted(heard.items()), session.voice, session.language))


def _kind(name: str, settings: Settings) -> FileKind:
    """The kind of file that a format's name stands for."""
    from rtts_client import Format

    from rtts.cli.batch_speech import SAMPLE_RATE_HZ, FileKind

    if name in ("opus", "ogg"):
        ogg = Format("opus", "ogg", bitrate=settings.session.opus_bitrate)
        return FileKind(f".{name}", ogg)
    if name in ("ulaw", "alaw"):
        return FileKind(f".{name}", Format("mulaw" if name == "ulaw" else name, "raw", 8_000))
    pcm = Format("pcm_s16le", "raw", SAMPLE_RATE_HZ)
    return FileKind(f".{name}", pcm, is_wav=name == "wav")


def _pace(audio_s: float, wall_s: float) -> str:
    return f"real-time factor {wall_s / audio_s:.3g}" if audio_s else "no speech yet"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
