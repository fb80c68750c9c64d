"""Rows that involve other tiles: transfers of the DTE, partial barriers, handshakes.

May import: numpy, isa.base, isa.control. Must not: know which tile a row runs on, or keep any state.
Source: TX8 hardware manual 14, 16.6, 16.7. Tile sets are bit masks, bit t = tile t.

A send puts bytes into the scratchpads of other tiles and adds their number to a monitor there; a recv
takes them off again. Nothing orders a transfer against the engines: the sender waits for its engines
before the send and for the transfer (`send_wait`) before it reuses the source.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import Instruction, ceil_div, declare
from tx8fast.isa.control import Sync

N_MONITORS = 4
SEND, RECV = 0x380, 0x503


class Send(Instruction):
    """Copy `bytes` from `src` of this tile to `dst` of every tile of `mask`; each gains them on `monitor`.

    Asynchronous; `mask` may hold the tile itself. `dst` is an address in the other tiles' scratchpads.
    """

    UNIT = "dte"
    REGS = 6
    FIELDS_SPM = ("src", "dst")
    FIELDS_P = ("bytes", "mask", "monitor")
    DEFAULTS = {"monitor": 0}

    @staticmethod
    def cycles(machine, r):
        return machine.dte.setup_hw + ceil_div(r["p"][:, 0], machine.noc.link_bytes)

    @staticmethod
    def spans(r):
        size = r["p"][:, 0]
        return [(r["spm"][:, 0], size)], [(r["spm"][:, 1], size)]

    @staticmethod
    def run(state, fmt, rnd, spm, p, ddr):
        state.send(spm[0], spm[1], p[0], p[1], p[2])


class Recv(Sync):
    """Wait until `monitor` has gained `bytes` since it was last taken from, then take them off it."""

    FIELDS_P = ("monitor", "bytes")

    @staticmethod
    def cycles(machine, r):
        return np.zeros(len(r), np.int64)


class SendWait(Sync):
    """Wait until this tile's sends are done and their sources may be overwritten."""

    @staticmethod
    def cycles(machine, r):
        return np.zeros(len(r), np.int64)


class BarrierSub(Sync):
    """Wait until every tile of `mask` has arrived at a partial barrier of the same mask."""

    FIELDS_P = ("mask",)

    @staticmethod
    def cycles(machine, r):
        mask = r["p"][:, 0]
        hops = np.zeros(len(r), np.int64)
        for value in np.unique(mask).tolist():
            hops[mask == value] = mask_diameter(machine, value)
        return machine.sync.barrier_base + 2 * hops * machine.noc.hop_cycles


class Handshake(Sync):
    """Wait until tile `peer` does a handshake with this tile."""

    FIELDS_P = ("peer",)

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.sync.handshake, np.int64)


def mask_tiles(mask: int) -> list[int]:
    """Return the tiles of a bit mask, ascending."""
    return [t for t in range(max(mask, 0).bit_length()) if mask >> t & 1]


def mask_of(tiles) -> int:
    """Return the bit mask of tile numbers."""
    return sum(1 << t for t in sorted({int(t) for t in tiles}))


def mask_diameter(machine, mask: int) -> int:
    """Return the hops between opposite corners of the smallest rectangle that holds the tiles of `mask`."""
    tiles = np.array(mask_tiles(mask) or [0])
    y, x = np.divmod(tiles, machine.chip.tiles_x)
    return int(np.ptp(x) + np.ptp(y))


def message_cycles(machine, tile: int, mask: int, nbytes: int) -> int:
    """Return the time of one message on idle links, from the core's setup to the last arrival.

    >>> message_cycles(machine, 0, 0b10, 2048)  # one hop: 1320 + 100 + 8 + 16
    1444
    """
    x = machine.chip.tiles_x
    hops = max((abs(t % x - tile % x) + abs(t // x - tile // x) for t in mask_tiles(mask)), default=0)
    return (
        machine.dte.setup_sw
        + machine.dte.setup_hw
        + hops * machine.noc.hop_cycles
        + ceil_div(nbytes, machine.noc.link_bytes)
    )


declare(Send, SEND, "send")
declare(Recv, RECV, "recv")
declare(SendWait, 0x504, "send_wait")
declare(BarrierSub, 0x505, "barrier_sub")
declare(Handshake, 0x506, "handshake")
