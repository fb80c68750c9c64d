"""The software pipeline against six worked examples, its compact form, and the rules for joining steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.schedule.pipeline import (
    Folded,
    Step,
    can_parallel,
    fold,
    get_retract,
    make_work,
    pipeline,
    unfold,
)
from tx8fast.schedule.stages import LoopOp, Repeat, Value

LD, NE, CT, ST = (
    LoopOp("ld", "ld", (), ("x",)),
    LoopOp("ne", "ne", ("x",), ("y",)),
    LoopOp("ct", "ct", ("y",), ("z",)),
    LoopOp("st", "st", ("y",)),
)
ST_Z = LoopOp("st", "st", ("z",))
LD_A, LD_B, NE_AB = (
    LoopOp("ldA", "ld", (), ("a",)),
    LoopOp("ldB", "ld", (), ("b",)),
    LoopOp("ne", "ne", ("a", "b"), ("y",)),
)


def flat(bufs: int) -> dict[str, Value]:
    return {v: Value(v, bufs, 1) for v in "abxyz"}


def tiled(psums: int) -> dict[str, Value]:
    return {"x": Value("x", 2, 2), "y": Value("y", psums, 1, psum=True)}


TILED = (Repeat((Repeat(((LD,), (NE,)), 4), (ST,)), 2),)


def loop(times: int, *ops: LoopOp) -> tuple[Repeat, ...]:
    return (Repeat(tuple((op,) for op in ops), times),)


def text(steps) -> str:
    def one(w) -> str:
        i = w.iteration
        return w.op.name + (str(i[0]) if len(i) == 1 else str(i).replace(" ", ""))

    return " / ".join(" ".join(map(one, s.works)) for s in steps)


ORACLES = {
    "two copies": (loop(4, LD, NE, ST), flat(2),
                   "ld0 / ne0 ld1 / st0 ne1 ld2 / st1 ne2 ld3 / st2 ne3 / st3"),
    "one copy": (loop(4, LD, NE, ST), flat(1),
                 "ld0 / ne0 / st0 ld1 / ne1 / st1 ld2 / ne2 / st2 ld3 / ne3 / st3"),
    "four engines": (loop(4, LD, NE, CT, ST_Z), flat(2),
                     "ld0 / ne0 ld1 / ct0 ne1 ld2 / st0 ct1 ne2 ld3 / st1 ct2 ne3 / st2 ct3 / st3"),
    "two load steps": (loop(3, LD_A, LD_B, NE_AB, ST), flat(2),
                       "ldA0 / ldB0 / ne0 ldA1 / st0 ldB1 / ne1 ldA2 / st1 ldB2 / ne2 / st2"),
    "one psum": (TILED, tiled(1),
                 "ld(0,0) / ne(0,0) ld(0,1) / ne(0,1) ld(0,2) / ne(0,2) ld(0,3) / ne(0,3) / st0 ld(1,0) / "
                 "ne(1,0) ld(1,1) / ne(1,1) ld(1,2) / ne(1,2) ld(1,3) / ne(1,3) / st1"),
    "two psums": (TILED, tiled(2),
                  "ld(0,0) / ne(0,0) ld(0,1) / ne(0,1) ld(0,2) / ne(0,2) ld(0,3) / ne(0,3) ld(1,0) / "
                  "st0 ne(1,0) ld(1,1) / ne(1,1) ld(1,2) / ne(1,2) ld(1,3) / ne(1,3) / st1"),
}  # fmt: skip


@pytest.mark.feature("B67", "B69")
@pytest.mark.parametrize("name", ORACLES)
def test_worked_examples(name: str) -> None:
    script, values, want = ORACLES[name]
    assert text(pipeline(script, values)) == want


@pytest.mark.feature("B67")
@pytest.mark.parametrize(
    ("name", "r"), [("two copies", 2), ("one copy", 1), ("four engines", 3), ("two load steps", 2)]
)
def test_retraction_of_the_worked_examples(name: str, r: int) -> None:
    script, values, _ = ORACLES[name]
    bodies = [
        [Step(tuple(make_work(op, (i,), (script[0].times,), values) for op in item)) for item in script[0].body]
        for i in (0, 1)
    ]
    assert get_retract(*bodies) == r


@pytest.mark.feature("B67")
def test_the_largest_retraction_may_hide_behind_an_invalid_one() -> None:
    ops = (LoopOp("ld", "ld"), LoopOp("a", "ct"), LoopOp("ne", "ne"), LoopOp("b", "ct"))
    bodies = [[Step((make_work(op, (i,), (2,), {}),)) for op in ops] for i in (0, 1)]
    # two steps back, `a` would meet `b` on one engine; three steps back everything finds its own
    assert not can_parallel(bodies[0][3], bodies[1][1])
    assert get_retract(*bodies) == 3


@pytest.mark.feature("B67")
def test_steps_that_may_be_one() -> None:
    def step(op: LoopOp, i: int, bufs: int) -> Step:
        return Step((make_work(op, (i,), (4,), flat(bufs)),))

    assert can_parallel(step(NE, 0, 2), step(LD, 1, 2))
    assert not can_parallel(step(NE, 0, 1), step(LD, 1, 1))  # the only copy is still read
    assert not can_parallel(step(NE, 0, 2), step(LD, 2, 2))  # the same copy again
    assert not can_parallel(step(LD, 1, 2), step(NE, 1, 2))  # dependence
    assert not can_parallel(step(LD, 1, 2), step(LD, 2, 2))  # one engine


@pytest.mark.feature("B70")
def test_slots_name_op_iteration_and_buffer() -> None:
    steps = pipeline(*ORACLES["two copies"][:2])
    assert steps[2].slots() == {"st": [("st", (0,), 0)], "ne": [("ne", (1,), 1)], "ld": [("ld", (2,), 0)]}


@pytest.mark.feature("B66")
def test_a_step_behind_a_loop_is_drawn_into_it_and_one_before_is_not() -> None:
    free = LoopOp("free", "tdma", (), ("z",))
    script = ((free,), *loop(3, LD, NE), (LoopOp("next", "ld", (), ("a",)),))
    values = flat(2) | {"z": Value("z"), "a": Value("a")}
    assert text(pipeline(script, values)) == "free() / ld0 / ne0 ld1 / ne1 ld2 / ne2 next()"


@pytest.mark.feature("B68")
@pytest.mark.parametrize("n", [4, 5, 9])
def test_compact_form(n: int) -> None:
    values = flat(2)
    steps = pipeline(loop(n, LD, NE, ST), values)
    assert len(steps) == n + 2
    first, second, steady, *rest = fold(steps, values)
    assert text([first, second]) == "ld0 / ne0 ld1"
    assert isinstance(steady, Folded) and (steady.times, steady.shift) == (n - 2, 1)
    assert text(steady.body) == "st0 ne1 ld2"
    assert text(rest) == f"st{n - 2} ne{n - 1} / st{n - 1}"


@pytest.mark.feature("B68")
def test_compact_form_with_constant_addresses() -> None:
    values = flat(2)
    steps = pipeline(loop(9, LD, NE, ST), values)
    (steady,) = (x for x in fold(steps, values, same_copies=True) if isinstance(x, Folded))
    assert (steady.times, steady.shift, len(steady.body)) == (3, 2, 2)
    rounds = unfold([steady], values)
    assert [[w.writes for w in s.works] for s in rounds[:2]] == [[w.writes for w in s.works] for s in rounds[2:4]]


@pytest.mark.feature("B68")
def test_nested_loops_fold_twice() -> None:
    script = (Repeat((Repeat(((LD,), (NE,)), 9), (ST,)), 6),)
    steps = pipeline(script, tiled(2))
    outer, last = (x for x in fold(steps, tiled(2)) if isinstance(x, Folded))
    assert (outer.level, outer.times, outer.shift) == (0, 5, 1)
    inner = [x for x in outer.body if isinstance(x, Folded)]
    assert [(x.level, x.shift) for x in (*inner, last)] == [(1, 1), (1, 1)]
    assert unfold(fold(steps, tiled(2)), tiled(2)) == steps


@pytest.mark.feature("B67", "B68")
@given(
    st.lists(st.sampled_from(["ld", "ne", "ct", "st"]), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 12),
)
def test_chains_overlap_and_fold_back(engines: list[str], bufs: int, n: int) -> None:
    ops = [LoopOp(f"{e}{k}", e, (f"v{k}",) if k else (), (f"v{k + 1}",)) for k, e in enumerate(engines)]
    values = {f"v{k}": Value(f"v{k}", bufs, 1) for k in range(len(ops) + 1)}
    steps = pipeline((Repeat(tuple((op,) for op in ops), n),), values)
    assert max(n * engines.count(e) for e in engines) <= len(steps) <= n * len(ops)
    for same_copies in (False, True):
        assert unfold(fold(steps, values, same_copies), values) == steps
