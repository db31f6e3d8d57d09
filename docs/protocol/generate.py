"""Writes the tables of rtts-v1.md from the message types: `python docs/protocol/generate.py`.

Each table stands between `<!-- NAME -->` and `<!-- end -->`; everything else of the page is written
by hand. `--check` writes nothing and fails when the page is out of date, as does the test suite.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as types
from msgspec import NODEFAULT, Struct

from rtts import errors
from rtts.protocol import events
from rtts.protocol.audio_message import HEADER
from rtts.protocol.error_table import ERROR_TABLE

PAGE = Path(__file__).with_name("rtts-v1.md")
BLOCK = re.compile(r"<!-- (?!end -->)(\w+) -->\n.*?<!-- end -->", re.DOTALL)
UNITS = {
    "bitrate": "bit/s",
    "pre_skip": "samples at 48 kHz",
    "pts": "samples",
    "sample_rate": "Hz",
    "samples": "samples",
    "text_chars": "code points",
    "max_text_chars": "code points",
    "min_chars": "code points",
    "chars": "code points",
    "max_message_bytes": "bytes",
    "max_messages_per_s": "1/s",
}


def render(page: str) -> str:
    """The page with every table made anew."""
    return BLOCK.sub(lambda found: f"<!-- {found[1]} -->\n{table(found[1])}<!-- end -->", page)


def table(name: str) -> str:
    """The table of a message type, of the errors, of the header or of the flags."""
    special = {"errors": error_rows, "header": header_rows, "flags": flag_rows}
    rows = special[name]() if name in special else field_rows(getattr(events, name))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * lines[0].count(" | ") + "---|")
    return "\n".join(lines) + "\n"


def field_rows(cls: type[Struct]) -> Iterator[tuple[str, ...]]:
    """Header and rows of one message type."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    is_input = issubclass(cls, events.ClientMessage | events.Format | events.Chunking)
    meanings = attribute_meanings(cls)
    yield ("field", "type", "unit", "required, or default" if is_input else "sent", "meaning")
    fields = sorted(info.fields, key=lambda field: field.name == "id")
    for field in fields:
        yield (
            f"`{field.encode_name}`",
            type_words(field.type),
            unit(field.name),
            presence(field, is_input, info.cls.__struct_config__.omit_defaults),
            meanings[field.name],
        )


