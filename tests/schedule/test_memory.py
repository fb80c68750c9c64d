"""DDR frames: who shares bytes with whom, and when a cache may be updated where it lies."""

from __future__ import annotations

import pytest

from tx8fast.graph_table import FunctionTable, OpRecord, Step, TensorSpec
from tx8fast.schedule.memory import plan_frames

SPEC = TensorSpec((64, 64), "f32")
CAPACITY = 1 << 30


def function(name: str, n_values: int, args, results, steps, params=()) -> FunctionTable:
    return FunctionTable(name, [SPEC] * n_values, list(args), list(results), dict.fromkeys(params, "w"), steps=steps)


def op(kind: str, inputs, output: int) -> Step:
    record = OpRecord(kind, (), (SPEC,) * len(inputs), (SPEC,), None)
    return Step("group", kind, tuple(inputs), (output,), record)


def alias(src: int, dst: int) -> Step:
    return Step("alias", "reshape", (src,), (dst,))


def call(callee: str, inputs, outputs) -> Step:
    return Step("call", callee, tuple(inputs), tuple(outputs), callee=callee)


def frames(*functions: FunctionTable):
    return plan_frames({f.name: f for f in functions}, CAPACITY)


UPDATE = [op("kv_update", (0, 1), 2)]


@pytest.mark.feature("B71")
def test_cache_update_in_place_and_not() -> None:
    alone = function("main", 3, [0, 1], [2], UPDATE)
    assert frames(alone)["main"].root == [0, 1, 0]
    read_later = function("main", 4, [0, 1], [3], [*UPDATE, op("add", (2, 0), 3)])
    assert frames(read_later)["main"].root[2] == 2
    constant = function("main", 3, [1], [2], UPDATE, params=[0])
    assert frames(constant)["main"].root[2] == 2
    returned = function("main", 3, [0, 1], [0, 2], UPDATE)
    assert frames(returned)["main"].root[2] == 2


@pytest.mark.feature("B71")
def test_cache_that_is_read_later_under_another_shape() -> None:
    steps = [alias(0, 3), *UPDATE, op("add", (2, 3), 4)]
    assert frames(function("main", 5, [0, 1], [4], steps))["main"].root[2] == 2


@pytest.mark.feature("B71")
@pytest.mark.parametrize(("why", "steps", "params", "in_place"), [
    ("nobody needs it", [call("layer", (0, 1), (2,))], (), True),
    ("read after the call", [call("layer", (0, 1), (2,)), op("add", (2, 0), 3)], (), False),
    ("passed twice", [call("layer", (0, 0), (2,))], (), False),
    ("a parameter", [call("layer", (0, 1), (2,))], (0,), False),
    ("a second call", [call("layer", (0, 1), (2,)), call("layer", (0, 1), (3,))], (), False),
    ("another shape read later", [alias(0, 4), call("layer", (0, 1), (2,)), op("add", (2, 4), 3)], (), False),
])  # fmt: skip
def test_subgraph_updates_its_argument_only_if_no_caller_needs_it(why, steps, params, in_place) -> None:
    layer = function("layer", 3, [0, 1], [2], UPDATE)
    main = function("main", 5, [1] if params else [0, 1], [3 if len(steps) > 1 else 2], steps, params)
    found = frames(layer, main)
    assert (found["layer"].root[2] == 0) == in_place, why
    assert (found["main"].root[2] == 0) == in_place, why


@pytest.mark.feature("B71")
def test_two_results_with_the_same_bytes() -> None:
    layer = function("layer", 2, [0], [1, 1], [op("abs", (0,), 1)])
    main = function("main", 4, [0], [3], [call("layer", (0,), (1, 2)), op("add", (1, 2), 3)])
    root = frames(layer, main)["main"].root
    assert root[1] == root[2]


@pytest.mark.feature("B79")
def test_temporaries_share_space_only_when_one_is_dead() -> None:
    """A chain of four ops needs two buffers at a time."""
    steps = [op("abs", (i,), i + 1) for i in range(5)]
    frame = frames(function("main", 6, [0], [5], steps))["main"]
    size = 64 * 64 * 4
    assert frame.size_bytes == 2 * size
    for a in range(1, 4):
        assert frame.offset[a] != frame.offset[a + 1]
