"""Placement with banks and holds against the worked examples, and its rules on random groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.steps.chains import chains
from tests.schedule.steps.replay import find_violations
from tx8fast.errors import AllocationError
from tx8fast.schedule.steps.assign import assign
from tx8fast.schedule.steps.balance import balance
from tx8fast.schedule.steps.place import Memory, Placed, place
from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, Row, StepOp, Table, lifetimes, lives_meet

MEMORY = Memory(256, bank_bytes=64, line_bytes=16)
SIZES = {"X": 48, "Y": 48, "W": 32, "Z": 32}
A, B = StepOp("A", ("X",), ("Y",)), StepOp("B", ("Y", "W"), ("Z",))
LINE = Table((Row((), (Move(LOAD, "X"),)), Row((A,), (Move(LOAD, "W"),)), Row((B,)), Row((), (Move(STORE, "Z"),))))
LOOP = Table(
    (Row((A,), (Move(LOAD, "W", held=True), Move(STORE, "Z", stage=2))), Row((B,), (Move(LOAD, "X", stage=0),))), 3
)


def placed(table: Table, **how) -> tuple[dict[str, int], Placed]:
    lives = sorted(lifetimes(table, SIZES), key=lambda v: "XYWZ".index(v.name))
    found = place(table, lives, MEMORY, **how)
    return dict(zip([v.name for v in lives], found.addresses, strict=True)), found


def test_worked_example_with_banks() -> None:
    at, found = placed(LINE)
    assert at == {"X": 0, "Y": 64, "W": 128, "Z": 0}
    assert (found.occupancy_bytes, found.conflicts, found.utilisation(MEMORY)) == (160, (), 0.625)


def test_worked_example_without_regard_to_banks() -> None:
    at, found = placed(LINE, allow_conflicts=True)
    assert (at, found.occupancy_bytes) == ({"X": 0, "Z": 0, "Y": 48, "W": 96}, 128)


@pytest.mark.parametrize(
    ("allow", "want", "occupancy"),
    [(False, {"Y": 0, "X": 64, "W": 128, "Z": 192}, 224), (True, {"Y": 0, "X": 48, "W": 96, "Z": 128}, 160)],
)
def test_worked_loop_with_a_held_weight(allow: bool, want: dict, occupancy: int) -> None:
    assert {v.name: (v.start, v.end) for v in lifetimes(LOOP, SIZES)} == {
        "X": (1, 0),
        "Y": (0, 1),
        "W": (0, 1),
        "Z": (1, 0),
    }
    at, found = placed(LOOP, held={"W"}, multi=True, allow_conflicts=allow)
    assert (at, found.occupancy_bytes, found.holds) == (want, occupancy, True)


def test_held_values_share_nothing_until_they_fill_the_memory() -> None:
    # w is used in step 0 only, v in step 2 only: alone they could share
    rows = tuple(Row((StepOp(n, r, (f"{n}o",)),)) for n, r in [("a", ("w",)), ("b", ()), ("c", ("v",))])
    table = Table(rows)
    lives = [Life("w", 0, 0, 100), Life("v", 2, 2, 100)]
    assert place(table, lives, MEMORY, {"w"}, multi=False).addresses == (0, 0)
    kept = place(table, lives, MEMORY, {"w"}, multi=True)
    assert (kept.addresses, kept.holds) == ((0, 112), True)  # behind a whole number of lines
    big = [Life("w", 0, 0, 256), Life("v", 2, 2, 100)]
    cancelled = place(table, big, MEMORY, {"w"}, multi=True)
    assert (cancelled.addresses, cancelled.holds) == ((0, 0), False)


def test_a_conflict_is_better_than_a_failure() -> None:
    table = Table((Row((), (Move(LOAD, "x"), Move(LOAD, "y"))), Row((StepOp("a", ("x", "y"), ("z",)),))))
    lives = [Life("x", 0, 1, 130), Life("y", 0, 1, 40), Life("z", 1, 1, 40)]
    found = place(table, lives, MEMORY)  # x lies in banks 0 to 2, y in the last one
    assert (found.addresses, found.conflicts) == ((0, 192, 144), ("z",))


def test_no_room_is_explained() -> None:
    table = Table((Row((StepOp("a", ("x", "y"), ("z",)),)),))
    with pytest.raises(AllocationError, match="no room for 'y' of 100 bytes in 256.*x 200"):
        place(table, [Life("x", 0, 0, 200), Life("y", 0, 0, 100)], MEMORY)


@given(chains(), st.sampled_from([0, 64, 256]), st.integers(1, 3), st.booleans())
def test_random_groups_stay_intact_in_placed_bytes(chain, bank: int, slices: int, allow: bool) -> None:
    ops, outputs, transfer = chain
    table = balance(assign(ops, outputs, transfer))
    lives = lifetimes(table, {v: 30 for op in ops for v in op.writes})
    held = {m.value for row in table.rows for m in row.moves if m.held}
    memory = Memory(4096, bank, 16)
    found = place(table, lives, memory, held, slices > 1, allow)
    spans = {(v.name, v.is_scratch): range(a, a + v.size_bytes) for v, a in zip(lives, found.addresses, strict=True)}
    for i, v in enumerate(lives):
        a = found.addresses[i]
        assert a % 16 == 0 and a + v.size_bytes <= found.occupancy_bytes <= 4096
        for k, w in enumerate(lives[:i]):
            if lives_meet(v, w) or (slices > 1 and held & {v.name, w.name}):
                assert a + v.size_bytes <= found.addresses[k] or found.addresses[k] + w.size_bytes <= a
    assert find_violations(ops, outputs, table, slices, spans) == []
