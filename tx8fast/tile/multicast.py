"""Multicast: tiles that share operands load a part each and pass it on to all - its rows, and its time.

May import: lower.transfer, isa, machine, _kernels, tile.sharing. Must not: choose plans, know what is computed.

A *fill* changes shared operands. While the engines work on fill f, a tile prepares f + 1:

    its own parts of f + 1 are in staging       wait_worker (window LOADS), send_wait before staging is used again
    nobody reads fill f - 1 any more            wait_worker (that fill's window), then barrier_sub
    its parts go to all; all have arrived       send, recv

Messages of even and odd fills are counted by different monitors. The time from the meeting to the last arrival is found
by simulating all tiles of the machine: groups of tiles that exchange at the same time use the same links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast._kernels._facade_events import KIND_BARRIER_SUB, KIND_RECV, KIND_SEND
from tx8fast.lower.transfer import part_bytes
from tx8fast.machine import QUEUE_DEPTH, Machine, noc
from tx8fast.machine.topology import mask_tiles
from tx8fast.tile.sharing import Groups, Loaders

LOADS = 1  # register window of part loads
ENGINES = (0, 2)  # windows of even and odd fills, where each has one


def meet(masks: Iterable[int]) -> list[tuple]:
    """Return the rows in which a tile meets the others of every set of tiles."""
    return [isa.make("barrier_sub", mask=mask) for mask in sorted(set(masks))]


def send(staging: int, target: int, size_bytes: int, mask: int, fill: int) -> list[tuple]:
    """Return the row that passes a part on, from `staging` to `target` of all tiles in `mask`; none of an empty part or to nobody."""
    if not (size_bytes and mask):
        return []
    return [isa.make("send", src=staging, dst=target, bytes=size_bytes, mask=mask, monitor=fill % 2)]


def copies_own(machine: Machine) -> bool:
    """Whether a tile of a stream copies its own part instead of sending it to itself: where all that arrives shares a port."""
    return machine.dte.write_port_bytes > 0


def copy(staging: int, target: int, size_bytes: int) -> tuple:
    """Return the row that copies a tile's own part."""
    return isa.make("gather_scatter", src0=staging, dst=target, size=size_bytes)


def receive(fill: int, size_bytes: int) -> tuple:
    """Return the row that waits for all bytes of a fill."""
    return isa.make("recv", monitor=fill % 2, bytes=size_bytes)


class Meeting:
    """What exchanges of the same sets of tiles have in common: every row is one of `kinds`, and messages take the same
    ways."""

    def __init__(self, machine: Machine, masks: Sequence[int], copies: bool) -> None:
        kinds = isa.rows(
            [
                isa.make("send", src=0, dst=0, bytes=0, mask=0),
                isa.make("recv", monitor=0, bytes=0),
                *[isa.make("barrier_sub", mask=mask) for mask in masks],
            ]
        )
        families = list(isa.by_family(kinds))
        self.kind = np.array([KIND_SEND, KIND_RECV] + [KIND_BARRIER_SUB] * len(masks), np.uint8)
        self.fixed, _ = isa.durations(machine, kinds, np.zeros(len(kinds), np.int64), families)
        self.fixed[0] = machine.dte.setup_hw
        self.issue = np.asarray(isa.issue_cycles(machine, kinds, families), np.int64)
        senders = [(t, i) for i, mask in enumerate(masks) for t in mask_tiles(mask)]
        #: of a sender (tile, set): the set of tiles that its message goes to
        self.to = {sender: sender[1] for sender in senders}
        sets = list(masks)
        if copies:
            self.to = {(t, i): len(masks) + n for n, (t, i) in enumerate(senders)}
            sets += [masks[i] & ~(1 << t) for t, i in senders]
        ways = [(t, to) for (t, _), to in self.to.items() if sets[to]]
        self.routes = noc.build_routes(
            noc.grid(machine),
            sets,
            ways,
            machine.dte.engines,
            machine.noc.link_bytes,
            machine.noc.hop_cycles,
            write_rate=machine.dte.write_port_bytes,
        )


