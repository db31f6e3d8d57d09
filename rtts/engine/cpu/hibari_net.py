"""The hibari network, run in two parts so that speech starts before the sentence is computed.

The model file maps phoneme ids to the spectra of a whole sentence. Most of its cost is a decoder of
nine convolutions, each three frames wide on either side. Here it is cut in front of that decoder:

    prosody   ids, speed -> durations, pitch, decoder features   (once a piece of text)
    decoder   features   -> spectra                              (window by window)

The decoder is rewired to carry the last six frames of every convolution's input from one window to
the next, so that windows of any length join exactly: nothing is computed twice and nothing is
approximated but the scale of the int8 activations, which the model takes over each window instead
of over the sentence. It lags 27 frames (9 convolutions of 3) behind its input.

On the way the depthwise convolutions of both parts are given a second dimension of height 1, for
which onnxruntime has a kernel three times as fast as the one for sequences.

Knows nothing about text, audio or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import onnxruntime

from rtts.engine.cpu.onnx_graph import (
    FLOAT,
    INT64,
    Graph,
    GraphError,
    Node,
    Tensor,
    attribute_name,
    integer_attribute,
    integers_attribute,
    read_graph,
    read_integers,
)

FRAME_HZ: Final = 80  # spectral frames a second: 300 samples at 24 kHz
FRAMES_PER_UNIT: Final = 2  # a duration unit is 25 ms
BINS: Final = 601  # of each of the five spectra
LAG_FRAMES: Final = 27  # 9 convolutions of width 7

FloatArray = npt.NDArray[np.float32]

# Names of the tensors at the cut, in hibari-tts 0.2.1 (hibari.onnx, sha256 5f70741d...).
_DURATIONS = "/Clip_output_0"
_FEATURES = "/Concat_43_output_0"
_PITCH = "f0"
_SPECTRA = "/head/Add_output_0"  # before the transposes: frame-major
_FEATURE_CHANNELS, _CHANNELS = 130, 256
_BLOCKS = 8
_REACH = 3  # frames a convolution looks to each side
_WIDTHS: Final = (_FEATURE_CHANNELS,) + (_CHANNELS,) * _BLOCKS  # channels into each convolution


@dataclass(frozen=True, slots=True)
class Prosody:
    """What the first part of the network decides about a piece of text.

    Attributes:
        durations: `[L]` float32 whole numbers >= 1: length of each phoneme id in units of 25 ms.
        pitch: `[F]` float32 Hz, 0 where unvoiced; F = 2 * sum(durations).
        features: `[1, 130, F]` float32, input of the decoder.
    """

    durations: FloatArray
    pitch: FloatArray
    features: FloatArray


@dataclass(slots=True)
class DecoderState:
    """Where a decoder stands between two windows. Owner: the piece of speech it decodes.

    Attributes:
        history: Last frames of the input of each convolution, `[1, C, 3 or 6]`. It starts with the
            three frames of zero padding that the model has at the start of a sentence.
    """

    history: list[FloatArray] = field(
        default_factory=lambda: [np.zeros((1, c, _REACH), np.float32) for c in _WIDTHS]
    )


class HibariNet:
    """Both parts of the network. Holds weights only: shared freely between threads.

    Args:
        model: Bytes of the model file.
        threads: onnxruntime threads within one operation. Results differ in their last bits
            between thread counts.

    Raises:
        GraphError: The file is not the model this module was written for.
    """

    def __init__(self, model: bytes, *, threads: int = 1) -> None:
        graph = read_graph(model)
        self._prosody = _session(_prosody_model(graph), threads)
        self._decoder = _session(_decoder_model(graph), threads)
        self._decoder_outputs = [_SPECTRA, *(_history(i) for i in range(len(_WIDTHS)))]
        self._no_padding = _padding(0)
        self._end_padding = _padding(_REACH)

    def prosody(self, ids: npt.NDArray[np.int64], speed: float) -> Prosody:
        """Durations, pitch and decoder features of one piece of text.

        Args:
            ids: `[L]` phoneme ids, 0 at both ends.
            speed: 1.0 is the voice's own pace; durations are divided by it.
        """
        durations, pitch, features = self._prosody.run(
            [_DURATIONS, _PITCH, _FEATURES],
            {"ids": ids[None], "speed": np.asarray([speed], np.float32)},
        )
        return Prosody(durations, pitch[0], features)

    def decode(self, features: FloatArray, state: DecoderState, *, last: bool) -> FloatArray:
        """Spectra of the next window.

        Args:
            features: `[1, 130, N]`, the next N frames of `Prosody.features`. The first window must
                be longer than `LAG_FRAMES`, any other may have any length >= 1.
            state: Advanced in place.
            last: No features follow: the frames still held back come too.

        Returns:
            `[M, 5 * 601]` float32: log magnitude and phase of the harmonic part, log magnitude of
            the noise, log magnitude and phase of the residue. M = N - 27 for the first window, N
            for later ones, and 27 more for the last.
        """
        feeds = {_FEATURES: features, **(self._end_padding if last else self._no_padding)}
        feeds.update((_held(i), held) for i, held in enumerate(state.history))
        spectra, *history = self._decoder.run(self._decoder_outputs, feeds)
        state.history = history
        return spectra[0]  # type: ignore[no-any-return]


def _session(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: the cut model draws warnings about unused shapes
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _prosody_model(graph: Graph) -> bytes:
    flat = graph.with_indices("axis.height", (2,)).rewired(_in_the_plane, keeps_shapes=True)
    return flat.between(
        inputs=(Tensor("ids", INT64, (1, "L")), Tensor("speed", FLOAT, (1,))),
        outputs=(
            Tensor(_DURATIONS, FLOAT, ("L",)),
            Tensor(_PITCH, FLOAT, (1, "F")),
            Tensor(_FEATURES, FLOAT, (1, _FEATURE_CHANNELS, "F")),
        ),
    )


def _held(index: int) -> str:
    return f"held.{index}"


def _history(index: int) -> str:
    return f"history.{index}"


def _right(channels: int) -> str:
    return f"right.{channels}"


def _padding(frames: int) -> dict[str, FloatArray]:
    """What stands to the right of a window: nothing, or the model's own zeros at the very end."""
    return {_right(c): np.zeros((1, c, frames), np.float32) for c in set(_WIDTHS)}


