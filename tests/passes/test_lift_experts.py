"""Experts whose weights are gathered row by row become products with the weights of all of them; what is almost that stays."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.lift_experts import LiftExperts

TOKENS, K, EXPERTS, HIDDEN, UNITS = 6, 2, 5, 8, 3
#: what an exporter or a model does in another way
PLAIN = {"tokens": TOKENS, "k": K, "lead": (), "columns": False, "gather": False, "bias": False, "pairs": False, "share": "after",
         "chosen": "topk", "x": "row", "gate": "silu", "sum": "add", "grid": False}  # fmt: skip


def mixture(**given):
    """The graph of a mixture, and its result and what is on the way to it."""
    o = {**PLAIN, **given}
    tokens, k = o["tokens"], o["k"]
    rows, rng = tokens * k, np.random.default_rng(5)
    g = SmallGraph(x=((*(o["lead"] or (tokens,)), HIDDEN), "f32"), ids=((tokens, k), "i64"))
    array = lambda name, *shape: g.array(name, rng.normal(size=shape).astype(np.float32))  # noqa: E731
    view = lambda v, *shape: g("reshape", v, shape=shape)  # noqa: E731
    flat = g(
        "mul", g.args["x"], g("reduce", g.args["x"], op="max", axes=(-1,), keepdims=True)
    )  # a number for each token, no share
    flat = view(flat, tokens, HIDDEN) if o["lead"] else flat
    scores = g("softmax", g("gemm", flat, array("router", HIDDEN, EXPERTS)), axis=-1)
    best, chosen = g.op("topk", scores, k=k, axis=1).results
    if o["chosen"] == "input":
        chosen = g.args["ids"]
    elif o["chosen"] == "fewer":
        best, chosen = g.op(
            "topk", g("slice", scores, start=(0, 0), size=(tokens, 4), step=(1, 1)), k=k, axis=1
        ).results
    elif o["chosen"] == "smallest":
        best, chosen = g.op("topk", scores, k=k, axis=1, largest=False).results
    elif o["chosen"] == "twice":
        first = g("arg_reduce", scores, op="max", axis=1, keepdims=True)
        chosen = g("concat", first, first, axis=1)
    share = g("div", best, g("reduce", best, op="add", axes=(1,), keepdims=True))
    share = view(share, rows, 1)

    def weights(name, out, into, ids=chosen):
        stack = array(name, EXPERTS, into, out) if o["columns"] else array(name, EXPERTS, out, into)
        if o["gather"]:
            return g("gather", stack, view(ids, rows), axis=0)
        y = g("gather_nd", stack, view(ids, rows, 1), batch_dims=0)
        return view(y, tokens, k, *y.shape[1:]) if o["grid"] else y

    def product(v, name, out, into, ids=chosen):
        w, lead = weights(name, out, into, ids), (tokens, k) if o["grid"] else (rows,)
        y = g("gemm", view(v, *lead, 1, into), w) if o["columns"] else g("gemm", w, view(v, *lead, into, 1))
        y = view(y, rows, out)
        return g("add", y, g("gather_nd", array(name + "b", EXPERTS, out), view(ids, rows, 1))) if o["bias"] else y

    if o["x"] == "row":
        x = g("broadcast", view(flat, tokens, 1, HIDDEN), shape=(tokens, k, HIDDEN))
    elif o["x"] == "gather":
        x = g("gather", flat, constant(g, np.arange(rows) // k, np.int64), axis=0)
    elif o["x"] == "other order":
        x = g("broadcast", view(flat, 1, tokens, HIDDEN), shape=(k, tokens, HIDDEN))
    else:
        x = flat
    x = g("mul", view(x, rows, HIDDEN), share) if o["share"] == "inputs" else x
    both = product(x, "w", 2 * UNITS, HIDDEN)
    start, step = ((0, 1), 2) if o["pairs"] else ((0, UNITS), 1)
    gate, up = (g("slice", both, start=(0, s), size=(rows, UNITS), step=(1, step)) for s in start)
    gate = g(o["gate"], gate) if o["gate"] != "softmax" else g("softmax", gate, axis=-1)
    units = g("mul", gate, g("add", up, constant(g, 1.0)))
    units = g("mul", units, share) if o["share"] == "units" else units
    other = g("arg_reduce", scores, op="min", axis=1, keepdims=True) if o["chosen"] == "two ways" else chosen
    y = product(units, "d", HIDDEN, UNITS, other)
    y = g("mul", y, share) if o["share"] == "after" else y
    y = view(y, tokens, k, HIDDEN)
    axis = 2 if o["sum"] == "last" else 1
    how = "max" if o["sum"] == "max" else "add"
    if o["sum"] == "tokens":
        y, axis = g("reduce", y, op="add", axes=(0,)), 0
    y = y if k == 1 and o["sum"] == "none" else g("reduce", y, op=how, axes=(axis,), keepdims=False)
    return g, y, units


FORMS = {
    "as exported": {}, "stored in out": {"columns": True}, "gather": {"gather": True}, "bias": {"bias": True},
    "pairs": {"pairs": True, "columns": True, "bias": True}, "batch": {"tokens": 12, "lead": (2, 6)},
    "as many tokens as experts per token": {"tokens": 2}, "one token": {"tokens": 1, "bias": True}, "all experts": {"k": EXPERTS},
    "one expert": {"k": 1}, "one expert, no sum": {"k": 1, "sum": "none"}, "one expert, x as it is": {"k": 1, "x": "as it is"},
    "shares of units": {"share": "units"}, "shares of inputs": {"share": "inputs"}, "no shares": {"share": "none"},
    "smallest": {"chosen": "smallest"}, "rows gathered": {"x": "gather"}, "chosen twice": {"chosen": "twice"},
    "grid": {"grid": True}, "grid in out": {"grid": True, "columns": True, "bias": True},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_found(form):
    g, y, _ = mixture(**FORMS[form])
    p = g.done(y=y)
    left = lifted(p, LiftExperts(), inputs={"ids": np.zeros(g.args["ids"].shape, np.int64)}, tolerance=1e-5)
    assert "gather_nd" not in left and "gather" not in left
    for op in ops_of(p, "gemm"):
        assert len(op.operands[1].shape) == 2 and op.operands[1].op.kind in ("get_param", "constant")


def test_macs_are_those_of_the_chosen():
    g, y, _ = mixture()
    p = g.done(y=y)
    lifted(p, LiftExperts(), tolerance=1e-5)
    wide, rows = 2 * TOKENS * K * UNITS * HIDDEN, TOKENS * K
    macs = [op.attrs["useful_macs"] for op in ops_of(p, "gemm")]
    assert sorted(macs) == sorted([-1, 0, *[wide // 2] * 2, rows * UNITS * HIDDEN])


NEAR = {
    "numbers from outside": {"chosen": "input"}, "chosen of fewer": {"chosen": "fewer"}, "second matrices of others": {"chosen": "two ways", "k": 1},
    "tokens behind each other": {"x": "other order"}, "sum of a row": {"sum": "last"}, "largest": {"sum": "max"},
    "sum of tokens": {"sum": "tokens"}, "sum of as many tokens": {"sum": "tokens", "tokens": 2}, "softmax of units": {"gate": "softmax"},
    "chosen twice with shares of inputs": {"chosen": "twice", "share": "inputs"},
}  # fmt: skip


@pytest.mark.parametrize("case", NEAR)
def test_left_alone(case):
    g, y, _ = mixture(**NEAR[case])
    left = lifted(g.done(y=y), LiftExperts())
    assert left.count("gather_nd") == 2


def test_rows_that_are_read_elsewhere():
    g, y, units = mixture()
    assert lifted(g.done(y=y, units=units), LiftExperts()).count("gather_nd") == 2


def test_weights_of_two_mixtures():
    """One stack for two mixtures, and read as it is: its bytes stay, and the parts of it are one for both."""
    g, y, _ = mixture()
    (w,) = {op.operands[0] for op in g.func.walk() if op.kind == "gather_nd" and op.operands[0].shape[1] == HIDDEN}
    p = g.done(y=y, w=w)
    assert "gather_nd" not in lifted(p, LiftExperts(), tolerance=1e-5)
    assert sum(op.attrs["key"] == "d" for op in ops_of(p, "get_param")) == 1


def test_written_weights():
    """Weights that the program writes are gathered as they are then."""
    g, y, _ = mixture()
    g.op("set_param", g("neg", g.param("d", (EXPERTS, HIDDEN, UNITS))), key="d")
    p = g.done(y=y)
    LiftExperts().run(p)
    assert len(ops_of(p, "gather_nd")) == 2


def test_far_more_experts_than_rows():
    """Reading all weights for the one that is chosen would take longer."""
    g = SmallGraph(x=((1, 4), "f32"))
    best, chosen = g.op("topk", g("gemm", g.args["x"], g.param("r", (4, 500))), k=1, axis=1).results
    w, d = (g("gather_nd", g.param(n, (500, 4, 4)), chosen) for n in "wd")
    units = g("relu", g("gemm", w, g("reshape", g.args["x"], shape=(1, 4, 1))))
    y = g("reshape", g("gemm", d, units), shape=(1, 4))
    p = g.done(y=g("mul", y, best))
    assert not LiftExperts().run(p).changed


# ---------------------------------------------------------------- every expert for every token


def grid(**given):
    """A mixture whose experts see every token, expert by expert, weighed by a dense matrix of shares."""
    o = {
        "batch": 1,
        "tokens": TOKENS,
        "bias": True,
        "share": "after",
        "x": "repeated",
        "turned": False,
        "axis": 0,
        **given,
    }
    tokens, rng = o["tokens"], np.random.default_rng(7)
    rows = o["batch"] * tokens
    g = SmallGraph(x=((o["batch"], tokens, HIDDEN), "f32"))
    array = lambda name, *shape: g.array(name, rng.normal(size=shape).astype(np.float32))  # noqa: E731
    view = lambda v, *shape: g("reshape", v, shape=shape)  # noqa: E731
    flat = view(g.args["x"], rows, HIDDEN)
    best, chosen = g.op("topk", g("gemm", flat, array("router", HIDDEN, EXPERTS)), k=K, axis=1).results
    shares = g("scatter", array("zeros", rows, EXPERTS), chosen, g("softmax", best, axis=1), axis=1)
    shares = g("transpose", shares, perm=(1, 0))
    if o["x"] == "repeated":
        x = g("broadcast", view(flat, 1, rows, HIDDEN), shape=(EXPERTS, rows, HIDDEN))
    elif o["x"] == "by token":
        x = view(g("broadcast", view(flat, rows, 1, HIDDEN), shape=(rows, EXPERTS, HIDDEN)), EXPERTS, rows, HIDDEN)
    else:
        x = flat
    x = g("mul", x, view(shares, EXPERTS, rows, 1)) if o["share"] == "inputs" else x

    def product(v, name, out, into):
        w = array(name, EXPERTS, out, into) if o["turned"] else array(name, EXPERTS, into, out)
        y = g("gemm", v, w, trans_b=o["turned"])
        return g("add", y, array(name + "b", EXPERTS, 1, out)) if o["bias"] else y

    both = product(x, "w", 2 * UNITS, HIDDEN)
    gate, up = (g("slice", both, start=(0, 0, s), size=(EXPERTS, rows, UNITS), step=(1, 1, 2)) for s in (0, 1))
    if o["share"] == "of a column":
        gate = g("mul", gate, array("columns", UNITS))
    y = product(g("mul", g("relu", gate), up), "d", HIDDEN, UNITS)
    y = view(y, EXPERTS, o["batch"], tokens, HIDDEN)
    y = g("mul", y, view(shares, EXPERTS, o["batch"], tokens, 1)) if o["share"] == "after" else y
    return g, g("reduce", y, op="add", axes=(o["axis"],), keepdims=False)


GRIDS = {"plain": {}, "batch": {"batch": 2}, "turned": {"turned": True}, "no bias": {"bias": False}, "rows for all": {"x": "as they are"},
         "shares of inputs": {"share": "inputs", "bias": False}, "no shares": {"share": "none", "bias": False},
         "as many tokens as experts": {"tokens": EXPERTS}, "one token": {"tokens": 1}}  # fmt: skip


@pytest.mark.parametrize("form", GRIDS)
def test_grid(form):
    g, y = grid(**GRIDS[form])
    p = g.done(y=y)
    left = lifted(p, LiftExperts(), tolerance=1e-5)
    assert "reduce" not in left and "slice" not in left and "broadcast" not in left
    assert all(len(op.operands[1].shape) == 2 for op in ops_of(p, "gemm"))


NEAR_GRIDS = {"tokens first": {"x": "by token"}, "sum of tokens": {"tokens": EXPERTS, "axis": 2}, "vectors unweighed": {"share": "none"},
              "a number for each unit": {"share": "of a column"}}  # fmt: skip


@pytest.mark.parametrize("case", NEAR_GRIDS)
def test_grid_left_alone(case):
    g, y = grid(**NEAR_GRIDS[case])
    assert "reduce" in lifted(g.done(y=y), LiftExperts())


@pytest.mark.parametrize("kind", ["relu", "mul", "reshape"])
@pytest.mark.slow(but_every=4)
def test_long_chains(kind):
    """Nothing is read for ever, nor deeper than the interpreter goes."""
    g, y, _ = mixture(share="none")
    for i in range(1200):
        if kind == "reshape":
            y = g("reshape", y, shape=(TOKENS, HIDDEN, 1) if i % 2 else (TOKENS * HIDDEN,))
        else:
            y = g(kind, y, *[y] * (kind == "mul"))
    p = g.done(y=g("reduce", g("reshape", y, shape=(TOKENS, 1, HIDDEN)), op="add", axes=(1,)))
    LiftExperts().run(p)
    assert not ops_of(p, "gather_nd")


@pytest.mark.parametrize("ids", ["stored", "counted"])
def test_numbers_that_nothing_chose(ids):
    g = SmallGraph(x=((2, 4), "f32"), s=((2, 1), "f32"))
    where = constant(g, [[1], [0]], np.int64)
    where = where if ids == "stored" else g("neg", g("neg", where))
    w, d = (g("gather_nd", g.array(n, np.ones((3, 4, 4), np.float32)), where) for n in "wd")
    units = g("relu", g("gemm", w, g("reshape", g.args["x"], shape=(2, 4, 1))))
    y = g("mul", g("reshape", g("gemm", d, units), shape=(2, 4)), g.args["s"])
    assert lifted(g.done(y=y), LiftExperts()).count("gather_nd") == 2
