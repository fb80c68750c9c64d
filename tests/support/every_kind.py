"""One module that holds an instance of every op kind which has a random case, and of every structural kind."""

from __future__ import annotations

import zlib

import numpy as np

from tests.ir.op_cases import make_case
from tx8fast.ir import Builder, Context
from tx8fast.ir.attrs import DenseAttr, RegionAttr
from tx8fast.ir.core import REAL
from tx8fast.ir.program import IRProgram


def every_kind(ctx: Context) -> IRProgram:
    """Return the program; it verifies at level 2 and does not depend on anything random."""
    module = ctx.create("module", n_regions=1)
    top = Builder(ctx, module.regions[0].add_block())
    for info in list(ctx.infos.values()):
        kind = info.name.partition(".")[2]
        case = make_case(kind, np.random.default_rng(zlib.crc32(kind.encode()))) if info.traits & REAL else None
        if case is None:
            continue
        func = top.op("func", sym_name=f"kind_{kind}", n_regions=1)
        kinds = ["tensor" if kind.endswith("_") and i == 0 else "vtensor" for i in range(len(case.operands))]
        types = [ctx.tensor(o[0], o[1], k) for o, k in zip(case.operands, kinds)]
        b = Builder(ctx, func.regions[0].add_block(types))
        b.op("return", *b.op(kind, *func.body.args, **case.attrs).results)
    _structure(ctx, top)
    _transfers(ctx, top)
    return IRProgram(ctx, module, None, "every kind")


def _structure(ctx: Context, top: Builder) -> None:
    t = ctx.tensor((2, 4), "f32")
    sub = top.op("subgraph", sym_name="layer", n_regions=1, repeat_key="ab")
    b = Builder(ctx, sub.regions[0].add_block([t]))
    b.op("subgraph_return", b("relu", sub.body.args[0]))
    func = top.op("func", sym_name="main", n_regions=1, arg_names=("x",), result_names=("y", "z"), donated=(0, 0))
    b = Builder(ctx, func.regions[0].add_block([t]))
    x = b("call", func.body.args[0], callee="layer", result_types=[t])
    w = b("get_param", key="w", result_types=[t])
    p, q = b.op("get_params", keys=("p", "q"), result_types=[t, t]).results
    c = b("constant", value=DenseAttr(np.array([[1.5, -2.0, 0.0, 7.0]] * 2, np.float32)))
    pair = b("tuple", b("add", w, p), b("add", q, c), result_types=[ctx.types.tuple_of([t, t])])
    y = b("get_element", pair, index=1)
    own = b("to_tensor", y, result_types=[ctx.tensor((2, 4), "f32", "tensor")])
    view = b("reshape_view", own, shape=(8,))
    flat = b("to_vtensor", view, result_types=[ctx.tensor((8,), "f32")])
    b.op("set_param", x, key="w")
    b.op("set_params", p, q, keys=("q", "p"))
    token = b("barrier", result_types=[ctx.types.token])
    b.op("barrier", token, result_types=[ctx.types.token])
    group = b.op("group", x, result_types=[t], n_regions=1, dev_region=RegionAttr(x=1, dx=2), group_id=3)
    g = Builder(ctx, group.regions[0].add_block([t]))
    loaded = g("load_var", group.body.args[0], mem_layout="dense")
    const = g("load_const", const_map_id=7, mem_layout="dense", result_types=[t])
    none = g("none", result_types=[ctx.types.none])
    g.op("softmax", g("add", loaded, const), none)
    g.op("group_return", g("store_var", g("mul", loaded, const)))
    b.op("return", group.result, flat)


def _transfers(ctx: Context, top: Builder) -> None:
    func = top.op("func", sym_name="transfers", n_regions=1)
    b = Builder(ctx, func.regions[0].add_block([ctx.tensor((4, 8), "bf16")]))
    x = func.body.args[0]
    y = b("all_gather", b("reduce_scatter", b("all_reduce", x), dim=0, parts=2), dim=0, parts=2)
    y = b("all_to_all", y, split_dim=0, concat_dim=1, parts=2)
    y = b("broadcast_dev", b("permute", y, pairs=(0, 1, 1, 0)))
    token = b("send", y, peer=1, result_types=[ctx.types.token])
    z = b("recv", token, peer=1, result_types=[y.type])
    z = b("gather_scatter", z, strides=(16, 1), counts=(2, 16), result_types=[z.type])
    b.op("return", z)
