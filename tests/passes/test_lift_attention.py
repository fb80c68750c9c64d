"""Softmax takes scale and mask, guards go or become a factor, causal products say how much of them is needed."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.ir.attrs import DENSE_DTYPES
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.lift_attention import CountCausalWork, LiftAttention

CAUSAL = np.where(np.tri(6, dtype=bool), 0, -np.inf).astype(np.float32)
S, T, D = 6, 6, 8


def inputs(**more):
    return SmallGraph(q=((1, 2, S, D), "f32"), k=((1, 2, T, D), "f32"), v=((1, 2, T, D), "f32"), **more)


def attention(g, mask=None, scale="operands", guard=False, c=0.5):
    q, k = g.args["q"], g.args["k"]
    if scale == "operands":
        q, k = (
            g("mul", q, constant(g, c)),
            g("mul", g("transpose", k, perm=(0, 1, 3, 2)), constant(g, c)),
        )
        s = g("gemm", q, k)
    else:
        s = g("gemm", q, k, trans_b=True)
        s = g("div", s, constant(g, 4.0)) if scale == "div" else g("mul", s, constant(g, c))
    p = g("softmax", s if mask is None else g("add", s, mask))
    if guard:
        p = g("select", g("isnan", p), constant(g, 0.0), p)
    return p, g("gemm", p, g.args["v"])


@pytest.mark.parametrize("scale, value", [("operands", 0.25), ("scores", 0.5), ("div", 0.25)])
@pytest.mark.parametrize("masked", [True, False])
def test_scale_and_mask(scale, value, masked):
    g = inputs()
    _, y = attention(g, g.array("m", CAUSAL) if masked else None, scale)
    p = g.done(y=y)
    left = lifted(p, LiftAttention())
    assert [k for k in left if k != "transpose"] == ["gemm", "softmax", "gemm"]
    (soft,) = ops_of(p, "softmax")
    assert soft.attrs["scale"] == value and len(soft.operands) == 1 + masked


ROWS = np.tri(6, dtype=bool)
EMPTY = np.where(np.arange(6)[:, None] == 2, False, ROWS)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "dtype, low, seen, found",
    [
        ("f32", -np.inf, EMPTY, "both"),
        ("f32", -1e30, EMPTY, "both"),
        ("f32", -1e9, EMPTY, "share"),
        ("f32", -1e4, ROWS, ""),  # a score, like any other
        ("f16", -np.inf, EMPTY, "both"),
        ("f16", -65504.0, ROWS, "share"),
        ("f16", -65504.0, EMPTY, ""),  # -65504 and a score are not -65504, so that the row's shares would differ
        ("f16", -65504.0, None, ""),
        ("f16", -3e4, ROWS, ""),
    ],
)
def test_a_choice_becomes_a_mask_where_it_hides(dtype, low, seen, found, log):
    g = SmallGraph(x=((2, S, T), dtype), seen=((S, T), "pred"))
    visible = g.args["seen"] if seen is None else constant(g, seen, np.bool_)
    y = g("softmax", g("select", visible, g.args["x"], constant(g, low, DENSE_DTYPES[dtype][1])), log=log)
    inputs = {"seen": EMPTY} if seen is None else {}
    with np.errstate(invalid="ignore"):
        left = lifted(g.done(y=y), LiftAttention(), inputs=inputs)
    lifts = found == "both" or found == "share" and not log
    assert left == (["select", "add", "softmax"] if lifts else ["select", "softmax"])


@pytest.mark.parametrize("key", ["%const/0", "weight"])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("shape", [(S, T), (1, T)])
@pytest.mark.parametrize("low, found", [(-1e9, True), (-1e4, False)])
def test_a_constant_of_one_number_is_the_number(low, found, shape, alone, key):
    """As exporters of `full_like` write it; what gives a result its shape stays as it is, and so does a weight, which may be another one."""
    g = SmallGraph(x=((S, T) if alone else (1, 1), "f32"))
    low = g.array(key, np.full(shape, low, np.float32))
    y = g("softmax", g("select", constant(g, ROWS if alone else [[True]], np.bool_), g.args["x"], low))
    left = lifted(g.done(y=y), LiftAttention())
    assert ("add" in left) == (found and alone and key != "weight")


def test_a_constant_of_several_numbers_stays():
    """Also of zeros with different signs."""
    for other in (-2e9, 0.0):
        g = SmallGraph(x=((S, T), "f32"))
        low = np.full((S, T), -1e9 if other else -0.0, np.float32)
        low[2, 3] = other
        y = g("softmax", g("select", constant(g, ROWS, np.bool_), g.args["x"], g.array("%const/0", low)))
        assert lifted(g.done(y=y), LiftAttention()) == ["select", "softmax"]


@pytest.mark.parametrize("low, rows, deep", [(-1e9, ROWS, True), (-1e30, ROWS, False), (-1e4, ROWS, False)])
def test_a_known_mask_hides_with_what_absorbs(low, rows, deep):
    g = inputs()
    _, y = attention(g, g.array("m", np.where(rows, 0, low).astype(np.float32)))
    p = g.done(y=y)
    assert lifted(p, LiftAttention(), tolerance=1e-4).count("select") == deep
    lifted(p, FoldConstants())
    lifted(p, CountCausalWork(), tolerance=1e-4)
    (soft,) = ops_of(p, "softmax")
    assert soft.attrs["visible"] == ((0, 0) if deep or low == -1e30 else ())


def test_a_known_mask_with_an_empty_row_stays():
    g = inputs()
    _, y = attention(g, g.array("m", np.where(EMPTY, 0, -1e9).astype(np.float32)))
    p = g.done(y=y)
    LiftAttention().run(p)
    assert "select" not in kinds(p)


@pytest.mark.parametrize("mask", ["none", "causal", "chosen"])
def test_guard_without_empty_rows(mask):
    g = inputs(at=((1, 1, 1, 1), "i64"))
    m = None
    if mask == "causal":
        m = g.array("m", CAUSAL)
    elif mask == "chosen":
        seen = g("le", constant(g, np.arange(T)[None, None, None], np.int64), g.args["at"])
        m = g("select", seen, constant(g, 0.0), constant(g, -3.4e38))
    _, y = attention(g, m, guard=True)
    left = lifted(g.done(y=y), LiftAttention())
    assert "isnan" not in left and "select" not in left[left.index("softmax") :]


def test_guard_with_an_empty_row_becomes_a_factor():
    g = inputs()
    m = CAUSAL.copy()
    m[2] = -np.inf
    p, y = attention(g, g.array("m", m), guard=True)
    program = g.done(y=y)
    with np.errstate(invalid="ignore"):
        left = lifted(program, LiftAttention())
    assert "isnan" not in left and left.count("reduce") == 1


def test_guard_with_a_mask_from_outside_becomes_a_factor():
    g = inputs(m=((S, T), "f32"))
    _, y = attention(g, g.args["m"], guard=True)
    m = CAUSAL.copy()
    m[4] = -np.inf
    with np.errstate(invalid="ignore"):
        left = lifted(g.done(y=y), LiftAttention(), inputs={"m": m})
    assert "isnan" not in left and "gt" in left


@pytest.mark.parametrize("case", ["other branch", "other axis", "negative scale", "shared scores", "no product"])
def test_left_alone(case):
    g = inputs(r=((1, 2, S, T), "f32"))
    if case == "other branch":
        p = g("softmax", g.args["r"])
        y = g("select", g("isnan", p), constant(g, 1.0), p)
        assert "isnan" in lifted(g.done(y=y), LiftAttention())
        return
    s = g("gemm", g.args["q"], g.args["k"], trans_b=True)
    s = g("mul", s, constant(g, -0.5 if case == "negative scale" else 0.5))
    if case == "no product":
        y = g("softmax", g("add", g("relu", s), g.args["r"]))
        left = lifted(g.done(y=y), LiftAttention())
        assert "add" in left
        return
    y = g("softmax", s, axis=2 if case == "other axis" else -1)
    left = lifted(g.done(y=y, **({"s": s} if case == "shared scores" else {})), LiftAttention())
    assert "mul" in left


@pytest.mark.parametrize("known", [True, False])
def test_guard_of_a_position_that_is_written(known):
    """The key at position 0 is seen by every row: a position that is written to a cache is never negative."""
    g = inputs(at=((1,), "i64"), cache=((4, 8), "f32"), new=((1, 8), "f32"))
    at = g("reshape", g.args["at"], shape=(1, 1))
    seen = g("le", constant(g, np.arange(T)[None] + (not known), np.int64), at)
    y = g("reduce", g("convert", seen, dtype="f32"), op="max", axes=(-1,), keepdims=True)
    p = g.done(y=y, c=g("kv_update", g.args["cache"], g.args["new"], g.args["at"], axis=0))
    assert ("reduce" in lifted(p, LiftAttention(), inputs={"at": np.array([2])})) is not known


@pytest.mark.parametrize("mask, macs", [(CAUSAL, 2 * 21 * D), (np.zeros((S, T), np.float32), -1)])
def test_causal_work(mask, macs):
    g = inputs()
    _, y = attention(g, g.array("m", mask))
    p = g.done(y=y)
    LiftAttention().run(p)
    CountCausalWork().run(p)
    assert [op.attrs["useful_macs"] for op in ops_of(p, "gemm")] == [macs, macs]


def test_work_under_a_mask_decided_at_run_time_is_not_known():
    g = inputs(m=((S, T), "f32"))
    _, y = attention(g, g.args["m"])
    p = g.done(y=y)
    LiftAttention().run(p)
    assert not CountCausalWork().run(p).changed


@pytest.mark.parametrize("mask", ["none", "causal", "chosen", "slopes"])
def test_a_softmax_that_was_widened_is_one_in_the_scores_format(mask):
    """Unless its mask has numbers that the scores' format does not hold."""
    g = SmallGraph(q=((1, 2, S, D), "bf16"), k=((1, 2, T, D), "bf16"), v=((1, 2, T, D), "bf16"), at=((S, 1), "i64"))
    s = g("convert", g("gemm", g.args["q"], g.args["k"], trans_b=True), dtype="f32")
    s = g("mul", s, constant(g, 0.25))
    if mask == "causal":
        s = g("add", s, g.array("m", np.where(np.tri(6, dtype=bool), 0, -1e30).astype(np.float32)))
    elif mask == "chosen":
        seen = g("le", constant(g, np.arange(T)[None], np.int64), g.args["at"])
        s = g("add", s, g("select", seen, constant(g, 0.0), constant(g, -1e30)))
    elif mask == "slopes":
        s = g("add", s, g.array("m", -0.1 * np.arange(T, dtype=np.float32)[None]))
    p = g("convert", g("softmax", s), dtype="bf16")
    program = g.done(y=g("gemm", p, g.args["v"]))
    lifted(program, LiftAttention(), tolerance=0.02)
    (soft,) = ops_of(program, "softmax")
    assert soft.result.dtype == ("f32" if mask == "slopes" else "bf16") and soft.attrs["scale"] == 0.25


