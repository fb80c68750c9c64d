"""Operators of the domain com.microsoft equal onnxruntime's, one node at a time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.interpret import run_program

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend.onnx import import_model

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(5)


def f32(*shape, scale=1.0):
    return (scale * RNG.standard_normal(shape)).astype(np.float32)


def one_node(
    op: str,
    inputs: list,
    n_out: int,
    constants=(),
    opset: int = 20,
    domain: str = "com.microsoft",
    **attrs,
):
    """Return (model, runtime inputs); `inputs` are arrays or None, those at indices `constants` become initialisers."""
    names = ["" if a is None else f"i{k}" for k, a in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op, names, [f"o{k}" if k >= 0 else "" for k in range(n_out)], domain=domain, **attrs)
    infos, stored, feed = [], [], {}
    for k, a in enumerate(inputs):
        if a is None:
            continue
        if k in constants:
            t = a if isinstance(a, TensorProto) else numpy_helper.from_array(a, f"i{k}")
            t.name = f"i{k}"
            stored.append(t)
        else:
            infos.append(helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
            feed[f"i{k}"] = a
    outputs = [helper.make_empty_tensor_value_info(f"o{k}") for k in range(n_out)]
    graph = helper.make_graph([node], "g", infos, outputs, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feed


def check(op: str, inputs: list, n_out: int = 1, skip: tuple = (), **kw) -> None:
    m, feed = one_node(op, inputs, n_out, **kw)
    for name in skip:  # outputs that this version of the runtime leaves unset
        m.graph.node[0].output[name] = ""
    kept = [o for o in m.graph.node[0].output if o]
    del m.graph.output[:]
    m.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in kept)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    program = import_model(m)
    got = run_program(program, feed)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_simplified_layer_normalization(domain):
    if domain:
        m, _ = one_node("SimplifiedLayerNormalization", [f32(2, 3, 8), f32(8)], 1, domain=domain)
        assert any(op.kind == "rmsnorm" for op in import_model(m).main.body)
    else:
        check("SimplifiedLayerNormalization", [f32(2, 3, 8), f32(8)], domain="", axis=-1, epsilon=1e-6)


@pytest.mark.parametrize("beta", [True, False])
def test_layer_normalization_before_its_operator_set(beta):
    check(
        "LayerNormalization",
        [f32(2, 3, 8), f32(8), f32(8) if beta else None],
        domain="",
        opset=13,
        axis=-1,
    )


@pytest.mark.parametrize("bias", [True, False])
def test_skip_simplified_layer_normalization(bias):
    x, s, g = f32(2, 3, 8), f32(2, 3, 8), f32(8)
    check(
        "SkipSimplifiedLayerNormalization",
        [x, s, g, f32(8) if bias else None],
        4,
        (1, 2),
        epsilon=1e-5,
    )


@pytest.mark.parametrize(("beta", "bias", "skip"), [(1, 1, (2, 3, 8)), (1, 0, (1, 3, 8)), (0, 0, (3, 8))])
def test_skip_layer_normalization(beta, bias, skip):
    inputs = [f32(2, 3, 8), f32(*skip), f32(8), f32(8) if beta else None, f32(8) if bias else None]
    check("SkipLayerNormalization", inputs, 4, (1, 2), epsilon=1e-5)


@pytest.mark.parametrize("op", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"])
def test_statistics_of_skip_norms_that_nobody_reads_may_be_named(op):
    """Exporters name all four outputs; the reference computes the first and the last."""
    x, skip, gain = f32(2, 3, 8), f32(2, 3, 8), f32(8)
    m, feed = one_node(op, [x, skip, gain], 4)
    del m.graph.output[1:3]
    _, total = run_program(import_model(m), feed)
    np.testing.assert_allclose(total, x + skip, rtol=1e-6)


@pytest.mark.parametrize("op", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"])
def test_skip_norms_of_small_values_without_epsilon(op):
    """Values whose mean square is near 1e-5: another epsilon than the operator's own shows."""
    check(op, [f32(2, 3, 8, scale=3e-3), f32(2, 3, 8, scale=3e-3), f32(8)], 1)


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_activations(op):
    check(op, [f32(3, 8)] + ([f32(8)] if op in ("BiasGelu", "FastGelu") else []))


