"""Hypothesis strategies for messages, derived from their types, so that none can be forgotten."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from rtts.protocol import events

CLIENT_TYPES: tuple[type, ...] = get_args(events.AnyClientMessage)
SERVER_TYPES: tuple[type, ...] = get_args(events.AnyServerMessage)

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
U16, U32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)

# What types alone cannot say: identifiers, and ranges with a hole.
OVERRIDES: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("Start", "max_lead_ms"): st.none() | st.just(0) | st.integers(1000, 86_400_000),
    ("Start", "instructions"): st.none() | TEXTS,
    ("Start", "traceparent"): st.none()
    | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True),
    ("StatsRequest", "interval_ms"): st.none() | st.just(0) | st.integers(100, 86_400_000),
    ("Text", "text"): TEXTS,
    ("Audio", "stream"): U32,
    ("Audio", "seq"): U32,
    ("Audio", "segment"): U32,
    ("Audio", "pts"): U32,
    ("Audio", "flags"): st.integers(0, 63),
    ("Audio", "npackets"): U16,
    ("Audio", "duration_ms"): U16,
}


def of_type(info: inspect.Type) -> st.SearchStrategy[Any]:
    """A strategy for one msgspec type."""
    match info:
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            low = -(2**53) if info.ge is None else info.ge
            return st.integers(low, 2**53 if info.le is None else info.le)
        case inspect.FloatType():
            low = info.gt if info.ge is None else info.ge
            return st.floats(
                low, info.le, exclude_min=info.gt is not None, allow_nan=False, allow_infinity=False
            )
        case inspect.StrType():
            return NAMES if info.min_length else NAMES | st.just("")
        case inspect.BytesType():
            return st.binary(max_size=64)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.UnionType():
            return st.one_of([of_type(part) for part in info.types])
        case inspect.ListType():
            return st.lists(of_type(info.item_type), max_size=4)
        case inspect.TupleType():
            return st.tuples(*(of_type(item) for item in info.item_types))
        case inspect.DictType():
            return st.dictionaries(of_type(info.key_type), of_type(info.value_type), max_size=4)
        case inspect.StructType():
            return of_struct(info.cls)
    raise TypeError(f"no strategy for {info}")


def of_struct(cls: type) -> st.SearchStrategy[Any]:
    """A strategy for one message type: every field, within what the wire allows."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    fields = {
        field.name: OVERRIDES.get((cls.__name__, field.name), of_type(field.type))
        for field in info.fields
    }
    built = st.builds(cls, **fields)
    if cls is events.Cancel:
        return built.filter(lambda message: message.ctx is not None or message.all)
    return built


CLIENT_MESSAGES = st.one_of([of_struct(cls) for cls in CLIENT_TYPES])
SERVER_MESSAGES = st.one_of([of_struct(cls) for cls in SERVER_TYPES])
AUDIO = of_struct(events.Audio)

#: JSON values of any shape.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def wire(message: msgspec.Struct) -> str:
    """A message as a client would write it."""
    return msgspec.json.encode(message).decode()
