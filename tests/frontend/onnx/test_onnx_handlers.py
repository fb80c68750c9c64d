"""Decisions of the ONNX importer that single operator tests do not show."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import BOOL, F32, I64, imported, info, model, node
from onnx import TensorProto, helper
from support.interpret import run_program

from tx8fast.errors import UnsupportedError
from tx8fast.frontend.common import ImportOptions
from tx8fast.frontend.onnx import import_onnx, supported_ops
from tx8fast.weights import DerivedSource


def kinds(program) -> list[str]:
    return [op.kind for op in program.main.body if op.kind not in ("constant", "get_param", "return")]


def test_shape_chain_folds_to_one_reshape():
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n axis", "n1"),
        node("Concat", "n1 rest", "t", axis=0), node("Reshape", "x t", "y"),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    program = imported(nodes, [info("x", [4, 3, 2])], [info("y", None)], weights)
    assert kinds(program) == ["reshape"] and program.main.body.last.operands[0].shape == (4, 6)
    assert len(program.weights) == 0


@pytest.mark.parametrize(
    ("shape", "allowzero", "want"),
    [([0, -1], 0, (2, 12)), ([4, 0, 2], 0, (4, 3, 2)), ([-1], 0, (24,)), ([2, 0, -1], 0, (2, 3, 4))],
)
def test_reshape_rules(shape, allowzero, want):
    nodes = [node("Reshape", "x s", "y", allowzero=allowzero)]
    program = imported(nodes, [info("x", [2, 3, 4])], [info("y", None)], {"s": np.array(shape)})
    assert program.main.body.last.operands[0].shape == want


@pytest.mark.parametrize(
    ("axis", "shapes", "want", "joins"),
    [
        (0, ([2, 0], [3, 0]), (5, 0), True),  # empty, and yet as long as both
        (1, ([2, 0], [2, 3], [2, 4]), (2, 7), True),
        (-1, ([2, 0], [2, 3]), (2, 3), False),  # an empty cache is no operand
        (0, ([0, 2], [0, 2]), (0, 2), False),
    ],
)
def test_empty_parts_of_a_concatenation(axis, shapes, want, joins):
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [node("Concat", " ".join(names), "y", axis=axis)]
    program = imported(nodes, [info(n, s) for n, s in zip(names, shapes, strict=True)], [info("y", None)])
    assert program.main.body.last.operands[0].shape == want
    assert kinds(program) == ["concat"] * joins


@pytest.mark.parametrize(("size", "out"), [(3, 5), (6, 10), (3, 7), (9, 12), (10, 7), (5, 3)])
@pytest.mark.parametrize("op", ["Resize", "Upsample"])
def test_scales_that_f32_does_not_hold(op, size, out):
    """A scale of out / size, rounded to f32, gives `out` elements, and each is the one that the fraction itself says."""
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if op == "Resize" else {}
    nodes = [node(op, "x _ s" if op == "Resize" else "x s", "y", mode="nearest", **attrs)]
    scales = {"s": np.array([1, 1, 1, out / size], np.float32)}
    given = imported(nodes, [info("x", [1, 1, 2, size])], [info("y", None)], scales, opset=20 if op == "Resize" else 9)
    x = np.arange(2 * size, dtype=np.float32).reshape(1, 1, 2, size)
    (y,) = run_program(given, {"x": x})
    assert np.array_equal(y, x[..., np.arange(out) * size // out])


@pytest.mark.parametrize(
    "asked", [{"_": np.zeros(0), "n": np.array([1, 1, 2, 1])}, {"s": np.array([1, 1, 1, 0.3], np.float32)}]
)
def test_one_element_of_pytorch_is_the_first(asked):
    """Where one element is made of several, `pytorch_half_pixel` takes that at 0."""
    stored = {k: v for k, v in asked.items() if k != "_"}
    attrs = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    nodes = [node("Resize", "x _ " + " ".join(asked), "y", **attrs)]
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 2, 5) ** 2
    (y,) = run_program(imported(nodes, [info("x", x.shape)], [info("y", None)], stored), {"x": x})
    assert np.allclose(y, x[..., :1])


def test_crops_go_by_the_whole_length():
    """The last of 7 elements that a scale of 1.5 makes of 5 is the crop's end."""
    stored = {"roi": np.array([0, 1], np.float32), "scales": np.array([1.5], np.float32)}
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "axes": [1]}
    nodes = [node("Resize", "x roi scales", "y", **attrs)]
    x = np.arange(5, dtype=np.float32)[None]
    (y,) = run_program(imported(nodes, [info("x", x.shape)], [info("y", None)], stored), {"x": x})
    assert np.allclose(y, np.linspace(0, 4, 7))


