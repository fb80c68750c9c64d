"""Programs that somebody broke: every tool answers with one of our errors, names the place, and always comes to an end."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_exchange_program import A, B, mask_of, program
from test_scatter_gather import all_to_all, column_gather

from tests.support.cli_case import Caller
from tests.support.one_op import Arg, build
from tx8fast import isa
from tx8fast.errors import ProgramError, SimulationError, Tx8Error
from tx8fast.isa.expand import MAX_ROWS
from tx8fast.program.builder import CodeBuilder
from tx8fast.program.io import save
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.functional import FunctionalSimulator
from tx8fast.simulator.sanitizer import Sanitizer

NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    63,
    255,
    256,
    1 << 16,
    1 << 20,
    1 << 31,
    -(1 << 31),
    1 << 40,
    1 << 62,
    -(1 << 62),
    (1 << 63) - 1,
]
OPCODES = sorted({cls.OPCODE for cls in isa.INSTRUCTIONS.values()} | {0x123, 0x5FF, 0xFFFF})
FIELDS = ("opcode", "fmt", "rnd", "slot", "op", "worker", "ddr", "depth", "spm", "p", "ddr_step")


@cache
def victims():
    args = [Arg((64, 256), "bf16"), Arg((256, 128), "bf16")]
    made = build(args, lambda b, x, w: b("gemm", b("relu", x), w), "test_2x2").program
    return made, all_to_all(64), column_gather()


def sanitize(p):
    watch = Sanitizer(p)
    watch.run(FunctionalSimulator(p, observer=watch))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.slow
def test_one_broken_field_is_refused_or_harmless(data):
    p = copy.deepcopy(data.draw(st.sampled_from(victims())))
    code = data.draw(st.sampled_from(p.segments)).codes[0]
    at, field = data.draw(st.integers(0, len(code) - 1)), data.draw(st.sampled_from(FIELDS))
    value = data.draw(st.sampled_from(OPCODES if field == "opcode" else NUMBERS))
    cell = code[field] if code[field].ndim == 1 else code[field][:, data.draw(st.integers(0, code[field].shape[1] - 1))]
    info = np.iinfo(cell.dtype)
    cell[at] = min(max(value, info.min), info.max)
    for tool in (verify, simulate, lambda q: FunctionalSimulator(q).run(), sanitize):
        try:
            tool(p)
        except Tx8Error as error:
            assert len(str(error)) > 20


def one(name, **fields):
    return program([CodeBuilder().add(name, **fields).finish().code()], [0] + [-1] * 15, 1)


def test_address_out_of_memory_names_tile_and_instruction():
    made = one("add_vv", src0=A, src1=B, dst=0x2EFF00, n=256, fmt="f32")
    with pytest.raises(ProgramError, match=r"segment 's' tile 0 instruction 0: writes SPM \[0x2eff00, 0x2f0300\)"):
        verify(made)
    with pytest.raises(SimulationError, match=r"segment 's': instruction 0 \(add_vv\): spm write of SPM bytes"):
        FunctionalSimulator(made).run()


def test_unknown_opcode_names_the_instruction():
    made = one("wait")
    made.segments[0].codes[0]["opcode"][1] = 0x5FF
    with pytest.raises(ProgramError, match="segment 's' tile 0 instruction 1: opcode 0x5ff does not exist"):
        verify(made)
    for tool in (simulate, lambda q: FunctionalSimulator(q).run(), sanitize):
        with pytest.raises(SimulationError, match="segment 's', instruction 1: opcode 0x5ff does not exist"):
            tool(made)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"run_bytes": 0}, "run_bytes 0 of a rdma, required 1 to"),
        ({"run_bytes": 64, "s0": -64, "n0": 2}, "s0 -64 of a rdma, required 0 to"),
        ({"run_bytes": 64, "n0": 1 << 24, "n1": 1 << 24}, "run_bytes x n0 x n1 x n2 of a rdma names"),
        ({"run_bytes": 64, "s0": 1 << 39, "n0": 1 << 20}, "strides of a rdma that reach over"),
        ({"run_bytes": 64, "ddr": 1 << 50}, "a DDR offset or step of"),
    ],
)
def test_fields_that_cannot_be_right(fields, text):
    made = one("rdma", dst=A, slot=0, **fields)
    with pytest.raises(ProgramError, match=f"instruction 0: {text}"):
        verify(made)
    for tool in (simulate, lambda q: FunctionalSimulator(q).run(), sanitize):
        with pytest.raises(SimulationError, match=f"instruction 0: found {text}"):
            tool(made)


def test_a_loop_without_end_in_sight():
    b = CodeBuilder()
    with b.loop(1 << 30):
        b.add("wait")
    made = program([b.finish().code()], [0] + [-1] * 15, 1)
    with pytest.raises(ProgramError, match=f"at most {MAX_ROWS} allowed"):
        verify(made)
    for tool in (simulate, lambda q: FunctionalSimulator(q).run(), sanitize):
        with pytest.raises(SimulationError, match="loop at row 0 stands for 1073741824 instructions"):
            tool(made)


def test_a_ring_of_waiting_tiles_is_explained():
    """Everybody waits for the neighbour before sending on: each tile and what it waits for is named."""
    codes = []
    for t in range(16):
        b = CodeBuilder().add("recv", monitor=0, bytes=64, op=0)
        b.add("send", src=A, dst=A, bytes=64, mask=mask_of([(t + 1) % 16])).add("send_wait").finish()
        codes.append(b.code())
    made = program(codes, list(range(16)), ops=["ring"])
    verify(made)  # what is sent is received
    for tool in (simulate, lambda q: FunctionalSimulator(q).run()):
        with pytest.raises(SimulationError) as error:
            tool(made)
        for t in range(16):
            assert (
                f"tile {t}, instruction 0 (recv) of op 'ring' waits for 64 bytes on monitor 0, 0 have arrived"
                in str(error.value)
            )


def test_trace_paths_that_cannot_be_written(tmp_path, capsys):
    call = Caller(capsys)
    save(one("wait"), tmp_path / "p.tx8")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").write_text("x")
    for path in (
        tmp_path / "absent" / "t.json",
        tmp_path / "folder.json",
        tmp_path / "file" / "t.pftrace",
        tmp_path / "t.txt",
    ):
        before = sorted(tmp_path.rglob("*"))
        got = call("sim", tmp_path / "p.tx8", "--trace", path)
        assert got.code == 2 and path.name in got.err and "Traceback" not in got.err
        assert sorted(tmp_path.rglob("*")) == before
