"""A tile to execute single instructions on, and touch tracking."""

import numpy as np

from tx8fast import isa
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES, np_dtype
from tx8fast.numerics.layout import blocked_bytes, pack, unpack
from tx8fast.simulator.memory import Ddr
from tx8fast.simulator.state import TileState, run_row

MACHINE = load_machine("tx8")
A, B, C, D, E, F = (0x10000 + 0x40000 * k for k in range(6))
LOW = 0x10000
HIGH = 0x10000 + 0x40000 * 7


def new_state(ddr_bytes=1 << 16):
    return TileState(MACHINE, Ddr(ddr_bytes))


def put(state, addr, array):
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    state.spm[addr : addr + len(data)] = data


def get(state, addr, n, fmt):
    dt = np_dtype(fmt)
    return state.spm[addr : addr + n * dt.itemsize].view(dt).copy()


def put_blocked(state, addr, array, fmt):
    put(state, addr, pack(array.astype(np_dtype(fmt)), fmt))


def get_blocked(state, addr, n, p, c, fmt):
    size = blocked_bytes(n, p, c, fmt)
    return unpack(state.spm[addr : addr + size].copy(), n, p, c, fmt)


def execute(state, name, ddr=DDR_BASE, **fields):
    """Run one row and check that exactly declared bytes change and only declared bytes matter."""
    row = isa.rows([isa.make(name, **fields)])
    spans = isa.ranges(row, np.array([ddr]))
    before_spm, before_ddr = state.spm[LOW:HIGH].copy(), state.ddr.data.copy()
    run_row(state, row[0], ddr)
    changed = np.flatnonzero(state.spm[LOW:HIGH] != before_spm) + LOW
    _inside(name, changed, spans["spm_write"][0])
    _inside(name, np.flatnonzero(state.ddr.data != before_ddr) + DDR_BASE, spans["ddr_write"])
    after = state.spm[LOW:HIGH].copy()
    _reads_are_declared(state, row, ddr, spans, before_spm, before_ddr, after)
    return row


def _inside(name, touched, spans):
    ok = np.zeros(len(touched), bool)
    for lo, hi in spans:
        ok |= (touched >= lo) & (touched < hi)
    assert ok.all(), f"{name} writes {touched[~ok][:4]} outside {spans.tolist()}"


def _reads_are_declared(state, row, ddr, spans, spm, ddr_bytes, after):
    """Run again with every byte outside the declared reads changed: the results must be the same."""
    written = np.zeros(HIGH - LOW, bool)
    for lo, hi in spans["spm_write"][0]:
        written[max(lo - LOW, 0) : max(hi - LOW, 0)] = True
    poisoned = spm ^ 0x55
    for lo, hi in spans["spm_read"][0]:
        if hi > lo:
            poisoned[lo - LOW : hi - LOW] = spm[lo - LOW : hi - LOW]
    final_ddr, wb = state.ddr.data.copy(), state.wb
    state.spm[LOW:HIGH] = poisoned
    state.ddr.data[...] = ddr_bytes
    run_row(state, row[0], ddr)
    again = state.spm[LOW:HIGH].copy()
    # bytes that neither run wrote differ only by the poison
    same = (again == after) | ((again == poisoned) & (after == spm))
    assert same[written].all(), f"row depends on undeclared bytes: {isa.decode(row[0])}"
    assert state.wb == wb
    state.spm[LOW:HIGH] = after
    state.ddr.data[...] = final_ddr


def code(fmt):
    return FORMAT_CODES[fmt]


def values(rng, n, fmt, scale=4.0):
    """Return random values of a format, with zeros, a negative zero and a NaN for float formats."""
    dt = np_dtype(fmt)
    if dt.kind in "iu":
        info = np.iinfo(dt)
        return rng.integers(info.min, info.max, n, endpoint=True).astype(dt)
    x = (rng.standard_normal(n) * scale).astype(np.float32)
    return x.astype(dt)


__all__ = ["CODE_TO_DTYPE", "DDR_BASE"]
