"""What schedules and simulators ask of code arrays: units, issue cost, service time, byte ranges.

May import: numpy, isa.base, isa.dma. Must not: execute anything.
Source: TX8 hardware manual 15 (ranges), 16 (costs). All results are aligned with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast.isa import record
from tx8fast.isa.base import UNITS, Instruction, Tables, by_family
from tx8fast.isa.dma import Dma

N_READ, N_WRITE = 4, 2
DTE = UNITS.index("dte")
#: what `by_family` found in the rows, for callers that ask several questions about them
Families = Sequence[tuple[type[Instruction], Any, np.ndarray]] | None


def units(rows: np.ndarray) -> np.ndarray:
    """Return the unit of every row as u1: 0 ct, 1 ne, 2 rdma, 3 wdma, 4 tdma, 5 kcore, 6 sync, 7 ctrl, 8 dte, 9 scalar."""
    return Tables.unit[rows["opcode"]]


def issue_cycles(machine, rows: np.ndarray, families: Families = None) -> np.ndarray:
    """Return the kernel core's issue time in cycles (int64); 0 for rows that no engine executes.

    Sending includes the software setup, which the hardware part of no other message can hide.
    """
    regs = Tables.regs[rows["opcode"]].copy()
    setup = np.where(Tables.unit[rows["opcode"]] == DTE, machine.dte.setup_sw, 0)
    for family, index, r in families or by_family(rows):
        own, before = family.registers(r), family.prepare(machine, r)
        if own is not None:
            regs[index] = own
        if before is not None:
            setup[index] += before
    return np.where(regs > 0, machine.kcore.issue_base + machine.kcore.issue_per_reg * regs + setup, 0)


def durations(
    machine, rows: np.ndarray, ddr_addr: np.ndarray, families: Families = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (cycles, ddr_bytes), both int64.

    `ddr_addr` holds absolute DDR byte addresses. Hops between tiles are left out (`comm`): the rows do not
    know on which tile they run. For RDMA and WDMA `cycles` leaves out the
    bandwidth part, ceil(ddr_bytes / bytes per cycle), which depends on who else transfers.
    """
    cycles = np.zeros(len(rows), np.int64)
    charged = np.zeros(len(rows), np.int64)
    for family, index, r in families or by_family(rows):
        if issubclass(family, Dma):
            cycles[index], charged[index] = family.transfer(machine, r, np.asarray(ddr_addr)[index])
        else:
            cycles[index] = family.cycles(machine, r)
    return cycles, charged


def sequence_cycles(machine, *made: tuple) -> int:
    """Return the cycles of rows (see `make`) that reach no DDR, one after the other, waiting for nothing."""
    code = record.rows(made)
    return int(durations(machine, code, np.zeros(len(code), np.int64))[0].sum() + issue_cycles(machine, code).sum())


def rereads(machine, rows: np.ndarray) -> np.ndarray:
    """Return how often each read operand of `ranges` goes through a port of the scratchpad, (n, 4) int64."""
    out = np.ones((len(rows), N_READ), np.int64)
    for family, index, r in by_family(rows):
        own = family.rereads(machine, r)
        if own is not None:
            out[index] = own
    return out


def spm_ranges(rows: np.ndarray, families: Families = None) -> tuple[np.ndarray, np.ndarray]:
    """Return half-open byte envelopes in scratchpad, read (n, 4, 2) and written (n, 2, 2), int64; (0, 0) = none."""
    read = np.zeros((len(rows), N_READ, 2), np.int64)
    written = np.zeros((len(rows), N_WRITE, 2), np.int64)
    for family, index, r in families or by_family(rows):
        for out, spans in zip((read, written), family.spans(r), strict=True):
            for k, (start, size) in enumerate(spans):
                present = np.asarray(size) > 0
                out[index, k, 0] = start * present
                out[index, k, 1] = (start + size) * present
    return read, written


def ranges(rows: np.ndarray, ddr_addr: np.ndarray) -> dict[str, np.ndarray]:
    """Return half-open byte envelopes (int64); (0, 0) = none.

    spm_read (n, 4, 2), spm_write (n, 2, 2), ddr_read (n, 2), ddr_write (n, 2).
    """
    families = list(by_family(rows))
    read, written = spm_ranges(rows, families)
    out = {"spm_read": read, "spm_write": written}
    out |= {name: np.zeros((len(rows), 2), np.int64) for name in ("ddr_read", "ddr_write")}
    for family, index, r in families:
        if issubclass(family, Dma):
            start = np.asarray(ddr_addr, np.int64)[index]
            span = np.stack([start, start + family.ddr_span(r)], axis=1)
            store = (r["opcode"] == 0x301)[:, None]
            out["ddr_read"][index] = np.where(store, 0, span)
            out["ddr_write"][index] = np.where(store, span, 0)
    return out
