"""Showing settings: the resolved file with origins and a fingerprint, and the table of the docs."""

from __future__ import annotations

import enum
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rtts.settings import values
from rtts.settings.schema import Setting
from rtts.settings.sources import Given


def toml(settings: Mapping[str, Setting], given: Mapping[str, Given], *, origins: bool) -> str:
    """The resolved settings as TOML that `--config` takes back (but for hidden secrets).

    Args:
        settings: Every setting, by key.
        given: What was given; everything else has its default.
        origins: Say behind each value where it comes from, and at the end the fingerprint.
    """
    blocks = []
    for group, members in itertools.groupby(settings.values(), lambda s: s.key.rpartition(".")[0]):
        lines = [f"[{group}]", *(_line(setting, given, origins) for setting in members)]
        blocks.append("\n".join(lines) + "\n")
    text = "\n".join(blocks)
    return text + f"\n# SHA-256 {fingerprint(settings, given)}\n" if origins else text


def fingerprint(settings: Mapping[str, Setting], given: Mapping[str, Given]) -> str:
    """SHA-256 of the resolved TOML without comments; secrets are hidden before it is taken."""
    return hashlib.sha256(toml(settings, given, origins=False).encode()).hexdigest()


def as_data(settings: Mapping[str, Setting], given: Mapping[str, Given]) -> dict[str, object]:
    """The resolved settings for `--json`: value and origin of each."""
    return {
        key: {"value": _shown(setting, given), "origin": _origin(setting, given)}
        for key, setting in settings.items()
    }


def table(settings: Iterable[Setting]) -> str:
    """A Markdown table of settings: key, type and unit, default, sentence."""
    rows = ["| setting | takes | default | what it does |", "|---|---|---|---|"]
    for setting in settings:
        default = "" if setting.default in (None, "", (), {}) else f"`{_literal(setting.default)}`"
        sentence = setting.sentence.replace("|", "\\|")
        takes = values.expectation(setting)
        rows.append(f"| `{setting.key}` | {takes} | {default} | {sentence} |")
    return "\n".join(rows) + "\n"


def _line(setting: Setting, given: Mapping[str, Given], origins: bool) -> str:
    value = _shown(setting, given)
    name = setting.key.rpartition(".")[2]
    line = f"{name} = {_literal(value)}" if value is not None else f"# {name} is not set"
    return f"{line}  # {_origin(setting, given)}" if origins and value is not None else line


def _shown(setting: Setting, given: Mapping[str, Given]) -> object:
    value = given[setting.key].value if setting.key in given else setting.default
    if setting.is_secret and value:
        hidden = values.REDACTED
        return [hidden] * len(value) if isinstance(value, tuple) else hidden
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _origin(setting: Setting, given: Mapping[str, Given]) -> str:
    return given[setting.key].origin if setting.key in given else "default"


def _literal(value: object) -> str:
    value = _plain(value)
    if isinstance(value, dict):
        pairs = (f"{_literal(name)} = {_literal(each)}" for name, each in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    # A TOML basic string and a JSON string have the same escapes; JSON leaves DEL as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
