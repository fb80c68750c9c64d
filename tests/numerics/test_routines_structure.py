"""Reference routines: products, convolution, pooling, movement and indexing families."""

import numpy as np
import pytest

from tests.numerics.test_routines_arithmetic import run
from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.routines import ROUTINES

F = np.float32


def rand(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(F)


def test_gemm_transposes_batches_bias_and_activation():
    a, b, bias = rand(2, 1, 3, 4), rand(5, 4, 6, seed=1), rand(6, seed=2)
    want = np.matmul(a.astype(float), b) + bias
    np.testing.assert_allclose(run("gemm", a, b, bias), want, rtol=1e-6, atol=1e-6)
    turned = run("gemm", a.swapaxes(-1, -2), b.swapaxes(-1, -2), bias, trans_a=True, trans_b=True)
    np.testing.assert_allclose(turned, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(run("gemm", a, b, bias, act="relu"), np.maximum(want, 0), rtol=1e-6, atol=1e-6)
    with pytest.raises(SimulationError, match="do not multiply"):
        run("gemm", a, b[:, :3])


def test_integer_gemm_is_exact_and_wraps():
    a, b = np.full((1, 1000), -128, np.int8), np.full((1000, 1), 127, np.int8)
    assert run("gemm", a, b, out="i32").item() == -128 * 127 * 1000
    big = np.array([[2**31 - 1]], np.int32)
    assert run("gemm", big, big, out="i32").item() == 1


def test_contract_with_composite_dimensions():
    q, k = rand(2, 5, 2 * 3 * 4), rand(2, 7, 2 * 4, seed=1)
    got = run("contract", q, k, equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=("h", 2, "d", 4))
    want = np.einsum("bshgd,bthd->bhgst", q.reshape(2, 5, 2, 3, 4), k.reshape(2, 7, 2, 4))
    np.testing.assert_allclose(got, want.reshape(2, 6, 5, 7), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("i j, j k -> i k", (2, 3), (3, 4)),
        ("i j, j k -> k i", (2, 3), (3, 4)),
        ("b i, b i -> b", (2, 3), (2, 3)),
        ("b i, b j -> i b j", (2, 3), (2, 4)),
        ("i k, j -> j", (2, 3), (4,)),
        ("i, i ->", (5,), (5,)),
    ],
)
def test_contract_equals_einsum(equation, left, right):
    a, b = rand(*left), rand(*right, seed=1)
    want = np.einsum(equation.replace(" ", ""), a, b)
    np.testing.assert_allclose(run("contract", a, b, equation=equation), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("i j, j k", "needs two operands"),
        ("i i, i k -> k", "repeats"),
        ("i j, j k -> z", r"result labels \['z'\]"),
        ("i j k, j k -> i", "has 3 dims"),
        ("(a b) j, j k -> a k", "sizes of"),
        ("i j, i k -> j k", "has size"),
        ("i [j], j k -> k", "cannot read"),
    ],
)
def test_contract_errors(equation, message):
    with pytest.raises(SimulationError, match=message):
        run("contract", rand(2, 3), rand(3, 4), equation=equation)


def test_convolution_by_hand():
    x = np.arange(9, dtype=F).reshape(1, 3, 3, 1)
    w = np.ones((2, 2, 1, 1), F)
    got = run("conv", x, w, F([1.0]))
    assert got.reshape(2, 2).tolist() == [[9.0, 13.0], [21.0, 25.0]]


def test_pool_ceil_mode_by_hand():
    x = np.arange(1, 6, dtype=F).reshape(1, 1, 5, 1)
    shape = {"kernel": (1, 2), "stride": (1, 2)}
    assert run("max_pool", x, **shape).reshape(-1).tolist() == [2.0, 4.0]
    assert run("max_pool", x, ceil_mode=True, **shape).reshape(-1).tolist() == [2.0, 4.0, 5.0]
    assert run("avg_pool", x, ceil_mode=True, **shape).reshape(-1).tolist() == [1.5, 3.5, 5.0]
    # the trailing window would start in the padding: it is dropped
    padded = {"kernel": (1, 2), "stride": (1, 3), "pad_hi": (0, 2), "ceil_mode": True}
    assert run("max_pool", x, **padded).reshape(-1).tolist() == [2.0, 5.0]
    x8 = np.array([-7, -9], np.int8).reshape(1, 1, 2, 1)
    assert run("max_pool", x8, out="i8", kernel=(1, 3), pad_lo=(0, 1)).item() == -7


