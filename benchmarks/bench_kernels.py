"""Kernels beside their twins. `pytest benchmarks/bench_kernels.py --benchmark-only` prints both and their ratio.

The twin's rows are the price of not compiling; a kernel below 5 times its twin is not worth having.
"""

import numpy as np
import pytest

from tx8fast import _kernels
from tx8fast._kernels.reference import fit as fit_twin
from tx8fast._kernels.reference import pack as pack_twin
from tx8fast._kernels.reference import shard_enum as shard_twin


def fit_problem(n: int):
    """Buffers of a software pipeline: short, overlapping lives, sizes of a few dozen kinds."""
    start = np.arange(n)
    end = start + 2 + start * 37 % 11
    size = (start * 7919 % 48 + 1) * 1024
    columns = (np.arange(n + 1), start, end, size, np.full(n, 256), np.lexsort((start, -size)))
    return tuple(c.astype(np.int64) for c in columns)


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.benchmark(group="fit 1000 buffers")
def test_fit(benchmark, which: str) -> None:
    columns = fit_problem(1000)
    if which == "kernel":
        _, peak = benchmark(_kernels.first_fit, *columns)
    else:
        lists = [c.tolist() for c in columns]
        _, peak = benchmark.pedantic(fit_twin.first_fit, lists, rounds=3)
    assert peak >= columns[3].max()


@pytest.mark.benchmark(group="fit 50000 buffers")
def test_fit_large(benchmark) -> None:
    columns = fit_problem(50_000)
    _, peak = benchmark.pedantic(_kernels.first_fit, columns, rounds=3)
    assert peak >= columns[3].max()


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.benchmark(group="exact placement of 8 buffers")
def test_pack(benchmark, which: str) -> None:
    start, end, size = (
        list(range(8)),
        [i + 2 + i % 3 for i in range(8)],
        [i * 5 % 7 + 1 for i in range(8)],
    )
    height = pack_twin.minimum_height(start, end, size)
    if which == "kernel":
        found, _, _ = benchmark(_kernels.pack_exact, start, end, size, list(range(8)), height, 10_000)
        assert found is not None
    else:
        assert benchmark.pedantic(pack_twin.minimum_height, (start, end, size), rounds=2) == height


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.benchmark(group="shardings rank 4 over 16 tiles")
def test_shard_enum(benchmark, which: str) -> None:
    function = {"kernel": _kernels.enumerate_shardings, "twin": shard_twin.enumerate_shardings}[which]
    vectors, _, _ = benchmark(function, (3, 4, 128, 4096), (1, 1, 1, 64), 16)
    assert len(vectors) == 36


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.benchmark(group="shardings rank 5 over 64 tiles")
def test_shard_enum_grid(benchmark, which: str) -> None:
    function = {"kernel": _kernels.enumerate_shardings, "twin": shard_twin.enumerate_shardings}[which]
    vectors, _, _ = benchmark(function, (8, 16, 32, 128, 4096), (1, 1, 1, 1, 64), 64)
    assert len(vectors) == 211
