"""Draws: uniform, independent of neighbours, and in the reference's order of processors."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.sampling import Seeded, probabilities, uniforms


def test_uniforms_are_uniform() -> None:
    """Over frames, groups and neighbouring seeds: mean, variance and no correlation between
    consecutive draws, within five standard errors."""
    for seeds, frames in (
        (torch.zeros(4000, dtype=torch.int64), torch.arange(4000)),
        (torch.arange(4000), torch.zeros(4000, dtype=torch.int64)),
    ):
        u = uniforms(seeds, frames, 16).double()
        n = u.numel()
        assert u.min() >= 0
        assert u.max() < 1
        assert abs(u.mean() - 0.5) < 5 * (1 / 12 / n) ** 0.5
        assert abs(u.var() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
        centred = u - 0.5
        for pairs in (centred[1:] * centred[:-1], centred[:, 1:] * centred[:, :-1]):
            assert abs(pairs.mean()) < 5 * (1 / 144 / pairs.numel()) ** 0.5


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(-(2**63), 2**63 - 1), frame=st.integers(0, 10**6), row=st.integers(0, 6))
def test_uniforms_depend_on_nothing_else(seed: int, frame: int, row: int) -> None:
    """A row's draws are a function of its seed and frame, wherever the row is."""
    alone = uniforms(torch.tensor([seed]), torch.tensor([frame]), 16)
    seeds, frames = torch.arange(7), torch.arange(7) * 3
    seeds[row], frames[row] = seed, frame
    assert torch.equal(alone[0], uniforms(seeds, frames, 16)[row])


def test_seeded_draws_follow_the_distribution() -> None:
    """Inverse distribution: frequencies match the probabilities, impossible indices never come."""
    p = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0]).repeat(20000, 1)
    u = uniforms(torch.zeros(20000, dtype=torch.int64), torch.arange(20000), 16)
    counts = torch.bincount(Seeded(u).choose(p, 3), minlength=6) / 20000
    assert (counts - p[0]).abs().max() < 0.02
    assert counts[[0, 2, 5]].sum() == 0


def test_the_largest_draw_stays_inside() -> None:
    """The largest uniform never falls off the end of the last possible index."""
    largest = torch.full((64, 16), 1 - 2.0**-23)
    scores = torch.randn(64, 3000, generator=torch.Generator().manual_seed(1)) * 4
    scores[:, -100:] = -torch.inf
    p = probabilities(scores, 0.9, 50, 1.0)
    chosen = Seeded(largest).choose(p, 0)
    assert (p.gather(1, chosen[:, None]) > 0).all()


def test_top_k_and_top_p() -> None:
    """Ties at the k-th survive; top-p keeps the smallest set that reaches p, never nothing."""
    scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    assert (probabilities(scores, 1.0, 2, 1.0) > 0).tolist() == [[True, True, True, False]]
    scores = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    assert (probabilities(scores, 1.0, 0, 0.7) > 0).tolist() == [[True, True, False, False]]
    assert (probabilities(scores, 1.0, 0, 1e-9) > 0).tolist() == [[True, False, False, False]]
