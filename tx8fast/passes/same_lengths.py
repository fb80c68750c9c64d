"""Are the graphs of two lengths one model? Equal ops, equal numbers, and tables of which one is the beginning of the other.

May import: ir, weights by interface, errors. Must not: read weights of a checkpoint.
"""

from __future__ import annotations

from dataclasses import field
from itertools import zip_longest
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, ImportModelError
from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import where
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.records import dataclass
from tx8fast.weights.derived import evaluate
from tx8fast.weights.dtypes import np_dtype
from tx8fast.weights.table import WeightTable

_CONSTANT = ("constant", "get_param")
#: attributes that are sizes of results, or follow from them
_SIZES = ("shape", "size", "sizes", "useful_macs")
#: constants above this are not looked at whole
MAX_TABLE_BYTES = 1 << 26
#: so many ops that one graph has alone are looked past
AHEAD = 16


@dataclass
class Varying:
    """What follows the length, by value of the shorter graph: axes of results, and the elements of a constant that the longest graph has
    (None: too many to be looked at)."""

    axes: dict[Value, frozenset[int]] = field(default_factory=dict)
    tables: dict[Value, np.ndarray | None] = field(default_factory=dict)

    def add(self, other: Varying, doing: str) -> None:
        """Take in what a longer graph adds. Raises ConfigError if a table of the graph before is not the beginning of its."""
        for v, axes in other.axes.items():
            self.axes[v] = self.axes.get(v, frozenset()) | axes
        for v, long in other.tables.items():
            short = self.tables.get(v)
            if short is None or long is None:
                continue
            begins = long[tuple(slice(0, n) for n in short.shape)]
            if begins.shape != short.shape or begins.tobytes() != short.tobytes():
                raise ConfigError(
                    f"{doing}: the model is another one at another length: the values of {where(v.op)} differ; compile each length by itself"  # type: ignore[arg-type]
                )
        self.tables |= other.tables


def check_same_model(short: IRProgram, long: IRProgram, doing: str) -> Varying:
    """Compare the functions `main` of one model at two lengths, op by op.

    Sizes may differ; kinds, wiring, other attributes and weights may not, and of a constant that grows the shorter one
    must be the beginning. Return what follows the length. Raises ConfigError naming the first op that differs.
    """
    varying = Varying()
    numbers: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for found, program in zip(numbers, (short, long)):
        for v in program.main.body.args:
            found[v] = len(found)
    bodies = [list(p.main.body) for p in (short, long)]
    for i, (a, b) in enumerate(zip_longest(*bodies)):
        problem = _difference(short, long, a, b, numbers)
        if problem:
            alone = "" if a and b and (a.kind, a.loc) == (b.kind, b.loc) else _alone(bodies[0][i:], bodies[1][i:])
            way = "give lengths whose graphs have the same ops, or " if alone else ""
            raise ConfigError(
                f"{doing}: the model is another one at another length: {alone or problem}; {way}compile each length by itself"
            )
        for found, op in zip(numbers, (a, b)):
            for r in op.results:
                found[r] = len(found)
        for x, y in zip(a.results, b.results, strict=True):
            axes = frozenset(i for i, (n, m) in enumerate(zip(_dims(x), _dims(y), strict=True)) if n != m)
            if axes:
                varying.axes[x] = axes
            if axes and a.kind in _CONSTANT:
                _look(varying, short, long, x, b)
    return varying


def _dims(v: Value) -> tuple[int, ...]:
    return v.shape if isinstance(v.type, TensorType) else ()


def _look(varying: Varying, short: IRProgram, long: IRProgram, v: Value, op: Op) -> None:
    """Note the elements of a constant that a file or the model holds; a formula is the same at all lengths."""
    if op.kind == "constant":
        varying.tables[v] = op.attrs["value"].array
        return
    place = long.weights.describe(op.attrs["key"])
    if place["kind"] == "derived" and not place["inputs"]:
        own = short.weights.describe(v.op.attrs["key"]) if "key" in v.op.attrs else {}  # type: ignore[union-attr]
        if any(own.get(k) != place[k] for k in ("kind", "expr", "attrs")):
            varying.tables[v] = None
        return
    kind = op.result.type
    few = place["kind"] == "array" and isinstance(kind, TensorType) and kind.size_bytes <= MAX_TABLE_BYTES
    varying.tables[v] = long.weights.view(op.attrs["key"]) if few else None