class Exchange:
    """One exchange on all tiles: of which reads, by which groups and their loaders. masks: all of the groups, in order."""

    def __init__(
        self,
        machine: Machine,
        groups: tuple[Groups, ...],
        loaders: tuple[Loaders, ...],
        masks: Sequence[int],
        meeting: Meeting,
        copies: bool,
    ) -> None:
        self.copies = copies
        self.machine, self.groups, self.loaders = machine, groups, loaders
        self.masks, self.meeting = masks, meeting
        self.known: dict[tuple, tuple[int, int]] = {}
        self.rows: dict[bool, tuple[EventInput, np.ndarray]] = {}

    def cycles(self, sizes: Sequence[int], meet: bool) -> int:
        """Return the cycles until every tile has slices of `sizes` bytes, read by read. meet: tiles meet before."""
        return self.times(sizes, meet)[1]

    def times(self, sizes: Sequence[int], meet: bool) -> tuple[int, int]:
        """Return the cycles until every tile's core has sent, and until every tile has slices of `sizes` bytes, read by read. meet:
        tiles meet before."""
        key = (meet, *sizes)
        if key not in self.known:
            self.known[key] = self._times(sizes, meet)
        return self.known[key]

    def _times(self, sizes: Sequence[int], meet: bool) -> tuple[int, int]:
        if meet not in self.rows:
            self.rows[meet] = self._input(meet)
        events, (row, read, rank, arrival) = self.rows[meet]
        arg = events.arg
        assert arg is not None
        size = np.array(sizes, np.int64)
        part = np.array([part_bytes(n, tiles) for n, (_, tiles) in zip(sizes, self.loaders, strict=True)], np.int64)
        own = np.clip(size[read] - np.maximum(rank, 0) * part[read], 0, part[read])
        moved = np.where(rank < 0, size[read], own)
        arg[:, 0] = 0
        np.add.at(arg[:, 0], row, moved)
        if self.copies:  # a tile's own parts do not arrive
            np.subtract.at(arg[:, 0], arrival[rank >= 0], own[rank >= 0])
        port = float(self.machine.dma.port_bytes)
        found = simulate_events(events, QUEUE_DEPTH, port, self.machine.ddr_bytes_per_cycle)
        return int(found.start[events.kind == KIND_SEND].max(initial=0)), found.cycles

    def _input(self, meet: bool) -> tuple[EventInput, np.ndarray]:
        """Return the rows of all tiles, and what makes up their bytes (4, n): row, read, the rank of the part that is
        sent, -1 for all that arrives, and the tile's row that waits for what arrives."""
        masks, common = self.masks, self.meeting
        made: list[int] = []
        args: list[tuple[int, int, int]] = []
        bytes_at: list[tuple[int, int, int]] = []
        begin = [0]
        arrival: list[int] = []  # of every row of a tile, the one that waits for what arrives
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
                    args.append((0, common.to[tile, masks.index(mask)], 0))
            if any(mine):
                bytes_at += [(len(made), k, -1) for k, mask in enumerate(mine) if mask]
                made.append(1)
                args.append((0, 0, 0))
            arrival += [len(made) - 1] * (len(made) - begin[-1])
            begin.append(len(made))
        n, none = len(made), np.zeros((len(made), 2), np.int64)
        events = EventInput(
            kind=common.kind[made],
            issue=common.issue[made],
            spm_read=np.zeros((n, 4, 2), np.int64),
            spm_write=np.zeros((n, 2, 2), np.int64),
            code_begin=np.array(begin[:-1], np.int64),
            tile_begin=np.array(begin, np.int64),
            fixed=common.fixed[made],
            ddr_bytes=np.zeros(n, np.int64),
            ddr_read=none,
            ddr_write=none,
            arg=np.array(args, np.int64),
            routes=common.routes,
        )
        rows = np.array([(at, k, rank, arrival[at]) for at, k, rank in bytes_at], np.int64)
        return events, rows.reshape(-1, 4).T


class Exchanges:
    """The exchanges of a machine, each made once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[tuple, Exchange] = {}
        self.meetings: dict[tuple[tuple[int, ...], bool], Meeting] = {}

    def of(self, groups: tuple[Groups, ...], loaders: tuple[Loaders, ...], copies: bool = False) -> Exchange:
        """Return the exchange of such groups. copies: tiles copy their own parts (`copies_own`)."""
        key = groups, loaders, copies
        if key not in self.known:
            masks = tuple(sorted({mask for g in groups for mask in g}))
            if (masks, copies) not in self.meetings:
                self.meetings[masks, copies] = Meeting(self.machine, masks, copies)
            self.known[key] = Exchange(self.machine, groups, loaders, masks, self.meetings[masks, copies], copies)
        return self.known[key]


@lru_cache(maxsize=4)
def exchanges(machine: Machine) -> Exchanges:
    """Return what is known of a machine's exchanges."""
    return Exchanges(machine)
