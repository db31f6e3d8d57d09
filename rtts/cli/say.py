"""`rtts say`: speak text, or standard input as it arrives."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from rtts.cli.failure import CommandError
from rtts.cli.flags import Commands, add_command, add_engine_flags, add_setting, resolve

if TYPE_CHECKING:
    from rtts_client import Context, Done

    from rtts.cli.outputs import Output
    from rtts.cli.terminal import Progress
    from rtts.settings import Settings

_MORE = """
Plays where there is a sound device, else writes rtts.opus; -o and --play choose.

  rtts say "Hello there."
  llm "Tell me a story" | rtts say -
  rtts say - -o story.wav < story.txt
  rtts say "Hello." -o - | aplay"""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "say", "speak text, or standard input as it arrives", more=_MORE)
    parser.add_argument("text", nargs="*", help="what to say; - reads standard input as it comes")
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="FILE", help=".opus, .ogg, .wav, or - for WAV")
    out.add_argument("--play", action="store_true", help="play it, also with -o")
    out.add_argument(
        "--json",
        action="store_true",
        help="one JSON line for each event, on standard output; audio only to -o or --play",
    )
    out.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    speech = parser.add_argument_group("speech")
    speech.add_argument("--voice", metavar="ID", help="see `rtts voices`")
    speech.add_argument("--language", metavar="TAG", help="en, zh, ...; default: by the text")
    speech.add_argument("--speed", type=float, metavar="X", help="1.0 is the voice's own")
    speech.add_argument("--seed", type=int, metavar="N", help="the same speech every time")
    where = parser.add_argument_group("where")
    add_setting(
        where,
        "--server",
        "client.server",
        metavar="URL",
        help="speak through this server; default: the one that runs on this machine, and where "
        "none does, or --engine or --model is given, the engine runs in this command; 'none': always",
    )
    add_setting(where, "--api-key", "client.api_key", metavar="KEY", help="key for that server")
    add_engine_flags(where)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Speak."""
    reads_input = arguments.text == ["-"] or (not arguments.text and not sys.stdin.isatty())
    if not arguments.text and not reads_input:
        arguments.parser.error("what shall I say? Give text, or - to read standard input")
    if arguments.json and arguments.output == "-":
        arguments.parser.error("--json and -o - both want standard output")
    import asyncio

    from rtts.cli import logs, outputs
    from rtts.cli.servers import with_own_engine
    from rtts.server import new_event_loop

    settings = with_own_engine(resolve(arguments))
    logs.set_up_quiet()
    output = outputs.choose(arguments.output, arguments.play, keep_nothing=arguments.json)
    text = None if reads_input else " ".join(arguments.text)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_say(arguments, settings, output, text))


async def _say(
    arguments: argparse.Namespace, settings: Settings, output: Output, text: str | None
) -> int:
    from rtts_client import ConnectError, ContextFailedError, RttsError, connect

    from rtts.cli.servers import server_for
    from rtts.cli.standard import typed_text
    from rtts.cli.terminal import Progress

    progress = Progress(is_quiet=arguments.quiet)
    if text is None and sys.stdin.isatty():
        progress.say("type what to say; it is spoken as it comes. Ctrl-D ends it")
    source = _readable(typed_text(sys.stdin.fileno()), progress) if text is None else text
    options: dict[str, Any] = {"format": output.format()}
    if not output.is_live:
        # A file takes audio as fast as it is made, and may take its time to be written.
        options |= {"max_lead_ms": 0, "buffer_s": math.inf, "max_buffer_s": math.inf}
    options |= {name: getattr(arguments, name) for name in ("voice", "language", "speed", "seed")}
    try:
        async with contextlib.AsyncExitStack() as stack:
            target = await stack.enter_async_context(server_for(settings, progress))
            async with progress.waiting("connecting to the server"):
                connection = connect(target.url, api_key=target.api_key)
                client = await stack.enter_async_context(connection)
            context = await stack.enter_async_context(client.context(**options))
            reporter = _Reporter(progress, as_json=arguments.json)
            return await _speak(context, source, output, reporter)
    except ConnectError as error:
        wants_key = error.code in ("unauthorized", "auth_timeout")
        hint = "; give the right key with --api-key" if wants_key else ""
        server = settings.client.server or "the server"
        raise CommandError(f"{server} refuses or cannot be reached: {error}{hint}") from error
    except ContextFailedError as error:
        raise CommandError(f"the reply could not be spoken: {error}") from error
    except RttsError as error:
        raise CommandError(str(error)) from error


