"""Turning what a file, the environment or a flag says into a typed value, or into one clear line.

A TOML value already has a type, so it is checked and never converted; text (environment, flags) is
parsed. This module knows nothing about which settings there are or where a value came from.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from rtts.settings.schema import Setting

# What stands for a secret in `rtts config`. Copied back it must not become one.
REDACTED = "(hidden)"

_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def from_toml(setting: Setting, value: object) -> object:
    """Check a TOML value.

    Raises:
        ValueError: The value does not fit; the message says what would.
    """
    return _checked(setting, _typed(setting.type, value), value)


def from_text(setting: Setting, text: str) -> object:
    """Parse the text of an environment variable or a flag. Empty text unsets an optional setting.

    Raises:
        ValueError: The text does not fit; the message says what would.
    """
    return _checked(setting, _parsed(setting.type, text.strip()), text)


def expectation(setting: Setting) -> str:
    """What a setting takes, in words: "a number of seconds, 0 or more"."""
    words = " or ".join(_words(member) for member in _members(setting.type))
    if setting.unit and _is_number(setting):
        words += f" ({setting.unit})"
    return words + (", 0 or more" if _is_amount(setting) else "")


class _Nothing(enum.Enum):
    NOTHING = "no value of the type"


_NOTHING = _Nothing.NOTHING


def _checked(setting: Setting, value: object, raw: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        value = _NOTHING
    if _is_amount(setting) and isinstance(value, int | float) and value < 0:
        value = _NOTHING
    if setting.is_secret and (value == REDACTED or (type(value) is tuple and REDACTED in value)):
        raise ValueError(f"{setting.key} is hidden where this was copied from; put the key itself")
    if value is _NOTHING:
        shown = "the value it has" if setting.is_secret else _quoted(raw)
        raise ValueError(f"{setting.key} must be {expectation(setting)}, not {shown}")
    return value


def _quoted(raw: object) -> str:
    text = repr(raw) if not isinstance(raw, bool) else str(raw).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _is_amount(setting: Setting) -> bool:
    """A number with a unit, or a most, counts something: it is not negative (dB may be)."""
    if not _is_number(setting) or setting.unit.startswith("dB"):
        return False
    return bool(setting.unit) or setting.key.rpartition(".")[2].startswith("max_")


def _is_number(setting: Setting) -> bool:
    return any(member in (int, float) for member in _members(setting.type))


def _members(hint: object) -> tuple[object, ...]:
    """`T` and `U` of `T | U | None`, else the type itself."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(arg for arg in typing.get_args(hint) if arg is not type(None))
    return (hint,)


def _is_optional(hint: object) -> bool:
    return type(None) in typing.get_args(hint)


def _is_table(hint: object) -> bool:
    return typing.get_origin(hint) is Mapping


def _choices(hint: object) -> dict[str, object] | None:
    if typing.get_origin(hint) is typing.Literal:
        return {str(choice): choice for choice in typing.get_args(hint)}
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return {member.value: member for member in hint}
    return None


def _words(hint: object) -> str:
    choices = _choices(hint)
    if choices is not None:
        return "one of " + ", ".join(f'"{choice}"' for choice in choices)
    if typing.get_origin(hint) is tuple:
        return "a list, each " + _words(typing.get_args(hint)[0])
    if _is_table(hint):
        return "a table of strings (as text: name=value, ...)"
    names = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return names.get(typing.cast(type, hint), "a string")


def _typed(hint: object, value: object) -> object:
    typed = (_typed_member(member, value) for member in _members(hint))
    return next((each for each in typed if each is not _NOTHING), _NOTHING)


def _typed_member(inner: object, value: object) -> object:
    choices = _choices(inner)
    if choices is not None:
        return choices.get(value, _NOTHING) if isinstance(value, str) else _NOTHING
    if typing.get_origin(inner) is tuple:
        return _list(inner, value)
    if _is_table(inner):
        is_strings = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        return value if is_strings else _NOTHING
    if inner is Path:
        return _path(value) if isinstance(value, str) else _NOTHING
    if inner is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # `type() is` and not isinstance: True is an int to Python, but not to a reader of the file.
    return value if type(value) is inner else _NOTHING


def _path(text: str) -> object:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~somebody, and there is no such user
        return _NOTHING


def _list(hint: object, value: object) -> object:
    if not isinstance(value, list):
        return _NOTHING
    items = tuple(_typed(typing.get_args(hint)[0], item) for item in value)
    return _NOTHING if _NOTHING in items else items


def _parsed(hint: object, text: str) -> object:
    if not text and _is_optional(hint):
        return None
    parsed = (_parsed_member(member, text) for member in _members(hint))
    return next((each for each in parsed if each is not _NOTHING), _NOTHING)


def _parsed_member(inner: object, text: str) -> object:
    if typing.get_origin(inner) is tuple:
        if text.startswith("["):  # as in the file; here it would be part of the first item
            return _NOTHING
        item = typing.get_args(inner)[0]
        items = tuple(_parsed(item, part.strip()) for part in text.split(",") if part.strip())
        return _NOTHING if _NOTHING in items else items
    if _is_table(inner):
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        table = {name.strip(): value.strip() for name, _, value in pairs}
        return table if all(sign for _, sign, _ in pairs) and all(table) else _NOTHING
    if inner is bool:
        return _WORDS.get(text.lower(), _NOTHING)
    if inner in (int, float):
        try:
            return int(text) if inner is int else float(text)
        except ValueError:
            return _NOTHING
    return _typed(inner, text)
