"""Where settings come from: one file, the `RTTS_*` environment, flags; later ones win.

Everything is read once, at start. A key nobody knows is an error that names it, says where it
stands and what was probably meant; so is a value of the wrong type. This module knows nothing
about what any setting does.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rtts.errors import ConfigError
from rtts.settings import values
from rtts.settings.schema import ENV_PREFIX, Setting

FILE_NAME = "rtts.toml"
# Names the file itself, so it cannot be a setting in it.
ENV_FILE = ENV_PREFIX + "CONFIG"
# What Kubernetes puts into every pod of a namespace that has a service whose name starts with
# "rtts" (docs: "Accessing the Service", environment variables).
_KUBERNETES_SUFFIXES = (
    "_SERVICE_HOST",
    "_SERVICE_PORT",
    "_TCP",
    "_TCP_ADDR",
    "_TCP_PORT",
    "_PROTO",
)


@dataclass(frozen=True, slots=True)
class Given:
    """One value somebody gave.

    Attributes:
        value: Of the setting's type.
        origin: Where, for a reader: "rtts.toml:7", "RTTS_SERVER_PORT", "--port".
    """

    value: object
    origin: str


def find_file(named: Path | None, env: Mapping[str, str], cwd: Path, home: Path) -> Path | None:
    """The settings file: the one named by flag or `RTTS_CONFIG`, else the first of the usual two.

    Raises:
        ConfigError: A file was named and is not there.
    """
    wanted = named or (Path(env[ENV_FILE]) if env.get(ENV_FILE) else None)
    if wanted is not None:
        if not os.path.isfile(wanted):
            by = "--config" if named else ENV_FILE
            raise ConfigError(f"{by}: there is no file {wanted}")
        return wanted
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    usual = (cwd / FILE_NAME, config_home / "rtts" / FILE_NAME)
    # Not Path.is_file, which fails in the home of another user (`sudo -u`, `su` without a dash).
    return next((path for path in usual if os.path.isfile(path)), None)


def from_file(path: Path, settings: Mapping[str, Setting]) -> dict[str, Given]:
    """Read a TOML file.

    Raises:
        ConfigError: Not readable, not TOML, a key that does not exist, a value that does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    given: dict[str, Given] = {}
    groups = _groups(settings)
    for key, value in _leaves(tree, groups):
        origin = f"{path}:{_line_of(key, text)}"
        setting = settings.get(key)
        if setting is None:
            raise ConfigError(f"{origin}: {_unknown(key, settings, groups)}")
        try:
            given[key] = Given(values.from_toml(setting, value), origin)
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from error
    return given


def from_env(env: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Given]:
    """Read the environment's `RTTS_*` variables.

    Raises:
        ConfigError: A variable that stands for no setting, a value that does not fit.
    """
    by_name = {setting.env: setting for setting in settings.values()}
    given: dict[str, Given] = {}
    for name, text in env.items():
        if not name.startswith(ENV_PREFIX) or name == ENV_FILE:
            continue
        setting = by_name.get(name)
        if setting is None:
            raise ConfigError(_unknown_variable(name, by_name))
        try:
            given[setting.key] = Given(values.from_text(setting, text), name)
        except ValueError as error:
            hint = _kubernetes_hint(name, text)
            raise ConfigError(f"{name}: {error}{hint}") from error
    return given


def from_flags(
    flags: Iterable[tuple[str, str, str]], settings: Mapping[str, Setting]
) -> dict[str, Given]:
    """Read flags.

    Args:
        flags: (flag as the user wrote it, key, text); a later one wins.
        settings: Every setting, by key.

    Raises:
        ConfigError: A key that does not exist, a value that does not fit.
    """
    given: dict[str, Given] = {}
    for flag, key, text in flags:
        setting = settings.get(key)
        if setting is None:
            raise ConfigError(f"{flag}: {_unknown(key, settings, _groups(settings))}")
        try:
            given[key] = Given(values.from_text(setting, text), flag)
        except ValueError as error:
            raise ConfigError(f"{flag}: {error}") from error
    return given


# --- finding and naming keys ---------------------------------------------------------------------


def _groups(settings: Mapping[str, Setting]) -> set[str]:
    """Every table name: "server", "engine", "engine.cpu"."""
    groups: set[str] = set()
    for key in settings:
        parts = key.split(".")[:-1]
        groups.update(".".join(parts[: n + 1]) for n in range(len(parts)))
    return groups


def _leaves(
    table: Mapping[str, object], groups: set[str], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    """Every (dotted key, value); tables that are no group of settings are values themselves."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key in groups:
            yield from _leaves(value, groups, key + ".")
        else:
            yield key, value


def _line_of(key: str, text: str) -> int:
    """The line a key's value begins on: the first after which the file, cut there, has the key."""
    lines = text.split("\n")
    start = 1
    for count in range(1, len(lines) + 1):
        try:
            node: object = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # inside a value of several lines
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        if node is not None:
            return start
        start = count + 1
    return start


def _unknown(key: str, settings: Mapping[str, Setting], groups: set[str]) -> str:
    if key in groups:
        return f"{key} is a group of settings, not a value: write [{key}]"
    return f'there is no setting "{key}"{_did_you_mean(key, (*settings, *groups))}'


def _unknown_variable(name: str, by_name: Mapping[str, Setting]) -> str:
    meant = _did_you_mean(name, by_name)
    return f"{name}: there is no such setting{meant}{_kubernetes_hint(name, '')}"


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    # "port" for "server.port": the right name without its group.
    tail = word.rpartition(".")[2]
    close = close or [key for key in known if key.rpartition(".")[2] == tail]
    return f'; did you mean "{close[0]}"?' if close else ""


def _kubernetes_hint(name: str, text: str) -> str:
    if text.startswith("tcp://") or name.endswith(_KUBERNETES_SUFFIXES):
        return (
            ". Kubernetes sets this for a service of that name:"
            " put `enableServiceLinks: false` into the pod's spec"
        )
    return ""
