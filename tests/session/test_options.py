from __future__ import annotations

import dataclasses

import pytest

from rtts.errors import ConfigError
from rtts.session.options import _RANGES, SessionOptions


def test_every_number_has_a_range() -> None:
    """No number can be set to what a conversation cannot work with."""
    fields = dataclasses.fields(SessionOptions)
    numbers = {each.name for each in fields if type(each.default) in (int, float)}
    assert set(_RANGES) == numbers


@pytest.mark.parametrize("name", sorted(_RANGES))
def test_range(name: str) -> None:
    """The bounds themselves are accepted, and what lies beyond is refused by name."""
    low, high = _RANGES[name]
    for value in (low, min(high, 1e9)):
        SessionOptions(**{name: value})
    for value in (low - 1, high * 2 + 1, float("nan")):
        if value == float("inf"):
            continue
        with pytest.raises(ConfigError, match=rf"^session\.{name}: "):
            SessionOptions(**{name: value})
