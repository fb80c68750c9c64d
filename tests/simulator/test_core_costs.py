"""What the kernel core does besides issuing: receives, waiting for messages, passes of loops, launches."""

from __future__ import annotations

import random
from typing import Any

import pytest
from simulator.recount import rows_of

from tx8fast import isa
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.timing import passes_before

ADD: dict[str, Any] = dict(src0=0x10000, src1=0x20000, dst=0x30000, n=64, fmt="bf16")


def simulated(keys, codes, tiles, launches=1):
    m = load_machine("test_2x2", {f"kcore.{k}": v for k, v in keys.items()})
    segment = make_segment(m, "s", codes, tiles, [0])
    return simulate(make_program(m, [segment], [(0, [DDR_BASE])] * launches))


def cycles(*args, **more):
    return simulated(*args, **more).cycles


def test_messages():
    one = CodeBuilder().add("send", src=0x10000, dst=0x10000, bytes=256, mask=2).add("send_wait").finish().code()
    two = CodeBuilder().add("recv", monitor=0, bytes=128).add("recv", monitor=0, bytes=128).finish().code()
    codes, tiles = [one, two, CodeBuilder().finish().code()], [0, 1, 2, 2]
    base = cycles({}, codes, tiles)
    assert cycles({"send_wait_cycles": 30}, codes, tiles) == base + 30
    assert cycles({"recv_cycles": 20}, codes, tiles) == base + 40


def test_loops():
    b = CodeBuilder()
    with b.loop(3):
        b.add("add_vv", **ADD)
        with b.loop(4):
            b.add("add_vv", **ADD)
    code = b.finish().code()
    idle = CodeBuilder().finish().code()
    tiles = [0, 1, 1, 1]
    base, found = (simulated({"loop_cycles": k}, [code, idle], tiles) for k in (0, 70))
    assert found.busy["issue"] == base.busy["issue"] + 70 * (3 + 3 * 4)
    assert base.cycles + 70 * 13 < found.cycles <= base.cycles + 70 * 15


def test_launches():
    code = CodeBuilder().add("add_vv", **ADD).finish().code()
    base = cycles({}, [code], [0, 0, 0, 0], launches=3)
    assert cycles({"launch_cycles": 500}, [code], [0, 0, 0, 0], launches=3) == base + 1500
    assert cycles({"launch_cycles": 500}, [code], [-1, 0, -1, -1]) == cycles({}, [code], [-1, 0, -1, -1]) + 500


@pytest.mark.parametrize("seed", range(20))
def test_passes_of_random_loops(seed):
    """As many passes as a walk through the loops counts, and at the same rows."""
    r = random.Random(seed)
    b, number = CodeBuilder(), iter(range(1, 1000))

    def body(depth):
        for _ in range(r.randint(1, 3)):
            if depth < 2 and r.random() < 0.5:
                with b.loop(r.randint(1, 3)):
                    body(depth + 1)
            else:
                b.add("add_vv", **{**ADD, "n": next(number)})

    body(0)
    code = b.code()
    found = passes_before(code)
    walked, passed = [], 0
    names = [isa.decode(row) for row in code]

    def walk(at, stop):
        nonlocal passed
        while at < stop:
            if names[at]["name"] != "loop":
                walked.append((names[at]["n"], passed))
                passed, at = 0, at + 1
                continue
            depth, end = 1, at
            while depth:
                end += 1
                depth += (names[end]["name"] == "loop") - (names[end]["name"] == "end")
            for _ in range(names[at]["count"]):
                walk(at + 1, end)
                passed += 1
            at = end + 1

    walk(0, len(code))
    assert found.tolist() == [n for _, n in walked]
    assert [row["n"] for row, _ in rows_of(code)] == [n for n, _ in walked]
