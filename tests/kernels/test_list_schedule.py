"""List scheduling: kernel = twin on random rows, what it promises, refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import dependences as rows_twin
from tx8fast._kernels.reference import list_schedule as twin
from tx8fast.errors import InternalError

DEPTH = (6, 6, 6, 6, 4)


def csr(rows) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, rows)]), np.array([x for row in rows for x in row], np.int64)


def lists(pair) -> list[list[int]]:
    ptr, values = pair
    return [values[a:b].tolist() for a, b in zip(ptr[:-1], ptr[1:], strict=True)]


def drawn_ranges(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    start = rng.integers(0, 40, (n, 4))
    spans = np.stack([start, start + rng.integers(0, 6, (n, 4))], 2)
    return spans[:, :2], spans[:, 2:]


def must_follow(read: np.ndarray, write: np.ndarray) -> list[set[int]]:
    """All rows with which a row has a byte in common that one of them writes."""
    bytes_of = [[{b for s, e in row for b in range(s, e)} for row in x.tolist()] for x in (read, write)]
    own = list(zip(*bytes_of, strict=True))
    return [
        {i for i in range(j) if own[i][1] & (own[j][0] | own[j][1]) or own[i][0] & own[j][1]} for j in range(len(own))
    ]


def drawn_windows(rng: np.random.Generator, engine: np.ndarray) -> _kernels.Windows:
    n, core = len(engine), engine == _kernels.ENGINES
    own = np.where(core, rng.choice([0, 2], n), rng.choice([-1, -1, -1, 1, 0], n))
    return _kernels.Windows(
        own, rng.choice([0, 2], n), rng.integers(0, 9, n), int(rng.integers(0, 9)), bool(rng.integers(2))
    )


def check_waits(order: list[int], worker: list[int], engine: list[int], follows: list[set[int]]) -> None:
    """Rows of two engines have one window, or a wait for that of the older one is between; what the core does waits for all."""
    issued: dict[int, int] = {}
    waited = [-1] * 3
    for at, j in enumerate(order):
        for w in range(3):
            waited[w] = at if j < 0 and -j >> w & 1 else waited[w]
        if j >= 0:
            for i in follows[j]:
                covered = waited[worker[i]] > issued[i] or engine[i] == _kernels.ENGINES
                assert engine[i] == engine[j] or covered or engine[j] < _kernels.ENGINES and worker[i] == worker[j]
            issued[j] = at


def agree(rng: np.random.Generator, multicasts: bool) -> None:
    n = int(rng.integers(0, 25))
    read, write = drawn_ranges(rng, n)
    before = _kernels.byte_dependences(read, write)
    want = rows_twin.byte_dependences(read.tolist(), write.tolist())
    assert [sorted(row) for row in lists(before)] == want
    engine, issue, cycles = rng.integers(0, 5 + multicasts, n), rng.integers(0, 4, n), rng.integers(0, 30, n)
    depth = rng.integers(1, 7, 5).tolist()
    windows = drawn_windows(rng, engine) if multicasts else None
    w = windows or _kernels.Windows([], [], [], 0)
    own, home, held = (np.asarray(x).tolist() for x in (w.own, w.home, w.held))
    rank = rng.permutation(n) if rng.integers(2) else None
    order, worker = (x.tolist() for x in _kernels.list_order(engine, issue, cycles, before, depth, windows, rank))
    assert (order, worker) == twin.list_order(engine.tolist(), issue.tolist(), cycles.tolist(), want, depth, own, home, held,
                                              w.wait_cycles, None if rank is None else rank.tolist(), w.drains)  # fmt: skip
    if not multicasts:
        rank = _kernels.improved(engine, issue, cycles, before, order, depth).tolist()
        assert rank == twin.improved(engine.tolist(), issue.tolist(), cycles.tolist(), want, order, depth)
    assert _kernels.longest_paths(cycles, before).tolist() == rows_twin.longest_paths(cycles.tolist(), want)
    rows = [row for row in order if row >= 0]
    place = {row: at for at, row in enumerate(rows)}
    follows = must_follow(read, write)
    assert sorted(rows) == list(range(n))
    assert all(place[i] < place[j] for j, old in enumerate(follows) for i in old)
    check_waits(order, worker, engine.tolist(), [set(row) for row in want])


@given(st.integers(0, 1 << 32), st.booleans())
def test_kernel_equals_twin(seed, multicasts) -> None:
    agree(np.random.default_rng(seed), multicasts)


@pytest.mark.parametrize("multicasts", [False, True])
def test_kernel_equals_twin_on_many_drawn_problems(multicasts) -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        agree(rng, multicasts)


def test_an_engine_gets_what_it_can_start() -> None:
    """Engine 1 waits for engine 0; the row behind its own waiting one does not, and goes first."""
    order, worker = _kernels.list_order([0, 1, 1], [1, 1, 1], [50, 10, 10], csr([[], [0], []]), DEPTH)
    assert order.tolist() == [0, 2, 1] and worker.tolist() == [0, 0, 0]


def test_of_rows_that_start_together_the_smaller_rank_goes_first() -> None:
    """Rows 0 and 1 could both start at once; row 2 waits for row 1, so the longer path begins there."""
    before = csr([[], [], [1]])
    assert _kernels.longest_paths([10, 10, 30], before).tolist() == [10, 40, 30]
    order, _ = _kernels.list_order([0, 0, 1], [1] * 3, [10, 10, 30], before, DEPTH, rank=[2, 0, 1])
    assert order.tolist() == [1, 2, 0]


def test_what_went_last_goes_first_backwards() -> None:
    """Row 2 waits for row 0 and goes on longest: from the end on it goes before row 1, and so does what it waits for."""
    before = csr([[], [], [0]])
    first, _ = _kernels.list_order([0, 0, 1], [0] * 3, [10, 10, 90], before, DEPTH, rank=[1, 0, 2])
    assert first.tolist() == [1, 0, 2]
    rank = _kernels.improved([0, 0, 1], [0] * 3, [10, 10, 90], before, first, DEPTH)
    assert _kernels.list_order([0, 0, 1], [0] * 3, [10, 10, 90], before, DEPTH, rank=rank)[0].tolist() == [0, 1, 2]


def test_within_reach_no_row_comes_before_one_far_in_front() -> None:
    """Row 0 takes long and row 1 follows it; what needs neither may go first, as far as the reach lets it."""
    before = csr([[], [0], [], [], []])
    assert lists(_kernels.within_reach(before, 2)) == [[], [0], [0], [1], [2]]
    orders = [
        _kernels.list_order([0, 1, 1, 1, 1], [0] * 5, [90, 1, 1, 1, 1], _kernels.within_reach(before, n), DEPTH)[0]
        for n in (5, 4, 2)
    ]
    assert [order.tolist() for order in orders] == [[0, 2, 3, 4, 1], [0, 2, 3, 1, 4], [0, 1, 2, 3, 4]]


def test_a_full_queue_holds_up_the_core() -> None:
    """Engine 0 has room for one row: issuing the third one takes until the second one starts, so that of engine 1 goes first."""
    order, _ = _kernels.list_order([0, 0, 0, 1], [1] * 4, [10] * 4, csr([[], [], [], [0]]), (1, 1, 1, 1, 1))
    assert order.tolist() == [0, 1, 3, 2]


def test_a_multicast_waits_for_the_window_of_what_it_follows() -> None:
    """Row 0 (window 0) must be over before the multicast; row 1 (window 2) starts before that and goes first."""
    core = _kernels.ENGINES
    windows = _kernels.Windows([-1, -1, 0, -1], [0, 2, 0, 2], [0] * 4, 180)
    order, worker = _kernels.list_order(
        [0, 1, core, 0], [1] * 4, [500, 900, 0, 10], csr([[], [], [0], [2]]), DEPTH, windows
    )
    assert order.tolist() == [0, 1, -0b001, 2, 3] and worker.tolist() == [0, 2, 0, 2]


@pytest.mark.parametrize(("drains", "home", "mask"), [(False, 2, 0b001), (False, 0, 0b101), (True, 2, 0b111)])
def test_a_wait_takes_in_what_a_row_would_wait_for(drains, home, mask) -> None:
    """Row 1 (window 2) is over before row 0, which the multicast waits for. Its follower, row 3, is to have the same window, and
    nobody needs a wait for it; or another one, which it may keep if window 2 is waited for now. Or waits take in whatever will be
    over, the empty window 1 with it."""
    core = _kernels.ENGINES
    windows = _kernels.Windows([-1, 2, 0, home], [0, 2, 0, home], [0] * 4, 180, drains)
    order, worker = _kernels.list_order(
        [0, 1, core, 0], [1] * 4, [900, 500, 0, 10], csr([[], [], [0], [1, 2]]), DEPTH, windows
    )
    assert order.tolist() == [0, 1, -mask, 2, 3] and worker.tolist() == [0, 2, 0, home]


def test_rows_that_a_wait_sets_free_go_before_the_multicast() -> None:
    """Row 2 follows row 0 on another engine: in its window it would make the multicast's wait longer, behind the wait it does not."""
    core = _kernels.ENGINES
    windows = _kernels.Windows([-1, 0, -1], [0, 0, 0], [0] * 3, 180)
    order, worker = _kernels.list_order([0, core, 1], [1, 1000, 1], [500, 0, 900], csr([[], [0], [0]]), DEPTH, windows)
    assert order.tolist() == [0, -0b001, 2, 1] and worker.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("cycles", "want"), [(50, [2, 0, 1]), (5000, [0, 1, 2])])