def test_a_mask_is_seen_behind_scores_that_were_turned():
    g = inputs()
    s = g("transpose", g("gemm", g.args["k"], g.args["q"], trans_b=True), perm=(0, 1, 3, 2))
    y = g("gemm", g("softmax", g("add", s, g.array("m", CAUSAL))), g.args["v"])
    assert "add" not in lifted(g.done(y=y), LiftAttention())


SLOPES = np.linspace(-1, 1, T, dtype=np.float32)[None, None]


@pytest.mark.parametrize("viewed", [False, True])
def test_slopes_beside_a_mask(viewed):
    """The mask is the softmax's also where something else is added to the scores before it."""
    g = inputs()
    s = g("mul", g("gemm", g.args["q"], g.args["k"], trans_b=True), constant(g, 0.5))
    s = g("reshape", s, shape=(2, S, T)) if viewed else s
    s = g("add", s, g.array("slopes", np.broadcast_to(SLOPES, (2, 1, T)).copy()))
    s = g("reshape", s, shape=(1, 2, S, T)) if viewed else s
    p = g("softmax", g("add", s, g.array("m", CAUSAL[None, None])))
    program = g.done(y=g("gemm", p, g.args["v"]))
    lifted(program, LiftAttention())
    (soft,) = ops_of(program, "softmax")
    assert len(soft.operands) == 2 and soft.operands[1].shape == (1, 1, S, T)