@pytest.mark.parametrize(("a", "b", "attrs"), [
    ((2, 3, 4), (4, 5), {"alpha": 0.5}),
    ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": 2.0}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
])  # fmt: skip
def test_fused_matmul(a, b, attrs):
    check("FusedMatMul", [f32(*a), f32(*b)], **attrs)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("k", [64, 40])
def test_matmul_nbits(bits, zeros, k):
    n, block = 6, 16
    blocks = -(-k // block)
    w = RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    z = RNG.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8) if zeros else None
    s = np.abs(f32(n, blocks, scale=0.1))
    inputs = [f32(3, k), w, s, z]
    check("MatMulNBits", inputs, constants=(1, 2, 3), K=k, N=n, bits=bits, block_size=block)


def packed(values: np.ndarray, dtype: int) -> TensorProto:
    return helper.make_tensor("t", dtype, values.shape, values.reshape(-1))


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", ["int4", "uint4", "uint8"])
def test_gather_block_quantized(kind, zeros):
    rows, width, block = 7, 32, 16
    indices, s = np.array([[0, 3], [6, 2]], np.int64), np.abs(f32(rows, width // block))
    lo, hi = (-8, 8) if kind == "int4" else (0, 16)
    if kind == "uint8":
        data = RNG.integers(0, 256, (rows, width // 2)).astype(np.uint8)
        z = RNG.integers(0, 256, (rows, width // block // 2)).astype(np.uint8)
    else:
        code = TensorProto.INT4 if kind == "int4" else TensorProto.UINT4
        data = packed(RNG.integers(lo, hi, (rows, width)), code)
        z = packed(RNG.integers(lo, hi, (rows, width // block)), code)
    inputs = [data, indices, s, z if zeros else None]
    check(
        "GatherBlockQuantized",
        inputs,
        constants=(0, 2, 3),
        gather_axis=0,
        quantize_axis=1,
        block_size=block,
    )


@pytest.mark.parametrize(("x", "heads", "places", "attrs"), [
    ((2, 3, 16), 2, [0], {}), ((2, 2, 3, 8), 0, [4], {"interleaved": 1}), ((2, 3, 16), 2, [[0, 1, 2], [5, 6, 7]], {}),
    ((1, 3, 16), 2, [[2, 3, 4]], {"rotary_embedding_dim": 4}), ((1, 1, 16), 2, [[5]], {}),
])  # fmt: skip
def test_rotary_embedding(x, heads, places, attrs):
    width = attrs.get("rotary_embedding_dim", 8)
    angle = np.outer(np.arange(16), 0.3 ** np.arange(width // 2)).astype(np.float32)
    if heads and "rotary_embedding_dim" in attrs:
        attrs = {**attrs, "num_heads": heads}
    check(
        "RotaryEmbedding",
        [f32(*x), np.array(places, np.int64), np.cos(angle), np.sin(angle)],
        **attrs,
    )


@pytest.mark.parametrize("case", ["plain", "bias", "causal", "extra", "lengths", "mask", "past", "cross"])
def test_multi_head_attention(case):
    b, s, t, h, d = 2, 3, 5, 2, 8
    inputs: list = [
        f32(b, s, h * d),
        f32(b, t, h * d),
        f32(b, t, h * d),
        None,
        None,
        None,
        None,
        None,
    ]
    attrs: dict = {"num_heads": h}
    n_out = 1
    if case == "bias":
        inputs[3] = f32(3 * h * d)
    elif case == "causal":
        inputs[0] = f32(b, t, h * d)
        attrs["unidirectional"] = 1
    elif case == "extra":
        inputs[5] = f32(b, h, s, t)
    elif case == "lengths":
        inputs[4] = np.array([5, 3], np.int32)
    elif case == "mask":
        inputs[4] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    elif case == "past":
        inputs[0], inputs[6], inputs[7] = f32(b, t, h * d), f32(b, h, 4, d), f32(b, h, 4, d)
        n_out = 3
    elif case == "cross":
        inputs[1], inputs[2] = f32(b, h, t, d), f32(b, h, t, d)
    check("MultiHeadAttention", inputs, n_out, **attrs)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", ["query, key and value", "key and value"])
def test_packed_multi_head_attention(case, bias):
    """onnxruntime has packed inputs on other devices only: against the same numbers in three inputs."""
    b, s, h, d = 2, 4, 3, 8
    q, k, v = (f32(b, s, h, d) for _ in range(3))
    shift = f32(3 * h * d) if bias else None
    apart = [*(x.reshape(b, s, h * d) for x in (q, k, v)), shift]
    m, feed = one_node("MultiHeadAttention", apart, 1, num_heads=h)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    if case == "key and value":
        together = [apart[0], np.stack([k, v], 3), None, shift]
    else:
        together = [np.stack([q, k, v], 3), None, None, shift]
    m, feed = one_node("MultiHeadAttention", together, 1, num_heads=h)
    got = run_program(import_model(m), feed)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("case", ["plain", "causal", "lengths", "mask", "square mask", "extra", "past", "widths"])
def test_attention_of_one_product(case):
    b, s, h, width, past = 2, 4, 2, 12, 3
    sizes = [16, 16, 24] if case == "widths" else [16] * 3
    total = s + past if case == "past" else s
    inputs = [f32(b, s, width), f32(width, sum(sizes)), f32(sum(sizes)), None, None, None]
    attrs, n_out = {"num_heads": h}, 1
    if case == "causal":
        attrs["unidirectional"] = 1
    elif case == "lengths":
        inputs[3] = np.array([4, 2], np.int32)
    elif case == "mask":
        inputs[3] = np.array([[1, 1, 0, 1], [1, 1, 1, 0]], np.int32)
    elif case == "square mask":
        inputs[3] = np.tril(np.ones((b, s, s), np.int32))
    elif case == "extra":
        inputs[5] = f32(b, h, s, s)
    elif case == "past":
        inputs[4], n_out = f32(2, b, h, past, 8), 2
        inputs[3] = np.ones((b, total), np.int32)
    elif case == "widths":
        attrs["qkv_hidden_sizes"] = sizes
    check("Attention", inputs, n_out, constants=(1, 2), **attrs)


def test_attention_without_bias():
    """onnxruntime wants one (and does not survive without)."""
    inputs = [f32(2, 4, 12), f32(12, 48), np.zeros(48, np.float32)]
    m, feed = one_node("Attention", inputs, 1, num_heads=2)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    m, feed = one_node("Attention", inputs[:2], 1, num_heads=2)
    np.testing.assert_allclose(run_program(import_model(m), feed)[0], want[0], rtol=2e-4, atol=2e-5)


def tables(width: int, length: int = 32):
    angle = np.outer(np.arange(length), 0.3 ** np.arange(width // 2)).astype(np.float32)
    return np.cos(angle), np.sin(angle)


@pytest.mark.parametrize("rope", [None, "half", "interleaved"])
@pytest.mark.parametrize("case", ["prompt", "packed", "token", "buffer", "buffer of two", "window", "softcap"])
def test_group_query_attention(case, rope):
    b, s, heads, kv, d, past = 1, 4, 4, 2, 16, 0
    attrs: dict = {"num_heads": heads, "kv_num_heads": kv}
    total = s
    if case in ("token", "window", "softcap"):
        s, past, total = 1, 6, 7
    elif case == "buffer":
        s, past, total = 1, 16, 7
    elif case == "buffer of two":
        b, s, past, total = 2, 1, 16, 9
    if case == "window":
        attrs["local_window_size"] = 3
    if case == "softcap":
        attrs["softcap"] = 2.0
    lengths = np.full(b, total - 1, np.int32)
    if case == "buffer of two":
        lengths[1] = 5
    q, k, v = f32(b, s, heads * d), f32(b, s, kv * d), f32(b, s, kv * d)
    if case == "packed":
        q, k, v = np.concatenate([q, k, v], 2), None, None
    caches = [f32(b, kv, past, d), f32(b, kv, past, d)] if past else [None, None]
    inputs: list = [q, k, v, *caches, lengths, np.array(total, np.int32)]
    constants = (6,)
    if rope:
        inputs += tables(d)
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(rope == "interleaved")}
    m, feed = one_node("GroupQueryAttention", inputs, 3, constants, **attrs)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    got = run_program(import_model(m), feed)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-4, atol=2e-5)
    for g, w in zip(got[1:], want[1:]):  # positions after the valid ones are unspecified
        for row in range(b):
            n = int(lengths[row]) + 1
            np.testing.assert_allclose(g[row, :, :n], w[row, :, :n], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("case", ["all", "no segments", "positions"])
def test_embed_layer_normalization(case):
    ids = np.array([[1, 2, 3], [4, 5, 0]], np.int32)
    segments = None if case == "no segments" else np.array([[0, 0, 1], [1, 1, 0]], np.int32)
    kinds = None if case == "no segments" else f32(2, 8)
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32) if case == "all" else None
    places = np.array([[2, 1, 0], [0, 1, 2]], np.int32) if case == "positions" else None
    inputs = [ids, segments, f32(10, 8), f32(6, 8), kinds, f32(8), f32(8), mask, places]
    check("EmbedLayerNormalization", inputs, 3, epsilon=1e-6)


def test_what_is_not_supported_is_said():
    m, _ = one_node("Attention", [f32(1, 3, 8), f32(8, 48), f32(48)], 1, num_heads=2, do_rotary=1)
    with pytest.raises(UnsupportedError, match="rotation and caches of their final size"):
        import_model(m)
    for inputs, message in (
        ([f32(1, 3, 48), None, None], r"query of shape \[1, 3, 48\] stands alone; packed it must be \[B, S, 2, 3, D\]"),
        ([f32(1, 3, 16), f32(1, 3, 2, 3, 8), None], r"key of shape .* packed it must be \[B, S, 2, 2, D\]"),
        ([f32(1, 3, 16), None, f32(1, 3, 16)], "without its key or value"),
    ):
        m, _ = one_node("MultiHeadAttention", inputs, 1, num_heads=2)
        with pytest.raises(ImportModelError, match=message):
            import_model(m)
    m, _ = one_node("Attention", [f32(1, 3, 8), f32(8, 48), f32(48)], 1, num_heads=2, qkv_hidden_sizes=[16, 8, 24])
    with pytest.raises(ImportModelError, match="48 columns are no query, key and value of widths"):
        import_model(m)
    m, _ = one_node(
        "MatMulNBits",
        [f32(3, 16), np.zeros((4, 1, 6), np.uint8), f32(4)],
        1,
        K=16,
        N=4,
        bits=3,
        block_size=16,
    )
    with pytest.raises(UnsupportedError, match="3-bit"):
        import_model(m)
    qkv = [f32(1, 4, 32), f32(1, 4, 16), f32(1, 4, 16), None, None, np.array([3], np.int32), np.array(4, np.int32)]
    heads = {"num_heads": 4, "kv_num_heads": 2, "causal": 0, "v_quant_type": "PER_TENSOR"}
    m, _ = one_node("GroupQueryAttention", [*qkv, *[None] * 7, f32(8), f32(8)], 1, (6,), **heads)
    message = "quantised caches, norms of query and key, attention to later positions .causal 0. are not supported"
    with pytest.raises(UnsupportedError, match=message):
        import_model(m)


def test_matmul_nbits_is_of_four_bits_by_default():
    w = RNG.integers(0, 256, (6, 4, 8)).astype(np.uint8)
    inputs = [f32(3, 64), w, np.abs(f32(6, 4, scale=0.1))]
    check("MatMulNBits", inputs, constants=(1, 2), K=64, N=6, block_size=16)
