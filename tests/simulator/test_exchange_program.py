"""Programs whose tiles exchange data, through the verifier and both simulators."""

from __future__ import annotations

import json
from math import ceil

import numpy as np
import pytest
from support.piece_streams import piece_streams
from support.plain import plain_machine

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import mask_of, message_cycles
from tx8fast.machine import DDR_BASE, topology
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.io import load, save
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate, trace
from tx8fast.simulator.functional import FunctionalSimulator

MACHINE = plain_machine()
A, B, C = 0x10000, 0x80000, 0x100000
BARRIER, WAIT, ISSUE_SEND = 400 + 2 * 6 * 8, 180, 20 + 4 * 6 + 1320
OUT = DDR_BASE + (1 << 20)


def program(codes, tile_code=None, slots=0, ddr=None, out_step=0, in_step=0, **segment):
    """One segment, one launch; slot 0 begins at DDR_BASE, slot 1 at OUT, each tile a step further."""
    offset = np.zeros((16, slots), np.int64)
    for t in range(16):
        offset[t, :slots] = [t * in_step, t * out_step][:slots]
    made = make_segment(MACHINE, "s", codes, tile_code, list(range(slots)), offset, **segment)
    args = [DDR_BASE, OUT][:slots]
    return make_program(MACHINE, [made], [(0, args)], ddr_bytes=1 << 24)


def tiles(**codes):
    """Return codes and tile_code for t3=builder, ...; other tiles are idle."""
    which = [-1] * 16
    for i, name in enumerate(codes):
        which[int(name[1:])] = i
    return [b.code() for b in codes.values()], which


def fill(sim, nbytes, seed=0):
    data = np.random.default_rng(seed).integers(0, 256, nbytes).astype(np.uint8)
    sim.ddr.view(DDR_BASE, nbytes)[...] = data
    return data


def all_gather(size):
    """Every tile loads its piece and passes on what it got last, 15 times; then it stores all pieces."""
    ring = topology(4, 4).ring
    codes = [CodeBuilder() for _ in range(16)]
    for place, tile in enumerate(ring):
        b = codes[tile]
        mask = mask_of([ring[(place + 1) % 16]])
        b.add("rdma", dst=A + tile * size, run_bytes=size, slot=0).add("wait")
        for step in range(15):
            piece = A + ring[(place - step) % 16] * size
            b.add("send", src=piece, dst=piece, bytes=size, mask=mask, op=0)
            b.add("recv", monitor=0, bytes=size, op=0)
        b.add("wdma", src=A, run_bytes=16 * size, slot=1).finish()
    return program(
        [b.code() for b in codes],
        list(range(16)),
        2,
        in_step=size,
        out_step=16 * size,
        ops=["gather"],
    )


def test_ring_all_gather():
    size = 4096
    made = all_gather(size)
    verify(made)
    sim = FunctionalSimulator(made, debug=True)
    want = fill(sim, 16 * size)
    sim.run()
    assert sim.instructions_executed == 16 * (2 + 30 + 3)
    for t in range(16):
        assert np.array_equal(sim.ddr.view(OUT + t * 16 * size, 16 * size), want)
    load_time = 40 + 300 + 4 + ceil(16 * size / 150) + WAIT
    step = ISSUE_SEND + 100 + 8 + size // 128
    # a store of 16 pages opens no extra page beyond those its bytes fill
    store_time = 40 + 220 + 4 + ceil(16 * 16 * size / 150) + WAIT + BARRIER
    result = simulate(made)
    assert result.cycles == load_time + 15 * step + store_time
    assert result.noc_bytes == 16 * 15 * size
    for t in trace(made, 0):
        ends = t.end[t.rows["opcode"] == isa.INSTRUCTIONS["recv"].OPCODE]
        assert ends.tolist() == [load_time + step * (i + 1) for i in range(15)]


