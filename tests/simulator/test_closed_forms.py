"""Times that can be written down: single rows and pairs, shared DDR, shared links, rings; and what must be conserved."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil

import numpy as np
import pytest
from event_rows import CT, MESH, NE, RDMA, RECV, SEND, TDMA, WDMA, row, run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exchange_program import BARRIER, ISSUE_SEND, MACHINE, OUT, WAIT, A, B, mask_of, program

from tests.support.one_op import Arg, build
from tx8fast import isa
from tx8fast.isa.comm import mask_tiles
from tx8fast.machine import DDR_BASE, topology
from tx8fast.program.builder import CodeBuilder
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate, trace
from tx8fast.simulator.functional import FunctionalSimulator

C = 0x100000
#: fields with which every engine instruction is legal
COMMON = dict(n=128, unit=64, full=128, full_unit=64, h=4, w=4, c=8, dim=0, size1=4, oh=2, ow=2, oc=8, kx=2, ky=2, sx=2, sy=2,
              m=8, k=16, size=64, run_bytes=4096, entries=64, out_fmt=3)  # fmt: skip
SMALL_N = ("reduce", "pool", "unpool", "mask_unpool", "conv", "depthwise", "backward_conv", "mirror", "transpose", "rotate",
           "nchw", "nhwc", "pad", "tensor_norm", "img2col", "concat", "bilinear")  # fmt: skip


def test_every_engine_instruction_alone_takes_its_formula():
    for name, cls in isa.INSTRUCTIONS.items():
        if cls.UNIT not in ("ct", "ne", "tdma", "rdma", "wdma"):
            continue
        names = cls.FIELDS_SPM + cls.FIELDS_P
        f = {k: COMMON.get(k, 0) for k in names if k not in cls.DEFAULTS}
        f |= {k: A + 0x10000 * i for i, k in enumerate(k for k in cls.FIELDS_SPM if k in f)}
        f |= {"n": 1} if "n" in f and name.startswith(SMALL_N) else {}
        if cls.UNIT in ("rdma", "wdma"):
            f["slot"] = 0
        fmt = "i64" if issubclass(cls, isa.lookup.Lookup) else "bf16"
        made = program([CodeBuilder().add(name, fmt=fmt, **f).finish().code()], [0] + [-1] * 15, 1)
        rows = made.segments[0].codes[0]
        cycles, ddr_bytes = isa.durations(MACHINE, rows[:1], np.array([DDR_BASE]))
        times = trace(made, 0)[0]
        issue = int(isa.issue_cycles(MACHINE, rows[:1])[0])
        assert times.start[0] == issue, name
        assert times.end[0] - times.start[0] == cycles[0] + ceil(int(ddr_bytes[0]) / 32) > 0, name
        # the wait behind it: the core is free after the issue, the wait ends 180 cycles behind the engine
        assert times.end[1] == times.end[0] + WAIT, name


@pytest.mark.parametrize(("first", "second"), list(product((CT, NE, RDMA, WDMA, TDMA), repeat=2)))
def test_pairs_at_the_cycle(first, second):
    """A dependent row that is ready one cycle before, at, and one cycle after the end of the older one."""
    length, span = 100, (0, 64)
    for ready, (a, b) in product((99, 100, 101), (("write", "read"), ("read", "write"), ("write", "write"))):
        rows = [row(first, fixed=length, issue=0, **{a: [span]}), row(second, fixed=7, issue=ready, **{b: [span]})]
        got = run([rows])
        assert got.start.tolist() == [0, max(ready, length)]
        rows[1] |= {"spm_read": [], "spm_write": [], f"spm_{b}": [(64, 128)]}
        got = run([rows])
        assert got.start[1] == (max(ready, length) if first == second else ready)
        assert run([rows], serial=True).start[1] == max(ready, length)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=16), st.sampled_from([(32, 150), (10, 40), (7, 9)]))
def test_k_unequal_transfers_share_the_ddr(sizes, rates):
    """Between two ends all that are left move equally fast: the shortest ends first, then the next with one less."""
    port, total = rates
    want, now, sent = {}, Fraction(0), 0
    order = sorted(range(len(sizes)), key=lambda t: sizes[t])
    for k, t in enumerate(order):
        rate = min(Fraction(port), Fraction(total, len(sizes) - k))
        now += (sizes[t] - sent) / rate
        sent = sizes[t]
        want[t] = ceil(now)
    got = run([[row(RDMA, issue=0, ddr_bytes=n)] for n in sizes], port=float(port), total=float(total))
    assert got.end.tolist() == [want[t] for t in range(len(sizes))]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_all_messages_of_a_column_meet_at_its_last_link(k):
    """Tiles 4, 8, 12 send up to tile 0 at once: its link carries one after the other, the nearest first."""
    nbytes, c = 12800, 100
    tiles: list[list] = [[] for _ in range(16)]
    for i in range(1, k + 1):
        tiles[4 * i].append(row(SEND, fixed=100, issue=10, bytes=nbytes, tiles=[0], monitor=0))
        tiles[0].append(row(RECV, issue=0, bytes=nbytes, monitor=0))
    got = run(tiles, mesh=MESH)
    assert got.end[:k].tolist() == [10 + 100 + 8 + c * (i + 1) for i in range(k)]
    assert got.link_bytes.max() == k * nbytes


def all_reduce(size):
    """Tile's vectors of 16 parts are added up round the ring: 15 steps that add, 15 that pass on the sums."""
    ring = topology(4, 4).ring
    n = size // 4
    codes = [CodeBuilder() for _ in range(16)]
    for place, tile in enumerate(ring):
        b = codes[tile].add("rdma", dst=A, run_bytes=16 * size, slot=0).add("wait").add("barrier")
        mask, after = mask_of([ring[(place + 1) % 16]]), ring[(place + 1) % 16]
        for step in range(15):
            # two landing places take turns; the neighbour's handshake frees one again
            b.add("send", src=A + (place - step) % 16 * size, dst=B + step % 2 * size, bytes=size, mask=mask)
            b.add("recv", monitor=0, bytes=size)
            b.add("add_vv", src0=A + (place - step - 1) % 16 * size, src1=B + step % 2 * size,
                  dst=A + (place - step - 1) % 16 * size, n=n, fmt="f32").add("wait")  # fmt: skip
            b.add("barrier")
        for step in range(15):
            at = A + (place + 1 - step) % 16 * size
            b.add("send", src=at, dst=at, bytes=size, mask=mask, monitor=1).add("recv", monitor=1, bytes=size)
        assert after != tile
        b.add("send_wait").add("wdma", src=A, run_bytes=16 * size, slot=1).finish()
    return program([b.code() for b in codes], list(range(16)), 2, in_step=16 * size, out_step=16 * size)


