"""What bounds the search: slices of a launch, operands of an op, work for chains; and plans with other cuts."""

from __future__ import annotations

import time

import pytest
from support.one_op import MACHINES, Arg, best_plan, one_op

from tx8fast.errors import InfeasibleError, SearchLimitWarning
from tx8fast.graph_table import Dim, FunctionTable, GraphTable, OpRecord, Rule, Step, TensorSpec
from tx8fast.search import memory
from tx8fast.search.exact import SearchReport
from tx8fast.search.planning import Planner
from tx8fast.search.program import plan_table
from tx8fast.tile.tiling import MAX_SLICES, Tiling

CHIP = MACHINES["tx8"]


def test_a_plan_with_other_slices_has_other_trips() -> None:
    low = one_op(
        "gemm", Arg((1, 512, 1024), "bf16", "blocked"), Arg((1024, 2048), "bf16", "blocked"), out="blocked"
    ).lowering()
    plan = best_plan(low, CHIP)
    tiling = Tiling(low, plan)
    trips = tiling.trips
    finer = tiling.but(slices=tuple(max(1, n // 2) for n in plan.slices))
    assert finer.trips == tuple(-(-a // b) for a, b in zip(plan.shard, finer.plan.slices, strict=True)) != trips
    assert tiling.but(bufs=1).trips == trips


def gemm(m: int, n: int, k: int) -> OpRecord:
    """Return a matrix product, without making its operands."""
    a, b, c = (Dim(size, ((f, 1),)) for f, size in enumerate((m, n, k)))
    spec = lambda *shape: TensorSpec(shape, "bf16", "blocked")  # noqa: E731
    rule = Rule((m, n, k), "PPR", ((a, c), (b, c)), ((a, b),), (("ne", 1, (0, 1, 2)),))
    return OpRecord("contract", (("act", "none"),), (spec(m, k), spec(n, k)), (spec(m, n),), rule, m * n * k)


def test_a_product_of_too_many_slices_is_refused_soon() -> None:
    began = time.process_time()
    with pytest.raises(InfeasibleError, match=f"at most {MAX_SLICES:,} are emitted") as err:
        Planner(CHIP).plan(gemm(1 << 16, 1 << 16, 1 << 16), "huge")
    assert "huge" in str(err.value) and "65,536 x 65,536" in str(err.value)
    assert time.process_time() - began < 10


def branches(n: int) -> GraphTable:
    """Return n different ops on one value, each with another one behind it."""
    shape = TensorSpec((32, 64), "f32")
    fn = FunctionTable("main", [shape] * (2 * n + 1), [0], list(range(n + 1, 2 * n + 1)))
    rule = Rule(
        (32, 64), "PP", ((Dim(32, ((0, 1),)), Dim(64, ((1, 1),))),), ((Dim(32, ((0, 1),)), Dim(64, ((1, 1),))),)
    )
    for i in range(n):
        for kind, a, b in (("leaky_relu", 0, 1 + i), ("elu", 1 + i, 1 + n + i)):
            record = OpRecord(kind, (("alpha", 0.01 * (i + 1)),), (shape,), (shape,), rule)
            fn.steps.append(Step("group", f"{kind}{i}", (a,), (b,), record))
    return GraphTable({"main": fn})


def looks(n: int, monkeypatch: pytest.MonkeyPatch, seconds: float = 1000.0) -> int:
    """Return how many chains and plans opt 3 looks at in n branches."""
    counted = [0]
    inner = memory.Memory.look
    monkeypatch.setattr(memory.Memory, "look", lambda self: counted.__setitem__(0, counted[0] + 1) or inner(self))
    report = SearchReport()
    plan_table(branches(n), CHIP, opt=3, seconds=seconds, report=report)
    monkeypatch.undo()
    return counted[0]


@pytest.mark.filterwarnings("ignore::tx8fast.errors.SearchLimitWarning")
@pytest.mark.slow
def test_work_grows_with_the_width_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (looks(n, monkeypatch) for n in (16, 48))
    assert many <= 4 * few


def test_seconds_bound_the_search_for_chains_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOKS_PER_SECOND", 4)
    reports = []
    for _ in range(2):
        reports.append(SearchReport())
        with pytest.warns(SearchLimitWarning, match="did not look at every chain"):
            plan_table(branches(8), CHIP, opt=3, seconds=5.0, report=reports[-1])
    assert reports[0] == reports[1] and reports[0].functions[0].status == "work limit"
