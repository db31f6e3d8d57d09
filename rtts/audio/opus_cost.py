"""What encoding one Opus packet costs on this machine. Measured, because machines differ tenfold.

The clock is an argument; nothing is measured unless somebody asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rtts.audio.formats import make_encoder, resolve_format
from rtts.audio.pcm import to_s16

RATE_HZ = 24_000
_PACKETS = 25
# Short slices, the quickest of several runs for each: on a busy machine other processes fall into
# some of them, but hardly into the same one every time.
_SLICE_PACKETS = 5
_RUNS = 5


def packet_cost_s(complexity: int, clock: Callable[[], float]) -> float:
    """Seconds that one 20 ms packet takes at 24 kHz and 32 kbit/s; takes about 20 ms to find out.

    Args:
        complexity: libopus effort, 0 to 10.
        clock: Monotonic seconds.

    Raises:
        ConfigError: There is no libopus.
    """
    pcm = to_s16(_buzz(_PACKETS * RATE_HZ // 50))
    opus = resolve_format("opus", "raw", RATE_HZ, 32_000, 20, RATE_HZ)
    n_bytes = len(pcm) * _SLICE_PACKETS // _PACKETS
    slices = [pcm[at : at + n_bytes] for at in range(0, len(pcm), n_bytes)]
    quickest_s = [math.inf] * len(slices)
    for _ in range(_RUNS):
        encoder = make_encoder(opus, RATE_HZ, complexity=complexity)
        for index, piece in enumerate(slices):
            began = clock()
            encoder.encode(piece)
            quickest_s[index] = min(quickest_s[index], clock() - began)
    return sum(quickest_s) / _PACKETS


def _buzz(n_samples: int) -> NDArray[np.float32]:
    """A voice-like signal: 25 harmonics of a gliding pitch under a syllable-rate envelope."""
    time_s = np.arange(n_samples) / RATE_HZ
    phase = 2 * np.pi * (180 * time_s + 20 * np.sin(2 * np.pi * time_s))
    tones = np.sum([np.sin(k * phase) / k for k in range(1, 26)], axis=0)
    noise = np.random.default_rng(1).standard_normal(n_samples)
    wave = (tones + 0.05 * noise) * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * time_s))
    return np.asarray(0.3 * wave / np.abs(wave).max(), dtype=np.float32)