@pytest.mark.parametrize("inverse", [False, True])
def test_scores_are_chosen_or_hidden(inverse):
    g = inputs()
    s, seen = g("gemm", g.args["q"], g.args["k"], trans_b=True), CAUSAL == 0
    low = constant(g, -1e30)
    chosen = (g.array("c", ~seen), low, s) if inverse else (g.array("c", seen), s, low)
    program = g.done(y=g("gemm", g("softmax", g("select", *chosen)), g.args["v"]))
    assert "select" in lifted(program, LiftAttention())
    (soft,) = ops_of(program, "softmax")
    assert len(soft.operands) == 2 and soft.operands[1].shape == (S, T)


@pytest.mark.parametrize("case", ["known", "a row sees nothing", "not known"])
def test_two_masks_are_one_if_both_are_known(case):
    g = inputs(m=((S, T), "f32"))
    s, other = g("gemm", g.args["q"], g.args["k"], trans_b=True), np.where(np.arange(T) < 2, 0, -3e38) * np.ones((S, 1))
    if case == "a row sees nothing":
        other[3] = -3e38
    mask = g.args["m"] if case == "not known" else g.array("other", other.astype(np.float32))
    chosen = g("select", g.array("c", CAUSAL == 0), s, constant(g, -3.4e38))
    program = g.done(y=g("gemm", g("softmax", g("add", chosen, mask)), g.args["v"]))
    lifted(program, LiftAttention(), inputs={"m": other.astype(np.float32)})
    (soft,) = ops_of(program, "softmax")
    assert (soft.operands[0].op.kind == "gemm") is (case == "known")


