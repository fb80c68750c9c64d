"""Stage checks: what passes establish holds on whole models, and each rule has a graph that breaks it."""

import numpy as np
import pytest
from support.small_graph import SmallGraph, ops_of

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.frontend.onnx import import_onnx
from tx8fast.ir import Builder
from tx8fast.ir.clone import clone_op
from tx8fast.ir.diagnostics import CODES, Collector
from tx8fast.ir.stages import STAGES, check_stage
from tx8fast.numerics.layout import batch_stride_bytes, blocked_params
from tx8fast.passes.group_single import make_group
from tx8fast.passes.pipeline import backend_passes, run_pipeline, standard_pipeline

MODELS = ("llama-decode-op23", "gpt2-prefill-op20", "vit-encode-op20", "mixtral-prefill-op20-batched_mm")


def layered():
    """Matrix product, norm, transpose (dense) and product again: conversions, constants, a small group each."""
    g = SmallGraph(x=((4, 128), "bf16"))
    w, v = g.param("w", (128, 128), "bf16"), g.param("v", (128,), "bf16")
    y = g("rmsnorm", g("gemm", g.args["x"], w), v)
    y = g("transpose", y, perm=(1, 0))
    return g.done(y=g("gemm", y, g("transpose", g("add", y, y), perm=(1, 0))))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["mincut", "greedy"])
def test_passes_establish_their_stages_on_models(data_dir, model, method):
    program = import_onnx(data_dir / "onnx" / f"{model}.onnx")
    check_stage(program, "legal-front")
    check_stage(program, "legal-value")
    run_pipeline(program, standard_pipeline(layout_method=method))
    for stage in ("legal-value", "legal-layout", "legal-group"):
        check_stage(program, stage)
    run_pipeline(program, "move-constants")
    check_stage(program, "legal-group")
    with pytest.raises(VerifyError, match="has not reached stage legal-front"):
        check_stage(program, "legal-front")


def codes(program, stage):
    out = Collector()
    STAGES[stage](program, out)
    return [d.code for d in out.found], "\n".join(map(str, out.found))


def broken_front(p):
    """A conversion in a fresh graph."""
    op = ops_of(p, "rmsnorm")[0]
    norm = p.ctx.create("channel_norm", [op.operands[0]], to="align")
    op.set_operand(0, op.block.insert_before(op, norm).result)


def broken_value(p):
    op = ops_of(p, "transpose")[0]
    t = p.ctx.tensor(op.result.shape, op.result.dtype, "tensor")
    copy = op.block.insert_after(op, p.ctx.create("to_tensor", [op.result], [t]))
    op.block.insert_after(copy, p.ctx.create("relu_", [copy.result]))


def undecided(p):
    ops_of(p, "rmsnorm")[0].attrs["mem_layout"] = ""


def unknown_name(p):
    ops_of(p, "gemm")[0].attrs["layout_str"] = "Tensor-Unknown-Tensor"


def edge(p):
    ops_of(p, "transpose")[0].attrs["mem_layout"] = "blocked"


def pointless(p):
    norm = ops_of(p, "channel_norm")[0]
    other = clone_op(norm)
    norm.block.insert_after(norm, other)
    other.set_operand(0, norm.result)


def outside(p):
    op = next(o for o in p.main.body if o.kind == "group")
    made = p.ctx.create("relu", [op.results[0]], mem_layout="dense", layout_str="Tensor")
    op.block.insert_after(op, made)


def no_load(p):
    load = ops_of(p, "load_var")[0]
    load.result.replace_all_uses_with(load.operands[0])
    load.erase()


def no_store(p):
    store = ops_of(p, "store_var")[0]
    store.result.replace_all_uses_with(store.operands[0])
    store.erase()


def transfer_in_ddr(p):
    next(o for o in p.main.body if o.kind == "group").attrs["group_tag"] = 2


def template(p):
    groups = [o for o in p.main.body if o.kind == "group"]
    groups[0].attrs["template_id"] = groups[-1].attrs["group_id"]


def no_template(p):
    next(o for o in p.main.body if o.kind == "group").attrs["template_id"] = 77


CASES = [
    ("IR030", "legal-front", None, broken_front), ("IR031", "legal-value", None, broken_value),
    ("IR032", "legal-layout", backend_passes()[:6], undecided), ("IR032", "legal-layout", backend_passes()[:6], unknown_name),
    ("IR033", "legal-layout", backend_passes()[:6], edge), ("IR034", "legal-layout", backend_passes()[:6], pointless),
    *[(code, "legal-group", backend_passes(), f) for code, f in (
        ("IR035", outside), ("IR036", no_load), ("IR036", no_store), ("IR036", transfer_in_ddr), ("IR038", template),
        ("IR038", no_template))],
]  # fmt: skip


