"""Requirements of the back-end notes that no other file shows: group attributes, code of every kind, sums cut over tiles."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from op_cases import build, data, make_case
from support.one_op import compare
from support.small_graph import SmallGraph
from test_ops import op

from tx8fast.api import compile_ir
from tx8fast.ir import new_context, reference
from tx8fast.ir.attrs import RegionAttr
from tx8fast.ir.core import INPLACE, REAL
from tx8fast.ir.interfaces import back_window, tile_sharding_split
from tx8fast.ir.parser import parse_op
from tx8fast.ir.program import IRProgram
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.program.verify import verify

CTX = new_context()
MACHINE = load_machine("test_2x2")
KINDS = [i.name.partition(".")[2] for i in CTX.infos.values() if i.traits & REAL and not i.traits & INPLACE]
CASES = [k for k in KINDS if make_case(k, np.random.default_rng(0)) is not None]
#: made by the compiler itself, where a value changes its form; layouts decide what it does
INTERNAL = {"channel_norm"}
GROUP = {
    "pipeline_parallel": True, "sp_stage_num": 2, "dev_region": RegionAttr(1, 0, 2, 4), "spm_alloc_size": 4096, "group_tag": 2,
    "stream_online_check": (1, 2), "stream_offline": (3,), "need_barrier": False, "group_id": 7, "template_id": 3,
}  # fmt: skip


@pytest.mark.parametrize("names", [*([n] for n in GROUP), list(GROUP)], ids=lambda n: n[0] if len(n) == 1 else "all")
def test_every_attribute_of_a_group_round_trips_alone_and_together(names):
    g = SmallGraph(x=((4, 64), "f32"))
    group = g.op("group", g.args["x"], result_types=[g.args["x"].type], n_regions=1, **{n: GROUP[n] for n in names})
    inner = g.ctx.create("relu", [group.regions[0].add_block([g.args["x"].type]).args[0]])
    group.body.append(inner)
    group.body.append(g.ctx.create("group_return", [inner.result], []))
    p = g.done(y=group.result)
    back = next(o for o in parse_op(p.ctx, p.text()).walk() if o.kind == "group")
    assert back.attrs == group.attrs and all(back.attrs[n] == GROUP[n] for n in names)
    assert sum(back.attrs[n] == v for n, v in GROUP.items()) == len(names), "the others keep their defaults"


def program_of(kind: str, rng) -> tuple[IRProgram, dict[str, np.ndarray], list[np.ndarray]]:
    """A random program of one op, its inputs, and what the reference routine says."""
    case = make_case(kind, rng)
    assert case is not None
    arrays = data(case, rng)
    g = SmallGraph(**{f"x{i}": (o[0], o[1]) for i, o in enumerate(case.operands)})
    made = g.op(kind, *g.args.values(), **case.attrs)
    with np.errstate(all="ignore"):
        wanted = reference(build(CTX, case), [a.copy() for a in arrays])
    named = {f"y{i}": r for i, r in enumerate(made.results)}
    return g.done(**named), {f"x{i}": a for i, a in enumerate(arrays)}, wanted


@pytest.mark.parametrize("kind", [k for k in CASES if k not in INTERNAL])
def test_every_kind_has_code_and_the_code_computes_it(kind, monkeypatch):
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    for _ in range(2):
        program, inputs, wanted = program_of(kind, rng)
        compiled = compile_ir(program, MACHINE, CompileOptions())
        verify(compiled.program)
        for s in compiled.program.segments:
            assert s.routines or all(len(code) for code in s.codes), "instructions, or a routine of the kernel core"
        with monkeypatch.context() as patched:  # while a program runs, no result comes from a routine in Python
            patched.setattr("tx8fast.numerics.routines.ROUTINES", {})
            found = compiled.run(inputs)
        for i, w in enumerate(wanted):
            compare(found[f"y{i}"], np.asarray(w, found[f"y{i}"].dtype), 2e-5)


def test_kinds_without_a_random_case_are_those_of_other_tests():
    """ONNX node tests run them (tests/oracle), or StableHLO's and the value passes' own."""
    assert len(CASES) > 80 and INTERNAL <= set(CASES)


def test_a_sum_cut_over_tiles_leaves_partial_sums_that_add_up():
    """Modes of the notes 4: 0 the sum is whole per tile, 2 both operands are cut along it."""
    gemm = op("gemm", (8, 12), (12, 6))
    whole, cut = (tile_sharding_split(gemm, (2, 1), (1, 1), reduce_sharding=n) for n in (1, 4))
    assert whole == [((2, 1), (1, 1)), ((1, 1), (1, 1))]
    assert cut == [((2, 4), (1, 1)), ((4, 1), (1, 1))]
    assert tile_sharding_split(gemm, (2, 1), (1, 1), reduce_sharding=13) is None
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((8, 12)), rng.standard_normal((12, 6))
    boxes = back_window(gemm, [(0, 4), (0, 6)])
    assert boxes is not None and boxes[0] == ((0, 4), (0, 12)) and boxes[1] == ((0, 12), (0, 6))
    parts = [a[:4, 3 * k : 3 * k + 3] @ b[3 * k : 3 * k + 3] for k in range(4)]
    np.testing.assert_allclose(sum(parts), (a @ b)[:4])
    assert tile_sharding_split(op("softmax", (8, 12)), (2, 1), (1, 1), reduce_sharding=2) is None


def test_a_weight_that_all_tiles_need_is_loaded_in_parts_and_exchanged():
    """Modes 1 and 3: every tile loads one part of the operand that its rows share with the others, and sends it on."""
    g = SmallGraph(x=((256, 1024), "f32"))
    rng = np.random.default_rng(3)
    w = rng.standard_normal((1024, 512)).astype(np.float32)
    p = g.done(y=g("gemm", g.args["x"], g.array("w", w)))
    x = rng.standard_normal((256, 1024)).astype(np.float32)
    results = {}
    for sharing in (True, False):
        compiled = compile_ir(p.clone(), load_machine("tx8"), CompileOptions(dtype="bf16", sharing=sharing))
        nests = [n for s in compiled.program.segments for n in s.info.get("nests", [s.info])]  # a chain has several
        (product,) = [n for n in nests if n.get("engine") != "kernel core" and "gemm" in n["op"]]
        results[sharing] = (
            max(product["shared"]) > 1,
            compiled.run({"x": x})["y"],
            compiled.simulate().ddr_bytes,
        )
    assert results[True][0] and not results[False][0]
    # other cuts of the sum round at other places
    np.testing.assert_allclose(results[True][1], results[False][1], atol=0.01 * np.abs(results[False][1]).max(), rtol=0)
    assert results[True][2] < results[False][2]
