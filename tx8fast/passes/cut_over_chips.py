"""Cuts a graph over the chips that share it (docs/adr/0060).

May import: ir, weights, errors, passes.base, passes.chip_layouts, passes.chip_plan. Must not: read tensor bytes.
"""

from __future__ import annotations

import warnings
from itertools import count
from typing import ClassVar

import numpy as np

from tx8fast.errors import ConfigError, WholeWeightsWarning
from tx8fast.ir.builder import Builder
from tx8fast.ir.chips import MAX_CHIPS
from tx8fast.ir.core import COLLECTIVE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.chip_facts import ChipFacts, contiguous, n_bytes
from tx8fast.passes.chip_layouts import WHOLE, Layout, rule_of
from tx8fast.passes.chip_plan import GATHER_BYTES, ChipPlan, Choice
from tx8fast.passes.dce import Dce
from tx8fast.passes.effects import is_parameter
from tx8fast.records import dataclass
from tx8fast.weights import WeightTable
from tx8fast.weights.parts import add_shared


@dataclass(frozen=True)
class CutOverChips(CompilerPass):
    """Groups of `parts` neighbours among the program's chips share its products; gather_bytes: what putting parts together must save. Raises
    ConfigError if no product can be shared by so many."""

    name: ClassVar[str] = "cut-over-chips"
    parts: int = 1
    gather_bytes: int = GATHER_BYTES

    def run(self, program: IRProgram) -> PassResult:
        if self.parts == 1:
            return PassResult()
        what = f"cutting '{program.name}' over {self.parts} chips"
        chips = max(self.parts, program.chips[0] * program.chips[1])
        _check(program, self.parts, chips, what)
        plan = ChipPlan(program, self.parts, self.gather_bytes)
        _divides(plan, what)
        plan.search()
        shared = [op for op in plan.weights if op in plan.choices and self.parts in {n.parts for n in _needs(plan, op)}]
        if not shared:
            raise ConfigError(
                f"{what}: of {len(plan.weights)} products with weights, none gives results that so many chips can go on with in parts; drop --tp"
            )
        whole = sum(n_bytes(op.operands[i]) for op, (i, *_) in plan.weights.items() if op not in plan.choices)
        total = sum(n_bytes(op.operands[i]) for op, (i, *_) in plan.weights.items())
        if 2 * whole > total:
            text = f"{what}: of {total:,} bytes of weights that products read, {whole:,} are whole on every chip"
            warnings.warn(text, WholeWeightsWarning, stacklevel=2)
        if program.chips == (1, 1):
            program.module.attrs["chip_x"] = chips
        cut = _Cut(program, plan, chips)
        cut.run()
        given, main = program.main.attrs["donated"], program.main.body
        alike = [(a, r) for a, r in zip(given[::2], given[1::2]) if main.args[a].type is plan.end.operands[r].type]
        program.main.attrs["donated"] = tuple(n for pair in alike for n in pair)
        return PassResult(True, {"products": len(shared), "sums": cut.sums, "gathers": cut.gathers})


def cut_bytes(program: IRProgram, parts: int) -> tuple[int, int]:
    """Return what one of `parts` chips would hold, bytes of weights and of inputs and results; the program stays as it is. Raises ConfigError."""
    cut = program.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WholeWeightsWarning)
        CutOverChips(parts).run(cut)
    Dce().run(cut)
    body = cut.main.body
    held = {op.attrs["key"]: op.result for op in body if is_parameter(op)}
    return sum(map(n_bytes, held.values())), sum(map(n_bytes, {*body.args, *body.last.operands}))  # type: ignore[union-attr]


def weight_sizes(facts: ChipFacts) -> list[tuple[int, set[int]]]:
    """Return of every weight of a product its bytes, and the sizes of which one could be cut."""
    found = []
    for op, (i, *_) in facts.weights.items():
        rule = rule_of(op)
        dims = (rule.ins[i] or ()) if rule is not None else ()
        found.append(
            (n_bytes(op.operands[i]), {rule.sizes[f] for dim in dims for f, _ in dim.terms if rule is not None})
        )
    return found


def _check(program: IRProgram, parts: int, chips: int, what: str) -> None:
    if chips % parts or chips > MAX_CHIPS:
        raise ConfigError(f"{what}: required a multiple of {parts} chips, at most {MAX_CHIPS}, found {chips}")
    for op in program.module.walk():
        if op.has(COLLECTIVE):
            raise ConfigError(
                f"{what}: it says itself what its devices exchange ({op.kind} '{op.loc or ''}'); drop --tp"
            )
        if "key" in op.attrs and program.weights is not None and program.weights.varies(op.attrs["key"]):
            raise ConfigError(f"{what}: devices hold weights of their own already ('{op.attrs['key']}'); drop --tp")


def _divides(plan: ChipPlan, what: str) -> None:
    """Raise ConfigError if no weight of a product has a dimension that divides."""
    if not plan.weights:
        raise ConfigError(
            f"{what}: none of its products has a weight; what is given as an input lies whole on every chip: bind them with --constants, or drop --tp"
        )
    sizes = set().union(*(found for _, found in weight_sizes(plan)))
    if not any(n % plan.parts == 0 for n in sizes):
        raise ConfigError(
            f"{what}: no size of a weight of a product divides by {plan.parts}, there are {', '.join(map(str, sorted(sizes)))}"
        )


