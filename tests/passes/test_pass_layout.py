"""Layout names, forms and conversions against the worked graphs of the back-end notes 7."""

import itertools

import numpy as np
import pytest
from support.small_graph import SmallGraph, check_forms, kinds, ops_of

from tx8fast.errors import ConfigError
from tx8fast.ir.attrs import DenseAttr
from tx8fast.passes.const_norm import ConstNorm
from tx8fast.passes.layout_align import Colouring, LayoutAlign, argument_layouts, callees_first
from tx8fast.passes.layout_init import LayoutInit
from tx8fast.passes.layout_mincut import conversion_bytes, improve
from tx8fast.passes.layout_opt import LayoutOpt
from tx8fast.passes.layout_transmit import LayoutTransmit
from tx8fast.passes.pipeline import run_pipeline

NHWC = (2, 4, 4, 64)
SAME = {"pad_lo": (1, 1), "pad_hi": (1, 1)}


def conversions(program):
    """(user kind, operand, direction) of each use of a conversion whose source is no parameter."""
    out = []
    for norm in ops_of(program, "channel_norm"):
        source = norm.operands[0].op
        if source is None or source.kind not in ("get_param", "constant"):
            out += [(u.kind, i, norm.attrs["to"]) for u, i in norm.result.uses]
    return sorted(out)


def first_graph():
    g = SmallGraph(in0=(NHWC, "f32"), in1=(NHWC, "f32"))
    relu = g("relu", g.args["in0"])
    conv = g("conv", relu, g.param("w", (3, 3, 64, 64)), **SAME)
    total = g("add", conv, g.args["in1"])
    flat = g("reshape", total, shape=(2, 1024))
    return g.done(out=g("gemm", flat, g.param("v", (1024, 16))))


def second_graph():
    g = SmallGraph(in0=(NHWC, "f32"))
    conv1 = g("conv", g.args["in0"], g.param("w1", (3, 3, 64, 64)), **SAME)
    relu1 = g("relu", conv1)
    conv2 = g("conv", relu1, g.param("w2", (3, 3, 64, 64)), **SAME)
    relu2 = g("relu", g("add", relu1, conv2))
    return g.done(out=g("max_pool", relu2, kernel=(2, 2), stride=(2, 2)))


def third_graph():
    g = SmallGraph(in0=((8, 32), "f32"))
    exp = g("exp", g("gemm", g.args["in0"], g.param("w", (32, 64))))
    total = g("reduce", exp, op="add", axes=(1,), keepdims=True)
    return g.done(out1=exp, out2=g("div", exp, total), out3=exp)


def test_init_names_matrix_and_convolution_ops_only():
    g = SmallGraph(x=((1, 8, 32), "f32"), i=((2, 4, 4, 8), "f32"))
    conv = g("conv", g.args["i"], g.param("k", (1, 1, 8, 8)), g.param("b", (8,)))
    y = g("gemm", g.args["x"], g.param("w", (1, 32, 16)))
    z = g("gemm", g("broadcast", y, shape=(3, 8, 16)), g.param("v", (3, 16, 4)), g.param("c", (4,)))
    p = g.done(z=g("relu", z), conv=conv)
    LayoutInit().run(p)
    names = {op.kind: op.attrs["layout_str"] for op in p.main.body if "layout_str" in op.attrs}
    assert names["conv"] == "NHWC-HWOI-Tensor-NHWC"
    assert [op.attrs["layout_str"] for op in ops_of(p, "gemm")] == [
        "Tensor-Tensor-Tensor", "NTensor-NTensor-Tensor-NTensor",
    ]  # fmt: skip
    assert names["relu"] == names["broadcast"] == "Unknown"


