"""What the analysis of padding knows of numbers: which ops may make infinities of finite ones, and what hides.

May import: ir, numerics.{formats, steps}. Must not: walk over a graph.

An element that padding makes is a number no model was made for: nothing, or what a bias leaves of nothing. A quotient, root or logarithm of it
may be infinite, and spoils every sum that it is a part of, even with a factor of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.numerics.formats import FLOATS
from tx8fast.numerics.steps import parse_steps
from tx8fast.records import dataclass

#: scores this far below the others get a probability of exactly zero
HIDDEN = -5e3
#: what is known of a number: nothing, its sign, or that it is large enough to divide by
ANY, NOT_NEGATIVE, POSITIVE = range(3)
#: what is large enough: quotients of numbers up to 16 in f16, and up to 2^27 in formats with the range of f32, are finite
ENOUGH = {"f16": 2.0**-12}
ENOUGH_WIDE = 2.0**-100
#: kinds whose results are elements of all their operands, or of the first
_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice", "concat"})
_TAKES = frozenset({"convert", "gather", "gather_nd", "gather_elements", "embedding"})
#: kinds that make a sign of signs
_SIGNED = _MOVES | {
    *("add", "mul", "div", "max", "min", "select", "abs", "square", "sqrt", "rsqrt", "recip", "exp", "sigmoid", "relu")
}
_ENDING = frozenset({"recip", "rsqrt", "log", "sqrt", "div", "mod", "pow"})
_NORMS = frozenset({"layernorm", "rmsnorm"})


@dataclass(frozen=True)
class Most:
    """At most `value`, or that and a score: what hides a score, or a hidden score. Which number it is, is not known."""

    value: float

    def through(self, kind: str, other: object, first: bool) -> Most | None:
        """Return what an op makes of it and of another number (None: a score); first: it is the first operand."""
        known = other if type(other) is float else None
        if kind == "add" or (kind == "sub" and first):
            return Most(self.value + (known or 0.0) * (1 if kind == "add" else -1))
        if kind in ("mul", "div") and known is not None and known > 0 and (kind == "mul" or first):
            return Most(self.value * known if kind == "mul" else self.value / known)
        return None


def at_most(value: Any, bound: float) -> bool:
    """True of a tail whose elements are at most `bound`."""
    found = value.value if isinstance(value, Most) else value
    return type(found) is float and found <= bound


def hidden(kind: str, values: list[Any]) -> Any:
    """What an op makes of what hides: its exponential is nothing."""
    at = next(i for i, v in enumerate(values) if isinstance(v, Most))
    if len(values) == 1:
        gone = kind in ("exp", "sigmoid") and values[0].value <= HIDDEN
        return 0.0 if gone else values[0] if kind == "convert" else None
    return values[at].through(kind, values[1 - at], at == 0) if len(values) == 2 else None


def endless(value: Any) -> bool:
    """True for what is known of a tail that may be an infinity or no number."""
    return type(value) is float and not np.isfinite(value)


def _sign(kind: str, signs: Sequence[int], same: bool) -> int:
    """Return the sign of an op's result by those of its operands. same: they are one value."""
    least, most = min(signs, default=ANY), max(signs, default=ANY)
    if kind == "sigmoid":
        return POSITIVE
    if kind in ("square", "abs", "relu", "exp"):
        return max(least, NOT_NEGATIVE) if kind == "abs" else NOT_NEGATIVE
    if kind == "add":
        return most if least else ANY
    if kind == "max":
        return most
    if kind == "mul" and same:
        return NOT_NEGATIVE
    if kind in ("mul", "div", "recip", "rsqrt"):
        return min(least, NOT_NEGATIVE)
    if kind in ("min", "sqrt", *_MOVES):
        return least
    if kind == "select":
        return min(signs[1:])
    return ANY


def _ends(kind: str, signs: Sequence[int]) -> bool:
    """True if an op may make an infinity, or no number, of finite numbers of such signs."""
    if kind in ("recip", "rsqrt", "log"):
        return signs[0] < POSITIVE
    if kind in ("div", "mod"):
        return signs[1] < POSITIVE
    if kind == "sqrt":
        return signs[0] < NOT_NEGATIVE
    return kind == "pow" and signs[0] < POSITIVE


