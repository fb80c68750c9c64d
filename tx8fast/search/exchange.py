"""How long tiles take to pass the parts of shared operands on to each other.

May import: lower, isa, machine, _kernels, simulator.network, search.plan. Must not: emit programs, choose plans.

All tiles of the machine are simulated from the moment at which they meet until all parts have arrived everywhere:
groups of tiles that exchange at the same time use the same links.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast.lower.base import Lowering
from tx8fast.machine import Machine
from tx8fast.search.plan import Plan, part_bytes
from tx8fast.simulator import network

QUEUE_DEPTH = (6, 6, 6, 6, 4)  # entries per engine queue (hardware manual 2)
#: the sets of tiles, as masks, that share one operand
Groups = tuple[int, ...]


def sharing_groups(low: Lowering, plan: Plan, k: int) -> Groups:
    """Return the sets of tiles that load read k together, that of tile 0 first."""
    own = low.reads[k].factors
    groups: dict[tuple, int] = {}
    for tile, point in enumerate(itertools.product(*map(range, plan.parts))):
        mine = tuple([x for f, x in enumerate(point) if f in own])
        groups[mine] = groups.get(mine, 0) | 1 << tile
    return tuple(groups.values())


class Exchange:
    """The rows of one exchange on all tiles: of which reads, by which groups, and whether the tiles meet before it."""

    def __init__(self, machine: Machine, groups: tuple[Groups, ...], meet: bool) -> None:
        self.machine = machine
        self.known: dict[tuple[int, ...], int] = {}
        masks = sorted({mask for g in groups for mask in g})
        # every row is one of these
        kinds = [isa.make("send", src=0, dst=0, bytes=0, mask=0), isa.make("recv", monitor=0, bytes=0),
                 *[isa.make("barrier_sub", mask=mask) for mask in masks]]  # fmt: skip
        made: list[int] = []
        args: list[tuple[int, int, int]] = []
        self.bytes_at: list[tuple[int, int, int, int]] = []  # row, read, rank, tiles: rank < 0 for the sum of all
        begin = [0]
        for tile in range(machine.n_tiles):
            mine = [next((mask for mask in g if mask >> tile & 1), 0) for g in groups]
            for mask in sorted(set(mine) - {0}) if meet else ():
                made.append(2 + masks.index(mask))
                args.append((0, masks.index(mask), 0))
            for k, mask in enumerate(mine):
                if mask:
                    rank = (mask & ((1 << tile) - 1)).bit_count()
                    self.bytes_at.append((len(made), k, rank, mask.bit_count()))
                    made.append(0)
                    args.append((0, masks.index(mask), 0))
            if any(mine):
                self.bytes_at += [(len(made), k, -1, 0) for k, mask in enumerate(mine) if mask]
                made.append(1)
                args.append((0, 0, 0))
            begin.append(len(made))
        rows = isa.rows(kinds)
        kind = np.array([network.SEND, network.RECV] + [network.BARRIER_SUB] * len(masks), np.uint8)
        fixed, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
        fixed[0] = machine.dte.setup_hw
        issue = np.asarray(isa.issue_cycles(machine, rows), np.int64)
        senders = [(t, masks.index(mask)) for g in groups for mask in g for t in isa.comm.mask_tiles(mask)]
        routes = network.build_routes(network.grid(machine), masks, senders, machine.dte.engines, machine.noc.link_bytes,
                                      machine.noc.hop_cycles)  # fmt: skip
        n, none = len(made), np.zeros((len(made), 2), np.int64)
        self.rows = EventInput(
            kind=kind[made], issue=issue[made],
            spm_read=np.zeros((n, 4, 2), np.int64), spm_write=np.zeros((n, 2, 2), np.int64),
            code_begin=np.array(begin[:-1], np.int64), tile_begin=np.array(begin, np.int64), fixed=fixed[made],
            ddr_bytes=np.zeros(n, np.int64), ddr_read=none, ddr_write=none, arg=np.array(args, np.int64), routes=routes,
        )  # fmt: skip

    def cycles(self, sizes: Sequence[int]) -> int:
        """Return the cycles until every tile has slices of `sizes` bytes, read by read."""
        key = tuple(sizes)
        if key not in self.known:
            self.known[key] = self._cycles(sizes)
        return self.known[key]

    def _cycles(self, sizes: Sequence[int]) -> int:
        arg = self.rows.arg
        assert arg is not None
        arg[:, 0] = 0
        for row, k, rank, tiles in self.bytes_at:
            part = part_bytes(sizes[k], tiles) if tiles else sizes[k]
            arg[row, 0] += max(0, min(part, sizes[k] - max(0, rank) * part))
        port = float(self.machine.dma.port_bytes)
        return simulate_events(self.rows, QUEUE_DEPTH, port, self.machine.ddr_bytes_per_cycle).cycles


class Exchanges:
    """The exchanges of a machine, each made once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[tuple[tuple[Groups, ...], bool], Exchange] = {}

    def of(self, groups: tuple[Groups, ...], meet: bool) -> Exchange:
        """Return the exchange of such groups."""
        if (groups, meet) not in self.known:
            self.known[groups, meet] = Exchange(self.machine, groups, meet)
        return self.known[groups, meet]


@lru_cache(maxsize=4)
def exchanges(machine: Machine) -> Exchanges:
    """Return what is known of a machine's exchanges."""
    return Exchanges(machine)