async def _readable(pieces: AsyncIterator[str], progress: Progress) -> AsyncIterator[str]:
    """The pieces as they are; says once that some of them could not be read."""
    is_whole = True
    async for piece in pieces:
        if is_whole and "\ufffd" in piece:
            is_whole = False
            progress.say("rtts: the input is not all UTF-8; what is not cannot be spoken")
        yield piece


async def _speak(
    context: Context, source: str | AsyncIterator[str], output: Output, reporter: _Reporter
) -> int:
    """Speak one reply into the output."""
    from rtts_client import Audio, Done

    done: Done | None = None
    until_sound = contextlib.AsyncExitStack()
    try:
        if isinstance(source, str):  # else it may be the text that is waited for
            waiting = reporter.progress.waiting("waiting for the first sound")
            await until_sound.enter_async_context(waiting)
        async for event in context.speak(source):
            reporter.show(event)
            if isinstance(event, Audio):
                await until_sound.aclose()
                await output.write(event.data)
            elif isinstance(event, Done):
                done = event
        assert done is not None, "a context ends with done"
        where = await output.finish()
    except BaseException:  # Ctrl-C comes as a cancellation: what is written stays usable
        kept = await output.stop()
        if kept:
            reporter.progress.say(f"interrupted; {kept}")
        raise
    finally:
        await until_sound.aclose()
    if done.audio_ms <= 0:
        raise CommandError(f"nothing was spoken: {reporter.warning or 'there was no text'}")
    reporter.summarise(done, context, where)
    return 0


class _Reporter:
    """Tells what happens: JSON lines on standard output, or lines for people on standard error."""

    def __init__(self, progress: Progress, *, as_json: bool) -> None:
        self.progress = progress
        self.warning = ""  # the last one
        self._errors: list[str] = []  # said only if the reply goes on all the same
        self._as_json = as_json

    def show(self, event: Any) -> None:
        """Show one event."""
        from rtts_client import ContextError, Reconnected, Segment, Warned

        if self._as_json:
            self._print(event)
        match event:
            case Segment():
                self.progress.detail(f"{event.at_ms / 1000:7.2f} s  {event.text.strip()}")
            case Warned():
                self.warning = event.message
                self.progress.say(f"rtts: {event.message}")
            case ContextError():
                self._errors.append(event.message)
            case Reconnected():
                self.progress.say(f"rtts: reconnected after {event.away_s:.1f} s")
            case _:
                pass

    def summarise(self, done: Done, context: Context, where: str) -> None:
        """Say how it went."""
        for error in self._errors:
            self.progress.say(f"rtts: {error}")
        first_ms = None if context.first_packet_s is None else 1000 * context.first_packet_s
        rtf = done.metrics.rtf if done.metrics is not None else None
        if self._as_json:
            self._print_fields(
                {
                    "type": "said",
                    "output": where,
                    "audio_ms": done.audio_ms,
                    "first_packet_ms": None if first_ms is None else round(first_ms, 3),
                }
            )
            return
        parts = [f"{done.audio_ms / 1000:.1f} s of speech"]
        parts += [f"first packet {first_ms:.0f} ms"] if first_ms is not None else []
        parts += [f"real-time factor {rtf:.2g}"] if rtf is not None else []
        self.progress.say(f"{where or 'spoken'} ({', '.join(parts)})")

    def _print(self, event: Any) -> None:
        import msgspec
        from rtts_client import Audio

        fields = msgspec.to_builtins(event)
        if isinstance(event, Audio):
            fields["bytes"] = len(event.data)
            del fields["data"]
        self._print_fields(fields)

    def _print_fields(self, fields: dict[str, Any]) -> None:
        import json

        print(json.dumps(fields), flush=True)
