"""Faults planted in the code of single tiles: loads, addresses, workers, waits, padding."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.simulator.planting import Edit, findings
from tests.support.one_op import Arg, Case, one_op, with_plan
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Tensor
from tx8fast.simulator.sanitizer_report import MAX_FINDINGS, SanitizerError
from tx8fast.tile.tiling import Plan

MACHINE = load_machine("tx8")
READ = "uninitialised read"


@cache
def gemm() -> Case:
    return one_op("gemm", Arg((64, 96), "bf16"), Arg((96, 130), "bf16"))


@cache
def split_gemm() -> Case:
    """Tile 0 alone, reduction in four pieces through two buffers."""
    case = one_op("gemm", Arg((64, 256), "bf16"), Arg((256, 64), "bf16"))
    low = case.lowering()
    k = low.k[0]
    slices = tuple(64 if f == k else n for f, n in enumerate(low.sizes))
    order = (*(f for f in range(3) if f != k), k)
    return with_plan(case, Plan((1, 1, 1), low.sizes, slices, order, 2, 0, 0, "", 1))


@cache
def softmax() -> Case:
    return one_op("softmax", Arg((4, 33, 77), "bf16"))


def test_clean_before_the_edits():
    for case in (gemm(), split_gemm(), softmax()):
        assert not findings(Edit(case).program)


# --- values ------------------------------------------------------------------------------------


def test_missing_load_of_an_operand():
    f = Edit(gemm()).drop("rdma", -1).found()[READ]
    assert (f.name, f.tile, f.op, f.space) == ("gemm", 0, "gemm", "SPM") or f.name == "gemm"
    assert "which nothing has written in this launch" in f.text
    assert f.count > 1 or len(gemm().segment.codes) == 1
    assert f.span[0] >= MACHINE.spm_base and f.span[1] > f.span[0]
    assert f"instruction {f.instruction} (gemm)" in f.line() and f"segment '{gemm().segment.name}'" in f.line()


def test_load_to_a_shifted_address():
    assert Edit(gemm()).set("rdma", 0, dst=lambda x: x + 0x40000).found()[READ].name == "gemm"


def test_load_that_is_too_short():
    f = Edit(gemm()).set("rdma", 0, run_bytes=lambda n: n // 2).found()[READ]
    assert f.name == "gemm" and "computes with element" in f.text


def test_result_to_a_shifted_address():
    f = Edit(gemm()).set("gemm", 0, out=lambda x: x + 0x40000).found()[READ]
    assert f.name == "wdma" and "stores" in f.text


def test_partial_sums_that_nobody_started():
    edit = Edit(split_gemm())
    assert len(edit.at("gemm")) == 4
    f = edit.set("gemm", 0, psum=0x200000, psum_en=1).found()[READ]
    assert f.instruction == edit.at("gemm")[0] and f.span[0] == 0x200000


def test_swapped_double_buffer():
    """The first slice goes into the second buffer: the first product finds its own empty."""
    edit = Edit(split_gemm())
    code = edit.segment.codes[0]
    first, second = edit.at("rdma")[0], edit.at("rdma")[2]
    assert code["slot"][first] == code["slot"][second] and code["spm"][first, 0] != code["spm"][second, 0]
    code["spm"][first, 0] = code["spm"][second, 0]
    f = edit.found()[READ]
    assert f.name == "gemm" and f.instruction == edit.at("gemm")[0]


def test_missing_prologue_fill():
    f = Edit(softmax()).drop("memset").found()[READ]
    assert f.name == "gemm" and "computes with" in f.text


def test_missing_conversion():
    f = Edit(softmax()).drop("cvt_bf16_f32").found()[READ]
    assert f.name.startswith("reduce")


def test_missing_statistics():
    assert READ in Edit(softmax()).drop("reduce_max").found()


def test_result_that_is_never_stored():
    f = Edit(gemm()).drop("wdma", 0, tiles=[0]).found()["undefined result"]
    assert "output 'y0'" in f.text and f.space == "DDR" and "which no input, parameter or launch has written" in f.text


def test_launch_on_memory_nobody_wrote():
    edit = Edit(gemm())
    edit.program.launches[0].args[0] = DDR_BASE + edit.program.ddr_bytes - (1 << 16)
    edit.program.ddr_bytes += 1 << 16
    edit.program.launches[0].args[0] = DDR_BASE + edit.program.ddr_bytes - (1 << 16)
    f = edit.found()[READ]
    assert f.name == "rdma" and f.space == "DDR" and "which no input, parameter or launch has written" in f.text


def test_routine_on_memory_nobody_wrote():
    edit = Edit(one_op("topk", Arg((33, 77)), k=4))
    edit.program.launches[0].args[0] = DDR_BASE + edit.program.ddr_bytes
    edit.program.ddr_bytes += 1 << 16
    f = edit.found()[READ]
    assert f.name == "kcore" and "(topk) needs DDR bytes" in f.text


# --- padding -----------------------------------------------------------------------------------


def test_padding_lanes_may_be_empty_but_not_computed_with():
    """77 channels lie in 80 lanes or more; dense operands leave those behind the last channel unwritten."""
    case = one_op("reduce", Arg((33, 77)), op="add", axes=(1,))
    assert not findings(case.program)
    edit = Edit(case)
    name = next(n for n in ("reduce_sum", "gemm") if edit.at(n))
    f = edit.set(name, 0, c=78).found()[READ]
    assert f.name == name and "element (0, 0, 77)" in f.text


def test_lanes_from_padding_stay_undefined_through_arithmetic():
    a, n = 0x10000, 64
    code = CodeBuilder().add("rdma", dst=a, run_bytes=4 * (n - 1), slot=0, op=0)
    code.add("exp_v", src0=a, dst=a + 0x1000, n=n, fmt="f32", op=0).add(
        "add_vv", src0=a, src1=a + 0x1000, dst=a + 0x2000, n=n, fmt="f32", op=0
    )

    def made(last: int):
        b = CodeBuilder()
        b._rows = list(code._rows)
        b.add("wdma", src=a + 0x2000, run_bytes=4 * last, slot=1, op=0).finish()
        segment = make_segment(MACHINE, "s", [b.code()], [0] + [-1] * 15, [0, 1], ops=["sum"])
        ins = [Tensor("x", (n,), "f32", "f32", "dense", DDR_BASE, 4 * n)]
        outs = [Tensor("y", (last,), "f32", "f32", "dense", DDR_BASE + 0x1000, 4 * n)]
        return make_program(MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 0x1000])], ins, outs)

    assert not findings(made(n - 1))
    (f,) = findings(made(n))
    start = DDR_BASE + 0x1000 + 4 * (n - 1)
    assert f.kind == "undefined result" and f.span == (start, start + 4)
    assert "tile 0, instruction 3 (wdma" in f.text and "last writer, instruction 2 (add_vv" in f.text


def test_masked_move_needs_only_the_chosen_lanes():
    a = 0x10000
    code = (
        CodeBuilder()
        .add("memset", dst=a, value=0, n=32, fmt="f32")
        .add("memset", dst=a + 128, value=0x3F800000, n=32, fmt="f32")
    )
    code.add("memset", dst=a + 0x1000 + 128, value=0x40000000, n=32, fmt="f32")  # the source: its second half
    code.add("memset", dst=a + 0x2000, value=0, n=32, fmt="f32")  # the destination: its first half
    code.add("mask_move", src0=a + 0x1000, src1=a, dst=a + 0x2000, n=64, fmt="f32")
    code.add("wdma", src=a + 0x2000, run_bytes=256, slot=0).finish()
    segment = make_segment(MACHINE, "s", [code.code()], [0] + [-1] * 15, [0])
    out = Tensor("y", (64,), "f32", "f32", "dense", DDR_BASE, 256)
    program = make_program(MACHINE, [segment], [(0, [DDR_BASE])], [], [out])
    assert not findings(program)
    found = Edit(program).set("memset", 0, value=0x3F800000).found()
    assert "undefined result" in found


# --- order inside a tile -----------------------------------------------------------------------


def test_missing_wait_before_the_barrier():
    f = Edit(gemm()).drop("wait", -1).found()["barrier without wait"]
    assert f.name == "barrier" and "does not wait for instruction" in f.text


@pytest.mark.parametrize(
    ("name", "second", "first"), [("wdma", "wdma", "gemm"), ("rdma", "gemm", "rdma"), ("gemm", "gemm", "rdma")]
)
@pytest.mark.slow(but_every=4)
def test_row_through_the_wrong_worker(name, second, first):
    f = Edit(gemm()).set(name, -1, worker=1).found()["unsynchronised workers"]
    assert f.name == second and f"({first}, worker" in f.text and "no wait_worker" in f.text and f.op == "gemm"


def test_an_older_load_in_the_same_queue_is_ordered():
    """The last load of worker 0 follows the others in one queue, and the product waits for it."""
    assert not Edit(gemm()).set("rdma", 0, worker=1).found()


def test_queue_order_needs_no_wait():
    """Rows of one engine run in order, and what they hand on is ordered too."""
    a = 0x10000
    code = CodeBuilder().add("memset", dst=a, value=0, n=64, fmt="f32", worker=0)
    code.add("memset", dst=a, value=1, n=64, fmt="f32", worker=1)
    code.add("exp_v", src0=a, dst=a, n=64, fmt="f32", worker=1)  # behind both: worker 1 orders it with the second
    code.add("wait").add("barrier")
    segment = make_segment(MACHINE, "s", [code.code()], [0] + [-1] * 15)
    program = make_program(MACHINE, [segment], [(0, [])])
    assert not findings(program)
    f = Edit(program).set("exp_v", 0, worker=2).found()["unsynchronised workers"]
    assert f.name == "exp_v" and f.span == (a, a + 256)


def test_a_wait_tells_of_what_comes_before_what_it_waits_for():
    """The core waits for worker 1 alone; its row stands behind the exponential in one queue, and that behind the load in worker 0."""
    a = 0x10000
    code = CodeBuilder().add("rdma", dst=a, run_bytes=256, slot=0, worker=0)
    code.add("exp_v", src0=a, dst=a, n=64, fmt="f32", worker=0)
    code.add("exp_v", src0=a, dst=a + 256, n=64, fmt="f32", worker=1)
    code.add("wait_worker", workers=2)
    code.add("memset", dst=a, value=1, n=64, fmt="f32", worker=2).add("wait").add("barrier")
    segment = make_segment(MACHINE, "s", [code.code()], [0] + [-1] * 15, [0])
    x = Tensor("x", (64,), "f32", "f32", "dense", DDR_BASE, 256)
    program = make_program(MACHINE, [segment], [(0, [DDR_BASE])], [x])
    assert not findings(program)
    f = Edit(program).drop("wait_worker", 0).found()["unsynchronised workers"]
    assert f.name == "memset" and f.span == (a, a + 256)


def test_holes_of_strided_rows_are_no_conflict():
    a = 0x10000

    def made(shift: int):
        code = CodeBuilder().add("memset", dst=a, value=0, n=64, s0=512, n0=8, fmt="f32", worker=0)
        code.add("rdma", dst=a + 256 + shift, run_bytes=256, slot=0, worker=1).finish()
        segment = make_segment(MACHINE, "s", [code.code()], [0] + [-1] * 15, [0])
        return make_program(
            MACHINE, [segment], [(0, [DDR_BASE])], [Tensor("x", (64,), "f32", "f32", "dense", DDR_BASE, 256)]
        )

    assert not findings(made(0))
    (f,) = findings(made(4))
    assert f.kind == "unsynchronised workers"


def test_routine_before_the_engines_are_done():
    """A kernel-core access to what an engine writes needs a wait (TX8 hardware manual 15.5)."""
    x, y, z = DDR_BASE, DDR_BASE + 0x1000, DDR_BASE + 0x2000

    def operand(slot):
        return {"slot": slot, "offset": 0, "shape": [64], "strides": [4], "dtype": "f32"}

    routine = {"routine": "neg", "attrs": {}, "inputs": [operand(1)], "outputs": [operand(2)], "elems": 64}

    def made(wait: bool):
        code = (
            CodeBuilder()
            .add("rdma", dst=0x10000, run_bytes=256, slot=0)
            .add("wdma", src=0x10000, run_bytes=256, slot=1)
        )
        if wait:
            code.add("wait")
        code.add("kcore", routine=0).finish()
        segment = make_segment(MACHINE, "s", [code.code()], [0] + [-1] * 15, [0, 1, 2], routines=[routine])
        return make_program(MACHINE, [segment], [(0, [x, y, z])], [Tensor("x", (64,), "f32", "f32", "dense", x, 256)])

    assert not findings(made(True))
    (f,) = findings(made(False))
    assert f.kind == "kernel core without wait" and f.name == "kcore" and "instruction 1 (wdma" in f.text


# --- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "part"), [(0x2F0000, "reserved"), (0x100, "reserved"), (0x300000, "do not exist")])
def test_address_outside_the_buffers(address, part):
    f = Edit(gemm()).set("rdma", 0, dst=address).found()["SPM address"]
    assert (
        f.name == "rdma" and f.span[0] == address and part in f.text and "required within [0x10000, 0x2f0000)" in f.text
    )


def test_transfer_outside_ddr():
    f = Edit(gemm()).set("wdma", 0, ddr=1 << 33).found()["DDR address"]
    assert f.name == "wdma" and f.space == "DDR"


# --- reports -----------------------------------------------------------------------------------


def test_reports_stop_after_twenty():
    edit = Edit(gemm()).drop("rdma", -1).drop("wait", -1)
    segment = edit.segment
    for i in range(30):
        made = type(segment)(**{**segment.__dict__, "name": f"s{i}"})
        edit.program.segments.append(made)
        launch = edit.program.launches[0]
        edit.program.launches.append(type(launch)(len(edit.program.segments) - 1, launch.args, f"l{i}"))
    with pytest.raises(SanitizerError) as error:
        CompiledProgram(edit.program).run(
            {"x0": np.zeros((64, 96), np.float32), "x1": np.zeros((96, 130), np.float32)}, sanitize=True
        )
    assert len(error.value.findings) == MAX_FINDINGS
    assert str(error.value).count("\n  - ") == MAX_FINDINGS and str(error.value).endswith("stopped after 20")


def test_plain_run_is_not_watched():
    edit = Edit(gemm()).drop("wait", -1)
    feed = {"x0": np.zeros((64, 96), np.float32), "x1": np.zeros((96, 130), np.float32)}
    assert CompiledProgram(edit.program).run(feed)["y0"].shape == (64, 130)
    assert isa.expand(edit.segment.codes[0]).size


def test_a_launch_that_stores_only_part_of_its_result():
    case = one_op("relu", Arg((16, 64)), machine="test_2x2")
    assert "incomplete result" in Edit(case).drop("wdma", tiles=[0]).found()


def test_a_row_whose_result_nobody_uses():
    case = one_op("gelu", Arg((16, 64)), machine="test_2x2")
    edit = Edit(case)
    code = edit.segment.codes[0]
    store = edit.at("wdma")[-1]
    edit.segment.codes[0] = np.insert(code, store + 1, code[store - 1])
    assert set(edit.found()) == {"unused result"}


def test_an_operand_of_which_nothing_is_read():
    """A tile squares one operand instead of multiplying it by the other, whose bytes it has loaded."""
    edit = Edit(one_op("mul", Arg((16, 64)), Arg((16, 64)), machine="test_2x2"))
    assert not edit.found()
    rows = edit.segment.codes[0]
    for at in edit.at("mul_vv"):
        rows["spm"][at, 1] = rows["spm"][at, 0]
    found = edit.found()
    assert set(found) == {"unused operand"} and found["unused operand"].name == "rdma"
