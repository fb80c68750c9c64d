"""Groups: one op each, loads and stores, tags, tiles, barriers (back-end notes 8.2, 9.2-9.4, 15.1)."""

import random

import numpy as np
import pytest
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.errors import InternalError
from tx8fast.ir.attrs import DenseAttr, RegionAttr
from tx8fast.passes.const_container import ConstContainer, collect
from tx8fast.passes.const_norm import ConstNorm
from tx8fast.passes.group_barriers import GroupBarriers
from tx8fast.passes.group_load_store import GroupLoadStore, load_and_store
from tx8fast.passes.group_mapping import GroupMapping
from tx8fast.passes.group_single import GroupSingle
from tx8fast.passes.layout_align import LayoutAlign
from tx8fast.passes.layout_opt import LayoutOpt
from tx8fast.passes.move_constants import MoveConstants
from tx8fast.passes.pipeline import run_pipeline

LAYOUT = [LayoutAlign(), LayoutOpt(), ConstNorm()]


# ---------------------------------------------------------------- constants


def test_large_constants_come_first():
    c = ConstContainer(16)
    for i, size in enumerate([100, 1048576, 65536, 65537, 200000]):
        assert c.add(f"w{i}", size) == i
    assert c.threshold_bytes == 65536
    assert c.renumber() == {1: 0, 3: 1, 4: 2, 0: 3, 2: 4}
    assert [infos[0].source for _, infos in c.in_order()] == ["w1", "w3", "w4", "w0", "w2"]
    c.add("late", 1)
    with pytest.raises(InternalError):
        list(c.in_order())


def test_container_shares_equal_content():
    c = ConstContainer(16)
    assert c.add("a", 10) == c.add("a", 10) == 0
    assert c.add_per_chip({0: ("x", 4), 1: ("y", 4), 2: ("x", 4)}) == 1
    assert [(i.source, i.chips, i.per_chip) for i in c.data[1]] == [("x", (0, 2), True), ("y", (1,), True)]
    assert c.data[0][0].chips == (-1,) and not c.data[0][0].per_chip
    assert c.old_to_size == {0: {-1: 10}, 1: {0: 4, 1: 4, 2: 4}}


def test_collect_counts_forms_and_formats_apart():
    g = SmallGraph(x=((4, 64), "f32"))
    w = g.param("w", (64, 65), "f32")
    k = [g("constant", value=DenseAttr(np.ones(8, np.float32))) for _ in range(2)]
    p = g.done(y=g("gemm", g.args["x"], w), z=g("relu", g("reshape", w, shape=(4160,))), k=g("add", *k))
    run_pipeline(p, LAYOUT)
    c = collect(p)
    sizes = sorted(i.size_bytes for _, infos in c.in_order() for i in infos)
    # the constant once; w dense, and blocked: 64 rows of 64 + 4 channels
    assert sizes == [32, 64 * 65 * 4, 64 * 68 * 4]


def test_one_load_const_per_use():
    g = SmallGraph(x=((4, 64), "f32"), i=((3,), "i64"))
    small = g.param("small", (64, 64))
    table = g.param("table", (500, 64))
    rows = g("embedding", table, g.args["i"])
    y = g("gemm", g("gemm", g.args["x"], small), small)
    g.op("tuple", small, result_types=[g.ctx.types.tuple_of([small.type])])
    p = g.done(y=y, rows=rows)
    MoveConstants().run(p)
    p.verify()
    assert not ops_of(p, "get_param")
    loads = {(u.kind, i): op for op in ops_of(p, "load_const") for u, i in op.result.uses}
    assert len(ops_of(p, "load_const")) == 4  # embedding, two gemms, tuple
    assert loads["embedding", 0].attrs["const_map_id"] == 0  # 128000 bytes: large ones first
    assert loads["embedding", 0].attrs["bypass_codegen"]
    assert {loads["gemm", 1].attrs["const_map_id"], loads["tuple", 0].attrs["const_map_id"]} == {1}
    assert not loads["gemm", 1].attrs["bypass_codegen"] and not loads["tuple", 0].attrs["bypass_codegen"]
    assert len(collect(p).data) == 2


# ---------------------------------------------------------------- groups


def test_every_compute_op_gets_its_own_group():
    g = SmallGraph(x=((4, 64), "f32"), i=((4,), "i64"))
    y = g("layernorm", g.args["x"], None, g.param("beta", (64,)))
    y = g("add", y, y)
    flat = g("reshape", y, shape=(256,))
    p = g.done(y=g("relu", flat))
    MoveConstants().run(p)
    GroupSingle().run(p)
    p.verify()
    assert kinds(p) == ["group", "group", "reshape", "group", "return"]
    inner = [[op.kind for op in group.body] for group in ops_of(p, "group")]
    assert inner == [
        ["none", "load_const", "layernorm", "group_return"],
        ["add", "group_return"],
        ["relu", "group_return"],
    ]
    assert len(ops_of(p, "group")[1].operands) == 1  # one value used twice comes in once


def test_loads_follow_the_operand_bits_and_unify_vectors():
    g = SmallGraph(x=((4, 64), "f32"), i=((4,), "i64"), v=((64,), "f32"))
    rows = g("embedding", g.param("t", (9, 64)), g.args["i"])
    h = g("softmax", rows)
    p = g.done(y=g("mul", h, g.args["v"]), z=g("max", h, g.args["v"]))
    run_pipeline(p, [*LAYOUT, GroupSingle(), GroupLoadStore(), GroupMapping()])
    by_kind = {op.kind: op for op in p.module.walk()}
    assert [op.kind for op in by_kind["embedding"].block] == ["embedding", "group_return"]
    mul = by_kind["mul"].block
    assert [op.kind for op in mul] == ["load_var", "load_var", "mul", "store_var", "group_return"]
    assert [op.attrs["mem_layout"] for op in mul if op.kind == "load_var"] == ["blocked", "blocked"]
    assert [op.attrs["mem_layout"] for op in by_kind["max"].block if op.kind == "load_var"] == ["blocked", "dense"]


