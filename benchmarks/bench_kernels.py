"""Every kernel beside its twin at production size, in one run.

pytest benchmarks/bench_kernels.py --benchmark-only     both columns of every kernel
python benchmarks/bench_kernels.py                      a table with the ratios, in CPU time

The twin's rows are the price of not compiling. A kernel must be 20 times as fast; below 5 times it is not worth having.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pairs_numbers  # noqa: E402
import pairs_rows  # noqa: E402
from simulator.event_rows import BARRIER, CT, DEPTH, NE, RDMA, WDMA, row, to_input  # noqa: E402
from support.one_op import MACHINES, Arg, one_op  # noqa: E402

from tx8fast import _kernels  # noqa: E402
from tx8fast._kernels import _facade_field, _facade_shadow  # noqa: E402
from tx8fast._kernels.reference import banks as banks_twin  # noqa: E402
from tx8fast._kernels.reference import events as events_twin  # noqa: E402
from tx8fast._kernels.reference import field as field_twin  # noqa: E402
from tx8fast._kernels.reference import fit as fit_twin  # noqa: E402
from tx8fast._kernels.reference import overlaps as overlaps_twin  # noqa: E402
from tx8fast._kernels.reference import pack as pack_twin  # noqa: E402
from tx8fast._kernels.reference import pages as pages_twin  # noqa: E402
from tx8fast._kernels.reference import plan_cost as plan_cost_twin  # noqa: E402
from tx8fast._kernels.reference import shadow as shadow_twin  # noqa: E402
from tx8fast._kernels.reference import shard_enum as shard_twin  # noqa: E402
from tx8fast._kernels.reference import time_steps as steps_twin  # noqa: E402
from tx8fast.proof import forms  # noqa: E402
from tx8fast.proof.primes import primes_of  # noqa: E402
from tx8fast.search.cuts import candidates  # noqa: E402
from tx8fast.search.prices import plan_space  # noqa: E402

Pair = tuple[Callable[[], object], Callable[[], object]]
REQUIRED = 20


def fit_columns(n: int) -> tuple[np.ndarray, ...]:
    """Buffers of a software pipeline: short, overlapping lives, sizes of a few dozen kinds."""
    start = np.arange(n)
    end = start + 2 + start * 37 % 11
    size = (start * 7919 % 48 + 1) * 1024
    columns = (np.arange(n + 1), start, end, size, np.full(n, 256), np.lexsort((start, -size)))
    return tuple(c.astype(np.int64) for c in columns)


def fit() -> Pair:
    columns = fit_columns(1000)
    lists = [c.tolist() for c in columns]
    return lambda: _kernels.first_fit(*columns), lambda: fit_twin.first_fit(*lists)


def pack() -> Pair:
    """A public placement problem of 454 buffers at its capacity, a few hundred nodes of the search."""
    text = (ROOT / "benchmarks" / "problems" / "A.1048576.csv").read_text().split()[1:]
    _, start, end, size = map(list, zip(*([int(x) for x in line.split(",")] for line in text), strict=True))
    order = sorted(range(len(size)), key=lambda i: (start[i] - end[i], -size[i], i))
    rank = np.argsort(order).tolist()
    search = _kernels.PackSearch(range(len(size) + 1), start, end, size)
    columns = [c.tolist() for c in search.columns()]

    def kernel() -> object:
        fresh = _kernels.PackSearch(range(len(size) + 1), start, end, size)
        return fresh.run(order, 1048576, 400)

    return kernel, lambda: pack_twin.search(*columns, rank, 0, 1048576, 400)


def pages() -> Pair:
    """Transfers as a trial has them: few rows, a slice of a matrix each."""
    at = np.arange(20) * 524288
    runs = np.array([[128, 8192, 64 + i, 524288, 4, 0, 1] for i in range(len(at))])
    lists = at.tolist(), runs.tolist()
    return lambda: _kernels.extra_pages(at, runs, 4096), lambda: pages_twin.extra_pages(*lists, 4096)


def shardings() -> Pair:
    """The scores of grouped attention over a grid of four chips: six factors, 64 tiles."""
    given = (1, 8, 4, 2048, 2048, 128), (1, 1, 1, 1, 64, 1), 64
    return lambda: _kernels.enumerate_shardings(*given), lambda: shard_twin.enumerate_shardings(*given)


def plan_cost() -> Pair:
    """A product with batch, as in attention: six factors, three accesses, 500 candidates."""
    args = [Arg((1, 512, 4096), "bf16", "blocked"), Arg((1, 512, 1024), "bf16", "blocked")]
    low = one_op("contract", *args, out="blocked", equation="b s (h g d), b t (h d) -> b (h g) s t",
                 sizes=("h", 8, "d", 128)).lowering()  # fmt: skip
    parts, slices, inner = candidates(low, 16)
    some = np.unique(np.linspace(0, len(inner) - 1, 500).astype(int))
    given = plan_space(low, MACHINES["tx8"]), *(np.ascontiguousarray(x[some]) for x in (parts, slices, inner))
    out = np.empty(500), np.empty(500, np.int64), np.empty(500, np.int64)
    return lambda: _kernels.plan_costs(*given), lambda: plan_cost_twin.plan_cost(*given, *out)


def events() -> Pair:
    """Sixteen tiles with twelve double-buffered steps of a product: the twin goes from event to event."""
    tile = []
    for i in range(12):
        at = (i % 2) * 4096
        tile += [row(RDMA, 300, 40, 65536, write=[(at, at + 1024)]), row(NE, 8252, 40, read=[(at, at + 1024)],
                 write=[(at + 1024, at + 2048)]), row(CT, 500, 40, read=[(at + 1024, at + 2048)], write=[(at + 2048, at + 3072)]),
                 row(WDMA, 200, 40, 16384, read=[(at + 2048, at + 3072)])]  # fmt: skip
    tiles = [[*tile, row(BARRIER, 100, 4)] for _ in range(16)]
    given = to_input(tiles)
    return (
        lambda: _kernels.simulate_events(given, DEPTH, 32.0, 150.0),
        lambda: events_twin.simulate(tiles, DEPTH, 32, 150),
    )


def banks() -> Pair:
    """Sets of rows as prefills have them: a product with a partial sum, an addition, a load, a move."""
    sets = [
        (((p, 30), (3, 8), (p, 16), (7, 16)), ((2, 32), (p, 32), (5, 32)), ((p, 3),), ((1, 12), (9, 12)))
        for p in range(16)
    ]
    flat = [[(lane, *s) for lane, own in enumerate(asked) for s in own] for asked in sets]
    begin = np.cumsum([0, *map(len, flat)])
    lane, beat, step = np.array([s for own in flat for s in own], np.int64).reshape(-1, 3).T
    return (
        lambda: _kernels.bank_shares(begin, lane, beat, step, 4, 8, 2, [16]),
        lambda: [banks_twin.shares(asked, 8, 2, 16, _kernels.STEPS, 128, 256, 2) for asked in sets],
    )


def overlaps() -> Pair:
    """The rows of a tile that multiplies, adds and loads: what runs beside what, and how long it takes then."""
    cycles = np.array([[700, 650, 2100], [40, 90, 5]]).T.repeat(60, axis=0).reshape(3, 60, 2)
    end = np.cumsum(cycles.sum(axis=2), axis=1)
    start, lane = end - cycles[..., 0], np.repeat(np.arange(3), 60).reshape(3, 60)
    form = np.arange(180).reshape(3, 60) % 5
    order = np.argsort(start.reshape(-1), kind="stable")
    rows = [x.reshape(-1)[order] for x in (start, end, lane, form)]
    lists, work = [x.tolist() for x in rows], rows[1] - rows[0]
    lanes, forms = rows[2].astype(np.int32), rows[3].astype(np.int32)
    speed = 1 - np.arange(6000) % 7 / 10

    def kernel() -> object:
        _kernels.number_pairs(rows[2], rows[3])
        found = _kernels.overlapping(rows[0], rows[1], lanes, forms, 3)
        shares = speed[: 3 * len(found.sets)].reshape(-1, 3)
        return _kernels.stretched(rows[0], lanes, work, found, shares)

    def twin() -> object:
        overlaps_twin.number_pairs(lists[2], lists[3])
        knots, state, sets = overlaps_twin.overlapping(*lists, 3)
        shares = speed[: 3 * len(sets)].reshape(-1, 3).tolist()
        return overlaps_twin.stretched(lists[0], lists[2], work.tolist(), knots, state, shares)

    return kernel, twin


def time_steps() -> Pair:
    """200 steps of a nest: every eighth one has three times the loads that fit beside its computing."""
    step = np.sort(np.concatenate([np.arange(200), np.repeat(np.arange(7, 200, 8), 8)]))
    cycles, limit = 300 + np.arange(len(step)) * 37 % 90, np.maximum(step - 8, 0)
    computed = np.full(200, 900)
    given = [x.tolist() for x in (cycles, limit, step, computed)]
    return lambda: _kernels.bubble(*given), lambda: steps_twin.bubble(*given)


def field() -> Pair:
    """A softmax's steps over the field but its sum: hashes of the maximum, exponentials, inverses."""
    p, q, omega = primes_of(0)
    words_p, words_q = _facade_field.counters(1, 0, (1 << 16,), p, q)
    assert words_q is not None

    def kernel() -> object:
        _facade_field.hashes(words_p, 2, p, q, words_q)
        return _facade_field.invert(_facade_field.exponential(words_p, words_q, p, omega), p)

    def twin() -> object:
        field_twin.share_pq(words_p, words_q, 2, p, q)
        return field_twin.inv_p(field_twin.exp_p(words_p, words_q, p, omega), p)

    return kernel, twin


