"""Whole groups in time steps: slice counts that fit, the cheapest of all, and every slice of them replayed."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.errors import ConfigError, InfeasibleError
from tx8fast.schedule.steps import group as module
from tx8fast.schedule.steps.group import Spec, every, growing, refined_counts, schedule_group, try_counts
from tx8fast.schedule.steps.mining import FULL, SAME, Grain, GroupOp, Operand, Window
from tx8fast.schedule.steps.place import Memory
from tx8fast.schedule.steps.replay import find_violations
from tx8fast.schedule.steps.table import StepOp, peak_bytes

TAPS = Window(1, 3, 1)
CONV = (SAME, FULL, SAME, TAPS, TAPS)


def conv_chain(depth: int, batch: int = 2, size: int = 32, channels: int = 16, **more) -> Spec:
    """A chain of convolutions of three by three, the last one added to the first result."""
    shapes = {"x": (batch, channels, 1, size, size)}
    ops = []
    for k in range(depth):
        shapes |= {f"w{k}": (channels, channels, 1, 3, 3), f"y{k}": shapes["x"]}
        operands = (Operand(f"y{k - 1}" if k else "x", CONV), Operand(f"w{k}", uncut=True))
        ops.append(GroupOp(f"conv{k}", (f"y{k}",), operands))
    ops.append(GroupOp("add", ("z",), (Operand(f"y{depth - 1}"), Operand("y0"))))
    shapes["z"] = shapes["x"]
    return Spec(
        tuple(ops), shapes, frozenset({"z"}), lambda op, n: (9 * channels if op.name != "add" else 1) * n // 256,
        lambda kind, n: 60 + n // 8, **more,
    )  # fmt: skip


def replayed(spec: Spec, found) -> list[str]:
    ops = [op for row in found.table.rows for op in row.ops]
    spans = {
        (v.name, v.is_scratch): range(a, a + v.size_bytes)
        for v, a in zip(found.lives, found.placed.addresses, strict=True)
    }
    return find_violations(ops, spec.outputs, found.table, min(found.slices, 4), spans)


@pytest.mark.feature("F-016", "F-066", "F-067")
@pytest.mark.parametrize("capacity", [1 << 20, 96 * 1024, 48 * 1024])
def test_less_memory_means_more_slices(capacity: int) -> None:
    spec, memory = conv_chain(3), Memory(capacity, 0, 64)
    found = schedule_group(spec, memory)
    assert found.placed.occupancy_bytes <= capacity and replayed(spec, found) == []
    assert found.tried <= module.QUICK_TRIES
    roomy = schedule_group(spec, Memory(1 << 22, 0, 64))
    assert roomy.counts == (1, 1, 1, 1, 1)
    assert (found.slices > 1) == (capacity < 1 << 18) and found.cycles > 0
    assert try_counts(spec, memory, found.counts).cycles == found.cycles


@pytest.mark.feature("F-068")
def test_trying_all_counts_is_at_least_as_good() -> None:
    spec, memory = conv_chain(2, size=12), Memory(12 * 1024, 0, 64)
    quick, full = schedule_group(spec, memory), schedule_group(spec, memory, "exhaustive")
    assert full.cycles <= quick.cycles and full.tried > quick.tried
    least = refined_counts(spec, memory, spec.most_counts())
    costs = []
    for counts in every(least, spec.most_counts()):
        try:
            costs.append(try_counts(spec, memory, counts).cycles)
        except InfeasibleError:
            continue
    assert full.cycles == min(costs)


@pytest.mark.feature("F-066")
def test_an_earlier_result_is_where_the_search_begins() -> None:
    spec, memory = conv_chain(3), Memory(48 * 1024, 0, 64)
    found = schedule_group(spec, memory)
    again = schedule_group(spec, memory, start=found.counts)
    assert again.counts == found.counts and again.tried == 1 and again.cycles == found.cycles


@pytest.mark.feature("F-048")
def test_greatest_counts() -> None:
    assert conv_chain(1, batch=3, size=20).most_counts() == (3, 1, 1, 20, 20)
    cut = conv_chain(1, batch=3, channels=48, cuttable=(True, True, True, False, True), grain=Grain(16, 8))
    assert cut.most_counts() == (1, 3, 1, 1, 32)


@pytest.mark.feature("F-049")
def test_refined_counts_follow_what_is_alive_at_once() -> None:
    spec = conv_chain(3)
    one = 16 * 32 * 32 * 2  # bytes of one image
    assert refined_counts(spec, Memory(1 << 22), spec.most_counts()) == (1, 1, 1, 1, 1)
    for capacity in (8 * one, 4 * one, 2 * one):
        n, c, d, h, w = refined_counts(spec, Memory(capacity), spec.most_counts())
        assert (c, d) == (1, 1) and (h * w == 1 or n == 2), "images are taken apart before they are cut"
        whole = try_counts(spec, Memory(1 << 30), (n, 1, 1, 1, 1))
        assert n * h * w >= math.ceil(max(peak_bytes(whole.lives, len(whole.table.rows))) / capacity) or h * w > 1


@pytest.mark.feature("F-067")
def test_counts_grow_to_the_next_that_shortens_the_slices() -> None:
    spec = conv_chain(1, batch=10, size=4)
    counts = list(growing(spec, (1, 1, 1, 1, 1), spec.most_counts()))
    assert [c[0] for c in counts[:7]] == [1, 2, 3, 4, 5, 10, 10]  # 6 to 9 leave two in a slice
    assert counts[6][3:] == (2, 1) and counts[-1][3:] == (4, 4)
    assert len(set(counts)) == len(counts)


@pytest.mark.feature("F-071")
def test_weights_that_cannot_stay_are_loaded_for_every_slice() -> None:
    """Weights of three ops fill the memory; one at a time they fit."""
    spec = conv_chain(3, batch=1, size=8, channels=32)
    weight = 32 * 32 * 9 * 2
    found = schedule_group(spec, Memory(3 * weight, 0, 64), start=(1, 1, 1, 2, 1))
    loads = [m for row in found.table.rows for m in row.moves if m.value[0] == "w"]
    assert not found.placed.holds and len(loads) == 3 and not any(m.held for m in loads)
    kept = schedule_group(spec, Memory(5 * weight, 0, 64), start=(1, 1, 1, 2, 1))
    assert kept.placed.holds and kept.cycles < found.cycles


@pytest.mark.feature("F-016")
def test_what_never_fits_is_explained() -> None:
    spec = conv_chain(2, batch=1, size=8)
    with pytest.raises(InfeasibleError, match=r"none of \d+ ways to cut it fits: .*cutting gains nothing"):
        schedule_group(spec, Memory(5000, 0, 64))
    with pytest.raises(InfeasibleError, match=r"none of 20 ways to cut it fits: .*no room for"):
        schedule_group(conv_chain(2, batch=4, size=8), Memory(9000, 0, 64), start=(1, 1, 1, 1, 1))
    with pytest.raises(ConfigError, match="expected one of quick, exhaustive"):
        schedule_group(spec, Memory(5000), "slow")


@pytest.mark.feature("F-016", "F-040", "F-044", "F-080")
@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(4, 20), st.integers(12, 60), st.booleans())
def test_random_groups_are_scheduled_right(depth: int, batch: int, size: int, kib: int, scratch: bool) -> None:
    spec = conv_chain(depth, batch, size, scratch=lambda op, n: 128 if scratch else 0)
    try:
        found = schedule_group(spec, Memory(kib * 1024, 0, 64))
    except InfeasibleError:
        return
    assert replayed(spec, found) == [] and found.placed.occupancy_bytes <= kib * 1024
    names = [op.name for row in found.table.rows for op in row.ops]
    assert names == [op.name for op in spec.ops]
    assert all(isinstance(op, StepOp) and op.cycles >= 0 for op in found.table.ops)