def test_broadcast_of_an_operand(tmp_path):
    size = 65536
    others = mask_of(range(1, 16))
    first = CodeBuilder().add("rdma", dst=A, run_bytes=size, slot=0).add("wait")
    first.add("send", src=A, dst=A, bytes=size, mask=others, monitor=2).add("send_wait")
    first.add("wdma", src=A, run_bytes=size, slot=1).finish()
    rest = CodeBuilder().add("recv", monitor=2, bytes=size)
    rest.add("wdma", src=A, run_bytes=size, slot=1).finish()
    made = program([first.code(), rest.code()], [0] + [1] * 15, 2, out_step=size)
    verify(made)
    save(made, tmp_path / "p.tx8")
    made = load(tmp_path / "p.tx8")
    sim = FunctionalSimulator(made)
    want = fill(sim, size)
    sim.run()
    for t in range(16):
        assert np.array_equal(sim.ddr.view(OUT + t * size, size), want)
    times = trace(made, 0)
    begin = times[0].end[1] + 44
    assert times[0].end[2] - begin == message_cycles(MACHINE, 0, others, size) == 1980
    for t in range(1, 16):
        assert times[t].end[0] - begin == message_cycles(MACHINE, 0, 1 << t, size)
    result = simulate(made)
    assert result.noc_bytes == 15 * size
    tree = json.loads(json.dumps(result.to_json()))
    assert tree["noc_bytes"] == 15 * size
    assert tree["utilisation"]["noc"] == pytest.approx(15 * size / (48 * 128 * result.cycles))
    assert result.busy["dte"] == 1980 - 1320
    assert tree["groups"][0]["noc_bytes"] == 15 * size


@pytest.mark.parametrize(
    ("dst", "size", "cycles"),
    [(1, 2048, 1444), (1, 8192, 1492), (1, 65536, 1940), (15, 65536, 1980)],
)
def test_message_costs(dst, size, cycles):
    one = CodeBuilder().add("send", src=A, dst=B, bytes=size, mask=1 << dst).add("send_wait")
    two = CodeBuilder().add("recv", monitor=0, bytes=size)
    codes, which = tiles(**{"t0": one.finish(), f"t{dst}": two.finish()})
    made = program(codes, which)
    verify(made)
    assert simulate(made).cycles == 44 + cycles + WAIT + BARRIER
    assert message_cycles(MACHINE, 0, 1 << dst, size) == cycles


@pytest.mark.parametrize(("group", "hops"), [([0, 1], 1), ([5, 6, 9, 10], 2), ([0, 15], 6), ([3], 0)])
def test_partial_barrier_costs_by_its_rectangle(group, hops):
    late = CodeBuilder().add("wait").add("wait").add("barrier_sub", mask=mask_of(group))
    early = CodeBuilder().add("wait").add("barrier_sub", mask=mask_of(group))
    codes, which = tiles(**{f"t{t}": late if t == group[0] else early for t in group})
    made = program(codes, which, barrier=False)
    verify(made)
    assert {int(t.end[-1]) for t in trace(made, 0) if len(t.rows)} == {2 * WAIT + 400 + 16 * hops}
    FunctionalSimulator(made).run()


def test_handshake_costs_by_distance():
    codes, which = tiles(
        t0=CodeBuilder().add("handshake", peer=15).finish(),
        t15=CodeBuilder().add("wait").add("handshake", peer=0).finish(),
    )
    made = program(codes, which)
    verify(made)
    assert simulate(made).cycles == WAIT + 120 + 6 * 8 + WAIT + BARRIER
    FunctionalSimulator(made).run()


