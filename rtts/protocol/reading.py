"""Reading the JSON of clients: any legal object, typed, with complaints that name the field.

Shared by the dialects. Knows no message and no protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from rtts.errors import BadRequestError, MalformedJsonError

_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_PATH = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


def decode(data: str | bytes, message_type: type[_StructT]) -> _StructT:
    """Decode one JSON object into `message_type`; fields it does not have are ignored.

    Raises:
        MalformedJsonError: Not JSON, not an object, nested too deep, NaN or Infinity.
        BadRequestError: A field is missing, of the wrong type, or out of range.
    """
    try:
        return msgspec.json.decode(data, type=message_type)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return convert(load_object(data), message_type)


def convert(fields: dict[str, Any], message_type: type[_StructT]) -> _StructT:
    """The same from what `load_object` read.

    Raises:
        BadRequestError: As `decode`.
    """
    try:
        return msgspec.convert(fields, message_type)
    except msgspec.ValidationError as error:
        path, complaint = explain(message_type, str(error))
        raise BadRequestError(f"{path}: {complaint}" if path else complaint) from None


def text_field(data: str | bytes, name: str) -> str | None:
    """A field of an object that is no message otherwise: to say whose fault it is.

    Raises:
        MalformedJsonError: As `decode`.
    """
    value = load_object(data).get(name)
    return value if isinstance(value, str) else None


def encode(message: Any) -> str:
    """Anything msgspec encodes, as JSON text; a lone surrogate of a client's text as an escape."""
    try:
        return _ENCODER.encode(message).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":"))


_ENCODER = msgspec.json.Encoder()


def load_object(data: str | bytes) -> dict[str, Any]:
    """Parse any legal JSON object, lone surrogate escapes included, in time linear in its size."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        text.encode("utf-8")  # a str that no UTF-8 message could have carried
        fields = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise MalformedJsonError("nested too deep") from None
    except ValueError as error:
        raise MalformedJsonError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MalformedJsonError("a message is a JSON object")
    return fields


def _refuse_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{literal[:32]} is out of range")
    return value


def explain(message_type: type, complaint: str) -> tuple[str, str]:
    """Msgspec's complaint as (path of the field or "", what is wrong with it)."""
    match = _PATH.match(complaint)
    what, path = (match["what"], match["path"]) if match else (complaint, None)
    what = what.removeprefix("Object ").replace("`", "").replace(" | null", " or null")
    what = what[:1].lower() + what[1:]
    if path and what.startswith("invalid enum value"):
        what = f"{what}; allowed are {', '.join(_choices(message_type, path.split('.')))}"
    return path or "", what


def _choices(of: Any, path: Sequence[str]) -> list[str]:
    """What a literal field allows, found by walking the types along `path`."""
    info = of if isinstance(of, msgspec.inspect.Type) else msgspec.inspect.type_info(of)
    if isinstance(info, msgspec.inspect.UnionType):
        return [choice for part in info.types for choice in _choices(part, path)]
    if isinstance(info, msgspec.inspect.StructType) and path:
        return [
            choice
            for field in info.fields
            if field.encode_name == path[0]
            for choice in _choices(field.type, path[1:])
        ]
    if isinstance(info, msgspec.inspect.LiteralType) and not path:
        return [str(value) for value in info.values]
    return []
