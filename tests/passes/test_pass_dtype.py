"""The compute format: where it starts, what keeps its own, what constants become."""

import ml_dtypes
import numpy as np
import pytest
from support.run_graph import run_graph
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.errors import ConfigError
from tx8fast.ir.attrs import DenseAttr
from tx8fast.numerics.formats import clamp_finite
from tx8fast.passes.compute_dtype import ComputeDtype
from tx8fast.weights import DerivedSource, Weight


def dtypes(program):
    return {op.kind: op.results[0].dtype for op in program.main.body if op.results}


def run(program, dtype="bf16"):
    ComputeDtype(dtype).run(program)
    program.verify()
    return program


def test_interface_stays_and_weights_take_the_format():
    g = SmallGraph(x=((4, 64), "f32"))
    p = run(g.done(y=g("gemm", g.args["x"], g.param("w", (64, 32)), g.param("b", (32,)))))
    assert p.main.body.args[0].dtype == "f32" and p.main.body.last.operands[0].dtype == "f32"
    assert kinds(p) == ["convert", "get_param", "get_param", "gemm", "convert", "return"]
    assert [op.result.dtype for op in ops_of(p, "get_param")] == ["bf16", "bf16"]
    assert p.weights["w"].dtype == "f32"


@pytest.mark.parametrize("source, target", [("bf16", "f32"), ("f16", "f32"), ("f16", "bf16"), ("bf16", "f16")])
def test_other_formats_are_converted_likewise(source, target):
    g = SmallGraph(x=((4, 64), source))
    p = run(g.done(y=g("softmax", g("gemm", g.args["x"], g.param("w", (64, 32), source)))), target)
    assert dtypes(p)["gemm"] == dtypes(p)["softmax"] == target
    assert p.main.body.last.operands[0].dtype == source


def test_keep_changes_nothing():
    g = SmallGraph(x=((4, 64), "f32"))
    p = g.done(y=g("relu", g.args["x"]))
    before = p.text()
    assert not ComputeDtype("keep").run(p).changed and p.text() == before
    with pytest.raises(ConfigError, match="int8"):
        ComputeDtype("int8").run(p)


def test_positions_stay_f32_until_they_meet_the_compute_format():
    g = SmallGraph(x=((4, 64), "f32"), pos=((4, 1), "i64"))
    freq = g.param("freq", (64,))
    angle = g("mul", g("convert", g.args["pos"], dtype="f32"), freq)
    p = run(g.done(y=g("mul", g("exp", g.args["x"]), g("cos", angle))))
    muls = ops_of(p, "mul")
    assert [m.result.dtype for m in muls] == ["f32", "bf16"]
    assert ops_of(p, "cos")[0].result.dtype == "f32"
    assert ops_of(p, "get_param")[0].result.dtype == "f32"
    assert muls[1].operands[1].op.kind == "convert" and muls[1].operands[1].op.operands[0].op.kind == "cos"


def test_a_parameter_used_in_two_formats_is_read_twice():
    g = SmallGraph(x=((4, 64), "f32"), n=((4, 64), "i64"))
    w = g.param("w", (64, 64))
    a = g("gemm", g.args["x"], g("transpose", w, perm=(1, 0)))
    p = run(
        g.done(
            a=a,
            b=g("add", g("convert", g.args["n"], dtype="f32"), g("slice", w, start=(0, 0), size=(4, 64), step=(1, 1))),
        )
    )
    assert sorted((op.attrs["key"], op.result.dtype) for op in ops_of(p, "get_param")) == [("w", "bf16"), ("w", "f32")]
    assert ops_of(p, "transpose")[0].result.dtype == "bf16" and ops_of(p, "slice")[0].result.dtype == "f32"


