"""The op registry and result inference: kinds, traits, shapes, messages, engine and alignment facts."""

from __future__ import annotations

import pytest

from tx8fast.errors import InternalError, VerifyError
from tx8fast.ir import Block, Builder, Context, align_of, engine_of, new_context
from tx8fast.ir.core import COLLECTIVE, CONSTANT_LIKE, INPLACE, PURE, READ_ONLY, REAL, VALUE_SEMANTICS, VIEW
from tx8fast.ir.interfaces import effects
from tx8fast.ir.ops.base import ALIGN_MODES, ENGINES, OpDef, register

CTX = new_context()
#: the operation set that importers, passes and lowering agree on
KINDS = """gemm contract conv conv_transpose max_pool avg_pool layernorm rmsnorm softmax batchnorm_inference add sub mul div
max min pow mod and or xor shl shr eq ne lt le gt ge neg abs exp log sqrt rsqrt recip square sin cos tan asin acos atan sinh
cosh asinh acosh atanh tanh sigmoid erf floor ceil round sign not isnan isinf relu leaky_relu gelu gelu_tanh silu hswish
hsigmoid softplus softsign mish elu selu celu thresholded_relu prelu clamp select map swiglu reduce arg_reduce topk cumsum trilu
rope transpose reshape broadcast concat slice pad gather embedding gather_elements gather_nd scatter scatter_nd kv_update
kv_update_ convert quantize dequantize channel_norm load_var store_var load_const iota module func subgraph call return
subgraph_return group_return group get_param set_param get_params set_params constant none tuple get_element to_vtensor
to_tensor barrier all_reduce all_gather reduce_scatter all_to_all permute broadcast_dev send recv""".split()


def op(kind, *specs, loc=None, **attrs):
    """specs: shape (bf16) or (shape, dtype)."""
    block = Block()
    values = []
    for s in specs:
        shape, dtype = s if s and isinstance(s[0], tuple) else (s, "bf16")
        values.append(block.add_arg(CTX.tensor(shape, dtype)))
    return Builder(CTX, block).op(kind, *values, loc=loc, **attrs)


def test_all_kinds_exist_with_dense_codes():
    assert [k for k in KINDS if "tx8be." + k not in CTX.infos] == []
    codes = [i.code for i in CTX.infos.values()]
    assert codes == list(range(len(codes)))
    assert op("add", (2,), (2,)).info is op("add", (3,), (3,)).info is CTX.info("add")


def test_traits_of_compute_kinds():
    for info in CTX.infos.values():
        if info.traits & REAL and not info.traits & INPLACE:
            assert info.traits & (PURE | VALUE_SEMANTICS) == PURE | VALUE_SEMANTICS, info.name
            assert {"layout_str", "mem_layout"} <= set(info.attrs)
    assert op("add", (2,), (2,)).has(READ_ONLY)


def test_in_place_kinds_mirror_their_base():
    in_place = [i for i in CTX.infos.values() if i.traits & INPLACE]
    assert {"tx8be.kv_update_", "tx8be.relu_", "tx8be.add_"} <= {i.name for i in in_place}
    for info in in_place:
        base = CTX.infos[info.name[:-1]]
        assert (info.ins, info.outs, info.attrs) == (base.ins, base.outs, base.attrs)
    view = CTX.info("reshape_view")
    assert view.traits & VIEW == VIEW and not view.traits & INPLACE


def test_effects_of_every_kind():
    """Every kind answers: operand reads, state keys, aliases, or an explicit "unknown"."""
    unknown = [
        i.decl.name
        for i in CTX.infos.values()
        if i.decl.effects is not None and i.decl.effects.__name__ == "_touches_all"
    ]
    assert unknown == ["call", "barrier"]
    assert effects(op("add", (2,), (2,))) == [("read", ("operand", 0)), ("read", ("operand", 1))]
    block = Block()
    b = Builder(CTX, block)
    t = CTX.tensor((2, 2), "f32")
    p = b.op("get_param", key="w", result_types=[t])
    assert effects(p) == [("read", ("state", "w"))]
    assert effects(b.op("set_param", p.result, key="w"))[0] == ("write", ("state", "w"))
    cache = block.add_arg(CTX.tensor((4, 2), "f32", "tensor"))
    kv = b.op("kv_update_", cache, p.result, block.add_arg(CTX.tensor((1,), "i64")))
    assert ("write", ("operand", 0)) in effects(kv) and ("alias", (0, 0)) in effects(kv)
    assert kv.result.type.kind == "tensor"
    assert effects(b.op("barrier", result_types=[CTX.types.token])) is None