def test_transmit_stops_at_reshape():
    g = SmallGraph(x=((1, 4, 4, 8), "f32"))
    before = g("abs", g.args["x"])
    relu = g("relu", g("conv", before, g.param("w", (1, 1, 8, 8))))
    flat = g("reshape", relu, shape=(1, 128))
    p = g.done(y=g("add", flat, flat))
    run_pipeline(p, "layout-init,layout-transmit")
    names = {op.kind: op.attrs["layout_str"] for op in p.main.body if "layout_str" in op.attrs}
    assert names == {"abs": "NHWC", "conv": "NHWC-HWOI-NHWC", "relu": "NHWC", "reshape": "Tensor", "add": "Tensor"}


def test_transmit_permutes_and_defaults_by_the_first_dimension():
    g = SmallGraph(x=((2, 4, 4, 8), "f32"), y=((3, 5), "f32"))
    conv = g("conv", g.args["x"], g.param("w", (1, 1, 8, 8)))
    p = g.done(a=g("transpose", conv, perm=(0, 3, 1, 2)), b=g("relu", g.args["y"]))
    run_pipeline(p, "layout-init,layout-transmit")
    assert ops_of(p, "transpose")[0].attrs["layout_str"] == "NCHW"
    assert ops_of(p, "relu")[0].attrs["layout_str"] == "NTensor"
    with pytest.raises(ConfigError):
        run_pipeline(p, [LayoutTransmit()])


def test_first_worked_graph():
    p = first_graph()
    LayoutAlign().run(p)
    p.verify()
    check_forms(p)
    forms = {k: ops_of(p, k)[0].attrs["mem_layout"] for k in ("relu", "conv", "add", "reshape", "gemm")}
    assert forms == {"relu": "dense", "conv": "blocked", "add": "dense", "reshape": "dense", "gemm": "blocked"}
    assert conversions(p) == sorted(
        [("conv", 0, "align"), ("add", 0, "compact"), ("gemm", 0, "align"), ("return", 0, "compact")]
    )


def test_second_worked_graph():
    p = second_graph()
    LayoutAlign().run(p)
    check_forms(p)
    assert all(op.attrs["mem_layout"] == "blocked" for k in ("relu", "add", "max_pool") for op in ops_of(p, k))
    assert conversions(p) == [("conv", 0, "align"), ("return", 0, "compact")]


def test_third_worked_graph_shares_conversions():
    p = third_graph()
    LayoutAlign().run(p)
    check_forms(p)
    assert conversions(p) == sorted(
        [("gemm", 0, "align"), ("return", 0, "compact"), ("return", 1, "compact"), ("return", 2, "compact")]
    )
    assert sum(n.operands[0].op is None or n.operands[0].op.kind != "get_param" for n in ops_of(p, "channel_norm")) == 3
    assert len(ops_of(p, "exp")[0].result.users) == 3  # reduce, div and one conversion


def test_rank_three_is_blocked_and_vectors_fit_both():
    g = SmallGraph(x=((2, 8, 64), "f32"))
    h = g("rmsnorm", g.args["x"], g.param("gamma", (64,)))
    y = g("add", h, g.param("b", (64,)))
    p = g.done(y=g("gemm", y, g.param("w", (64, 32)), g.param("bias", (32,))))
    LayoutAlign().run(p)
    check_forms(p)
    assert ops_of(p, "add")[0].attrs["mem_layout"] == "blocked"
    assert conversions(p) == [("return", 0, "compact"), ("rmsnorm", 0, "align")]


def test_reshape_that_keeps_batch_rows_and_channels_follows():
    g = SmallGraph(x=((1, 8, 64), "f32"))
    y = g("reshape", g("softmax", g.args["x"]), shape=(8, 64))
    z = g("reshape", y, shape=(4, 128))
    p = g.done(y=g("softmax", y), z=z)
    LayoutAlign().run(p)
    check_forms(p)
    assert [op.attrs["mem_layout"] for op in ops_of(p, "reshape")] == ["blocked", "dense"]


