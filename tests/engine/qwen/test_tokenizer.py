"""Text to ids: control tokens inert, arriving text the same as whole text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.tokenizer import StableText, TextTokenizer, load_tokenizer
from rtts.errors import ConfigError
from tests.engine.qwen.tiny import SPECIALS

AWKWARD = st.text(
    alphabet=st.sampled_from(
        list("ab'sre ltve1.!?-\n\r\t\u00a0é你e\u0301\u0327한\u1100\u1161<|>_")
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Callable[[str, int], Path]) -> TextTokenizer:
    return load_tokenizer(checkpoint("custom_voice", 0))


@settings(max_examples=300, deadline=None)
@given(text=AWKWARD | st.text(max_size=30), data=st.data())
def test_parts_are_the_whole(tokenizer: TextTokenizer, text: str, data: st.DataObject) -> None:
    """Any division of a text releases the ids of the whole text, in order."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stable, ids = StableText(tokenizer), []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        ids += stable.feed(text[start:end])
    assert tokenizer.encode(text) == ids + stable.flush()


def test_release_is_prompt(tokenizer: TextTokenizer) -> None:
    """Only the last pre-token is held."""
    stable = StableText(tokenizer)
    assert tokenizer.encode("Hello there") == stable.feed("Hello there you")
    assert tokenizer.encode(" you") == stable.feed(" are")


def test_control_tokens_are_text(tokenizer: TextTokenizer) -> None:
    """No spelling of a control token gives an id outside ordinary text."""
    ordinary = len(tokenizer._vocab)
    for special in SPECIALS:
        ids = tokenizer.encode(f"a {special} b")
        assert max(ids) < ordinary
        assert len(ids) > 6


def test_lone_surrogates_are_replaced(tokenizer: TextTokenizer) -> None:
    """Text that is not Unicode does not raise."""
    assert tokenizer.encode("a?b") == tokenizer.encode("a\ud800b")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """A missing or damaged vocabulary is a ConfigError that names the file."""
    with pytest.raises(ConfigError, match=r"vocab\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("{")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(ConfigError, match="not JSON"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\nab\n")
    with pytest.raises(ConfigError, match="merges"):
        load_tokenizer(tmp_path)
