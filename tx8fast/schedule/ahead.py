"""Loads of a nest that are issued before the tiles meet at its begin, so that DDR is at work while the nest before computes and delivers.

May import: isa, machine, tile.{blocks, deliveries, pins}. Must not: choose plans, place buffers.

At a border every tile ends the nest before, meets the others, and sends what they get from it (`tile.deliveries`), if anything. What it loads
first for the next nest, weights as a rule, waits for none of that: such rows go behind the last transfer from DDR before the border, if the bytes that
they write are nobody's until the next nest. The border waits for all engines, so for them, too: where nothing is sent no more is loaded than the
rows behind that transfer leave time for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.tile.blocks import WINDOWS, Columns
from tx8fast.tile.deliveries import Deliveries
from tx8fast.tile.pins import Span, merged

_LOAD, _WAIT_WORKER, _WAIT, _SENT, _LOOP, _END = (
    isa.instruction(n).OPCODE for n in ("rdma", "wait_worker", "wait", "send_wait", "loop", "end")
)
_FROM_DDR, _TO_DDR = (
    tuple([c.OPCODE for c in isa.INSTRUCTIONS.values() if c.UNIT == unit]) for unit in ("rdma", "wdma")
)
MOST = QUEUE_DEPTH[isa.UNITS.index("rdma")]  # loads; of more the core would wait until the engine takes them


class Border(NamedTuple):
    """Between nests. sent: what tiles send each other; used: bytes of scratchpad (`used_bytes`); read (slots,): of the nests behind, those
    of tensors that nobody writes in this launch."""

    sent: Deliveries
    used: Sequence[Span]
    read: np.ndarray


def used_bytes(tables: Iterable[np.ndarray], made: Deliveries) -> list[Span]:
    """Return the bytes of scratchpad that nests with such buffer tables use, and what is delivered behind them."""
    used = {(at, at + size) for table in tables for at, size, _ in table.tolist()}
    return merged(used | {(m.target, m.target + m.size_bytes) for own in made for m in own})


def across(
    machine: Machine, border: Border, before: np.ndarray, behind: np.ndarray, slot: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a tile's rows of the nests before the border and of those behind it with what is loaded early. slot: the first DDR slot
    of those behind. A tile without work before the border waits for nothing there."""
    if not len(before):
        return before, behind
    early = first_loads(border, behind, slot)
    if not any(border.sent):
        last = before[_behind_loads(before) :]
        stores = np.isin(last["opcode"], _TO_DDR)
        free = _cycles(machine, last[~stores]).sum() - _cycles(machine, last[stores]).sum()
        early = early[np.cumsum(_cycles(machine, behind[early])) <= free]
    return with_loads(before, behind[early]), np.delete(behind, early)


def _cycles(machine: Machine, rows: np.ndarray) -> np.ndarray:
    """Return the cycles of rows, transfers at a tile's share of the DDR."""
    return Columns(machine, rows).took(machine.ddr_bytes_per_cycle / machine.n_tiles)


def first_loads(border: Border, rows: np.ndarray, slot: int) -> np.ndarray:
    """Return the places of the loads that need nothing of the nests behind the border: those before the first row that neither loads
    nor waits."""
    found: list[int] = []
    for n, opcode in enumerate(rows["opcode"].tolist()):
        if opcode in (_WAIT_WORKER, _WAIT, _SENT):
            continue
        if opcode != _LOAD or len(found) == MOST:
            break
        begin, end = isa.spm_ranges(rows[n : n + 1])[1][0, 0].tolist()
        if border.read[rows["slot"][n] - slot] and not any(lo < end and begin < hi for lo, hi in border.used):
            found.append(n)
    return np.array(found, np.int64)


def _behind_loads(rows: np.ndarray) -> int:
    """Return the place behind the last row that loads, and behind its loop."""
    opcode = rows["opcode"]
    at = int(np.flatnonzero(np.isin(opcode, _FROM_DDR)).max(initial=-1)) + 1
    depth = np.cumsum((opcode == _LOOP).astype(int) - (opcode == _END))
    while at and depth[at - 1]:
        at += 1
    return at


def with_loads(rows: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """Return the rows of the nest before with these loads behind its last one, in the worker that it waits for least from there on."""
    opcode, at = rows["opcode"], _behind_loads(rows)
    waited = rows["p"][at:, 0][opcode[at:] == _WAIT_WORKER]
    loads = loads.copy()
    loads["worker"] = min(range(WINDOWS), key=lambda w: (int((waited >> w & 1).sum()), -w))
    return np.concatenate([rows[:at], loads, rows[at:]])
