"""Interfaces of op kinds: cuts, slices, windows, layouts, facts."""

from __future__ import annotations

import pytest
from test_ops import CTX, op

from tx8fast.errors import VerifyError
from tx8fast.ir import Block, Builder
from tx8fast.ir.core import COLLECTIVE, REAL, Context
from tx8fast.ir.interfaces import (
    OpAttr,
    back_window,
    infer_layout_backward,
    infer_layout_forward,
    infer_shapes,
    is_loaded,
    is_stored,
    query_op_attr,
    shape_operand,
    temporal_slice,
    tile_sharding_split,
)  # fmt: skip
from tx8fast.ir.ops.base import OpDef, register


def test_gemm_bias_relu_propagation():
    """Back-end notes 11.4: y = relu(gemm(x, W) + b), sharding (1,4,4), split (1,2,2), reduce split 4."""
    out = ((1, 4, 4), (1, 2, 2))
    assert tile_sharding_split(op("relu", (1, 256, 1024)), *out) == [out]
    assert tile_sharding_split(op("add", (1, 256, 1024), (1024,)), *out) == [out, ((4,), (2,))]
    gemm = op("gemm", (1, 256, 512), (512, 1024))
    assert tile_sharding_split(gemm, *out, reduce_split=4) == [
        ((1, 4, 1), (1, 2, 4)),
        ((1, 4), (4, 2)),
    ]
    assert temporal_slice(gemm, *out, reduce_split=4) == (
        [(1, 32, 128), (128, 128)],
        [(1, 32, 128)],
    )
    assert temporal_slice(op("add", (1, 256, 1024), (1024,)), *out) == (
        [(1, 32, 128), (128,)],
        [(1, 32, 128)],
    )


def test_conflict_of_gemm_and_residual():
    """Back-end notes 11.4: gemm(x, W) + x asks two things of x unless only rows are cut."""
    gemm, add = op("gemm", (1, 256, 512), (512, 512)), op("add", (1, 256, 512), (1, 256, 512))
    wanted = [tile_sharding_split(o, (1, 4, 4), (1, 2, 2))[i] for o, i in ((gemm, 0), (add, 1))]
    assert wanted == [((1, 4, 1), (1, 2, 1)), ((1, 4, 4), (1, 2, 2))]
    rows = [tile_sharding_split(o, (1, 16, 1), (1, 4, 1))[i] for o, i in ((gemm, 0), (add, 1))]
    assert rows[0] == rows[1]


def test_batchnorm_cuts():
    """Back-end notes 5: space cuts on C only, time cuts on everything else."""
    bn = op("batchnorm_inference", (4, 112, 2, 256), *[((1, 1, 1, 256), "f32")] * 4)
    answer = tile_sharding_split(bn, (1, 1, 1, 4), (2, 8, 1, 1))
    assert answer == [((1, 1, 1, 4), (2, 8, 1, 1)), *[((1, 1, 1, 4), (1, 1, 1, 1))] * 4]
    assert tile_sharding_split(bn, (2, 1, 1, 2), (1, 1, 1, 1)) is None
    assert tile_sharding_split(bn, (1, 1, 1, 1), (1, 1, 1, 2)) is None
    facts = query_op_attr(bn)
    assert facts.shard_mask == 0b1000 and facts.split_mask == 0b0111 and facts.need_preset_to_npu