def stuck_programs():
    """Return name -> (builders by tile, parts of the message)."""
    receive = CodeBuilder().add("recv", monitor=3, bytes=64, op=1)
    shake = [CodeBuilder().add("wait").add("handshake", peer=p, op=0) for p in (1, 2, 0)]
    few = CodeBuilder().add("recv", monitor=0, bytes=100)
    send = CodeBuilder().add("send", src=A, dst=A, bytes=64, mask=2)
    half = CodeBuilder().add("barrier_sub", mask=0b1001)
    return {
        "recv": ({"t5": receive}, ["tile 5, instruction 0 (recv) of op 'second'", "64 bytes on monitor 3, 0 have"]),
        "shakes": (
            dict(zip(("t0", "t1", "t2"), shake)),
            [f"tile {t}, instruction 1 (handshake) of op 'first' waits for a handshake with tile {(t + 1) % 3}"
             for t in range(3)],
        ),
        "few": ({"t0": send, "t1": few}, ["tile 1, instruction 0 (recv)", "100 bytes on monitor 0, 64 have arrived"]),
        "half": ({"t0": half}, ["tile 0, instruction 0 (barrier_sub)", "tiles [0, 3]"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["recv", "shakes", "few", "half"])
def test_deadlock_is_explained(name):
    builders, parts = stuck_programs()[name]
    codes, which = tiles(**builders)
    made = program(codes, which, barrier=False, ops=["first", "second"])
    for run in (lambda: FunctionalSimulator(made).run(), lambda: simulate(made)):
        with pytest.raises(SimulationError) as found:
            run()
        text = str(found.value)
        assert "no tile can go on" in text and "'s#0'" in text and "segment 's'" in text
        for part in parts:
            assert part in text


def test_messages_that_nobody_receives_are_an_error():
    codes, which = tiles(t0=CodeBuilder().add("send", src=A, dst=A, bytes=64, mask=6).finish(),
                         t1=CodeBuilder().add("recv", monitor=0, bytes=60).finish())  # fmt: skip
    made = program(codes, which)
    for run in (lambda: FunctionalSimulator(made).run(), lambda: simulate(made)):
        with pytest.raises(SimulationError) as found:
            run()
        assert "tile 1 monitor 0: 4 bytes" in str(found.value)
        assert "tile 2 monitor 0: 64 bytes" in str(found.value)


def test_remote_writes_stay_inside_the_scratchpad():
    codes, which = tiles(t0=CodeBuilder().add("send", src=A, dst=0x2EFFF0, bytes=64, mask=2),
                         t1=CodeBuilder().add("recv", monitor=0, bytes=64))  # fmt: skip
    with pytest.raises(SimulationError, match=r"instruction 0 \(send\): spm write"):
        FunctionalSimulator(program(codes, which, barrier=False)).run()
    codes[0]["spm"][0, 1] = A
    codes[0]["p"][0, 1] = 1 << 16
    for run in (lambda p: FunctionalSimulator(p).run(), simulate):
        with pytest.raises(SimulationError, match="tile"):
            run(program(codes, which, barrier=False))


def test_workers_order_nothing_between_them():
    size = 65536
    gemm = dict(left=A, right=B, out=C, m=8, k=64, n=64, fmt="bf16", out_fmt=3)

    def made(worker, join=()):
        b = CodeBuilder().add("rdma", dst=A, run_bytes=size, slot=0, worker=worker)
        for workers in join:
            b.add("wait_worker", workers=workers)
        b.add("gemm", **gemm).add("wdma", src=A, run_bytes=1024, slot=1).finish()
        codes, which = tiles(t0=b)
        return program(codes, which, 2)

    ordered, free, joined = made(0), made(1), made(1, [0b10])
    for p in (ordered, free, joined):
        verify(p)
        sim = FunctionalSimulator(p)
        want = fill(sim, size)
        sim.run()
        # rows take effect in program order, whatever the hardware would do
        assert np.array_equal(sim.ddr.view(OUT, 1024), want[:1024])
    t = trace(ordered, 0)[0]
    assert t.start[1] == t.end[0]
    t = trace(free, 0)[0]
    assert t.start[1] < t.end[0] and t.start[2] < t.end[0]
    t = trace(joined, 0)[0]
    assert t.end[1] == t.end[0] + WAIT and t.start[2] == t.end[1] + 84


def test_data_passes_a_barrier_through_ddr():
    """Tile 0 reads what tile 15 wrote before the barrier in the middle of the segment."""
    writer = CodeBuilder().add("rdma", dst=A, run_bytes=256, slot=0)
    writer.add("wdma", src=A, run_bytes=256, slot=1).finish().finish()
    reader = CodeBuilder().finish().add("rdma", dst=A, run_bytes=256, slot=1)
    reader.add("wdma", src=A, run_bytes=256, slot=1, ddr=4096).finish()
    codes, which = tiles(t15=writer, t0=reader)
    made = program(codes, which, 2)
    verify(made)
    sim = FunctionalSimulator(made)
    want = fill(sim, 256)
    sim.run()
    assert np.array_equal(sim.ddr.view(OUT + 4096, 256), want)


def test_loops_of_messages():
    """A loop streams pieces through two buffers."""
    one, two = piece_streams(A, B)
    codes, which = tiles(t0=one.finish(), t1=two.finish())
    made = program(codes, which, 2)
    verify(made)
    sim = FunctionalSimulator(made)
    want = fill(sim, 5 * 512)
    sim.run()
    assert np.array_equal(sim.ddr.view(OUT, 5 * 512), want)
    assert simulate(made).noc_bytes == 5 * 512
