"""The table that the back end reads has the use-def relation of the graph."""

import pytest

from tx8fast.frontend.onnx import import_onnx
from tx8fast.ir.view import build_view
from tx8fast.passes.pipeline import run_pipeline, standard_pipeline

MODELS = ("llama-decode-op23", "vit-encode-op20", "mixtral-prefill-op20-batched_mm")


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
