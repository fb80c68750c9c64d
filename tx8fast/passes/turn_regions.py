"""Parts of a graph that are computed in another order of dimensions, where that transposes fewer bytes.

May import: ir, passes.lift_match, passes.min_cut. Must not: change numbers, or transpose more bytes than before.
What several ops read cannot be moved past one of them alone (`sink_transposes`): a squeeze-and-excite block multiplies channels by what it
makes of their means. For a permutation every op that works in any order of dimensions is on one of two sides, in its own order or in
that before the permutation; a value costs its bytes once if a user is not on its side. The cheapest cut is found exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from tx8fast.ir.core import ELEMENTWISE, PURE, TERMINATOR, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Rewriter
from tx8fast.ir.storage import touches_storage
from tx8fast.passes.lift_match import is_parameter, static
from tx8fast.passes.min_cut import SINK, SOURCE, MinCut
from tx8fast.passes.repeated import Counts, repeat, repeated
from tx8fast.records import dataclass

Perm = tuple[int, ...]
#: ops with an entry for every dimension in these attributes
_WINDOWS = {"slice": ("start", "size", "step"), "pad": ("lo", "hi")}


def inverse(perm: Perm) -> Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def _is_view(v: Value, perm: Perm) -> bool:
    """True if a permutation of a value keeps all dimensions but those of 1 in their order."""
    moved = [d for d in perm if v.shape[d] != 1]
    return moved == sorted(moved)


def _cost(v: Value, perm: Perm, users: Iterable[Op]) -> int:
    """Return the bytes that another order of a value moves for users: what is neither argument nor result is stored and loaded again,
    the others are anyhow. A view of the same bytes counts as one, so that there are few of these too."""
    if is_parameter(v):
        return 0
    if _is_view(v, perm):
        return 1
    at_border = v.op is None or all(u.has(TERMINATOR) for u in users)
    return v.type.size_bytes * (1 if at_border else 2)  # type: ignore[attr-defined]


def transposed_bytes(program: IRProgram) -> int:
    """Return what all that is transposed costs."""
    found = (op for fn in program.functions for op in fn.walk() if op.kind == "transpose" and static(op.result))
    return sum([_cost(op.operands[0], op.attrs["perm"], op.result.users) for op in found])


def permutes(op: Op, perm: Perm) -> bool:
    """True for the transposition by `perm`, also where it is a view."""
    if op.kind == "transpose":
        return op.attrs["perm"] == perm
    if op.kind != "reshape" or not static(op.result, op.operands[0]):
        return False
    x = op.operands[0]
    return len(x.shape) == len(perm) and op.result.shape == tuple([x.shape[d] for d in perm]) and _is_view(x, perm)


def turns(op: Op, rank: int) -> bool:
    """True if an op of tensors of `rank` dimensions does the same in any order of them."""
    if len(op.results) != 1 or not static(op.result, *op.operands) or op.result.type.rank != rank:  # type: ignore[attr-defined]
        return False
    if op.kind == "reduce":
        return bool(op.attrs["keepdims"] and op.attrs["axes"])
    if op.kind == "concat" or op.kind in _WINDOWS:
        return all(v.type.rank == rank for v in op.operands)  # type: ignore[attr-defined]
    if not op.has(ELEMENTWISE | PURE) or "shape" in op.attrs:
        return False
    return all(v.type.rank == rank or is_parameter(v) for v in op.operands)  # type: ignore[attr-defined]


def turned_attrs(op: Op, perm: Perm) -> dict[str, Any]:
    """Return the attributes of an op that works before the permutation."""
    known: dict[str, Any] = {n: v for n, v in op.attrs.items() if n not in ("layout_str", "mem_layout")}
    if op.kind == "concat":
        known["axis"] = perm[op.attrs["axis"] % len(perm)]
    elif op.kind == "reduce":
        known["axes"] = tuple(sorted(perm[a % len(perm)] for a in op.attrs["axes"]))
    for name in _WINDOWS.get(op.kind, ()):
        known[name] = tuple(op.attrs[name][p] for p in inverse(perm))
    return known


def turned_parameter(v: Value, perm: Perm, rw: Rewriter, op: Op) -> Value:
    """Return a parameter as an op reads it before the permutation."""
    if math.prod(v.shape) == 1:
        return v if len(v.shape) <= 1 else rw.insert("reshape", v, before=op, shape=()).result
    wide = (1,) * (len(perm) - len(v.shape)) + v.shape
    if v.shape != wide:
        v = rw.insert("reshape", v, before=op, shape=wide).result
    return rw.insert("transpose", v, before=op, perm=inverse(perm)).result


def turn_regions(program: IRProgram) -> int:
    """Turn what transposes fewer bytes so; return how many ops were turned."""
    count = 0
    for fn in program.functions:
        for block in fn.regions[0].blocks if fn.regions else ():
            perms = dict.fromkeys(op.attrs["perm"] for op in block if op.kind == "transpose" and static(op.result))
            for perm in perms:
                count += _Region([*block], perm).turn(Rewriter(program.ctx))
    return count


@dataclass
class _Region:
    """The ops of a block, and one permutation: source side is what comes before it."""

    ops: list[Op]
    perm: Perm
    node: dict[Op, int] = field(default_factory=dict)
    #: by the last op of what repeats elements, its first one and how often; and by each of the others, the last
    repeats: dict[Op, tuple[Op, Counts]] = field(default_factory=dict)
    within: dict[Op, Op] = field(default_factory=dict)

    def turn(self, rw: Rewriter) -> int:
        self.back = inverse(self.perm)
        graph = MinCut()
        for op in self.ops:
            if (found := repeated(op)) is not None and len(op.result.shape) == len(self.perm):
                self.repeats[op] = found[0][0], found[1]
                self.within |= dict.fromkeys(found[0], op)
        chosen = (op for op in self.ops if op in self.repeats or turns(op, len(self.perm)) and not touches_storage(op))
        self.node = {op: graph.add() for op in chosen}
        values = [*self._values()]
        for v, users in values:
            graph.share(self._side(v.op, True), (self._side(u, False) for u in users), _cost(v, self.back, users))
        before = graph.source_side() if values else set()
        turned = {op for op, n in self.node.items() if n in before}
        if not turned or self._bytes(values, turned) >= self._bytes(values, set()):
            return 0
        self._rewrite(turned, rw)
        return len(turned)

    def _sources(self, op: Op) -> list[Value]:
        return list((self.repeats[op][0] if op in self.repeats else op).operands)

    def _users(self, v: Value) -> list[Op]:
        return [self.within.get(u, u) for u in v.users]

    def _values(self) -> Iterator[tuple[Value, list[Op]]]:
        """Yield what an op reads or makes that has a side to choose."""
        for op in self.ops:
            for v in op.results:
                users = self._users(v)
                if op in self.node or self._makes(op) and any(u in self.node for u in users):
                    yield v, users
        seen = {v for op in self.ops for v in op.results if op in self.node or self._makes(op)}
        for op in self.node:
            for v in self._sources(op):
                if v not in seen and not is_parameter(v):
                    seen.add(v)
                    yield v, self._users(v)

    def _makes(self, op: Op | None) -> bool:
        """True for the permutation itself: its result is there in both orders."""
        return op is not None and permutes(op, self.perm)

    def _side(self, op: Op | None, makes: bool) -> int:
        if op in self.node:
            return self.node[op]
        return SOURCE if op is not None and permutes(op, self.perm if makes else self.back) else SINK

    def _bytes(self, values: list[tuple[Value, list[Op]]], turned: set[Op]) -> int:
        """Return what is transposed costs, views left out."""

        def first(op: Op | None, makes: bool) -> bool:
            return op in turned if op in self.node else self._side(op, makes) == SOURCE

        costs = (
            _cost(v, self.back, users)
            for v, users in values
            if any(first(u, False) != first(v.op, True) for u in users)
        )
        return sum([n for n in costs if n > 1])

    def _rewrite(self, turned: set[Op], rw: Rewriter) -> None:
        known: dict[Value, Value] = {op.result: op.operands[0] for op in self.ops if self._makes(op)}
        for op in self.ops:
            if op not in turned:
                continue
            for v in self._sources(op):
                if v not in known:
                    small = op.has(ELEMENTWISE) and is_parameter(v)
                    other = turned_parameter(v, self.perm, rw, op) if small else None
                    known[v] = other or rw.insert("transpose", v, before=op, perm=self.back).result
            operands = [known[v] for v in self._sources(op)]
            if op in self.repeats:
                made = repeat(rw, operands[0], tuple([self.repeats[op][1][d] for d in self.back]), op)
            else:
                made = rw.insert(op.kind, *operands, before=op, **turned_attrs(op, self.perm)).result
            new = rw.replace_with(op, "transpose", made, perm=self.perm)
            known[new.result] = made