@pytest.mark.parametrize("low", [-np.inf, -3e38])
def test_masks_of_items_behind_a_guard(low):
    """Rows of which nothing is seen are nothing, the others what they are, although the mask is finite in between."""
    g = SmallGraph(
        q=((3, 2, S, 8), "f32"), k=((3, 2, T, 8), "f32"), v=((3, 2, T, 8), "f32"), there=((3, 1, 1, T), "pred")
    )
    s = g("gemm", g.args["q"], g.args["k"], trans_b=True)
    mask = g("select", g.args["there"], constant(g, 0.0), constant(g, low))
    p = g("softmax", g("add", s, mask))
    p = g("select", g("isnan", p), constant(g, 0.0), p)
    there = np.arange(T) < np.array([T, 2, 0 if low == -np.inf else 1])[:, None]
    program = g.done(y=g("gemm", p, g.args["v"]))
    with np.errstate(invalid="ignore"):
        left = lifted(program, LiftAttention(), inputs={"there": there.reshape(3, 1, 1, T)})
    assert "isnan" not in left and len(ops_of(program, "softmax")[0].operands) == 2


def test_a_mask_times_infinity_keeps_its_guard():
    g = inputs(m=((S, T), "f32"))
    mask = g("mul", g.args["m"], constant(g, -np.inf))
    p = g("softmax", g("add", g("gemm", g.args["q"], g.args["k"], trans_b=True), mask))
    program = g.done(y=g("gemm", g("select", g("isnan", p), constant(g, 0.0), p), g.args["v"]))
    with np.errstate(invalid="ignore"):
        assert "isnan" in lifted(program, LiftAttention(), inputs={"m": np.eye(S, T, dtype=np.float32)})


@pytest.mark.parametrize("case", ["its own", "another axis", "of another", "not kept"])
def test_a_softmax_takes_its_maximum_away_itself(case):
    g = SmallGraph(x=((3, 5, 5), "f32"), z=((3, 5, 5), "f32"))
    x = g.args["x"]
    top = g("reduce", g.args["z"] if case == "of another" else x, op="max", axes=(1 if case == "another axis" else 2,),
            keepdims=case != "not kept")  # fmt: skip
    top = g("reshape", top, shape=(3, 1, 5)) if case == "not kept" else top
    left = lifted(g.done(y=g("softmax", g("sub", x, top))), LiftAttention())
    assert ("sub" not in left) is (case == "its own")


