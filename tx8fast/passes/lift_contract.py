"""Folds transpositions, views and repetitions around a matrix product into the equation of one `contract`.

May import: ir, numerics.layout, passes.base, passes.lift_match. Must not: make an equation the matrix engine has no form for.

A product is described by named factors: every dimension of an operand or of the result is a list of names, major
first. Walking up an operand, a transposition permutes dimensions, a view regroups (and splits) names, a repetition
drops them; walking down from the result likewise.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.equation import Bound
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.numerics.layout import block_size, staggered
from tx8fast.passes.base import PatternPass
from tx8fast.passes.lift_match import is_parameter, leaves, made_by, sole_user, static
from tx8fast.records import dataclass

LHS, RHS, OUT = 0, 1, 2
MANY = 128  # matrices, eight a tile: transposing all of them takes less time than moving their rows


@dataclass
class Factors:
    """The dimensions of lhs, rhs and result in named factors; factors of size 1 are left out (until `name_ones`)."""

    sizes: dict[str, int] = field(default_factory=dict)
    tensors: list[list[list[str]]] = field(default_factory=lambda: [[], [], []])

    def copy(self) -> Factors:
        return Factors(dict(self.sizes), [[list(d) for d in t] for t in self.tensors])

    def add(self, name: str, size: int) -> list[str]:
        if size != 1:
            self.sizes[name] = size
        return [name] if size != 1 else []

    def split(self, name: str, major: int) -> None:
        """Cut a factor into `major` parts, everywhere."""
        a, b = name + "a", name + "b"
        self.sizes[a], self.sizes[b] = major, self.sizes.pop(name) // major
        for dims in self.tensors:
            for d in dims:
                if name in d:
                    i = d.index(name)
                    d[i : i + 1] = [a, b]

    def permute(self, which: int, perm: list[int]) -> None:
        dims = self.tensors[which]
        self.tensors[which] = [dims[p] for p in perm]

    def regroup(self, which: int, shape: tuple[int, ...]) -> bool:
        """Give a tensor the dimensions of `shape`; False if that cuts a factor unevenly."""
        done: list[list[str]] = []
        at = 0  # position in the flat list of names
        for n in shape:
            names, got = [], 1
            while got < n:
                flat = [x for d in self.tensors[which] for x in d]
                name = flat[at]
                size, rest = self.sizes[name], n // got
                if n % got:
                    return False
                if size > rest:
                    if size % rest:
                        return False
                    done = [[y for x in d for y in ([x] if x != name else [])] for d in done]
                    self.split(name, rest)
                    name += "a"
                names.append(name)
                got *= self.sizes[name]
                at += 1
            if got != n:
                return False
            done.append(names)
        self.tensors[which] = done
        return True

    def unrepeat(self, which: int, shape: tuple[int, ...]) -> bool:
        """Undo a repetition to `shape` of operand `which`: the repeated factors belong to the other one alone."""
        dims = self.tensors[which]
        other = {n for d in self.tensors[1 - which] for n in d}
        out = {n for d in self.tensors[OUT] for n in d}
        skip = len(dims) - len(shape)
        kept: list[list[str]] = []
        for i, d in enumerate(dims):
            size = math.prod(self.sizes[n] for n in d)
            have = shape[i - skip] if i >= skip else 1
            if have != size and not all(n in other and n in out for n in d):
                return False
            if i >= skip:
                kept.append(d if have == size else [])
        self.tensors[which] = kept
        return True

    def fits_engine(self) -> bool:
        """True if every stored last dimension is a whole run of columns of its matrix."""
        lhs, rhs, out = ([n for d in t for n in d] for t in self.tensors)
        lasts = [t[-1][-1] if t and t[-1] else None for t in self.tensors]
        if None in lasts:
            return False
        k = [n for n in lhs if n in rhs and n not in out]
        m = [n for n in out if n in lhs and n not in rhs]
        columns = [n for n in out if n in rhs and n not in lhs]
        if not k or any(n not in rhs and n not in out for n in lhs) or any(n not in lhs and n not in out for n in rhs):
            return False
        ends = {names[-1] for names in (k, m, columns) if names}
        return all(last in ends for last in lasts) and lasts[OUT] not in k

    def rows_last(self) -> bool:
        """True if the result's columns come from lhs: the product is stored transposed."""
        return any(self.tensors[OUT][-1][-1] in d for d in self.tensors[LHS])

    def scattered(self) -> bool:
        """True if a row's columns come before several dimensions of rows: slices have few elements of the last one."""
        columns = [i for i, d in enumerate(self.tensors[OUT]) if d and any(d[-1] in own for own in self.tensors[RHS])]
        return bool(columns) and len([d for d in self.tensors[OUT][columns[-1] + 1 :] if d]) > 1

    def loose(self, which: int, block: int) -> bool:
        """True if rows of lhs are columns of a tensor, where those of many matrices lie beside each other across blocks: each is moved
        row by row."""
        *lead, last = self.tensors[which]
        if not last or any(last[-1] in d for d in self.tensors[RHS]):
            return False
        matrices = math.prod([self.sizes[n] for d in lead[:-1] for n in d])
        return matrices >= MANY and staggered(math.prod([self.sizes[n] for n in last]), block)

    def equation(self) -> tuple[str, tuple]:
        """Return the text with names by role, and the sizes it needs."""
        lhs, rhs, out = ([n for d in t for n in d] for t in self.tensors)
        names: dict[str, str] = {}
        for n in dict.fromkeys([*out, *lhs]):
            role = "k" if n not in out else "b" if n in lhs and n in rhs else "m" if n in lhs else "n"
            names[n] = f"{role}{sum(v[0] == role for v in names.values())}"

        def dim(d: list[str]) -> str:
            return "1" if not d else names[d[0]] if len(d) == 1 else f"({' '.join(names[n] for n in d)})"

        left, right, result = (" ".join(map(dim, t)) for t in self.tensors)
        merged = dict.fromkeys(n for t in self.tensors for d in t if len(d) > 1 for n in d)
        return f"{left}, {right} -> {result}", tuple(v for n in merged for v in (names[n], self.sizes[n]))

    def merge(self) -> None:
        """Make one factor of two that stand side by side, in the same order, wherever one of them does."""
        again = True
        while again:
            again = False
            for a, b in [(d[i], d[i + 1]) for t in self.tensors for d in t for i in range(len(d) - 1)]:
                holders = [d for t in self.tensors for d in t if a in d or b in d]
                if all(a in d and d.index(a) + 1 < len(d) and d[d.index(a) + 1] == b for d in holders):
                    self.sizes[a] *= self.sizes.pop(b)
                    for d in holders:
                        d.remove(b)
                    again = True
                    break

    def name_ones(self) -> None:
        """Give dimensions of size 1 a factor, so that an op on many rows and one on a single row look alike.

        Leading ones of all three tensors are batches; others of an operand are rows of the result, in order.
        """
        free = [[i for i, d in enumerate(t) if not d] for t in self.tensors]
        lead = 0
        while all(lead in f for f in free):
            self._name(f"one{lead}", *((which, lead) for which in (LHS, RHS, OUT)))
            for f in free:
                f.remove(lead)
            lead += 1
        for which in (LHS, RHS):
            for i, k in list(zip(free[which], free[OUT])):
                self._name(f"one{which}.{i}", (which, i), (OUT, k))
                free[OUT].remove(k)

    def _name(self, name: str, *places: tuple[int, int]) -> None:
        self.sizes[name] = 1
        for which, i in places:
            self.tensors[which][i] = [name]


