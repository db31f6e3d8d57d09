"""Token for token what the reference package says, on tiny random checkpoints of two widths."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rtts.engine.qwen.frame import Conditions, Model
from rtts.engine.qwen.offline import Offline, Request
from rtts.engine.qwen.prompt import PromptBuilder, Reference
from rtts.engine.qwen.sampling import Reference as ReferenceNoise
from rtts.engine.qwen.sampling import Sampler
from rtts.engine.qwen.tokenizer import load_tokenizer
from tests.engine.qwen.tiny import GOLDEN

GOLD: dict[str, Any] = json.loads((GOLDEN / "codes.json").read_text())
HELLO = "Hello the world"
# text, speaker, language, instruct, layout, reference text (None: x-vector only or preset)
CASES: dict[str, list[dict[str, Any]]] = {
    "cv_ns1": [{"text": HELLO, "speaker": "Ann", "language": "English", "complete": True}],
    "cv_ns0": [{"text": HELLO, "speaker": "Ann", "language": "English"}],
    "cv_auto": [{"text": "Hello", "speaker": "bob"}],
    "cv_dialect": [{"text": "你好", "speaker": "dylan", "language": "Chinese"}],
    "cv_instruct": [
        {
            "text": "Hello",
            "speaker": "ann",
            "language": "English",
            "instruct": "be calm",
            "complete": True,
        }
    ],
    "cv_batch": [
        {"text": "Hello the world, again", "speaker": "ann", "language": "English"},
        {"text": "Hi", "speaker": "bob"},
    ],
    "cv_long": [{"text": "Hello the world. " * 2, "speaker": "ann", "language": "English"}],
    "vd": [{"text": HELLO, "instruct": "an old man", "language": "English", "complete": True}],
    "vd_stream": [{"text": HELLO, "instruct": "an old man"}],
    "icl_ns0": [{"text": HELLO, "language": "English", "ref_text": "a tone"}],
    "icl_ns1": [{"text": HELLO, "language": "English", "ref_text": "a tone", "complete": True}],
    "icl_longtext": [{"text": "Hello the world, and so on", "ref_text": "a tone that plays"}],
    "xvec": [{"text": HELLO, "language": "English", "clone": True}],
}


def request(
    model: Model, builder: PromptBuilder, seed: int, *, greedy: bool, **case: Any
) -> Request:
    """The request of one golden case."""
    cloned = case.get("clone") or "ref_text" in case
    conditioning = builder.conditioning(
        speaker=case.get("speaker", ""),
        clone="tone" if cloned else "",
        language=case.get("language", "auto"),
        instruct=case.get("instruct", ""),
    )
    conditions = reference = None
    if cloned:
        stored = GOLD["references"][str(seed)]
        conditions = Conditions(torch.tensor(stored["x_vector"]), torch.tensor(stored["codes"]))
        if "ref_text" in case:
            ref_ids = tuple(builder.text_ids(case["ref_text"]))
            reference = Reference(ref_ids, len(stored["codes"]))
    ids = builder.text_ids(case["text"])
    if case.get("complete"):
        prompt = builder.complete(ids, reference)
    else:
        prompt = builder.streaming(ids, ended=True, reference=reference)
    return Request(conditioning, prompt, conditions, reference, seed=1234, greedy=(greedy, greedy))


@pytest.mark.parametrize("name", sorted(GOLD["sets"]))
def test_codes_are_the_references(
    name: str, checkpoint: Callable[[str, int], Path], model: Callable[[str, int], Model]
) -> None:
    """Greedy and seeded sampling, every layout and voice type: the same codes and the same audio.

    The cases of a set run side by side in one batch; the reference ran them one by one.
    """
    kind, seed, mode = name.rsplit("-", 2)
    loaded = model(kind, int(seed))
    builder = PromptBuilder(loaded.config, load_tokenizer(checkpoint(kind, int(seed))))
    sampler = Sampler(loaded.config.sampling, loaded.config.talker, loaded.device)
    requests, generators, expected = [], [], []
    for case, gold in GOLD["sets"][name].items():
        limit, first = 59 if case == "cv_long" else 23, len(requests)
        requests += [
            request(loaded, builder, int(seed), greedy=mode == "greedy", **one)
            for one in CASES[case]
        ]
        generators.append((first, len(requests), torch.Generator().manual_seed(1234)))
        expected += [
            (case, limit, codes, rms) for codes, rms in zip(gold["codes"], gold["rms"], strict=True)
        ]
    longest = max(limit for _, limit, _, _ in expected)
    spoken = Offline(loaded, builder, sampler).speak(requests, longest, ReferenceNoise(generators))
    for got, (case, limit, codes, rms) in zip(spoken, expected, strict=True):
        assert codes == [list(frame) for frame in got.codes[:limit]], case
        samples = np.frombuffer(got.pcm, dtype="<i2")[: limit * 1920].astype(np.float64) / 32767
        measured = float(np.sqrt((samples**2).mean())) if samples.size else 0.0
        assert abs(rms - measured) < 1e-4, case