@pytest.mark.parametrize(
    ("images", "rows", "form"),
    [(1, (8, 64), "blocked"), (2, (8, 64), "dense"), (1, (1, 8, 64), "blocked"), (1, (2, 4, 64), "dense")],
)
def test_rows_that_lack_a_single_batch_fit_blocks(images, rows, form):
    """Positions that are added to a single image lie in the same blocks as the image's; those of several images, or batches that
    would become rows, do not."""
    g = SmallGraph(x=((images, 8, 64) if len(rows) < 3 or rows[0] == 1 else (1, *rows), "f32"))
    h = g("softmax", g.args["x"])
    y = g("add", h, g.param("positions", rows))
    p = g.done(y=g("softmax", y))
    LayoutAlign().run(p)
    check_forms(p)
    assert ops_of(p, "add")[0].attrs["mem_layout"] == form


def test_a_fixed_form_stays():
    g = SmallGraph(x=((4, 64), "f32"))
    p = g.done(y=g("relu", g.args["x"], mem_layout="blocked"))
    LayoutAlign().run(p)
    assert conversions(p) == [("relu", 0, "align"), ("return", 0, "compact")]
    n = len(ops_of(p, "channel_norm"))
    LayoutAlign().run(p)  # runs again without effect
    assert len(ops_of(p, "channel_norm")) == n


@pytest.mark.parametrize("build", [first_graph, second_graph, third_graph])
def test_mincut_never_converts_more(build):
    def cost(method):
        p = build()
        LayoutAlign(method).run(p)
        p.verify()
        check_forms(p)
        norms = [
            n for n in ops_of(p, "channel_norm") if n.operands[0].op is None or n.operands[0].op.kind != "get_param"
        ]
        return sum(n.result.type.size_bytes for n in norms)

    assert cost("mincut") <= cost("greedy")


def test_mincut_finds_what_greedy_misses():
    """add follows its dense parent, although its blocked one and its user are blocked."""
    g = SmallGraph(x=((4, 64), "f32"), t=((4, 64), "f32"))
    a = g("softmax", g.args["x"])
    b = g("relu", g("abs", g("add", g.args["t"], a)))
    c = g("softmax", b)
    p = g.done(y=g("softmax", g("add", g("neg", g("add", g.args["t"], a)), c)))
    q = p.clone()
    LayoutAlign("greedy").run(p)
    LayoutAlign("mincut").run(q)
    check_forms(q)
    assert len(ops_of(p, "channel_norm")) == 5 and len(ops_of(q, "channel_norm")) == 3
    with pytest.raises(ConfigError, match="greedy or mincut"):
        LayoutAlign("other").run(p)


def test_conversion_of_a_small_constant_vanishes():
    g = SmallGraph(x=((4, 64), "f32"))
    c = g("constant", value=DenseAttr(np.ones(64, np.float32)))
    p = g.done(y=g("add", g.args["x"], g("channel_norm", c, to="align")))
    LayoutOpt().run(p)
    assert kinds(p) == ["constant", "add", "return"]
    assert ops_of(p, "constant")[0].attrs["mem_layout"] == "blocked"


def test_redundant_conversion_needs_the_same_direction():
    g = SmallGraph(x=((4, 64), "f32"))
    a = g("channel_norm", g.args["x"], to="align")
    b = g("channel_norm", g.args["x"], to="align")
    c = g("channel_norm", g.args["x"], to="compact")
    p = g.done(a=g("relu", a), b=g("relu", b), c=c)
    LayoutOpt().run(p)
    assert kinds(p) == ["channel_norm", "channel_norm", "relu", "relu", "return"]
    assert ops_of(p, "relu")[1].operands[0].op is ops_of(p, "channel_norm")[0]


def test_inverse_conversions_vanish():
    g = SmallGraph(x=((4, 64), "f32"))
    a = g("channel_norm", g.args["x"], to="align")
    p = g.done(y=g("relu", g("channel_norm", a, to="compact")), z=g("neg", a))
    LayoutOpt().run(p)
    assert kinds(p) == ["channel_norm", "relu", "neg", "return"]
    assert ops_of(p, "relu")[0].operands[0] is p.main.body.args[0]