def test_select_embedding_and_cache():
    g = SmallGraph(cache=((1, 8, 64), "bf16"), i=((1, 1), "i64"), at=((1,), "i64"), c=((1, 1, 64), "pred"))
    e = g("embedding", g.param("t", (9, 64), "bf16"), g.args["i"])
    zero = g("constant", value=DenseAttr(np.zeros((), ml_dtypes.bfloat16)))
    e = g("select", g.args["c"], e, zero)
    p = run(g.done(c=g("kv_update", g.args["cache"], e, g.args["at"], axis=1)), "f32")
    assert dtypes(p) == {"get_param": "f32", "embedding": "f32", "constant": "f32", "select": "f32",
                         "kv_update": "f32", "convert": "bf16"}  # fmt: skip


def test_f64_and_integers_stay():
    g = SmallGraph(x=((4, 64), "f64"), i=((4, 4), "i8"))
    p = run(g.done(y=g("softmax", g.args["x"]), z=g("gemm", g.args["i"], g.args["i"]), n=g("isnan", g.args["x"])))
    assert dtypes(p) == {"softmax": "f64", "gemm": "i32", "isnan": "pred"}
    assert not ops_of(p, "convert")


def test_explicit_widening_is_kept_and_not_undone_twice():
    g = SmallGraph(x=((4, 64), "bf16"))
    wide = g("convert", g("relu", g.args["x"]), dtype="f32")
    p = run(g.done(a=g("convert", g("square", wide), dtype="bf16"), b=g("softmax", wide)))
    assert ops_of(p, "square")[0].result.dtype == "f32"
    assert ops_of(p, "softmax")[0].operands[0].op.kind == "relu"


def test_batchnorm_statistics_and_calls_keep_their_types():
    g = SmallGraph(x=((4, 8), "f32"))
    stats = [g.param(k, (8,)) for k in "abcd"]
    y = g("batchnorm_inference", g.args["x"], *stats)
    call = g.op("call", y, callee="f", result_types=[y.type])
    g.end(y=call.result)
    g.begin("subgraph", "f", x=((4, 8), "f32"))
    g.end(y=g("exp", g.args["x"]))
    p = run(g.program())
    assert [op.result.dtype for op in ops_of(p, "get_param")] == ["f32"] * 4
    assert ops_of(p, "batchnorm_inference")[0].result.dtype == "bf16"
    assert ops_of(p, "call")[0].operands[0].dtype == "f32" and ops_of(p, "exp")[0].result.dtype == "bf16"


def test_constants_stay_finite():
    low = np.float32(np.finfo(np.float32).min)
    x = np.array([low, -low, -np.inf, np.nan, 1.5, 1e5], np.float32)
    half = clamp_finite(x, np.dtype(np.float16))
    assert half.dtype == np.float16 and half[5] == 65504 and half[0] == -65504
    assert np.isneginf(half[2]) and np.isnan(half[3]) and half[4] == 1.5
    brain = clamp_finite(x, np.dtype(ml_dtypes.bfloat16)).astype(np.float32)
    assert np.isfinite(brain[:2]).all() and np.isneginf(brain[2])


def test_a_widened_constant_that_is_too_large_moves_to_the_table():
    g = SmallGraph(x=((512,), "bf16"))
    c = g("constant", value=DenseAttr(np.arange(512).astype(ml_dtypes.bfloat16)))
    p = run(g.done(y=g("add", g.args["x"], c)), "f32")
    (read,) = ops_of(p, "get_param")
    assert read.attrs["key"].startswith("%const/") and not ops_of(p, "constant")
    out = run_graph(p, {"x": np.ones(512)})["y"].astype(np.float32)
    assert np.array_equal(
        out, (np.arange(512).astype(ml_dtypes.bfloat16).astype(np.float32) + 1).astype(ml_dtypes.bfloat16)
    )


def test_a_graph_built_in_the_format_stays_as_it_is():
    """What a builder widened is meant, products and norms too."""
    g = SmallGraph(x=((4, 64), "bf16"))
    wide = g("convert", g.args["x"], dtype="f32")
    y = g("gemm", g("rmsnorm", wide, g.param("gain", (64,))), g.param("w", (64, 32)))
    p = g.done(y=g("convert", y, dtype="bf16"))
    p.config_dtype = "bf16"
    p = run(p)
    assert {op.result.dtype for kind in ("gemm", "rmsnorm") for op in ops_of(p, kind)} == {"f32"}
    assert ops_of(run(p, "f16"), "gemm")[0].result.dtype == "f16"


