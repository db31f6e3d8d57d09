"""From scores to codes: the reference's processors in its order, and two sources of randomness.

`Seeded` is a function of (seed, frame, code group) alone, so a request draws the same codes
whatever runs beside it, and it needs no generator, so it can be captured. `Reference` draws as the
reference package does (`torch.multinomial` on a torch generator: c0, c1, ..., c15, c0, ...).
This module knows nothing about models or slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rtts.engine.qwen.config import SUPPRESSED_IDS, SamplingConfig, TalkerConfig
from rtts.engine.qwen.extra import Tensor, torch

MIN_NEW_TOKENS = 2  # fixed in the reference's `generate`: no end before the third id

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15, splitmix64's increment, as int64
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_UNIFORM_BITS = 23
"""Bits of a uniform draw: with 24, `u * total` could round up to `total` in float32."""


class Noise(Protocol):
    """A source of randomness for one frame of B rows."""

    def choose(self, probabilities: Tensor, group: int) -> Tensor:
        """One index a row, `[B]` int64, from `[B, V]` float32 rows that sum to one."""


@dataclass(frozen=True, slots=True)
class Seeded:
    """Draws by inverse distribution from a counter-based hash.

    Attributes:
        uniforms: `[B, Q]` float32 in [0, 1), from `uniforms`.
    """

    uniforms: Tensor

    def choose(self, probabilities: Tensor, group: int) -> Tensor:
        """The first index whose cumulated probability passes the row's uniform draw."""
        cumulated = probabilities.cumsum(-1)
        target = self.uniforms[:, group, None] * cumulated[:, -1:]
        return (cumulated <= target).sum(-1)


@dataclass(frozen=True, slots=True)
class Reference:
    """Draws from torch generators; not capturable.

    Attributes:
        rows: (first row, last row + 1, generator): rows that share a generator are drawn in one
            call, as the reference's static batch is. Rows in none are not drawn.
        draws: Whether group 0, and whether the later groups, are sampled: a group that takes the
            best must leave the generator alone, or the next would draw other codes.
    """

    rows: Sequence[tuple[int, int, torch.Generator]]
    draws: tuple[bool, bool] = (True, True)

    def choose(self, probabilities: Tensor, group: int) -> Tensor:
        """`torch.multinomial`, one generator after the other."""
        chosen = torch.zeros(probabilities.shape[0], dtype=torch.int64, device=probabilities.device)
        if not self.draws[min(group, 1)]:
            return chosen
        for first, end, generator in self.rows:
            drawn = torch.multinomial(probabilities[first:end], 1, generator=generator)
            chosen[first:end] = drawn[:, 0]
        return chosen


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's is arithmetic)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), on int64 with wrap-around."""
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def uniforms(seeds: Tensor, frames: Tensor, groups: int) -> Tensor:
    """Uniform draws of one frame, `[B, groups]` float32 in [0, 1).

    Args:
        seeds: `[B]` int64, of the utterances.
        frames: `[B]` int64, frames each utterance has drawn before.
    """
    group = torch.arange(1, groups + 1, device=seeds.device)
    counter = frames[:, None] * groups + group
    bits = _mix(_mix(seeds * _GOLDEN)[:, None] + counter * _GOLDEN)
    return _shift_right(bits, 64 - _UNIFORM_BITS).float() * 2.0**-_UNIFORM_BITS


def probabilities(scores: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Temperature, top-k, top-p, softmax, in the reference's order; ties at the k-th are kept."""
    scores = scores / temperature
    if 0 < top_k < scores.shape[-1]:
        smallest = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < smallest, -torch.inf)
    if top_p < 1.0:
        ordered, order = scores.sort(dim=-1)
        dropped = ordered.softmax(-1).cumsum(-1) <= 1.0 - top_p
        dropped[:, -1] = False
        scores = scores.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
    return scores.softmax(-1)


class Sampler:
    """The choice of codes under one set of sampling settings."""

    def __init__(
        self, settings: SamplingConfig, talker: TalkerConfig, device: torch.device
    ) -> None:
        self.settings = settings
        self._eos = talker.eos_id
        suppressed = torch.zeros(talker.vocab, dtype=torch.bool)
        suppressed[talker.vocab - SUPPRESSED_IDS :] = True
        suppressed[talker.eos_id] = False
        self._suppressed = suppressed.to(device)

    def first(
        self, scores: Tensor, seen: Tensor, frames: Tensor, greedy: Tensor, noise: Noise
    ) -> Tensor:
        """Choose code group 0, `[B]` int64.

        Args:
            scores: `[B, vocab]` float32.
            seen: `[B, vocab]` bool, ids this take has produced in group 0.
            frames: `[B]` int64, how many it has produced.
            greedy: `[B]` bool, rows that take the best instead of drawing.
        """
        settings = self.settings
        penalty = settings.repetition_penalty
        punished = torch.where(scores < 0, scores * penalty, scores / penalty)
        scores = torch.where(seen, punished, scores)
        scores = scores.masked_fill(self._suppressed, -torch.inf)
        too_early = frames < MIN_NEW_TOKENS
        scores[:, self._eos] = scores[:, self._eos].masked_fill(too_early, -torch.inf)
        drawn = noise.choose(
            probabilities(scores, settings.temperature, settings.top_k, settings.top_p), 0
        )
        return torch.where(greedy, scores.argmax(-1), drawn)

    def later(self, scores: Tensor, group: int, greedy: Tensor, noise: Noise) -> Tensor:
        """Choose a code of group 1 or later, `[B]` int64, from `[B, vocab]` float32 scores."""
        settings = self.settings
        drawn = noise.choose(
            probabilities(
                scores,
                settings.subtalker_temperature,
                settings.subtalker_top_k,
                settings.subtalker_top_p,
            ),
            group,
        )
        return torch.where(greedy, scores.argmax(-1), drawn)
