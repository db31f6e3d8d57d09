"""Classes of characters, weights, and where graphemes end."""

from __future__ import annotations

import emoji
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.text.characters import is_unspaced, joins, prefix_of_weight, weight


@pytest.mark.parametrize(
    "cluster",
    ["e\u0301", "か\u3099", "\u1112\u1161\u11ab", "한\u11a8"[:1] + "\u11a8", "🇩🇪", "👋🏽", "👨\u200d👩\u200d👧", "1\ufe0f\u20e3", "\r\n", "ﾊﾞ", "\u1100\uac00"],
)  # fmt: skip
def test_graphemes_hold_together(cluster: str) -> None:
    """No place inside a grapheme is a boundary, both its ends are."""
    text = f"x{cluster}y"
    assert [i for i in range(len(text) + 1) if not joins(text, i)] == [
        0,
        1,
        len(text) - 1,
        len(text),
    ]


def test_emoji_sequences_hold_together() -> None:
    """Nor is one inside any emoji sequence there is."""
    for sequence in emoji.EMOJI_DATA:
        assert all(joins(sequence, index) for index in range(1, len(sequence))), sequence


def test_flags_pair_up() -> None:
    """Regional indicators are two a flag."""
    assert [joins("🇩🇪🇫🇷", index) for index in range(1, 4)] == [True, False, True]


@given(st.text(), st.text())
def test_weights_add_up(one: str, other: str) -> None:
    """A text weighs what its parts weigh, at least its length, at most 2.5 times that."""
    assert weight(one + other) == weight(one) + weight(other)
    assert len(one) <= weight(one) <= 2.5 * len(one)


@given(st.text(min_size=1), st.floats(1, 50))
def test_prefix_of_weight_is_the_longest(text: str, limit: float) -> None:
    """The prefix keeps to the limit and cannot be longer."""
    end = prefix_of_weight(text, 0, limit)
    assert weight(text[:end]) <= limit
    assert end == len(text) or weight(text[: end + 1]) > limit


def test_weights() -> None:
    """A Latin letter weighs 1, an ideograph, kana or hangul block 2.5, a line end 2."""
    assert [weight(text) for text in ("a", "字", "の", "한", "é", "。", "\n")] == [
        1,
        2.5,
        2.5,
        2.5,
        1,
        1,
        2,
    ]


def test_unspaced_scripts() -> None:
    """Chinese and Japanese have no spaces; Korean and Latin have."""
    assert [is_unspaced(character) for character in "字の、Ａa한 "] == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]
