"""Transfers whose address the kernel core looks up: meaning, cost, limits, and what verifier and sanitizer say."""

from __future__ import annotations

import numpy as np
import pytest
from isa_state import A, B, execute, get, new_state, put

from tests.simulator.planting import findings
from tx8fast import isa
from tx8fast.errors import ProgramError, SimulationError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Tensor
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.state import run_row

MACHINE = load_machine("tx8")
ROW = {"run_bytes": 12, "stride": 20, "entries": 7, "index_slot": 0, "index_ddr": 1024}
COPY = {
    "size": 4,
    "stride": 4,
    "entries": 6,
    "index_slot": 0,
    "index_ddr": 1024,
    "ss0": 24,
    "sn0": 3,
    "ds0": 8,
    "dn0": 3,
}


def state_with(number: int, kind: str = "<i8"):
    state = new_state()
    state.slots = [DDR_BASE]
    state.ddr.data[:256] = np.arange(256)
    raw = np.array([number], kind).view(np.uint8)
    state.ddr.data[1024 : 1024 + len(raw)] = raw
    return state


@pytest.mark.parametrize(("number", "kind", "fmt", "at"), [
    (0, "<i8", "i64", 0), (6, "<i4", "i32", 6), (-1, "<i8", "i64", 6), (-7, "<i4", "i32", 0), (5, "<u4", "u32", 5),
])  # fmt: skip
def test_one_row_of_a_table_in_ddr(number, kind, fmt, at):
    state = state_with(number, kind)
    execute(state, "rdma_row", DDR_BASE + 3, dst=A, fmt=fmt, **ROW)
    assert get(state, A, 12, "u8").tolist() == list(range(3 + 20 * at, 15 + 20 * at))


def test_one_row_of_a_table_in_scratchpad():
    """Row 4 of a table of three blocks of channels, 6 rows each, becomes a row of a result of 2 rows."""
    state = state_with(-2)
    table = np.arange(3 * 6 * 4, dtype=np.uint8)
    put(state, A, table)
    execute(state, "tdma_row", src0=A, dst=B + 4, fmt="i64", **COPY)
    out = get(state, B, 24, "u8").reshape(3, 2, 4)
    assert np.array_equal(out[:, 1], table.reshape(3, 6, 4)[:, 4]) and not out[:, 0].any()


@pytest.mark.parametrize("number", [7, -8, 1 << 62])
@pytest.mark.parametrize("name", ["rdma_row", "tdma_row"])
def test_a_number_outside_the_table(name, number):
    fields = {"dst": B, **(ROW if name == "rdma_row" else {**COPY, "src0": A, "entries": 7})}
    with pytest.raises(SimulationError, match=rf"found number {number}, required \[-7, 7\)"):
        run_row(state_with(number), isa.rows([isa.make(name, fmt="i64", **fields)])[0], DDR_BASE)


def test_cost_is_a_transfer_of_its_own_for_every_row():
    """Startup 300 and one run; the worst row of the table decides bursts and pages; the core reads the number first."""

    def cost(base=0, **fields):
        row = isa.rows([isa.make("rdma_row", dst=A, fmt="i64", slot=0, **{**ROW, **fields})])
        cycles, charged = isa.durations(MACHINE, row, np.array([DDR_BASE + base]))
        return int(cycles[0]), int(charged[0]), int(isa.issue_cycles(MACHINE, row)[0])

    # rows of a page each never cross one, those of three eighths of a page may
    assert cost(run_bytes=4096, stride=4096) == (304, 4096, 20 + 5 * 4 + 4)
    assert cost(run_bytes=1536, stride=1536) == (304 + 24, 1536, 44)
    assert cost(run_bytes=1536, stride=2048) == (304, 1536, 44)
    assert cost(base=32, run_bytes=64, stride=64) == (304 + 24, 128, 44)
    assert cost(run_bytes=8, stride=8) == (304, 64, 44) and cost(run_bytes=12, stride=12)[1] == 128
    copy = isa.rows([isa.make("tdma_row", src0=A, dst=B, fmt="i64", **{**COPY, "size": 128, "sn0": 12, "dn0": 12})])
    assert isa.durations(MACHINE, copy, np.zeros(1, np.int64))[0][0] == 40 + 12 * 2
    assert isa.issue_cycles(MACHINE, copy)[0] == 20 + 14 * 4 + 4