def test_interface_mistakes_are_found_at_definition():
    def bad(interfaces):
        with pytest.raises(InternalError) as e:
            register(Context(), [OpDef("toy", ("x",), interfaces=interfaces)])
        return str(e.value)

    assert bad({"Sharding": {}}) == "toy: interface 'Sharding' lacks method 'tile_sharding_split'"
    assert "found parameters (op), required (op, arrays)" in bad({"Compute": {"compute": lambda op: []}})
    assert "unknown interface 'Nothing'" in bad({"Nothing": {}})
    register(
        Context(),
        [OpDef("toy", ("x",), interfaces={"Compute": {"compute": lambda op, arrays: arrays}})],
    )


@pytest.mark.parametrize(
    "kind, specs, attrs, shape, dtype",
    [
        ("transpose", [(3, 4, 5, 6)], {"perm": (0, 2, 3, 1)}, (3, 5, 6, 4), "bf16"),
        ("gemm", [(2, 1, 4, 8), (3, 16, 8)], {"trans_b": True}, (2, 3, 4, 16), "bf16"),
        ("gemm", [((4, 8), "i8"), ((8, 2), "u8")], {}, (4, 2), "i32"),
        ("eq", [((4, 1), "i64"), ((3,), "i64")], {}, (4, 3), "pred"),
        ("reduce", [(2, 3, 4)], {"op": "mean", "axes": (-1, 0), "keepdims": False}, (3,), "bf16"),
        ("max_pool", [(1, 112, 112, 64)], {"kernel": (3, 3), "stride": (2, 2), "pad_lo": (1, 1), "pad_hi": (1, 1)},
         (1, 56, 56, 64), "bf16"),
        ("max_pool", [(1, 6, 6, 1)], {"kernel": (3, 3), "stride": (2, 2), "ceil_mode": True}, (1, 3, 3, 1), "bf16"),
        ("conv_transpose", [(1, 4, 4, 8), (3, 3, 5, 8)], {"stride": (2, 2), "pad_lo": (1, 1), "pad_hi": (1, 1),
         "out_pad": (1, 1)}, (1, 8, 8, 5), "bf16"),
        ("reshape", [(2, 3, 4)], {"shape": (-1, 6)}, (4, 6), "bf16"),
        ("concat", [(2, 3), (2, 5)], {"axis": -1}, (2, 8), "bf16"),
        ("pad", [(2, 3)], {"lo": (1, 0), "hi": (0, 2)}, (3, 5), "bf16"),
        ("gather", [(4, 5, 6), ((2, 3), "i64")], {"axis": 1}, (4, 2, 3, 6), "bf16"),
        ("embedding", [(100, 16), ((1, 7), "i64")], {}, (1, 7, 16), "bf16"),
        ("gather_nd", [(4, 5, 6), ((4, 3, 1), "i64")], {"batch_dims": 1}, (4, 3, 6), "bf16"),
        ("arg_reduce", [(4, 5)], {"axis": 1, "keepdims": False}, (4,), "i64"),
        ("convert", [(4, 5)], {"dtype": "f32"}, (4, 5), "f32"),
        ("swiglu", [("s", 8), ("s", 8)], {}, ("s", 8), "bf16"),
        ("gemm", [("s", 8), (8, 4)], {}, ("s", 4), "bf16"),
        ("iota", [], {"shape": (3,), "dtype": "i64", "axis": 0}, (3,), "i64"),
    ],
)  # fmt: skip
def test_inference(kind, specs, attrs, shape, dtype):
    r = op(kind, *specs, **attrs).results[0]
    assert (r.shape, r.dtype) == (shape, dtype)


def test_two_results():
    v, i = op("topk", (3, 9), k=4).results
    assert (v.shape, v.dtype, i.shape, i.dtype) == ((3, 4), "bf16", (3, 4), "i64")


