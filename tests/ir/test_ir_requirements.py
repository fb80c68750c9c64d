"""Requirements of the graph IR that have no better home: refinement, bounds, calls, toy dialects, struct attributes."""

import dataclasses
import time

import pytest
from support.small_graph import SmallGraph, ops_of
from support.toy_dialect import Toy

from tx8fast.errors import InternalError, VerifyError
from tx8fast.ir import Builder, new_context
from tx8fast.ir.attrs import ATTR_CLASSES, DevAttr, StructAttr
from tx8fast.ir.core import Value
from tx8fast.ir.diagnostics import CODES
from tx8fast.ir.interfaces import infer_shapes, is_loaded, query_op_attr
from tx8fast.ir.parser import parse_op
from tx8fast.ir.printer import format_attr
from tx8fast.ir.rewrite import pattern, rewrite_greedily
from tx8fast.ir.symbols import SymbolTable
from tx8fast.ir.verify import check, verify
from tx8fast.passes.pipeline import run_pipeline


def test_an_unknown_dimension_is_refined_through_inference():
    ctx = new_context()
    module = ctx.create("module", n_regions=1)
    func = Builder(ctx, module.regions[0].add_block()).op("func", sym_name="main", n_regions=1)
    b = Builder(ctx, func.regions[0].add_block([ctx.tensor((-1, 64), "f32"), ctx.tensor((64, 32), "f32")]))
    x, w = func.body.args
    y = b("relu", b("gemm", x, w))
    b.op("return", y)
    assert y.type.text == "!tx8be.vtensor<?x32xf32>"
    verify(module, 2)
    x.type = ctx.tensor((128, 64), "f32")
    assert [d.code for d in check(module, 2)] == ["IR020"], "the product no longer fits its operand"
    assert [infer_shapes(op) for op in func.body if op.results] == [True, True]
    assert y.type is ctx.tensor((128, 32), "f32")
    verify(module, 2)


def test_an_error_among_twenty_thousand_ops_is_cheap_to_report():
    """The check walks the graph once whether or not it finds something; the report itself stays under 50 ms."""
    t = Toy()
    v = t.args[0]
    for _ in range(20_000):
        v = t.b("toy.add", v, t.args[1])
    t.ret(v)
    v.op.attrs["bad"] = 1
    found = check(t.module)
    start = time.process_time()
    error = "\n".join(map(str, found))
    from tx8fast.ir.diagnostics import Collector

    out = Collector()
    out.add("IR004", v.op, "attribute 'bad': expected a listed name", v.op.operands[0].op)
    with pytest.raises(VerifyError):
        out.raise_any("verifying")
    assert time.process_time() - start < 0.05
    assert len(error.split("\n")) < 40 and "main/add#19999" in error
    assert all(len(text) < 100 for text in CODES.values())


def test_two_patterns_that_undo_each_other_are_named():
    @pattern("toy.relu")
    def there(op, rw):
        rw.replace_with(op, "toy.scale", op.operands[0])
        return True

    @pattern("toy.scale")
    def back(op, rw):
        rw.replace_with(op, "toy.relu", op.operands[0])
        return True

    t = Toy()
    t.ret(t.b("toy.relu", t.args[0]))
    with pytest.raises(InternalError, match="does not end: 40 applications on .* by pattern '(there|back)'"):
        rewrite_greedily(t.ctx, t.module, [there, back], budget=40)


STRUCTS = sorted((c for c in ATTR_CLASSES.values() if issubclass(c, StructAttr)), key=lambda c: c.__name__)
#: a legal value unlike the default, per type of field; fields that need company bring it
OTHER = {bool: lambda v: not v, int: lambda v: {0: 256, 1: 2, 4: 2, -1: 65536}[v], tuple: lambda v: (1,)}
WITH = {
    ("DevAttr", "multi_buf_en"): {"multi_buf_num": 2}, ("DevAttr", "multi_buf_num"): {"multi_buf_en": True},
    ("RegionAttr", "x"): {"x": 1, "dx": 1}, ("RegionAttr", "y"): {"y": 1, "dy": 1},
    **{("WindowAttr", f): {"kernel": (3,)} for f in ("stride", "dilation", "pad_lo", "pad_hi")},
}  # fmt: skip


