"""Lifetimes of buffer copies against worked examples; placed groups run right on symbolic memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.groups import random_groups
from tx8fast.alloc import find_violations as find_overlaps
from tx8fast.alloc import merge_intervals, solve
from tx8fast.schedule.lifetimes import Label, buffer_lives, layout, to_problem
from tx8fast.schedule.pipeline import pipeline
from tx8fast.schedule.stages import LoopOp, Repeat, Value
from tx8fast.schedule.validate import find_violations

LD, NE, ST = LoopOp("ld", "ld", (), ("x",)), LoopOp("ne", "ne", ("x",), ("y",)), LoopOp("st", "st", ("y",))
EXP = LoopOp("exp", "ct", ("x",), ("y",))
LINE = ((LD,), (EXP,), (ST,))
SIZES = {"x": 1000, "y": 300}


def lives(script, values, scratch=None):
    return {x.label: x for x in buffer_lives(pipeline(script, values), values, SIZES, scratch)}


def spans(script, values, scratch=None):
    return {(x.value, x.is_imm, x.copy): life.lifetimes for x, life in lives(script, values, scratch).items()}


@pytest.mark.feature("B71")
def test_two_copies_of_a_pipelined_loop() -> None:
    values = {v: Value(v, 2, 1) for v in "xy"}
    assert spans((Repeat(((LD,), (NE,), (ST,)), 4),), values) == {
        ("x", False, 0): ((0, 2), (2, 4)),
        ("x", False, 1): ((1, 3), (3, 5)),
        ("y", False, 0): ((1, 3), (3, 5)),
        ("y", False, 1): ((2, 4), (4, 6)),
    }


@pytest.mark.feature("B71")
def test_an_in_place_chain_is_one_buffer() -> None:
    apart = {v: Value(v) for v in "xy"}
    assert spans(LINE, apart) == {("x", False, 0): ((0, 2),), ("y", False, 0): ((1, 3),)}
    chain = lives(LINE, apart | {"y": Value("y", owner="x")})
    assert {x.value: life.lifetimes for x, life in chain.items()} == {"x": ((0, 3),)}
    assert chain[Label("x", False, 0)].size_bytes == 1024


@pytest.mark.feature("B71")
def test_scratch_stands_before_the_result_or_alone_if_the_result_is_in_place() -> None:
    values = {v: Value(v) for v in "xy"}
    own = lives(LINE, values, {"exp": 100})[Label("y", False, 0)]
    assert (own.imm_bytes, own.size_bytes) == (256, 256 + 512)
    values["y"] = Value("y", owner="x")
    assert spans(LINE, values, {"exp": 100}) == {("x", False, 0): ((0, 3),), ("exp", True, 0): ((1, 2),)}
    looped = {"x": Value("x", 2, 1), "y": Value("y", 2, 1, owner="x")}
    assert spans((Repeat(LINE, 4),), looped, {"exp": 100})["exp", True, 0] == ((1, 6),)


@pytest.mark.feature("B71")
def test_partial_sums_keep_one_range_per_copy() -> None:
    script = (Repeat((Repeat(((LD,), (NE,)), 4), (ST,)), 4),)
    values = {"x": Value("x", 2, 2), "y": Value("y", 2, 1, psum=True)}
    found = spans(script, values)
    assert found["y", False, 0] == ((1, 14),) and found["y", False, 1] == ((5, 18),)


@pytest.mark.feature("B71")
def test_values_outside_a_loop_and_values_nobody_reads() -> None:
    gemm = LoopOp("ne", "ne", ("x", "w", "t"), ("y",))
    script = ((LoopOp("ldw", "ld", (), ("w",)),), Repeat(((LD,), (gemm,)), 3))
    values = {"w": Value("w"), "t": Value("t")} | {v: Value(v, 2, 1) for v in "xy"}
    steps = pipeline(script, values)
    found = {
        x.label.value + str(x.label.copy): x.lifetimes for x in buffer_lives(steps, values, SIZES | {"w": 1, "t": 1})
    }
    assert found["w0"] == ((0, 5),)  # loaded once, last used by the last iteration
    assert found["t0"] == ((0, 5),)  # nothing writes it: there from the start
    assert found["y0"] == ((2, 3), (4, 5))


@pytest.mark.feature("B72")
def test_overlapping_ranges_of_a_label_are_joined() -> None:
    inclusive = [(0, 3), (0, 5), (2, 4), (6, 9), (6, 7), (8, 12)]
    assert merge_intervals((a, b + 1) for a, b in inclusive) == ((0, 6), (6, 13))


@pytest.mark.feature("B71", "B72")
@settings(max_examples=200)
@given(random_groups(), st.data())
def test_placed_groups_keep_every_value_intact(group, data) -> None:
    script, values, nests = group
    ops = [op.name for nest in nests for op in nest.ops]
    sizes = {v: data.draw(st.integers(1, 2000)) for v in values}
    scratch = {op: data.draw(st.integers(1, 600)) for op in ops if data.draw(st.booleans())}
    steps = pipeline(script, values)
    buffers = buffer_lives(steps, values, sizes, scratch)
    problem = to_problem(buffers)
    placement = solve(problem)
    assert find_overlaps(problem, placement.offsets) == []
    at = layout(buffers, placement, steps, values, sizes, scratch, base=0x10000)
    assert find_violations(script, values, steps, at.values, at.scratch) == []
    assert all(r.start % 256 == 0 and r.start >= 0x10000 for r in (*at.values.values(), *at.scratch.values()))


@pytest.mark.feature("B71")
@given(random_groups())
def test_ranges_start_and_end_at_uses(group) -> None:
    """Ranges cover every use, start at a write or at step 0, and end right behind a use."""
    script, values, _ = group
    steps = pipeline(script, values)
    for life in buffer_lives(steps, values, dict.fromkeys(values, 1)):
        cell = (life.label.value, life.label.copy)
        users = [t for t, s in enumerate(steps) for w in s.works if cell in (*w.reads, *w.writes)]
        writers = {t for t, s in enumerate(steps) for w in s.works if cell in w.writes}
        assert all(any(lo <= t < hi for lo, hi in life.lifetimes) for t in users)
        assert all(hi - 1 in users and (lo in writers or lo == 0) for lo, hi in life.lifetimes)
