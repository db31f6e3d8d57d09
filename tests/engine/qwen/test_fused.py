"""The fused frame on a GPU: equal to the plain modules, and a row's bits its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.checkpoint import RandomWeights, write_settings
from rtts.engine.qwen.frame import Model, SlotState, speak_frame
from rtts.engine.qwen.graphs import GraphFrames, PromptRows, buckets_for
from rtts.engine.qwen.sampling import Sampler
from tests.engine.qwen import tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
ROWS, HELD = 4, 12


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain modules' convolutions would be in TF32 otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def prompt(model: Model, state: SlotState) -> None:
    """Prompts of several lengths, one greedy row, seeds of both signs."""
    x = model.talker.project_text(torch.arange(40, 60, device=model.device))
    state.seeds[:ROWS] = torch.tensor([1, 2, 3, -4], device=model.device)
    state.greedy[0] = True
    for slot in range(ROWS):
        model.talker.prefill(x[: HELD - slot], state.kv, slot, 0)
        state.begin_take(slot, HELD - slot, x[19])


@pytest.mark.parametrize("seed", [0, 7])
@torch.inference_mode()
def test_equals_the_plain_frame(tmp_path: Path, seed: int) -> None:
    """In float32 every code is the plain frame's and every sample within 8 / 32767 (other orders of
    sums, amplified by the random codec), both with and without the predictor's projection, through
    ends and pauses of rows."""
    folder = tiny.build(tmp_path / "model", "custom_voice", seed)
    plain, fused = (Model(folder, torch.float32, "cuda") for _ in range(2))
    frames = GraphFrames(fused, fused.config.sampling, ROWS, 64)
    frames.prepare()
    state, codec_state = SlotState.allocate(plain, ROWS, 64), plain.codec.state(ROWS)
    sampler = Sampler(plain.config.sampling, plain.config.talker, plain.device)
    prompt(plain, state)
    prompt(fused, frames.state)
    ids = [5, 6, 7, 8]
    text = plain.talker.project_text(torch.tensor(ids, device="cuda"))
    for n in range(12):
        active = [True, n % 3 != 1, True, n > 4]
        on = torch.tensor(active, device="cuda")
        expected = speak_frame(plain, sampler, state, codec_state, text, on, 64)
        frames.start(ids, active, 0)
        heard = frames.collect()
        for row in (row for row in range(ROWS) if active[row]):
            assert list(heard.codes[row]) == expected.codes[row].tolist()
            assert heard.ended[row] == expected.ended[row].item()
            pcm = torch.tensor(heard.pcm[row], dtype=torch.int32)
            assert (pcm - expected.pcm[row].cpu().to(torch.int32)).abs().max() <= 8
    assert torch.equal(state.lengths, frames.state.lengths)
    assert torch.equal(state.seen, frames.state.seen)
    assert frames.captures == len(buckets_for(ROWS)) + 3


@pytest.mark.parametrize("count", [3, 16, 21])
@torch.inference_mode()
def test_prefill_equals_the_plain_one(tmp_path: Path, count: int) -> None:
    """Captured prefill writes the keys and values of the plain one, and nothing else."""
    folder = tiny.build(tmp_path / "model", "custom_voice", 0)
    plain, fused = (Model(folder, torch.float32, "cuda") for _ in range(2))
    frames = GraphFrames(fused, fused.config.sampling, 2, 64)
    frames.prepare()
    x = plain.talker.project_text(torch.arange(40, 40 + 7 + count, device="cuda"))
    state = SlotState.allocate(plain, 2, 64)
    for prefill in (plain.talker.prefill, fused.talker.prefill):
        kv = state.kv if prefill == plain.talker.prefill else frames.state.kv
        prefill(x[:7], kv, 1, 0)
    plain.talker.prefill(x[7:], state.kv, 1, 7)
    plain.talker.prefill(x[5:15], state.kv, 0, 0)
    frames.prefill([PromptRows(x[7:], 1, 7), PromptRows(x[5:15], 0, 0)])
    for mine, theirs in ((frames.state.kv.k, state.kv.k), (frames.state.kv.v, state.kv.v)):
        torch.testing.assert_close(mine[..., :64, :], theirs[..., :64, :], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_bits_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    """In bfloat16 at the released shapes: a seed gives the same codes and samples alone and in
    every batch size, in any slot, whoever else speaks."""
    folder = tmp_path / "model"
    write_settings(folder, "0.6b", "custom_voice")
    model = Model(
        folder, torch.bfloat16, "cuda", read=lambda _, dtype, device: RandomWeights(dtype, device)
    )
    slots = 64
    frames = GraphFrames(model, model.config.sampling, slots, 128)
    frames.prepare()
    said = []
    for bucket in buckets_for(slots):
        state, mine = frames.state, bucket // 2
        state.seeds.copy_(torch.arange(slots) + 1000 * bucket)
        state.seeds[mine] = 5
        for counter in (state.lengths, state.frames, state.drawn):
            counter.zero_()
        state.lengths.copy_(torch.arange(slots) % 50)  # positions held: zeros, as good as any
        state.lengths[mine] = 0
        state.seen.zero_()
        state.codec_side.normal_()
        state.codec_side[mine] = 0.5
        for slot in range(slots):
            frames.begin_codec(slot, None)
        heard = []
        for n in range(12):
            texts = [300 + n + 7 * slot for slot in range(bucket)]
            texts[mine] = 300 + n
            frames.start(texts, [True] * bucket, 0)
            frame = frames.collect()
            heard.append((tuple(frame.codes[mine]), frame.pcm[mine].tobytes()))
        said.append(heard)
    assert all(heard == said[0] for heard in said[1:])