@pytest.mark.parametrize("cls", STRUCTS)
def test_every_field_of_every_struct_round_trips_alone(cls):
    t = Toy()
    for f in dataclasses.fields(cls):
        value = f.default
        other = list(type(value))[1] if hasattr(type(value), "__members__") else OTHER[type(value)](value)
        attr = cls(**{f.name: other, **WITH.get((cls.__name__, f.name), {})})
        assert getattr(attr, f.name) != f.default
        t.b.op("toy.any", result_types=[t.type], a=attr)
        assert f"{f.name} = " in format_attr(attr)
    t.ret()
    back = parse_op(t.ctx, t.program.text())
    ours, theirs = ([op.attrs["a"] for op in m.walk() if op.kind == "any"] for m in (t.module, back))
    assert ours == theirs and len(ours) == len(dataclasses.fields(cls))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(ours[0], dataclasses.fields(cls)[0].name, None)


def test_the_table_of_an_embedding_is_not_loaded():
    g = SmallGraph(ids=((7,), "i64"))
    y = g("embedding", g.param("table", (100, 64), "bf16"), g.args["ids"])
    p = g.done(y=y)
    assert not is_loaded(query_op_attr(ops_of(p, "embedding")[0]), 0)
    run_pipeline(
        p, "layout-init,layout-transmit,layout-calls,layout-align,layout-opt,const-norm,group-single,group-load-store"
    )
    assert not ops_of(p, "load_var") and ops_of(p, "group")[0].attrs["group_tag"] == 2


def calls() -> Toy:
    t = Toy()
    op, b = t.subgraph("layer")
    b.op("subgraph_return", op.body.args[0], result_types=[])
    t.b("call", t.args[0], callee="layer", result_types=[t.type], loc="model.layer.3")
    t.ret()
    return t


def test_call_mismatch_recursion_and_unknown_callee_are_diagnosed():
    t = calls()
    t.program.verify()
    call = t.body.first
    call.attrs["callee"] = "lair"
    (found,) = check(t.module)
    assert found.code == "IR011" and "expected one of main, layer, found 'lair'" in found.message
    assert found.loc == "model.layer.3" and found.path == "main/call#0"
    call.attrs["callee"] = "layer"
    call.results[0].type = t.ctx.tensor((9,), "f32")
    (found,) = check(t.module)
    assert (
        found.code == "IR012"
        and "results: expected (!tx8be.vtensor<4xf32>), found (!tx8be.vtensor<9xf32>)" in found.message
    )
    t = calls()
    inner = SymbolTable(t.module).lookup("layer")
    made = t.ctx.create("call", [inner.body.args[0]], [t.type], callee="layer")
    inner.body.insert_before(inner.body.first, made)
    (found,) = check(t.module)
    assert found.code == "IR013" and "layer -> layer" in found.message


def test_unpacking_changes_a_type_in_place_and_reinfers_its_users():
    """Packed weights grow when they are unpacked: the producer's type changes, users are verified again."""
    g = SmallGraph(x=((2, 64), "bf16"))
    w = g.param("w", (64, 16), "bf16")
    y = g("gemm", g.args["x"], w, loc="mlp.up")
    p = g.done(y=g("relu", y))
    g.weights.remove("w"), g.weights.add_missing("w", (64, 32), "bf16")
    w.type = g.ctx.tensor((64, 32), "bf16")
    with pytest.raises(
        VerifyError, match=r"main/gemm#1 \(mlp.up\): tx8be.gemm results: expected !tx8be.vtensor<2x32xbf16>"
    ):
        p.verify()
    assert [infer_shapes(op) for op in p.main.body if op.operands and op.results] == [True, True]
    p.verify()


def test_generic_passes_run_on_a_dialect_of_four_kinds():
    t = Toy()
    a = t.b("toy.add", t.const(1, 2, 3, 4), t.const(4, 3, 2, 1))
    same = t.b("toy.add", t.args[1], t.args[0])
    t.b("toy.relu", a)
    t.ret(t.b("toy.add", t.b("toy.add", *t.args), a), same)
    run_pipeline(t.program, "fold-constants,canonicalize,cse,dce")
    assert t.kinds() == ["constant", "add", "add", "return"]


def test_values_hold_no_facts_of_scenarios():
    value = Value(None, None, 0)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        value.stop_gradient = True  # type: ignore[attr-defined]
    assert DevAttr().mem_addr == ()
