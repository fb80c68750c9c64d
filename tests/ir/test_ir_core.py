"""Values, ops, blocks, contexts, order, attributes: the structures every pass relies on."""

import gc
import random
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
from support.toy_dialect import Toy, toy_context

from tx8fast.errors import InternalError, VerifyError
from tx8fast.ir.attrs import (
    DenseAttr,
    DevAttr,
    GroupTag,
    MemLayout,
    MemScope,
    ParallelAttr,
    ParallelMode,
    RegionAttr,
    WindowAttr,
)  # fmt: skip
from tx8fast.ir.core import READ_ONLY, REQUIRED, VALUE_SEMANTICS, OpInfo, Value
from tx8fast.ir.order import topological_sort


def test_a_value_holds_its_type_uses_and_place_only():
    assert Value.__slots__ == ("type", "owner", "index", "uses", "name")


def test_uses_keep_insertion_order_and_drop_in_linear_time():
    t = Toy()
    a, b = t.args
    users = [t.b("toy.add", a, b).op for _ in range(3)]
    assert list(a.uses) == [(u, 0) for u in users] and list(b.uses) == [(u, 1) for u in users]

    def seconds(n):
        t = Toy()
        ops = [t.b("toy.relu", t.args[0]).op for _ in range(n)]
        start = time.perf_counter()
        for op in ops:
            op.erase()
        assert not t.args[0].uses
        return time.perf_counter() - start

    seconds(1000)
    assert seconds(40_000) < 40 * max(seconds(4_000), 1e-3)  # quadratic would be 100 times


def test_results_live_and_die_with_their_op():
    t = Toy()
    op = t.b.op("toy.any", *t.args, result_types=[t.type] * 40)
    assert len(op.results) == 40 and [r.index for r in op.results] == list(range(40))
    user = t.b("toy.relu", op.results[39])
    with pytest.raises(InternalError, match="result 39 still has 1 uses"):
        op.erase()
    user.op.erase()
    op.erase()
    assert len(t.body) == 0 and not t.args[0].uses
    assert t.b("toy.scale", t.args[0]).op.attrs == {"by": 1.0}, "the factory fills in defaults"


def test_the_package_has_one_op_class(repo_root):
    found = [
        str(p.relative_to(repo_root)) for p in sorted((repo_root / "tx8fast").rglob("*.py"))
        if any(line.startswith(("class Op:", "class Op(")) for line in p.read_text().splitlines())
    ]  # fmt: skip
    assert found == ["tx8fast/ir/core.py"]


def test_order_numbers_and_edits_while_walking():
    t = Toy()
    first = t.b("toy.relu", t.args[0]).op
    last = t.b("toy.relu", t.args[1]).op
    for _ in range(200):  # always the same gap: forces renumbering
        t.body.insert_before(last, t.ctx.create("toy.relu", [t.args[0]]))
    ops = list(t.body)
    assert all(a.is_before(b) for a, b in zip(ops, ops[1:])) and first.is_before(last)
    seen = 0
    for op in t.body:
        seen += 1
        if op is not first and op is not last:
            t.body.insert_before(op, t.ctx.create("toy.relu", [t.args[1]]))
            op.erase()
    assert seen == 202 and len(t.body) == 202


def test_sorting_restores_definitions_before_uses_and_little_else():
    t = Toy()
    v = t.args[0]
    chain = []
    for _ in range(30):
        v = t.b("toy.add", v, t.args[1])
        chain.append(v.op)
    end = t.b.op("return", v, result_types=())
    assert topological_sort(t.body) is False and list(t.body) == [*chain, end]
    shuffled = [*chain, end]
    random.Random(7).shuffle(shuffled)
    for op in shuffled:
        op.detach()
    for op in shuffled:
        t.body.append(op)
    assert topological_sort(t.body) is True
    assert list(t.body) == [*chain, end]
    t.program.verify()


def test_sorting_reports_a_cycle():
    t = Toy()
    a = t.b("toy.relu", t.args[0])
    b = t.b("toy.relu", a)
    a.op.set_operand(0, b)
    with pytest.raises(VerifyError, match="circular"):
        topological_sort(t.body)


def test_types_are_unique_immutable_and_owned_by_their_context():
    ctx, other = toy_context(), toy_context()
    t = ctx.tensor((2, 3), "bf16")
    assert ctx.tensor([2, 3], "bf16") is t and other.tensor((2, 3), "bf16") is not t
    assert ctx.types.tuple_of([t, t]) is ctx.types.tuple_of([t, t])
    with pytest.raises(AttributeError, match="immutable"):
        t.dtype = "f32"
    pool = weakref.ref(other.types)
    del other
    gc.collect()
    assert pool() is None


