"""Use-def arrays: they rebuild the relation exactly, and decisions come back."""

import numpy as np
import pytest
from support.toy_dialect import Toy

from tx8fast.errors import InternalError
from tx8fast.frontend.onnx import import_onnx
from tx8fast.ir import Builder
from tx8fast.ir.arrays import block_arrays
from tx8fast.ir.program import IRProgram
from tx8fast.ir.view import build_view
from tx8fast.passes.pipeline import run_pipeline, standard_pipeline

MODELS = ("llama-decode-op23", "vit-encode-op20", "mixtral-prefill-op20-batched_mm")


def exact(block):
    a = block_arrays(block)
    assert a.ops == list(block)
    first = a.first_result
    for n, op in enumerate(a.ops):
        assert a.op_code[n] == op.info.code
        assert [a.values[i] for i in a.opr_val[a.opr_ptr[n] : a.opr_ptr[n + 1]]] == op.operands
        assert a.values[first + a.res_ptr[n] : first + a.res_ptr[n + 1]] == op.results
    place = {op: n for n, op in enumerate(a.ops)}
    total = 0
    for i, v in enumerate(a.values):
        inside = v.op is not None and v.op.block is block
        assert a.val_def[i] == (place[v.op] if inside else -1)
        uses = [
            (a.ops[o], int(k)) for o, k in zip(a.use_op[a.use_ptr[i] : a.use_ptr[i + 1]], a.use_idx[a.use_ptr[i] :])
        ]
        expected = sorted(((u, k) for u, k in v.uses if u.block is block), key=lambda use: (place[use[0]], use[1]))
        assert uses == expected
        total += len(uses)
        assert a.val_bytes[i] == (v.type.size_bytes if hasattr(v.type, "size_bytes") else -1)
    assert total == len(a.opr_val) and len(set(a.values)) == len(a.values)


@pytest.mark.parametrize("model", MODELS)
def test_arrays_rebuild_the_use_def_relation_of_models(data_dir, model):
    program = import_onnx(data_dir / "onnx" / f"{model}.onnx")
    exact(program.main.body)
    run_pipeline(program, standard_pipeline(), verify_between=False)
    for op in program.module.walk():
        for region in op.regions:
            for block in region.blocks:
                exact(block)


def test_values_of_outer_blocks_and_repeated_operands():
    t = Toy()
    x = t.b("toy.add", t.args[1], t.args[1])
    scope = t.b.op("toy.scope", n_regions=1, result_types=[])
    b = Builder(t.ctx, scope.regions[0].add_block())
    b.op("toy.yield", b("toy.add", x, t.args[0]), x, result_types=[])
    t.ret(x)
    exact(t.body), exact(scope.body)
    a = block_arrays(scope.body)
    assert a.val_def.tolist() == [0, -1, -1] and a.first_result == 0
    empty = block_arrays(Toy().body)
    assert len(empty.ops) == 0 and empty.use_ptr.tolist() == [0, 0, 0]


@pytest.mark.parametrize("model", MODELS)
def test_the_back_ends_table_has_the_same_relation(data_dir, model):
    """Steps of `build_view` take what the groups of the graph take."""
    program = import_onnx(data_dir / "onnx" / f"{model}.onnx")
    run_pipeline(program, standard_pipeline(), verify_between=False)
    table = build_view(program).table
    for symbol in program.functions:
        fn = table.functions[symbol.attrs["sym_name"]]
        steps = [op for op in symbol.body if op.kind in ("group", "call", "reshape")]
        assert len(steps) == len(fn.steps)
        ids = dict(zip(symbol.body.args, fn.args, strict=True))
        ids.update(zip((op.result for op in symbol.body if op.kind in ("get_param", "constant")), fn.params))
        for op, step in zip(steps, fn.steps, strict=True):
            taken = set(ids[v] for v in op.operands)
            assert taken == {i for i in step.inputs if i >= 0}
            if op.kind != "group":
                assert [ids[v] for v in op.operands] == list(step.inputs)
            ids.update(zip(op.results, step.outputs))
        assert [ids[v] for v in symbol.body.last.operands] == fn.results


def test_decisions_come_back_and_print_and_parse():
    t = Toy()
    x = t.b("toy.relu", t.b("toy.add", *t.args))
    t.ret(x)
    a = block_arrays(t.body)
    assert a.write_back("rt_slot", np.array([7, 1 << 40, -1])) == 2
    text = t.program.text()
    assert "{rt_slot = 7 : i64}" in text and "rt_slot = 1099511627776" in text
    back = IRProgram.from_text(t.ctx, text)
    assert back.text() == text and back.same_as(t.program)
    assert block_arrays(back.main.body).write_back("rt_slot", np.array([7, 1 << 40, -1])) == 2 and back.text() == text
    assert a.write_back("rt_slot", np.full(3, -1)) == 0 and "rt_slot" not in t.program.text()
    with pytest.raises(InternalError, match="must begin with rt_"):
        a.write_back("slot", np.zeros(3, np.int32))