@pytest.mark.parametrize("code, stage, passes, spoil", CASES, ids=lambda c: getattr(c, "__name__", None))
def test_each_rule_of_a_stage_can_fail(code, stage, passes, spoil):
    program = layered()
    run_pipeline(program, passes or [])
    check_stage(program, stage)
    spoil(program)
    found, text = codes(program, stage)
    assert code in found and code in CODES, text
    with pytest.raises(VerifyError, match=rf"has not reached stage {stage}: \d+ error"):
        check_stage(program, stage)


def test_every_stage_code_has_a_case():
    assert {c for c in CODES if c >= "IR030"} == {c[0] for c in CASES} | {"IR037"}
    with pytest.raises(ConfigError, match="unknown stage 'legal', expected one of legal-front"):
        check_stage(layered(), "legal")


def test_two_users_of_a_constant_have_two_loads_of_one_id_that_must_agree():
    g = SmallGraph(x=((4, 128), "bf16"))
    w = g.param("w", (4, 128), "bf16")
    p = g.done(y=g("add", g("mul", g.args["x"], w), w))
    run_pipeline(p, [*backend_passes()[:6]])
    run_pipeline(p, "move-constants,group-single,group-load-store")
    check_stage(p, "legal-group")
    loads = ops_of(p, "load_const")
    assert len(loads) == 2 and len({op.attrs["const_map_id"] for op in loads}) == 1
    loads[1].attrs["mem_layout"] = "blocked" if loads[1].attrs["mem_layout"] == "dense" else "dense"
    with pytest.raises(VerifyError) as caught:
        check_stage(p, "legal-group")
    text = str(caught.value)
    assert "error[IR037]" in text and text.count("tx8be.load_const") >= 2, "both loads are named"
    assert "main/group#0/load_const#0" in text and "main/group#1/load_const#0" in text
    loads[1].attrs["mem_layout"] = loads[0].attrs["mem_layout"]
    loads[0].attrs["bypass_codegen"] = True
    assert "bypass_codegen: expected False" in codes(p, "legal-group")[1]


def test_wrapping_an_op_in_a_group_and_unwrapping_restores_the_text():
    p = layered()
    before = p.text(locations=True)
    for op in [o for o in p.main.body if o.kind in ("gemm", "rmsnorm", "add", "transpose")]:
        make_group(p.ctx, op)
    p.verify()
    assert p.text() != before and len(ops_of(p, "group")) == 6
    for group in ops_of(p, "group"):
        dissolve(group)
    p.verify()
    assert p.text(locations=True) == before


def dissolve(group):
    """Put the ops of a group in its place."""
    for arg, v in zip(group.body.args, group.operands, strict=True):
        arg.replace_all_uses_with(v)
    end = group.body.terminator
    for r, v in zip(group.results, end.operands, strict=True):
        r.replace_all_uses_with(v)
    end.erase()
    for op in list(group.body):
        op.detach()
        group.block.insert_before(group, op)
    group.erase()


def test_group_attributes_have_the_listed_defaults():
    g = SmallGraph(x=((4, 128), "bf16"))
    group = g.op("group", g.args["x"], result_types=[g.args["x"].type], n_regions=1)
    assert dict(group.attrs) == {
        "pipeline_parallel": False, "sp_stage_num": 1, "dev_region": (), "spm_alloc_size": -1, "group_tag": 0,
        "stream_online_check": (), "stream_offline": (), "need_barrier": True, "group_id": -1, "template_id": -1,
    }  # fmt: skip
    b = Builder(g.ctx, group.regions[0].add_block([g.args["x"].type]))
    b.op("group_return", b("relu", g.args["x"]))
    with pytest.raises(VerifyError, match="IR007"):
        g.done(y=group.result)


def test_logical_and_physical_layouts_are_separate_and_counted():
    p = layered()
    run_pipeline(p, backend_passes()[:6])
    gemm = ops_of(p, "gemm")[0]
    assert gemm.attrs["layout_str"].count("-") == 2 and gemm.attrs["mem_layout"] == "blocked"
    gemm.attrs["layout_str"] = "Tensor-Tensor"
    with pytest.raises(VerifyError, match="layout_str"):
        p.verify()
    bad = layered()
    ops_of(bad, "rmsnorm")[0].attrs["layout_str"] = "Tensor-Tensor"
    with pytest.raises(VerifyError, match="layout_str"):
        bad.verify()


def test_padded_bytes_of_the_worked_tensor():
    """f16, batch 2 of 1x2x131 channels: three blocks' worth per position, 528 bytes used, batches 768 apart."""
    cx, rest = blocked_params(131, "f16")
    assert (cx, rest) == (2, 4)
    assert batch_stride_bytes(2, 131, "f16") == 768
    assert 2 * (cx * 64 + rest) * np.dtype(np.float16).itemsize == 528
