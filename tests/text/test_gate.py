"""The splitter's quality on public test suites and treebanks, and on the cases of our own.

The bounds are those the splitter reaches, less a little, so that a change for the worse is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rtts.text import Splitter, make_splitter
from tests.text.score import score

DATA = Path(__file__).parent / "data"
PUBLIC = ["golden", "sentencex", "tts", "ud"]
NEVER = {"inside": 0, "lossy": 0, "unstable": 0, "over": 0}
AT_LEAST = {"recall", "end_precision"}


def guessing() -> Splitter:
    """A splitter that is not told the language."""
    return make_splitter()


def quality(
    factory: Callable[..., Splitter], sets: list[str], *, stability: bool = True
) -> tuple[dict[str, dict[str, float]], list[object]]:
    """The scorer's figures for all of `sets` ("all") and for each, and what went wrong."""
    lines = [
        line for name in sets for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    errors: list[object] = []
    cases = [json.loads(line) for line in lines]
    scored = score(factory, cases, errors=errors, whole=False, stability=stability)
    return {"all": scored["stream"], **scored["by_set"]}, errors[:20]


def missed(figures: dict[str, float], bounds: dict[str, float]) -> dict[str, float]:
    """The figures that are not within their bounds."""
    return {
        name: figures[name]
        for name, bound in bounds.items()
        if (figures[name] < bound if name in AT_LEAST else figures[name] > bound)
    }


def test_quality_on_public_texts() -> None:
    """Cut character by character, few ends are missed, few are false, none is inside a token."""
    figures, errors = quality(make_splitter, PUBLIC)

    assert (
        missed(figures["all"], {"recall": 0.983, "end_precision": 0.98, "delay_mean": 3.0} | NEVER)
        == {}
    ), errors
    assert (
        missed(figures["ud"], {"recall": 0.99, "end_precision": 0.995, "delay_mean": 2.6}) == {}
    ), errors


def test_quality_without_being_told_the_language() -> None:
    """The language is found out fast enough to cost next to nothing."""
    figures, errors = quality(guessing, PUBLIC, stability=False)

    assert (
        missed(figures["all"], {"recall": 0.982, "end_precision": 0.979, "inside": 0, "lossy": 0})
        == {}
    ), errors


@pytest.mark.parametrize("factory", [make_splitter, guessing])
def test_nasty_cases(factory: Callable[..., Splitter]) -> None:
    """Nothing is cut that must not be cut."""
    figures, errors = quality(factory, ["nasty"])

    assert (
        missed(figures["all"], {"nocut": 0, "stop": 0, "lossy": 0, "unstable": 0, "recall": 0.92})
        == {}
    ), errors
