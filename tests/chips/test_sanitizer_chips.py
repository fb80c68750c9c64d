"""The sanitizer on several chips: races within a chip, messages across chips, values of each chip's own DDR."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import make_checkpoint

import tx8fast
from tests.chips.test_chip_programs import A, B, M, N, X, Y, program, swap
from tx8fast.api import CompiledProgram
from tx8fast.machine import DDR_BASE
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Argument, Program
from tx8fast.simulator.sanitizer_report import SanitizerError

FEED = {"x": np.arange(2 * N).reshape(2, N).astype(np.uint8)}


def found(made: Program) -> list:
    try:
        got = CompiledProgram(made).run(FEED, sanitize=True)
    except SanitizerError as error:
        return error.findings
    assert np.array_equal(got["y"], CompiledProgram(made).run(FEED)["y"])
    return []


def kinds(made: Program) -> set[str]:
    return {f.kind for f in found(made)}


def exchange(meet: bool = True, take: bool = True, early: bool = False) -> Program:
    """Both chips load, store what arrives, and use the landing place before they meet; `early`: read it before the recv."""
    out = []
    for chip in range(2):
        b = CodeBuilder().add("rdma", dst=A, run_bytes=N, slot=0).add("rdma", dst=B, run_bytes=N, slot=0)
        b.add("wdma", src=B, run_bytes=N, slot=1).add("wait")
        if meet:
            b.add("handshake", peer=0, chip=2 - chip)
        b.add("send", src=A, dst=B, bytes=N, mask=1, chip=2 - chip)
        if early:
            b.add("wdma", src=B, run_bytes=N, slot=1)
        if take:
            b.add("recv", monitor=0, bytes=N)
        if not early:
            b.add("wdma", src=B, run_bytes=N, slot=1)
        out += [b.add("send_wait").finish(), CodeBuilder().finish()]
    return program(out)


def test_good_exchanges_are_clean():
    assert not found(swap()) and not found(exchange())


def test_a_message_before_the_chips_have_met():
    assert "message into a buffer in use" in kinds(exchange(meet=False))


def test_a_message_across_chips_that_nobody_takes():
    assert "message not received" in kinds(exchange(take=False))


def test_a_read_where_a_message_of_another_chip_lands():
    assert "read before recv" in kinds(exchange(early=True))


def test_tiles_of_one_chip_race_and_those_of_two_do_not():
    def store() -> CodeBuilder:
        b = CodeBuilder().add("rdma", dst=A, run_bytes=N, slot=0)
        return b.add("wdma", src=A, run_bytes=N, slot=1).finish()

    idle = lambda: CodeBuilder().finish()  # noqa: E731
    assert not found(program([store(), idle(), store(), idle()]))
    races = found(program([idle(), idle(), store(), store()]))
    assert races[0].kind == "DDR race between tiles" and races[0].tile == 3


def test_each_chip_has_values_of_its_own():
    """Chip 1 alone reads what only chip 0 has written."""
    write = CodeBuilder().add("memset", dst=A, value=1, n=N, fmt="u8").add("wdma", src=A, run_bytes=N, slot=0).finish()
    read = CodeBuilder().add("rdma", dst=A, run_bytes=N, slot=0).add("wdma", src=A, run_bytes=N, slot=1).finish()
    idle = CodeBuilder().finish().code()

    def made(writers: list[int]) -> Program:
        first = make_segment(M, "first", [write.code(), idle], writers, [0, 1], np.zeros((4, 2), np.int64))
        second = make_segment(M, "second", [read.code(), idle], [0, 1, 0, 1], [0, 1], np.zeros((4, 2), np.int64))
        p = make_program(M, [first, second], [(0, [DDR_BASE + 4 * N, Y.address]), (1, [DDR_BASE + 4 * N, Y.address])], [X], [Y],
                         ddr_bytes=1 << 16)  # fmt: skip
        p.chips = (2, 1)
        return p

    assert not found(made([0, 1, 0, 1]))
    reads = found(made([0, 1, 1, 1]))
    assert reads[0].kind == "uninitialised read" and reads[0].tile == 2


def test_a_result_that_one_chip_does_not_store():
    made = swap()
    segment = made.segments[0]
    segment.arguments = [Argument("operand", (N,), "u8", "dense"), Argument("result", (N,), "u8", "dense")]
    assert not found(made)
    code = next(c for c in segment.codes if (c["opcode"] == 0x301).any())
    own = np.flatnonzero(segment.tile_code == next(k for k, c in enumerate(segment.codes) if c is code))
    segment.codes.append(code[code["opcode"] != 0x301])
    segment.tile_code = segment.tile_code.copy()
    segment.tile_code[own[-1]] = len(segment.codes) - 1
    assert {f.kind for f in found(replace(made))} >= {"incomplete result"}


@pytest.mark.parametrize("length", [{"phase": "prefill", "seq": 11}, {"phase": "decode", "past": 11}], ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.slow
def test_a_language_model_over_two_chips_reads_nothing_that_is_not_there(
    tmp_path: Path, dtype: str, length: dict
) -> None:
    """Sums of an odd number of rows: their images end in bytes that no chip writes."""
    make_checkpoint(tmp_path)
    made = tx8fast.compile(tmp_path, dtype=dtype, tp=2, **length)
    rng = np.random.default_rng(0)
    feed = {
        t.name: rng.integers(0, 5, t.shape)
        if t.dtype.startswith("i")
        else rng.uniform(-1, 1, t.shape).astype(np.float32)
        for t in made.inputs
    }
    watched, plain = made.run(feed, sanitize=True), made.run(feed)
    assert all(np.array_equal(watched[k], plain[k]) for k in plain)
