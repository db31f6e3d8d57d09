"""Text to ids: control tokens inert, arriving text the same as whole text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.prompt import PromptBuilder
from rtts.engine.qwen.tokenizer import StableText, TextTokenizer, load_tokenizer
from rtts.errors import ConfigError
from tests.engine.qwen.tiny import SPECIALS, byte_alphabet

AWKWARD = st.text(
    alphabet=st.sampled_from(
        list("ab'sre ltve1.!?-\n\r\t\u00a0é你e\u0301\u0327한\u1100\u1161<|>_")
    ),
    max_size=40,
)


SPACES = st.text(alphabet=st.sampled_from(list("a \n!")), max_size=12)
MARKS = st.text(alphabet=st.sampled_from(list("ae\u0301\u0327.")), max_size=12)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Callable[[str, int], Path]) -> TextTokenizer:
    return load_tokenizer(checkpoint("custom_voice", 0))


@pytest.fixture(scope="module")
def merging() -> TextTokenizer:
    """A vocabulary whose byte pairs merge wherever the alphabet of `AWKWARD` lets them."""
    letters = list(byte_alphabet().values())
    vocab, merges = {letter: n for n, letter in enumerate(letters)}, []
    space, newline, tab = "\u0120", "\u010a", "\u0109"
    parts = ["a", "b", "l", "s", "e", "'", ".", "!", space, newline, tab, "\u00cc", "\u00c3"]
    for left in parts:
        for right in parts:
            vocab.setdefault(left + right, len(vocab))
            merges.append((left, right))
    return TextTokenizer(vocab, merges)


@settings(max_examples=400, deadline=None)
@given(text=AWKWARD | SPACES | MARKS | st.text(max_size=30), data=st.data())
def test_parts_are_the_whole(
    tokenizer: TextTokenizer, merging: TextTokenizer, text: str, data: st.DataObject
) -> None:
    """Any division of a text, down to single characters, releases the ids of the whole, in order."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for each in (tokenizer, merging):
        for division in (parts, list(text)):
            stable, ids = StableText(each), []
            for part in division:
                ids += stable.feed(part)
            assert each.encode(text) == ids + stable.flush()


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
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(ConfigError, match=r"merges\.txt has 'ab'"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text('["a"]')
    with pytest.raises(ConfigError, match=r"vocab\.json must map"):
        load_tokenizer(tmp_path)


def test_another_checkpoints_vocabulary(checkpoint: Callable[[str, int], Path]) -> None:
    """Ids the talker has no rows for are refused at the start, not when a client's text has one."""
    folder = checkpoint("custom_voice", 0)
    config = load_config(folder)
    vocab = {**load_tokenizer(folder)._vocab, "zz": config.talker.text_vocab}
    with pytest.raises(ConfigError, match="of another checkpoint"):
        PromptBuilder(config, TextTokenizer(vocab, []))
