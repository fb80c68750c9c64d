"""Loops, waits, the barrier of all tiles and kernel-core routine calls.

May import: numpy, isa.base, isa.work. Must not: know other engines.
Source: TX8 hardware manual 14.4, 16.7. A LOOP row repeats the rows up to its END; neither costs time.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import Instruction, declare
from tx8fast.isa.work import WORK, cycles_each

LOOP, END = 0x600, 0x601


class Sync(Instruction):
    UNIT = "sync"
    REGS = 0


class Wait(Sync):
    """Wait until all engines of this tile are idle, whichever worker; the transfer engine is not one of them."""

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.kcore.wait_cycles, np.int64)


class WaitWorker(Wait):
    """Wait until all rows issued through the workers of bit mask `workers` are finished."""

    FIELDS_P = ("workers",)


class Barrier(Sync):
    """Wait until every tile has arrived."""

    @staticmethod
    def cycles(machine, r):
        diameter = machine.chip.tiles_x - 1 + machine.chip.tiles_y - 1
        return np.full(len(r), machine.sync.barrier_base + 2 * diameter * machine.noc.hop_cycles, np.int64)


class Fence(Sync):
    """Order the kernel core's own loads and stores before what it issues next.

    Routines of a segment touch DDR while no engine runs and read nothing that the host changes under them, so compiled
    programs need none. The manual gives no cost: one issue without registers is assumed.
    """

    @staticmethod
    def cycles(machine, r):
        return np.full(len(r), machine.kcore.issue_base, np.int64)


class Kcore(Instruction):
    """Call routine number `routine` of the segment; the other fields are its work (`isa.work`)."""

    UNIT = "kcore"
    REGS = 0
    FIELDS_P = ("routine", *WORK)
    DEFAULTS = dict.fromkeys(WORK, 0)

    @staticmethod
    def cycles(machine, r):
        work = r["p"][:, 1 : 1 + len(WORK)] @ np.array(cycles_each(machine.kcore), np.int64)
        return machine.kcore.routine_base + work


class Loop(Instruction):
    """Repeat the rows up to the matching `end` row `count` times."""

    UNIT = "ctrl"
    REGS = 0
    FIELDS_P = ("count",)

    @staticmethod
    def cycles(machine, r):
        return np.zeros(len(r), np.int64)


class End(Instruction):
    UNIT = "ctrl"
    REGS = 0

    @staticmethod
    def cycles(machine, r):
        return np.zeros(len(r), np.int64)


declare(Kcore, 0x400, "kcore")
declare(Wait, 0x500, "wait")
declare(Barrier, 0x501, "barrier")
declare(WaitWorker, 0x502, "wait_worker")
declare(Fence, 0x507, "fence")
declare(Loop, LOOP, "loop")
declare(End, END, "end")
