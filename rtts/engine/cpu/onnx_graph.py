"""Just enough of the ONNX file format to cut a piece out of a model and to rewire it.

Reads a serialized `ModelProto` into nodes and initializers and writes a smaller model back, so that
the model that ships in a voice's package can be run in parts without the `onnx` package. Tensors
are carried as opaque bytes. It knows nothing about speech, and does not check types or shapes:
onnxruntime does that when it loads the result.

Source: field numbers are those of `onnx.proto` (ONNX IR version 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

FLOAT: Final = 1  # TensorProto.DataType
INT64: Final = 7

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf wire types
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER = 1, 2, 5
_GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_VALUE = 11, 12, 13
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = (
    1,
    2,
    3,
    4,
    5,
    7,
)
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_INTS, _ATTRIBUTE_TYPE = 1, 3, 8, 20
_ATTRIBUTE_TYPE_INT, _ATTRIBUTE_TYPE_INTS = 2, 7
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_NAME, _TENSOR_RAW_DATA = 1, 2, 8, 9
_VALUE_NAME, _VALUE_TYPE = 1, 2


class GraphError(ValueError):
    """The bytes are not the ONNX model that was expected."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A graph input or output.

    Attributes:
        name: As the nodes spell it.
        element: `FLOAT` or `INT64`.
        shape: A number for a fixed dimension, a name for one that varies.
    """

    name: str
    element: int
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `attributes` holds whole encoded attribute fields, in order."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[bytes, ...] = ()
    name: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's operations and weights, without its interface.

    Attributes:
        nodes: In an order in which they can run.
        initializers: Encoded `TensorProto` by name.
        shapes: Encoded `ValueInfoProto` by name: hints about what the nodes make, from which
            onnxruntime plans better.
        header: Everything of the `ModelProto` but the graph (IR version, operator sets).
    """

    nodes: tuple[Node, ...]
    initializers: dict[str, bytes]
    shapes: dict[str, bytes]
    header: bytes

    def rewired(
        self, rewire: Callable[[Node], Iterable[Node]], *, keeps_shapes: bool = False
    ) -> Graph:
        """A copy in which `rewire` has replaced each node.

        Args:
            rewire: Gives what stands in a node's place.
            keeps_shapes: What had a name has the same shape as before, so that hints stay right.
        """
        nodes = tuple(new for node in self.nodes for new in rewire(node))
        return replace(self, nodes=nodes, shapes=self.shapes if keeps_shapes else {})

    def with_indices(self, name: str, values: Sequence[int]) -> Graph:
        """A copy with one more initializer: a vector of int64."""
        tensor = (
            _number(_TENSOR_DIMS, len(values))
            + _number(_TENSOR_DATA_TYPE, INT64)
            + _text(_TENSOR_NAME, name)
            + _block(
                _TENSOR_RAW_DATA, b"".join(v.to_bytes(8, "little", signed=True) for v in values)
            )
        )
        return replace(self, initializers={**self.initializers, name: tensor})

    def between(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bytes:
        """The serialized model that computes `outputs` from `inputs`, with nothing else in it.

        Raises:
            GraphError: An output exists nowhere, or needs a value that is neither made by a node
                nor among `inputs`.
        """
        given = {tensor.name for tensor in inputs}
        asked = {tensor.name for tensor in outputs}
        wanted = set(asked)
        kept: list[Node] = []
        used: set[str] = set()
        for node in reversed(self.nodes):
            if wanted.isdisjoint(node.outputs):
                continue
            kept.append(node)
            wanted.difference_update(node.outputs)
            for name in filter(None, node.inputs):
                if name in self.initializers:
                    used.add(name)
                elif name not in given:
                    wanted.add(name)
        if wanted:
            raise GraphError(f"no node makes {', '.join(sorted(wanted))}")
        graph = b"".join(
            [
                *(_block(_GRAPH_NODE, _encode_node(node)) for node in reversed(kept)),
                _text(_GRAPH_NAME, "part"),
                *(
                    _block(_GRAPH_INITIALIZER, tensor)
                    for name, tensor in self.initializers.items()
                    if name in used
                ),
                *(
                    _block(_GRAPH_VALUE, self.shapes[name])
                    for node in kept
                    for name in node.outputs
                    if name in self.shapes and name not in asked
                ),
                *(_block(_GRAPH_INPUT, _encode_value(tensor)) for tensor in inputs),
                *(_block(_GRAPH_OUTPUT, _encode_value(tensor)) for tensor in outputs),
            ]
        )
        return self.header + _block(_MODEL_GRAPH, graph)


def read_graph(model: bytes) -> Graph:
    """Parse a serialized `ModelProto`.

    Raises:
        GraphError: The bytes are no protobuf message, or hold no graph.
    """
    header: list[bytes] = []
    graph: memoryview | None = None
    for number, value, raw in _fields(memoryview(model)):
        if number == _MODEL_GRAPH and isinstance(value, memoryview):
            graph = value
        else:
            header.append(bytes(raw))
    if graph is None:
        raise GraphError("the model holds no graph")
    nodes: list[Node] = []
    initializers: dict[str, bytes] = {}
    shapes: dict[str, bytes] = {}
    for number, value, _ in _fields(graph):
        if number == _GRAPH_NODE and isinstance(value, memoryview):
            nodes.append(_decode_node(value))
        elif number == _GRAPH_INITIALIZER and isinstance(value, memoryview):
            initializers[_first_text(value, _TENSOR_NAME)] = bytes(value)
        elif number == _GRAPH_VALUE and isinstance(value, memoryview):
            shapes[_first_text(value, _VALUE_NAME)] = bytes(value)
    return Graph(tuple(nodes), initializers, shapes, b"".join(header))


def integer_attribute(name: str, value: int) -> bytes:
    """An encoded integer attribute for `Node.attributes`."""
    return (
        _text(_ATTRIBUTE_NAME, name)
        + _number(_ATTRIBUTE_INT, value)
        + _number(_ATTRIBUTE_TYPE, _ATTRIBUTE_TYPE_INT)
    )


def integers_attribute(name: str, values: Iterable[int]) -> bytes:
    """An encoded attribute that is a list of integers."""
    return (
        _text(_ATTRIBUTE_NAME, name)
        + b"".join(_number(_ATTRIBUTE_INTS, value) for value in values)
        + _number(_ATTRIBUTE_TYPE, _ATTRIBUTE_TYPE_INTS)
    )


def read_integers(attribute: bytes) -> tuple[int, ...]:
    """The integers of an encoded attribute: one, or a list of them, packed or not."""
    values: list[int] = []
    for number, value, _ in _fields(memoryview(attribute)):
        if number in (_ATTRIBUTE_INT, _ATTRIBUTE_INTS):
            values += [value] if isinstance(value, int) else _packed(value)
    return tuple(value - 2**64 if value >= 2**63 else value for value in values)


def attribute_name(attribute: bytes) -> str:
    """The name of an encoded attribute."""
    return _first_text(memoryview(attribute), _ATTRIBUTE_NAME)


# --- protobuf ------------------------------------------------------------------------------------


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The variable-length number at `at`, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise GraphError("a number runs past the end of its message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview, memoryview]]:
    """Each field of a message: its number, its value, and its bytes whole."""
    at = 0
    while at < len(data):
        start = at
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value: int | memoryview
            value, at = _varint(data, at)
        else:
            if wire == _BYTES:
                size, at = _varint(data, at)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise GraphError(f"unknown wire type {wire}")
            if at + size > len(data):
                raise GraphError("a field runs past the end of its message")
            value = data[at : at + size]
            at += size
        yield key >> 3, value, data[start:at]


def _packed(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _decode_node(data: memoryview) -> Node:
    texts: dict[int, list[str]] = {}
    attributes: list[bytes] = []
    for number, value, _ in _fields(data):
        if not isinstance(value, memoryview):
            continue
        if number == _NODE_ATTRIBUTE:
            attributes.append(bytes(value))
        elif number in (_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE, _NODE_DOMAIN):
            texts.setdefault(number, []).append(_decode(value))
    return Node(
        op_type="".join(texts.get(_NODE_OP_TYPE, ())),
        inputs=tuple(texts.get(_NODE_INPUT, ())),
        outputs=tuple(texts.get(_NODE_OUTPUT, ())),
        attributes=tuple(attributes),
        name="".join(texts.get(_NODE_NAME, ())),
        domain="".join(texts.get(_NODE_DOMAIN, ())),
    )


def _first_text(data: memoryview, wanted: int) -> str:
    for number, value, _ in _fields(data):
        if number == wanted and isinstance(value, memoryview):
            return _decode(value)
    return ""


def _decode(data: memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise GraphError("a name is not UTF-8") from error


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    """A varint field; negative numbers as 64-bit two's complement, as protobuf's int64 does."""
    return _encode_varint(field << 3 | _VARINT) + _encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _block(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | _BYTES) + _encode_varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _block(field, value.encode())


def _encode_node(node: Node) -> bytes:
    parts = [
        *(_text(_NODE_INPUT, name) for name in node.inputs),
        *(_text(_NODE_OUTPUT, name) for name in node.outputs),
        _text(_NODE_NAME, node.name),
        _text(_NODE_OP_TYPE, node.op_type),
        *(_block(_NODE_ATTRIBUTE, attribute) for attribute in node.attributes),
    ]
    if node.domain:
        parts.append(_text(_NODE_DOMAIN, node.domain))
    return b"".join(parts)


def _encode_value(tensor: Tensor) -> bytes:
    """A `ValueInfoProto`: name, element type and shape."""
    dims = b"".join(
        _block(1, _text(2, dim) if isinstance(dim, str) else _number(1, dim))
        for dim in tensor.shape
    )
    tensor_type = _number(1, tensor.element) + _block(2, dims)
    return _text(_VALUE_NAME, tensor.name) + _block(_VALUE_TYPE, _block(1, tensor_type))
