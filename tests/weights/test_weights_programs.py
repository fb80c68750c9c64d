"""Programs and their weight tables: state that programs write, several graphs, hand-over, constants per chip."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_graph import SmallGraph, ops_of

from tx8fast.errors import ImportModelError, VerifyError
from tx8fast.ir import new_context, reference
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.program import IRProgram
from tx8fast.passes.const_container import collect
from tx8fast.passes.pipeline import run_pipeline
from tx8fast.weights import ArraySource, FileSource, WeightTable


def run(program) -> list[np.ndarray]:
    """Run `main` of a program without arguments; `set_param` writes the table."""
    env = {}
    for op in program.main.body:
        ins = [env[v] for v in op.operands]
        if op.kind == "return":
            return ins
        if op.kind in ("get_param", "get_params"):
            outs = [program.weights.view(k) for k in op.attrs.get("keys") or (op.attrs["key"],)]
        elif op.kind in ("set_param", "set_params"):
            for key, array in zip(op.attrs.get("keys") or (op.attrs["key"],), ins, strict=True):
                program.weights.store(key, array)
            continue
        elif op.kind == "constant":
            outs = [op.attrs["value"].array]
        else:
            outs = reference(op, ins)
        env.update(zip(op.results, outs, strict=True))
    raise AssertionError("main has no return")


def counter(shape=(1,), key="steps") -> IRProgram:
    g = SmallGraph()
    g.weights.add_array(key, np.zeros(shape, np.float32))
    n = g("get_param", key=key, result_types=[g.ctx.tensor(shape, "f32")])
    one = g("constant", value=DenseAttr(np.ones(shape, np.float32)))
    g.op("set_param", g("add", n, one), key=key, result_types=[])
    g.end()
    return g.program()


@pytest.mark.parametrize("passes", ["", "canonicalize,fold-constants,cse,dce"])
def test_a_counter_that_runs_twice_ends_at_two(passes):
    p = counter()
    p.mark_mutable()
    run_pipeline(p, passes)
    run(p), run(p)
    assert p.weights.view("steps").tolist() == [2.0]
    assert p.weights.keys() == ["steps"]


def test_bulk_access_swaps_two_entries():
    g = SmallGraph()
    t = g.ctx.tensor((2,), "f32")
    g.weights.add_array("a", np.array([1, 2], np.float32)), g.weights.add_array("b", np.array([3, 4], np.float32))
    a, b = g.op("get_params", keys=("a", "b"), result_types=[t, t]).results
    g.op("set_params", a, b, keys=("b", "a"), result_types=[])
    p = g.done(a=a)
    p.mark_mutable()
    run(p)
    assert p.weights.view("a").tolist() == [3, 4] and p.weights.view("b").tolist() == [1, 2]


def test_a_missing_key_or_another_type_is_diagnosed_with_the_key():
    for key, shape, message in (
        ("lost", (1,), "key 'lost': expected an entry"),
        ("steps", (2,), r"key 'steps': .*\[2\]"),
    ):
        p = counter()
        for op in ops_of(p, "set_param") + ops_of(p, "get_param"):
            op.attrs["key"] = key
        if key == "steps":
            p.weights.remove("steps")
            p.weights.add_array("steps", np.zeros(shape, np.float32))
        with pytest.raises(VerifyError, match=message):
            p.verify()
    p = counter()
    with pytest.raises(ImportModelError, match="'steps': it is immutable"):
        run(p)
    p.mark_mutable()
    with pytest.raises(ImportModelError, match=r"'steps': found f32 \[2\], required f32 \[1\]"):
        p.weights.store("steps", np.zeros(2, np.float32))


def conv_bn(writes: bool) -> IRProgram:
    """y = bn(conv(x, w)) whose scale path is a pure function of parameters."""
    g = SmallGraph(x=((1, 4, 4, 2), "f32"))
    rng = np.random.default_rng(0)
    w = g.array("w", rng.standard_normal((3, 3, 4, 2)).astype(np.float32))
    scale = g("div", g.array("gamma", np.ones(4, np.float32)), g("sqrt", g.array("var", np.full(4, 4, np.float32))))
    scaled = g("mul", w, g("reshape", scale, shape=(1, 1, 4, 1)))
    if writes:
        g.op("set_param", g("neg", g.param("gamma", (4,))), key="gamma", result_types=[])
    return g.done(y=g("conv", g.args["x"], scaled))


def test_parameters_that_the_graph_writes_are_no_constants():
    """Folding the scale of a normalisation into the weights is right for inference and wrong for an update."""
    fixed, updated = conv_bn(False), conv_bn(True)
    for p in (fixed, updated):
        assert not any(w.mutable for w in p.weights.values()), "loading makes everything immutable"
        text = IRProgram.from_text(new_context(), p.text(), p.weights)
        assert {w.key for w in p.weights.values() if w.mutable} == ({"gamma"} if p is updated else set())
        run_pipeline(text, "fold-constants,dce")
        kinds = [op.kind for op in text.main.body]
        assert ("mul" in kinds) == ("div" in kinds) == (p is updated)
    assert updated.weights.const_view("gamma") is None and updated.weights.const_view("w") is not None


def test_one_graph_twice_in_one_context_keeps_keys_and_text():
    p = conv_bn(False)
    ctx, text = new_context(), p.text()
    tables = [WeightTable() for _ in range(2)]
    for i, table in enumerate(tables):
        for key, w in p.weights.items():
            table.add_array(key, p.weights.view(key) + np.float32(i))
    loaded = [IRProgram.from_text(ctx, text, table) for table in tables]
    for q, table in zip(loaded, tables, strict=True):
        q.verify()
        assert q.text() == text and table.keys() == p.weights.keys()
    assert loaded[0].same_as(loaded[1]) and loaded[0].main is not loaded[1].main
    other = IRProgram.from_text(ctx, counter().text(), tables[0])  # another graph over the same table
    with pytest.raises(VerifyError, match="'steps'"):
        other.verify()
    tables[0].add_array("steps", np.zeros(1, np.float32))
    other.verify()


def test_a_start_up_program_fills_the_table_of_the_main_program():
    g = SmallGraph()
    g.weights.add_array("w", np.zeros((4, 4), np.float32))
    g.op("set_param", g("constant", value=DenseAttr(np.eye(4, dtype=np.float32))), key="w", result_types=[])
    g.end()
    start = g.program()
    start.mark_mutable()
    run(start)
    filled = start.weights.view("w")
    main = WeightTable()
    start.weights.move_to(main)
    assert len(start.weights) == 0 and main.view("w") is filled and main.view("w").trace() == 4


def test_constants_per_chip_have_sizes_per_chip_and_renumbering_is_a_bijection():
    g = SmallGraph(x=((1, 64), "f32"))
    rng = np.random.default_rng(0)
    shards = [ArraySource(rng.standard_normal((64, 512)).astype(np.float32)) for _ in range(2)]
    g.weights.add_per_chip("shard", {0: shards[0], 1: shards[1], 2: shards[0], 3: shards[1]}, (64, 512), "f32")
    g.weights.add_per_chip("some", {2: ArraySource(np.ones(512, np.float32))}, (512,), "f32")
    t = g.ctx.tensor
    y = g(
        "add",
        g("mul", g.args["x"], g.array("small", np.ones(64, np.float32))),
        g.array("bias", np.ones(64, np.float32)),
    )
    y = g("gemm", y, g("get_param", key="shard", result_types=[t((64, 512), "f32")]))
    y = g("mul", y, g("get_param", key="some", result_types=[t((512,), "f32")]))
    p = g.done(y=y)
    container = collect(p)
    assert container.threshold_bytes == 4096 * 16
    assert container.old_to_size == {0: {-1: 256}, 1: {-1: 256}, 2: dict.fromkeys(range(4), 64 * 512 * 4), 3: {2: 2048}}
    assert [(i.chips, i.size_bytes) for i in container.data[2]] == [((0, 2), 131072), ((1, 3), 131072)]
    assert container.old_to_new == {2: 0, 0: 1, 1: 2, 3: 3}, "large ones first"
    assert sorted(container.old_to_new) == sorted(container.old_to_new.values())
    run_pipeline(p, "move-constants")
    loads = {op.attrs["rt_key"]: op.attrs["const_map_id"] for op in ops_of(p, "load_const")}
    assert loads == {"small": 1, "bias": 2, "shard": 0, "some": 3}
    payloads = dict(container.in_order())
    assert all(n in payloads for n in loads.values()), "each load resolves"


def test_the_bytes_of_a_chip(tmp_path):
    table = WeightTable()
    a, b = (np.full(3, i, np.float32) for i in (1, 2))
    table.add_per_chip("w", {5: ArraySource(a), 1: ArraySource(b)}, (3,), "f32")
    assert table.view("w", 1)[0] == 2 and table.view("w", 5)[0] == 1 and table.view("w")[0] == 2
    assert table["w"].chips == (1, 5) and table.const_view("w") is None
    with pytest.raises(ImportModelError, match=r"'w' is on chips \[1, 5\], not on chip 0"):
        table.view("w", 0)
    table.add_derived("t", "convert", {}, ["w"], (3,), "f16")
    assert table.view("t", 5)[0] == 1
    with pytest.raises(ImportModelError, match="at least one chip"):
        table.add_per_chip("v", {}, (3,), "f32")
    with pytest.raises(ImportModelError, match="holds 4 bytes"):
        table.add_per_chip("v", {0: ArraySource(a), 1: FileSource("f", 0, 4)}, (3,), "f32")
    path = tmp_path / "f"
    path.write_bytes(b.tobytes())
    table.add_per_chip("v", {0: ArraySource(a), 1: FileSource(str(path), 0, 12)}, (3,), "f32")
    assert table.view("v", 1)[0] == 2 and list(table._maps) == [str(path)]
    table.remove("v")
    assert not table._maps
