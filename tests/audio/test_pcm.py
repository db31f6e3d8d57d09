from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rtts.audio.pcm import pcm_bytes, to_s16

FLOATS = arrays(
    np.float32,
    st.integers(0, 50),
    elements=st.floats(-4, 4, width=32),
)


@given(FLOATS)
def test_to_s16_rounds_and_clips(samples: np.ndarray) -> None:
    """Every sample is the nearest 16-bit number to 32767 times itself, at most +-32767."""
    before = samples.copy()
    expected = np.clip(np.rint(samples * np.float32(32767)), -32767, 32767)
    assert (np.frombuffer(to_s16(samples), "<i2") == expected).all()
    assert (samples == before).all(), "the input is left as it was"


def test_to_s16_ends_of_the_scale() -> None:
    """Full scale is +-32767, and -32768 never comes out."""
    samples = np.array([0, 1, -1, 2, -2, np.inf, -3e38, 1e-9], np.float32)
    assert np.frombuffer(to_s16(samples), "<i2").tolist() == [
        0, 32767, -32767, 32767, -32767, 32767, -32767, 0,
    ]  # fmt: skip


def test_nan_is_refused() -> None:
    """NaN has no honest value."""
    with pytest.raises(ValueError, match="NaN"):
        to_s16(np.array([0.0, np.nan], np.float32))


def test_pcm_bytes_takes_any_buffer_of_whole_samples() -> None:
    """bytes pass through uncopied; other buffers are copied; half a sample is an error."""
    data = b"abcd"
    assert pcm_bytes(data) is data
    for buffer in (bytearray(data), memoryview(data), memoryview(data).cast("h")):
        assert pcm_bytes(buffer) == data
    with pytest.raises(ValueError, match="sample"):
        pcm_bytes(b"abc")
