"""The cycle simulator on hand-written programs: published costs, grouping, roofline."""

from __future__ import annotations

import json

import pytest
from support.plain import plain_machine

from tx8fast.errors import ProgramError, SimulationError
from tx8fast.machine import DDR_BASE
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.simulator.cycle import simulate, trace

MACHINE = plain_machine()
A, B, C, D = 0x10000, 0x60000, 0xA0000, 0x100000
KIB64 = 65536
BARRIER = 400 + 2 * 6 * 8


def gemm(b: CodeBuilder, **more):
    fields = dict(left=A, right=B, out=C, psum=0, bias=0, scale_p=0, m=256, k=512, n=256, fmt="bf16")
    return b.add("gemm", **{**fields, **more}, **_gemm_defaults())


def _gemm_defaults():
    """Fields of the instruction that the tests leave alone and that have no default of their own."""
    from tx8fast import isa
    from tx8fast.numerics.formats import FORMAT_CODES

    cls = isa.INSTRUCTIONS["gemm"]
    given = {"left", "right", "out", "psum", "bias", "scale_p", "m", "k", "n"}
    values = {f: 0 for f in cls.FIELDS_SPM + cls.FIELDS_P if f not in cls.DEFAULTS and f not in given}
    for f in ("batch_l", "batch_r"):
        values[f] = 1
    values["out_fmt"] = FORMAT_CODES["bf16"]
    return values


def one_segment(code, tile_code=None, slots=0, launches=(), **more):
    segment = make_segment(MACHINE, "s", [code], tile_code, list(range(slots)))
    return make_program(MACHINE, [segment], launches or [(0, [DDR_BASE] * slots)], **more)


def only(tile=0):
    return [0 if t == tile else -1 for t in range(16)]


def durations(program, serial=False):
    return [(t.end - t.start).tolist() for t in trace(program, 0, serial) if len(t.rows) > 1]


def test_published_costs():
    code = gemm(CodeBuilder()).finish().code()
    assert durations(one_segment(code))[0][0] == 8252
    load = CodeBuilder().add("rdma", dst=A, run_bytes=KIB64, slot=0).finish().code()
    assert durations(one_segment(load, only(3), slots=1))[0][0] == 2352
    everyone = durations(one_segment(load, slots=1))
    assert [d[0] for d in everyone] == [7295] * 16


def test_page_and_burst_position_cost():
    load = CodeBuilder().add("rdma", dst=A, run_bytes=KIB64, slot=0).finish().code()
    at = one_segment(load, only(), slots=1, launches=[(0, [DDR_BASE + 100])])
    # 100 bytes off: one page more (24) and, with 36 bytes of burst offset, 64 bytes more at 32 per cycle
    assert durations(at)[0][0] == 2352 + 24 + 2
    result = simulate(one_segment(load, only(), slots=1, launches=[(0, [DDR_BASE + i * 100]) for i in (0, 1, 0)]))
    assert [g.count for g in result.groups] == [2, 1]
    assert result.groups[1].cycles - result.groups[0].cycles == 26
    moved = one_segment(load, only(), slots=1, launches=[(0, [DDR_BASE + 4096 * i]) for i in range(9)])
    assert [g.count for g in simulate(moved).groups] == [9]


def test_load_multiply_store_is_ordered_in_both_modes():
    b = CodeBuilder().add("rdma", dst=A, run_bytes=KIB64, slot=0)
    gemm(b).add("wdma", src=C, run_bytes=KIB64, slot=1).finish()
    program = one_segment(b.code(), only(), slots=2, launches=[(0, [DDR_BASE, DDR_BASE + (1 << 18)])])
    for serial in (False, True):
        t = trace(program, 0, serial)[0]
        assert t.start[1] == t.end[0] and t.start[2] == t.end[1]
        assert t.start[3] == t.end[2]


def test_serial_is_never_faster_and_independent_work_overlaps():
    b = CodeBuilder()
    for _ in range(3):
        b.add("rdma", dst=D, run_bytes=KIB64, slot=0)
        gemm(b)
    program = one_segment(b.finish().code(), slots=1)
    parallel, serial = simulate(program), simulate(program, serial=True)
    assert parallel.cycles < serial.cycles
    tile = trace(program, 0)[0]
    assert tile.start[1] < tile.end[0]


def test_barrier_and_wait_cost():
    program = one_segment(CodeBuilder().finish().code())
    assert simulate(program).cycles == 180 + BARRIER
    idle = one_segment(CodeBuilder().finish().code(), only(7))
    assert simulate(idle).cycles == 180 + BARRIER


def test_routine_joins_the_engines_itself():
    k = MACHINE.kcore
    routine = k.routine_base + 1000 * k.load_cycles + 10 * k.function_cycles
    bare = gemm(CodeBuilder()).add("kcore", routine=0, loads=1000, functions=10).finish().code()
    waited = gemm(CodeBuilder()).add("wait").add("kcore", routine=0, loads=1000, functions=10).finish().code()
    first, second = (simulate(one_segment(code, only())) for code in (bare, waited))
    assert first.cycles == second.cycles
    issue = 20 + 4 * 16
    assert first.cycles == issue + 8252 + 180 + routine + 180 + BARRIER


