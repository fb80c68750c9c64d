"""Balancing of transfers against the worked example, its bounds and its ties."""

from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.steps.chains import chains
from tests.schedule.steps.replay import find_violations
from tx8fast.schedule.steps.assign import assign
from tx8fast.schedule.steps.balance import Balance, Choice, balance
from tx8fast.schedule.steps.cost import row_cycles
from tx8fast.schedule.steps.table import LOAD, STORE, Move, Row, StepOp, Table


def load(value: str, cycles: int, size: int) -> Move:
    return Move(LOAD, value, cycles, size)


A, B, C, D, E = load("a", 20, 64), load("b", 30, 64), load("c", 30, 128), load("d", 25, 96), load("e", 10, 32)
EXAMPLE = Table(
    tuple(
        Row((StepOp(f"op{t}", cycles=n),), moves)
        for t, (n, moves) in enumerate([(100, (A,)), (50, (B,)), (40, (C, D)), (60, (E,))])
    )
)


def lists(table: Table) -> list[str]:
    return ["".join(m.value for m in row.moves) for row in table.rows]


def total(table: Table) -> int:
    return sum(row_cycles(row) for row in table.rows)


def test_worked_example_step_by_step() -> None:
    b = Balance(EXAMPLE)
    assert b.slack == {"dma": [80, 20, -15, 50]}
    assert [(b.profit(m, 2, q)) for m in (C, D) for q in (1, 0)] == [5, 15, 10, 15]
    assert b.best(2) == Choice(D, 0, 15, 288)  # c would take 384 byte-steps
    b.bubble(b.best(2), 2)
    assert b.slack == {"dma": [50, 25, 10, 50]}
    assert ["".join(m.value for m in moves) for moves in b.lists] == ["ab", "d", "c", "e"]


def test_worked_example_as_a_whole() -> None:
    done = balance(EXAMPLE)
    assert lists(done) == ["ab", "d", "c", "e"]
    assert (total(EXAMPLE), total(done)) == (265, 250)


def test_a_load_stays_behind_the_readers_of_the_old_bytes() -> None:
    rows = [
        Row((StepOp("r", ("x",), cycles=90),)),
        Row((StepOp("s", cycles=90),)),
        Row((StepOp("t", cycles=10),), (load("x", 50, 1),)),
    ]
    b = Balance(Table(tuple(rows), 3))
    assert list(b.way(rows[2].moves[0], 2)) == [1]  # step 0 still reads the present slice's x
    late = Move(STORE, "y", 50)
    rows = [Row((), (late,)), Row((StepOp("s", cycles=90),)), Row((StepOp("w", (), ("y",), cycles=90),))]
    assert list(Balance(Table(tuple(rows), 3)).way(late, 0)) == [1]  # at step 2 the next slice's y is written


def test_a_store_does_not_rest_where_its_value_is_in_use() -> None:
    store = Move(STORE, "y", 50, 8)
    rows = (
        Row((StepOp("w", (), ("y",), 10),)),
        Row((StepOp("a", (), (), 10),), (store,)),
        Row((StepOp("b", ("y",), (), 100),)),
        Row((StepOp("c", (), (), 60),)),
    )
    b = Balance(Table(rows))
    assert b.best(1) == Choice(store, 3, 40, 24)  # step 2 has more room, but reads y
    assert lists(balance(Table(rows))) == ["", "", "", "y"]


def test_engines_have_slack_of_their_own() -> None:
    ld, st_ = Move(LOAD, "x", 60, 8, "rdma"), Move(STORE, "y", 60, 8, "wdma")
    rows = (Row((StepOp("a", cycles=50),)), Row((StepOp("b", cycles=20),), (ld, st_)), Row((StepOp("c", cycles=50),)))
    b = Balance(Table(rows))
    assert b.slack == {"rdma": [50, -40, 50], "wdma": [50, -40, 50]}
    # as long as the store fills the step, taking the load away saves nothing and costs 10
    assert b.profit(ld, 1, 0) == -10 and b.best(1) is None
    one = Table((rows[0], Row(rows[1].ops, (ld,)), rows[2]))
    assert Balance(one).best(1) == Choice(ld, 0, 30, 16)


def test_what_is_held_costs_only_groups_of_one_slice() -> None:
    held = Move(LOAD, "w", 80, 8, held=True)
    rows = (Row((StepOp("a", cycles=100),)), Row((StepOp("b", cycles=20),), (held,)))
    assert lists(balance(Table(rows))) == ["", "w"]
    assert lists(balance(Table(rows), multi=False)) == ["w", ""]


@given(chains())
def test_balancing_never_costs_and_stays_right(chain) -> None:
    ops, outputs, transfer = chain
    before = assign(ops, outputs, transfer)
    after = balance(before)
    assert total(after) <= total(before)
    assert sorted(map(str, (m for r in after.rows for m in r.moves))) == sorted(
        map(str, (m for r in before.rows for m in r.moves))
    )
    assert find_violations(ops, outputs, after, slices=3) == []
    b = Balance(after)
    assert all(not (b.late(t) and b.best(t)) for t in range(len(after.rows)))


@given(st.lists(st.tuples(st.integers(0, 90), st.lists(st.integers(1, 60), max_size=4)), min_size=1, max_size=8))
def test_any_table_gets_no_longer(rows) -> None:
    table = Table(
        tuple(
            Row((StepOp(f"o{t}", cycles=n),), tuple(load(f"v{t}.{k}", c, c) for k, c in enumerate(moves)))
            for t, (n, moves) in enumerate(rows)
        )
    )
    assert total(balance(table)) <= total(table)
