"""The engine core: what every core must do, batch independence, endings, late text, voices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    FinishReason,
    FinishText,
    StartUtterance,
)
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.engine import QwenEngine, load_engine
from rtts.engine.qwen.options import EndingOptions, LateText, LayoutPolicy, QwenOptions, TextOptions
from tests.engine.conformance import Driver, EngineCoreConformance, Subject
from tests.engine.qwen import tiny

TEXTS = ("Hello there.", "How are you?")
PURE = TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING)
"""What is heard depends on the text alone, not on when it arrives."""


@pytest.fixture(scope="module")
def make(checkpoint: Callable[[str, int], Path]) -> Callable[..., QwenEngine]:
    def build(kind: str = "custom_voice", **fields: object) -> QwenEngine:
        given = {"model": str(checkpoint(kind, 0)), "slots": 12, "positions": 512, **fields}
        return load_engine(QwenOptions(**given))  # type: ignore[arg-type]

    return build


def _tiny_core() -> QwenEngine:
    raise NotImplementedError("set by the fixture, which knows the checkpoint")


class TestConformance(EngineCoreConformance):
    """The shared suite, on the default options. Not marked deterministic: under them the layout and
    the place of a cut depend on when text comes (see `PURE`, and the tests below)."""

    subject = Subject(
        make_core=_tiny_core,
        voice="ann",
        texts=("Hello there.", "Good day."),
        odd_texts=(
            " ",
            "...",
            "\x00\x07\x1b[0m",
            "\ud800 a lone",
            "\u4f60\u597d\u3002",
            "a" * 2000,
        ),
        max_steps=4000,
        is_deterministic=False,
    )

    @pytest.fixture(autouse=True)
    def _make(self, make: Callable[..., QwenEngine]) -> None:
        type(self).subject = replace(self.subject, make_core=make)
