"""Every setting of rtts, composed from each part's own options.

A part defines its options as a frozen dataclass beside its code and never imports this package;
here they are put together, filled once (defaults, then the profile, then `rtts.toml`, then `RTTS_*`,
then flags) and handed down as values. Nothing else in rtts reads the environment. This package knows nothing about
what the parts do with their options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from rtts.engine.cpu.options import CpuOptions
from rtts.engine.qwen.options import QwenOptions
from rtts.engine.tone.options import ToneOptions
from rtts.errors import ConfigError
from rtts.server.options import ServerOptions
from rtts.session.options import SessionOptions
from rtts.settings import profiles, render, sources
from rtts.settings.schema import Setting, is_options, settings_of
from rtts.settings.sources import Given
from rtts.voices.aliases import AliasOptions
from rtts.voices.options import VoiceOptions

_Options = TypeVar("_Options")
_KEY = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which engine speaks, and where it runs.

    Attributes:
        kind: `cpu` is the embedded voice; `qwen` is Qwen3-TTS and needs `qwen.model`; `tone` is a
            test signal that costs nothing.
        host: `local` runs it on threads of the server; `remote` in processes that are started
            again when they die. `auto` is `remote` for `qwen`, and for `cpu` where there is more
            than one core: on two cores the embedded voice then speaks to 100 listeners without a
            gap, and on a thread beside the encoder to about 60.
        profile: A named set of other settings, all of which file, environment and flags may still
            change: `balanced` is the built-in values, `realtime` the earliest sound, `quality` the
            best, `throughput` the most speech an hour.
        workers: Engines that share the utterances, each on its own thread or process; for `qwen`, on
            each device of `qwen.device`. An utterance goes where the least audio is owed.
        max_backlog_s: New contexts are refused while the first audio would have to wait longer.
    """

    kind: Literal["cpu", "qwen", "tone"] = "cpu"
    host: Literal["auto", "local", "remote"] = "auto"
    profile: Literal["balanced", "realtime", "quality", "throughput"] = "balanced"
    workers: int = 1
    max_backlog_s: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 64:
            raise ConfigError(f"engine.workers: {self.workers} is not in 1 to 64")


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioOptions:
    """What audio encoding needs of this machine.

    Attributes:
        opus_library: Path of the libopus to load; empty takes the one that was installed with
            rtts, else the system's.
    """

    opus_library: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What `rtts serve` logs, to standard error.

    Attributes:
        level: Least important level that is logged. At `info` there is one line for each context
            that ended; `debug` traces connections, never what is said on them.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Which server the commands that speak use.

    Attributes:
        server: URL of a server for `rtts say` and `rtts voices`; empty takes one on this machine's
            default port if it answers, else runs the engine in the command itself.
        api_key: Key to show to that server.
    """

    server: str = ""
    api_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    server: ServerOptions = field(default_factory=ServerOptions)
    session: SessionOptions = field(default_factory=SessionOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    cpu: CpuOptions = field(default_factory=CpuOptions)
    qwen: QwenOptions = field(default_factory=QwenOptions)
    tone: ToneOptions = field(default_factory=ToneOptions)
    audio: AudioOptions = field(default_factory=AudioOptions)
    aliases: AliasOptions = field(default_factory=AliasOptions)
    voices: VoiceOptions = field(default_factory=VoiceOptions)
    log: LogOptions = field(default_factory=LogOptions)
    client: ClientOptions = field(default_factory=ClientOptions)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, and where each of them came from.

    Attributes:
        file: The settings file that was read, if any.
        given: What was given, by key; everything else has its default.
    """

    settings: Settings
    file: Path | None
    given: Mapping[str, Given]

    def as_toml(self) -> str:
        """An `rtts.toml` with every setting, its origin as a comment, and the fingerprint."""
        return render.toml(all_settings(), self.given, origins=True)

    def as_data(self) -> dict[str, object]:
        """Value and origin of every setting."""
        return render.as_data(all_settings(), self.given)

    def fingerprint(self) -> str:
        """SHA-256 of the resolved settings, to tell whether two servers are set alike."""
        return render.fingerprint(all_settings(), self.given)


def all_settings() -> dict[str, Setting]:
    """Every setting, by key."""
    return settings_of(Settings)


def data_dir(env: Mapping[str, str] | None = None, home: Path | None = None) -> Path:
    """Where a user's data of rtts belongs (XDG Base Directory Specification)."""
    env = os.environ if env is None else env
    return Path(env.get("XDG_DATA_HOME") or (home or _home()) / ".local/share") / "rtts"


def _home() -> Path:
    """The user's home; / where there is none, as for the made-up user ids of containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def load(
    *,
    config: Path | None = None,
    flags: Iterable[tuple[str, str, str]] = (),
    profile: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    home: Path | None = None,
) -> Resolved:
    """Resolve the settings: defaults < profile < file < environment < flags.

    Args:
        config: The file to read, instead of `RTTS_CONFIG`, `./rtts.toml`, `~/.config/rtts/rtts.toml`.
        flags: (flag as written, key, text) of each, in order.
        profile: The profile to use where nobody names one; by default that of the defaults.
        env: The environment; by default the process's.
        cwd: Where to look first; by default the current directory.
        home: Where to look next; by default the user's home directory.

    Raises:
        ConfigError: Something is wrong; one line that names the setting, the place and the remedy.
    """
    env = os.environ if env is None else env
    known = all_settings()
    file = sources.find_file(config, env, cwd or Path.cwd(), home or _home())
    given: dict[str, Given] = {}
    given |= sources.from_file(file, known) if file else {}
    given |= sources.from_env(env, known)
    given |= sources.from_flags(flags, known)
    if profile is not None and profiles.KEY not in given:
        given[profiles.KEY] = Given(profile, "this command")
    if profiles.KEY in given:
        given = profiles.given_by(str(given[profiles.KEY].value), known) | given
    values = {key: one.value for key, one in given.items()}
    try:
        settings = _build(Settings, values)
    except ConfigError as error:
        raise ConfigError(_with_origin(error.message, given)) from error
    return Resolved(settings, file, given)


def _build(options: type[_Options], values: Mapping[str, object], prefix: str = "") -> _Options:
    """Fill an options dataclass, and those nested in it."""
    hints = get_type_hints(options)
    arguments: dict[str, Any] = {}
    for name, hint in hints.items():
        if is_options(hint):
            arguments[name] = _build(hint, values, f"{prefix}{name}.")
        elif prefix + name in values:
            arguments[name] = values[prefix + name]
    return options(**arguments)


def _with_origin(message: str, given: Mapping[str, Given]) -> str:
    """Put a place in front of a part's own complaint: that of the first key it mentions."""
    for key in _KEY.findall(message):
        if key in given:
            return f"{given[key].origin}: {message}"
    return message
