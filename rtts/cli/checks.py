"""What `rtts doctor` looks at, one function a subject. Looks, and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rtts.cli import playback
from rtts.cli.looking import Check, version_of
from rtts.errors import ConfigError, RttsError

if TYPE_CHECKING:
    from rtts.engine.interface import Engine, Event
    from rtts.settings import Settings

_SENTENCE = "Hello there, how can I help you today?"
_SPEECH_TIMEOUT_S = 60.0
_QWEN_TIMEOUT_S = 600.0  # on a CPU its released sizes take a second or more for each 80 ms
_GPU_TIMEOUT_S = 10.0
# What a process needs beside its sockets: libraries, logs, pipes, the engine.
_SPARE_FILES = 64


def installation_checks() -> Iterator[Check]:
    """What needs no package but Python: the machine, and which packages there are."""
    yield from _system()
    yield from _packages()


def broken_installation(error: ImportError) -> Check:
    """Something rtts needs cannot be imported."""
    return Check("installation", "problem", str(error), "install rtts again: pip install .")


def machine_checks(settings: Settings) -> Iterator[Check]:
    """Everything else but speech itself."""
    yield _libopus(settings)
    yield _lame()
    yield from _engines(settings)
    yield _sound()
    yield _address(settings)
    yield from _open_files(settings)


async def speech_check(settings: Settings) -> Check:
    """Whether the engine of the settings speaks: it says one sentence."""
    name = f"{settings.engine.kind} engine speaks"
    timeout_s = _QWEN_TIMEOUT_S if settings.engine.kind == "qwen" else _SPEECH_TIMEOUT_S
    try:
        found = await asyncio.wait_for(_speak(settings), timeout_s)
    except TimeoutError:
        return Check(name, "problem", f"no speech within {timeout_s:.0f} s")
    except RttsError as error:
        return Check(name, "problem", str(error))
    return Check(name, "ok", found)


async def _speak(settings: Settings) -> str:
    from rtts.cli.engines import make_engine

    events: asyncio.Queue[Event] = asyncio.Queue()

    def deliver(batch: Sequence[Event]) -> None:
        for event in batch:
            events.put_nowait(event)

    began = time.monotonic()
    engine = make_engine(settings, is_brief=True)
    await engine.start(deliver)
    try:
        voice = settings.session.voice or await _ready_voice(events)
        await _say(engine, events, 1, voice)
        loaded_s = time.monotonic() - began
        warm = await _say(engine, events, 2, voice)
    finally:
        await engine.close()
    return f"{voice} loaded and speaking after {loaded_s:.1f} s, then {warm}"


async def _say(engine: Engine, events: asyncio.Queue[Event], number: int, voice: str) -> str:
    """Have it say one sentence; how fast it was."""
    from rtts.engine.interface import AppendText, FinishText, StartUtterance

    asked = time.monotonic()
    engine.submit(
        [
            StartUtterance(number, voice, until_s=60.0),
            AppendText(number, 0, _SENTENCE),
            FinishText(number),
        ]
    )
    first, audio_s = await _hear(events, number)
    rtf = (time.monotonic() - asked) / audio_s
    return f"first sound {1000 * (first - asked):.0f} ms, real-time factor {rtf:.2g}"


async def _ready_voice(events: asyncio.Queue[Event]) -> str:
    """The default voice of the engine, once it is loaded."""
    from rtts.engine.interface import EngineDown, EngineReady

    while True:
        event = await events.get()
        if isinstance(event, EngineReady):
            return event.capabilities.default_voice
        if isinstance(event, EngineDown):
            raise ConfigError(event.message)


async def _hear(events: asyncio.Queue[Event], number: int) -> tuple[float, float]:
    """When an utterance's first audio came, and how many seconds of it there were."""
    from rtts.engine.interface import AudioProduced, UtteranceFailed, UtteranceFinished

    first = 0.0
    while True:
        event = await events.get()
        if isinstance(event, AudioProduced) and event.pcm and not first:
            first = time.monotonic()
        if isinstance(event, UtteranceFailed):
            raise ConfigError(f"it fails: {event.message}")
        if isinstance(event, UtteranceFinished) and event.utterance_id == number:
            if not first or event.stats.audio_s <= 0:
                raise ConfigError("it ran and there was no sound")
            return first, event.stats.audio_s


# --- the machine ---------------------------------------------------------------------------------


