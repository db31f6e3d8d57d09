"""Text to ids, however it is cut and whenever it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.options import EndingOptions, LateText, LayoutPolicy, TextOptions
from rtts.engine.qwen.prompt import PromptBuilder, Reference
from rtts.engine.qwen.takes import Next, Take, TakePlanner, TextQueue
from rtts.engine.qwen.tokenizer import TextTokenizer
from tests.engine.qwen.tiny import byte_alphabet

WIDE_MARKS = "\u3002\uff0c\u300d"  # full stop, comma, closing bracket
WIDE = "\u4f60\u597d"
PARTS = st.text(alphabet=list("ab1.!' \u00e9e\u0301" + WIDE + WIDE_MARKS), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def builder(checkpoint: Callable[[str, int], Path]) -> PromptBuilder:
    """With a vocabulary whose byte pairs merge wherever a pre-token lets them."""
    letters = byte_alphabet()
    vocab = {letter: byte for byte, letter in letters.items()}
    merges: list[tuple[str, str]] = []
    for word in ("assistant", "user"):
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                merges.append((word[: end - 1], word[end - 1]))
                vocab[word[:end]] = len(vocab)
    used = sorted({letters[byte] for byte in ("b1.!' \u00e9" + WIDE + WIDE_MARKS).encode()})
    for left in used:
        for right in used:
            vocab.setdefault(left + right, len(vocab))
            merges.append((left, right))
    config = load_config(checkpoint("custom_voice", 0))
    config = replace(config, talker=replace(config.talker, text_vocab=len(vocab)))
    return PromptBuilder(config, TextTokenizer(vocab, merges))


def planner(builder: PromptBuilder, layout: LayoutPolicy) -> TakePlanner:
    text = TextOptions(late=LateText.HOLD, layout=layout, anchor_frames=10**6)
    return TakePlanner(builder, text, EndingOptions(), 4096)


def legal(parts: list[str]) -> list[str]:
    """The parts as a splitter would give them: cut at a space or behind punctuation."""
    spoken = [part.strip() for part in parts if any(map(str.isalnum, part))]
    return [f"{part}{WIDE_MARKS[0]}" if part[-1] in WIDE else part for part in spoken]


def whole(parts: list[str]) -> str:
    text = ""
    for part in parts:
        text += f" {part}" if text and text[-1] not in WIDE_MARKS else part
    return text


def consumed(take: Take, limit: int) -> list[int]:
    """The ids of the next steps, until it waits, or its text is over."""
    ids: list[int] = []
    while len(ids) < limit and not take.text_consumed:
        text = take.next_text()
        if isinstance(text, Next):
            break
        take.consume()
        ids.append(text)
    return ids


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(PARTS, min_size=1, max_size=5), data=st.data())
def test_any_cut_gives_the_ids_of_the_whole(
    builder: PromptBuilder, parts: list[str], data: st.DataObject
) -> None:
    """Text in parts, taken in while the take runs, or all there at the start, in either layout:
    always the ids that the whole text has."""
    said = legal(parts)
    if not said:
        return
    expected = builder.text_ids(whole(said))
    queue = TextQueue(builder)
    for i, part in enumerate(said):
        queue.append(i, part)
    queue.is_finished = True
    take = planner(builder, LayoutPolicy.AUTO).begin(queue, 0, None)
    assert [row.text for row in take.prompt.body[: len(expected)]] == expected

    arriving, plan = TextQueue(builder), planner(builder, LayoutPolicy.STREAMING)
    arriving.append(0, said[0])
    take = plan.begin(arriving, 0, None)
    ids: list[int] = []
    for i, part in enumerate(said[1:], 1):
        ids += consumed(take, data.draw(st.integers(0, 6)))
        arriving.append(i, part)
        plan.feed(take, arriving)
    ids += consumed(take, data.draw(st.integers(0, 6)))
    arriving.is_finished = True
    plan.feed(take, arriving)
    ids += consumed(take, 10**6)
    assert ids == [*expected, builder.end_id]


def test_only_what_may_join_is_held(builder: PromptBuilder) -> None:
    """Wide punctuation waits for the letters behind it; words, and letters where a client wants them
    now, do not."""
    for text, held in (("ab.", 0), (WIDE + WIDE_MARKS[0], 1), (WIDE, 0), (WIDE_MARKS[0] + "a", 0)):
        queue = TextQueue(builder)
        queue.append(0, text)
        take = planner(builder, LayoutPolicy.STREAMING).begin(queue, 0, None)
        given_now = len(consumed(take, 10**6))
        take.close()
        assert (len(consumed(take, 10**6)) - 1 > 0) == bool(held), text
        assert given_now > 0


def test_a_mark_alone_is_spoken(builder: PromptBuilder) -> None:
    """A first segment of which nothing is certain, a letter and a mark that may combine, begins."""
    queue = TextQueue(builder)
    queue.append(0, "\u304b\u3099")
    queue.append(1, "\u304b\u3099\u3099")
    take = planner(builder, LayoutPolicy.STREAMING).begin(queue, 0, None)
    assert consumed(take, 10**6)


def test_a_reference_needs_text_that_is_certain(builder: PromptBuilder) -> None:
    """A cloned voice begins once the ids its prompt takes in are certain, and not before."""
    reference = Reference((1, 2), 8)
    plan = planner(builder, LayoutPolicy.STREAMING)
    queue = TextQueue(builder)
    for i in range(100):
        if plan.can_begin(queue, reference):
            break
        queue.append(i, "b" + WIDE_MARKS[0])
    take = plan.begin(queue, 0, reference)
    assert len(take.prompt.body) + 1 == 1 + reference.frames
    assert i > 1
