"""How well and how fast text is cut: quality by set and language, cost of a token, hostile text.

    python benchmarks/splitter.py [--output benchmarks/results/...json]

Quality is scored by `tests/text/score.py` on `tests/text/data`, the text fed character by character.
Beside the splitter as it is ("told" the language, or "guessing" it) stand the splitter with a capital
letter in place of sentencex ("no_library"), and sentencex alone on all text since its last cut, all
but its last sentence emitted ("sentencex_alone"). Times are CPU time of the thread, tokens are 1 to 8
characters, each is followed by `next_stall_s` as in the service. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import sentencex  # noqa: E402
from record import record, write  # noqa: E402

from rtts.text import Splitter, SplitterOptions, make_splitter, sentences  # noqa: E402
from tests.text.score import score  # noqa: E402

DATA = ROOT / "tests" / "text" / "data"
PUBLIC = ["golden", "sentencex", "tts", "ud"]
FIGURES = [
    "recall",
    "end_precision",
    "stop",
    "inside",
    "nocut",
    "delay_mean",
    "first_mean",
    "unstable",
    "over",
    "lossy",
]
HOSTILE = [
    "a",
    "a.",
    ". ",
    "! ",
    "<",
    "[",
    "[a](",
    "(a. ",
    "`",
    "*a",
    "_",
    "|",
    "\u0301",
    "👨\u200d",
    "长",
    "\n",
    " ",
    "http://a.",
    "Mr. ",
    "1. ",
]
MARKDOWN = """## Overview

Here's a **quick** summary of what you need:

- Install `Node.js 18.2` from [the site](https://nodejs.org/en/download).
- Run the app, then check the *logs*. Don't forget to say thanks! 🎉

1. First, open the file.
2. Then save it.

| Tea | Cost |
|---|---|
| Green | $1.50 |

Let me know if you need more help with https://example.com/a/b?c=1. That's all.

"""


class SentencexAlone:
    """sentencex on what was not emitted yet, at every character."""

    def __init__(self, lang: str) -> None:
        self._lang, self._text = lang, ""

    def feed(self, text: str) -> list[str]:
        self._text += text
        *done, self._text = sentencex.segment(self._lang, self._text) or [""]
        return done

    def flush(self) -> list[str]:
        return [self._text]


def capital(language: str, left: str, following: str) -> bool:
    """The rule in place of sentencex: a capital begins a sentence."""
    return not following[:1].islower()


def guessing() -> Splitter:
    return make_splitter()


def cases(sets: list[str]) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name in sets
        for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]


def quality(factory: Callable[..., Any], max_len: int = 200) -> dict[str, Any]:
    public = score(factory, cases(PUBLIC), max_len=max_len, whole=False)
    nasty = score(factory, cases(["nasty"]), max_len=max_len, whole=False)["stream"]
    parts = {"public": public["stream"], **public["by_set"], **public["by_lang"], "nasty": nasty}
    return {
        name: {figure: rounded(part[figure]) for figure in FIGURES} for name, part in parts.items()
    }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def tokens(text: str, seed: int = 1) -> Iterator[str]:
    rng, start = random.Random(seed), 0
    while start < len(text):
        size = rng.choice((1, 3, 4, 5, 5, 6, 8))
        yield text[start : start + size]
        start += size


def cost_us(texts: list[str]) -> dict[str, float]:
    """CPU time of one token: its feed and the question how long to wait; median of five runs each."""
    runs = []
    for _ in range(5):
        splitter, times = Splitter(), []
        for text in texts:
            for token in tokens(text):
                begin = time.thread_time_ns()
                splitter.feed(token)
                splitter.next_stall_s(False)
                times.append((time.thread_time_ns() - begin) / 1000)
        runs.append(sorted(times))
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    figures = {
        name: sorted(run[int(share * len(run))] for run in runs)[2] for name, share in at.items()
    }
    figures["mean"] = sorted(sum(run) / len(run) for run in runs)[2]
    return {name: round(value, 1) for name, value in figures.items()}


def hostile(unit: str) -> dict[str, float]:
    """CPU time a character of 20,000 and of 200,000 in one message, and of 20,000 one by one."""
    figures = {}
    for name, size, whole in (
        ("20k", 20_000, True),
        ("200k", 200_000, True),
        ("one_by_one", 20_000, False),
    ):
        text = (unit * (size // len(unit) + 1))[:size]
        splitter, begin, held = Splitter(SplitterOptions()), time.thread_time(), 0
        for piece in [text] if whole else text:
            splitter.feed(piece)
            held = max(held, splitter.pending)
        splitter.flush()
        figures[f"{name}_us"] = round((time.thread_time() - begin) / size * 1e6, 2)
    figures["held_chars"] = held
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    by_splitter = {"told": quality(make_splitter), "guessing": quality(guessing)}
    ask, sentences._asks = sentences._asks, capital
    by_splitter["no_library"] = quality(make_splitter)
    sentences._asks = ask
    by_splitter["sentencex_alone"] = quality(SentencexAlone, max_len=10**6)
    for name, parts in by_splitter.items():
        print(f"{name:16}", parts["public"])

    ud = cases(["ud"])
    cost = {
        lang: cost_us([case["text"] for case in ud if case["lang"] == lang])
        for lang in ("en", "de", "zh", "ja")
    }
    cost["markdown"] = cost_us([MARKDOWN] * 20)
    print(cost)
    results = {
        "quality": by_splitter,
        "token_cost_us": cost,
        "hostile": {unit: hostile(unit) for unit in HOSTILE},
    }
    write(
        record(
            "splitter",
            results,
            measured=["rtts/text", "tests/text", "benchmarks/splitter.py"],
            packages=["sentencex"],
        ),
        arguments.output,
    )


if __name__ == "__main__":
    main()
