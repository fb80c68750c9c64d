"""In which order a tile issues the instructions of a loop nest.

May import: isa, machine, _kernels. Must not: choose plans, know ops.

The nest's own order is right: every row finds what it reads. Any order that keeps, for every byte, writes and reads in turn is
as right, so list scheduling may let rows of later slices go first where an engine would wait. What both orders take is
measured on the event kernel, for one tile with its share of the DDR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, byte_dependences, list_order, simulate_events
from tx8fast.machine import QUEUE_DEPTH, Machine

ENGINES = len(QUEUE_DEPTH)
#: orders of instructions: that of the loop nest, list scheduling over the whole nest
POLICIES = ("nest", "free")
#: what a compilation may ask for: one of them, or per code the one that takes fewer cycles
ORDERS = (*POLICIES, "best")
MAX_ROWS = 1 << 15  # of one code; a longer one keeps the order of its nest
DDR = 1 << 40  # bytes of DDR stand behind all addresses of the scratchpad


@dataclass(frozen=True)
class Ordered:
    """Which policy ordered a code, and the cycles of those that were measured."""

    policy: str
    cycles: Mapping[str, int]


class TileOrder:
    """Orders the codes of one segment, and remembers how. share: DDR bytes per cycle of one tile."""

    def __init__(self, machine: Machine, wanted: str, share: float) -> None:
        self.machine, self.wanted, self.share = machine, wanted, share
        self.port = float(machine.dma.port_bytes)
        self.made: list[Ordered] = []

    def of(self, rows: np.ndarray, aliased: np.ndarray | None = None) -> np.ndarray:
        """Return the rows, none of which waits for anything, in the wanted order. aliased (slots,): where the bytes of a DDR
        slot begin, of slots of which one may be written while another is read; -1: bytes that nobody else has."""
        if self.wanted == "nest" or not 1 < len(rows) <= MAX_ROWS:
            self.made.append(Ordered("nest", {}))
            return rows
        costs = _Costs(self.machine, rows, aliased)
        found = {"nest": np.arange(len(rows)), "free": self._free(costs)}
        cycles = {policy: self._measured(costs, at) for policy, at in found.items()}
        best = min(POLICIES, key=cycles.__getitem__) if self.wanted == "best" else self.wanted
        self.made.append(Ordered(best, cycles))
        return rows[found[best]]

    def facts(self) -> dict[str, Any]:
        """Return the orders that the codes have, and what the slowest code takes in each order that was measured."""
        took = {policy: max((o.cycles.get(policy, 0) for o in self.made), default=0) for policy in POLICIES}
        return {"policy": sorted({o.policy for o in self.made}), "policy_cycles": {p: n for p, n in took.items() if n}}

    def scaled(self, cycles: int) -> int:
        """Return what an estimate for the nest's order, of the slowest tile, becomes with the orders that were chosen."""
        nest = max((o.cycles.get("nest", 0) for o in self.made), default=0)
        chosen = max((o.cycles.get(o.policy, 0) for o in self.made), default=0)
        return round(cycles * chosen / nest) if nest else cycles

    def _free(self, costs: _Costs) -> np.ndarray:
        rate = min(self.port, self.share)
        took = costs.fixed + np.ceil(costs.ddr_bytes / rate).astype(np.int64)
        before = byte_dependences(costs.read, costs.write)
        return list_order(costs.unit, costs.issue, took, before, QUEUE_DEPTH)[0]

    def _measured(self, costs: _Costs, order: np.ndarray) -> int:
        n, none = len(order), np.zeros((len(order), 2), np.int64)
        return simulate_events(EventInput(
            kind=costs.unit[order], issue=costs.issue[order], spm_read=costs.read[order], spm_write=costs.write[order],
            code_begin=np.zeros(1, np.int64), tile_begin=np.array([0, n], np.int64), fixed=costs.fixed[order],
            ddr_bytes=costs.ddr_bytes[order], ddr_read=none, ddr_write=none,
        ), QUEUE_DEPTH, self.port, self.share).cycles  # fmt: skip


class _Costs:
    """What rows take and touch. unit (n,) uint8; issue, fixed (n,) cycles; ddr_bytes (n,), moved at the rate that DDR and port
    leave; read (n, 4, 2), write (n, 2, 2): byte ranges in scratchpad, and behind it those of aliased DDR."""

    def __init__(self, machine: Machine, rows: np.ndarray, aliased: np.ndarray | None) -> None:
        families = list(isa.by_family(rows))
        fixed, charged = isa.durations(machine, rows, np.maximum(rows["ddr"], 0), families)
        self.unit = isa.units(rows).astype(np.uint8)
        self.issue = np.asarray(isa.issue_cycles(machine, rows, families), np.int64)
        self.fixed, self.ddr_bytes = np.asarray(fixed, np.int64), np.asarray(charged, np.int64)
        self.read, self.write = isa.spm_ranges(rows, families)
        if aliased is not None:
            base = np.where(rows["slot"] >= 0, aliased[rows["slot"]], -1)
            ddr = isa.ranges(rows, base + rows["ddr"])
            # loads read no scratchpad and stores write none: their last range is free
            for own, key in ((self.read, "ddr_read"), (self.write, "ddr_write")):
                own[:, -1] = np.where(
                    (base >= 0)[:, None] & (ddr[key] != 0).any(axis=1)[:, None], DDR + ddr[key], own[:, -1]
                )