def test_constants_absorb_their_conversion():
    g = SmallGraph(x=((4, 64), "f32"))
    w = g.param("w", (64, 64))
    p = g.done(y=g("gemm", g("gemm", g.args["x"], w), w))
    run_pipeline(p, [LayoutAlign(), LayoutOpt(), ConstNorm()])
    check_forms(p)
    (read,) = ops_of(p, "get_param")
    assert read.attrs["mem_layout"] == "blocked" and len(read.result.uses) == 2
    assert not any(n.operands[0] is read.result for n in ops_of(p, "channel_norm"))


@pytest.mark.parametrize("limit, reads, norms", [(-1, ["dense", "blocked"], 0), (100, ["dense"], 1)])
def test_a_constant_needed_in_both_forms(limit, reads, norms):
    g = SmallGraph(x=((4, 64), "f32"))
    w = g.param("w", (64, 64))
    flat = g("reshape", w, shape=(4096,))
    p = g.done(y=g("gemm", g.args["x"], w), z=g("relu", flat))
    run_pipeline(p, [LayoutAlign(), LayoutOpt(), ConstNorm(limit)])
    check_forms(p)
    assert [op.attrs["mem_layout"] for op in ops_of(p, "get_param")] == reads
    of_params = [n for n in ops_of(p, "channel_norm") if n.operands[0].op and n.operands[0].op.kind == "get_param"]
    assert len(of_params) == norms


def test_state_that_the_program_writes_keeps_its_conversion():
    g = SmallGraph(x=((4, 64), "f32"))
    w = g.param("w", (64, 64))
    y = g("gemm", g.args["x"], w)
    g.op("set_param", g("relu", w), key="w")
    p = g.done(y=y)
    run_pipeline(p, [LayoutAlign(), LayoutOpt(), ConstNorm()])
    check_forms(p)
    assert ops_of(p, "get_param")[0].attrs["mem_layout"] == "dense"
    assert conversions(p) == [("gemm", 0, "align"), ("return", 0, "compact")]


@pytest.mark.parametrize("seed", range(40))
def test_the_minimum_cut_is_the_best_of_all_choices(seed):
    """Random graphs with up to ten free ops: no choice of forms converts fewer bytes."""
    rng = np.random.default_rng(seed)
    shapes = [(4, 64), (4, 64), (2, 64)]
    g = SmallGraph(**{f"x{i}": (s, "f32") for i, s in enumerate(shapes)})
    values = list(g.args.values())
    for _ in range(int(rng.integers(8, 16))):
        kind = str(rng.choice(["softmax", "relu", "abs", "add", "mul", "transpose"], p=[0.2, 0.2, 0.1, 0.2, 0.1, 0.2]))
        x = values[int(rng.integers(len(values)))]
        if kind in ("add", "mul"):
            same = [v for v in values if v.shape == x.shape]
            values.append(g(kind, x, same[int(rng.integers(len(same)))]))
        elif kind == "transpose":
            values.append(g("transpose", g("transpose", x, perm=(1, 0)), perm=(1, 0)))
        else:
            values.append(g(kind, x))
    p = g.done(**{f"y{i}": v for i, v in enumerate(values[-3:])})
    symbols, (main,) = callees_first(p)
    main.attrs["arg_layouts"] = argument_layouts(main, symbols)
    colouring = Colouring(main, symbols)
    choices = colouring.either()[:10]
    if len(colouring.either()) > 10:
        pytest.skip("too many free ops to try all")
    greedy = conversion_bytes(colouring)
    saved = improve(colouring)
    best = conversion_bytes(colouring)
    assert best == greedy - saved
    for forms in itertools.product(("dense", "blocked"), repeat=len(choices)):
        for o, form in zip(choices, forms, strict=True):
            colouring.paint(o, form)
        assert conversion_bytes(colouring) >= best
