import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.level import CEILING, FULL_SCALE, KNEE, to_pcm

FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), max_size=60).map(
    lambda values: np.array(values, np.float32)
)


def pcm(samples: np.ndarray, gain: float = 1.0) -> np.ndarray:
    return np.frombuffer(to_pcm(samples, gain), "<i2")


@given(samples=FLOATS, gain=st.floats(0.01, 10))
def test_nothing_clips(samples: np.ndarray, gain: float) -> None:
    """Whatever comes in, no sample leaves the ceiling, and that is below full scale."""
    assert KNEE < CEILING < 0.99
    assert (np.abs(pcm(samples, gain).astype(int)) <= np.ceil(CEILING * FULL_SCALE)).all()


@given(samples=FLOATS)
def test_louder_is_never_quieter(samples: np.ndarray) -> None:
    """The limiter keeps the order of samples and their sign."""
    ordered = np.sort(samples)
    assert (np.diff(pcm(ordered).astype(int)) >= 0).all()
    assert (pcm(samples).astype(int) * np.sign(samples) >= 0).all()


def test_below_the_knee_only_the_gain() -> None:
    """Samples that fit are scaled and rounded, nothing else."""
    samples = np.linspace(-KNEE / 2, KNEE / 2, 101, dtype=np.float32)
    assert np.array_equal(pcm(samples, 2.0), np.rint(samples * np.float32(2.0) * FULL_SCALE))


@given(samples=FLOATS, cut=st.integers(0, 60))
def test_samples_stand_alone(samples: np.ndarray, cut: int) -> None:
    """Where the samples are cut is not heard."""
    assert to_pcm(samples, 1.7) == to_pcm(samples[:cut], 1.7) + to_pcm(samples[cut:], 1.7)
    assert np.array_equal(samples, samples.copy())
