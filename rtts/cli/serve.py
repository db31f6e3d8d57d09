"""`rtts serve`: the server."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from rtts.cli.flags import Commands, add_command, add_engine_flags, add_setting, resolve

if TYPE_CHECKING:
    from rtts.engine.interface import Engine
    from rtts.server import Server
    from rtts.server.voice_making import VoiceMaker
    from rtts.settings import Settings

_MORE = """
Runs until SIGTERM or Ctrl-C: the first lets running speech finish, the second does not."""
_SOCKET_HELP = "listen here instead of on an address and port"


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "serve", "serve speech over WebSockets", more=_MORE)
    where = parser.add_argument_group("where")
    add_setting(where, "--host", "server.host", metavar="ADDRESS", help="default 127.0.0.1")
    add_setting(where, "--port", "server.port", metavar="N", help="default 8765; 0: a free one")
    add_setting(where, "--unix-socket", "server.unix_socket", metavar="PATH", help=_SOCKET_HELP)
    add_setting(
        where,
        "--insecure",
        "server.insecure",
        is_switch=True,
        help="allow other addresses than loopback without API keys",
    )
    add_setting(
        where,
        "--record",
        "server.record_file",
        metavar="FILE.csv",
        help="add a row for every reply, for rtts report",
    )
    engine = parser.add_argument_group("engine")
    add_engine_flags(engine)
    add_setting(engine, "--engine-host", "engine.host", metavar="HOST", help="local, remote")
    add_setting(engine, "--workers", "engine.workers", metavar="N", help="engines that share work")
    add_setting(engine, "--voice", "session.voice", metavar="ID", help="default voice")
    add_setting(parser, "--log-level", "log.level", metavar="LEVEL", help="debug, info, warning")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    resolved = resolve(arguments)
    settings = resolved.settings

    import asyncio
    import logging

    from rtts.cli import logs
    from rtts.server import new_event_loop

    logs.set_up(settings.log.level, as_json=settings.server.log_json)
    log = logging.getLogger("rtts")
    log.info("settings: file %s, SHA-256 %s", resolved.file or "none", resolved.fingerprint())
    from rtts.audio.opus import load_library
    from rtts.cli.engines import make_engine, make_voice_maker

    if settings.audio.opus_library is not None:
        load_library(str(settings.audio.opus_library))
    settings = with_encoders(settings)
    # Before there is a loop: it may have to fetch a model.
    engine = make_engine(settings, takes_voices=True)
    maker = make_voice_maker(settings)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(settings, engine, maker))


def with_encoders(settings: Settings) -> Settings:
    """The settings with a number of encoder threads."""
    from rtts.cli.engines import shares_process
    from rtts.server import threads_here

    if settings.server.encoder_threads is not None:
        return settings
    # Beside an engine's thread each packet would wait for the interpreter lock that that one holds.
    threads = 0 if shares_process(settings) else threads_here()
    return replace(settings, server=replace(settings.server, encoder_threads=threads))


async def _serve(settings: Settings, engine: Engine, maker: VoiceMaker | None) -> int:
    import gc
    import logging

    from rtts.server import serve
    from rtts.settings import data_dir

    def listening(server: Server) -> None:
        print(f"listening on {server.ws_url} ({settings.engine.kind} engine)", flush=True)
        if settings.server.dashboard:
            logging.getLogger("rtts").info("dashboard: %s/dashboard/", server.url)

    def ready(server: Server) -> None:
        del server
        # What is loaded is here to stay, and what sessions leave frees itself: a full collection
        # would only walk modules and models, for 50 ms and more, in the middle of speech.
        gc.collect()
        gc.freeze()
        print("ready", flush=True)

    return await serve(
        settings.server,
        engine,
        session_options=settings.session,
        max_backlog_s=settings.engine.max_backlog_s,
        aliases=settings.aliases,
        voices=replace(settings.voices, dir=settings.voices.dir or data_dir() / "voices"),
        voice_maker=maker,
        on_listening=listening,
        on_ready=ready,
    )
