"""From float samples to 16-bit PCM: a fixed gain, and peaks that cannot clip.

Every sample is a function of itself alone, so that the grouping of samples into calls is not heard.
Knows nothing about voices.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rtts.engine.cpu.voice import FloatArray

# Straight up to the knee, then bent so that no input reaches the ceiling. The embedded voice at
# +4.5 dB peaks at 0.95 of full scale at most, usually below 0.6; Kokoro's peaks reach 1.13.
KNEE: Final = 0.85
CEILING: Final = 0.98
FULL_SCALE: Final = 32_767


def to_pcm(samples: FloatArray, gain: float) -> bytes:
    """Amplify, limit and round.

    Args:
        samples: `[S]`, 1.0 is full scale.
        gain: Factor.

    Returns:
        s16le bytes, every sample within `CEILING` of full scale.
    """
    scaled = samples * np.float32(gain)
    size = np.abs(scaled)
    loud = size > KNEE
    if loud.any():
        room = np.float32(CEILING - KNEE)
        over = (size[loud] - np.float32(KNEE)) / room
        scaled[loud] = np.copysign(np.float32(KNEE) + room * np.tanh(over), scaled[loud])
    scaled *= FULL_SCALE
    pcm: bytes = np.rint(scaled, out=scaled).astype("<i2").tobytes()
    return pcm
