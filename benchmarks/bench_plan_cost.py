"""The pricing kernel beside its twin: `pytest benchmarks/bench_plan_cost.py --benchmark-only`.

The kernel must be at least 20 times as fast as the twin; that ratio is why the search may look at thousands of cuts.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.one_op import MACHINES, Arg, one_op  # noqa: E402

from tx8fast._kernels import plan_costs  # noqa: E402
from tx8fast._kernels.reference import plan_cost as twin  # noqa: E402
from tx8fast.search import planner  # noqa: E402


def problem(n: int):
    """A product with batch, as in attention: six factors, three accesses, the first `n` candidates."""
    args = [Arg((1, 512, 4096), "bf16", "blocked"), Arg((1, 512, 1024), "bf16", "blocked")]
    low = one_op("contract", *args, out="blocked", equation="b s (h g d), b t (h d) -> b (h g) s t",
                 sizes=("h", 8, "d", 128)).lowering()  # fmt: skip
    parts, slices, inner = planner.candidates(low, 16)
    some = np.unique(np.linspace(0, len(inner) - 1, n).astype(int))
    return planner.plan_space(low, MACHINES["tx8"]), *(np.ascontiguousarray(x[some]) for x in (parts, slices, inner))


def run_twin(space, parts, slices, inner):
    out = np.empty(len(inner)), np.empty(len(inner), np.int64), np.empty(len(inner), np.int64)
    twin.plan_cost(space, parts, slices, inner, *out)
    return out


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.benchmark(group="plan cost of 500 candidates")
def test_plan_cost(benchmark, which: str) -> None:
    given = problem(500)
    found = benchmark(plan_costs, *given) if which == "kernel" else benchmark.pedantic(run_twin, given, rounds=2)
    assert found[0].min() > 0


def test_kernel_is_20_times_as_fast() -> None:
    given = problem(500)
    seconds = []
    for function in (run_twin, plan_costs):
        best = 1e9
        for _ in range(3):
            started = time.perf_counter()
            function(*given)
            best = min(best, time.perf_counter() - started)
        seconds.append(best)
    assert seconds[0] >= 20 * seconds[1], seconds