def _needs(plan: ChipPlan, op: Op) -> list[Layout]:
    made = plan.choices[op].way
    return [made.needs[i] for i in plan.weights[op]] if made is not None else []


class _Cut:
    """Rewrites the graph as one chip computes it. `at`: what stands for a value, by how it lies."""

    def __init__(self, program: IRProgram, plan: ChipPlan, chips: int) -> None:
        self.ctx, self.plan, self.chips = program.ctx, plan, chips
        if program.weights is None:
            program.weights = WeightTable()
        self.table: WeightTable = program.weights
        self.body = program.main.body
        self.at: dict[Value, dict[Layout, Value]] = {}
        self.sums = self.gathers = 0

    def run(self) -> None:
        plan, replaced = self.plan, []
        for op in (*plan.ops, plan.end):
            self.b = Builder(self.ctx, self.body, op, op.loc)
            choice = plan.choices.get(op)
            if choice is not None and choice.way is not None:
                self._cut(op, choice)
                replaced.append(op)
                continue
            for i, v in enumerate(list(op.operands)):
                summed = choice is not None and i in choice.sums
                kept = op is plan.end and v in plan.kept
                known = self.at.get(v, {})
                lies = next((n for n in known if (summed and n.kind == "sum") or (kept and contiguous(v, n))), WHOLE)
                op.set_operand(i, self.get(v, lies))
                if summed:
                    self.at[op.results[0]] = {lies: op.results[0]}
        for op in reversed(replaced):
            op.erase()

    def _cut(self, op: Op, choice: Choice) -> None:
        made = choice.way
        assert made is not None
        given = [self.get(v, need) for v, need in zip(op.operands, made.needs)]
        bias = given.pop() if made.late else None
        part = self.b.op(op.kind, *given, **made.attrs)
        for old, new, lies in zip(op.results, part.results, made.outs):
            self.at[old] = {lies: new}
            if bias is not None:
                self.at[old] = {WHOLE: self.b("add", self.get(old, WHOLE), bias)}

    def get(self, v: Value, lies: Layout) -> Value:
        """Return what stands for a value that lies so, made where the builder stands."""
        known = self.at.setdefault(v, {} if v in self.plan.free else {WHOLE: v})
        if lies in known:
            return known[lies]
        if not known:  # an argument that chips hold as its first reader asks
            v.type = self.ctx.tensor(lies.local(v.shape), v.dtype, v.type.kind)  # type: ignore[attr-defined]
            known[lies] = v
        elif lies == WHOLE:
            known[lies] = self._joined(*next(iter(known.items())))
        else:
            known[lies] = self._narrowed(v, lies)
        return known[lies]

    def _joined(self, lies: Layout, part: Value) -> Value:
        n, p = self.plan.parts, lies.parts
        step = n // p
        groups = tuple(c for g in range(0, self.chips, n) for r in range(step) for c in range(g + r, g + n, step))
        if lies.kind == "sum":
            self.sums += 1
            return self.b("all_reduce", part, combine="add", groups=groups, parts=p)
        self.gathers += 1
        shape, d = part.shape, lies.dim
        blocks = shape[d] * p // lies.block
        if blocks == 1:
            return self.b("all_gather", part, dim=d, groups=groups, parts=p)
        part = self.b("reshape", part, shape=(*shape[:d], blocks, shape[d] // blocks, *shape[d + 1 :]))
        whole = self.b("all_gather", part, dim=d + 1, groups=groups, parts=p)
        return self.b("reshape", whole, shape=(*shape[:d], shape[d] * p, *shape[d + 1 :]))

    def _narrowed(self, v: Value, lies: Layout) -> Value:
        """Return a chip's part of what is whole everywhere: of a parameter, or computed of parts."""
        assert v.op is not None
        if not v.op.operands:
            return self._parameter(v, lies)
        made = self.plan.giving(v, lies)
        assert made is not None
        given = [self.get(x, need) for x, need in zip(v.op.operands, made.needs)]
        return self.b.op(v.op.kind, *given, loc=v.op.loc, **made.attrs).results[v.index]

    def _parameter(self, v: Value, lies: Layout) -> Value:
        op = v.op
        assert op is not None
        stored = op.attrs.get("key")
        if stored is None:
            stored = next(key for n in count(len(self.table)) if (key := f"%shared/{n}") not in self.table)
            self.table.add_array(stored, np.asarray(op.attrs["value"].array).reshape(v.shape))
        key = f"%part/{self.plan.parts}:{lies.parts}:{lies.dim}:{lies.block}/{stored}"
        if key not in self.table:
            blocks = v.shape[lies.dim] // lies.block
            add_shared(self.table, key, stored, lies.dim, blocks, lies.parts, self.plan.parts, self.chips)
        kind = self.ctx.tensor(lies.local(v.shape), v.dtype)
        return self.b("get_param", result_types=[kind], key=key, loc=op.loc)