def _of_number(value: float, dtype: str) -> int:
    enough = ENOUGH.get(dtype, ENOUGH_WIDE) if dtype in FLOATS else 1
    return POSITIVE if value >= enough else NOT_NEGATIVE if value >= 0 else ANY


def _has_positive(v: Value, axes: Sequence[int]) -> bool:
    """True if no element is negative and along such axes some are above zero: of shares, the largest of them, and exponentials less the largest."""
    while v.op is not None and (
        (v.op.kind == "convert" and v.dtype in FLOATS)
        or (v is v.op.results[0] and v.op.kind == "topk" and v.op.attrs["largest"])
    ):
        v = v.op.operands[0]
    op, rank = v.op, len(v.shape)
    along = {a % rank for a in axes} if rank else set()
    if op is None or op.kind not in ("softmax", "exp"):
        return False
    if op.kind == "softmax":
        return not op.attrs["log"] and op.attrs["axis"] % rank in along
    less = op.operands[0].op
    if less is None or less.kind != "sub" or (most := less.operands[1].op) is None or most.kind != "reduce":
        return False
    whole = most.attrs["op"] == "max" and most.operands[0] is less.operands[0]
    return whole and {a % rank for a in most.attrs["axes"]} <= along


class Signs:
    """Signs of values, which follow the ops in their order. array: the elements of a constant, None of any other value."""

    def __init__(self, array: Callable[[Value], np.ndarray | None]) -> None:
        self.array = array
        self.signs: dict[Value, int] = {}

    def of(self, v: Value) -> int:
        if v not in self.signs:
            known = self.array(v)
            number = known is not None and known.size and known.dtype.kind != "b"
            self.signs[v] = _of_number(float(known.min()), v.dtype) if number else ANY  # type: ignore[union-attr]
        return self.signs[v]

    def follow(self, op: Op) -> None:
        """Note the signs of an op's results."""
        if op.operands:
            self.signs.update((v, self._result(op, v)) for v in op.results)

    def _result(self, op: Op, v: Value) -> int:
        x = op.operands[0]
        if op.kind == "clamp":
            return _of_number(op.attrs["lo"], v.dtype)
        if op.kind == "softmax":
            return ANY if op.attrs["log"] else NOT_NEGATIVE
        if op.kind in _TAKES:  # of what is cut to a whole number nothing may be left
            wide = v.dtype == x.dtype or v.dtype in ("bf16", "f32")
            return self.of(x) if wide else min(self.of(x), NOT_NEGATIVE)
        if op.kind == "topk":
            return self.of(x) if v is op.results[0] else NOT_NEGATIVE
        if op.kind == "reduce":
            sums = op.attrs["op"] in ("add", "mean", "max")
            if sums and _has_positive(x, op.attrs["axes"]):
                return POSITIVE
            return self.of(x) if sums or op.attrs["op"] == "min" else ANY
        if op.kind == "map":
            return self._steps(op)[0]
        if op.kind not in _SIGNED:
            return ANY
        return _sign(op.kind, [self.of(o) for o in op.operands], len(op.operands) == 2 and x is op.operands[1])

    def may_end(self, op: Op) -> bool:
        """True if an op may make an infinity, or no number, of finite numbers."""
        if op.kind in _NORMS:
            return not op.attrs["eps"] > ENOUGH_WIDE
        if op.kind == "reduce":
            return op.attrs["op"] == "logsum" and self.of(op.operands[0]) < POSITIVE
        if op.kind == "map":
            return self._steps(op)[1]
        if op.kind not in _ENDING or not _ends(op.kind, [self.of(v) for v in op.operands]):
            return False
        by = self.array(op.operands[1]) if op.kind in ("div", "mod", "pow") else None
        if by is None:
            return True
        return bool((by == 0).any()) if op.kind != "pow" else bool(((by < 0) | (by != np.floor(by))).any())

    def _steps(self, op: Op) -> tuple[int, bool]:
        """Return the sign of a function in steps, and whether one of them may end."""
        signs, ends = [self.of(v) for v in op.operands], False
        for step in parse_steps(op.attrs["steps"], len(op.operands)):
            given = [signs[o] if type(o) is int else _of_number(float(o), op.result.dtype) for o in step.operands]
            by = step.operands[-1]
            ends |= _ends(step.kind, given) and not (step.kind == "div" and type(by) is float and by != 0)
            signs.append(_sign(step.kind, given, len(given) == 2 and step.operands[0] == step.operands[1]))
        return signs[-1], ends
