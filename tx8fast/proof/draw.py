"""What the inputs and parameters of a model are in a proof: numbers are drawn, what decides or hides is concrete.

May import: numpy, graph_table, proof.*. Must not: read weights but through the function it is given.

Numbers are random elements, one stream for every input and every weight key. Integers are drawn below the smallest axis
that they index, first and last place among them; a single one is the last but one, the last, or drawn, by the seed. Constants that the model holds for itself (masks, tables of
positions, scalars) keep their values: what hides, hides, and zeros and ones are themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tx8fast.graph_table import TensorSpec
from tx8fast.proof.cells import HIDDEN, Elements
from tx8fast.proof.constants import HIDING, HIDING_F16
from tx8fast.proof.expression import CONCRETE, Drawn, Value
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph, Instance
from tx8fast.proof.primes import word

#: (weight key, chip) -> the values of a constant that the model holds for itself, None for a weight
Known = Callable[[str, int], "np.ndarray | None"]

#: kind -> operands that hold places, and the operand and axis attribute that they are places of
_INDEX = {
    "gather": 1,
    "embedding": 1,
    "gather_elements": 1,
    "gather_nd": 1,
    "scatter": 1,
    "scatter_nd": 1,
    "kv_update": 2,
}
#: kinds whose integer results keep to the range of their operands, as far as a limit is concerned
_KEEPS = frozenset(
    {"convert", "broadcast", "transpose", "slice", "concat", "channel_norm", "reshape", "select", "gather"}
)
#: constants of more distinct values than this are drawn, but for zeros, ones and what hides
MOST_CONSTANTS = 1024
#: seed modulo 4 -> how far before the end a single place is; other seeds draw it
ALMOST_LAST = {1: 2, 2: 1}
#: parameters of this many elements are drawn where they are used
LARGE = 1 << 22


def limits(graph: Graph) -> dict[str, int]:
    """Return for inputs and parameters of integers (roots) that index an axis how many places the smallest such axis has."""
    source: dict[str, set[str]] = {r: {r} for r in (*graph.inputs, *graph.params) if graph.spec_of(r).dtype in CONCRETE}
    found: dict[str, int] = {}
    for op in graph.instances:
        roots = [graph.roots[n] if n else "" for n in op.inputs]
        kind = op.record.kind.rstrip("_")
        if kind in _INDEX:
            for r in source.get(roots[_INDEX[kind]], ()):
                found[r] = min(found.get(r, 1 << 62), _places(kind, op))
        if kind in _KEEPS and op.record.results[0].dtype in CONCRETE:
            source[op.outputs[0]] = set().union(*(source.get(r, set()) for r in roots))
    return found


def _places(kind: str, op: Instance) -> int:
    specs = op.record.operands
    assert specs[0] is not None and specs[1] is not None
    shape = specs[0].shape
    if kind == "embedding":
        return shape[0]
    if kind.endswith("_nd"):
        first = op.record.attr("batch_dims") if kind == "gather_nd" else 0
        return min(shape[first : first + specs[1].shape[-1]], default=1)
    axis = op.record.attr("axis")
    return shape[axis] - (specs[1].shape[axis] - 1 if kind == "kv_update" else 0)


def input_value(field: Field, name: str, spec: TensorSpec, limit: int | None) -> Value:
    """Return the value of a model's input. limit: how many values an integer may take; 2 if nothing says."""
    if spec.dtype not in CONCRETE:
        return field.random(f"input {name}", spec.shape)
    rng = np.random.Generator(np.random.PCG64(word("input", field.seed, name)))
    found = rng.integers(0, max(1, limit or 2), spec.shape)
    if found.size == 1 and limit is not None and limit > 2 and field.seed % 4 in ALMOST_LAST:
        # of a position in a cache: nearly all is seen and something hidden, then all is seen
        found[...] = limit - ALMOST_LAST[field.seed % 4]
    if found.size > 1:  # the first and the last place; of a mask, something that is seen
        found.reshape(-1)[0] = 1 if limit is None else 0
        found.reshape(-1)[-1] = (limit or 2) - 1
    if limit is None and found.ndim and found.size:
        found[..., 0] = 1
    return found.astype(CONCRETE[spec.dtype])


def constant_value(field: Field, key: str, values: np.ndarray, dtype: str) -> Value:
    """Return a constant of the model. Integers stay concrete."""
    if dtype in CONCRETE:
        return values.astype(CONCRETE[dtype])
    wide = values.astype(np.float64)
    fmt = dtype if dtype in ("bf16", "f16") else "f32"
    if len(np.unique(wide)) <= MOST_CONSTANTS:
        return field.numbers(wide, fmt)
    drawn = field.random(key, values.shape)
    exact = field.numbers(np.where(np.isin(wide, (0.0, 1.0, -1.0)), wide, 0).astype(np.int64))
    own = np.isin(wide, (0.0, 1.0, -1.0))
    p = np.where(wide <= (HIDING_F16 if fmt == "f16" else HIDING), np.uint32(HIDDEN), np.where(own, exact.p, drawn.p))
    assert exact.q is not None and drawn.q is not None
    return Elements(p, np.where(own, exact.q, drawn.q))


def bands(graph: Graph) -> frozenset[str]:
    """Return the weight keys that masks are made of whose rows see a band of keys: the compiler has looked at their values, and
    programs leave out what they hide."""
    softmaxes = [op for op in graph.instances if op.record.kind.rstrip("_") == "softmax" and op.record.attr("visible")]
    waiting = [name for op in softmaxes for name in op.inputs[1:2]]
    found: set[str] = set()
    while waiting:
        root = graph.roots.get(waiting.pop(), "")
        if root in graph.made and root not in found:
            waiting += graph.made[root].inputs
        found.add(root)
    return frozenset(graph.params[root] for root in found if root in graph.params)


def stream_of(key: str, chip: int) -> str:
    """Return the name of the stream that a parameter's elements are drawn from; chip -1: on all."""
    return key if chip < 0 else f"{key} of chip {chip}"


def param_value(field: Field, key: str, chip: int, spec: TensorSpec, known: Known, limit: int | None) -> Value | Drawn:
    """Return the value of a parameter on a chip (-1: on all); weights are drawn, and are not read."""
    values = known(key, chip)
    stream = stream_of(key, chip)
    if values is not None:
        return constant_value(field, stream, np.asarray(values).reshape(spec.shape), spec.dtype)
    if spec.dtype not in CONCRETE:
        large = math.prod(spec.shape) >= LARGE
        return Drawn(field, stream, spec.shape) if large else field.random(stream, spec.shape)
    kind = CONCRETE[spec.dtype]
    if limit is not None or kind is np.bool_:
        low, high = 0, limit or 2
    elif spec.dtype in ("i4", "u4"):
        low, high = (-8, 8) if spec.dtype == "i4" else (0, 16)
    else:
        low, high = max(np.iinfo(kind).min, -(1 << 31)), min(np.iinfo(kind).max, 1 << 31)
    rng = np.random.Generator(np.random.PCG64(word("param", field.seed, stream)))
    return rng.integers(low, high, spec.shape).astype(kind)