def test_a_scan_without_steps_is_refused_by_name():
    body = helper.make_graph(
        [node("Add", "h c", "d"), node("Tanh", "d", "e")], "body",
        [info("h", [2]), info("c", [2])], [info("d", [2]), info("e", [2])],
    )  # fmt: skip
    nodes = [node("Scan", "start x", "last all", body=body, num_scan_inputs=1)]
    given = [info("start", [2]), info("x", [0, 2])]
    with pytest.raises(UnsupportedError, match="a scan without a single step"):
        imported(nodes, given, [info("last", [2]), info("all", [0, 2])])


def test_if_is_decided_and_outer_names_are_visible():
    then = helper.make_graph([node("Neg", "x", "a")], "then", [], [info("a", [2])])
    other = helper.make_graph([node("Frobnicate", "x", "b")], "else", [], [info("b", [2])])
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other)]
    program = imported(nodes, [info("x", [2])], [info("y", [2])], {"c": np.array(True)})
    assert kinds(program) == ["neg"]  # the branch not taken is not even looked at


def test_loop_is_unrolled():
    body = helper.make_graph(
        [node("Add", "acc x", "next"), node("Identity", "go", "on"), node("Mul", "next two", "scan")], "body",
        [info("i", [], I64), info("go", [], BOOL), info("acc", [2])],
        [info("on", [], BOOL), info("next", [2]), info("scan", [2])],
    )  # fmt: skip
    nodes = [node("Loop", "m c start", "last all", body=body)]
    weights = {"m": np.array(3), "c": np.array(True), "start": np.zeros(2, np.float32), "two": np.float32(2)}
    program = imported(nodes, [info("x", [2])], [info("last", [2]), info("all", [3, 2])], weights)
    last, scans = run_program(program, {"x": np.array([1, 10], np.float32)})
    assert last.tolist() == [3, 30] and scans.tolist() == [[2, 20], [4, 40], [6, 60]]


def test_local_function_with_attribute():
    leaky = node("LeakyRelu", "a", "t")
    ref = leaky.attribute.add()
    ref.name, ref.ref_attr_name, ref.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    f = helper.make_function("acme", "Half", ["a"], ["b"], [leaky, node("Neg", "t", "b")],
                             [helper.make_opsetid("", 20)], ["slope"])  # fmt: skip
    nodes = [node("Half", "x", "y", "call", domain="acme", slope=0.5)]
    program = imported(nodes, [info("x", [2])], [info("y", [2])], functions=[f], domains=("acme",))
    assert kinds(program) == ["leaky_relu", "neg"]
    assert program.main.body.first.attrs["alpha"] == 0.5 and program.main.body.first.loc.startswith("call/")


def attention(rows: int, heads: int, kv_heads: int, columns: int | None = None, inputs: str = "q k v", **attrs):
    columns = columns or rows
    infos = [info("q", [1, heads, rows, 8]), info("k", [1, kv_heads, columns, 8]), info("v", [1, kv_heads, columns, 8]),
             info("mask", [rows, columns], BOOL)]  # fmt: skip
    infos = [i for i in infos if i.name in inputs.split()]
    return imported([node("Attention", inputs, "y", **attrs)], infos, [info("y", None)], opset=23)


