"""The program verifier: a good program passes, every broken rule is found and named."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast.errors import ProgramError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Tensor
from tx8fast.program.verify import verify

MACHINE = load_machine("test_2x2")
LOW, HIGH = MACHINE.spm_base, MACHINE.spm_limit


def tensor(name, offset, n=1024):
    return Tensor(name, (n,), "f32", "f32", "dense", DDR_BASE + offset, 4 * n)


def routine(**change):
    operand = {"slot": 1, "offset": 0, "shape": [4, 8], "strides": [64, 4], "dtype": "f32"}
    return {
        "routine": "neg",
        "attrs": {},
        "inputs": [None],
        "outputs": [{**operand, **change}],
        "elems": 32,
    }


def good(routines=None):
    b = CodeBuilder()
    with b.loop(4):
        b.add("rdma", dst=LOW, run_bytes=1024, slot=0, ddr_step=(1024,), op=0)
    b.add("wdma", src=LOW, run_bytes=4096, slot=1, op=0).add("kcore", routine=0).finish()
    segment = make_segment(
        MACHINE,
        "s",
        [b.code()],
        None,
        [0, 1],
        ops=["copy"],
        routines=[routine()] if routines is None else routines,
    )
    return make_program(
        MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 8192])],
        inputs=[tensor("x", 0)], outputs=[tensor("y", 8192)], params=[tensor("w", 16384)], ddr_bytes=1 << 16,
    )  # fmt: skip


def rows(program):
    return program.segments[0].codes[0]


def test_good_program_passes():
    verify(good())


def _field(name, at, value):
    def change(p):
        rows(p)[name][at] = value

    return change


def _set(**values):
    return lambda p: [setattr(p.segments[0], k, v) for k, v in values.items()]


def _args(*offsets):
    def change(p):
        p.launches[0].args = DDR_BASE + np.array(offsets, np.int64)

    return change


LOOP, RDMA, END, WDMA, KCORE, WAIT, BARRIER = range(7)
BROKEN = {
    "opcode 0x5ff does not exist": _field("opcode", WDMA, 0x5FF),
    "end of a loop that was not opened": _field("opcode", LOOP, 0x500),
    "loops are not closed": _field("opcode", END, 0x500),
    r"count 0 of a loop, required 1 to": _field("p", (LOOP, 0), 0),
    "with loops written out": _field("p", (LOOP, 0), 1 << 30),
    r"slot outside \[-1, 2\)": _field("slot", RDMA, 2),
    r"op outside \[-1, 1\)": _field("op", RDMA, 1),
    "transfer without a slot": _field("slot", WDMA, -1),
    r"routine outside \[0, 1\)": _field("p", (KCORE, 0), 1),
    rf"instruction 1: writes SPM \[0x0, 0x400\) of op 'copy', outside \[{LOW:#x}": _field("spm", RDMA, 0),
    rf"reads SPM \[{HIGH - 4095:#x}, {HIGH + 1:#x}\)": _field("spm", (WDMA, 0), HIGH - 4095),
    r"tile_code has shape \(3,\)": _set(tile_code=np.zeros(3, np.int32)),
    "tile 2: code 1 of 1": _set(tile_code=np.array([0, 0, 1, 0], np.int32)),
    "no tile runs code 0": _set(tile_code=np.full(4, -1, np.int32)),
    "tile_offset has shape": _set(tile_offset=np.zeros((4, 3), np.int64)),
    "slot 1: argument 1 of 1": _set(n_args=1),
    "the segment says otherwise": _set(barrier=False),
    "barrier without a wait": lambda p: (_field("opcode", KCORE, 0x500)(p), _field("opcode", WAIT, 186)(p), _field("fmt", WAIT, 5)(p),
                                         _field("opcode", KCORE, 0x301)(p), _field("slot", KCORE, 1)(p), _field("p", (WAIT, 0), 1)(p),
                                         _field("p", (KCORE, slice(7)), [8, 0, 1, 0, 1, 0, 1])(p)),
    "2 arguments, required 3": lambda p: (_set(n_args=3)(p)),
    "segment 4 of 1": lambda p: setattr(p.launches[0], "segment", 4),
    r"reads DDR .* through argument 0, outside \[0x280000000": _args(-64, 8192),
    "writes DDR .* through argument 1, outside": _args(0, (1 << 16) - 100),
    "through argument 0, outside 'x'": _args(4, 8192),
    "overwrites parameter 'w'": _args(0, 16384),
    "output 'y': DDR bytes": lambda p: setattr(p.outputs[0], "address", 17),
    "'x': 100 bytes reserved, dense f32": lambda p: setattr(p.inputs[0], "size_bytes", 100),
    "output 'y': unknown element type 'f3'": lambda p: setattr(p.outputs[0], "dtype", "f3"),
    "unknown layout": lambda p: setattr(p.params[0], "layout", "tiled"),
    "parameter 'w': the name occurs twice": lambda p: p.params.append(p.params[0]),
    "bytes of DDR, the machine has": lambda p: setattr(p, "ddr_bytes", 1 << 50),
    "not a flat array": lambda p: p.segments[0].codes.__setitem__(0, np.zeros(3)),
}  # fmt: skip


@pytest.mark.parametrize("message", BROKEN)
def test_broken_rule_is_found(message):
    program = good()
    BROKEN[message](program)
    with pytest.raises(ProgramError, match=message):
        verify(program)


def test_routine_operands_are_checked():
    verify(good([routine(strides=[-64, 4], offset=192)]))
    for change, message in (
        ({"slot": 7}, "slot 7 of 2"),
        ({"strides": [64]}, "malformed operand"),
        ({"dtype": "f99"}, "malformed operand"),
        ({"shape": ["a", 4]}, "numbers must be whole"),
        ({"strides": [[1], 4]}, "numbers must be whole"),
        ({"strides": [1 << 47, 4]}, "it reaches over more than"),
        ({"offset": 4096 - 192}, "outside 'y'"),
    ):
        with pytest.raises(ProgramError, match=message):
            verify(good([routine(**change)]))


def test_routine_operands_that_are_no_list():
    with pytest.raises(ProgramError, match="its inputs are 3, required a list"):
        verify(good([{**routine(), "inputs": 3}]))


def test_tiles_with_different_barrier_counts():
    program = good()
    twice = CodeBuilder().finish().finish().code()
    program.segments[0].codes.append(twice)
    program.segments[0].tile_code[3] = 1
    with pytest.raises(ProgramError, match="different numbers of barriers: {0: 1, 3: 2}"):
        verify(program)


def test_problems_are_listed_together_and_capped():
    program = good()
    program.launches = [program.launches[0]] * 30
    program.ddr_bytes = 100
    with pytest.raises(ProgramError) as e:
        verify(program)
    text = str(e.value)
    assert text.count("\n  - ") == 20
    assert "63 problems" in text and "and 43 more" in text


def test_unknown_machine_is_refused():
    program = good()
    program.machine = {"chip": {}}
    with pytest.raises(ProgramError):
        verify(program)