def test_average_counts_padding_on_request():
    x = np.ones((1, 2, 2, 1), F)
    attrs = {"kernel": (2, 2), "stride": (2, 2), "pad_lo": (1, 1), "pad_hi": (1, 1)}
    assert run("avg_pool", x, **attrs).reshape(-1).tolist() == [1.0] * 4
    assert run("avg_pool", x, count_pad=True, **attrs).reshape(-1).tolist() == [0.25] * 4


def _session(op, feeds, **attrs):
    ort = pytest.importorskip("onnxruntime")
    import onnx

    helper = onnx.helper
    names = [f"x{i}" for i in range(len(feeds))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, feeds, strict=True)
    ]
    out = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", infos, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(zip(names, feeds, strict=True)))[0]


def nchw(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_against_an_independent_runtime(groups):
    x, w, bias = rand(2, 7, 8, 4), rand(3, 2, 8, 4 // groups, seed=1), rand(8, seed=2)
    attrs = {"stride": (2, 1), "dilation": (1, 2), "pad_lo": (1, 0), "pad_hi": (2, 1)}
    got = run("conv", x, w, bias, groups=groups, **attrs)
    want = _session(
        "Conv",
        [nchw(x), np.ascontiguousarray(w.transpose(2, 3, 0, 1)), bias],
        strides=[2, 1],
        dilations=[1, 2],
        pads=[1, 0, 2, 1],
        group=groups,
    )
    np.testing.assert_allclose(nchw(got), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_against_an_independent_runtime(groups):
    x, w = rand(2, 4, 5, 4), rand(3, 2, 6 // groups, 4, seed=1)
    attrs = {
        "stride": (2, 3),
        "dilation": (2, 1),
        "pad_lo": (1, 0),
        "pad_hi": (0, 1),
        "out_pad": (1, 0),
    }
    got = run("conv_transpose", x, w, groups=groups, **attrs)
    want = _session(
        "ConvTranspose",
        [nchw(x), np.ascontiguousarray(w.transpose(3, 2, 0, 1))],
        strides=[2, 3],
        dilations=[2, 1],
        pads=[1, 0, 0, 1],
        output_padding=[1, 0],
        group=groups,
    )
    np.testing.assert_allclose(nchw(got), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize(("op", "name", "extra"), [
    ("MaxPool", "max_pool", {}),
    ("AveragePool", "avg_pool", {"count_include_pad": 0}),
    ("AveragePool", "avg_pool", {"count_include_pad": 1}),
])  # fmt: skip
def test_pools_against_an_independent_runtime(op, name, extra, ceil_mode):
    x = rand(1, 8, 9, 3)
    got = run(
        name,
        x,
        kernel=(3, 2),
        stride=(2, 3),
        dilation=(1, 2),
        pad_lo=(1, 0),
        pad_hi=(1, 1),
        ceil_mode=bool(ceil_mode),
        count_pad=bool(extra.get("count_include_pad")),
    )
    window = {"kernel_shape": [3, 2], "strides": [2, 3], "dilations": [1, 2], "pads": [1, 0, 1, 1]}
    want = _session(op, [nchw(x)], ceil_mode=ceil_mode, **window, **extra)
    np.testing.assert_allclose(nchw(got), want, rtol=1e-5, atol=1e-6)


def test_movement():
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert run("transpose", x, out="i32", perm=(1, 0)).tolist() == x.T.tolist()
    assert run("reshape", x, out="i32", shape=(3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert run("broadcast", x[:1], out="i32", shape=(2, 2, 3)).shape == (2, 2, 3)
    assert run("concat", x, x, out="i32", axis=-1).shape == (2, 6)
    assert run("trilu", np.ones((2, 3), F), k=1).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert run("trilu", np.ones((2, 3), F), upper=False).tolist() == [[1, 0, 0], [1, 1, 0]]
    assert run("channel_norm", x, out="i32", to="align").tolist() == x.tolist()
    ramp = run("iota", out="i64", shape=(2, 3), axis=1)
    assert ramp.tolist() == [[0, 1, 2]] * 2


def test_slices_in_both_directions():
    x = np.arange(10, dtype=np.int64)
    pick = lambda a, n, s: run("slice", x, out="i64", start=(a,), size=(n,), step=(s,)).tolist()  # noqa: E731
    assert pick(1, 3, 2) == [1, 3, 5]
    assert pick(9, 4, -3) == [9, 6, 3, 0]
    assert pick(4, 0, 1) == []
    assert run("slice", x, out="i64", start=(8,), size=(2,)).tolist() == [8, 9]
    with pytest.raises(SimulationError, match="required within"):
        pick(8, 3, 1)


def test_padding_modes():
    x = np.array([1, 2, 3], np_dtype("bf16"))
    grow = lambda **a: run("pad", x, out="bf16", **a).astype(int).tolist()  # noqa: E731
    assert grow(lo=(2,), hi=(1,), value=7.0) == [7, 7, 1, 2, 3, 7]
    assert grow(lo=(2,), hi=(1,), mode="edge") == [1, 1, 1, 2, 3, 3]
    assert grow(lo=(2,), hi=(1,), mode="reflect") == [3, 2, 1, 2, 3, 2]
    assert grow(lo=(2,), hi=(1,), mode="wrap") == [2, 3, 1, 2, 3, 1]
    assert grow(lo=(-1,), hi=(1,)) == [2, 3, 0]


def test_gathers():
    table = np.arange(12, dtype=F).reshape(4, 3)
    assert run("gather", table, np.array([[0, -1]]), axis=0).tolist() == [[[0, 1, 2], [9, 10, 11]]]
    assert run("gather", table, np.array(1), axis=1).tolist() == [1, 4, 7, 10]
    assert run("embedding", table, np.array([2])).tolist() == [[6, 7, 8]]
    picks = np.array([[0, -1, 1]])
    assert run("gather_elements", table, picks, axis=0).tolist() == [[0, 10, 5]]
    assert run("gather_nd", table, np.array([[1, 2], [-1, 0]])).tolist() == [5, 9]
    rows = run("gather_nd", table, np.array([[2], [0], [1], [0]]), batch_dims=1)
    assert rows.tolist() == [2, 3, 7, 9]
    with pytest.raises(SimulationError, match="first 4, required"):
        run("gather", table, np.array([4]))


def test_scatters():
    x = np.zeros((2, 3), F)
    at, up = np.array([[0, 1, -1]]), F([[1, 2, 3]])
    assert run("scatter", x, at, up, axis=0).tolist() == [[1, 0, 0], [0, 2, 3]]
    twice, both = np.array([[1, 1]]), F([[2, 3]])
    assert run("scatter", x[:1], twice, both, axis=1).tolist() == [[0, 3, 0]]
    assert run("scatter", x[:1], twice, both, axis=1, combine="add").tolist() == [[0, 5, 0]]
    assert run("scatter", x[:1] + 1, twice, both, axis=1, combine="mul").tolist() == [[1, 6, 1]]
    assert run("scatter", x[:1], twice, -both, axis=1, combine="max").tolist() == [[0, 0, 0]]
    assert run("scatter", x[:1], twice, -both, axis=1, combine="min").tolist() == [[0, -3, 0]]
    y = run("scatter_nd", x, np.array([[1], [1]]), F([[1, 1, 1], [2, 2, 2]]), combine="add")
    assert y.tolist() == [[0, 0, 0], [3, 3, 3]]
    b = x.astype(np_dtype("bf16"))
    assert run("scatter_nd", b, np.array([[0, 2]]), up[0, :1], out="bf16")[0, 2] == 1
    assert not x.any()
    with pytest.raises(SimulationError, match="unknown combine"):
        run("scatter", x, at, up, combine="xor")
    with pytest.raises(SimulationError, match="required"):
        run("scatter_nd", x, np.array([[0]]), F([1, 2]))


def test_cache_update():
    cache, new = np.zeros((1, 4, 2), F), np.ones((1, 2, 2), F)
    y = run("kv_update", cache, new, np.array([1], np.int64))
    assert y[0, :, 0].tolist() == [0, 1, 1, 0] and not cache.any()
    assert run("kv_update", cache, new, np.array([0], np.int64), axis=1)[0, 0, 0] == 1
    with pytest.raises(SimulationError, match=r"writes \[3, 5\) on axis 1"):
        run("kv_update", cache, new, np.array([3], np.int64))


def test_results_do_not_warn():
    with np.errstate(all="raise"):
        (y,) = ROUTINES["log"]([F([-1.0, 0.0])], {}, [((2,), "f32")])
    assert np.isnan(y[0]) and y[1] == -np.inf