def _difference(short: IRProgram, long: IRProgram, a: Op | None, b: Op | None, numbers: Any) -> str:
    if a is None or b is None:
        return f"{where(a or b)} has no counterpart"  # type: ignore[arg-type]
    if a.kind in _CONSTANT and b.kind in _CONSTANT:
        try:
            return "" if _begins(short, long, a, b) else f"the values of {where(a)} differ"
        except ImportModelError as e:
            return f"the values of {where(a)} cannot be compared ({e})"
    if a.kind != b.kind or [numbers[0][v] for v in a.operands] != [numbers[1][v] for v in b.operands]:
        return f"{where(a)} became {where(b)}"
    for x, y in zip(a.results, b.results):
        if len(_dims(x)) != len(_dims(y)):
            return f"{where(a)} has shapes {list(_dims(x))} and {list(_dims(y))}"
    for name, x in a.attrs.items():
        y = b.attrs.get(name)
        if name not in _SIZES and type(x) in (float, str, bool, int, tuple) and x != y:
            return f"{where(a)} has {name} = {x!r} and {y!r}"
    return ""


def _begins(short: IRProgram, long: IRProgram, a: Op, b: Op) -> bool:
    """True if the constant of op `a` is the beginning of that of `b` along every dimension."""
    if "key" in a.attrs and "key" in b.attrs:
        if _alike(short.weights, a.attrs["key"], long.weights, b.attrs["key"]):
            return True
        one, two = short.weights.describe(a.attrs["key"]), long.weights.describe(b.attrs["key"])
        if one["kind"] != two["kind"] or one["kind"] in ("missing", "file"):
            return False
        if one["kind"] == "derived" and bool(one["inputs"]) != bool(two["inputs"]):
            return False
        if one["shape"] == two["shape"] and (_stored(short, a) or _stored(long, b)):
            return False
    elif any(op.kind == "get_param" and _stored(p, op) for p, op in ((short, a), (long, b))):
        return False
    x = _values(short, a, a.result.shape)
    y = _values(long, b, a.result.shape)
    return x is not None and y is not None and x.shape == y.shape and x.tobytes() == y.tobytes()


def _alike(short: WeightTable, one: str, long: WeightTable, two: str) -> bool:
    """True if two weights are made of the same bytes in the same way, which is told without reading a checkpoint."""
    a, b = short.describe(one), long.describe(two)
    if a["kind"] == "derived" == b["kind"]:
        inputs = [table[key].source.inputs for table, key in ((short, one), (long, two))]  # type: ignore[union-attr]
        same = all(a[k] == b[k] for k in ("expr", "attrs", "dtype", "shape")) and len(inputs[0]) == len(inputs[1])
        return same and all(_alike(short, x, long, y) for x, y in zip(*inputs))
    if a != b or (a["kind"] == "missing" and one != two):
        return False
    return a["kind"] != "array" or short.view(one).tobytes() == long.view(two).tobytes()


def _stored(program: IRProgram, op: Op) -> bool:
    """True for a parameter that a checkpoint holds, or whose formula takes one."""
    places = [program.weights.describe(op.attrs["key"])]
    for place in places:
        places += place.get("inputs", ())
    return any(place["kind"] in ("missing", "file") for place in places)


def _alone(rest: list[Op], other: list[Op]) -> str:
    """Say which op one graph has and the other has not, if the next ones of that are what the other goes on with: what follows
    is counted by place, so that of a mask more everything behind it would be said to differ."""
    for mine, theirs, name in ((rest, other, "longer"), (other, rest, "shorter")):
        for skipped in range(1, 1 + AHEAD if mine else 0):
            meeting = list(zip(mine[:2], theirs[skipped : skipped + 2]))
            if meeting and all(x.kind == y.kind and x.loc == y.loc for x, y in meeting):
                return f"the graph of the {name} one alone has {where(theirs[0])}"
    return ""


def _values(program: IRProgram, op: Op, shape: tuple[int, ...]) -> np.ndarray | None:
    """The first elements of a constant along every dimension; formulas are evaluated at that size."""
    if len(shape) != len(op.result.shape) or any(n > m for n, m in zip(shape, op.result.shape)):
        return None
    if op.kind == "constant":
        array = op.attrs["value"].array
    else:
        place = program.weights.describe(op.attrs["key"])
        if place["kind"] == "derived" and not place["inputs"]:
            return evaluate(place["expr"], place["attrs"], (), shape, np_dtype(place["dtype"]))
        array = program.weights.view(op.attrs["key"])
    return np.ascontiguousarray(array[tuple(slice(0, n) for n in shape)])