def shadow() -> Pair:
    """An operand of the matrix engine, 64 positions of 1024 channels, from cells to centred residues."""
    form, modulus = forms.blocked(1, 64, 1024, "bf16"), primes_of(0)[0]
    plane = (np.arange(form.cells, dtype=np.uint32) * 97 % modulus | 1 << 24).astype(np.uint32)
    return (
        lambda: _facade_shadow.centred(plane, 0, form, modulus),
        lambda: shadow_twin.centred(plane, 0, form.numbers, form.width, form.kind, modulus),
    )


def vectors() -> Pair:
    """A matrix of 256 x 256 words, one that is drawn by rows and one by columns, each times a vector."""
    p, q, _ = primes_of(0)
    words, vector = (
        _facade_field.counters(key, 0, shape, p, q, "p")[0] for key, shape in ((1, (256, 256)), (2, (256,)))
    )

    def kernel() -> object:
        _facade_field.dots(words, vector, p)
        _facade_field.drawn_dots(1, 0, 256, vector, p)
        return _facade_field.drawn_sums(1, 0, vector, 256, p)

    def twin() -> object:
        drawn = field_twin.counters(1, 0, 1 << 16, p, q)[0].reshape(256, 256)
        field_twin.dots(words, vector, p)
        field_twin.dots(drawn, vector, p)
        return field_twin.dots(drawn.T, vector, p)

    return kernel, twin


