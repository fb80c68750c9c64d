"""Scattered and gathered messages through the verifier, both simulators and the sanitizer."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from test_exchange_program import ISSUE_SEND, MACHINE, OUT, WAIT, A, B, fill, program

from tx8fast.errors import ProgramError, SimulationError
from tx8fast.isa.comm import mask_of
from tx8fast.machine import DDR_BASE
from tx8fast.program.builder import CodeBuilder
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate, trace
from tx8fast.simulator.functional import FunctionalSimulator
from tx8fast.simulator.sanitizer import Sanitizer
from tx8fast.simulator.sanitizer_report import SanitizerError
from tx8fast.simulator.trace import write_trace


def all_to_all(size):
    """Every tile loads 16 parts and sends part t to tile t, itself included, at a place of its own there."""
    codes = []
    for tile in range(16):
        b = CodeBuilder().add("rdma", dst=A, run_bytes=16 * size, slot=0).add("wait").add("barrier")
        b.add("scatter", src=A, dst=B + tile * size, bytes=size, mask=0xFFFF).add("recv", monitor=0, bytes=16 * size)
        codes.append(b.add("send_wait").add("wdma", src=B, run_bytes=16 * size, slot=1).finish().code())
    return program(codes, list(range(16)), 2, in_step=16 * size, out_step=16 * size)


def sanitize(made, nbytes):
    watch = Sanitizer(made)
    sim = FunctionalSimulator(made, observer=watch)
    sim.store(DDR_BASE, np.arange(nbytes, dtype=np.int64).astype(np.uint8))
    try:
        watch.run(sim)
    except SanitizerError as error:
        return {f.kind for f in error.findings}
    return set()


def test_all_to_all():
    size = 256
    made = all_to_all(size)
    verify(made)
    sim = FunctionalSimulator(made, debug=True)
    data = fill(sim, 256 * size).reshape(16, 16, size)
    sim.run()
    assert np.array_equal(sim.ddr.view(OUT, 256 * size).reshape(16, 16, size), data.transpose(1, 0, 2))
    # every part crosses the links between its two tiles: 16 * 15 messages of 8 / 3 hops on average
    assert simulate(made).noc_bytes == size * 640
    assert sanitize(made, 256 * size) == set()
    file = io.BytesIO()
    write_trace(made, file, ".json")
    events = json.loads(file.getvalue())["traceEvents"]
    assert sum(e.get("name") == "s: scatter" for e in events) == 16


def test_a_scatter_costs_one_setup():
    size, mask = 1280, mask_of([1, 2, 3])
    first = CodeBuilder().add("rdma", dst=A, run_bytes=3 * size, slot=0).add("wait")
    first.add("scatter", src=A, dst=B, bytes=size, mask=mask, monitor=1).add("send_wait").finish()
    rest = CodeBuilder().add("recv", monitor=1, bytes=size).add("wdma", src=B, run_bytes=size, slot=1).finish()
    made = program([first.code(), rest.code()], [0, 1, 1, 1] + [-1] * 12, 2, out_step=size)
    verify(made)
    sim = FunctionalSimulator(made)
    data = fill(sim, 3 * size).reshape(3, size)
    sim.run()
    for k, t in enumerate((1, 2, 3)):
        assert np.array_equal(sim.ddr.view(OUT + t * size, size), data[k])
    times = trace(made, 0)
    begin = times[0].end[1] + ISSUE_SEND
    assert [int(times[t].end[0] - begin) for t in (1, 2, 3)] == [100 + (k + 1) * 10 + 8 * (k + 1) for k in range(3)]
    assert int(times[0].end[3] - begin) == 100 + 3 * 10 + 3 * 8
    assert sanitize(made, 3 * size) == set()


def column_gather(**change):
    """Tile 0 collects a column block of a 16 x 256 byte matrix for tile 5."""
    fields = dict(src=A + 64, dst=B, bytes=1024, mask=1 << 5, run_bytes=64, s0=256, n0=16) | change
    first = CodeBuilder().add("rdma", dst=A, run_bytes=4096, slot=0).add("wait")
    first.add("gather", **fields).add("send_wait").finish()
    rest = CodeBuilder().add("recv", monitor=0, bytes=1024).add("wdma", src=B, run_bytes=1024, slot=1).finish()
    return program([first.code(), rest.code()], [0] + [-1] * 4 + [1] + [-1] * 10, 2)


def test_gather_of_a_column_block():
    made = column_gather()
    verify(made)
    sim = FunctionalSimulator(made)
    data = fill(sim, 4096).reshape(16, 256)
    sim.run()
    assert np.array_equal(sim.ddr.view(OUT, 1024).reshape(16, 64), data[:, 64:128])
    times = trace(made, 0)
    # sixteen runs of half a link's width: as long as 2048 bytes
    assert int(times[5].end[0] - times[0].end[1]) == ISSUE_SEND + 100 + 16 + 2 * 8
    assert simulate(made).noc_bytes == 2 * 1024
    assert sanitize(made, 4096) == set()


def test_gather_that_does_not_add_up():
    for change, text in (({"n0": 15}, "do not add up"), ({"mask": 3 << 4}, "more than one tile")):
        made = column_gather(**change)
        with pytest.raises(ProgramError, match=text):
            verify(made)
        with pytest.raises(SimulationError, match="gather: found tiles"):
            FunctionalSimulator(made).run()


def test_scatter_to_tiles_or_bytes_that_do_not_exist():
    for fields, text in (
        ({"mask": 1 << 16}, r"mask 65536 of a scatter outside"),
        ({"mask": 3, "monitor": 4}, "monitor 4 of a scatter outside"),
        ({"mask": 0xFFFF, "bytes": 0x40000}, r"reads SPM \[0x10000, 0x410000\)"),
    ):
        b = CodeBuilder().add("scatter", **({"src": A, "dst": B, "bytes": 64} | fields)).add("send_wait").finish()
        made = program([b.code()], [0] + [-1] * 15)
        with pytest.raises(ProgramError, match=text):
            verify(made)
        with pytest.raises(SimulationError):
            FunctionalSimulator(made).run()


def test_planted_faults():
    """A scatter of bytes that are still being loaded; a gather's holes are no conflict, its runs are."""

    def racing(lo, wait):
        first = CodeBuilder().add("rdma", dst=A, run_bytes=4096, slot=0).add("wait")
        first.add("memset", dst=A + lo, n=64, fmt="u8", value=7)
        if wait:
            first.add("wait")
        first.add("gather", src=A + 64, dst=B, bytes=1024, mask=2, run_bytes=64, s0=256, n0=16).add(
            "send_wait"
        ).finish()
        rest = CodeBuilder().add("recv", monitor=0, bytes=1024).add("wdma", src=B, run_bytes=1024, slot=1).finish()
        made = program([first.code(), rest.code()], [0, 1] + [-1] * 14, 2)
        return sanitize(made, 4096)

    assert racing(64 + 256, wait=False) >= {"source not ready"}
    assert racing(64 + 256, wait=True) == set()
    assert "source not ready" not in racing(128 + 256, wait=False)
    made = all_to_all(256)
    segment = made.segments[0]
    for t, code in enumerate(segment.codes):
        segment.codes[t] = np.delete(code, [1, 2])  # the wait for the load, and the barrier
    assert sanitize(made, 65536) >= {"source not ready"}
    made = all_to_all(256)
    for code in made.segments[0].codes:
        code["p"][code["opcode"] == 0x381, 2] = 3
    assert sanitize(made, 65536) >= {"message not received"}


def test_scalar_unit_and_fence_take_the_core():
    b = CodeBuilder().add("scalar_sqrt", value=0x40800000, fmt="f32").add("fence").finish()
    made = program([b.code()], [0] + [-1] * 15)
    verify(made)
    sim = FunctionalSimulator(made)
    sim.run()
    assert sim.state_of(0).wb == (0x40000000, 0)
    times = trace(made, 0)[0]
    assert times.end.tolist()[:3] == [32 + 46, 32 + 46 + 20, 32 + 46 + 20 + WAIT]
    assert simulate(made).busy["kcore"] == 46 + 20
    assert sanitize(made, 64) == set()
    assert MACHINE.kcore.issue_base == 20