@pytest.mark.parametrize(
    "kind, specs, attrs, message",
    [
        ("gemm", [(2, 3), (4, 5)], {}, "tx8be.gemm 'm/n': operand 'rhs': found K 4 in shape [4, 5], required K 3"),
        ("gemm", [(2, 3)], {}, "tx8be.gemm 'm/n': found 1 operands, required 2 to 3 (lhs, rhs, bias?)"),
        ("gemm", [(2, 3), ((3, 5), "f32")], {}, "operand 'rhs': found element type f32, required bf16"),
        ("add", [(2, 3), (4,)], {}, "operand 'b': found shape [1, 4], required a shape that broadcasts with [2, 3]"),
        ("select", [(2,), (2,), (2,)], {}, "operand 'pred': found element type bf16, required one of pred"),
        ("transpose", [(2, 3)], {"perm": (0, 0)}, "attribute 'perm': found (0, 0), required a permutation of 0..1"),
        ("reshape", [(2, 3)], {"shape": (4, -1)}, "required 6 elements as in shape [2, 3]"),
        ("slice", [(4,)], {"start": (2,), "size": (3,), "step": (1,)}, "it reaches from 2 to 4"),
        ("conv", [(1, 2, 2, 3), (3, 3, 4, 3)], {}, "operand 'x': found length 2"),
        ("conv", [(1, 8, 8, 3), (3, 3, 4, 2)], {}, "operand 'w': found channels per group 2"),
        ("concat", [(2, 3), (4, 3)], {"axis": 1}, "operand 'x[1]': found dimension 0 4"),
        ("softmax", [(2, 3)], {"axis": 2}, "attribute 'axis': found 2, required a value in [-2, 2)"),
        ("rmsnorm", [(4, 12), (4,)], {"heads": 5}, "attribute 'heads': found 5, required a divisor of the 12 channels"),
        ("layernorm", [(4, 12)], {"heads": 3, "axes": (0,)}, "channels that are normalised alone"),
        ("rmsnorm", [(4, 12), (12,)], {"heads": 3}, "operand 'gamma': found shape [12], required a vector of 4 channels"),
        ("rope", [(4, 12), (4, 5), (4, 5)], {"heads": 3}, "operand 'cos': found lane count 5"),
        ("kv_update", [(2, 4, 8), (2, 5, 8), ((1,), "i64")], {}, "found 5 positions, required at most the cache's 4"),
        ("topk", [(3,)], {"k": 4}, "attribute 'k': found 4"),
        ("batchnorm_inference", [(2, 3), (3,), (3,), (4,), (3,)], {}, "operand 'mean': found shape [4]"),
        ("embedding", [(9, 4), (2,)], {}, "operand 'indices': found element type bf16"),
    ],
)  # fmt: skip
def test_messages_name_op_place_finding_and_need(kind, specs, attrs, message):
    with pytest.raises(VerifyError) as e:
        op(kind, *specs, loc="m/n", **attrs)
    assert message in str(e.value) and f"tx8be.{kind} 'm/n'" in str(e.value)


