"""Transfers moved and steps merged after placement: worked examples, legality, and what must hold for random groups."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.steps.chains import chains
from tests.schedule.steps.replay import find_violations
from tx8fast.errors import AllocationError
from tx8fast.schedule.steps.assign import assign
from tx8fast.schedule.steps.balance import Balance
from tx8fast.schedule.steps.combine import (
    Setting,
    combine,
    may_merge,
    may_move,
    merge_steps,
    merged,
    move_transfers,
    swap_transfers,
)
from tx8fast.schedule.steps.cost import row_cycles
from tx8fast.schedule.steps.place import Memory
from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, Row, StepOp, Table, lifetimes

ROOMY = Setting(Memory(1 << 16, 0, 16), {})


def two_rows(source: tuple[int, list[Move]], target: tuple[int, list[Move]]) -> Table:
    rows = [Row((StepOp(f"o{k}", (), (f"r{k}",), c),), tuple(moves)) for k, (c, moves) in enumerate((source, target))]
    return Table(tuple(rows))


def lists(table: Table) -> list[str]:
    return ["".join(m.value for m in row.moves) for row in table.rows]


@pytest.mark.parametrize(("filled", "profit"), [(20, 25), (70, 0)])
def test_profit_of_a_destination(filled: int, profit: int) -> None:
    """A step that waits already is charged only for what it waits longer."""
    x, rest, other = Move(LOAD, "x", 25), Move(LOAD, "r", 45), Move(LOAD, "o", filled)
    table = two_rows((40, [x, rest]), (60, [other]))
    assert Balance(table).profit(x, 0, 1) == profit


@pytest.mark.parametrize(
    ("source", "target", "c_load", "c_store", "swapped"),
    [((50, 80), (60, 40), 40, 20, True), ((50, 80), (30, 60), 20, 30, False)],
)
def test_a_swap_must_save_cycles(source, target, c_load: int, c_store: int, swapped: bool) -> None:
    """Waits of 30 become 10; waits of 60 that stay 60 are no reason to change anything."""
    load, store = Move(LOAD, "x", c_load, 1), Move(STORE, "y", c_store, 1)
    rows = (
        Row((StepOp("y", (), ("y",), 0),)),
        Row((StepOp("a", (), ("a",), source[0]),), (load, Move(LOAD, "p", source[1] - c_load, held=False))),
        Row((StepOp("b", (), ("b",), target[0]),), (store, Move(LOAD, "q", target[1] - c_store))),
        Row((StepOp("c", ("x", "p", "q"), ("c",), 100),)),
    )
    table = Table(rows)
    # the first load of a step is the one that is swapped; p keeps its place because x stands before it
    found = swap_transfers(table, ROOMY)
    assert (lists(found)[1:3] == ["py", "qx"]) == swapped and (found == table) != swapped


def test_what_may_move_where() -> None:
    table = assign(
        (
            StepOp("A", ("X",), ("a",)),
            StepOp("B", ("a", "W"), ("b",)),
            StepOp("C", ("b",), ("c",)),
            StepOp("D", ("c",), ("d",)),
        ),
        {"b", "d"},
    )
    assert lists(table) == ["Wd", "", "b", "X"]
    w, d, b, x = table.rows[0].moves[0], table.rows[0].moves[1], table.rows[2].moves[0], table.rows[3].moves[0]
    assert [to for to in range(-1, 5) if may_move(table, x, 3, to)] == [1, 2]  # step 0 reads the present X
    assert [to for to in range(-1, 5) if may_move(table, w, 0, to)] == []  # step 1 reads it
    assert [to for to in range(-1, 5) if may_move(table, b, 2, to)] == [3]  # behind its producer, step 1
    assert [to for to in range(-1, 5) if may_move(table, d, 0, to)] == [1, 2]  # before the next slice's d, step 3


def test_a_move_needs_profit_and_room() -> None:
    ops = (StepOp("A", ("X",), ("a",), 10), StepOp("B", ("a",), ("b",), 90), StepOp("C", ("b",), ("c",), 10))
    cost = {"X": 60, "c": 10}

    def transfer(kind: str, value: str) -> Move:
        return Move(kind, value, cost.get(value, 0), 100)

    table = assign(ops, {"c"}, transfer)
    assert lists(table) == ["c", "", "X"]
    sizes = dict.fromkeys("abc", 100)
    assert lists(move_transfers(table, Setting(Memory(1 << 12, 0, 4), sizes))) == ["c", "X", ""]
    # one step earlier X lives beside both a and b
    assert move_transfers(table, Setting(Memory(250, 0, 4), sizes)) == table


def shifted(life: Life, t: int, n_steps: int) -> Life:
    """The published index shift of a merge of steps t and t + 1, as a twin of lifetimes worked out anew."""
    start, end = life.start - (life.start > t), life.end - (life.end > t)
    if life.start == life.end + 1 and start == end:
        start = 0 if life.start >= n_steps - 1 else life.start
    return replace(life, start=start, end=end)


@pytest.mark.parametrize(
    ("old", "t", "new"),
    [((2, 3), 1, (1, 2)), ((3, 0), 1, (2, 0)), ((1, 2), 1, (1, 1)), ((2, 1), 1, (2, 1)), ((3, 2), 2, (0, 2))],
)
def test_published_shift_of_a_merge(old, t: int, new) -> None:
    found = shifted(Life("v", *old), t, 4)
    assert (found.start, found.end) == new


@given(chains(), st.integers(0, 6))
def test_lifetimes_after_a_merge_are_the_shifted_ones(chain, t: int) -> None:
    table = assign(*chain)
    if may_merge(table, t):
        want = [shifted(v, t, len(table.rows)) for v in lifetimes(table)]
        assert lifetimes(merged(table, t)) == want


def test_steps_that_wait_for_transfers_are_merged() -> None:
    ops = (StepOp("A", ("X",), ("a",), 10), StepOp("B", ("a",), ("b",), 90), StepOp("C", ("b",), ("c",), 20))
    cost = {"X": 60, "c": 30}
    table = assign(ops, {"c"}, lambda kind, v: Move(kind, v, cost[v], 8))
    assert [row_cycles(r) for r in table.rows] == [30, 90, 60]
    one = merge_steps(table, ROOMY)
    # A and B first; C with the load of the next X cannot join the reader of X
    assert ["".join(op.name for op in row.ops) for row in one.rows] == ["AB", "C"]
    assert [row_cycles(r) for r in one.rows] == [100, 60]
    calm = assign(ops, {"c"}, lambda kind, v: Move(kind, v, 5, 8))
    assert merge_steps(calm, ROOMY) == calm
    nothing = assign(tuple(replace(op, cycles=0) for op in ops), {"c"})
    assert len(merge_steps(nothing, ROOMY).rows) == 2  # steps without work are merged as well


def test_what_keeps_steps_apart() -> None:
    def rows(*pairs) -> Table:
        return Table(tuple(Row(ops, moves) for ops, moves in pairs))

    make, use = (StepOp("m", (), ("v",)),), (StepOp("u", ("v",), ()),)
    load, store = (Move(LOAD, "v"),), (Move(STORE, "v"),)
    assert may_merge(rows((make, ()), (use, ())), 0)
    assert not may_merge(rows(((), load), (use, ())), 0)
    assert not may_merge(rows((use, ()), ((), load)), 0)
    assert not may_merge(rows((make, ()), ((), store)), 0)
    assert not may_merge(rows(((), store), (make, ())), 0)
    assert not may_merge(rows(((), store), ((), load)), 0)
    assert may_merge(rows((use, ()), ((), store)), 0)
    assert not may_merge(rows((use, ()), ((), store)), 1)


@given(chains(), st.sampled_from([300, 600, 4096]), st.integers(1, 3))
def test_combined_groups_are_placed_and_right(chain, capacity: int, slices: int) -> None:
    ops, outputs, transfer = chain
    table = assign(ops, outputs, transfer)
    held = {m.value for row in table.rows for m in row.moves if m.held}
    setting = Setting(Memory(capacity, 0, 4), {v: 30 for op in ops for v in op.writes}, held, slices > 1)
    try:
        after, placed = combine(table, setting)
    except AllocationError:
        assert setting.place(table) is None
        return
    count = slices == 1
    assert sum(row_cycles(r, count) for r in after.rows) <= sum(row_cycles(r, count) for r in table.rows)
    lives = lifetimes(after, setting.size_bytes)
    spans = {(v.name, v.is_scratch): range(a, a + v.size_bytes) for v, a in zip(lives, placed.addresses, strict=True)}
    assert find_violations(ops, outputs, after, slices, spans) == []


def test_large_groups_have_their_steps_merged_only(monkeypatch) -> None:
    ops = tuple(StepOp(f"o{k}", (f"v{k}",), (f"v{k + 1}",), 10) for k in range(4))
    table = assign(ops, {"v4"}, lambda kind, v: Move(kind, v, 30, 8))
    monkeypatch.setattr("tx8fast.schedule.steps.combine.MAX_OPS", 3)
    monkeypatch.setattr("tx8fast.schedule.steps.combine.move_transfers", None)
    after, _ = combine(table, ROOMY)
    assert len(after.rows) < len(table.rows)