def test_registration_diagnoses_duplicates_unknown_names_and_in_place_names():
    ctx = toy_context()
    with pytest.raises(InternalError, match="'toy.add' is already defined"):
        ctx.register(OpInfo("toy.add", 0, (), (), {}))
    with pytest.raises(VerifyError, match="unknown operation 'toy.mul'"):
        ctx.create("toy.mul")
    with pytest.raises(InternalError, match="ends with '_'"):
        ctx.register(OpInfo("toy.fill", 0, (), (), {}, traits=4))
    ctx.register(OpInfo("toy.mul", len(ctx.infos), (), (), {}))
    with pytest.raises(VerifyError):
        toy_context().info("toy.mul")  # another context has its own dialects


def test_kinds_share_one_record_and_traits_are_masks():
    t = Toy()
    a = t.b("toy.relu", t.args[0]).op
    b = t.b("toy.relu", t.args[1]).op
    assert a.info is b.info
    codes = [i.code for i in t.ctx.infos.values()]
    assert codes == list(range(len(codes)))
    assert VALUE_SEMANTICS & READ_ONLY == READ_ONLY and a.has(READ_ONLY)


def test_listed_attributes_are_checked_and_ordered():
    ctx = toy_context()
    ctx.register(OpInfo("toy.attrs", 99, (), (), {"z": (int, REQUIRED), "a": (bool, False), "m": (float, 2.0)}))
    op = ctx.create("toy.attrs", (), (), rt_note="x", a=True, z=3, m=1)
    assert list(op.attrs.items()) == [("z", 3), ("a", True), ("m", 1.0), ("rt_note", "x")]
    for given, message in (
        ({}, "'z' is required"), ({"z": True}, "'z' expects int, found True"),
        ({"z": 1, "q": 2}, "unknown attribute 'q'"),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=message):
            ctx.create("toy.attrs", (), (), **given)


def test_dense_attributes_compare_by_content():
    a = DenseAttr(np.array([[0.0, np.nan]], np.float32))
    assert a == DenseAttr(np.array([[0.0, np.nan]], np.float32)) and hash(a) == hash(DenseAttr(a.array))
    assert a != DenseAttr(np.array([[-0.0, np.nan]], np.float32)) and a != DenseAttr(
        np.array([0.0, np.nan], np.float32)
    )
    assert (a.dtype, a.shape) == ("f32", (1, 2))
    with pytest.raises(ValueError):
        a.array[0, 0] = 1
    with pytest.raises(AttributeError):
        a.array = None
    assert DenseAttr(np.full((2, 2), 3, np.int8)).splat() == 3 and a.splat() is None
    assert DenseAttr(np.array(True)).splat() is True
    assert DenseAttr(np.array([1.5], ml_dtypes.bfloat16)).dtype == "bf16"
    DenseAttr(np.zeros(256, np.float32))
    with pytest.raises(VerifyError, match="1028 bytes, at most 1024"):
        DenseAttr(np.zeros(257, np.float32))
    with pytest.raises(VerifyError, match="complex64"):
        DenseAttr(np.zeros(1, np.complex64))


@pytest.mark.parametrize(
    "make, field",
    [
        (lambda: ParallelAttr(dp_dim_x=0), "dp_dim_x"),
        (lambda: ParallelAttr(tp_dim_z=-1), "tp_dim_z"),
        (
            lambda: ParallelAttr(ParallelMode.dp, dp_dim_x=4, shape_spatial_sharding=(2,)),
            "shape_spatial_sharding",
        ),
        (lambda: ParallelAttr(parallel=1), "parallel"),
        (lambda: DevAttr(imm_size=100), "imm_size"),
        (lambda: DevAttr(multi_buf_num=2), "multi_buf_num"),
        (lambda: DevAttr(multi_buf_en=True), "multi_buf_num"),
        (lambda: DevAttr(mem_addr=(0, 1)), "mem_addr"),
        (lambda: DevAttr(temporal_mem_slice=(0,)), "temporal_mem_slice"),
        (lambda: RegionAttr(x=2), "dx"),
        (lambda: RegionAttr(y=4, dy=1), "y"),
        (lambda: WindowAttr((3, 3), stride=(1,)), "stride"),
        (lambda: WindowAttr((0,)), "kernel"),
    ],
)
def test_every_invariant_of_a_struct_attribute_has_a_failing_case(make, field):
    with pytest.raises(VerifyError, match=f"field '{field}'"):
        make()


def test_stored_values_of_enumerations():
    assert [m.value for m in MemScope] == [0, 1, 2] and MemLayout.ncx == 4
    assert ParallelMode.dp_tp == 3 and GroupTag.ddr_only == 2