def _system() -> Iterator[Check]:
    python = f"{platform.python_version()} ({sys.executable})"
    yield Check("Python", "ok", python)
    libc = " ".join(platform.libc_ver()).strip()
    yield Check("system", "ok", f"{platform.system()} {platform.machine()} {libc}".strip())
    yield Check("CPU", "ok", f"{_cpu_count()} usable of {os.cpu_count()}, {_cpu_name()}")


def _cpu_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _packages() -> Iterator[Check]:
    """The packages rtts was installed with."""
    try:
        required = importlib.metadata.requires("rtts") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("packages", "problem", "rtts is not installed", "pip install .")
        return
    versions, missing = [], []
    for requirement in required:
        name = re.match(r"[\w.-]+", requirement)
        if name is None or "extra ==" in requirement:
            continue
        version = version_of(name[0])
        if version:
            versions.append(f"{name[0]} {version}")
        elif ";" not in requirement:  # with a marker it may not be meant for this platform
            missing.append(requirement)
    yield Check("rtts", "ok", importlib.metadata.version("rtts"))
    for package in versions:
        yield Check(f"  {package.partition(' ')[0]}", "ok", package.partition(" ")[2])
    for requirement in missing:
        yield Check(f"  {requirement}", "problem", "missing", f"pip install '{requirement}'")


def _libopus(settings: Settings) -> Check:
    from rtts.audio import opus

    path = settings.audio.opus_library
    try:
        library = opus.load_library(str(path) if path else None)
    except ConfigError as error:
        return Check("libopus", "problem", "none: WAV and PCM only", error.message)
    version = library.version.removesuffix(" unknown")  # some builds do not know their own
    return Check("libopus", "ok", f"{version} of {library.source}: {library.path}")


def _lame() -> Check:
    from rtts.audio.mp3 import mp3_available

    if mp3_available():
        return Check("LAME", "ok", "MP3 for clients of other services")
    why = "no MP3: clients of other services have to ask for another format"
    return Check("LAME", "missing", why, "pip install lameenc")


# --- engines -------------------------------------------------------------------------------------


def _engines(settings: Settings) -> Iterator[Check]:
    from rtts.engine.cpu.catalogue import kokoro_status

    has_kokoro, what_is_missing = kokoro_status()
    found = "Kokoro's 8 English and 8 Chinese" if has_kokoro else "only the embedded one"
    yield Check("cpu engine's voices", "ok" if has_kokoro else "missing", found, what_is_missing)
    gpu = _gpu()
    yield gpu
    from rtts.cli.qwen_checks import qwen_checks

    yield from qwen_checks(settings, has_gpu=gpu.status == "ok")


def _gpu() -> Check:
    """NVIDIA GPUs, as the driver's own tool sees them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("GPU", "missing", "no NVIDIA driver; the CPU voice needs none")
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("GPU", "missing", f"nvidia-smi does not answer: {error}")
    if run.returncode != 0:
        return Check("GPU", "missing", f"nvidia-smi: {run.stdout.strip() or run.stderr.strip()}")
    return Check("GPU", "ok", "; ".join(run.stdout.strip().splitlines()))


# --- sound, sockets ------------------------------------------------------------------------------


def _sound() -> Check:
    player = playback.find_player()
    if player:
        return Check("sound", "ok", f"plays with {player}")
    if playback.has_sound_device():
        return Check("sound", "missing", "a sound device, but no player", playback.HOW_TO_PLAY)
    return Check("sound", "missing", "no sound device; `rtts say` writes files")


def _address(settings: Settings) -> Check:
    """Whether the server's port is free, or a server already answers there."""
    from rtts.cli.servers import answering_server

    options = settings.server
    if options.unix_socket is not None:
        return Check("address", "ok", f"unix socket {options.unix_socket}")
    name = f"port {options.port}"
    version = answering_server(options.host, options.port)
    if version is not None:
        return Check(name, "ok", f"an rtts server answers on {options.host} ({version})")
    try:
        family, *_, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        remedy = "stop what listens there, or: rtts serve --port 0"
        return Check(name, "problem", f"not free on {options.host}: {error.strerror}", remedy)
    return Check(name, "ok", f"free on {options.host}")


def _open_files(settings: Settings) -> Iterator[Check]:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.server.max_sessions + _SPARE_FILES
    if limit != resource.RLIM_INFINITY and limit < wanted:
        yield Check(
            "open files",
            "problem",
            f"limit {limit}, and server.max_sessions is {settings.server.max_sessions}",
            f"ulimit -n {wanted}, or set server.max_sessions lower",
        )
    else:
        yield Check("open files", "ok", f"limit {limit}")
