"""The graph as plain data: factor rules and the tables that search, schedule and lowering read.

May import: the standard library only. Must not: know the IR's objects; `ir/view.py` fills these records.

A rule sees an op as a box of iteration points. Each factor has a size and a kind: P (parallel, in a
result), H (parallel, neighbouring pieces overlap or shift), R (reduction, in no result), W (whole: the
result needs the full range). Each dimension of each tensor is `floor((c0 + sum(coef * factor)) / den)`
clipped to [0, size), or FULL. Boxes are half-open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, fields, replace
from typing import Any

from tx8fast.records import dataclass

#: attribute of an `OpRecord` that writes its first result over an operand: the index of that operand
IN_PLACE = "in_place"


@dataclass(frozen=True, slots=True)
class Dim:
    """One tensor dimension over factors. No terms and not full: the coordinate is constant (broadcast). reach: a point covers so
    many coordinates behind its own, which is how a kernel sees factors that come whole with every slice."""

    size: int
    terms: tuple[tuple[int, int], ...] = ()  # (factor index, coefficient), major to minor
    c0: int = 0
    den: int = 1
    full: bool = False
    reach: int = field(default=0, repr=False)  # 0 in rules, so records are told apart without it

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        """Return the half-open coordinate range that the factor box [lo, hi) touches, clipped to [0, size)."""
        if self.full:
            return 0, self.size
        a = self.c0
        b = a + self.reach
        for f, c in self.terms:
            if c > 0:
                a += c * lo[f]
                b += c * (hi[f] - 1)
            else:
                a += c * (hi[f] - 1)
                b += c * lo[f]
        if self.den != 1:
            a, b = a // self.den, b // self.den
        a = a if a > 0 else 0  # asked for thousands of boxes, without calls
        b = b + 1 if b < self.size else self.size
        return a, b if b > a else a

    def is_solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """True if the factor box [lo, hi) touches every coordinate of its range; several factors may leave gaps."""
        covered = self.reach + self.den  # coordinates times den, next to each other, from the terms so far
        for c, n in sorted((abs(c), hi[f] - lo[f]) for f, c in self.terms):
            if n > 1 and c > covered:
                return False
            covered += c * (n - 1)
        return True

    def extent(self, lens: Sequence[int]) -> int:
        """Return the most coordinates that any factor box of these lengths touches."""
        if self.full:
            return self.size
        reach = self.reach + sum(abs(c) * (lens[f] - 1) for f, c in self.terms)
        return min(self.size, -(-reach // self.den) + 1)

    @property
    def identity(self) -> int | None:
        """The factor this dimension equals, or None."""
        if (
            len(self.terms) == 1
            and self.terms[0][1] == 1
            and not self.c0
            and self.den == 1
            and not self.full
            and not self.reach
        ):
            return self.terms[0][0]
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """The factor rule of one op instance. `work` rows: (engine, coefficient, factors)."""

    sizes: tuple[int, ...]
    kinds: str  # one letter of PHRW per factor
    ins: tuple[tuple[Dim, ...] | None, ...]  # None: operand absent
    outs: tuple[tuple[Dim, ...], ...]
    work: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    names: tuple[str, ...] = ()
    combine: str = "add"

    def macs(self) -> int:
        """Multiply-accumulates on the matrix engine."""
        return sum(c * math.prod(self.sizes[f] for f in fs) for e, c, fs in self.work if e == "ne")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A DDR tensor: logical shape, dtype name, layout "dense" or "blocked" (channel-blocked)."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "dense"


class Hashed:
    """A record that remembers its hash: records are large, and what is known of them is looked up often."""

    __slots__ = ("_hash",)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash(tuple([getattr(self, f.name) for f in fields(self)]))  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", found)
            return found


@dataclass(frozen=True, slots=True)
class OpRecord(Hashed):
    """One compute op as lowering sees it; hashable, so equal ops share plans and code."""

    kind: str
    attrs: tuple[tuple[str, Any], ...]
    operands: tuple[TensorSpec | None, ...]
    results: tuple[TensorSpec, ...]
    rule: Rule | None
    useful_macs: int = 0
    routine: str = ""  # reference routine that the kernel core may run
    __hash__ = Hashed.__hash__

    def attr(self, name: str) -> Any:
        for n, v in self.attrs:
            if n == name:
                return v
        raise KeyError(name)

    @property
    def in_place(self) -> int:
        """The operand whose bytes the first result takes, as `passes/functional_to_inplace.py` decided; -1: none."""
        return dict(self.attrs).get(IN_PLACE, -1)


@dataclass(frozen=True, slots=True)
class GroupRecord(Hashed):
    """Several ops whose intermediate values stay in scratchpad; hashable like `OpRecord`.

    wires[i][j]: where operand j of op i comes from: ("in", k) the group's operand k, ("op", k) the result of op
    k, None absent. outputs: ops whose result leaves the group, in result order."""

    ops: tuple[OpRecord, ...]
    wires: tuple[tuple[tuple[str, int] | None, ...], ...]
    operands: tuple[TensorSpec | None, ...]
    outputs: tuple[int, ...]
    __hash__ = Hashed.__hash__

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        return tuple(self.ops[i].results[0] for i in self.outputs)

    @property
    def kind(self) -> str:
        return "+".join(op.kind for op in self.ops)

    @property
    def useful_macs(self) -> int:
        return sum(op.useful_macs for op in self.ops)


@dataclass(frozen=True, slots=True)
class ChainRecord(Hashed):
    """Ops and groups that one launch runs one after the other, every tile on its own; hashable like `OpRecord`.

    wires[i][j]: where operand j of part i comes from: ("in", k) the chain's operand k, ("op", n) result n of all parts
    in order, None absent. outputs: the results that are stored, counted the same way."""

    parts: tuple[OpRecord | GroupRecord, ...]
    wires: tuple[tuple[tuple[str, int] | None, ...], ...]
    operands: tuple[TensorSpec | None, ...]
    outputs: tuple[int, ...]
    __hash__ = Hashed.__hash__

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        made = [spec for part in self.parts for spec in part.results]
        return tuple(made[n] for n in self.outputs)

    @property
    def kind(self) -> str:
        return " > ".join(part.kind for part in self.parts)

    @property
    def useful_macs(self) -> int:
        return sum(part.useful_macs for part in self.parts)


Record = OpRecord | GroupRecord | ChainRecord


@dataclass(slots=True)
class Step:
    """One step of a function: kind "group" (record), "call" (callee), "alias" (result 0 is operand 0's bytes).

    nests: per loop nest the names, in `FunctionTable.base`, of the steps it was made of; fixed: the search leaves it as
    it is; layers: of a call whose function has values of several calls of the graph (`FunctionTable.layer`), the numbers of these;
    first_tile: the tile that does the part of tile 0, the next one that of tile 1, and so on around."""

    kind: str
    name: str
    inputs: tuple[int, ...]  # value ids; -1 for an absent operand
    outputs: tuple[int, ...]
    record: Record | None = None
    callee: str = ""
    barrier: bool = True
    op_names: tuple[str, ...] = ()
    nests: tuple[tuple[str, ...], ...] = ()
    fixed: bool = False
    layers: tuple[int, ...] = ()
    first_tile: int = 0

    @property
    def call_number(self) -> int:
        """What tells this call from the others of its function: the number of its first result."""
        return self.outputs[0] if self.outputs else -1

    @property
    def members(self) -> list[str]:
        """The names of all nests."""
        return [name for nest in self.nests for name in nest]

    @property
    def in_place(self) -> int:
        """The operand whose bytes the first result takes, -1 for none; members of groups have bytes of their own."""
        return self.record.in_place if isinstance(self.record, OpRecord) else -1

    @property
    def is_empty(self) -> bool:
        """True if the step computes no element at all."""
        return self.record is not None and all(0 in s.shape for s in self.record.results)


def epochs(steps: Sequence[Step]) -> list[int]:
    """Return by step the number of barriers before it. Between two barriers tiles run at their own pace, so bytes that one step still
    reads must not be written by another one of the same epoch. A call ends with a barrier."""
    found, now = [], 0
    for step in steps:
        found.append(now)
        now += step.kind == "call" or (step.kind == "group" and step.barrier and not step.is_empty)
    return found


@dataclass(slots=True)
class FunctionTable:
    """One function: values are numbered; arguments first, parameters and constants by key."""

    name: str
    values: list[TensorSpec] = field(default_factory=list)
    args: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    params: dict[int, str] = field(default_factory=dict)  # value id -> weight key
    donated: dict[int, int] = field(default_factory=dict)  # result position -> argument position
    steps: list[Step] = field(default_factory=list)
    arg_names: list[str] = field(default_factory=list)
    result_names: list[str] = field(default_factory=list)
    given: list[tuple[int, ...]] = field(
        default_factory=list
    )  # groups that the graph asks for: results of neighbouring steps
    base: dict[str, Step] = field(default_factory=dict)  # the steps before the search, by names unique in the function
    origin: dict[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # values that came from an inlined function: their path in the graph as it was
    layer: dict[int, int] = field(
        default_factory=dict
    )  # of a function that begins elsewhere than in the graph: which of `Step.layers`
    turned: tuple[str, ...] = ()  # the steps that have gone to the call before for it

    def path(self, value: int) -> tuple[int, ...]:
        """Return where a value of this function stands in the graph before anything was inlined: the calls that lead to
        its function from here, each by the number of its first result, then its number there."""
        return self.origin.get(value, (value,))

    def lay_out(self, layouts: Sequence[str]) -> None:
        """Give the first values these layouts, in the records of the steps that read them, too."""
        self.values[: len(layouts)] = [replace(v, layout=layout) for v, layout in zip(self.values, layouts)]
        for step in self.steps:
            if step.record is not None:
                specs = tuple(self.values[v] if v >= 0 else None for v in step.inputs)
                step.record = replace(step.record, operands=specs)


@dataclass(slots=True)
class GraphTable:
    """All functions; "main" is the entry. chips: grid (x, y) of chips that run them together."""

    functions: dict[str, FunctionTable]
    chips: tuple[int, int] = (1, 1)