def test_one_load_per_value_and_form():
    g = SmallGraph(x=((4, 64), "f32"))
    p = g.done(y=g("add", g.args["x"], g.args["x"]))
    run_pipeline(p, [*LAYOUT, GroupSingle(), GroupLoadStore()])
    assert [op.kind for op in ops_of(p, "group")[0].body] == ["load_var", "add", "store_var", "group_return"]


def test_stores_follow_the_producers_result_bit():
    g = SmallGraph(x=((4, 8), "f32"))
    values = g.op("topk", g.args["x"], k=2)
    p = g.done(i=values.results[1], v=values.results[0], y=g("exp", g.args["x"]))
    GroupSingle().run(p)
    GroupLoadStore().run(p)
    p.verify()
    inner = [[op.kind for op in group.body] for group in ops_of(p, "group")]
    assert inner == [["topk", "group_return"], ["load_var", "exp", "store_var", "group_return"]]


def test_tags():
    g = SmallGraph(x=((4, 64), "f32"), i=((4,), "i64"))
    y = g("embedding", g.param("t", (9, 64)), g.args["i"])
    p = g.done(y=g("softmax", g("exp", y)))
    run_pipeline(p, [*LAYOUT, GroupSingle(), GroupLoadStore()])
    tags = {
        next(op.kind for op in gr.body if op.kind not in ("load_var",)): gr.attrs["group_tag"]
        for gr in ops_of(p, "group")
    }
    assert tags == {"embedding": 2, "exp": 0, "channel_norm": 0, "softmax": 1}
    assert load_and_store(g.ctx, ops_of(p, "group")[0]) == (0, 0)


def test_mapping_uses_the_whole_grid():
    g = SmallGraph(x=((4, 64), "f32"))
    p = g.done(y=g("exp", g.args["x"]))
    p.module.attrs.update(tile_dx=2, tile_dy=3)
    run_pipeline(p, [GroupSingle(), GroupMapping()])
    assert ops_of(p, "group")[0].attrs["dev_region"] == RegionAttr(0, 0, 2, 3)


# ---------------------------------------------------------------- barriers


def graph_of(edges, n):
    """Groups 0..n-1, each an op over the groups it depends on (or the input)."""
    g = SmallGraph(x=((4, 64), "f32"))
    values = []
    for i in range(n):
        ins = [values[a] for a, b in edges if b == i] or [g.args["x"]]
        values.append(g("add", *ins) if len(ins) == 2 else g("neg", *ins))
        values[-1].op.loc = str(i)
    used = {a for a, _ in edges}
    p = g.done(**{f"y{i}": v for i, v in enumerate(values) if i not in used})
    GroupSingle().run(p)
    return p


def order_and_barriers(p):
    groups = [op for op in p.main.body if op.kind == "group"]
    return [int(op.loc) for op in groups], [int(op.loc) for op in groups if op.attrs["need_barrier"]]


@pytest.mark.parametrize("edges, order, barriers", [
    ([(0, 2), (1, 2), (2, 4), (3, 4)], [0, 1, 2, 3, 4], [1, 3, 4]),
    ([(0, 1), (2, 3), (1, 4), (3, 4)], [0, 2, 1, 3, 4], [2, 3, 4]),
])  # fmt: skip
def test_worked_graphs(edges, order, barriers):
    p = graph_of(edges, 5)
    run_pipeline(p, [GroupSingle(), GroupBarriers()])
    assert order_and_barriers(p) == (order, barriers)
    assert [op.attrs["group_id"] for op in ops_of(p, "group")] == list(range(5))


def test_switched_off_every_group_has_one():
    p = graph_of([(0, 1), (2, 3), (1, 4), (3, 4)], 5)
    run_pipeline(p, [GroupSingle(), GroupBarriers(enabled=False)])
    assert order_and_barriers(p) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


def test_every_edge_crosses_a_barrier():
    rng = random.Random(5)
    for _ in range(30):
        n = rng.randint(2, 14)
        edges = [(a, b) for b in range(1, n) for a in rng.sample(range(b), min(b, rng.randint(0, 2)))]
        p = graph_of(edges, n)
        run_pipeline(p, [GroupSingle(), GroupBarriers()])
        order, barriers = order_and_barriers(p)
        at = {g: i for i, g in enumerate(order)}
        ends = {at[g] for g in barriers}
        for a, b in edges:
            assert any(w in ends for w in range(at[a], at[b])), (edges, a, b)


def test_aliases_calls_and_in_place_updates_keep_their_place():
    g = SmallGraph(cache=((1, 8, 64), "f32"), new=((1, 1, 64), "f32"), at=((1,), "i64"))
    old = g("neg", g.args["cache"])  # reads the cache before it is overwritten
    flat = g("reshape", old, shape=(8, 64))
    updated = g("kv_update", g.args["cache"], g("exp", g.args["new"]), g.args["at"], axis=1)
    p = g.done(y=g("relu", flat), c=updated)
    run_pipeline(p, [GroupSingle(), GroupBarriers()])
    p.verify()
    names = [op.kind if op.kind != "group" else op.body.first.kind for op in p.main.body]
    assert names.index("neg") < names.index("reshape") < names.index("relu")
    assert names.index("neg") < names.index("kv_update")
    barrier = {op.body.first.kind: op.attrs["need_barrier"] for op in ops_of(p, "group")}
    assert barrier["neg"] or barrier["exp"]
