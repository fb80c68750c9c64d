"""The event kernel against its twin on random rows, and against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from event_rows import (
    BARRIER,
    CT,
    DEPTH,
    KCORE,
    NE,
    RDMA,
    TDMA,
    WAIT,
    WAIT_WORKER,
    WDMA,
    row,
    run,
    same_as_twin,
    to_input,
)

from tx8fast._kernels import EventInput, simulate_events
from tx8fast.errors import InternalError


def random_tiles(rng):
    def spans(most, size):
        out = []
        for _ in range(rng.integers(0, most + 1)):
            lo = int(rng.integers(0, size))
            out.append((lo, lo + int(rng.integers(0, size // 4 + 1))))
        return out

    size = int(rng.choice([40, 200, 2000]))
    tiles = []
    n_tiles = int(rng.integers(1, 5))
    barriers = int(rng.integers(0, 3))
    workers = int(rng.integers(1, 4))
    for _ in range(n_tiles):
        rows = []
        for _ in range(int(rng.integers(0, 30))):
            kind = int(rng.choice(8, p=[0.2, 0.15, 0.2, 0.2, 0.15, 0.05, 0.05, 0.0]))
            if kind == WAIT and rng.random() < 0.5:
                chosen = [w for w in range(3) if rng.random() < 0.5]
                rows.append(row(WAIT_WORKER, fixed=int(rng.integers(0, 30)), workers=chosen))
                continue
            dma = kind in (RDMA, WDMA)
            engine = kind < KCORE
            rows.append(
                row(
                    kind,
                    fixed=int(rng.integers(0, 60)),
                    issue=int(rng.integers(0, 8)),
                    ddr_bytes=int(rng.integers(0, 900)) if dma and rng.random() < 0.9 else 0,
                    read=spans(4, size) if engine and kind != RDMA else (),
                    write=spans(2, size) if engine and kind != WDMA else (),
                    ddr_read=spans(1, size) if kind == RDMA else (),
                    ddr_write=spans(1, size) if kind == WDMA else (),
                    worker=int(rng.integers(0, workers)),
                )
            )
        for _ in range(barriers if rng.random() < 0.8 else int(rng.integers(0, 2))):
            at = int(rng.integers(0, len(rows) + 1))
            rows.insert(at, row(BARRIER, fixed=int(rng.integers(0, 50)), issue=2))
        tiles.append(rows)
    return tiles


@pytest.mark.parametrize("seed", range(60))
def test_kernel_equals_twin(seed):
    rng = np.random.default_rng(seed)
    for _ in range(4):
        tiles = random_tiles(rng)
        serial = bool(rng.random() < 0.3)
        port, total = [(32, 150), (7, 12), (100, 3)][int(rng.integers(0, 3))]
        depth = DEPTH if rng.random() < 0.5 else tuple(int(d) for d in rng.integers(1, 4, 5))
        same_as_twin(tiles, serial, port, total, depth)


def test_random_cases_do_exercise_conflicts():
    """Without dependencies the same rows must finish earlier somewhere, else the property test shows nothing."""
    faster = 0
    for seed in range(20):
        tiles = random_tiles(np.random.default_rng(seed))
        free = [[{**r, "spm_read": [], "spm_write": []} for r in rows] for rows in tiles]
        faster += run(free).cycles < run(tiles).cycles
    assert faster > 5


@pytest.mark.parametrize("kind", ["raw", "war", "waw", "none"])
def test_dependency_starts_exactly_when_the_older_row_ends(kind):
    old_read, old_write = {"war": ([(0, 64)], []), "none": ([(0, 64)], [(64, 128)])}.get(kind, ([], [(0, 64)]))
    new_read, new_write = {"raw": ([(63, 70)], [])}.get(kind, ([], [(63, 64)]))
    if kind == "none":
        new_read, new_write = [(0, 64)], [(128, 192)]
    old = row(NE, fixed=100, read=old_read, write=old_write)
    new = row(CT, fixed=10, read=new_read, write=new_write)
    got = run([[old, new]])
    assert got.start.tolist() == ([1, 2] if kind == "none" else [1, 101])
    # one cycle of issue later than the end: nothing to wait for; one earlier: it waits for one cycle
    late = run([[old, {**new, "issue": 101}]])
    early = run([[old, {**new, "issue": 99}]])
    assert late.start[1] == 102
    assert early.start[1] == (100 if kind == "none" else 101)


def test_hardware_orders_rows_of_one_worker_only():
    load = row(RDMA, fixed=100, write=[(0, 64)], worker=1)
    product = row(NE, fixed=50, read=[(0, 64)])
    assert run([[load, {**product, "worker": 1}]]).start.tolist() == [1, 101]
    assert run([[load, product]]).start.tolist() == [1, 2]
    # the same engine takes rows of all workers in the order they were issued
    assert run([[load, {**load, "worker": 2}]]).start.tolist() == [1, 101]
    for workers, begin in (([1], 101), ([0, 1, 2], 101), ([2], 1)):
        rows = [load, row(WAIT_WORKER, fixed=180, issue=0, workers=workers), product]
        got = run([rows])
        assert got.start.tolist() == [1, begin, begin + 181]
        assert got.blocked[0, WAIT] == begin - 1


def test_touching_ranges_do_not_conflict():
    old = row(NE, fixed=100, write=[(0, 64)])
    assert run([[old, row(CT, fixed=1, read=[(64, 65)])]]).start[1] == 2
    assert run([[old, row(CT, fixed=1, read=[(63, 64)])]]).start[1] == 101


def test_ddr_conflicts_only_between_the_dma_engines():
    store = row(WDMA, fixed=50, ddr_bytes=32, ddr_write=[(1000, 1032)], read=[(0, 32)])
    load = row(RDMA, fixed=5, ddr_bytes=32, ddr_read=[(1031, 1063)], write=[(64, 96)])
    assert run([[store, load]]).start[1] == run([[store, load]]).end[0]
    other = {**load, "ddr_read": [(1032, 1064)]}
    assert run([[store, other]]).start[1] == 2
    load_first = run([[load, store]])
    assert load_first.start[1] == load_first.end[0]


@pytest.mark.parametrize(("kind", "depth"), [(CT, 6), (NE, 6), (RDMA, 6), (WDMA, 6), (TDMA, 4)])
def test_full_queue_stalls_the_core(kind, depth):
    n = depth + 3
    got = run([[row(kind, fixed=100, issue=1) for _ in range(n)] + [row((kind + 1) % 5, fixed=1, issue=1)]])
    assert got.start[:n].tolist() == [1 + 100 * i for i in range(n)]
    # Row 0 starts at once and `depth` more fit; each later one enters when an entry starts. The last of them
    # enters as row n - 1 - depth starts, and the row behind it is issued one cycle after that.
    entered = 1 + 100 * (n - 1 - depth)
    assert got.start[n] == entered + 1
    assert got.blocked[0, KCORE] == entered - n  # it would have entered at cycle n


def test_serial_mode_never_overlaps():
    rows = [row(k % 5, fixed=10 + k, issue=2) for k in range(12)]
    got = run([rows], serial=True)
    assert (got.start[1:] >= got.end[:-1]).all()
    assert got.cycles == 2 + sum(r["fixed"] for r in rows)
    assert run([rows]).cycles < got.cycles


def test_wait_and_routine_join_the_engines():
    got = run(
        [
            [
                row(NE, fixed=500),
                row(WAIT, fixed=180),
                row(KCORE, fixed=70, issue=0),
                row(CT, fixed=5),
            ]
        ]
    )
    assert got.start.tolist() == [1, 501, 681, 752]
    assert got.end.tolist() == [501, 681, 751, 757]
    assert got.blocked[0, WAIT] == 499


def test_barrier_releases_all_tiles_after_the_last():
    cost = 496
    tiles = [[row(WAIT, fixed=100 * t), row(BARRIER, fixed=cost), row(CT, fixed=1)] for t in range(4)] + [[]]
    got = run(tiles)
    arrivals = [2 + 100 * t for t in range(4)]
    assert got.start[1::3].tolist() == arrivals
    assert got.end[1::3].tolist() == [max(arrivals) + cost] * 4
    assert got.blocked[:4, WAIT].tolist() == [max(arrivals) - a for a in arrivals]
    assert got.tile_cycles[4] == 0


@pytest.mark.parametrize("k", [1, 2, 4, 5, 16, 24])
def test_equal_flows_share_equally(k):
    load = row(RDMA, fixed=304, issue=0, ddr_bytes=65536)
    store = row(WDMA, fixed=304, issue=0, ddr_bytes=65536)
    tiles = [[load, store] if t < k - 16 else [load] for t in range(min(k, 16))]
    rate = min(32.0, 150.0 / k)
    got = run(tiles)
    assert set(got.end.tolist()) == {304 + int(np.ceil(65536 / rate))}


def test_two_unequal_flows():
    """At a total of 40 B/cycle two transfers run at 20 until the short one ends, then the long one at 32."""
    short, long = row(RDMA, issue=0, ddr_bytes=2000), row(RDMA, issue=0, ddr_bytes=5200)
    got = run([[short], [long]], total=40.0)
    assert got.end.tolist() == [100, 100 + 3200 // 32]
    # the short one comes 50 cycles later: 1600 bytes of the long one are gone by then
    got = run([[{**short, "fixed": 50}], [long]], total=40.0)
    assert got.end.tolist() == [150, 150 + 1600 // 32]


def test_facade_refuses_what_the_kernel_trusts():
    tiles = [[row(CT, fixed=1)]]
    for bad, text in (
        ({"fixed": np.array([-1])}, "value below 0"),
        ({"ddr_bytes": np.array([1 << 40])}, "value below 0"),
        ({"issue": np.array([-1])}, "value below 0"),
        ({"kind": np.array([15], np.uint8)}, "unknown kind"),
        ({"kind": np.array([8], np.uint8)}, "tile set"),
        ({"kind": np.array([9], np.uint8), "arg": None}, "arg is missing"),
        ({"kind": np.array([9], np.uint8), "arg": np.array([[8, 0, 4]])}, "monitor"),
        ({"kind": np.array([9], np.uint8), "arg": np.array([[-1, 0, 0]])}, "bytes"),
        ({"kind": np.array([11], np.uint8), "arg": np.array([[8, 0, 0]])}, "workers"),
        ({"kind": np.array([12], np.uint8), "arg": np.array([[0, 0, 0]])}, "tile set"),
        ({"kind": np.array([13], np.uint8), "arg": np.array([[1, 0, 0]])}, "peer"),
        ({"worker": np.array([3], np.uint8)}, "worker of"),
        ({"code_begin": np.array([1])}, "outside the code"),
        ({"code_begin": np.array([-1])}, "outside the code"),
        ({"code_begin": np.array([1 << 62])}, "outside the code"),
        ({"tile_begin": np.array([0, 2])}, "does not partition"),
        ({"spm_read": np.zeros((1, 2, 2), np.int64)}, "spm_read"),
        ({"ddr_bytes": np.zeros(2, np.int64)}, "differ in length"),
    ):
        with pytest.raises(InternalError, match=text):
            simulate_events(EventInput(**{**vars(to_input(tiles)), **bad}), DEPTH, 32.0, 150.0)
    for depth, port in (((0, 6, 6, 6, 6), 1.0), ((6, 6, 6, 6, 16), 1.0), (DEPTH, 0.0)):
        with pytest.raises(InternalError):
            simulate_events(to_input(tiles), depth, port, 150.0)
    assert run([[], []]).cycles == 0
