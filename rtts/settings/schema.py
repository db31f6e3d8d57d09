"""Which settings exist: read off the parts' own frozen options, never written down twice.

A setting is a field of an options dataclass. Its key is the path of field names from `Settings`
(`session.budget_s`), its environment variable the same path in capitals behind `RTTS_`
(`RTTS_SESSION_BUDGET_S`), its unit the suffix of its name, and its sentence the entry under
`Attributes:` in the docstring of its dataclass. This module knows nothing about files, the
environment or which settings there are.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass

ENV_PREFIX = "RTTS_"

# Longest suffix first: `_per_s` is a rate, not a number of seconds.
UNITS = {
    "_per_s": "per second",
    "_bytes": "bytes",
    "_chars": "characters",
    "_samples": "samples",
    "_bitrate": "bits per second",
    "_hz": "Hz",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_dbfs": "dB full scale",
    "_db": "dB",
}

_ATTRIBUTE = re.compile(r"(\w+)(?: \([^)]*\))?: (.+)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        key: Dotted path, as in the file: "session.budget_s".
        type: The field's type, resolved.
        default: The value nobody has to set.
        sentence: What it does and when to change it.
        is_secret: Its value is never shown.
    """

    key: str
    type: object
    default: object
    sentence: str
    is_secret: bool

    @property
    def env(self) -> str:
        """Its environment variable."""
        return ENV_PREFIX + self.key.replace(".", "_").upper()

    @property
    def unit(self) -> str:
        """The unit its name carries, or ""."""
        name = "_" + self.key.rpartition(".")[2]
        return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def settings_of(options: type, prefix: str = "") -> dict[str, Setting]:
    """Every setting of an options dataclass and of those nested in it, in order, by key."""
    found: dict[str, Setting] = {}
    hints = typing.get_type_hints(options)
    sentences = _sentences(options)
    for field in dataclasses.fields(options):
        key = prefix + field.name
        hint = hints[field.name]
        if is_options(hint):
            found |= settings_of(hint, key + ".")
        else:
            found[key] = Setting(
                key=key,
                type=hint,
                default=_default(options, field),
                sentence=sentences.get(field.name, ""),
                is_secret=_is_secret(field),
            )
    return found


def is_options(hint: object) -> typing.TypeGuard[type]:
    """Whether a field's type is itself a group of settings."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def summary_of(options: type, group: str) -> str:
    """The first sentence about a group of settings: its dataclass's docstring, first paragraph."""
    hint = typing.get_type_hints(options)[group]
    summary = (hint.__doc__ or "").partition("\n\n")[0]
    return " ".join(summary.split())


def _default(options: type, field: dataclasses.Field[object]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{options.__name__}.{field.name} is a setting and needs a default")


def _is_secret(field: dataclasses.Field[object]) -> bool:
    return bool(field.metadata.get("secret")) or field.name.endswith(("api_key", "api_keys"))


def _sentences(options: type) -> dict[str, str]:
    """The entries under `Attributes:` of a Google-style docstring, each on one line."""
    _, _, section = (options.__doc__ or "").partition("Attributes:\n")
    sentences: dict[str, str] = {}
    indent, name = None, ""
    for line in section.splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text:
            continue
        indent = depth if indent is None else indent
        if depth < indent:
            break
        match = _ATTRIBUTE.fullmatch(text) if depth == indent else None
        if match:
            name = match[1]
            sentences[name] = match[2]
        elif name:
            sentences[name] += " " + text
    return sentences