def centred() -> Pair:
    """Residues of 65536 words around zero, and of as many that are drawn."""
    p, q, _ = primes_of(0)
    words = _facade_field.counters(1, 0, (1 << 16,), p, q, "p")[0]
    out = np.empty(1 << 16)

    def kernel() -> object:
        _facade_field.drawn_centred(3, 0, out, p, True)
        return _facade_field.centre(words, p)

    def twin() -> object:
        field_twin.centre(field_twin.counters(3, 0, 1 << 16, p, q)[0], p)
        return field_twin.centre(words, p)

    return kernel, twin


def thin() -> Pair:
    """A thin matrix of 128 x 512 words, from its factors and looked at."""
    p, q, _ = primes_of(0)
    shapes = (128, _facade_field.RANK), (_facade_field.RANK, 512)
    factors = [_facade_field.centre(_facade_field.counters(i, 0, s, p, q)[0], p) for i, s in enumerate(shapes)]
    matrix = _facade_field.Thin(*factors)

    def kernel() -> object:
        words = _facade_field.thin_words(matrix, 0, (128, 512), p)
        return _facade_field.spanned(_facade_field.centre(words, p), matrix, p)

    def twin() -> object:
        return (field_twin.thin(*matrix, p) == field_twin.thin(*matrix, p)).all()

    return kernel, twin


def sums() -> Pair:
    """Sums of a product, 64 positions of 256 channels: added up, reduced, and stored with partial sums."""
    form, modulus = forms.blocked(1, 64, 256, "f32"), primes_of(0)[0]
    total = np.random.default_rng(0).integers(-(1 << 50), 1 << 50, form.shape).astype(np.float64)
    plane = np.zeros(form.cells, np.uint32)
    words = np.arange(form.size, dtype=np.uint32)
    _facade_shadow.store(plane, 0, form, words)

    def kernel() -> object:
        _facade_shadow.add_reduced(total.copy(), total, modulus)
        _facade_shadow.residues(total, modulus)
        return _facade_shadow.finish(total, plane.copy(), 0, form, (0, form), modulus)

    def twin() -> object:
        flat, own = total.reshape(-1), plane.copy()
        [int(a) + int(b) % modulus for a, b in zip(flat, flat)]
        shadow_twin.residues(flat, modulus)
        before, _ = shadow_twin.load_p(own, 0, form.numbers, form.width, form.kind)
        made = shadow_twin.finish(flat, before, modulus)
        return shadow_twin.store_p(own, 0, form.numbers, form.width, form.kind, made)

    return kernel, twin


