from functools import cache

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.cpu.hibari_net import BINS, LAG_FRAMES, DecoderState, HibariNet, Prosody
from rtts.engine.cpu.reading import ASSETS

# "hello there", with pauses
IDS = np.array([0, 50, 83, 54, 156, 31, 16, 81, 156, 86, 123, 4, 0], np.int64)


@cache
def net() -> HibariNet:
    return HibariNet((ASSETS / "hibari.onnx").read_bytes())


@cache
def prosody() -> Prosody:
    return net().prosody(IDS, 1.0)


@cache
def whole() -> np.ndarray:
    return net().decode(prosody().features, DecoderState(), last=True)


def test_lengths_are_the_sum_of_durations() -> None:
    """Pitch, features and spectra have two frames for each unit of duration."""
    frames = 2 * int(prosody().durations.sum())
    assert prosody().durations.shape == IDS.shape
    assert prosody().pitch.shape == (frames,)
    assert prosody().features.shape == (1, 130, frames)
    assert whole().shape == (frames, 5 * BINS)


def test_speed_divides_durations() -> None:
    """Faster speech is shorter."""
    assert net().prosody(IDS, 1.3).durations.sum() < prosody().durations.sum()
    assert net().prosody(IDS, 0.7).durations.sum() > prosody().durations.sum()


@given(cuts=st.lists(st.integers(1, 400), max_size=6))
@settings(max_examples=25, deadline=None)
def test_windows_join(cuts: list[int]) -> None:
    """Any windows give every frame once, and what the whole gives up to the int8 scales.

    The scale of the activations is taken over a window, so that spectra of different windows
    differ by a rounding step of 8 bits (rms 0.05 of log magnitudes that span 30); a frame lost,
    doubled or mixed with a wrong neighbour differs by whole units.
    """
    frames = prosody().features.shape[2]
    bounds = sorted({LAG_FRAMES + 1 + cut % (frames - LAG_FRAMES) for cut in cuts} | {frames})
    state, parts, begin = DecoderState(), [], 0
    for end in bounds:
        features = np.ascontiguousarray(prosody().features[:, :, begin:end])
        parts.append(net().decode(features, state, last=end == frames))
        assert sum(map(len, parts)) == (end if end == frames else end - LAG_FRAMES)
        begin = end
    joined = np.concatenate(parts)
    assert joined.shape == whole().shape
    error = np.sqrt(np.mean((joined - whole()) ** 2, axis=1))
    assert error.mean() < 0.1
    assert error.max() < 0.5


def test_the_decoder_is_the_models() -> None:
    """Durations and spectra are those of the model as it ships, up to its 8-bit rounding."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    model = onnxruntime.InferenceSession(
        str(ASSETS / "hibari.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = ["lh", "theta", "ln", "lr", "phi", "f0"]
    *parts, pitch = model.run(names, {"ids": IDS[None], "speed": np.ones(1, np.float32)})
    assert np.abs(pitch[0] - prosody().pitch).max() < 2.0
    assert np.sqrt(np.mean((np.concatenate(parts, axis=1)[0].T - whole()) ** 2)) < 0.1


def test_bits_repeat() -> None:
    """The same windows give the same bits each time, whatever ran before."""
    state = DecoderState()
    net().decode(np.ascontiguousarray(prosody().features[:, :, :60]), state, last=False)
    assert np.array_equal(whole(), net().decode(prosody().features, DecoderState(), last=True))
