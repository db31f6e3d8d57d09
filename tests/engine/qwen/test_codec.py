"""The codec's streaming is exact: any schedule of calls is one call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.codec import Codec
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.offline import codec_after
from rtts.engine.qwen.weights import open_weights
from tests.engine.qwen.tiny import GOLDEN

FRAMES = 30  # more than twice the tiny codec's window of 12
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@pytest.fixture(scope="module")
def codecs(checkpoint: Callable[[str, int], Path]) -> dict[torch.dtype, Codec]:
    folder = checkpoint("custom_voice", 0)
    config = load_config(folder).codec
    return {
        dtype: Codec(open_weights(folder / "speech_tokenizer", dtype, "cpu"), config)
        for dtype in DTYPES
    }


@pytest.fixture(scope="module")
def codes() -> torch.Tensor:
    return torch.randint(0, 64, (3, 16, FRAMES), generator=torch.Generator().manual_seed(5))


def on(rows: int) -> torch.Tensor:
    return torch.ones(rows, dtype=torch.bool)


@pytest.fixture(scope="module")
def whole(codecs: dict[torch.dtype, Codec], codes: torch.Tensor) -> dict[torch.dtype, torch.Tensor]:
    return {dtype: codec.render(codes, on(3), codec.state(3)) for dtype, codec in codecs.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=4, deadline=None)
@given(cuts=st.lists(st.integers(1, 9), min_size=1, max_size=FRAMES))
def test_any_schedule_is_one_shot(
    codecs: dict[torch.dtype, Codec],
    codes: torch.Tensor,
    whole: dict[torch.dtype, torch.Tensor],
    dtype: torch.dtype,
    cuts: list[int],
) -> None:
    """Frames rendered in chunks of any sizes give the samples of one call, bit for bit."""
    codec, parts, at = codecs[dtype], [], 0
    state = codec.state(3)
    for size in [*cuts, FRAMES]:
        if at < FRAMES:
            parts.append(codec.render(codes[:, :, at : at + size], on(3), state))
            at += size
    streamed = torch.cat(parts, dim=1)
    assert whole[dtype].shape == streamed.shape
    assert torch.equal(whole[dtype], streamed)
    assert state.frames.tolist() == [FRAMES] * 3


@settings(max_examples=4, deadline=None)
@given(cuts=st.lists(st.integers(1, 15), min_size=1, max_size=FRAMES))
def test_blocks_are_one_shot(
    codecs: dict[torch.dtype, Codec],
    codes: torch.Tensor,
    whole: dict[torch.dtype, torch.Tensor],
    cuts: list[int],
) -> None:
    """Frames computed together, in blocks of any sizes, give the samples of one by one."""
    codec, parts, at = codecs[torch.float64], [], 0
    state = codec.state(3)
    for size in [*cuts, FRAMES]:
        if at < FRAMES:
            parts.append(codec.render(codes[:, :, at : at + size], on(3), state, block=size))
            at += size
    assert (whole[torch.float64] - torch.cat(parts, dim=1)).abs().max() < 1e-12


def test_rows_out_of_step(
    codecs: dict[torch.dtype, Codec], codes: torch.Tensor, whole: dict[torch.dtype, torch.Tensor]
) -> None:
    """Rows that pause, each at its own frames, still give their own one shot; a row that pauses
    keeps its state bit for bit."""
    codec = codecs[torch.float64]
    state, heard, at = codec.state(3), [[], [], []], [0, 0, 0]
    chance = torch.Generator().manual_seed(6)
    while min(at) < FRAMES:
        active = torch.rand(3, generator=chance) < 0.6
        active &= torch.tensor(at) < FRAMES
        frame = torch.stack([codes[row, :, min(at[row], FRAMES - 1)] for row in range(3)])
        before = [part.clone() for part in (state.frames, *state.pasts)]
        keys = state.k.clone()
        out = codec.render(frame[:, :, None], active, state)
        for old, new in zip(before, (state.frames, *state.pasts), strict=True):
            assert torch.equal(old[~active], new[~active])
        assert torch.equal(keys[:, ~active], state.k[:, ~active])
        for row in active.nonzero()[:, 0].tolist():
            heard[row].append(out[row])
            at[row] += 1
    for row in range(3):
        assert (torch.cat(heard[row]) - whole[torch.float64][row]).abs().max() < 1e-12


def test_reset_and_snapshot(
    codecs: dict[torch.dtype, Codec], codes: torch.Tensor, whole: dict[torch.dtype, torch.Tensor]
) -> None:
    """A reset slot starts anew; a slot that continues a snapshot gives the rest of its stream."""
    codec = codecs[torch.float64]
    state = codec.state(3)
    codec.render(codes[:, :, :20], on(3), state)
    snapshot = codec.state(1)
    snapshot.copy_in(0, state, other_slot=1)
    codec.render(codes[:, :, 20:25], on(3), state)
    state.reset(torch.tensor([True, False, False]))
    state.copy_in(2, snapshot)
    out = codec.render(codes[[0, 1, 1], :, :10], on(3), state)
    assert (out[0] - whole[torch.float64][0, : out.shape[1]]).abs().max() < 1e-12
    rest = codec.render(codes[1:2, :, 20:], on(1), snapshot)
    assert (rest[0] - whole[torch.float64][1, 20 * 1920 :]).abs().max() < 1e-12


def test_rows_are_their_own(model: Callable[[str, int], Model], codes: torch.Tensor) -> None:
    """A row has the same bits in every batch of four and more, beside whomever, in any slot."""
    codec = model("custom_voice", 0).codec
    expected = codec.render(codes[:1, :, :6].expand(4, -1, -1), on(4), codec.state(4))[0]
    for rows in (5, 7, 9, 12, 16, 17, 32, 64):
        others = torch.randint(0, 64, (rows, *codes.shape[1:]))[:, :, :6]
        for slot in (0, rows - 1):
            others[slot] = codes[0, :, :6]
            out = codec.render(others, on(rows), codec.state(rows + 1))
            assert torch.equal(out[slot], expected), (rows, slot)


@pytest.mark.parametrize("rows", [4, 8])
def test_clone_start(model: Callable[[str, int], Model], codes: torch.Tensor, rows: int) -> None:
    """A stream that starts after a reference is the reference's own stream, cut exactly, in any
    batch that streams are rendered in."""
    codec = model("base", 0).codec
    state = codec.state(rows)
    state.copy_in(2, codec_after(model("base", 0), codes[0, :, :17].T))
    many = codes[:1].expand(rows, -1, -1)
    rest = codec.render(many[:, :, 17:], on(rows), state)
    full = codec.render(many, on(rows), codec.state(rows))
    assert torch.equal(full[2, 17 * 1920 :], rest[2])


@pytest.mark.parametrize("seed", [0, 7])
def test_samples_are_the_references(checkpoint: Callable[[str, int], Path], seed: int) -> None:
    """The samples of the reference's full decode in float64, every 61st of them. (Its norms stay in
    float32, which these weights amplify to 1e-6.)"""
    gold = json.loads((GOLDEN / "codes.json").read_text())
    codes = torch.tensor(gold["sets"][f"custom_voice-{seed}-greedy"]["cv_long"]["codes"][0]).T
    folder = checkpoint("custom_voice", seed)
    codec = Codec(
        open_weights(folder / "speech_tokenizer", torch.float64, "cpu"), load_config(folder).codec
    )
    samples = codec.render(codes[None], on(1), codec.state(1))[0]
    expected = torch.tensor(gold["audio"][str(seed)]["samples"], dtype=torch.float64)
    assert (expected - samples[:: gold["audio"][str(seed)]["every"]]).abs().max() < 1e-5


def test_causal(codecs: dict[torch.dtype, Codec], codes: torch.Tensor) -> None:
    """A frame's codes change nothing before its first sample."""
    codec = codecs[torch.float64]
    changed = codes.clone()
    changed[:, :, 15:] = (changed[:, :, 15:] + 1) % 64
    one = codec.render(codes, on(3), codec.state(3))
    two = codec.render(changed, on(3), codec.state(3))
    assert (one[:, : 15 * 1920] - two[:, : 15 * 1920]).abs().max() < 1e-12
    assert (one[:, 15 * 1920 :] - two[:, 15 * 1920 :]).abs().max() > 1e-3