def _mask(g, kind, hidden):
    mask = np.where(hidden, -65504.0, 0.0).astype(np.float16)
    if kind == "constant":
        return g("constant", value=DenseAttr(mask))
    if kind == "moved":
        return g("reshape", g.array("mask", mask[None]), shape=mask.shape)
    if kind == "stored":
        return g.array("mask", mask)
    derived = DerivedSource("causal_mask", {"offset": mask.shape[1] - mask.shape[0], "window": 0, "value": -65504.0})
    g.weights.add(Weight("%const/causal", mask.shape, "f16", derived))
    return g.param("%const/causal", mask.shape, "f16")


@pytest.mark.parametrize("target", ["f32", "bf16"])
@pytest.mark.parametrize("kind", ["constant", "moved", "stored", "derived"])
def test_masks_of_f16_hide_whatever_a_wider_format_has_for_scores(kind, target):
    """-65504 is the lowest number of f16, and one among others in f32. The same mask as an addend stays a number."""
    rows, keys = 4, 6
    hidden = np.arange(keys)[None, :] > np.arange(rows)[:, None] + keys - rows
    g = SmallGraph(x=((rows, keys), "f32"))
    x = g("convert", g.args["x"], dtype="f16")
    mask = _mask(g, kind, hidden)
    p = run(g.done(y=g("softmax", x, mask), z=g("convert", g("add", x, mask), dtype="f32")), target)
    scores = np.where(hidden, 1e6, np.arange(keys)).astype(np.float32)
    found = run_graph(p, {"x": scores})
    share = found["y"].astype(np.float32)
    assert (share[hidden] == 0).all() and np.abs(share.sum(1) - 1).max() < 1e-2
    assert np.isclose(found["z"][0, -1], 1e6 - 65504, rtol=1e-2)


@pytest.mark.parametrize(("all_hidden", "log"), [(True, False), (False, True)])
def test_masks_of_f16_stay_where_their_number_shows(all_hidden, log):
    """A row that sees nothing has the shares of its scores, and a logarithm of a share of nothing is the number itself."""
    hidden = np.array([[True, True, all_hidden], [False, True, True]])
    g = SmallGraph(x=((2, 3), "f32"))
    y = g("softmax", g("convert", g.args["x"], dtype="f16"), _mask(g, "stored", hidden), log=log)
    p = run(g.done(y=y), "f32")
    x = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], np.float32)
    z = x + np.where(hidden, -65504.0, 0.0)
    want = z - z.max(1, keepdims=True) - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True))
    found = run_graph(p, {"x": x})["y"]
    assert np.allclose(found, want if log else np.exp(want), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("target", ["bf16", "f16"])
@pytest.mark.parametrize("stored", [True, False])
def test_masks_computed_from_integers_hide_with_numbers_of_the_format(target, stored):
    """(1 - mask) * lowest is f32 until it meets the scores; the lowest number of f32 would be infinite there."""
    lowest = np.array(np.finfo(np.float32).min, np.float32)
    g = SmallGraph(q=((2, 8), "f32"), k=((8, 3), "f32"), mask=((2, 3), "i64"))
    one = g("constant", value=DenseAttr(np.array(1, np.float32)))
    hidden = g("sub", one, g("convert", g.args["mask"], dtype="f32"))
    mask = g("mul", hidden, g.array("low", lowest) if stored else g("constant", value=DenseAttr(lowest)))
    p = run(g.done(y=g("softmax", g("add", g("gemm", g.args["q"], g.args["k"]), mask))), target)
    feed = {
        "q": np.ones((2, 8), np.float32),
        "k": np.ones((8, 3), np.float32),
        "mask": np.array([[0, 0, 0], [1, 1, 0]]),
    }
    share = np.asarray(run_graph(p, feed)["y"]).astype(np.float32)
    assert np.allclose(share[0], 1 / 3, atol=1e-2) and np.allclose(share[1], [0.5, 0.5, 0], atol=1e-2)
