"""DDR frames: who shares bytes with whom."""

from __future__ import annotations

import pytest

from tx8fast.graph_table import FunctionTable, OpRecord, Step, TensorSpec
from tx8fast.schedule.memory import plan_frames

SPEC = TensorSpec((64, 64), "f32")
CAPACITY = 1 << 30


def function(name: str, n_values: int, args, results, steps, params=()) -> FunctionTable:
    return FunctionTable(name, [SPEC] * n_values, list(args), list(results), dict.fromkeys(params, "w"), steps=steps)


def op(kind: str, inputs, output: int, **attrs) -> Step:
    record = OpRecord(kind, tuple(attrs.items()), (SPEC,) * len(inputs), (SPEC,), None)
    return Step("group", kind, tuple(inputs), (output,), record)


def alias(src: int, dst: int) -> Step:
    return Step("alias", "reshape", (src,), (dst,))


def call(callee: str, inputs, outputs) -> Step:
    return Step("call", callee, tuple(inputs), tuple(outputs), callee=callee)


def frames(*functions: FunctionTable):
    return plan_frames({f.name: f for f in functions}, CAPACITY)


@pytest.mark.parametrize("in_place", [False, True])
def test_an_update_lies_where_the_graph_says(in_place: bool) -> None:
    """Through a call too, and under another shape."""
    marks = {"in_place": 0} if in_place else {}
    layer = function("layer", 4, [0, 1], [3], [op("kv_update", (0, 1), 2, **marks), alias(2, 3)])
    found = frames(layer, function("main", 3, [0, 1], [2], [call("layer", (0, 1), (2,))]))
    assert (found["layer"].root == [0, 1, 0, 0]) == in_place
    assert found["main"].root == [0, 1, 0 if in_place else 2]


def test_two_results_with_the_same_bytes() -> None:
    layer = function("layer", 2, [0], [1, 1], [op("abs", (0,), 1)])
    main = function("main", 4, [0], [3], [call("layer", (0,), (1, 2)), op("add", (1, 2), 3)])
    root = frames(layer, main)["main"].root
    assert root[1] == root[2]


def test_temporaries_share_space_only_when_one_is_dead() -> None:
    """A chain of four ops needs two buffers at a time."""
    steps = [op("abs", (i,), i + 1) for i in range(5)]
    frame = frames(function("main", 6, [0], [5], steps))["main"]
    size = 64 * 64 * 4
    assert frame.size_bytes == 2 * size
    for a in range(1, 4):
        assert frame.offset[a] != frame.offset[a + 1]
