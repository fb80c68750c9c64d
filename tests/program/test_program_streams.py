"""Channels between tiles: what a program's messages need, and for how long."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli_case import Caller
from tests.support.one_op import Arg, build
from tx8fast import isa
from tx8fast.machine import load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.io import save
from tx8fast.program.streams import streams
from tx8fast.program.verify import verify

MACHINE = load_machine("test_2x2")
A, B = MACHINE.spm_base, MACHINE.spm_base + 0x8000


def program():
    """Three kinds of segments: a loop of unicasts, one of every mode, and nothing between tiles; launched 1, 0, 2, 0."""
    first, second = CodeBuilder(), CodeBuilder()
    with first.loop(3):
        first.add("send", src=A, dst=B, bytes=64, mask=2)
    first.add("send", src=A, dst=B, bytes=256, mask=2).add("send_wait").finish()
    with second.loop(3):
        second.add("recv", monitor=0, bytes=64)
    second.add("recv", monitor=0, bytes=256).finish()
    ring = make_segment(MACHINE, "ring", [first.code(), second.code(), CodeBuilder().finish().code()], [0, 1, 2, 2])
    every = CodeBuilder().add("send", src=A, dst=B, bytes=64, mask=0b1110, monitor=1)
    every.add("scatter", src=A, dst=B, bytes=32, mask=0b1110, monitor=1)
    every.add("gather", src=A, dst=B, bytes=64, mask=0b10, monitor=1, run_bytes=16, s0=64, n0=4).add(
        "send_wait"
    ).finish()
    takes = [CodeBuilder().add("recv", monitor=1, bytes=n).finish().code() for n in (160, 96)]
    mixed = make_segment(MACHINE, "mixed", [every.code(), *takes], [0, 1, 2, 2])
    quiet = make_segment(MACHINE, "quiet", [CodeBuilder().finish().code()])
    return make_program(MACHINE, [ring, mixed, quiet], [(1, []), (0, []), (2, []), (0, [])])


def test_every_stream_is_listed_once():
    made = program()
    verify(made)
    got = [asdict(s) for s in streams(made)]
    once = {"packets": 1, "first": 0, "last": 0, "segments": ["mixed"]}
    assert got == [
        {"source": 0, "mode": "broadcast", "targets": [1, 2, 3], "monitor": 1, "packet_bytes": 64, "total_bytes": 64, **once},
        {"source": 0, "mode": "gather", "targets": [1], "monitor": 1, "packet_bytes": 64, "total_bytes": 64, **once},
        {"source": 0, "mode": "scatter", "targets": [1, 2, 3], "monitor": 1, "packet_bytes": 32, "total_bytes": 32, **once},
        {"source": 0, "mode": "unicast", "targets": [1], "monitor": 0, "packets": 8, "packet_bytes": 256,
         "total_bytes": 2 * (3 * 64 + 256), "first": 1, "last": 3, "segments": ["ring"]},
    ]  # fmt: skip


def test_compiled_exchange_is_what_monitors_receive():
    """All bytes that streams bring to a monitor are what the receives of that tile take off it."""
    args = [Arg((256, 1024), "bf16"), Arg((1024, 512), "bf16")]
    made = build(args, lambda b, x, w: b("gemm", b("relu", x), w), "test_2x2").program
    found = streams(made)
    assert found and all(0 <= s.first <= s.last < len(made.launches) and s.segments for s in found)
    brought = np.zeros((4, 4), np.int64)
    for s in found:
        brought[s.targets, s.monitor] += s.total_bytes
    taken = np.zeros((4, 4), np.int64)
    for launch in made.launches:
        segment = made.segments[launch.segment]
        for tile, c in enumerate(segment.tile_code.tolist()):
            for row in isa.expand(segment.codes[c]) if c >= 0 else ():
                f = isa.decode(row)
                if f["name"] == "recv":
                    taken[tile, f["monitor"]] += f["bytes"]
    assert np.array_equal(brought, taken) and brought.any()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tx8 = Caller(capsys)
    save(program(), tmp_path / "p.tx8")
    facts = json.loads(tx8("inspect", tmp_path / "p.tx8", "--streams", "--json").out)
    assert facts == {"streams": [asdict(s) for s in streams(program())]}
    text = tx8("inspect", tmp_path / "p.tx8", "--streams").out
    assert "broadcast" in text and "1 to 3" in text
