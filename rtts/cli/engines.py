"""From settings to an engine: the only place that names the engines there are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rtts.errors import ConfigError

if TYPE_CHECKING:
    from rtts.engine.interface import Engine, EngineCore
    from rtts.server.voice_making import VoiceMaker
    from rtts.settings import Settings


def make_engine(
    settings: Settings, *, is_brief: bool = False, takes_voices: bool = False
) -> Engine:
    """The engine the settings name, not started.

    Args:
        is_brief: It serves one command and ends with it: a process of its own is not worth its
            start, unless the settings ask for one.
        takes_voices: Users will bring voices, so it may have none to begin with.

    Raises:
        ConfigError: It cannot be had here; the message says what is missing.
    """
    kind, workers = settings.engine.kind, settings.engine.workers
    factory, each = _cores(settings, takes_voices=takes_voices)
    if _host(settings, is_brief=is_brief) == "remote":
        from rtts.engine.remote import RemoteEngine

        return RemoteEngine(factory, each=each * workers, name=kind)
    if len(each) > 1:
        raise ConfigError("engine.host: several devices need a process each: remote, or auto")

    from rtts.engine.local import LocalEngine

    return LocalEngine(lambda: factory(*each[0]), workers=workers, name=kind)


def shares_process(settings: Settings) -> bool:
    """Whether the engine of a server runs in the server's process."""
    return _host(settings, is_brief=False) == "local"


def _host(settings: Settings, *, is_brief: bool) -> str:
    """Where the engine runs, with `auto` resolved."""
    host = settings.engine.host
    if host != "auto":
        return host
    if os.name != "posix":
        return "local"
    if settings.engine.kind == "qwen":  # a model that dies takes down nothing but its utterances
        return "remote"
    has_cores = (os.cpu_count() or 1) > 1
    return "remote" if has_cores and settings.engine.kind == "cpu" and not is_brief else "local"


def _cores(
    settings: Settings, *, takes_voices: bool = False
) -> tuple[Callable[..., EngineCore], list[tuple[object, ...]]]:
    """What makes a core, and its arguments for each device; both can go to another process."""
    if settings.engine.kind == "tone":
        from rtts.engine.tone import ToneEngine

        return ToneEngine, [(settings.tone,)]

    if settings.engine.kind == "qwen":
        from rtts.engine.qwen.factory import check_voices, find_checkpoint, make_qwen_engine

        # A mistake is told here, and once, not by each new process.
        _, config = find_checkpoint(settings.qwen)
        check_voices(settings.qwen, config, may_be_none=takes_voices)
        _check_shares(settings)
        qwen = settings.qwen
        return make_qwen_engine, [(replace(qwen, device=device),) for device in qwen.devices]

    import threading
    import time

    from rtts.engine.cpu.factory import CpuEngineFactory

    return CpuEngineFactory(settings.cpu, time.monotonic, threading.Lock()), [()]


def make_voice_maker(settings: Settings) -> VoiceMaker | None:
    """What makes recordings into voices of the engine the settings name; None where it clones none.

    Raises:
        ConfigError: The checkpoint cannot be had.
    """
    if settings.engine.kind != "qwen":
        return None
    import sys

    from rtts.engine.qwen.factory import clones_voices, find_checkpoint, fingerprint
    from rtts.server.voice_making import CommandMaker

    folder, config = find_checkpoint(settings.qwen)
    if not clones_voices(config):
        return None
    command = [sys.executable, "-m", "rtts.engine.qwen.register", str(folder)]
    return CommandMaker(command, f"qwen {fingerprint(folder)}")


def _check_shares(settings: Settings) -> None:
    """Refuse engines that would each take all of one device.

    Raises:
        ConfigError: They would.
    """
    is_gpu = settings.qwen.device != "cpu"
    if is_gpu and settings.engine.workers > 1 and settings.qwen.slots == "auto":
        raise ConfigError(
            f"engine.workers: {settings.engine.workers} engines on one GPU cannot each have all of "
            "its memory; give qwen.slots a number, or one worker"
        )