@pytest.mark.parametrize(
    "kind, specs, attrs, sharding, operands",
    [
        ("conv", [(8, 16, 16, 32), (3, 3, 64, 32), (64,)], {"pad_lo": (1, 1), "pad_hi": (1, 1)}, (2, 2, 1, 4),
         [(2, 2, 1, 1), (1, 1, 4, 1), (4,)]),
        ("conv", [(8, 16, 16, 32), (3, 3, 32, 1)], {"groups": 32, "pad_lo": (1, 1), "pad_hi": (1, 1)}, (1, 1, 1, 4),
         [(1, 1, 1, 4), (1, 1, 4, 1)]),
        ("max_pool", [(8, 16, 16, 32)], {"kernel": (2, 2), "stride": (2, 2)}, (2, 4, 1, 2), [(2, 4, 1, 2)]),
        ("reduce", [(8, 16, 32)], {"op": "add", "axes": (1,)}, (2, 1, 4), [(2, 1, 4)]),
        ("softmax", [(8, 16), (1, 16)], {}, (4, 1), [(4, 1), (1, 1)]),
        ("softmax", [(8, 16)], {}, (1, 4), None),
        ("layernorm", [(8, 16), (16,)], {}, (4, 1), [(4, 1), (1,)]),
        ("transpose", [(8, 16, 4)], {"perm": (2, 0, 1)}, (4, 2, 1), [(2, 1, 4)]),
        ("add", [(8, 16), (8, 1)], {}, (4, 2), [(4, 2), (4, 1)]),
        ("gather", [(100, 16), ((8,), "i64")], {}, (4, 2), [(1, 2), (4,)]),
        ("embedding", [(100, 16), ((2, 8), "i64")], {}, (2, 4, 1), [(1, 1), (2, 4)]),
        ("reshape", [(4, 6)], {"shape": (24,)}, (8,), [(4, 2)]),
        ("reshape", [(4, 6)], {"shape": (24,)}, (16,), None),
        ("reshape", [(4, 6)], {"shape": (6, 4)}, (1, 2), None),
        ("relu", [(3, 5)], {}, (4, 1), None),
        ("kv_update", [(8, 64, 16), (8, 1, 16), ((1,), "i64")], {}, (8, 2, 1), [(8, 2, 1), (8, 1, 1), (1,)]),
    ],
)  # fmt: skip
def test_space_cuts_per_kind(kind, specs, attrs, sharding, operands):
    """Back-end notes 4: the output -> operand rule of each kind."""
    answer = tile_sharding_split(op(kind, *specs, **attrs), sharding, (1,) * len(sharding))
    assert (None if answer is None else [a[0] for a in answer]) == operands


def test_merged_heads_cut_major_first_and_reject_minor_pieces():
    qk = op("contract", (2, 5, 64 * 128), (2, 7, 8 * 128), equation="b s (h g d), b t (h d) -> b (h g) s t",
            sizes=("h", 8, "d", 128))  # fmt: skip
    assert tile_sharding_split(qk, (2, 8, 1, 1), (1, 1, 1, 1)) == [
        ((2, 1, 8), (1, 1, 1)),
        ((2, 1, 8), (1, 1, 1)),
    ]
    both = tile_sharding_split(qk, (1, 16, 1, 1), (1, 4, 1, 1))
    assert both == [((1, 1, 16), (1, 1, 4)), ((1, 1, 8), (1, 1, 1))]
    assert tile_sharding_split(qk, (1, 3, 1, 1), (1, 1, 1, 1)) is None


def test_wrong_vector_length():
    with pytest.raises(VerifyError, match="found 1 sharding and 2 split parts, required 2 each"):
        tile_sharding_split(op("relu", (3, 5)), (1,), (1, 1))


def test_slices_round_to_channel_blocks():
    """Back-end notes 6.1: 129 channels over four tiles are 64 each, so one tile idles."""
    assert temporal_slice(op("relu", (2, 129)), (1, 4), (1, 1)) == ([(2, 64)], [(2, 64)])
    assert temporal_slice(op("relu", ((2, 300), "i8")), (1, 2), (1, 1)) == ([(2, 256)], [(2, 256)])
    assert temporal_slice(op("relu", (10, 32)), (4, 1), (2, 1)) == ([(2, 32)], [(2, 32)])
    conv = op("conv", (1, 224, 224, 3), (7, 7, 64, 3), stride=(2, 2), pad_lo=(3, 3), pad_hi=(3, 3))
    assert temporal_slice(conv, (1, 14, 1, 1), (1, 1, 1, 1)) == (
        [(1, 21, 224, 3), (7, 7, 64, 3)],
        [(1, 8, 112, 64)],
    )


def test_back_window_halo():
    """Start o*S - pad, length (len-1)*S + (K-1)*d + 1, clipped to the input."""
    conv = op("conv", (1, 224, 224, 3), (7, 7, 64, 3), stride=(2, 2), pad_lo=(3, 3), pad_hi=(3, 3))
    x, w = back_window(conv, [(0, 1), (8, 16), (0, 112), (0, 64)])
    assert x == ((0, 1), (13, 34), (0, 224), (0, 3)) and w == ((0, 7), (0, 7), (0, 64), (0, 3))
    assert back_window(conv, [(0, 1), (0, 8), (0, 112), (16, 32)])[0][1] == (0, 18)
    assert back_window(conv, [(0, 1), (0, 8), (0, 112), (16, 32)])[1][2] == (16, 32)
    assert back_window(op("reshape", (4, 6), shape=(24,)), [(7, 11)]) == [((1, 2), (1, 5))]
    assert back_window(op("reshape", (4, 6), shape=(24,)), [(5, 7)]) == [((0, 2), (0, 6))]