def _decoder_model(graph: Graph) -> bytes:
    """The decoder, with the padding of its convolutions replaced by carried frames.

    Each convolution's input x becomes `wide` = history + x (+ end padding); the convolution runs on
    `wide` without padding, the residual connection around it takes the middle of `wide`, and the
    last six frames of `wide` are the history of the next window.
    """
    names = [_FEATURES, "/dec_in/Conv_output_0"]
    names += [f"/dec.{i}/Add_1_output_0" for i in range(_BLOCKS - 1)]
    order = {name: index for index, name in enumerate(names)}
    streaming = (
        graph.with_indices("from.middle", (_REACH,))
        .with_indices("to.middle", (-_REACH,))
        .with_indices("from.history", (-2 * _REACH,))
        .with_indices("to.history", (2**31 - 1,))
        .with_indices("axis.time", (2,))
        .with_indices("axis.height", (2,))
        .rewired(lambda node: _carry_frames(node, order))
        .rewired(_in_the_plane)
    )
    return streaming.between(
        inputs=(
            Tensor(_FEATURES, FLOAT, (1, _FEATURE_CHANNELS, "N")),
            *(Tensor(_held(i), FLOAT, (1, c, f"H{i}")) for i, c in enumerate(_WIDTHS)),
            *(Tensor(_right(c), FLOAT, (1, c, "R")) for c in sorted(set(_WIDTHS))),
        ),
        outputs=(
            Tensor(_SPECTRA, FLOAT, (1, "M", 5 * BINS)),
            *(Tensor(_history(i), FLOAT, (1, c, "K")) for i, c in enumerate(_WIDTHS)),
        ),
    )


def _carry_frames(node: Node, order: dict[str, int]) -> Iterable[Node]:
    """Replace a decoder node by its streaming form; other nodes stay as they are."""
    index = order.get(node.inputs[0]) if node.inputs else None
    if index is None:
        return (node,)
    if node.op_type == "Conv":
        return _streaming_convolution(node, index)
    if node.op_type == "Add":
        # The residual connection: x is delayed by what the convolution looks ahead.
        return (_with_input(node, f"middle.{index}"),)
    return (node,)


def _with_input(node: Node, name: str) -> Node:
    return Node(
        node.op_type,
        (name, *node.inputs[1:]),
        node.outputs,
        node.attributes,
        node.name,
        node.domain,
    )


def _streaming_convolution(node: Node, index: int) -> Iterable[Node]:
    wide, middle = f"wide.{index}", f"middle.{index}"
    unpadded = tuple(a for a in node.attributes if attribute_name(a) != "pads")
    if len(unpadded) + 1 != len(node.attributes):
        raise GraphError(f"convolution {node.name} is not padded as expected")
    yield Node(
        "Concat",
        (_held(index), node.inputs[0], _right(_WIDTHS[index])),
        (wide,),
        (integer_attribute("axis", 2),),
        wide,
    )
    yield Node("Slice", (wide, "from.history", "to.history", "axis.time"), (_history(index),))
    yield Node("Slice", (wide, "from.middle", "to.middle", "axis.time"), (middle,))
    yield Node(node.op_type, (wide, *node.inputs[1:]), node.outputs, unpadded, node.name)


def _in_the_plane(node: Node) -> Iterable[Node]:
    """A depthwise convolution over a sequence, as one over a plane of height 1; others as they are."""
    given = {attribute_name(each): read_integers(each) for each in node.attributes}
    if node.op_type != "Conv" or given["group"] == (1,):
        yield node
        return
    pads = given.get("pads", (0, 0))
    source, weight, bias = node.inputs
    flat, flat_weight, made = (f"{node.outputs[0]}.{part}" for part in ("x", "w", "y"))
    yield Node("Unsqueeze", (source, "axis.height"), (flat,))
    yield Node("Unsqueeze", (weight, "axis.height"), (flat_weight,))  # once, at loading
    yield Node(
        "Conv",
        (flat, flat_weight, bias),
        (made,),
        (
            integers_attribute("dilations", (1, *given["dilations"])),
            integer_attribute("group", given["group"][0]),
            integers_attribute("kernel_shape", (1, *given["kernel_shape"])),
            integers_attribute("pads", (0, pads[0], 0, pads[1])),
            integers_attribute("strides", (1, *given["strides"])),
        ),
        node.name,
    )
    yield Node("Squeeze", (made, "axis.height"), node.outputs)
