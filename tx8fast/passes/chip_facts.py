"""What decides how chips may share a graph: which values are weights, which are whole on every chip, which results stay cut.

May import: ir, passes.chip_layouts, passes.effects. Must not: choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tx8fast.ir.core import CONSTANT_LIKE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import FLOAT_DTYPES, TensorType
from tx8fast.passes.chip_layouts import WHOLE, Digits, Layout, Way, digits_of, multiplies, rule_of, way
from tx8fast.passes.effects import has_no_effect, is_parameter, states_written_by
from tx8fast.weights.dtypes import ITEM_BYTES

#: how far back a value is computed once more, in parts
DEPTH = 64
#: kinds that hand on elements as they are: caches go through them
MOVES = frozenset(
    {"reshape", "transpose", "slice", "concat", "pad", "convert", "kv_update", "scatter", "scatter_nd", "select"}
)


class ChipFacts:
    """weights: of products; constant: values that constants alone give; plain: that each chip has whole; kept: results that stay as they lie;
    free: arguments that may lie as their readers like; grown: ops that spread values, with the factors along which."""

    def __init__(self, program: IRProgram) -> None:
        self.ctx = program.ctx
        self.ops = list(program.main.body)
        self.end = self.ops.pop()
        self.written = states_written_by(program)
        self.ways: dict[tuple[Op, Digits], Way | None] = {}
        self.narrow: dict[tuple[Value, Layout], bool] = {}
        self.constant = self._constants()
        self.weights = {op: held for op in self.ops if (held := self._weights(op))}
        self.kept, self.free = self._interface(program.main.body.args)
        self.plain = self._plain(program.main.body.args)
        self.grown = {op: fs for op in self.ops if (fs := self._grown(op))}

    def _constants(self) -> set[Value]:
        """Return parameters, constants, and what these alone give."""
        found: set[Value] = set()
        for op in self.ops:
            known = op.has(CONSTANT_LIKE) or (is_parameter(op) and op.attrs["key"] not in self.written)
            made = bool(op.operands) and not op.regions and has_no_effect(op) and all(v in found for v in op.operands)
            if (known or made) and all(isinstance(r.type, TensorType) for r in op.results):
                found.update(op.results)
        return found

    def _weights(self, op: Op) -> tuple[int, ...]:
        """Return the operand of a product that is a weight."""
        held = tuple(i for i, v in enumerate(op.operands[:2]) if v in self.constant) if multiplies(op) else ()
        return held if len(held) == 1 else ()

    def _plain(self, args: list[Value]) -> set[Value]:
        """Return what weights of products and caches have no part in: every chip has it whole."""
        found = {a for a in args if a not in self.free}
        for op in self.ops:
            if op not in self.weights and all(v in found or v in self.constant for v in op.operands):
                found.update(op.results)
        return found

    def _grown(self, op: Op) -> list[int]:
        """Return the factors of results that no operand has: each chip may spread what is whole over its part of them."""
        rule = rule_of(op)
        if rule is None or not rule.ins or all(r in self.plain or r in self.constant for r in op.results):
            return []
        read = {f for dims in rule.ins for dim in dims or () for f, _ in dim.terms}
        return [f for f, n in enumerate(rule.sizes) if n > 1 and f not in read and rule.kinds[f] == "P"]

    def _interface(self, args: list[Value]) -> tuple[set[Value], set[Value]]:
        """Return the results that a product of two activations reads, too, or what they are moved from: keys and values; and the arguments that
        they are moved from: caches."""
        feeds: set[Value] = set()
        for op in reversed(self.ops):
            if op not in self.weights and (multiplies(op) or any(r in feeds for r in op.results)):
                feeds.update(op.operands)
        kept, seen = set(), set()
        for result in self.end.operands:
            chain = list(_moved_from(result))
            if any(v in feeds and v not in self.constant for v in chain):
                kept.add(result)
                seen.update(chain)
        return kept, {a for a in args if a in seen and a.dtype in FLOAT_DTYPES}

    def way(self, op: Op, digits: Digits) -> Way | None:
        key = op, digits
        if key not in self.ways:
            self.ways[key] = way(self.ctx, op, digits)
        return self.ways[key]

    def narrows(self, v: Value, layout: Layout, depth: int = DEPTH) -> bool:
        """Say whether each chip can make its part of a value by itself, of what is whole on all of them."""
        if v in self.constant and v.op is not None and not v.op.operands:
            return True
        if v.op is None or not depth or not (v in self.constant or v in self.plain):
            return False
        key = v, layout
        if key not in self.narrow:
            made = self.giving(v, layout)
            self.narrow[key] = made is not None and all(
                n == WHOLE or self.narrows(x, n, depth - 1) for x, n in zip(v.op.operands, made.needs)
            )
        return self.narrow[key]

    def giving(self, v: Value, layout: Layout) -> Way | None:
        """Return how the op is cut that gives a value so."""
        rule = rule_of(v.op) if v.op is not None else None
        digits = digits_of(rule, rule.outs[v.index], layout) if rule is not None else None
        return self.way(v.op, digits) if digits and v.op is not None else None

    def travels(self, v: Value, layout: Layout) -> bool:
        """Say whether a value may lie so up to products and results."""
        todo, seen = [(v, layout)], set()
        while todo:
            value, lies = todo.pop()
            for op, i in value.uses if (value, lies) not in seen else ():
                rule = rule_of(op)
                if op is self.end:
                    continue
                digits = digits_of(rule, rule.ins[i], lies) if rule is not None and rule.ins else None
                made = self.way(op, digits) if digits else None
                if made is None:
                    return False
                if not multiplies(op):
                    todo += [(r, out) for r, out in zip(op.results, made.outs) if out.kind == "cut"]
            seen.add((value, lies))
        return True


def contiguous(v: Value, lies: Layout) -> bool:
    """Say whether a chip has one part of a dimension."""
    return lies.kind == "cut" and lies.block == v.shape[lies.dim]


def n_bytes(v: Value) -> int:
    return math.prod(v.shape) * ITEM_BYTES[v.dtype]


def sent(v: Value, lies: Layout) -> int:
    """Return the bytes that a chip sends until all have the whole value."""
    return (2 if lies.kind == "sum" else 1) * (lies.parts - 1) * n_bytes(v) // lies.parts


def _moved_from(v: Value) -> Iterator[Value]:
    todo, seen = [v], set()
    while todo:
        v = todo.pop()
        if v in seen or not isinstance(v.type, TensorType):
            continue
        seen.add(v)
        yield v
        if v.op is not None and v.op.kind in MOVES:
            todo += v.op.operands
