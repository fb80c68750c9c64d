"""Rows that involve other tiles: transfers of the DTE, partial barriers, handshakes.

May import: numpy, errors, isa.base, isa.control, isa.strided. Must not: know which tile a row runs on, or keep any state.
Source: TX8 hardware manual 4.3, 14, 16.6, 16.7. Tile sets are bit masks, bit t = tile t. Where a row can name another
chip, field `chip` is 0 for the tile's own chip and c + 1 for chip c.

A message puts bytes into the scratchpads of other tiles and adds their number to a monitor there; a recv
takes them off again. Nothing orders a transfer against the engines: the sender waits for its engines
before the send and for the transfer (`send_wait`) before it reuses the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import floordiv, mod
from typing import ClassVar

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.base import Instruction, ceil_div, declare
from tx8fast.isa.control import Sync
from tx8fast.isa.strided import LEVEL_DEFAULTS, LEVELS, envelope
from tx8fast.machine.topology import mask_tiles

N_MONITORS = 4
RECV = 0x503


class Message(Instruction):
    """What all transfers share: every tile of `mask` gains `bytes` at its address `dst` and on its `monitor`.

    Asynchronous; `mask` may hold the tile itself. `dst` is an address in the other tiles' scratchpads.
    """

    UNIT = "dte"
    REGS = 6
    FIELDS_SPM = ("src", "dst")
    FIELDS_P = ("bytes", "mask", "monitor")
    DEFAULTS = {"monitor": 0}
    SCATTERS = False  # every tile gets other bytes

    @staticmethod
    def alignment(r):
        return 1

    @staticmethod
    def setup(machine, r):
        """Return the cycles from the engine's start to the first byte on a link."""
        return np.full(len(r), machine.dte.setup_hw, np.int64)

    @staticmethod
    def source(r):
        """Return the bytes from the first to the last byte of the source."""
        return r["p"][:, 0]

    #: memory, src, p -> (tile, bytes it gets) for an array with one entry per byte of the sender's scratchpad
    pieces: ClassVar[Callable[[np.ndarray, int, Sequence[int]], list[tuple[int, np.ndarray]]]]


class Send(Message):
    """Copy `bytes` from `src` to every tile of `mask`: unicast for one tile, broadcast for several.

    A message to another chip has one destination.
    """

    FIELDS_P = ("bytes", "mask", "monitor", "chip")
    DEFAULTS = {"monitor": 0, "chip": 0}

    @staticmethod
    def cycles(machine, r):
        return Message.setup(machine, r) + ceil_div(r["p"][:, 0], machine.noc.link_bytes)

    @staticmethod
    def spans(r):
        return _message_spans(Send, r)

    @staticmethod
    def pieces(memory, src, p):
        data = memory[src : src + p[0]].copy()
        return [(t, data) for t in mask_tiles(p[1])]


class Scatter(Message):
    """Cut the source into parts of `bytes`; the tiles of `mask`, ascending, get one each, one after the other."""

    SCATTERS = True

    @staticmethod
    def cycles(machine, r):
        return Message.setup(machine, r) + _tiles(r) * ceil_div(r["p"][:, 0], machine.noc.link_bytes)

    @staticmethod
    def source(r):
        return r["p"][:, 0] * _tiles(r)

    @staticmethod
    def spans(r):
        return _message_spans(Scatter, r)

    @staticmethod
    def pieces(memory, src, p):
        n = p[0]
        return [(t, memory[src + k * n : src + (k + 1) * n].copy()) for k, t in enumerate(mask_tiles(p[1]))]


class Gather(Message):
    """Collect runs of `run_bytes` (byte strides and counts as in DMA, level 0 innermost) for the one tile of `mask`.

    `bytes` is what they add up to. A run of less than a link's width takes a cycle of its own [assumed].
    """

    FIELDS_P = ("bytes", "mask", "monitor", "run_bytes", *LEVELS)
    DEFAULTS = {"monitor": 0, **LEVEL_DEFAULTS}

    @staticmethod
    def setup(machine, r):
        p, rate = r["p"], machine.noc.link_bytes
        runs = p[:, 5] * p[:, 7] * p[:, 9]
        return Message.setup(machine, r) + runs * ceil_div(p[:, 3], rate) - ceil_div(p[:, 0], rate)

    @staticmethod
    def cycles(machine, r):
        return Gather.setup(machine, r) + ceil_div(r["p"][:, 0], machine.noc.link_bytes)

    @staticmethod
    def source(r):
        return envelope(r["p"][:, 3], r["p"][:, 4:10].T)

    @staticmethod
    def spans(r):
        return _message_spans(Gather, r)

    @staticmethod
    def pieces(memory, src, p):
        total, mask, size = p[0], p[1], p[3]
        s0, n0, s1, n1, s2, n2 = p[4:10]
        tiles = mask_tiles(mask)
        if len(tiles) != 1 or size * n0 * n1 * n2 != total:
            raise SimulationError(
                f"gather: found tiles {tiles} and {n0} x {n1} x {n2} runs of {size} bytes for {total} bytes; "
                "required one tile and equally many bytes"
            )
        e = memory.itemsize
        runs = np.ndarray((n2, n1, n0, size), memory.dtype, memory, src * e, (s2 * e, s1 * e, s0 * e, e))
        return [(tiles[0], runs.reshape(-1).copy())]


def _message_spans(cls: type[Message], r):
    return [(r["spm"][:, 0], cls.source(r))], [(r["spm"][:, 1], r["p"][:, 0])]


def _tiles(r):
    """Return the number of tiles in each row's mask."""
    return np.bitwise_count(np.maximum(r["p"][:, 1], 0)).astype(np.int64)


class Recv(Sync):
    """Wait until `monitor` has gained `bytes` since it was last taken from, then take them off it."""

    FIELDS_P = ("monitor", "bytes")

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.kcore.recv_cycles, np.int64)


class SendWait(Sync):
    """Wait until this tile's sends are done and their sources may be overwritten."""

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.kcore.send_wait_cycles, np.int64)


class BarrierSub(Sync):
    """Wait until every tile of `mask` has arrived at a partial barrier of the same mask."""

    FIELDS_P = ("mask",)

    @staticmethod
    def cycles(machine, r):
        mask = r["p"][:, 0]
        hops = np.zeros(len(r), np.int64)
        for value in sorted(set(mask.tolist())):
            hops[mask == value] = mask_diameter(machine, value)
        return machine.sync.barrier_base + 2 * hops * machine.noc.hop_cycles


class Handshake(Sync):
    """Wait until tile `peer` (of `chip`) does a handshake with this tile."""

    FIELDS_P = ("peer", "chip")
    DEFAULTS = {"chip": 0}

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.sync.handshake, np.int64)


def mask_of(tiles) -> int:
    """Return the bit mask of tile numbers."""
    return sum(1 << t for t in sorted({int(t) for t in tiles}))


def mask_diameter(machine, mask: int) -> int:
    """Return the hops between opposite corners of the smallest rectangle that holds the tiles of `mask`."""
    tiles = mask_tiles(mask) or [0]
    x, y = ([f(t, machine.chip.tiles_x) for t in tiles] for f in (mod, floordiv))
    return max(x) - min(x) + max(y) - min(y)


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


for _k, _cls in enumerate((Send, Scatter, Gather)):
    declare(_cls, 0x380 + _k, _cls.__name__.lower())
declare(Recv, RECV, "recv")
declare(SendWait, 0x504, "send_wait")
declare(BarrierSub, 0x505, "barrier_sub")
declare(Handshake, 0x506, "handshake")