@pytest.mark.parametrize(
    "kind, specs, attrs, engine, align",
    [
        ("gemm", [(2, 64), (64, 64)], {}, "ne", "align"),
        ("gemm", [((2, 64), "f64"), ((64, 64), "f64")], {}, "kcore", "nalign"),
        ("conv", [(1, 8, 8, 3), (3, 3, 4, 3)], {}, "ne", "align"),
        ("softmax", [(2, 64)], {}, "ct", "align"),
        ("softmax", [(2, 64)], {"axis": 0}, "kcore", "nalign"),
        ("layernorm", [(2, 64)], {}, "ct", "align"),
        ("rmsnorm", [((2, 64), "f16")], {}, "ct", "align"),
        ("reduce", [(2, 64)], {"op": "add", "axes": (-1,)}, "ct", "align"),
        ("reduce", [(2, 64)], {"op": "mul", "axes": (-1,)}, "kcore", "nalign"),
        ("batchnorm_inference", [(2, 3), (3,), (3,), (3,), (3,)], {}, "ct", "align"),
        ("max_pool", [(1, 8, 8, 3)], {"kernel": (2, 2)}, "ct", "align"),
        ("relu", [(2, 64)], {}, "ct", "both"),
        ("add", [(2, 64), (64,)], {}, "ct", "both"),
        ("add", [(2, 64), ()], {}, "ct", "both"),
        ("add", [(2, 4, 64), (2, 4, 1)], {}, "ct", "both"),
        ("add", [(2, 4, 64), (2, 1, 64)], {}, "ct", "both"),
        ("add", [(2, 3, 4, 64), (2, 3, 1, 64)], {}, "ct", "nalign"),
        ("add", [((2, 64), "i64"), ((64,), "i64")], {}, "kcore", "nalign"),
        ("and", [((2,), "pred"), ((2,), "pred")], {}, "kcore", "nalign"),
        ("lt", [(2, 64), (64,)], {}, "ct", "both"),
        ("lt", [((2,), "i64"), ((2,), "i64")], {}, "kcore", "nalign"),
        ("select", [((2, 64), "pred"), (2, 64), (2, 64)], {}, "ct", "both"),
        ("convert", [(2, 64)], {"dtype": "f32"}, "ct", "both"),
        ("convert", [(2, 64)], {"dtype": "i64"}, "kcore", "nalign"),
        ("transpose", [(2, 64)], {"perm": (1, 0)}, "dma", "nalign"),
        ("concat", [(2, 64), (3, 64)], {"axis": 0}, "dma", "nalign"),
        ("concat", [(2, 64), (2, 6)], {"axis": 1}, "dma", "nalign"),
        ("concat", [(2, 3, 4, 64), (2, 3, 4, 6)], {"axis": -1}, "dma", "both"),
        ("concat", [(2, 3, 4, 64), (2, 3, 1, 64)], {"axis": 2}, "dma", "both"),
        ("slice", [(2, 3, 4, 64)], {"start": (0, 0, 0, 9), "size": (2, 3, 4, 8), "step": (1, 1, 1, 1)}, "dma", "both"),
        ("slice", [(2, 3, 4, 64)], {"start": (0, 0, 0, 9), "size": (2, 3, 4, 8), "step": (1, 1, 1, 2)}, "dma", "nalign"),
        ("slice", [(2, 3, 4, 64)], {"start": (0, 0, 1, 0), "size": (2, 3, 2, 64), "step": (1, 1, 1, 1)}, "dma", "both"),
        ("slice", [(2, 3, 4, 64)], {"start": (0, 0, 1, 9), "size": (2, 3, 2, 8), "step": (1, 1, 1, 1)}, "dma", "nalign"),
        ("pad", [(2, 3, 4, 64)], {"lo": (0, 1, 1, 0), "hi": (0, 0, 2, 0)}, "dma", "both"),
        ("pad", [(2, 3, 4, 64)], {"lo": (0, 1, 1, 0), "hi": (0, 0, 2, 1)}, "dma", "nalign"),
        ("broadcast", [(2, 3, 1, 64)], {"shape": (2, 3, 4, 64)}, "dma", "both"),
        ("broadcast", [(2, 3, 4, 1)], {"shape": (2, 3, 4, 64)}, "dma", "nalign"),
        ("slice", [(4, 64)], {"start": (0, 0), "size": (2, 64), "step": (1, 1)}, "dma", "nalign"),
        ("slice", [(4,)], {"start": (3,), "size": (4,), "step": (-1,)}, "kcore", "nalign"),
        ("pad", [(4,)], {"lo": (1,), "hi": (1,)}, "dma", "nalign"),
        ("broadcast", [(1, 4)], {"shape": (3, 4)}, "dma", "nalign"),
        ("reshape", [(1, 4)], {"shape": (4,)}, "none", "nalign"),
        ("embedding", [(9, 4), ((2,), "i64")], {}, "kcore", "nalign"),
        ("scatter_nd", [(9, 4), ((2, 1), "i64"), (2, 4)], {}, "kcore", "nalign"),
        ("channel_norm", [(9, 4)], {"to": "align"}, "tdma", "both"),
    ],
)  # fmt: skip
def test_engine_and_alignment(kind, specs, attrs, engine, align):
    made = op(kind, *specs, **attrs)
    assert (engine_of(made), align_of(made)) == (engine, align)


def test_every_kind_states_its_facts():
    for info in CTX.infos.values():
        d = info.decl
        assert callable(d.engine) or d.engine in ENGINES
        assert callable(d.align) or d.align in ALIGN_MODES
        assert d.infer is not None or not d.traits & REAL, d.name
        on_tiles = d.traits & REAL and not d.traits & COLLECTIVE and d.engine != "kcore"
        assert d.rule_of is not None or not on_tiles, d.name
        assert -1 <= d.inplace < max(1, len(d.ins)), d.name
    assert CTX.info("constant").traits & CONSTANT_LIKE