def respelled(eq: Bound) -> tuple[str, tuple] | None:
    """Return the equation as this pass would write it, and its sizes; None if it would not write it."""
    f = Factors({n: size for n, size in eq.sizes.items() if size != 1})
    f.tensors = [[[n for n in d if n in f.sizes] for d in t] for t in eq.tensors]
    if 0 in f.sizes.values() or not f.fits_engine():
        return None
    f.merge()
    f.name_ones()
    return f.equation()


def _factors_of(op: Op) -> Factors:
    """The factors of a gemm."""
    f = Factors()
    a, b, out = op.operands[0].shape, op.operands[1].shape, op.result.shape
    lead = [f.add(f"b{i}", n) for i, n in enumerate(out[:-2])]
    m, n = f.add("m", out[-2]), f.add("n", out[-1])
    k = f.add("k", a[-2] if op.attrs["trans_a"] else a[-1])

    def batch(shape: tuple[int, ...]) -> list[list[str]]:
        own = shape[:-2]
        return [list(lead[len(lead) - len(own) + i]) if d != 1 else [] for i, d in enumerate(own)]

    f.tensors = [
        [*batch(a), *([list(k), list(m)] if op.attrs["trans_a"] else [list(m), list(k)])],
        [*batch(b), *([list(n), list(k)] if op.attrs["trans_b"] else [list(k), list(n)])],
        [*map(list, lead), list(m), list(n)],
    ]
    return f


