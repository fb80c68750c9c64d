"""First tables, pipelining and lifetimes against the worked example, and the check that finds planted faults."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.steps.chains import chains
from tests.schedule.steps.replay import find_violations
from tx8fast.schedule.steps.assign import assign, assign_nearest, software_pipeline
from tx8fast.schedule.steps.cost import group_cycles
from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, Row, StepOp, Table, lifetimes, lives_meet, peak_bytes

OPS = (StepOp("A", ("X",), ("Aout",)), StepOp("B", ("Aout", "W"), ("Bout",)), StepOp("C", ("Bout",), ("Z",)))
OUT = {"Aout", "Z"}


def text(rows) -> list[str]:
    """Rows as "ops | kind value(stage)"."""
    return [
        " ".join(o.name for o in r.ops) + " | " + " ".join(f"{m.kind} {m.value}({m.stage})" for m in r.moves)
        for r in rows
    ]


def test_nearest_rows_of_the_worked_example() -> None:
    rows = [
        " ".join([*(o.name for o in r.ops), *(f"{m.kind} {m.value}" for m in r.moves)])
        for r in assign_nearest(OPS, OUT)
    ]
    assert rows == ["load X", "A load W", "B store Aout", "C", "store Z"]


def test_pipelined_rows_of_the_worked_example() -> None:
    table = assign(OPS, OUT)
    assert table.stages == 3
    assert text(table.rows) == ["A | load W(1) store Z(2)", "B | store Aout(1)", "C | load X(0)"]


def test_lifetimes_of_the_worked_example() -> None:
    spans = {life.name: (life.start, life.end) for life in lifetimes(assign(OPS, OUT))}
    assert spans == {"X": (2, 0), "Aout": (0, 1), "W": (0, 1), "Bout": (1, 2), "Z": (2, 0)}


def test_a_value_is_loaded_once_for_all_its_readers() -> None:
    ops = (StepOp("A", ("X",), ("a",)), StepOp("B", ("X", "a"), ("b",)), StepOp("C", ("X", "b", "X"), ("c",)))
    moves = [(t, m.value) for t, row in enumerate(assign_nearest(ops, {"c"})) for m in row.moves if m.kind == LOAD]
    assert moves == [(0, "X")]


def test_transfers_that_clash_keep_rows_of_their_own() -> None:
    # the last op still reads X of this slice, and the first op makes Z of the next one before it is stored
    ops = (StepOp("A", ("X",), ("Z",)), StepOp("B", ("X", "Z"), ("Y",)))
    assert text(assign(ops, {"Y"}).rows) == ["A | store Y(2)", "B | ", " | load X(0)"]
    again = (StepOp("A", ("X",), ("a",)), StepOp("B", ("a",), ("Y",)))
    rows = [*assign_nearest(again, {"Y"})[:-1], Row((), (Move(STORE, "a"),))]
    assert text(software_pipeline(rows).rows)[0] == " | store a(2)"
    assert assign(OPS[:1], {"Aout"}).stages == 1


def test_a_first_op_without_loads() -> None:
    ops = (StepOp("A", (), ("a",)), StepOp("B", ("a",), ("b",)))
    assert text(assign(ops, {"b"}).rows) == ["A | store b(2)", "B | "]


def test_scratch_lives_in_its_step_and_unused_results_too() -> None:
    ops = (StepOp("A", ("X",), ("a", "unused"), scratch_bytes=8), StepOp("B", ("a",), ("b",)))
    found = lifetimes(assign(ops, {"b"}), {"a": 5})
    assert Life("A", 0, 0, 8, True) in found and Life("unused", 0, 0) in found and Life("a", 0, 1, 5) in found


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [((0, 1), (1, 2), True), ((0, 1), (2, 3), False), ((3, 0), (1, 2), False), ((3, 1), (1, 2), True),
     ((3, 0), (0, 1), True), ((3, 0), (2, 2), False), ((5, 1), (4, 2), True)],
)  # fmt: skip
def test_lifetimes_on_a_loop_meet(a, b, meet: bool) -> None:
    assert lives_meet(Life("a", *a), Life("b", *b)) == lives_meet(Life("b", *b), Life("a", *a)) == meet


@given(*[st.integers(0, 7)] * 4)
def test_lifetimes_meet_where_their_steps_do(a: int, b: int, c: int, d: int) -> None:
    x, y = Life("x", a, b), Life("y", c, d)
    assert lives_meet(x, y) == bool(set(x.steps(8)) & set(y.steps(8)))
    assert sorted(x.steps(8)) == [t for lo, hi in x.intervals(8) for t in range(lo, hi)]


def test_peak_demand() -> None:
    lives = [Life("a", 0, 1, 100), Life("b", 1, 3, 150), Life("c", 3, 0, 80), Life("d", 2, 2, 60)]
    assert peak_bytes(lives, 4) == [180, 250, 210, 230]
    assert -(-max(peak_bytes(lives, 4)) // 128) == 2


COSTED = Table(
    (
        Row((StepOp("a", cycles=40),), (Move(LOAD, "W", 10, stage=1, held=True), Move(STORE, "Z", 25, stage=2))),
        Row((StepOp("b", cycles=30),), (Move(LOAD, "X", 35, stage=0),)),
    ),
    3,
)


@pytest.mark.parametrize(("slices", "cycles"), [(1, 130), (2, 205), (3, 280), (4, 355), (10, 805)])
def test_group_cycles_of_the_worked_example(slices: int, cycles: int) -> None:
    assert group_cycles(COSTED, slices) == cycles


@given(chains(), st.integers(1, 6))
def test_group_cycles_are_those_of_the_rounds(chain, slices: int) -> None:
    """The closed form equals a walk over all rounds, held transfers once."""
    ops, outputs, transfer = chain
    table = assign(ops, outputs, transfer)
    total = 0
    for n in range(slices + table.stages - 1):
        for row in table.rows:
            busy: dict[str, int] = {}
            lag = 1 if table.stages > 1 else 0
            if 0 <= n - lag < slices:
                for op in row.ops:
                    busy["compute"] = busy.get("compute", 0) + op.cycles
            for m in row.moves:
                i = n - (m.stage if table.stages > 1 else 0)
                if 0 <= i < slices and not (m.held and i):
                    busy[m.engine] = busy.get(m.engine, 0) + m.cycles
            total += max(busy.values(), default=0)
    assert group_cycles(table, slices) == total


@given(chains(), st.integers(1, 4))
def test_random_groups_run_right(chain, slices: int) -> None:
    ops, outputs, transfer = chain
    assert find_violations(ops, outputs, assign(ops, outputs, transfer), slices) == []


def test_planted_faults_are_found() -> None:
    table = assign(OPS, OUT)

    def faults(rows, **kw) -> str:
        return "\n".join(find_violations(OPS, OUT, Table(tuple(rows), 3), 3, **kw))

    assert faults(table.rows) == ""
    a, b, c = table.rows
    assert "needs 'W'" in faults([replace(a, moves=a.moves[1:]), b, c])
    assert "'W' is loaded by 0" in faults([replace(a, moves=a.moves[1:]), b, c], limit=99)
    assert "'Aout' is stored 0 times" in faults([a, replace(b, moves=()), c], limit=99)
    assert "A runs 0 times" in faults([replace(a, ops=()), b, c], limit=99)
    early = replace(b, moves=(*b.moves, *c.moves))
    assert faults([a, early, replace(c, moves=())]) == ""  # one step earlier nobody reads X any more
    first = replace(a, moves=(*a.moves, *c.moves))
    assert "A and the load of 'X' use the same bytes" in faults([first, b, replace(c, moves=())])
    places = {(v, False): range(k, k + 1) for k, v in enumerate(["X", "W", "Aout", "Bout", "Z"])}
    assert faults(table.rows, places=places) == ""
    assert faults(table.rows, places=places | {("Z", False): range(3, 4)}) != ""
