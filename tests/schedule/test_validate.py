"""The pipeline passes an independent check on random groups, and the check finds planted faults."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.schedule.groups import random_groups
from tx8fast.schedule.pipeline import Step, fold, pipeline, unfold
from tx8fast.schedule.stages import LoopOp, Repeat, Value
from tx8fast.schedule.validate import find_violations

LD, NE, ST = LoopOp("ld", "ld", (), ("x",)), LoopOp("ne", "ne", ("x",), ("y",)), LoopOp("st", "st", ("y",))
SCRIPT = (Repeat((Repeat(((LD,), (NE,)), 3), (ST,)), 2),)
VALUES = {"x": Value("x", 2, 2), "y": Value("y", 2, 1, psum=True)}


@pytest.mark.feature("B64", "B65", "B66", "B67", "B69", "B70")
@settings(max_examples=300)
@given(random_groups())
def test_random_groups_are_pipelined_right(group) -> None:
    script, values, _ = group
    steps = pipeline(script, values)
    assert find_violations(script, values, steps) == []
    assert len(steps) <= sum(1 for _ in serial_steps(script))


@pytest.mark.feature("B68")
@given(random_groups())
def test_compact_forms_of_random_groups_give_the_steps_back(group) -> None:
    script, values, _ = group
    steps = pipeline(script, values)
    for same_copies in (False, True):
        assert unfold(fold(steps, values, same_copies), values) == steps


def serial_steps(items):
    for item in items:
        if isinstance(item, Repeat):
            for _ in range(item.times):
                yield from serial_steps(item.body)
        else:
            yield item


def moved(steps: list[Step], name: str, iteration: tuple[int, ...], to: int) -> list[Step]:
    """Return the steps with one op instance in another step."""
    (work,) = (w for s in steps for w in s.works if (w.op.name, w.iteration) == (name, iteration))
    rest = [[w for w in s.works if w is not work] for s in steps]
    rest[to].append(work)
    return [Step(tuple(works)) for works in rest]


def faults(steps: list[Step]) -> str:
    return "\n".join(find_violations(SCRIPT, VALUES, steps))


# ld(0,0) / ne(0,0) ld(0,1) / ne(0,1) ld(0,2) / ne(0,2) ld(1,0) / st0 ne(1,0) ld(1,1) / ne(1,1) ld(1,2) / ne(1,2) / st1
@pytest.mark.feature("B70")
def test_the_unharmed_steps_pass() -> None:
    steps = pipeline(SCRIPT, VALUES)
    assert len(steps) == 8 and faults(steps) == ""


@pytest.mark.feature("B70")
def test_missing_repeated_and_foreign_ops_are_found() -> None:
    steps = pipeline(SCRIPT, VALUES)
    assert "st(1) runs 0 times, 1 required" in faults(steps[:-1])
    assert "st(1) runs 2 times, 1 required" in faults([*steps, steps[-1]])
    (last,) = steps[-1].works
    assert "st(7) runs 1 times, 0 required" in faults([*steps, Step((replace(last, iteration=(7,)),))])


@pytest.mark.feature("B70")
def test_two_ops_on_one_engine_are_found() -> None:
    steps = pipeline(SCRIPT, VALUES)
    assert "step 1: engine 'ld' has ld(0, 1), ld(0, 2)" in faults(moved(steps, "ld", (0, 2), 1))


@pytest.mark.feature("B70")
def test_only_loads_of_one_step_share_the_slot() -> None:
    pair = (LD, LoopOp("ld2", "ld", (), ("z",)))
    values = {v: Value(v) for v in "xz"}
    steps = pipeline((pair,), values)
    assert find_violations((pair,), values, steps) == []
    assert "engine 'ld'" in find_violations(((pair[0],), (pair[1],)), values, steps)[0]


@pytest.mark.feature("B67")
@pytest.mark.parametrize(("name", "iteration", "to"), [("ne", (0, 0), 0), ("st", (0,), 3), ("ld", (1, 2), 6)])
def test_a_broken_dependence_is_found(name: str, iteration: tuple[int, ...], to: int) -> None:
    """An op in the step of its producer, or a producer in the step of its consumer."""
    assert "must read" in faults(moved(pipeline(SCRIPT, VALUES), name, iteration, to))


@pytest.mark.feature("B69")
def test_a_copy_reused_too_early_is_found() -> None:
    single = VALUES | {"y": Value("y", 1, 1, psum=True)}
    steps = pipeline(SCRIPT, VALUES)  # made for two partial sums
    one = [Step(tuple(replace(w, **{f: tuple((v, 0 if v == "y" else c) for v, c in getattr(w, f)) for f in ("reads", "writes")})
                      for w in s.works)) for s in steps]  # fmt: skip
    text = "\n".join(find_violations(SCRIPT, single, one))
    assert "step 4: ne(1, 0) overwrites 'y' of st(0)" in text


@pytest.mark.feature("B69")
def test_a_wrong_buffer_index_is_found() -> None:
    steps = pipeline(SCRIPT, VALUES)
    (st0,) = (w for w in steps[4].works if w.op.name == "st")
    wrong = Step(tuple(replace(w, reads=(("y", 1),)) if w is st0 else w for w in steps[4].works))
    assert "st(0) must read ('y', (0,), 3)" in faults([*steps[:4], wrong, *steps[5:]])


@pytest.mark.feature("B67")
def test_partial_sums_in_another_order_are_found() -> None:
    steps = pipeline(SCRIPT, VALUES)
    works = {(w.op.name, w.iteration): w for s in steps for w in s.works}
    a, b = works["ne", (1, 1)], works["ne", (1, 2)]
    serial = [Step((works[key],)) for key in sorted(works, key=lambda k: (k[1][0], k[0] == "st", k[1], k[0]))]
    assert faults(serial) == ""
    i, j = serial.index(Step((a,))), serial.index(Step((b,)))
    serial[i], serial[j] = serial[j], serial[i]
    assert "must read" in faults(serial)


@pytest.mark.feature("B71")
def test_overlapping_bytes_and_missing_places_are_found() -> None:
    steps = pipeline(SCRIPT, VALUES)
    places = {
        ("x", 0): range(0, 256),
        ("x", 1): range(256, 512),
        ("y", 0): range(512, 768),
        ("y", 1): range(768, 1024),
    }
    assert find_violations(SCRIPT, VALUES, steps, places) == []
    clash = places | {("y", 1): range(255, 400)}
    assert any("'y'" in v or "must read" in v for v in find_violations(SCRIPT, VALUES, steps, clash))
    scratch = {("ne", 0): range(1024, 2048), ("ne", 1): range(700, 1600)}
    assert any("ne(1, 0) overwrites 'y' of st(0)" in v for v in find_violations(SCRIPT, VALUES, steps, places, scratch))
    del places["y", 1]
    assert "'y' of ne(1, 0) has no place" in find_violations(SCRIPT, VALUES, steps, places)[0]
    assert len(find_violations(SCRIPT, VALUES, steps, {}, limit=3)) == 3


@pytest.mark.feature("B70")
def test_a_script_that_reads_before_it_writes_is_found() -> None:
    backwards = ((NE,), (LD,))
    values = {v: Value(v) for v in "xy"}
    assert "nothing has written" in find_violations(backwards, values, pipeline(backwards, values))[0]