@pytest.mark.parametrize("low", [-np.inf, -3e38])
@pytest.mark.parametrize("first", ["chosen", "added", "column"])
def test_guard_of_rows_that_two_masks_empty_together(first, low):
    """Row 1 sees nothing by the first mask alone and row 2 by both: the second one does not tell which rows are empty."""
    g = inputs(there=((S, T), "pred"), m=((S, T), "f32"))
    there, m = np.ones((S, T), bool), np.zeros((S, T), np.float32)
    there[1], there[2, 2:], m[:, :2] = False, False, -np.inf
    s, lowest = g("gemm", g.args["q"], g.args["k"], trans_b=True), constant(g, low)
    if first == "chosen":
        s = g("select", g.args["there"], s, lowest)
    elif first == "column":  # hides whole rows
        column = g("slice", g.args["there"], start=(0, T - 1), size=(S, 1), step=(1, 1))
        s = g("add", s, g("select", column, constant(g, 0.0), lowest))
    else:
        s = g("add", s, g("select", g.args["there"], constant(g, 0.0), lowest))
    p = g("softmax", g("add", s, g.args["m"]))
    p = g("select", g("isnan", p), constant(g, 0.0), p)
    program = g.done(y=g("gemm", p, g.args["v"]))
    with np.errstate(invalid="ignore", over="ignore"):
        left = lifted(program, LiftAttention(), inputs={"there": there, "m": m})
    assert "isnan" in left


def test_guard_goes_beside_finite_summands():
    g = inputs(at=((1, 1, 1, T), "i64"))
    s = g("gemm", g.args["q"], g.args["k"], trans_b=True)
    slopes = g("mul", g("convert", g.args["at"], dtype="f32"), constant(g, [[[[0.5]], [[0.25]]]]))
    p = g("softmax", g("add", g("add", s, slopes), g.array("m", CAUSAL)))
    program = g.done(y=g("gemm", g("select", g("isnan", p), constant(g, 0.0), p), g.args["v"]))
    assert "isnan" not in lifted(program, LiftAttention())


@pytest.mark.parametrize("low", [-1e9, -3.4e38])
@pytest.mark.parametrize("first", ["added", "least", "scaled"])
def test_a_choice_of_scores_that_are_hidden_already(first, low):
    """Row 1 sees nothing: half of it is hidden twice and half once, which is the same."""
    g = inputs(there=((S, T), "pred"), m=((S, T), "f32"))
    there, m = np.ones((S, T), bool), np.zeros((S, T), np.float32)
    there[1, 1:], m[1, :3] = False, low
    s = g("gemm", g.args["q"], g.args["k"], trans_b=True)
    s = g("min", s, g("add", g.args["m"], constant(g, 99.0))) if first == "least" else g("add", s, g.args["m"])
    s = g("mul", s, constant(g, 1.0 + 2.0**-20)) if first == "scaled" and low == -1e9 else s
    s = g("select", g.args["there"], s, constant(g, low))
    program = g.done(y=g("gemm", g("softmax", s), g.args["v"]))
    with np.errstate(over="ignore", invalid="ignore"):
        left = lifted(program, LiftAttention(), inputs={"there": there, "m": m})
    assert "select" in left


def test_a_known_mask_beside_another_keeps_its_numbers():
    """The other one may hide all that a row sees by it; what is hidden once has equal shares then."""
    g = inputs(m=((S, T), "f32"))
    s = g("add", g("gemm", g.args["q"], g.args["k"], trans_b=True), g.args["m"])
    known = g.array("known", np.where(np.tri(S, dtype=bool), 0, -1e9).astype(np.float32))
    program = g.done(y=g("gemm", g("softmax", g("add", s, known)), g.args["v"]))
    assert "select" not in lifted(program, LiftAttention())
