"""The verifier on operands: buffers, alignment, sizes that follow from each other, what arguments are declared to be."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast.errors import ProgramError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import SCRATCH, SEVERAL, Argument, Program
from tx8fast.program.verify import verify

MACHINE = load_machine("test_2x2")
A, B = MACHINE.spm_base, MACHINE.spm_base + 4096
IN, OUT = Argument("operand", (1024,), "f32", "dense"), Argument("result", (1024,), "f32", "dense")
BUFFERS = [(A, 1024, 0), (B, 1024, 1)]
CONV = dict(src=A, weight=B, out=A + 65536, n=1, h=8, w=8, c=8, oh=6, ow=6, oc=8, kx=3, ky=3, fmt="bf16", out_fmt=3)
GEMM = dict(left=A, right=B, out=A + 65536, m=8, k=8, n=8, fmt="bf16", out_fmt=3)
POOL = dict(src0=A, dst=B, n=1, h=4, w=4, c=8, top=0, bottom=0, left=0, right=0, kx=2, ky=2, sx=2, sy=2, fmt="bf16")


def copying(buffers=None, arguments=(IN, OUT), src=B, dst=A, **store) -> Program:
    """Four tiles copy a quarter each."""
    fields = {"run_bytes": 1024, "slot": 1, **store}
    b = CodeBuilder().add("rdma", dst=dst, run_bytes=1024, slot=0).add("abs_v", src0=A, dst=B, n=256, fmt="f32")
    b.add("wdma", src=src, **fields).finish()
    offset = np.arange(4)[:, None] * np.array([[1024, 1024]])
    segment = make_segment(
        MACHINE, "s", [b.code()], None, [0, 1], offset, arguments=arguments, buffers=buffers or BUFFERS
    )
    return make_program(MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 4096])], ddr_bytes=8192)


def one(name: str, **fields: int) -> Program:
    code = CodeBuilder().add(name, **fields).finish().code()
    return make_program(MACHINE, [make_segment(MACHINE, "s", [code])], [(0, [])])


def test_good_operands_pass():
    verify(copying())
    verify(copying([(A, 2048, SEVERAL), (B, 1024, SEVERAL), (A, 8, SCRATCH)]))
    for name, fields in (("conv", CONV), ("gemm", GEMM), ("pool_max", POOL)):
        verify(one(name, **fields))


@pytest.mark.parametrize("change, message", [
    ({"buffers": [(A, 1020, 0), (B, 1024, 1)]}, r"writes SPM \[0x10000, 0x10400\), which do not lie in one of its buffers"),
    ({"buffers": [(A, 512, 0), (A + 512, 512, 0), (B, 1024, 1)]}, "which do not lie in one of its buffers"),
    ({"buffers": [(A, 1024, 1), (B, 1024, 1)]}, "instruction 0: writes SPM .* which do not lie"),
    ({"buffers": [(A, 1024, SCRATCH), (B, 1024, 1)]}, "instruction 0: writes SPM .* which do not lie"),
    ({"buffers": [(A, 1024, 2), (B, 1024, 1)]}, "buffer 0: 1024 bytes at 0x10000 for argument 2"),
    ({"buffers": [(0, 1 << 20, 0)]}, "buffer 0: 1048576 bytes at 0x0"),
    ({"buffers": [(A, 1024, 0)]}, "instruction 1: writes SPM"),
    ({"run_bytes": 1022}, "a run of 1022 bytes, but an element has 4"),
    ({"ddr": 2}, "a DDR offset of 2 bytes, but an element has 4"),
    ({"src": B - 2}, "a SPM address of"),
    ({"run_bytes": 512}, r"argument 1, result dense f32 \(1024,\),: 2048 bytes are stored, required at least 4096"),
    ({"ddr": 4}, r"is written at bytes \[0x4, 0x1004\), it has 0x1000"),
    ({"slot": 0, "buffers": [(A, 8192, SEVERAL)]}, "argument 0, operand .* is written"),
    ({"arguments": (IN,)}, "1 arguments are declared, required 2"),
    ({"arguments": (IN, Argument("result", (9,), "f3", "dense"))}, "argument 1: unknown role"),
])  # fmt: skip
def test_broken_rules_of_arguments_and_buffers(change, message):
    with pytest.raises(ProgramError, match=message):
        verify(copying(**change))


def test_an_update_needs_some_bytes_only():
    verify(copying(arguments=(IN, Argument("update", (1024,), "f32", "dense", 0)), run_bytes=4))


@pytest.mark.parametrize("name, fields, message", [
    ("conv", {**CONV, "oh": 5}, "other rows than window, stride and pads give"),
    ("conv", {**CONV, "left": 1}, "other columns than window, stride and pads give"),
    ("depthwise", {**CONV, "oc": 16}, "other channels in its result"),
    ("conv", {**CONV, "src": A + 8}, "conv operand at SPM 0x10008, required a multiple of 16"),
    ("gemm", {**GEMM, "out": A + 65536 + 8}, "required a multiple of 16"),
    ("gemm", {**GEMM, "batch_l": 2, "batch_r": 3}, "different batches"),
    ("pool_max", {**POOL, "dst": B + 8}, "required a multiple of 16"),
    ("pool_max", {**POOL, "kx": 9}, "window is larger than its operand"),
    ("reduce_sum", {"src0": A, "dst": B, "dim": 3, "n": 1, "h": 1, "w": 4, "c": 8, "fmt": "f32"}, "over none of dimensions"),
    ("unpool", {"src0": A, "dst": B, "n": 1, "h": 2, "w": 2, "c": 8, "oh": 9, "ow": 4, "kx": 2, "ky": 2, "sx": 2, "sy": 2,
                "fmt": "f32"}, "beyond its last window"),
    ("abs_v", {"src0": A + 2, "dst": B, "n": 8, "fmt": "f32"}, "required a multiple of 4"),
    ("cvt_bf16_f32", {"src0": A + 2, "dst": B + 2, "n": 8}, "required a multiple of 4"),
    ("add_vuv", {"src0": A, "src1": B, "dst": A, "n": 100, "unit": 64, "fmt": "f32"}, "a unit of which the elements are no multiple"),
    ("add_vuvloop", {"src0": A, "src1": B, "dst": A, "n": 128, "unit": 64, "full": 256, "full_unit": 64, "fmt": "f32"}, "ratio rule"),
    ("gather_scatter", {"src0": A, "dst": B, "size": 64, "sn0": 2, "dn0": 3}, "different numbers of runs"),
])  # fmt: skip
def test_broken_rules_between_fields(name, fields, message):
    with pytest.raises(ProgramError, match=message):
        verify(one(name, **fields))


def test_loops_count_in_what_is_stored():
    """Three iterations of four leave a quarter out; four reach the end exactly."""
    for count, good in ((3, False), (4, True)):
        b = CodeBuilder().add("rdma", dst=A, run_bytes=1024, slot=0)
        with b.loop(count):
            b.add("wdma", src=A, run_bytes=256, slot=1, ddr_step=(256,))
        b.finish()
        offset = np.arange(4)[:, None] * np.array([[1024, 1024]])
        segment = make_segment(MACHINE, "s", [b.code()], None, [0, 1], offset, arguments=[IN, OUT])
        program = make_program(MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 4096])], ddr_bytes=8192)
        if good:
            verify(program)
        else:
            with pytest.raises(ProgramError, match="3072 bytes are stored, required at least 4096"):
                verify(program)
