from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import inspect

from rtts.protocol import events
from tests.protocol.strategies import CLIENT_MESSAGES, CLIENT_TYPES, SERVER_MESSAGES, SERVER_TYPES


def concrete(base: type) -> set[type]:
    found = {sub for cls in base.__subclasses__() for sub in {cls, *concrete(cls)}}
    return {cls for cls in found if cls.__struct_config__.tag is not None}  # type: ignore[attr-defined]


def numbers(info: inspect.Type) -> list[inspect.IntType | inspect.FloatType]:
    match info:
        case inspect.IntType() | inspect.FloatType():
            return [info]
        case inspect.UnionType():
            return [number for part in info.types for number in numbers(part)]
        case inspect.DictType():
            return numbers(info.value_type)
        case inspect.StructType():
            return [number for field in info.fields for number in numbers(field.type)]
    return []


def test_no_message_is_missing_from_its_union() -> None:
    """Every message class can be decoded: it is a member of the union of its direction."""
    assert concrete(events.ClientMessage) == set(CLIENT_TYPES)
    assert concrete(events.ServerMessage) == set(SERVER_TYPES)


def test_tags_are_unique_in_each_direction() -> None:
    """A type word means one message."""
    for types in (CLIENT_TYPES, SERVER_TYPES):
        tags = [cls.__struct_config__.tag for cls in types]  # type: ignore[attr-defined]
        assert len(set(tags)) == len(tags)


@given(CLIENT_MESSAGES | SERVER_MESSAGES)
def test_messages_cannot_be_changed(message: Any) -> None:
    """Messages cross from owner to owner, so they are immutable."""
    name = message.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(message, name, None)


@pytest.mark.parametrize("cls", CLIENT_TYPES)
def test_every_number_a_client_sends_has_bounds(cls: type) -> None:
    """No arithmetic on a client's number can overflow; an echoed one is never computed with."""
    if cls is not events.Ping:
        for number in numbers(inspect.type_info(cls)):
            assert number.le is not None
            assert number.ge is not None or number.gt is not None


@pytest.mark.parametrize("cls", CLIENT_TYPES)
def test_a_client_message_needs_little(cls: type) -> None:
    """Only the context, the text and a token are ever required of a client."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    required = {field.name for field in info.fields if field.required}
    assert required <= {"ctx", "text", "token"}


def test_defaults_are_not_sent() -> None:
    """A message is as short as it can be."""
    sent = json.loads(msgspec.json.encode(events.Text(ctx="a", text="hi")))
    assert sent == {"type": "text", "ctx": "a", "text": "hi"}


@pytest.mark.parametrize("cls", [*CLIENT_TYPES, *SERVER_TYPES])
def test_every_message_is_documented(cls: type) -> None:
    """The protocol page is made from the docstrings."""
    assert cls.__doc__