def program(*, make_number=False, wait=True, **change):
    """Eight rows from DDR, and one out of scratchpad; the numbers are an input, or stored by the program itself."""
    b = CodeBuilder()
    if make_number:
        b.add("memset", dst=B, value=3, n=16, s0=0, n0=1, s1=0, n1=1, s2=0, n2=1, fmt="i32")
        b.add("wdma", src=B, run_bytes=64, slot=1)
        if wait:
            b.add("wait")
    for k in range(8):
        row = {"run_bytes": 64, "stride": 64, "entries": 16, "index_slot": 1, "index_ddr": 4 * k, "fmt": "i32"}
        b.add("rdma_row", dst=A + 64 * k, slot=0, **{**row, **(change if k == 7 else {})})
    b.add("tdma_row", src0=A, dst=B, size=64, stride=64, entries=8, index_slot=1, index_ddr=0, fmt="i32")
    b.add("wdma", src=B, run_bytes=64, slot=2).finish()
    segment = make_segment(
        MACHINE, "s", [b.code(), isa.rows([isa.make("barrier")])], [0] + [1] * 15, [0, 1, 2], ops=["rows"]
    )
    numbers = Tensor("n", (16,), "i32", "i32", "dense", DDR_BASE + 4096, 64)
    return make_program(
        MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 4096, DDR_BASE + 8192])],
        inputs=[Tensor("x", (256,), "f32", "f32", "dense", DDR_BASE, 1024)] + [numbers] * (not make_number),
        outputs=[Tensor("y", (16,), "f32", "f32", "dense", DDR_BASE + 8192, 64)], ddr_bytes=1 << 14,
    )  # fmt: skip


def test_whole_programs_pass():
    verify(program())
    assert not findings(program()) and not findings(program(make_number=True))
    rows = simulate(program())
    # the queue holds 6 of 8 loads; each takes its startup, its run and 64 bytes through the port
    assert rows.cycles > 8 * (304 + 2)


@pytest.mark.parametrize(("change", "text"), [
    ({"index_slot": 3}, r"row numbers in a slot outside \[0, 3\)"),
    ({"index_slot": -1}, "index_slot -1 of a rdma_row"),
    ({"entries": 0}, "entries 0 of a rdma_row"),
    ({"stride": -64}, "stride -64 of a rdma_row"),
    ({"fmt": "f32"}, "format f32 of a .*, required i32 or u32"),
    ({"index_ddr": -4}, "index_ddr -4 of a rdma_row"),
    ({"entries": 1 << 24, "stride": 1 << 24}, "entries x stride of a rdma_row"),
    ({"entries": 17}, "outside 'x'"),
    ({"index_ddr": 64}, "outside 'n'"),
])  # fmt: skip
def test_the_verifier_names_what_is_wrong(change, text):
    with pytest.raises(ProgramError, match=text):
        verify(program(**change))


def by_kind(made):
    return {f.kind: f for f in findings(made)}


def test_the_core_reads_numbers_when_it_issues_the_row():
    """A store of the same engine's worker is not finished by then, unless the core has waited for it."""
    found = by_kind(program(make_number=True, wait=False))
    assert "no wait between them" in found["kernel core without wait"].text


def test_numbers_that_nobody_wrote_and_numbers_outside_ddr():
    late = by_kind(program(make_number=True, index_ddr=2048))
    assert "takes its row number from DDR bytes" in late["uninitialised read"].text
    far = by_kind(program(index_ddr=1 << 14))
    assert "reads its row number from DDR bytes" in far["DDR address"].text
