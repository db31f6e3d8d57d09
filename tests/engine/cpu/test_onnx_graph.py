import contextlib

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.onnx_graph import (
    FLOAT,
    INT64,
    GraphError,
    Node,
    Tensor,
    attribute_name,
    integer_attribute,
    integers_attribute,
    read_graph,
    read_integers,
)
from rtts.engine.cpu.reading import ASSETS

MODEL = (ASSETS / "hibari.onnx").read_bytes()
IDS = Tensor("ids", INT64, (1, "L"))
SPEED = Tensor("speed", FLOAT, (1,))
FEEDS = {
    "ids": np.array([[0, 50, 83, 54, 31, 4, 0]], np.int64),
    "speed": np.ones(1, np.float32),
}


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def test_a_whole_model_survives() -> None:
    """Cut from its own inputs to its own outputs, a model computes what it computed."""
    names = ("lh", "theta", "ln", "lr", "phi")
    outputs = [Tensor(name, FLOAT, (1, 601, "F")) for name in names]
    outputs.append(Tensor("f0", FLOAT, (1, "F")))
    model = read_graph(MODEL).between((IDS, SPEED), outputs)
    expected = session(MODEL).run(None, FEEDS)
    for left, right in zip(expected, session(model).run(None, FEEDS), strict=True):
        assert np.array_equal(left, right)


def test_a_part_is_smaller_than_the_whole() -> None:
    """Only what an output needs is kept, weights included."""
    pitch = read_graph(MODEL).between((IDS, SPEED), (Tensor("f0", FLOAT, (1, "F")),))
    assert len(pitch) < len(MODEL) / 2
    assert session(pitch).run(None, FEEDS)[0].ndim == 2


def test_missing_values_are_named() -> None:
    """A value that no node makes and nobody gives is an error with its name."""
    with pytest.raises(GraphError, match="nowhere"):
        read_graph(MODEL).between((IDS, SPEED), (Tensor("nowhere", FLOAT, (1,)),))
    with pytest.raises(GraphError, match="speed"):
        read_graph(MODEL).between((IDS,), (Tensor("f0", FLOAT, (1, "F")),))


def test_new_nodes_run() -> None:
    """Nodes and index vectors that are put in are computed with."""
    graph = read_graph(MODEL).with_indices("first", (-3,)).with_indices("axis", (1,))
    graph = graph.with_indices("last", (2**31 - 1,))

    def tail(node: Node) -> list[Node]:
        if "f0" not in node.outputs:
            return [node]
        return [
            node,
            Node("Slice", ("f0", "first", "last", "axis"), ("tail",)),
            Node("Concat", ("tail", "tail"), ("twice",), (integer_attribute("axis", -1),)),
        ]

    model = graph.rewired(tail).between(
        (IDS, SPEED), (Tensor("twice", FLOAT, (1, 6)), Tensor("f0", FLOAT, (1, "F")))
    )
    twice, pitch = session(model).run(None, FEEDS)
    assert np.array_equal(twice[0], np.concatenate([pitch[0, -3:]] * 2))


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_come_back(values: list[int]) -> None:
    """A list of integers is read as it was written, one integer likewise."""
    assert read_integers(integers_attribute("pads", values)) == tuple(values)
    for value in values:
        assert read_integers(integer_attribute("group", value)) == (value,)


def test_packed_integers_are_read() -> None:
    """Writers may pack a list into one field; read like any other."""
    packed = b"\x0a\x04pads" + b"\x42\x03\x03\xac\x02" + b"\xa0\x01\x07"
    assert read_integers(packed) == (3, 300)


@given(name=st.text(), value=st.integers(-(2**63), 2**63 - 1))
def test_attributes_carry_their_name(name: str, value: int) -> None:
    """An attribute's name is read back, whatever its value."""
    assert attribute_name(integer_attribute(name, value)) == name


@given(data=st.binary(max_size=200), start=st.integers(0, 1_000), size=st.integers(0, 3_000))
def test_garbage_is_refused(data: bytes, start: int, size: int) -> None:
    """Bytes that are no model raise GraphError and nothing else."""
    for junk in (data, MODEL[start : start + size] + data):
        with contextlib.suppress(GraphError):
            read_graph(junk)
