"""Are the graphs of two lengths one model? Equal ops, equal numbers, and tables of which one is the beginning of the other.

May import: ir, numerics.formats, weights by interface, errors. Must not: read weights of a checkpoint.
"""

from __future__ import annotations

from dataclasses import field
from itertools import zip_longest

import numpy as np

from tx8fast.errors import ConfigError, ImportModelError
from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import where
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.numerics.formats import clamp_finite
from tx8fast.records import dataclass
from tx8fast.weights.derived import evaluate
from tx8fast.weights.dtypes import FLOATS, np_dtype
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
    if _states(short) != _states(long):
        raise ConfigError(
            f"{doing}: the model is another one at another length: parameters that it writes are read or written in another order; "
            "compile each length by itself"
        )
    found = _Comparison(short, long)
    bodies = [computing(p) for p in (short, long)]
    for i, (a, b) in enumerate(zip_longest(*bodies)):
        problem = found.step(a, b)
        if problem:
            alone = "" if a and b and (a.kind, a.loc) == (b.kind, b.loc) else _alone(bodies[0][i:], bodies[1][i:])
            way = "give lengths whose graphs have the same ops, or " if alone else ""
            raise ConfigError(
                f"{doing}: the model is another one at another length: {alone or problem}; {way}compile each length by itself"
            )
    return found.varying


def computing(program: IRProgram) -> list[Op]:
    """Return the ops of `main` without constants and parameters: of these one graph may have more, they are compared where they are taken."""
    return [op for op in program.main.body if op.kind not in _CONSTANT]


def _states(program: IRProgram) -> list[tuple[str, tuple[str, ...]]]:
    """Return what is done, in order, with parameters that the graph writes: these are no constants."""
    uses = [(op, tuple(op.attrs.get("keys", ())) or (op.attrs.get("key", ""),)) for op in program.main.body]
    written = {k for op, keys in uses if op.kind in ("set_param", "set_params") for k in keys}
    return [(op.kind, keys) for op, keys in uses if written & set(keys)]


def constant(v: Value) -> bool:
    return v.op is not None and v.op.kind in _CONSTANT


class _Comparison:
    """What of two graphs was found to be the same."""

    def __init__(self, short: IRProgram, long: IRProgram) -> None:
        self.short, self.long, self.varying = short, long, Varying()
        self.same: dict[Value, Value] = dict(zip(short.main.body.args, long.main.body.args))
        self.arrays: dict[
            Value, dict[Value, None]
        ] = {}  # constants of the longer graph that stand for one of the shorter

    def step(self, a: Op | None, b: Op | None) -> str:
        """Compare the next ops; return what differs."""
        if a is None or b is None:
            return f"{where(a or b)} has no counterpart"  # type: ignore[arg-type]
        if a.kind != b.kind or len(a.operands) != len(b.operands):
            return f"{where(a)} became {where(b)}"
        for x, y in zip(a.operands, b.operands):
            problem = self._constants(x, y) if constant(x) and constant(y) else ""
            if problem:
                return problem
            if not (constant(x) and constant(y)) and self.same.get(x) is not y:
                return f"{where(a)} became {where(b)}, which takes other values"
        for name, x in a.attrs.items():
            y = b.attrs.get(name)
            if name == "visible" and any(isinstance(v.type, TensorType) for v in a.operands[1:]):
                continue  # what a mask shows, which is compared itself: a short one may show all, and be no band
            if name not in _SIZES and type(x) in (float, str, bool, int, tuple) and x != y:
                return f"{where(a)} has {name} = {x!r} and {y!r}"
        for x, y in zip(a.results, b.results, strict=True):
            if len(_dims(x)) != len(_dims(y)):
                return f"{where(a)} has shapes {list(_dims(x))} and {list(_dims(y))}"
            self.same[x] = y
            self._grown(x, y)
        return ""

    def _grown(self, x: Value, y: Value) -> bool:
        axes = frozenset(i for i, (n, m) in enumerate(zip(_dims(x), _dims(y), strict=True)) if n != m)
        if axes:
            self.varying.axes[x] = axes
        return bool(axes)

    def _constants(self, x: Value, y: Value) -> str:
        known = self.arrays.setdefault(x, {})
        if y in known:
            return ""
        try:
            if not _begins(self.short, self.long, x.op, y.op):  # type: ignore[arg-type]
                return f"the values of {where(x.op)} differ"  # type: ignore[arg-type]
        except ImportModelError as e:
            return f"the values of {where(x.op)} cannot be compared ({e})"  # type: ignore[arg-type]
        first = next(iter(known), y)
        if first is not y and (_dims(first) != _dims(y) or not _begins(self.long, self.long, first.op, y.op)):  # type: ignore[arg-type]
            return (
                f"{where(x.op)} is one table in the graph of the shorter one, where that of the longer one has two that differ, "  # type: ignore[arg-type]
                f"{where(first.op)} and {where(y.op)}"  # type: ignore[arg-type]
            )
        known[y] = None
        if self._grown(x, y):
            _look(self.varying, self.short, self.long, x, y.op)  # type: ignore[arg-type]
        return ""


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
        if one["shape"] != two["shape"] and _holds_for_any(short.weights, a.attrs["key"], long.weights, b.attrs["key"]):
            return True
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


def _holds_for_any(short: WeightTable, one: str, long: WeightTable, two: str) -> bool:
    """True if one formula of stored numbers gives a table and its beginning, whatever the numbers: tried with others, not read."""
    a, b = short.describe(one), long.describe(two)
    if any(a.get(k) != b.get(k) for k in ("kind", "expr", "attrs", "inputs", "dtype")) or not a.get("inputs"):
        return False
    if len(a["shape"]) != len(b["shape"]) or any(n > m for n, m in zip(a["shape"], b["shape"])):
        return False
    inputs = [table[key].source.inputs for table, key in ((short, one), (long, two))]  # type: ignore[union-attr]
    if not all(_alike(short, x, long, y) for x, y in zip(*inputs)) or any(
        i["dtype"] not in FLOATS for i in a["inputs"]
    ):
        return False
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(i["shape"]).astype(np_dtype(i["dtype"])) for i in a["inputs"]]
    x, y = (evaluate(t["expr"], t["attrs"], given, tuple(t["shape"]), np_dtype(t["dtype"])) for t in (a, b))
    return x.tobytes() == np.ascontiguousarray(y[tuple(slice(0, n) for n in x.shape)]).tobytes()


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
        if op.result.dtype in FLOATS and array.dtype != np_dtype(op.result.dtype):  # a table stays in its file's format
            array = clamp_finite(array, np_dtype(op.result.dtype))
    return np.ascontiguousarray(array[tuple(slice(0, n) for n in shape)])