def test_equal_launches_are_one_group_and_add_up():
    load = CodeBuilder().add("rdma", dst=A, run_bytes=KIB64, slot=0).finish().code()
    mult = gemm(CodeBuilder()).finish().code()
    segments = [
        make_segment(MACHINE, "load", [load], None, [0]),
        make_segment(MACHINE, "mult", [mult]),
    ]
    launches = [(0, [DDR_BASE + 8192 * i]) if i % 2 == 0 else (1, []) for i in range(10)]
    meta = {
        "useful_macs": 5 * 16 * 256 * 512 * 256,
        "unique_ddr_bytes": 5 * 16 * KIB64,
        "compute_dtype": "bf16",
    }
    result = simulate(make_program(MACHINE, segments, launches, meta=meta))
    assert [(g.name, g.count) for g in result.groups] == [("load#0", 5), ("mult#1", 5)]
    assert result.cycles == sum(g.cycles * g.count for g in result.groups)
    assert [g.bound for g in result.groups] == ["ddr", "ne"]
    assert result.bound_cycles == max(5 * 8192, 5 * 16 * KIB64 / 150)
    assert result.roofline_ratio == pytest.approx(result.bound_cycles / result.cycles)
    assert result.ddr_bytes == 5 * 16 * KIB64
    assert result.instructions == 10 * 16 * 3
    assert [start for _, _, start in result.timeline] == [
        i // 2 * sum(g.cycles for g in result.groups) + i % 2 * result.groups[0].cycles for i in range(10)
    ]


def test_counters_and_json():
    b = CodeBuilder()
    with b.loop(5):
        b.add("rdma", dst=A, run_bytes=4096, slot=0, ddr_step=(4096,))
        gemm(b)
    program = one_segment(b.finish().code(), slots=1, meta={"useful_macs": 1 << 30})
    result = simulate(program)
    assert result.busy["ne"] == 5 * 16 * 8252
    assert all(0 <= u <= 1 for u in result.utilisation.values())
    assert result.utilisation["ne"] == pytest.approx(5 * 8252 / result.cycles)
    tree = json.loads(json.dumps(result.to_json()))
    assert {"cycles", "seconds", "bound_cycles", "roofline_ratio", "utilisation", "ddr_bytes", "instructions",
            "groups"} <= set(tree)  # fmt: skip
    assert tree["seconds"] == result.cycles / 1e9
    assert 0 < tree["roofline_ratio"] <= 1


def test_segments_without_barrier_run_into_each_other():
    load = CodeBuilder().add("rdma", dst=D, run_bytes=KIB64, slot=0).code()
    mult = gemm(CodeBuilder()).finish().code()
    open_end = make_segment(MACHINE, "load", [load], only(), [0], barrier=False)
    closed = make_segment(MACHINE, "mult", [mult])
    joined = simulate(make_program(MACHINE, [open_end, closed], [(0, [DDR_BASE]), (1, [])] * 2))
    assert [(g.segments, g.count) for g in joined.groups] == [(("load", "mult"), 2)]
    # the load is hidden behind the product; only its issue time shows
    alone = simulate(make_program(MACHINE, [closed], [(0, [])])).cycles
    assert joined.groups[0].cycles == alone + 20 + 4 * 5


def test_overlapping_arguments_are_timed_apart():
    b = CodeBuilder().add("wdma", src=A, run_bytes=KIB64, slot=0).add("rdma", dst=D, run_bytes=KIB64, slot=1)
    code = b.finish().code()
    apart, same = [DDR_BASE, DDR_BASE + (1 << 18)], [DDR_BASE, DDR_BASE]
    result = simulate(one_segment(code, only(), slots=2, launches=[(0, apart), (0, same), (0, apart)]))
    assert [g.count for g in result.groups] == [2, 1]
    assert result.groups[1].cycles > result.groups[0].cycles + 1000


def test_bad_programs_are_refused():
    with pytest.raises(ProgramError, match="2 arguments, required 1"):
        simulate(one_segment(CodeBuilder().finish().code(), slots=1, launches=[(0, [1, 2])]))
    short = one_segment(CodeBuilder().finish().code(), [0] * 4)
    with pytest.raises(ProgramError, match="4 tiles"):
        simulate(short)
    stray = CodeBuilder().finish().code()
    stray["opcode"][0] = 0x5FF
    with pytest.raises((SimulationError, ProgramError)):
        simulate(one_segment(stray))
    for wrong in (-1, 10**400):
        with pytest.raises(ProgramError, match="useful_macs"):
            simulate(one_segment(CodeBuilder().finish().code(), meta={"useful_macs": wrong}))
