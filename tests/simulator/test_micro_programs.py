"""Random programs of two engines on one tile: the event kernel against a clock that ticks cycle by cycle.

The clock below knows nothing but the rules of the hardware manual (2, 15, 16): a core that issues in order into queues, engines
that take their queue's head once no older row of the same worker is in its way, a DDR whose rate transfers share.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.event_rows import CT, NE, RDMA, TDMA, WAIT, WDMA, row, run

PORT, TOTAL, DEPTH = 32, 40, (2, 2, 3, 3, 2)
LONGEST = 20_000  # cycles; a program that takes longer is stuck


def meets(a, b):
    return any(x < v and u < y for x, y in a for u, v in b)


def in_the_way(old, new):
    """RAW, WAR, WAW in scratchpad, and in DDR between the transfer engines."""
    if old["worker"] != new["worker"]:
        return False
    spaces = ["spm"] + ["ddr"] * (old["kind"] in (RDMA, WDMA) and new["kind"] in (RDMA, WDMA))
    return any(
        meets(old[f"{s}_write"], new[f"{s}_read"])
        or meets(old[f"{s}_read"], new[f"{s}_write"])
        or meets(old[f"{s}_write"], new[f"{s}_write"])
        for s in spaces
    )


def tick(program):
    """Return start and end of every row."""
    n = len(program)
    start: list[Any] = [None] * n
    end: list[Any] = [None] * n
    left = {}  # bytes of rows in their data phase
    queues = {k: [] for k in range(5)}
    issued = []  # engine rows in program order
    pc, ready = 0, program[0]["issue"]  # the core has the row at pc in hand, and may let go of it from cycle `ready`
    for now in range(LONGEST):
        # transfers move during the cycle that ends now
        room = Fraction(1)
        while left and room:
            rate = min(Fraction(PORT), Fraction(TOTAL, len(left)))
            step = min(room, min(left.values()) / rate)
            room -= step
            left = {i: b - step * rate for i, b in left.items()}
            for i in [i for i, b in left.items() if not b]:
                del left[i]
                end[i] = now
        over = lambda i: end[i] is not None and end[i] <= now  # noqa: E731,B023
        again = True
        while again:
            again = False
            for queue in queues.values():
                if not queue:
                    continue
                i = queue[0]
                older = issued[: issued.index(i)]
                busy = any(program[j]["kind"] == program[i]["kind"] and not over(j) for j in older)
                if not busy and not any(in_the_way(program[j], program[i]) and not over(j) for j in older):
                    queue.pop(0)
                    start[i] = now
                    if not program[i]["ddr_bytes"]:
                        end[i] = now + program[i]["fixed"]
                    again = True
            if pc < n and now >= ready:
                r = program[pc]
                if r["kind"] == WAIT and all(over(i) for i in issued):
                    start[pc], end[pc] = now, now + r["fixed"]
                elif r["kind"] != WAIT and len(queues[r["kind"]]) < DEPTH[r["kind"]]:
                    queues[r["kind"]].append(pc)
                    issued.append(pc)
                else:
                    continue
                again, free = True, end[pc] if r["kind"] == WAIT else now
                pc += 1
                ready = free + (program[pc]["issue"] if pc < n else 0)
        for i in issued:
            if program[i]["ddr_bytes"] and start[i] is not None and now == start[i] + program[i]["fixed"]:
                left[i] = Fraction(program[i]["ddr_bytes"])
        if pc == n and all(over(i) for i in range(n)):
            return start, end
    raise AssertionError("the program does not end")


SPAN = st.tuples(st.integers(0, 12), st.integers(1, 5)).map(lambda x: (x[0], x[0] + x[1]))


@st.composite
def programs(draw):
    pair = draw(st.lists(st.sampled_from([CT, NE, RDMA, WDMA, TDMA]), min_size=2, max_size=2, unique=True))
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from([*pair, *pair, WAIT]))
        fixed, issue = draw(st.integers(1, 30)), draw(st.integers(1, 12))
        if kind == WAIT:
            rows.append(row(WAIT, fixed, issue, worker=0))
            continue
        reads, writes = draw(st.lists(SPAN, max_size=2)), draw(st.lists(SPAN, max_size=1))
        dma = kind in (RDMA, WDMA)
        ddr = (
            {"ddr_read" if kind == RDMA else "ddr_write": [draw(SPAN)], "ddr_bytes": draw(st.integers(1, 900))}
            if dma
            else {}
        )
        rows.append(row(kind, fixed, issue, read=reads, write=writes, worker=draw(st.integers(0, 1)), **ddr))
    return rows


@settings(max_examples=200, deadline=None)
@given(programs())
def test_kernel_and_clock_agree(program):
    found = run([program], port=float(PORT), total=float(TOTAL), depth=DEPTH)
    start, end = tick(program)
    assert found.start.tolist() == start and found.end.tolist() == end


def test_the_clock_itself():
    """A product behind its load, an addition beside it, and what a shared DDR does."""
    program = [
        row(RDMA, 10, 3, 320, write=[(0, 8)], ddr_read=[(0, 8)], worker=0),
        row(NE, 7, 2, read=[(0, 8)], write=[(8, 9)], worker=0),
        row(WDMA, 10, 4, 320, read=[(8, 9)], ddr_write=[(0, 8)], worker=1),
        row(WAIT, 5, 1, worker=0),
    ]
    # data of the load from 13, of the store from 19: 192 bytes at 32, then both at 20 until 25.4, then the store's rest at 32
    assert tick(program) == ([3, 26, 9, 33], [26, 33, 32, 38])