def test_ring_all_reduce():
    size = 4096
    made = all_reduce(size)
    verify(made)
    sim = FunctionalSimulator(made, debug=True)
    x = np.random.default_rng(0).integers(-9, 9, (16, 16, size // 4)).astype(np.float32)
    sim.ddr.view(DDR_BASE, x.nbytes)[...] = x.reshape(-1).view(np.uint8)
    sim.run()
    got = sim.ddr.view(OUT, x.nbytes).view(np.float32).reshape(x.shape)
    assert np.array_equal(got, np.broadcast_to(x.sum(axis=0), x.shape))
    message = ISSUE_SEND + 100 + 8 + size // 128
    add = 20 + 4 * 6 + 45 + size // 128 + WAIT
    load = 40 + 300 + 4 + ceil(16 * 16 * size / 150) + WAIT + BARRIER
    store = 40 + 220 + 4 + ceil(16 * 16 * size / 150) + WAIT + BARRIER
    result = simulate(made)
    assert result.cycles == load + 15 * (message + add + BARRIER) + 15 * message + store
    # every part crosses 15 links twice
    assert result.noc_bytes == 2 * 15 * 16 * size


def ddr_and_link_bytes(made):
    """Add up run by run what every tile moves in every launch: whole bursts of DDR, and messages times links."""
    grid, ddr, links = topology(made.machine["chip"]["tiles_x"], made.machine["chip"]["tiles_y"]), 0, 0
    for launch in made.launches:
        segment = made.segments[launch.segment]
        for tile, c in enumerate(segment.tile_code.tolist()):
            for r in isa.expand(segment.codes[c]) if c >= 0 else ():
                f = isa.decode(r)
                if f["engine"] in ("rdma", "wdma"):
                    base = (
                        int(launch.args[segment.slot_arg[f["slot"]]] + segment.tile_offset[tile][f["slot"]]) + f["ddr"]
                    )
                    runs = f["n0"] * f["n1"] * f["n2"]
                    ddr += runs * (ceil((f["run_bytes"] + base % 64) / 64) * 64)
                elif f["engine"] == "dte":
                    path = [link for t in mask_tiles(f["mask"]) for link in grid.links(tile, t)]
                    links += f["bytes"] * len(path if f["name"] == "scatter" else set(path))
    return ddr, links


@pytest.mark.parametrize("case", ["shared", "chain", "all reduce"])
def test_bytes_over_ddr_and_links_are_the_programs(case):
    if case == "all reduce":
        made = all_reduce(1024)
    elif case == "shared":
        args = [Arg((256, 1024), "bf16"), Arg((1024, 512), "bf16")]
        made = build(args, lambda b, x, w: b("gemm", b("relu", x), w), "test_2x2").program
    else:
        args = [Arg((64, 96), "bf16"), Arg((96, 130), "bf16")]
        made = build(args, lambda b, x, w: b("softmax", b("gemm", x, w), axis=1)).program
    result = simulate(made)
    assert (result.ddr_bytes, result.noc_bytes) == ddr_and_link_bytes(made)
    assert (result.noc_bytes > 0) == (case != "chain")
    for serial in (False, True):
        again = simulate(made, serial=serial)
        assert (again.ddr_bytes, again.noc_bytes) == (result.ddr_bytes, result.noc_bytes)
        assert again.cycles >= result.cycles
