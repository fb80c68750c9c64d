"""How long tiles take to pass the parts of shared operands on to each other.

May import: lower, isa, machine, _kernels, simulator.network, tile. Must not: emit programs, choose plans.

All tiles of the machine are simulated from the moment at which they meet until all parts have arrived everywhere:
groups of tiles that exchange at the same time use the same links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast.lower.transfer import part_bytes
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.simulator import network
from tx8fast.tile.sharing import Groups, Loaders


class Meeting:
    """What exchanges of the same sets of tiles have in common: every row is one of `kinds`, and messages take the same
    ways."""

    def __init__(self, machine: Machine, masks: Sequence[int]) -> None:
        kinds = isa.rows([isa.make("send", src=0, dst=0, bytes=0, mask=0), isa.make("recv", monitor=0, bytes=0),
                          *[isa.make("barrier_sub", mask=mask) for mask in masks]])  # fmt: skip
        families = list(isa.by_family(kinds))
        self.kind = np.array([network.SEND, network.RECV] + [network.BARRIER_SUB] * len(masks), np.uint8)
        self.fixed, _ = isa.durations(machine, kinds, np.zeros(len(kinds), np.int64), families)
        self.fixed[0] = machine.dte.setup_hw
        self.issue = np.asarray(isa.issue_cycles(machine, kinds, families), np.int64)
        senders = [(t, i) for i, mask in enumerate(masks) for t in isa.comm.mask_tiles(mask)]
        self.routes = network.build_routes(network.grid(machine), masks, senders, machine.dte.engines,
                                           machine.noc.link_bytes, machine.noc.hop_cycles,
                                           write_rate=machine.dte.write_port_bytes)  # fmt: skip


class Exchange:
    """One exchange on all tiles: of which reads, by which groups and their loaders. masks: all of the groups, in order."""

    def __init__(self, machine: Machine, groups: tuple[Groups, ...], loaders: tuple[Loaders, ...], masks: Sequence[int],
                 meeting: Meeting) -> None:  # fmt: skip
        self.machine, self.groups, self.loaders = machine, groups, loaders
        self.masks, self.meeting = masks, meeting
        self.known: dict[tuple, int] = {}
        self.rows: dict[bool, tuple[EventInput, np.ndarray]] = {}

    def cycles(self, sizes: Sequence[int], meet: bool) -> int:
        """Return the cycles until every tile has slices of `sizes` bytes, read by read. meet: tiles meet before."""
        key = (meet, *sizes)
        if key not in self.known:
            self.known[key] = self._cycles(sizes, meet)
        return self.known[key]

    def _cycles(self, sizes: Sequence[int], meet: bool) -> int:
        if meet not in self.rows:
            self.rows[meet] = self._input(meet)
        events, (row, read, rank) = self.rows[meet]
        arg = events.arg
        assert arg is not None
        size = np.array(sizes, np.int64)
        part = np.array([part_bytes(n, tiles) for n, (_, tiles) in zip(sizes, self.loaders, strict=True)], np.int64)
        moved = np.where(rank < 0, size[read], np.clip(size[read] - rank * part[read], 0, part[read]))
        arg[:, 0] = 0
        np.add.at(arg[:, 0], row, moved)
        port = float(self.machine.dma.port_bytes)
        return simulate_events(events, QUEUE_DEPTH, port, self.machine.ddr_bytes_per_cycle).cycles

    def _input(self, meet: bool) -> tuple[EventInput, np.ndarray]:
        """Return the rows of all tiles, and what makes up their bytes (3, n): row, read, and the rank of the part that is
        sent, -1 for all that arrives."""
        masks, common = self.masks, self.meeting
        made: list[int] = []
        args: list[tuple[int, int, int]] = []
        bytes_at: list[tuple[int, int, int]] = []
        begin = [0]
        for tile in range(self.machine.n_tiles):
            mine = [next((mask for mask in g if mask >> tile & 1), 0) for g in self.groups]
            for mask in sorted(set(mine) - {0}) if meet else ():
                made.append(2 + masks.index(mask))
                args.append((0, masks.index(mask), 0))
            for k, mask in enumerate(mine):
                if mask:
                    first, count = self.loaders[k]
                    rank = (mask & ((1 << tile) - 1)).bit_count() - first
                    if not 0 <= rank < count:
                        continue
                    bytes_at.append((len(made), k, rank))
                    made.append(0)
                    args.append((0, masks.index(mask), 0))
            if any(mine):
                bytes_at += [(len(made), k, -1) for k, mask in enumerate(mine) if mask]
                made.append(1)
                args.append((0, 0, 0))
            begin.append(len(made))
        n, none = len(made), np.zeros((len(made), 2), np.int64)
        events = EventInput(
            kind=common.kind[made], issue=common.issue[made],
            spm_read=np.zeros((n, 4, 2), np.int64), spm_write=np.zeros((n, 2, 2), np.int64),
            code_begin=np.array(begin[:-1], np.int64), tile_begin=np.array(begin, np.int64), fixed=common.fixed[made],
            ddr_bytes=np.zeros(n, np.int64), ddr_read=none, ddr_write=none, arg=np.array(args, np.int64), routes=common.routes,
        )  # fmt: skip
        return events, np.array(bytes_at, np.int64).reshape(-1, 3).T


class Exchanges:
    """The exchanges of a machine, each made once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[tuple, Exchange] = {}
        self.meetings: dict[tuple[int, ...], Meeting] = {}

    def of(self, groups: tuple[Groups, ...], loaders: tuple[Loaders, ...]) -> Exchange:
        """Return the exchange of such groups."""
        key = groups, loaders
        if key not in self.known:
            masks = tuple(sorted({mask for g in groups for mask in g}))
            if masks not in self.meetings:
                self.meetings[masks] = Meeting(self.machine, masks)
            self.known[key] = Exchange(self.machine, groups, loaders, masks, self.meetings[masks])
        return self.known[key]


@lru_cache(maxsize=4)
def exchanges(machine: Machine) -> Exchanges:
    """Return what is known of a machine's exchanges."""
    return Exchanges(machine)


def hidden_setup(fixed: np.ndarray, ddr_bytes: np.ndarray, share: float, port: float) -> np.ndarray:
    """Return the cycles of transfers' setups (fixed) that cost nothing where half of the tiles set up while the other half
    loads: what a tile's share of the DDR, in bytes per cycle, loses meanwhile it gets back as far as its port lets it."""
    return np.minimum(fixed, ddr_bytes * (1 / share - 1 / port)).astype(np.int64)