def attribute_meanings(cls: type) -> dict[str, str]:
    """The `Attributes:` sections of a class and its bases, one sentence string a name."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for entry in re.split(r"\n(?=    \w)", section):
            name, _, meaning = entry.strip().partition(": ")
            if meaning:
                found[name] = " ".join(meaning.split())
    return found


def unit(name: str) -> str:
    """The unit of a field, from its suffix where it has one."""
    return "ms" if name.endswith("_ms") else UNITS.get(name, "")


def presence(field: types.Field, is_input: bool, omits_defaults: bool) -> str:
    """Whether a field must or will be there, and what its absence means."""
    default: Any = field.default
    if default is NODEFAULT and field.default_factory is NODEFAULT:
        return "**required**" if is_input else "always"
    if default is NODEFAULT:
        default = field.default_factory()
    words = "" if default is None else f"`{json_words(default)}`"
    if is_input:
        return words or "–"
    if not omits_defaults:
        return "always"
    return f"absent: {words}" if words else "where it applies"


def type_words(info: types.Type) -> str:
    """A type as a client author would say it, with its range."""
    for kind, words in WORDS.items():
        if isinstance(info, kind):
            return words(info)
    raise TypeError(f"no words for {info}")


def union_words(info: types.UnionType) -> str:
    """The alternatives; null goes without saying where a field may be absent."""
    parts = [type_words(part) for part in info.types if not isinstance(part, types.NoneType)]
    return " or ".join(dict.fromkeys(parts))


def literal_words(info: types.LiteralType) -> str:
    """The values, in the order of the declaration where the type keeps it."""
    return " or ".join(f"`{json_words(value)}`" for value in info.values)


def struct_words(info: types.StructType) -> str:
    """A link to the section about a part."""
    name = info.cls.__name__
    return f"[{name}](#{name.lower()})"


def number_words(info: types.IntType | types.FloatType) -> str:
    """A number and its range."""
    word = "integer" if isinstance(info, types.IntType) else "number"
    low = info.gt if info.ge is None else info.ge
    if info.le is None:
        return word
    sign = "above " if info.gt is not None else ""
    return f"{word}, {sign}{limit(low or 0)} to {limit(info.le)}"


def limit(value: float) -> str:
    """A bound; large powers of two as such."""
    for power in (53, 63):
        if abs(value) in (2**power, 2**power - 1):
            return f"{'-' if value < 0 else ''}2^{power}{' - 1' if value == 2**power - 1 else ''}"
    return f"{value:,}".removesuffix(".0")


def string_words(info: types.StrType) -> str:
    """A string and its length range."""
    if info.max_length is None:
        return "string"
    return f"string, {info.min_length or 0} to {info.max_length} characters"


WORDS: dict[type, Callable[[Any], str]] = {
    types.UnionType: union_words,
    types.LiteralType: literal_words,
    types.StructType: struct_words,
    types.StrType: string_words,
    types.IntType: number_words,
    types.FloatType: number_words,
    types.ListType: lambda info: f"array of {type_words(info.item_type)}",
    types.TupleType: lambda info: f"[{', '.join(type_words(item) for item in info.item_types)}]",
    types.DictType: lambda info: f"object of {type_words(info.value_type)}",
    types.BytesType: lambda info: "base64 string",
    types.BoolType: lambda info: "boolean",
    types.NoneType: lambda info: "null",
}


def json_words(value: object) -> str:
    """A default as JSON."""
    return msgspec.json.encode(value).decode()


def error_rows() -> Iterator[tuple[str, ...]]:
    """The error table, with the meaning each class gives."""
    closes = {
        "never": "no",
        "always": "yes",
        "connection": "without `ctx`",
    }
    classes: dict[str, type[errors.RttsError]] = {}
    for cls in error_classes(errors.RttsError):
        word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
        if cls.code not in classes or word == cls.code:
            classes[cls.code] = cls
    yield ("code", "meaning", "fatal", "close code", "HTTP", "try again")
    for row in ERROR_TABLE:
        cls = classes[row.code]
        meaning = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        yield (
            f"`{row.code}`",
            meaning,
            closes[row.fatal],
            str(row.close),
            str(row.http),
            "yes" if cls.retryable else "no",
        )


def error_classes(cls: type[errors.RttsError]) -> Iterator[type[errors.RttsError]]:
    """The class and all its subclasses, parents first."""
    yield cls
    for sub in cls.__subclasses__():
        yield from error_classes(sub)


def header_rows() -> Iterator[tuple[str, ...]]:
    """The binary header, from its struct format."""
    names = {
        "version": "1",
        "kind": "1 is audio; ignore others",
        "flags": "see below",
        "stream": "number of the context, of `started`",
        "seq": "0, 1, 2, ... in the context",
        "segment": "the segment it belongs to",
        "pts": "position of the first sample, in samples of the format's rate, modulo 2^32",
        "npackets": "raw Opus packets in the payload; 0 for other formats",
        "duration_ms": "length, rounded",
    }
    codes = {"B": ("u8", 1), "H": ("u16", 2), "I": ("u32", 4)}
    offset = 0
    yield ("offset", "type", "field", "meaning")
    for code, (name, meaning) in zip(HEADER.format.lstrip("!"), names.items(), strict=True):
        type_name, size = codes[code]
        yield (str(offset), type_name, f"`{name}`", meaning)
        offset += size
    yield (str(offset), "bytes", "payload", "see [Payloads](#payloads)")


def flag_rows() -> Iterator[tuple[str, ...]]:
    """The flags of audio messages."""
    meanings = attribute_meanings(events.AudioFlags)
    yield ("value", "name", "meaning")
    for flag in events.AudioFlags:
        assert flag.name is not None
        yield (str(flag.value), f"`{flag.name}`", meanings[flag.name])


def main() -> None:
    """Rewrite the page, or with `--check` fail when that would change it."""
    page = PAGE.read_text(encoding="utf-8")
    made = render(page)
    if "--check" in sys.argv[1:]:
        raise SystemExit(made != page)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