def moves() -> Pair:
    """64 runs of 512 cells, a drawn operand of 64 x 512, and an operand read and written."""
    form, (p, q, _) = forms.blocked(1, 64, 512, "bf16"), primes_of(0)
    plane, other = np.zeros(form.cells, np.uint32), np.zeros(form.cells, np.uint32)
    levels, stream = (512, 64, 0, 1, 0, 1), _facade_shadow.Stream(form, 5)

    def kernel() -> object:
        _facade_shadow.draw(plane, other, 0, stream, 0, (0, 1, 0, 1, 0, 1), form.cells, p, q)
        _facade_shadow.move(other, 0, levels, plane, 0, levels, 512)
        return _facade_shadow.store(plane, 0, form, _facade_shadow.load(plane, 0, form)[0])

    def twin() -> object:
        drawn, _ = shadow_twin.drawn(form.numbers, form.width, form.kind, 5, p, q)
        shadow_twin.runs(other, 0, levels, drawn, 0, levels, 512)
        words, _ = shadow_twin.load_p(drawn, 0, form.numbers, form.width, form.kind)
        return shadow_twin.store_p(drawn, 0, form.numbers, form.width, form.kind, words)

    return kernel, twin


PAIRS: dict[str, Callable[[], Pair]] = {
    "banks: 16 sets of 10 streams": banks,
    "fit: 1000 buffers": fit,
    "pack: 454 buffers, 400 nodes": pack,
    "pages: 20 transfers of 294 runs": pages,
    "field: 65536 elements": field,
    "field: 256 x 256 by a vector": vectors,
    "field: 65536 around zero": centred,
    "field: thin 128 x 512": thin,
    "shadow: 64 x 1024 operand": shadow,
    "shadow: 64 x 256 sums": sums,
    "shadow: 64 x 512 moved": moves,
    **pairs_numbers.PAIRS,
    "shard_enum: rank 6, 64 tiles": shardings,
    "plan_cost: 500 candidates": plan_cost,
    "events: 16 tiles, 784 rows": events,
    **pairs_rows.PAIRS,
    "overlaps: 180 rows of a tile": overlaps,
    "time_steps: 400 transfers": time_steps,
}
pair = cache(lambda name: PAIRS[name]())


@pytest.mark.parametrize("which", ["kernel", "twin"])
@pytest.mark.parametrize("name", PAIRS)
def test_kernel_and_twin(benchmark, name: str, which: str) -> None:
    benchmark.group = name
    kernel, twin = pair(name)
    if which == "kernel":
        benchmark(kernel)
    else:
        benchmark.pedantic(twin, rounds=2)


@pytest.mark.benchmark(group="fit 50000 buffers")
def test_fit_large(benchmark) -> None:
    columns = fit_columns(50_000)
    _, peak = benchmark.pedantic(_kernels.first_fit, columns, rounds=3)
    assert peak >= columns[3].max()


def cpu_seconds(function: Callable[[], object], at_least: float = 0.1) -> float:
    """Return the CPU time of one call, the best of three rounds of `at_least` seconds."""
    rounds = []
    for _ in range(3):
        calls, started = 0, time.process_time()
        while (took := time.process_time() - started) < at_least:
            function()
            calls += 1
        rounds.append(took / calls)
    return min(rounds)


def main() -> int:
    print("| kernel | kernel | twin | ratio |\n|---|---|---|---|")
    slow = []
    for name in PAIRS:
        kernel, twin = (cpu_seconds(f) for f in pair(name))
        print(f"| {name} | {kernel * 1e3:.3f} ms | {twin * 1e3:.1f} ms | {twin / kernel:.0f} |", flush=True)
        if twin < REQUIRED * kernel:
            slow.append(name)
    if slow:
        print(f"below {REQUIRED} times its twin: {', '.join(slow)}")
    return len(slow)


if __name__ == "__main__":
    sys.exit(main())
