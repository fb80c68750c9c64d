"""Order of steps, groups and barriers of a function table."""

from tx8fast.graph_table import FunctionTable, OpRecord, Step, TensorSpec
from tx8fast.search.barriers import place_barriers
from tx8fast.search.grouping import merge, order_steps

SPEC = TensorSpec((1, 64, 64), "bf16", "blocked")


def record(kind, n_in):
    return OpRecord(kind, (), (SPEC,) * n_in, (SPEC,), None)


def table(*steps, results=()):
    """Steps as (name, kind, input values, output value)."""
    made = [
        Step(
            kind if kind in ("alias", "call") else "group",
            name,
            tuple(ins),
            (out,),
            None if kind in ("alias", "call") else record(kind, len(ins)),
            callee="f",
        )
        for name, kind, ins, out in steps
    ]
    n = max(v for s in made for v in (*s.inputs, *s.outputs)) + 1
    return FunctionTable("main", [SPEC] * n, results=list(results), steps=made)


def names(steps):
    return [s.name for s in steps]


def test_consumers_follow_their_longest_chain():
    fn = table(
        ("q", "gemm", (0, 1), 2),
        ("k", "gemm", (0, 1), 3),
        ("v", "gemm", (0, 1), 4),
        ("s", "contract", (2, 3), 5),
        ("p", "softmax", (5,), 6),
        ("o", "contract", (6, 4), 7),
        results=[7],
    )
    assert names(order_steps(fn)) == ["q", "k", "s", "v", "p", "o"] or names(order_steps(fn)) == [
        "v",
        "q",
        "k",
        "s",
        "p",
        "o",
    ]
    order = names(order_steps(fn))
    assert order.index("o") == order.index("p") + 1 == order.index("s") + 2


def test_barriers_separate_layers():
    fn = table(
        ("g0", "relu", (0,), 1),
        ("g1", "relu", (0,), 2),
        ("g2", "add", (1, 2), 3),
        ("g3", "relu", (0,), 4),
        ("g4", "add", (3, 4), 5),
        results=[5],
    )
    place_barriers(fn)
    assert names(fn.steps) == ["g0", "g1", "g2", "g3", "g4"]
    assert [s.barrier for s in fn.steps] == [False, True, False, True, True]


def test_a_barrier_is_never_put_on_a_step_without_code():
    fn = table(("g", "relu", (0,), 1), ("view", "alias", (1,), 2), ("h", "relu", (2,), 3), results=[3])
    place_barriers(fn)
    assert [(s.name, s.barrier) for s in fn.steps if s.kind == "group"] == [("g", True), ("h", True)]


def test_groups_start_with_a_product_and_use_its_result():
    fn = table(("m", "gemm", (0, 1), 2), ("a", "add", (2, 0), 3), ("r", "relu", (1,), 4), results=[3, 4])
    used = {0: {0, 1}, 1: {0, 2}, 2: {1}, 3: {-1}, 4: {-1}}
    group = merge(fn, fn.steps[:2], {0, 1}, used)
    assert group is not None and group.record.wires == ((("in", 0), ("in", 1)), (("op", 0), ("in", 0)))
    assert group.outputs == (3,) and group.inputs == (0, 1)
    assert merge(fn, fn.steps[1:3], {1, 2}, used) is None
    assert merge(fn, fn.steps[0:3], {0, 1, 2}, used) is None
