"""The declared batch sizes and the plain side of the frame interface."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.graphs import PlainFrames, PromptRows, buckets_for, frames_for
from rtts.engine.qwen.plan import bucket_for
from rtts.errors import EngineError


@given(slots=st.integers(1, 600), data=st.data())
def test_every_batch_is_declared(slots: int, data: st.DataObject) -> None:
    """Whatever rows the scheduler runs, their batch size is one that was captured."""
    rows = data.draw(st.integers(1, slots))
    bucket = bucket_for(rows, slots, 1)
    assert rows <= bucket
    assert bucket in buckets_for(slots)
    assert list(buckets_for(slots)) == sorted(set(buckets_for(slots)))


@torch.inference_mode()
def test_plain_frames(model: Callable[[str, int], Model]) -> None:
    """A CPU gets the plain side; levels are those of the samples; nothing begun, nothing collected."""
    loaded = model("custom_voice", 0)
    frames = frames_for(loaded, loaded.config.sampling, 2, 64)
    assert isinstance(frames, PlainFrames)
    frames.prepare()
    with pytest.raises(EngineError):
        frames.collect()
    frames.prefill([PromptRows(loaded.talker.project_text(torch.arange(40, 46)), 1, 0)])
    frames.state.begin_take(1, 6, loaded.talker.codec_embedding[3])
    frames.begin_codec(1, None)
    frames.start([5] * frames.smallest, [slot == 1 for slot in range(frames.smallest)], 7)
    heard = frames.collect()
    assert heard.finite[1]
    samples = torch.tensor(heard.pcm[1]).double() / 32767.0
    assert heard.levels[1] == pytest.approx(float(samples.square().mean().sqrt()), rel=1e-4)
    assert heard.levels[1] > 0.0
    assert frames.state.lengths[:2].tolist() == [0, 7]
    with pytest.raises(EngineError):
        frames.collect()
