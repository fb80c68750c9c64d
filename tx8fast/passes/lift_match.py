"""What the lifting passes share: looking through a graph for the pieces of an idiom.

May import: ir, passes.canonicalize, passes.effects. Must not: change a graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tx8fast.ir.attrs import DENSE_DTYPES, DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Rewriter, is_dead
from tx8fast.ir.types import TensorType
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.effects import reads_only_state, written_states

#: bits of a number's fraction, the leading one included
_SIGNIFICANT_BITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
#: how often a constant may have been rounded, where not once
_ROUNDINGS = {"f32": 4}
#: a constant computed here, in doubles, is off by a few of their steps
_DOUBLE = 1e-14
_PARAMETRIC = frozenset({"reshape", "convert", "add", "sub", "mul", "neg", "broadcast", "transpose", "rsqrt"})


def static(*values: Value) -> bool:
    """True if all are tensors of known shape."""
    return all(isinstance(v.type, TensorType) and v.type.is_static for v in values)


def made_by(v: Value, *kinds: str) -> Op | None:
    """The op that defines `v` if it is of one of `kinds`."""
    op = v.op
    return op if op is not None and op.kind in kinds else None


def sole_user(v: Value) -> Op | None:
    """The op that reads `v`, once, if it is the only one; ops that are dead but not gone yet do not count."""
    found = [op for op, _ in v.uses if not is_dead(op)]
    return found[0] if len(found) == 1 else None


def used_once(v: Value) -> bool:
    return sole_user(v) is not None


def leaves(v: Value) -> bool:
    """True if `v` is a result of the function as it stands."""
    return any(u.kind in ("return", "subgraph_return") for u in v.users)


def orders(op: Op) -> Iterator[tuple[Value, Value]]:
    """The operands of a binary op, both ways round."""
    a, b = op.operands
    yield a, b
    yield b, a


def same(a: Value, b: Value, depth: int = 4) -> bool:
    """True if both are one value, or computed alike from the same values."""
    if a is b:
        return True
    p, q = a.op, b.op
    if depth == 0 or p is None or q is None or p.info is not q.info or a.index != b.index or p.regions:
        return False
    if a.type is not b.type or len(p.operands) != len(q.operands) or p.attrs != q.attrs:
        return False
    return all(same(x, y, depth - 1) for x, y in zip(p.operands, q.operands))


def is_parameter(v: Value, depth: int = 8) -> bool:
    """True for a constant, a weight, or simple arithmetic of them."""
    op = v.op
    if op is None or depth == 0:
        return False
    if op.kind in ("constant", "get_param"):
        return True
    return op.kind in _PARAMETRIC and all(is_parameter(x, depth - 1) for x in op.operands)


def half_step(c: float, dtype: str) -> float:
    """What rounding to `dtype` may have done to a constant that is `c` now, as a share of it; 0 for powers of two, which stand for themselves.

    Half the distance of two neighbours, so that of a format's numbers only the nearest one means a given number. In f32
    exporters and folding compute with constants: a few roundings, which no result of f32 tells from one.
    """
    fraction = abs(math.frexp(c)[0])
    if fraction in (0.0, 0.5) or dtype not in _SIGNIFICANT_BITS or not math.isfinite(c):
        return 0.0
    return _ROUNDINGS.get(dtype, 1) * 2.0 ** -(_SIGNIFICANT_BITS[dtype] + 1) / fraction


def close(c: float, meant: float, share: float) -> bool:
    """True if a constant that rounding has moved by at most this share of it may have been `meant`."""
    return math.isclose(c, meant, rel_tol=max(share, _DOUBLE))


def scaled(v: Value) -> tuple[Value, float] | None:
    """(x, c) if `v` is x * c or x / c' with a known positive c = 1 / c' and the type of x. Of integers the factor stays where it is: it brings
    into range what a narrow float does not hold."""
    op = made_by(v, "mul", "div")
    if op is None:
        return None
    for x, other in orders(op) if op.kind == "mul" else [tuple(op.operands)]:
        c = splat(other)
        if c is not None and c > 0 and math.isfinite(c) and x.type is v.type and not _counts(x):
            return x, float(c) if op.kind == "mul" else 1.0 / float(c)
    return None


def may_replace(factor: float, own: Sequence[float], dtype: str) -> bool:
    """True if one factor may stand for a model's own ones: not if f16 lacks it and has all of them, as a model in another format may
    yet be computed in f16."""
    return in_f16(factor) or dtype != "f16" and not all(map(in_f16, own))


def in_f16(factor: float) -> bool:
    """True if f16 has a number as exactly as any: no subnormal but a power of two, and not above the largest."""
    smallest = 2.0**-24 if math.frexp(factor)[0] == 0.5 else 2.0**-14
    return smallest <= factor <= 65504.0


def _counts(v: Value) -> bool:
    """True for integers as floats, seen in any way."""
    while (op := made_by(v, "convert", "reshape", "transpose")) is not None:
        v = op.operands[0]
    return v.dtype[:1] in "iu"


def scalar(rw: Rewriter, value: float, dtype: str, before: Op) -> Value:
    """A rank-0 constant."""
    array = np.asarray(value, np.float32).astype(DENSE_DTYPES[dtype][1])
    return rw.insert("constant", before=before, value=DenseAttr(array)).result


def reshaped(rw: Rewriter, v: Value, shape: tuple[int, ...], before: Op) -> Value:
    """`v` seen with another shape."""
    return v if v.shape == shape else rw.insert("reshape", v, before=before, shape=shape).result


class Constants:
    """Arrays of constants and of weights that the program does not write; remembers what it looked up."""

    def __init__(self, program: IRProgram, limit_bytes: int) -> None:
        self.program, self.limit_bytes = program, limit_bytes
        self.written = written_states(program.module)
        self.known: dict[str, np.ndarray | None] = {}

    def array(self, v: Value) -> np.ndarray | None:
        op = v.op
        if op is None:
            return None
        if op.kind == "constant":
            attr = op.attrs.get("value")
            return attr.array if type(attr) is DenseAttr else None
        weights = self.program.weights
        if op.kind != "get_param" or weights is None or op.attrs["key"] not in weights:
            return None
        key = op.attrs["key"]
        if key not in self.known:
            states = reads_only_state(op)
            fixed = bool(states) and self.written.isdisjoint(states)
            self.known[key] = found = weights.const_view(key, self.limit_bytes) if fixed else None
            if found is not None and found.size == 1:
                weights.decide(key)  # a pattern's numbers become attributes
        return self.known[key]