def test_layouts_both_ways():
    t = op("transpose", (3, 4, 5, 6), perm=(0, 2, 3, 1))
    assert infer_layout_forward(t, ["NCHW"]) == "NHWC" and infer_layout_backward(t, "NHWC") == ["NCHW"]
    assert infer_layout_forward(t, ["NTensor"]) == "NTensor" and infer_layout_forward(t, ["Unknown"]) is None
    add = op("add", (2, 3, 4), (4,))
    assert infer_layout_forward(add, ["NTensor", None]) == "NTensor"
    assert infer_layout_backward(add, "NTensor") == ["NTensor", None]
    gemm = op("gemm", (2, 3), (3, 4), layout_str="Tensor-NTensor-Cx")
    assert infer_layout_forward(gemm, [None, None]) == "Cx" and infer_layout_backward(gemm, None) == [
        "Tensor",
        "NTensor",
    ]
    assert infer_layout_forward(op("reshape", (2, 3), shape=(6,)), ["Tensor"]) is None
    bn = op("batchnorm_inference", (4, 8), *[((8,), "f32")] * 4)
    assert bn.result.shape == (4, 8) and infer_layout_forward(bn, ["NCx", None, None, None, None]) == "NCx"


def test_every_compute_kind_answers_shape_sharding_facts_and_reference():
    from tx8fast.numerics.routines import ROUTINES as routines

    # collectives work on several chips: no rule of one tile's box says what they do
    compute = [i.decl for i in CTX.infos.values() if i.traits & REAL and not i.traits & COLLECTIVE]
    assert len(compute) > 90
    assert [d.name for d in compute if d.infer is None or d.rule_of is None] == []
    assert [d.name for d in compute if d.routine not in routines] == []


def test_infer_shapes_follows_a_changed_operand():
    block = Block()
    x = block.add_arg(CTX.tensor(("s", 8), "f32"))
    y = Builder(CTX, block).op("relu", x)
    assert not infer_shapes(y)
    x.type = CTX.tensor((4, 8), "f32")
    assert infer_shapes(y) and y.result.type is x.type


def test_op_attr_fields_and_defaults():
    d = OpAttr()
    ones = (1 << 64) - 1
    assert (d.align_mode, d.default_layout, d.need_preset_to_npu, d.engine, d.mem_inplace) == (
        "unknown",
        "Tensor",
        False,
        "ct",
        -1,
    )
    assert (d.need_load, d.need_store, d.shard_mask, d.split_mask) == (ones,) * 4 and d.parallel and d.align_cx
    facts = query_op_attr(op("relu", (1, 8)))
    assert (facts.align_mode, facts.default_layout, facts.mem_inplace) == ("both", "Tensor", 0)
    assert query_op_attr(op("relu", (2, 8))).default_layout == "NTensor"
    assert query_op_attr(op("relu", (8,))).default_layout == "Tensor"


def test_load_masks_are_64_bits_wide():
    ctx = Context()
    many = OpDef(
        "many",
        ("x*",),
        infer=lambda op: [((1,), "f32")],
        need_load=~(1 << 40) & (1 << 64) - 1,
        routine="",
    )
    register(ctx, [many])
    block = Block([ctx.tensor((1,), "f32")] * 64)
    made = Builder(ctx, block).op("many", *block.args)
    facts = query_op_attr(made)
    assert [i for i in range(64) if not is_loaded(facts, i)] == [40] and is_stored(facts, 0)
    assert shape_operand(made) == 40


def test_unloaded_operands_and_the_shape_they_give():
    """Embedding: table and indices stay in DDR; shapes follow the indices, the highest of them."""
    e = op("embedding", (100, 16), ((8,), "i64"))
    facts = query_op_attr(e)
    assert not is_loaded(facts, 0) and not is_loaded(facts, 1) and shape_operand(e) == 1
    assert shape_operand(op("gemm", (2, 3), (3, 4))) is None