def test_large_causal_mask_is_an_expression():
    program = attention(512, 2, 2, is_causal=1)
    (mask,) = [w for w in program.weights.values() if isinstance(w.source, DerivedSource)]
    assert mask.shape == (512, 512) and mask.source.expr == "causal_mask"
    view = program.weights.view(mask.key)
    assert view[3, 3] == 0 and view[3, 4] < -1e38
    products = [op for op in program.main.body if op.kind == "gemm"]
    assert [op.attrs["useful_macs"] for op in products] == [2 * 512 * 513 // 2 * 8] * 2


def test_attention_without_mask_is_three_ops():
    assert kinds(attention(4, 2, 2)) == ["gemm", "softmax", "gemm"]


def test_one_token_of_grouped_heads_is_one_product_per_key_head():
    program = attention(1, 8, 2, 16)
    product = next(op for op in program.main.body if op.kind == "gemm")
    assert product.operands[0].shape == (1, 2, 4, 8) and product.result.shape == (1, 2, 4, 16)


def test_row_without_visible_key_is_zero():
    program = attention(2, 1, 1, 3, "q k v mask")
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((1, 1, 2, 8)), rng.standard_normal((1, 1, 3, 8)), rng.standard_normal((1, 1, 3, 8))
    mask = np.array([[False, False, False], [True, False, True]])
    (y,) = run_program(program, {n: a.astype(np.float32) for n, a in (("q", q), ("k", k), ("v", v))} | {"mask": mask})
    assert (y[0, 0, 0] == 0).all() and np.isfinite(y).all() and (y[0, 0, 1] != 0).any()


def test_cache_write_of_one_batch_row_is_a_kv_update():
    nodes = [node("TensorScatter", "cache new at", "y", axis=2)]
    inputs = [info("cache", [1, 2, 8, 4]), info("new", [1, 2, 1, 4]), info("at", [1], I64)]
    assert kinds(imported(nodes, inputs, [info("y", None)], opset=24)) == ["kv_update"]


def test_convolution_transposes_its_weight_once():
    nodes = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    program = imported(
        nodes, [info("x", [1, 4, 6, 6])], [info("y", [1, 8, 6, 6])], {"w": np.ones((8, 4, 3, 3), np.float32)}
    )
    assert sorted(kinds(program)) == ["conv", "transpose", "transpose", "transpose"]
    assert next(op for op in program.main.body if op.kind == "conv").operands[1].shape == (3, 3, 8, 4)


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4])
def test_four_bit_weights(dtype, tmp_path):
    values = np.arange(-8, 8) if dtype == TensorProto.INT4 else np.arange(16)
    w = helper.make_tensor("w", dtype, [16], values)
    graph = helper.make_graph(
        [node("DequantizeLinear", "w s", "d"), node("Add", "x d", "y")], "g", [info("x", [16])], [info("y", [16])],
        [w, onnx.numpy_helper.from_array(np.float32(0.5), "s")],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    (y,) = run_program(import_onnx(path), {"x": np.zeros(16, np.float32)})
    assert y.tolist() == (values * 0.5).tolist()


def test_initialisers_that_are_also_inputs_are_weights():
    nodes = [node("Add", "x w", "y")]
    program = imported(nodes, [info("x", [32]), info("w", [32])], [info("y", [32])], {"w": np.ones(32, np.float32)})
    assert program.main.attrs["arg_names"] == ("x",) and "w" in program.weights
    bound = {"w": np.full(32, 2, np.float32)}
    program = imported(nodes, [info("x", [32]), info("w", [32])], [info("y", [32])], {"w": np.ones(32, np.float32)},
                       options=ImportOptions(constants=bound))  # fmt: skip
    assert run_program(program, {"x": np.zeros(32, np.float32)})[0].tolist() == [2.0] * 32


def test_results_may_be_inputs_weights_or_constants():
    nodes = [node("Identity", "x", "a"), node("Identity", "w", "b"), node("Shape", "x", "c")]
    outputs = [info("a", [2]), info("b", [40]), info("c", [1], I64)]
    program = imported(nodes, [info("x", [2])], outputs, {"w": np.arange(40, dtype=np.float32)})
    a, b, c = run_program(program, {"x": np.array([3, 4], np.float32)})
    assert a.tolist() == [3, 4] and b[39] == 39 and c.tolist() == [2]


def test_gemm_bias_joins_the_product():
    weights = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    program = imported([node("Gemm", "x w b", "y", transB=1)], [info("x", [2, 8])], [info("y", [2, 4])], weights)
    assert kinds(program) == ["gemm"] and len(program.main.body.last.operands[0].op.operands) == 3


def test_supported_operators_cover_the_exports(data_dir):
    table = supported_ops()
    for path in sorted((data_dir / "onnx").glob("*.onnx")):
        m = onnx.load(path)
        for n in m.graph.node:
            ranges = table[n.domain, n.op_type]
            assert any(low <= m.opset_import[0].version <= high for low, high in ranges)
    assert len({op for _, op in table}) >= 150


def test_every_element_type_of_an_input_is_kept():
    for code, name in ((F32, "f32"), (TensorProto.FLOAT16, "f16"), (TensorProto.BFLOAT16, "bf16"), (I64, "i64")):
        m = model([node("Identity", "x", "y")], [info("x", [2], code)], [info("y", [2], code)])
        from tx8fast.frontend.onnx import import_model

        assert import_model(m).main.body.args[0].dtype == name


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_grid_sample_outside_the_image(mode, padding, align):
    rng = np.random.default_rng(1)
    x, grid = rng.standard_normal((2, 3, 6, 8)), rng.random((2, 5, 6, 2)) * 4 - 2
    _same_as_onnxruntime(
        node("GridSample", "x g", "y", mode=mode, padding_mode=padding, align_corners=align),
        {"x": x.astype(np.float32), "g": grid.astype(np.float32)},
    )


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_nets_of_unequal_lengths(op, gates):
    rng = np.random.default_rng(2)
    inputs = {"x": (5, 3, 4), "w": (2, gates * 6, 4), "r": (2, gates * 6, 6), "b": (2, gates * 12), "h": (2, 3, 6)}
    arrays = {n: (0.4 * rng.standard_normal(s)).astype(np.float32) for n, s in inputs.items()}
    arrays["n"] = np.array([5, 2, 4], np.int32)
    _same_as_onnxruntime(node(op, "x w r b n h", "y yh", hidden_size=6, direction="bidirectional"), arrays)


def test_region_pooling():
    rng = np.random.default_rng(3)
    rois = np.array([[0, 0, 0, 5, 5], [1, 2, 1, 7, 6], [0, 3, 3, 3, 3]], np.float32)
    arrays = {"x": rng.standard_normal((2, 3, 8, 8)).astype(np.float32), "r": rois}
    _same_as_onnxruntime(node("MaxRoiPool", "x r", "y", pooled_shape=[3, 2], spatial_scale=0.5), arrays)


def _same_as_onnxruntime(n, arrays: dict[str, np.ndarray]) -> None:
    ort = pytest.importorskip("onnxruntime")
    from tx8fast.frontend.onnx import import_model

    infos = [info(k, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for k, a in arrays.items()]
    m = model([n], infos, [info(o, None) for o in n.output])
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, arrays)
    for a, b in zip(run_program(import_model(m), arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8,), (1, 8), (4, 8), (1, 4, 8), (4, 1)])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_gains_of_single_heads(op, shape):
    """A norm takes parameters over its own axes alone; any others are factors and summands behind it."""
    rng = np.random.default_rng(0)
    gain, shift = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    layer = op == "LayerNormalization"
    nodes = [node(op, "x g b" if layer else "x g", "y", axis=-1, epsilon=1e-3)]
    weights = {"g": gain, "b": shift} if layer else {"g": gain}
    program = imported(nodes, [info("x", [2, 3, 4, 8])], [info("y", None)], weights, opset=23)
    x = rng.standard_normal((2, 3, 4, 8)).astype(np.float32)
    less = x - x.mean(-1, keepdims=True) if layer else x
    want = less / np.sqrt(np.square(less).mean(-1, keepdims=True) + 1e-3) * gain + (shift if layer else 0)
    (found,) = run_program(program, {"x": x})
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("counts", [(1, 1, 2, 3), (2, 1, 1), (2, 3, 2, 1, 2), (2, 2, 3, 2, 2)])
def test_whole_multiples_are_one_broadcast_as_far_as_ranks_go(counts):
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    shape = (2, 3, 1, 4, 2)[: len(counts)]
    scales = {"s": np.array(counts, np.float32)}
    given = imported([node("Resize", "x _ s", "y", **attrs)], [info("x", shape)], [info("y", None)], scales)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (y,) = run_program(given, {"x": x})
    for axis, count in enumerate(counts):
        x = np.repeat(x, count, axis)
    assert np.array_equal(y, x)
    repeated = sum(c > 1 for c in counts)
    assert kinds(given).count("broadcast") == (1 if len(shape) + repeated <= 8 else repeated)
