"""Groups and plans as a whole: the cheapest cuts, equal ops planned once, what does not fit is cut, reductions are split."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import MACHINES, Arg, best_plan, build, one_op

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Step, TensorSpec
from tx8fast.lower import NotLowerable, lower
from tx8fast.machine import Machine
from tx8fast.search import cuts, planning
from tx8fast.search import planner as planner_module
from tx8fast.search.cuts import candidates
from tx8fast.search.grouping import group_table
from tx8fast.search.planning import Planner
from tx8fast.search.program import plan_table
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.tiling import Plan, Tiling

B = "blocked"
TX8 = MACHINES["tx8"]
SPEC = TensorSpec((1, 8, 8, 16), "bf16", B)
Costs = dict[tuple[int, int], int]  # first and last op of a group -> cycles


class Priced:
    """A planner that only looks costs up: single ops always have one, other groups only if listed."""

    def __init__(self, costs: Costs, too_large: Collection[tuple[int, int]] = (), slack: float = 1.0,
                 rough: float = 0.0) -> None:  # fmt: skip
        self.costs, self.too_large, self.slack, self.rough = costs, too_large, slack, rough
        self.tried: list[tuple[int, int]] = []

    def plan(self, record, name):
        ids, cost = self._known(record, name)
        self.tried.append(ids)
        return SimpleNamespace(plan=SimpleNamespace(estimate_cycles=cost, waits=False, bound="matrix"))

    def bound(self, record, name, tight=False):
        """A tight bound is half as far from the truth."""
        return ((1 + self.slack) / 2 if tight else self.slack) * self._known(record, name)[1]

    def floor(self, record):
        return self.rough * self.costs.get(self._key(record), 0)

    def forget(self) -> None:
        """There is nothing to forget."""

    @staticmethod
    def _key(record) -> tuple[int, int]:
        ids = [op.attr("id") for op in getattr(record, "ops", (record,))]
        return ids[0], ids[-1]

    def _known(self, record, name) -> tuple[tuple[int, int], int]:
        key = self._key(record)
        if key in self.too_large:
            raise InfeasibleError(f"{name}: no split fits")
        if key not in self.costs:
            raise NotLowerable(name)
        return key, self.costs[key]


def form_groups(table: GraphTable, planner: Priced) -> None:
    group_table(table, planner, {})  # type: ignore[arg-type]


def cut(
    n: int, costs: Costs, too_large: Collection[tuple[int, int]] = (), planner: Priced | None = None
) -> tuple[list[int], int]:
    """Return the last op of every group and the total cost, for a chain of n ops that may be grouped at will."""
    steps = [
        Step("group", f"op{i}", (i, n + 1 + i), (i + 1,), OpRecord("conv", (("id", i),), (SPEC, SPEC), (SPEC,), None))
        for i in range(n)
    ]
    fn = FunctionTable(
        "main", [SPEC] * (2 * n + 1), [0], [n], params={n + 1 + i: f"w{i}" for i in range(n)}, steps=steps
    )
    form_groups(GraphTable({"main": fn}), planner or Priced(costs, too_large))
    groups = [[op.attr("id") for op in getattr(s.record, "ops", (s.record,))] for s in fn.steps]
    assert [i for g in groups for i in g] == list(range(n))
    return [g[-1] for g in groups], sum(costs[g[0], g[-1]] for g in groups)


TABLE: Costs = {(0, 0): 100, (0, 1): 150, (1, 1): 80, (1, 2): 210, (1, 3): 230, (2, 2): 120, (2, 3): 150, (3, 3): 60}


@given(st.data())
def test_bounds_leave_out_trials_and_change_no_choice(data) -> None:
    """Whatever the bounds are, the cheapest cuts are found; with tight ones only their groups are ever tried."""
    n = data.draw(st.integers(1, 6))
    costs = {(i, j): data.draw(st.integers(1, 50)) for i in range(n) for j in range(i, min(n, i + 4))}
    cheapest = cut(n, costs, planner=Priced(costs, slack=0.0))
    slack = data.draw(st.floats(0, 1))
    assert cut(n, costs, planner=Priced(costs, slack=slack, rough=data.draw(st.floats(0, slack)))) == cheapest
    tight = Priced(costs)
    groups, _ = cut(n, costs, planner=tight)
    assert sorted(j for _, j in tight.tried) == groups


@pytest.mark.parametrize("kind", ["gemm", "softmax", "add", "gelu", "rmsnorm"])
@pytest.mark.parametrize("shape", [(64, 64), (512, 1024), (7, 129)])
def test_no_plan_goes_below_the_floor(kind: str, shape: tuple[int, int]) -> None:
    """The floor needs no lowering: products at the peak rate, results written once."""
    right = {"gemm": (shape[1], 256), "add": shape, "rmsnorm": shape[1:]}.get(kind)
    args = [Arg(shape, "bf16", B)] + ([Arg(right, "bf16", B if len(right) > 1 else "dense")] if right else [])
    record = one_op(kind, *args, out=B).lowering().record
    known = Planner(TX8)
    floor = known.floor(record)
    bound, tight = known.bound(record, "op"), known.bound(record, "op", tight=True)
    assert 0 < floor <= bound <= tight
    cycles = known.plan(record, "op").plan.estimate_cycles
    assert floor <= cycles == known.bound(record, "op", tight=True)


@given(st.lists(st.lists(st.integers(1, 4096), min_size=1, max_size=4), min_size=1, max_size=5))
def test_candidates_are_all_combinations(lists: list[list[int]]) -> None:
    assert cuts._grid(lists).tolist() == [list(x) for x in itertools.product(*lists)]


def test_cheapest_cuts_of_the_worked_table() -> None:
    assert cut(4, TABLE) == ([1, 3], 300)
    # three ways cost 330; between equal costs the shorter last group wins
    assert cut(4, TABLE | {(0, 1): 180}) == ([0, 1, 3], 330)


def test_single_ops_give_what_clusters_and_merging_give() -> None:
    """The examples of forming clusters first, and of merging neighbouring groups afterwards: no need of either."""
    singles = {(i, i): c for i, c in enumerate([10, 12, 8, 20, 9, 7, 11])}
    groups = {(0, 1): 18, (0, 2): 25, (3, 4): 30, (4, 5): 14, (4, 6): 20, (5, 6): 15}
    assert cut(7, singles | groups) == ([2, 3, 6], 65)
    singles = {(i, i): 1000 for i in range(8)} | {(2, 2): 80}
    groups = {(0, 1): 150, (0, 2): 215, (3, 5): 120, (6, 7): 60, (3, 7): 190}
    assert cut(8, singles | groups) == ([2, 5, 7], 395)


@st.composite
def priced_chains(draw):
    n = draw(st.integers(1, 8))
    costs = {(i, i): draw(st.integers(1, 50)) for i in range(n)}
    for pair in itertools.combinations(range(n), 2):
        if draw(st.booleans()):
            costs[pair] = draw(st.integers(1, 50 * (pair[1] - pair[0] + 1)))
    return n, costs


@given(priced_chains())
def test_no_cut_is_cheaper(chain) -> None:
    n, costs = chain
    least = math.inf
    for k in range(n):
        for ends in itertools.combinations(range(n - 1), k):
            bounds = [-1, *ends, n - 1]
            least = min(least, sum(costs.get((a + 1, b), math.inf) for a, b in itertools.pairwise(bounds)))
    assert cut(n, costs)[1] == least


def chain_of(*kinds: str, extra_reader: int = -1) -> GraphTable:
    """Return a chain of ops; every one but unary kinds also reads an argument. `extra_reader` is read once more at the end."""
    n = len(kinds)
    steps = []
    for i, kind in enumerate(kinds):
        unary = kind in ("relu", "softmax", "silu")
        ins = (i,) if unary else (i, n + 2 + i)
        steps.append(
            Step("group", f"op{i}", ins, (i + 1,), OpRecord(kind, (("id", i),), (SPEC,) * len(ins), (SPEC,), None))
        )
    results = [n] if extra_reader < 0 else [n, extra_reader]
    args = [0, *(n + 2 + i for i in range(n))]
    return GraphTable({"main": FunctionTable("main", [SPEC] * (2 * n + 2), args, results, steps=steps)})


@pytest.mark.parametrize(
    "kinds",
    [("gemm", "add", "relu"), ("contract", "softmax", "contract"), ("gemm", "relu", "add", "mul"), ("conv", "relu")],
)
def test_products_with_what_follows_and_attention_are_groups(kinds) -> None:
    table = chain_of(*kinds)
    costs = {(i, i): 100 for i in range(len(kinds))} | {(0, len(kinds) - 1): 150}
    form_groups(table, Priced(costs))
    (step,) = table.functions["main"].steps
    assert tuple(op.kind for op in step.record.ops) == kinds  # type: ignore[union-attr]


def test_a_member_that_is_read_elsewhere_stays_a_result() -> None:
    table = chain_of("gemm", "relu", extra_reader=1)
    form_groups(table, Priced({(0, 0): 100, (1, 1): 100, (0, 1): 150}))
    (step,) = table.functions["main"].steps
    assert step.outputs == (1, 2) and step.record.outputs == (0, 1)  # type: ignore[union-attr]


# ---------------------------------------------------------------- plans


def record(**changes) -> OpRecord:
    return dataclasses.replace(
        one_op("gemm", Arg((64, 128), "bf16", B), Arg((128, 96), "bf16", B), out=B).records[0], **changes
    )


def test_equal_ops_are_planned_once_and_others_anew(monkeypatch) -> None:
    searches = []
    real = planning.Draft
    monkeypatch.setattr(planning, "Draft", lambda low, *a: searches.append(low) or real(low, *a))

    def layers(*shapes):
        def body(b, x, *weights):
            for w in weights:
                x = b("gemm", x, w, mem_layout=B)
            return x

        build([Arg((64, 128), "bf16", B), *(Arg(s, "bf16", B) for s in shapes)], body)
        return len(searches)

    assert layers((128, 128), (128, 128)) == (once := len(searches)) > 0  # one product, and two as a group
    searches.clear()
    assert layers((128, 128), (128, 128), (128, 128)) == once
    searches.clear()
    assert layers((128, 128), (128, 192)) > once


def test_the_key_holds_all_that_a_plan_depends_on() -> None:
    """Kind, attributes, shapes, formats, layouts and the rule tell records apart; names and places do not."""
    base = record()
    other = dataclasses.replace(base.operands[0], layout="dense")
    variants = [
        record(kind="contract"), record(attrs=(*base.attrs, ("more", 1))), record(operands=(other, base.operands[1])),
        record(operands=(dataclasses.replace(base.operands[0], dtype="f32"), base.operands[1])),
        record(results=(dataclasses.replace(base.results[0], shape=(64, 97)),)), record(rule=None),
    ]  # fmt: skip
    assert len({base, *variants}) == 1 + len(variants)
    assert record() == base and hash(record()) == hash(base)


def test_a_failure_is_remembered(monkeypatch) -> None:
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 5120
    known = Planner(Machine.from_dict(small))
    row = one_op("softmax", Arg((512, 16384))).records[0]
    messages = []
    for _ in range(2):
        with pytest.raises(InfeasibleError) as info:
            known.plan(row, "wide")
        messages.append(str(info.value))
        monkeypatch.setattr(planning, "Draft", None)  # the second time nothing is searched
    assert messages[0] == messages[1] and "wide" in messages[0]


def test_a_group_that_does_not_fit_is_cut() -> None:
    """Whatever is too large for scratchpad is cut where that costs least; a single op that is too large is an error."""
    costs = TABLE | {(0, 2): 10, (0, 3): 20}
    assert cut(4, costs) == ([3], 20)
    assert cut(4, costs, too_large={(0, 3)}) == ([2, 3], 70)
    assert cut(4, costs, too_large={(0, 3), (0, 2), (1, 3)}) == ([1, 3], 300)
    wide = one_op("softmax", Arg((512, 16384))).records[0]
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 5120
    steps = [Step("group", "wide", (0,), (1,), wide)]
    table = GraphTable({"main": FunctionTable("main", [*wide.operands, *wide.results], [0], [1], steps=steps)})
    with pytest.raises(InfeasibleError, match="wide: no split fits"):
        plan_table(table, Machine.from_dict(small))


@pytest.mark.parametrize("kind", ["gemm", "softmax", "add"])
def test_what_the_bounds_leave_out_gains_little(monkeypatch, kind: str) -> None:
    """Candidates priced well above the best trial are not tried; trying them all gains less than a tenth."""
    args = [Arg((1024, 2048), "bf16", B), Arg((2048, 1024) if kind == "gemm" else (1024, 2048), "bf16", B)]
    low = one_op(kind, *args[: 1 if kind == "softmax" else 2], out=B).lowering()
    found = best_plan(low, TX8)
    monkeypatch.setattr(planner_module, "PRICED_ABOVE", 1e9)
    assert best_plan(low, TX8).estimate_cycles >= 0.9 * found.estimate_cycles


@pytest.mark.parametrize(
    ("shape", "tiles"), [((1, 1, 1), 16), ((7, 3000, 129), 16), ((2048, 256, 512), 4), ((65, 64, 3000), 16)]
)
def test_candidates_never_repeat(shape, tiles: int) -> None:
    m, k, n = shape
    low = one_op("gemm", Arg((m, k), "bf16", B), Arg((k, n), "bf16", B), out=B).lowering()
    rows = np.column_stack(candidates(low, tiles))
    assert len(np.unique(rows, axis=0)) == len(rows) > 0
    parts = rows[:, : len(low.sizes)]
    assert (np.prod(parts, axis=1) <= tiles).all()


def test_a_long_reduction_is_split() -> None:
    """With 64 KiB a column of 60,000 weights fits only in pieces that are summed up."""
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 65536
    low = one_op("gemm", Arg((64, 60_000), "bf16", B), Arg((60_000, 64), "bf16", B), out=B).lowering()
    plan = best_plan(low, Machine.from_dict(small))
    (k,) = [f for f, summed in enumerate(low.reduce) if summed]
    assert Tiling(low, plan).trips[k] > 1 and plan.order[-1] == k and plan.spm_bytes <= 65536
    options = candidates(low, 16)[1][:, k]
    assert len(set(options.tolist())) > 4


def fused(body, wires, n_in: int, *args: Arg):
    """Return the lowering of a few ops as one group; operands are numbered as they first appear."""
    records = build(list(args), body).records
    operands: list = [None] * n_in
    for r, row in zip(records, wires, strict=True):
        for spec, (where, k) in zip(r.operands, row, strict=True):
            if where == "in":
                operands[k] = spec
    return lower(GroupRecord(tuple(records), wires, tuple(operands), (len(records) - 1,)), TX8)[0]


@pytest.mark.parametrize(("k", "steps", "loads", "x_bytes"), [(128, 16, [16, 16, 4], 8192), (512, 4, [2, 4, 4], 32768)])
def test_slices_of_the_worked_group(k: int, steps: int, loads: list[int], x_bytes: int) -> None:
    """relu(x w + b): 4 x 4 tiles, 2 x 2 slices of the result, the reduction in 4 pieces or whole."""

    def body(b, x, w, bias):
        return b("relu", b("add", b("gemm", x, w, mem_layout=B), bias, mem_layout=B), mem_layout=B)

    args = Arg((1, 256, 512), "bf16", B), Arg((512, 1024), "bf16", B), Arg((1024,), "bf16")
    low = fused(body, ((("in", 0), ("in", 1)), (("op", 0), ("in", 2)), (("op", 1),)), 3, *args)
    plan = Plan((1, 4, 4, 1), (1, 64, 256, 512), (1, 32, 128, k), (0, 1, 2, 3), 2, 0, 0, "")
    tiling = Tiling(low, plan)
    found = loop_steps(tiling, (0, 0, 0, 0), plan.shard)
    assert (len(found), sum(s.last for s in found)) == (steps, 4)
    assert [sum(i in s.load for s in found) for i in range(3)] == loads
    boxes = [a.box(found[0].lo, found[0].hi) for a in (*low.reads, *low.writes)]
    assert [tuple(b - a for a, b in box) for box in boxes] == [(1, 32, k), (k, 128), (128,), (1, 32, 128)]
    assert tiling.slice_bytes[0] == x_bytes


def test_a_value_that_is_needed_in_two_ways_is_loaded_twice() -> None:
    """x w + x: the product needs all columns of x in pieces of the reduction, the sum those of its result."""

    def body(b, x, w):
        return b("add", b("gemm", x, w, mem_layout=B), x, mem_layout=B)

    wires = ((("in", 0), ("in", 1)), (("op", 0), ("in", 0)))
    low = fused(body, wires, 2, Arg((1, 256, 512), "bf16", B), Arg((512, 512), "bf16", B))
    assert low.arguments() == [0, 1, 0]
    lo, hi = (0, 0, 0, 128), (1, 32, 64, 256)
    assert [low.reads[i].box(lo, hi) for i in (0, 2)] == [((0, 1), (0, 32), (128, 256)), ((0, 1), (0, 32), (0, 64))]


@pytest.mark.parametrize("given, kept", [(170, 0), (130, 100)])
def test_of_two_groups_of_the_same_steps_the_cheaper_is_taken(given: int, kept: int) -> None:
    """An option from elsewhere may take the very steps of a group that is cheaper, or dearer."""
    ops = [OpRecord("conv", (("id", i),), (SPEC, SPEC), (SPEC,), None) for i in (0, 1, 100, 101)]
    steps = [Step("group", f"op{i}", (i, 3 + i), (i + 1,), ops[i]) for i in range(2)]
    fn = FunctionTable("main", [SPEC] * 5, [0], [2], params={3: "w0", 4: "w1"}, steps=steps)
    whole = GroupRecord(tuple(ops[2:]), ((("in", 0), ("in", 1)), (("op", 0), ("in", 2))), (SPEC,) * 3, (1,))
    option = (0, 2, Step("group", "given", (0, 3, 4), (2,), whole))
    group_table(GraphTable({"main": fn}), Priced(TABLE | {(100, 101): given}), {"main": [option]})  # type: ignore[arg-type]
    (step,) = fn.steps
    assert isinstance(step.record, GroupRecord) and step.record.ops[0].attr("id") == kept
