"""Writes ONNX files: nodes and weights of a graph, as the protobuf messages that the format is made of.

Only what a transformer needs. The same calls give the same bytes on every machine, so that a file that was made here
can be known by its digest.

    graph = Graph()
    x = graph.node("Add", [graph.input("x", FLOAT, ["n", 2]), graph.weight("b", np.ones(2, np.float32))])
    path.write_bytes(graph.bytes({x: (FLOAT, ["n", 2])}))

Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

FLOAT, INT8, INT32, INT64 = 1, 3, 6, 7
"""`TensorProto.DataType`."""
FUSED = "com.microsoft"
"""Domain of onnxruntime's own operators."""
_IR, _OPSET = 8, 17
_KINDS = {"f": FLOAT, "i1": INT8, "i4": INT32, "i8": INT64}

Shape = Sequence[str | int]


class Graph:
    """A graph to which inputs, weights and nodes are added; each is known by the name that adding it returns."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: list[bytes] = []
        self._inputs: list[bytes] = []

    def input(self, name: str, kind: int, shape: Shape) -> str:
        """Adds an input; a dimension with a name has any length."""
        self._inputs.append(_value(name, kind, shape))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        """Adds an array."""
        kind = _KINDS["f" if value.dtype == np.float32 else value.dtype.str[1:]]
        dims = b"".join(_number(1, size) for size in value.shape)
        self._weights.append(
            dims + _number(2, kind) + _text(8, name) + _block(9, np.ascontiguousarray(value).tobytes())
        )
        return name

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", outputs: int = 1, **about: int | float) -> str:
        """Adds a node; an input "" is left out. Returns its output: of several, that with the number 0."""
        name = f"{kind}_{len(self._nodes)}"
        names = [f"{name}:{number}" for number in range(outputs)]
        content = b"".join(_text(1, each) for each in inputs) + b"".join(_text(2, each) for each in names)
        content += _text(3, name) + _text(4, kind)
        self._nodes.append(content + b"".join(_attribute(*each) for each in about.items()) + _text(7, domain))
        return names[0]

    def bytes(self, outputs: Mapping[str, tuple[str, int, Shape]]) -> bytes:
        """The file.

        Args:
            outputs: By what they are called outside: name in the graph, type and shape.
        """
        renamed = [_text(1, inside) + _text(2, name) + _text(4, "Identity") for name, (inside, _, _) in outputs.items()]
        graph = b"".join(_block(1, node) for node in [*self._nodes, *renamed]) + _text(2, "graph")
        graph += b"".join(_block(5, weight) for weight in self._weights)
        graph += b"".join(_block(11, value) for value in self._inputs)
        graph += b"".join(_block(12, _value(name, kind, shape)) for name, (_, kind, shape) in outputs.items())
        versions = _block(8, _text(1, "") + _number(2, _OPSET)) + _block(8, _text(1, FUSED) + _number(2, 1))
        return _number(1, _IR) + _text(2, "mempiler") + _block(7, graph) + versions


def _value(name: str, kind: int, shape: Shape) -> bytes:
    dims = b"".join(_block(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape)
    return _text(1, name) + _block(2, _block(1, _number(1, kind) + _block(2, dims)))


def _attribute(name: str, value: int | float) -> bytes:
    if isinstance(value, float):
        number = bytes([2 << 3 | 5]) + np.float32(value).tobytes()
        return _block(5, _text(1, name) + number + _number(20, 1))
    return _block(5, _text(1, name) + _number(3, value) + _number(20, 2))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _block(field, value.encode())


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