def test_an_engine_is_left_to_what_a_multicast_lets_go(cycles, want) -> None:
    """Row 1 may begin when the multicast is over; row 2 is younger, and keeps their engine from it if it takes longer."""
    core = _kernels.ENGINES
    windows = _kernels.Windows([0, 1, -1], [0, 0, 0], [0] * 3, 180)
    order, _ = _kernels.list_order([core, 2, 2], [100, 1, 1], [0, 10, cycles], csr([[], [0], []]), DEPTH, windows)
    assert order.tolist() == want


@pytest.mark.parametrize(("under_way", "want"), [(0, [0, 1, 2]), (500, [0, 2, 1])])
def test_rows_go_while_what_the_core_has_begun_is_under_way(under_way, want) -> None:
    """The core receives what it has sent; row 2, which had to wait for the sending alone, goes before if the message takes time."""
    core = _kernels.ENGINES
    windows = _kernels.Windows([0, 0, -1], [0, 0, 0], [0] * 3, 180)
    order, _ = _kernels.list_order(
        [core, core, 1], [100, 0, 1], [under_way, 0, 10], csr([[], [0], [0]]), DEPTH, windows
    )
    assert order.tolist() == want


@pytest.mark.parametrize("held", [0, 1])
def test_rows_are_held_until_the_core_has_done_so_much(held) -> None:
    core = _kernels.ENGINES
    windows = _kernels.Windows([-1, 0], [0, 0], [held, 0], 180)
    order, _ = _kernels.list_order([3, core], [1, 100], [50, 0], csr([[], []]), DEPTH, windows)
    assert order.tolist() == ([1, 0] if held else [0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cycles": [1]}, "2 issues and 1 cycles for 2 rows"),
        ({"before": ([0, 1, 1], [1])}, "a row follows a later one"),
        ({"before": ([0, 0], [])}, "ptr does not partition"),
        ({"engine": [0, 6]}, "engines must be at most 5"),
        ({"windows": _kernels.Windows([3, 0], [0, 0], [1, 1], 0)}, "unknown windows"),
        ({"windows": _kernels.Windows([0], [0], [1], 0)}, "windows of 1 rows for 2"),
        ({"issue": [0, -1]}, "negative cycles"),
        ({"rank": [1, 1]}, "ranks must be a permutation"),
        ({"depth": (6, 6, 6, 6, 16)}, "queue depths out of range"),
    ],
)
def test_broken_arguments_are_refused(change, message) -> None:
    good = {"engine": [0, 1], "issue": [1, 1], "cycles": [1, 1], "before": csr([[], [0]]), "depth": DEPTH}
    with pytest.raises(InternalError, match=message):
        _kernels.list_order(**{**good, **change})


def test_ranges_must_be_pairs() -> None:
    with pytest.raises(InternalError, match="ranges must be"):
        _kernels.byte_dependences(np.zeros((2, 1, 3), int), np.zeros((2, 1, 2), int))


def test_only_an_order_of_all_rows_is_improved() -> None:
    for first in ([0, 0], [0, 2], [1, -1]):
        with pytest.raises(InternalError, match="ranks must be a permutation"):
            _kernels.improved([0, 1], [1, 1], [1, 1], csr([[], [0]]), first, DEPTH)
