"""Programs of several chips put together by hand: messages, meetings, what the verifier and both simulators say of bad ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tx8fast.api import CompiledProgram
from tx8fast.errors import ProgramError, SimulationError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.io import load, save
from tx8fast.program.model import Tensor
from tx8fast.program.streams import streams
from tx8fast.program.verify import verify
from tx8fast.simulator.cycle import simulate, traces

M = load_machine("tx8", {"chip.tiles_x": 2, "chip.tiles_y": 1})
A, B, N = 0x10000, 0x20000, 4096
X = Tensor("x", (N,), "u8", "u8", "dense", DDR_BASE, N)
Y = replace(X, name="y", address=DDR_BASE + N)


def program(codes, chips=(2, 1)):
    """One segment of the builders' codes, one per tile of all chips; None: no code."""
    built = [b.code() for b in codes if b is not None]
    numbers = iter(range(len(built)))
    which = np.array([-1 if b is None else next(numbers) for b in codes], np.int32)
    segment = make_segment(M, "s", built, which, [0, 1], np.zeros((len(which), 2), np.int64))
    made = make_program(M, [segment], [(0, [X.address, Y.address])], [X], [Y], ddr_bytes=1 << 16)
    made.chips = chips
    return made


def swap():
    """Tile 0 of both chips loads, meets the other chip, sends, receives, stores."""
    out = []
    for chip in range(2):
        b = CodeBuilder().add("rdma", dst=A, run_bytes=N, slot=0).add("handshake", peer=0, chip=2 - chip).add("wait")
        b.add("send", src=A, dst=B, bytes=N, mask=1, chip=2 - chip).add("recv", monitor=0, bytes=N)
        b.add("wdma", src=B, run_bytes=N, slot=1).add("send_wait").finish()
        out += [b, CodeBuilder().finish()]
    return program(out)


def test_two_chips_swap_their_inputs(tmp_path):
    made = swap()
    verify(made)
    x = np.random.default_rng(0).integers(0, 256, (2, N)).astype(np.uint8)
    assert np.array_equal(CompiledProgram(made).run({"x": x})["y"], x[::-1])
    result = simulate(made)
    assert result.c2c_bytes == 2 * N
    assert result.utilisation["c2c"] == pytest.approx(N / 25 / result.cycles, rel=0.01)
    found = streams(made)
    assert [(s.source, s.targets, s.total_bytes) for s in found] == [(0, [2], N), (2, [0], N)]
    save(made, tmp_path / "p.tx8")
    again = load(tmp_path / "p.tx8")
    assert again.chips == (2, 1)
    assert simulate(again).to_json() == result.to_json()
    assert len(list(traces(made))[0].tiles) == M.n_tiles


def test_tiles_of_every_chip_exchange_among_themselves():
    """A segment that is the same on every chip: tile 0 loads, tile 1 stores what it gets."""
    a = CodeBuilder().add("rdma", dst=A, run_bytes=N, slot=0).add("wait").add("send", src=A, dst=B, bytes=N, mask=2)
    b = CodeBuilder().add("recv", monitor=0, bytes=N).add("wdma", src=B, run_bytes=N, slot=1)
    made = program([a.add("send_wait").finish(), b.finish()], chips=(3, 1))
    verify(made)
    x = np.random.default_rng(0).integers(0, 256, (3, N)).astype(np.uint8)
    assert np.array_equal(CompiledProgram(made).run({"x": x})["y"], x)
    assert simulate(made).c2c_bytes == 0
    far = program([CodeBuilder().add("send", src=A, dst=B, bytes=N, mask=2, chip=2).finish(), b], chips=(3, 1))
    with pytest.raises(ProgramError, match=r"chip 2 of a send outside \[0, 1\)"):
        verify(far)


def test_a_handshake_crosses_the_link():
    codes = [
        CodeBuilder().add("handshake", peer=0, chip=2).finish(),
        None,
        CodeBuilder().add("handshake", peer=0, chip=1).finish(),
        None,
    ]
    one = simulate(program(codes)).cycles
    codes = [
        CodeBuilder().add("handshake", peer=1).finish(),
        CodeBuilder().add("handshake", peer=0).finish(),
        None,
        None,
    ]
    other = simulate(program(codes)).cycles
    # tile 0 of the next chip is a hop in the mesh and the link away; on the own chip it is one hop
    assert one - other == M.c2c.latency


