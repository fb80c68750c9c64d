"""A model while it is being made: every value is known, because the reference executes each node as it is added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from hunt.formats import F32, FLOATS, code_of, short, tensor, widen
from hunt.reference import NoReference, Session
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, shape_inference

MICROSOFT = "com.microsoft"
OPSET = 26
MAX_ELEMENTS = 60_000
#: of floats, that all formats hold
LARGEST = 3e4
#: sizes of dimensions, the borders of blocks and batches first of all
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 257, 1000)
PROFILES = ("normal", "positive", "unit", "whole")


class Unfit(Exception):
    """This operator does not take this value, or gives what no test can judge."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model: `array` is what the reference gives (narrow floats in f32), `code` its ONNX element type."""

    name: str
    array: np.ndarray
    code: int
    kind: str  # "input", "weight", "node", or "hidden": a node's, and no output
    static: bool = False  # known before the program runs

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def is_float(self) -> bool:
        return self.code in FLOATS


@cache
def schema(op: str, domain: str = "") -> Any:
    """Return ONNX's declaration of an operator, or None."""
    try:
        return defs.get_schema(op, OPSET, domain)
    except defs.SchemaError:
        return None


class Draft:
    """Collects inputs, weights and nodes. `code`: the float format of new values; all choices come from `rng`; `sizes`, `room`:
    what dimensions and how many elements inputs have; `at_most`: elements of any value."""

    def __init__(self, rng: np.random.Generator, code: int = F32, sizes: Sequence[int] = SIZES,
                 room: int = MAX_ELEMENTS // 4, at_most: int = MAX_ELEMENTS) -> None:  # fmt: skip
        self.rng = rng
        self.code = code
        self.sizes, self.room, self.at_most = sizes, room, at_most
        self.largest = LARGEST
        self.values: list[Value] = []
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, TensorProto] = {}
        self.counter = 0

    # ---- choices

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of the options. Raises Unfit if there are none."""
        if not options:
            raise Unfit("nothing to choose from")
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def int(self, low: int, high: int) -> int:
        """Return a number of low..high, both included. Raises Unfit if there is none."""
        if high < low:
            raise Unfit("nothing to choose from")
        return int(self.rng.integers(low, high + 1))

    def axis(self, x: Value) -> int:
        if not x.rank:
            raise Unfit("a scalar has no axis")
        return self.pick((-1, self.int(0, x.rank - 1)))

    def shape(self, rank: int, at_most: int = MAX_ELEMENTS) -> tuple[int, ...]:
        """Return random sizes whose product stays below `at_most` and the draft's room."""
        dims = []
        for _ in range(rank):
            room = max(1, min(at_most, self.room) // int(np.prod(dims or [1])))
            dims.append(self.pick([s for s in self.sizes if s <= room]))
        if rank and self.chance(0.6):  # batches and heads are small, rows and channels are not
            dims.sort()
        return tuple(dims)

    # ---- values

    def draw(self, shape: Sequence[int], profile: str = "normal") -> np.ndarray:
        """Return floats that all formats hold: around 0, from 0.25 to 3, within -0.9 and 0.9, or whole and halves."""
        r = self.rng
        if profile == "positive":
            a = r.uniform(0.25, 3.0, shape)
        elif profile == "unit":
            a = r.uniform(-0.9, 0.9, shape)
        elif profile == "whole":
            a = r.integers(-6, 7, shape) / 2
        else:
            a = r.standard_normal(shape)
        return short(np.asarray(a, np.float32))

    def input(self, a: np.ndarray, code: int | None = None) -> Value:
        return self._new(f"x{len(self.values)}", a, code, "input")

    def weight(self, a: np.ndarray, code: int | None = None) -> Value:
        """Add an initialiser."""
        v = self._new(f"w{len(self.values)}", np.asarray(a), code, "weight")
        self.weights[v.name] = tensor(v.name, v.array, v.code)
        return v

    def ints(self, *numbers: int) -> Value:
        return self.weight(np.asarray(numbers, np.int64))

    def like(self, x: Value, shape: Sequence[int] | None = None, profile: str = "normal") -> Value:
        """Return another value of x's type: a weight or an input; an earlier node's if the shape fits."""
        shape = x.shape if shape is None else tuple(shape)
        known = [v for v in self.values if v.code == x.code and v.shape == shape and v is not x and v.kind != "weight"]
        if known and self.chance(0.4):
            return self.pick(known)
        if x.is_float:
            a = self.draw(shape, profile)
        elif x.array.dtype == bool:
            a = self.rng.random(shape) < 0.5
        else:
            a = self.rng.integers(1, 6, shape).astype(x.array.dtype)
        return self.weight(a, x.code) if self.chance(0.5) else self.input(a, x.code)

    def floats(self, x: Value, shape: Sequence[int], profile: str = "normal", scale: float = 1.0) -> Value:
        """Return a weight of x's float format."""
        return self.weight(short(self.draw(shape, profile) * np.float32(scale)), x.code)

    def _new(self, name: str, a: np.ndarray, code: int | None, kind: str) -> Value:
        a = np.asarray(a)
        if code is None:
            code = self.code if a.dtype == np.float32 else code_of(a)
        value = Value(name, a, code, kind, kind == "weight")
        self.values.append(value)
        return value

    # ---- nodes

    def node(self, op: str, inputs: Sequence[Value | None], n_outputs: int = 1, domain: str = "",
             also: Sequence[Value] = (), hides: bool = False, **attrs) -> list[Value]:  # fmt: skip
        """Add a node. Raises Unfit if the reference refuses it or its results are not finite, empty or too large; `hides`: what hides a
        score may be as low as numbers are, infinite, or undefined where all scores are hidden, and is no output."""
        names = [v.name if v is not None else "" for v in inputs]
        while names and not names[-1]:
            names.pop()
        k = self.counter = self.counter + 1
        outputs = [f"v{k}" if not i else f"v{k}_{i}" for i in range(n_outputs)]
        node = helper.make_node(op, names, outputs, name=f"n{k}", domain=domain, **attrs)
        given = [*(v for v in inputs if v is not None), *also]
        found = self._evaluate(node, given)
        if not _typed(node, inputs):
            raise Unfit(f"{op} does not take these element types")
        codes = output_codes(node, given, found)
        for a in found:
            if (
                not 0 < a.size <= self.at_most or a.ndim > 6
            ):  # first: what is repeated takes no room until it is looked at
                raise Unfit(f"{op} gives {a.shape}")
            if (
                a.dtype.kind == "f"
                and not (~np.isfinite(a) | (a < self.largest) if hides else np.abs(a) < self.largest).all()
            ):
                raise Unfit(f"{op} gives numbers that are not finite")
            if a.dtype.kind in "iu" and a.size and np.abs(a.astype(np.float64)).max() >= 2**31 - 1:
                raise Unfit(f"{op} gives numbers beyond 32 bits")
        self.nodes.append(node)
        static = op in ("Shape", "Size") or all(v.static for v in given)
        made = [Value(n, a, c, "hidden" if hides else "node", static) for n, a, c in zip(outputs, found, codes)]
        self.values += made
        return made

    def attempt(self, make: Callable[[], Value]) -> Value | None:
        """Return what `make` adds; None if it does not fit, and nothing of an operator that begins with another stays."""
        nodes, values = len(self.nodes), len(self.values)
        try:
            return make()
        except Unfit:
            del self.nodes[nodes:], self.values[values:]
            return None

    def captured(self, op: str, inputs: Sequence[Value], read: Sequence[Value], **attrs) -> Value:
        """Add a node whose subgraphs read the values `read` of this graph."""
        return self.node(op, inputs, also=read, **attrs)[0]

    def op(self, op: str, *inputs: Value | None, domain: str = "", **attrs) -> Value:
        return self.node(op, inputs, domain=domain, **attrs)[0]

    def _evaluate(self, node: NodeProto, given: list[Value]) -> list[np.ndarray]:
        unique = {v.name: v for v in given}
        infos = [helper.make_tensor_value_info(v.name, v.code, v.shape) for v in unique.values() if v.kind != "weight"]
        stored = [self.weights[v.name] for v in unique.values() if v.kind == "weight"]
        out = [helper.make_empty_tensor_value_info(o) for o in node.output]
        try:
            session = Session(widen(_model(helper.make_graph([node], "one", infos, out, stored))))
            found = session.run({v.name: v.array for v in unique.values() if v.kind != "weight"})
        except NoReference as e:
            raise Unfit(f"{node.op_type}: {e}") from e
        return [found[o] for o in node.output]

    # ---- the result

    def model(self, outputs: Sequence[Value] = ()) -> tuple[ModelProto, dict[str, np.ndarray]]:
        """Return the model with all unread results (and `outputs`) as outputs, and its inputs."""
        used = {n for node in self.nodes for n in node.input}
        inner = {n for node in self.nodes for g in _inner(node) for m in g.node for n in m.input}
        used |= inner
        made = [v for v in self.values if v.kind == "node"]
        first = {n.output[0] for n in self.nodes}
        wanted = {v.name for v in outputs} | {v.name for v in made if v.name not in used and v.name in first}
        ins = [v for v in self.values if v.kind == "input" and v.name in used]
        graph = helper.make_graph(
            self.nodes, "hunted",
            [helper.make_tensor_value_info(v.name, v.code, v.shape) for v in ins],
            [helper.make_tensor_value_info(v.name, v.code, v.shape) for v in made if v.name in wanted],
            [t for n, t in self.weights.items() if n in used])  # fmt: skip
        return _model(graph), {v.name: v.array for v in ins}


def _model(graph: GraphProto) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _inner(node: NodeProto) -> list[GraphProto]:
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def type_text(code: int) -> str:
    """Return ONNX's word for a tensor of an element type."""
    return f"tensor({helper.tensor_dtype_to_string(code).removeprefix('TensorProto.').lower()})"


def _typed(node: NodeProto, inputs: Sequence[Value | None]) -> bool:
    """True if the declaration admits the operands' element types; the reference sees narrow floats as f32."""
    s = schema(node.op_type, node.domain)
    if s is None:
        return True
    table = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    bound: dict[str, int] = {}
    for k, v in enumerate(inputs):
        if v is None:
            continue
        formal = s.inputs[min(k, len(s.inputs) - 1)]
        if type_text(v.code) not in table.get(formal.type_str, [formal.type_str]):
            return False
        if formal.is_homogeneous and bound.setdefault(formal.type_str, v.code) != v.code:
            return False
    return True


def output_codes(node: NodeProto, given: list[Value], found: list[np.ndarray]) -> list[int]:
    """Element types of results: inferred; what ONNX cannot infer has the first float's type."""
    infos = [helper.make_tensor_value_info(v.name, v.code, v.shape) for v in {v.name: v for v in given}.values()]
    out = [helper.make_empty_tensor_value_info(o) for o in node.output]
    known: dict[str, int] = {}
    try:
        graph = shape_inference.infer_shapes(_model(helper.make_graph([node], "one", infos, out))).graph
        known = {o.name: o.type.tensor_type.elem_type for o in graph.output}
    except shape_inference.InferenceError:
        pass
    floats = [v.code for v in given if v.is_float]
    if node.op_type == "CastLike":  # inference passes on the type of the wrong operand
        known = {node.output[0]: given[-1].code}
    codes = []
    for name, a in zip(node.output, found):
        code = known.get(name, 0)
        if not code:
            code = floats[0] if a.dtype == np.float32 and floats else code_of(a)
        codes.append(code)
    return codes
