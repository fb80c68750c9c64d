"""Transfers of neighbouring groups hidden in each other: the worked choice, depths, connected values, and a replay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.steps.chains import chains
from tests.schedule.steps.grouped import addresses, assign, lifetimes
from tx8fast.schedule.steps.overlap import (
    Group,
    choose_step,
    first_free_step,
    hide_transfers,
    last_free_step,
    may_connect,
)
from tx8fast.schedule.steps.table import Move, StepOp


def scheduled(ops, outputs, transfer, slices: int = 4, **more) -> Group:
    table = assign(ops, outputs, transfer)
    lives = lifetimes(table, {v: 32 for op in ops for v in op.writes})
    return Group(table, tuple(lives), addresses(lives), slices, **more)


def chain(names: str, cycles: int, cost: int) -> Group:
    """A group of three ops: names are input, two intermediates, output."""
    i, a, b, o = names
    ops = (
        StepOp(f"{i}>", (i,), (a,), cycles),
        StepOp(f"{a}>", (a,), (b,), cycles),
        StepOp(f"{b}>", (b,), (o,), cycles),
    )
    return scheduled(ops, {o}, lambda kind, v: Move(kind, v, cost, 32))


def test_step_choice_of_the_worked_example() -> None:
    slack = [30, 50, 20, 40]
    assert choose_step(slack, 30, [3], lambda t: t == 3) == 3
    assert choose_step(slack, 30, [3, 2, 1], lambda t: t == 3) == 1
    assert choose_step(slack, 30, [3, 2, 1, 0], lambda t: t == 3) == 0
    assert choose_step([0, -5], 30, [1, 0], lambda t: False) == -1


def test_two_groups_hide_each_others_border() -> None:
    up, down = chain("wxyz", 100, 30), chain("cdef", 100, 30)
    assert ["".join(m.value for m in row.moves) for row in up.table.rows] == ["z", "", "w"]
    places = {v: up.block(v).start for v in "wxyz"}
    assert places == {v: down.block(u).start for v, u in zip("wxyz", "cdef", strict=True)}
    assert {v.name: (v.start, v.end) for v in up.lives} == {"w": (2, 0), "x": (0, 1), "y": (1, 2), "z": (2, 0)}
    assert places == {"w": 64, "x": 0, "y": 32, "z": 96}
    # In the last round of `up` no further w comes, so its bytes are free behind step 0; of the steps 1 and 2, both with room
    # for c, step 2 comes first. In the first round of `down` z's bytes are free until f is made in step 2.
    assert (first_free_step(up, "c", down.block("c")), last_free_step(down, "z", up.block("z"))) == (1, 1)
    found = hide_transfers(up, down)
    assert (found.loads, found.stores) == ({"c": 2}, {"z": 0})


def test_short_groups_hide_nothing() -> None:
    ops = (StepOp("a", ("w",), ("x",), 50), StepOp("b", ("x",), ("y",), 50))
    up = scheduled(ops, {"y"}, lambda kind, v: Move(kind, v, 5, 8), slices=2)
    down = chain("cdef", 100, 30)
    assert first_free_step(up, "c", range(0, 32)) == len(up.table.rows)
    assert hide_transfers(up, down).loads == {}


@pytest.mark.parametrize(
    ("up_batch", "down_batch", "made", "needed", "ok"),
    [
        (2, 3, (), (), True),
        (2, 1, (), (), False),
        (1, 1, ((0, 8), (8, 16)), ((0, 8), (7, 16)), True),
        (1, 1, ((0, 8), (8, 16)), ((0, 9), (7, 16)), False),  # the first slice needs a row that is made last
        (1, 1, ((0, 16),), ((0, 8), (8, 16)), False),
    ],
)
def test_values_that_pass_from_group_to_group(up_batch, down_batch, made, needed, ok) -> None:
    up, down = chain("wxyz", 100, 30), chain("zdef", 100, 30)
    up = Group(up.table, up.lives, up.address, 4, up_batch, {"z": made})
    down = Group(down.table, down.lives, down.address, 4, down_batch, {"z": needed})
    assert may_connect(up, down, "z") == ok
    if not ok:
        found = hide_transfers(up, down)
        assert "z" not in found.loads and "z" not in found.stores


@given(chains(), chains(), st.integers(1, 5))
def test_hidden_transfers_touch_nothing_alive(one, two, slices: int) -> None:
    """All slices of both groups on one time line: hidden bytes meet none that is still, or already, in use."""
    up, down = scheduled(*one, slices=slices), scheduled(*two, slices=slices)
    found = hide_transfers(up, down)
    for value, t in found.loads.items():  # it comes in the last computing round
        now = slices * len(up.table.rows) + t
        assert all(end < now for _, end in uses(up, down.block(value)))
    for value, t in found.stores.items():  # it goes in the first computing round
        now = len(down.table.rows) + t
        assert all(start > now for start, _ in uses(down, up.block(value)))


def uses(group: Group, block: range) -> list[tuple[int, int]]:
    """First and last step, counted over all rounds, of everything in the group that touches the block."""
    n, out = len(group.table.rows), []
    for life in group.lives:
        span = group.span(life)
        if span.start < block.stop and block.start < span.stop:
            moves = [m for row in group.table.rows for m in row.moves if m.value == life.name]
            early = not life.is_scratch and any(m.kind == "load" and m.stage == 0 for m in moves)
            for i in range(group.slices):
                first = (i + (not early)) * n + life.start
                out.append((first, first + len(life.steps(n)) - 1))
    return out
