"""Random ONNX graphs of views and updates, computed by numpy while they are made.

Values are small integers, and every op picks or adds a few of them, so results are exact in fp32 and in bf16: an update that
writes over what somebody still reads shows as a difference of whole numbers. Nothing here knows the compiler.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, COLUMNS = 6, 5
OPSET = 18


@dataclass
class Value:
    name: str
    array: np.ndarray


def numbers(r: random.Random, *shape: int) -> np.ndarray:
    return np.array([r.randrange(-100, 100) for _ in range(math.prod(shape))], np.float32).reshape(shape)


@dataclass
class Graph:
    """Nodes and what they compute. `inputs`: name -> array; `outputs`: name -> expected array."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)

    def input(self, name: str, array: np.ndarray) -> Value:
        self.inputs[name] = array
        return Value(name, array)

    def const(self, array: np.ndarray) -> Value:
        for name, known in self.constants.items():
            if known.shape == array.shape and known.dtype == array.dtype and (known == array).all():
                return Value(name, known)
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return Value(name, array)

    def node(self, kind: str, array: np.ndarray, *values: Value, **attrs) -> Value:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [v.name for v in values], [name], name=f"{kind}.{name}", **attrs))
        return Value(name, np.array(array, np.float32 if array.dtype.kind == "f" else array.dtype))

    def result(self, value: Value) -> None:
        if value.name in self.inputs or value.name in self.constants or value.name in self.outputs:
            value = self.node("Identity", value.array, value)
        self.outputs[value.name] = value.array

    def model(self) -> onnx.ModelProto:
        info = lambda name, a: helper.make_tensor_value_info(  # noqa: E731
            name, TensorProto.INT64 if a.dtype == np.int64 else TensorProto.FLOAT, a.shape
        )
        graph = helper.make_graph(
            self.nodes, "updates", [info(n, a) for n, a in self.inputs.items()],
            [info(n, a) for n, a in self.outputs.items()],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    # ------------------------------------------------------------------ other names of the same bytes

    def reshape(self, v: Value, *shape: int) -> Value:
        return self.node("Reshape", v.array.reshape(shape), v, self.const(np.array(shape, np.int64)))

    def base(self, v: Value) -> Value:
        return v if v.array.shape == (ROWS, COLUMNS) else self.reshape(v, ROWS, COLUMNS)

    def view(self, v: Value, r: random.Random) -> Value:
        v = self.base(v)
        how = r.choice(("flat", "squeeze", "unsqueeze", "identity", "twice", "deep"))
        if how == "flat":
            return self.reshape(v, ROWS * COLUMNS)
        if how == "identity":
            return self.node("Identity", v.array, v)
        if how == "deep":
            return self.reshape(v, ROWS // 2, 2, COLUMNS)
        wide = self.node("Unsqueeze", v.array[None], v, self.const(np.array([0], np.int64)))
        if how == "unsqueeze":
            return wide
        narrow = self.node("Squeeze", v.array, wide, self.const(np.array([0], np.int64)))
        return self.reshape(narrow, ROWS, 1, COLUMNS) if how == "twice" else narrow

    # ------------------------------------------------------------------ updates

    def update(self, v: Value, r: random.Random, place: Value) -> Value:
        """One of the kinds of updates; `place`: a row number that is known only at run time, shape [1]."""
        how = r.choice(("rows", *["row at"] * 4, "elements", "add", "along 0", "along 1"))
        if how in ("rows", "row at"):
            v = self.base(v)
            first = r.randrange(ROWS - 1)
            if how == "rows":
                at, index = np.array([[first], [first + 1]]), self.const(np.array([[first], [first + 1]], np.int64))
            else:
                at = place.array.reshape(1, 1)
                index = self.reshape(place, 1, 1)
            new = numbers(r, len(at), COLUMNS)
            out = v.array.copy()
            out[at[:, 0]] = new
            return self.node("ScatterND", out, v, index, self.const(new))
        if how in ("elements", "add"):
            v = self.base(v)
            places = r.sample(range(ROWS * COLUMNS), 3)
            index = np.array([divmod(p, COLUMNS) for p in places], np.int64)
            new = numbers(r, 3) if how == "elements" else np.ones(3, np.float32)
            out = v.array.copy()
            out[index[:, 0], index[:, 1]] = new + (out[index[:, 0], index[:, 1]] if how == "add" else 0)
            attrs = {"reduction": "add"} if how == "add" else {}
            return self.node("ScatterND", out, v, self.const(index), self.const(new), **attrs)
        v = self.base(v)
        axis = int(how[-1])
        shape = (2, COLUMNS) if axis == 0 else (ROWS, 2)
        a, b = r.sample(range((ROWS, COLUMNS)[axis]), 2)
        index = np.full(shape, a, np.int64)
        index[(slice(None),) * axis + (1,)] = b
        new = numbers(r, *shape)
        out = v.array.copy()
        np.put_along_axis(out, index, new, axis)
        return self.node("ScatterElements", out, v, self.const(index), self.const(new), axis=axis)

    # ------------------------------------------------------------------ readers

    def read(self, v: Value, other: Value, r: random.Random) -> Value:
        how = r.choice(("Neg", "Relu", "Abs", "Max", "Min", "slice", "transpose"))
        if how in ("Neg", "Relu", "Abs"):
            compute: Callable = {"Neg": np.negative, "Abs": np.abs, "Relu": lambda x: np.maximum(x, 0)}[how]
            return self.node(how, compute(v.array), v)
        v = self.base(v)
        if how in ("Max", "Min"):
            other = self.base(other)
            return self.node(how, (np.maximum if how == "Max" else np.minimum)(v.array, other.array), v, other)
        if how == "slice":  # the rows in another order: two parts change places
            n = r.randrange(1, ROWS)
            bounds = [self.const(np.array([x], np.int64)) for x in (0, n, ROWS)]
            head = self.node("Slice", v.array[:n], v, bounds[0], bounds[1], bounds[0])
            tail = self.node("Slice", v.array[n:], v, bounds[1], bounds[2], bounds[0])
            return self.node("Concat", np.concatenate([tail.array, head.array]), tail, head, axis=0)
        turned = self.node("Transpose", v.array.T, v, perm=[1, 0])
        return self.reshape(turned, ROWS, COLUMNS)


def _steps(g: Graph, pool: list[Value], r: random.Random, place: Value, n: int, recent: int = 6) -> None:
    for _ in range(n):
        v = r.choice(pool[-recent:])
        what = r.choice(("view", "view", "update", "update", "update", "read", "read"))
        if what == "view":
            pool.append(g.view(v, r))
        elif what == "update":
            pool.append(g.update(v, r, place))
        else:
            pool.append(g.read(v, r.choice(pool), r))


def _layers(g: Graph, start: Value, caches: list[Value], r: random.Random, place: Value) -> list[Value]:
    """The same random steps for every cache, twice over inside: what is outlined, and outlined again in that."""
    recipe = [r.randrange(1 << 30) for _ in range(3)]
    x, kept = start, []
    for cache in caches:
        own = g.base(cache)
        for _ in range(2):
            twin = random.Random(recipe[0])
            pool = [own, x]
            _steps(g, pool, twin, place, 7, recent=2)
            own = g.update(twin.choice(pool), twin, place)
            x = g.node("Max", np.maximum(g.base(pool[-1]).array, x.array), g.base(pool[-1]), x)
        mixed = random.Random(recipe[1])
        pool = [x, own]
        _steps(g, pool, mixed, place, 3, recent=2)
        x = g.read(g.base(pool[-1]), own, mixed)
        x = g.base(x)
        kept += [own, *([g.base(cache)] if random.Random(recipe[2]).random() < 0.5 else [])]
    return [*kept, x]


def random_graph(seed: int) -> Graph:
    """A graph of about 20 to 60 nodes with several outputs: views, updated values, values returned twice, inputs as they came."""
    r = random.Random(seed)
    g = Graph()
    x = g.input("x", numbers(r, ROWS, COLUMNS))
    cache = g.input("cache", numbers(r, 1, ROWS, COLUMNS))
    place = g.input("place", np.array([r.randrange(ROWS)], np.int64))
    pool = [x, cache, g.const(numbers(r, ROWS, COLUMNS)), g.node("Neg", -x.array, x)]
    _steps(g, pool, r, place, r.randrange(6, 16))
    if seed % 2:
        caches = [g.input(f"cache{i}", numbers(r, ROWS, COLUMNS)) for i in range(3)]
        pool += _layers(g, g.base(pool[-1]), caches, r, place)
        _steps(g, pool, r, place, 4)
    used = {name for node in g.nodes for name in node.input}
    for v in pool[4:]:
        if v.name not in used or r.random() < 0.3:
            g.result(v)
    if r.random() < 0.3:
        g.result(r.choice((x, cache)))
    if r.random() < 0.3:
        g.result(g.node("Identity", pool[-1].array, pool[-1]))
    return g
