"""Seconds to place the problems of a public set within their capacity, and what compiling the search is worth.

Run: python benchmarks/bench_alloc.py [repeats]. One core; the least time of the repeats counts, as other work on the
machine only ever adds. "public solver": figures known for MiniMalloc on one core of a like machine; they are not measured here.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tx8fast._kernels import PackSearch
from tx8fast._kernels.reference import pack as twin
from tx8fast.alloc import Problem, solve, validate
from tx8fast.alloc.problem import read_csv

FOLDER = Path(__file__).resolve().parent / "problems"
PUBLIC_SOLVER_SECONDS = {"A": 4.5, "C": 0.65, "E": 3.3, "G": 1.0, "I": 2.9, "K": 0.6}
EFFORT = 4_000_000
TWIN_NODES = 100
LEAST_GAIN = 20.0


def seconds(problem: Problem, repeats: int) -> tuple[float, int]:
    """Return the least time to place `problem`, and the height in bytes."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        placement = solve(problem, effort=EFFORT)
        times.append(time.perf_counter() - began)
    validate(problem, placement.offsets)
    return min(times), placement.peak_bytes


def gain(problem: Problem, capacity: int) -> tuple[float, float, int]:
    """Return the seconds of kernel and twin for the same nodes, and how many nodes that were."""
    ptr, start, end, size, align, _ = problem.arrays
    order = np.lexsort((-size, start - end))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    search = PackSearch(ptr, start, end, size, align)
    columns = [column.tolist() for column in search.columns()]
    began = time.perf_counter()
    _, _, nodes = search.run(order, capacity, TWIN_NODES)
    middle = time.perf_counter()
    _, twin_nodes, _ = twin.search(*columns, rank.tolist(), 0, capacity, TWIN_NODES)
    if nodes != twin_nodes:
        raise SystemExit(f"kernel visited {nodes} nodes, twin {twin_nodes}: they must agree")
    return middle - began, time.perf_counter() - middle, nodes


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    total = 0.0
    least_gain = float("inf")
    print("| file | buffers | height | within capacity s | without capacity: height | s | public solver s |"
          " kernel : twin |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for name, public in PUBLIC_SOLVER_SECONDS.items():
        capacity = 1048576
        problem = read_csv(FOLDER / f"{name}.{capacity}.csv", capacity)
        spent, height = seconds(problem, repeats)
        free_spent, lowest = seconds(Problem(problem.buffers), repeats)
        kernel, slow, _ = gain(problem, capacity)
        least_gain = min(least_gain, slow / kernel)
        total += spent
        print(f"| {name} | {len(problem.buffers)} | {height} | {spent:.3f} | {lowest} | {free_spent:.3f} | {public} |"
              f" {slow / kernel:.0f} |")  # fmt: skip
    print(f"\ntotal {total:.3f} s, public solver {sum(PUBLIC_SOLVER_SECONDS.values()):.2f} s")
    if least_gain < LEAST_GAIN:
        raise SystemExit(f"the kernel is only {least_gain:.1f} times as fast as its twin")


if __name__ == "__main__":
    main()