def _up(f: Factors, which: int, v: Value, views: bool, block: int = 0) -> tuple[Factors, Value, int]:
    """Walk up an operand; return the factors, the value reached and how many moves of data were passed. block: channels of a block if
    the other operand is a weight: many rows whose lanes lie across blocks are left to a transposition.

    Chains without any move are passed only if `views` says so: they cost nothing where they are.
    """
    best, gain, passed = (f, v), 0, 0
    f = f.copy()
    while (op := made_by(v, "transpose", "reshape", "broadcast")) is not None and static(v, op.operands[0]):
        x = op.operands[0]
        if op.kind == "transpose" and leaves(v):
            break  # computed anyhow, best by the product that makes it
        if op.kind == "transpose":
            back = [0] * len(x.shape)
            for i, p in enumerate(op.attrs["perm"]):
                back[p] = i
            f.permute(which, back)
        elif not (f.regroup(which, x.shape) if op.kind == "reshape" else f.unrepeat(which, x.shape)):
            break
        passed += op.kind != "reshape"
        v = x
        if (passed or views) and f.fits_engine() and not (block and f.loose(LHS, block)):
            best, gain = (f.copy(), v), passed
    return (*best, gain)


def _down(f: Factors, v: Value, views: bool, block: int) -> tuple[Factors, Value, int]:
    """Walk down from the result while it has one user. block, as above: rows of several dimensions as columns, too, are left to a transposition,
    which moves on or is made by instructions that turn whole matrices."""
    best, gain, passed = (f, v), 0, 0
    f = f.copy()
    while (op := sole_user(v)) is not None and op.kind in ("transpose", "reshape") and static(op.result):
        if op.kind == "transpose":
            f.permute(OUT, list(op.attrs["perm"]))
        elif not f.regroup(OUT, op.result.shape):
            break
        passed += op.kind == "transpose"
        v = op.result
        if (passed or views) and f.fits_engine() and not (block and (f.scattered() or f.loose(OUT, block))):
            best, gain = (f.copy(), v), passed
    return (*best, gain)


def _walk(op: Op, views: bool) -> tuple[Factors, Value, Value, Value, int]:
    block = block_size(op.result.dtype) if is_parameter(op.operands[1]) else 0
    f, lhs, gain_l = _up(_factors_of(op), LHS, op.operands[0], views, block)
    f, rhs, gain_r = _up(f, RHS, op.operands[1], views)
    f, out, gain_o = _down(f, op.result, views, block)
    return f, lhs, rhs, out, gain_l + gain_r + gain_o


def _contract(op: Op, rw: Rewriter) -> bool:
    """A product whose operands or result are moved about."""
    if len(op.operands) != 2 or op.attrs["act"] != "none" or not static(*op.operands, op.result):
        return False
    if 0 in op.result.shape or 0 in op.operands[0].shape or not _walk(op, False)[4]:
        return False
    for views in (True, False):
        f, lhs, rhs, out, gain = _walk(op, views)
        if gain and f.fits_engine():
            break
    else:
        return False
    if f.rows_last() and not is_parameter(rhs):
        f.tensors[:OUT], lhs, rhs = f.tensors[1::-1], rhs, lhs
    equation, sizes = f.equation()
    macs = op.attrs["useful_macs"]
    made = rw.insert("contract", lhs, rhs, before=op, equation=equation, sizes=sizes, useful_macs=macs)
    last = out.op
    if last is None or made.result.type is not out.type:
        rw.erase(made)
        return False
    rw.replace(last, [made.result])
    return True


@pattern("gemm")
def _of_activations(op: Op, rw: Rewriter) -> bool:
    """Attention's products first, so that those with weights, which others fuse with, keep their plain form."""
    return not any(is_parameter(v) for v in op.operands) and _contract(op, rw)


@pattern("gemm")
def _with_weights(op: Op, rw: Rewriter) -> bool:
    return _contract(op, rw)


ROUNDS: tuple[tuple[Pattern, ...], ...] = ((_of_activations,), (_with_weights,))


@dataclass(frozen=True)
class LiftContract(PatternPass):
    """Makes `contract` of matrix products between movement ops."""

    name: ClassVar[str] = "lift-contract"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ROUNDS