def test_chips_that_wait_for_each_other_are_told_apart():
    b = [CodeBuilder().add("recv", monitor=0, bytes=N), CodeBuilder().finish()]
    b[0].add("send", src=A, dst=B, bytes=N, mask=1, chip=2).add("send_wait").finish()
    c = [CodeBuilder().add("recv", monitor=0, bytes=N), CodeBuilder().finish()]
    c[0].add("send", src=A, dst=B, bytes=N, mask=1, chip=1).add("send_wait").finish()
    stuck = program([*b, *c])
    lines = (
        r"no tile can go on:\n  - .*chip 0 tile 0, instruction 0 \(recv\) waits for 4096 bytes on monitor 0, 0 have arrived"
        r"(\n.*)*chip 1 tile 0, instruction 0 \(recv\)"
    )
    with pytest.raises(SimulationError, match=lines):
        CompiledProgram(stuck).run({"x": np.zeros(N, np.uint8)})
    with pytest.raises(SimulationError, match=lines):
        simulate(stuck)
    shake = [
        CodeBuilder().add("handshake", peer=0, chip=2).finish(),
        CodeBuilder().finish(),
        CodeBuilder().finish(),
        CodeBuilder().finish(),
    ]
    lonely = program(shake)
    with pytest.raises(SimulationError, match=r"chip 0 tile 0.*waits for a handshake with tile 0 of chip 1"):
        CompiledProgram(lonely).run({"x": np.zeros(N, np.uint8)})
    with pytest.raises(SimulationError, match=r"chip 0 tile 0.*waits for a handshake with tile 0 of chip 1"):
        simulate(lonely)
    with pytest.raises(ProgramError, match="tile 0 does 1 handshakes with tile 2, which answers 0"):
        verify(lonely)


def test_bytes_that_nobody_receives():
    lost = [
        CodeBuilder().add("send", src=A, dst=B, bytes=N, mask=1, chip=2).add("send_wait").finish(),
        *[CodeBuilder().finish()] * 3,
    ]
    made = program(lost)
    for run in (simulate, lambda p: CompiledProgram(p).run({"x": np.zeros(N, np.uint8)})):
        with pytest.raises(
            SimulationError, match="chip 1 tile 0 monitor 0: 4096 bytes were sent to it and never received"
        ):
            run(made)
    with pytest.raises(ProgramError, match="tile 2 monitor 0: 4096 bytes are sent to it, 0 received"):
        verify(made)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"chip": 3}, r"chip 3 of a send outside \[0, 3\)"),
        ({"chip": 2, "mask": 3}, "a message to several tiles of another chip"),
    ],
)
def test_messages_that_cannot_be(rows, text):
    fields = {"src": A, "dst": B, "bytes": N, "mask": 1, **rows}
    made = program([CodeBuilder().add("send", **fields).add("send_wait").finish(), *[CodeBuilder().finish()] * 3])
    with pytest.raises(ProgramError, match=text):
        verify(made)
    with pytest.raises(SimulationError):
        simulate(made)


def test_shapes_of_code_and_files(tmp_path):
    made = swap()
    made.chips = (3, 1)
    with pytest.raises(ProgramError, match=r"tile_code has shape \(4,\), required \(2,\)"):
        verify(made)
    with pytest.raises(ProgramError, match="code for 4 tiles"):
        simulate(made)
    save(made, tmp_path / "p.tx8")
    made.chips = (0, 2)
    save(made, tmp_path / "q.tx8")
    with pytest.raises(ProgramError, match="a side of the chip grid is 0"):
        load(tmp_path / "q.tx8")
    with pytest.raises(SimulationError, match=r"input 'x' has shape \[3, 4096\], required \[4096\] or \[2, 4096\]"):
        CompiledProgram(swap()).run({"x": np.zeros((3, N), np.uint8)})


def test_partial_barriers_are_those_of_the_own_chip():
    b = lambda: CodeBuilder().add("barrier_sub", mask=3).finish()  # noqa: E731
    made = program([b(), b(), b(), b()])
    verify(made)
    CompiledProgram(made).run({"x": np.zeros(N, np.uint8)})
    assert simulate(made).cycles > 0
    alone = program([b(), CodeBuilder().finish(), b(), b()])
    with pytest.raises(ProgramError, match="tiles meet at partial barrier 0x3 differently often"):
        verify(alone)
