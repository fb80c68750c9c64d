"""The exact interpretation against the vectorised one, row after row; matrix products against loops; `run --exact`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_rows import BASE, NAMES, REGION, REGIONS, rows

from tx8fast import isa
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import CODE_TO_DTYPE, np_dtype
from tx8fast.simulator.exact import meanings
from tx8fast.simulator.functional import TileState
from tx8fast.simulator.memory import Ddr

MACHINE = load_machine("tx8")
END = BASE + REGION * REGIONS
#: both signs of zero are an extremum of +0 and -0
EITHER_ZERO = ("max", "min", "relu", "satrelu", "pool", "reduce")
pytestmark = pytest.mark.feature("H26")


def fresh(seed):
    """Return two equal states: plain and exact. Memory holds small numbers of every format, and some of any pattern."""
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, END - BASE).astype(np.uint8)
    for k, fmt in enumerate(("f32", "bf16", "f16", "i32")):
        x = (rng.standard_normal(REGION // np_dtype(fmt).itemsize) * 3).astype(np_dtype(fmt))
        memory[k * REGION : (k + 1) * REGION] = x.view(np.uint8)
    ddr = rng.integers(0, 256, 4096).astype(np.uint8)
    out = []
    for exact in (False, True):
        state = TileState(MACHINE, Ddr(4096), exact)
        state.spm[BASE:END] = memory
        state.ddr.data[...] = ddr
        state.tile, state.slots = 3, [DDR_BASE]
        out.append(state)
    return out


def run_exact(state, row):
    run = meanings()[int(row["opcode"])]
    run(state, int(row["fmt"]), int(row["rnd"]), row["spm"].tolist(), row["p"].tolist(), int(row["ddr"]))


def legal_offsets(row, state):
    """Bring the table offsets of a look-up into the table, and row numbers, which may count from the end."""
    name = isa.class_of(int(row["opcode"])).NAME
    for _, _, offset, size in zip(*isa.lookup.numbers(row[None]), strict=True):
        entries = int(row["p"][2])
        view = state.ddr.view(DDR_BASE + int(offset), int(size)).view(np_dtype(CODE_TO_DTYPE[int(row["fmt"])]))
        view[0] = int(view[0]) % (2 * entries) - entries if view.dtype.kind == "i" else int(view[0]) % entries
    if name.startswith("lut"):
        width = int(name[3:]) // 8
        n, entries = row["p"][:2].tolist()
        view = state.spm[row["spm"][0] : row["spm"][0] + n * width].view(f"u{width}")
        view %= (entries - 1) * width


def check(row, out, plain, exact):
    """Run one row in both; afterwards both memories are the plain one's, NaN payloads included."""
    name = isa.class_of(int(row["opcode"])).NAME
    for state in (plain, exact):
        legal_offsets(row, state)
        state.wb = (0, 0)
    isa.run(plain, row, int(row["ddr"]))
    with np.errstate(all="ignore"):
        run_exact(exact, row)
    assert np.array_equal(plain.ddr.data, exact.ddr.data), isa.decode(row)
    got, want = plain.spm[BASE:END], exact.spm[BASE:END]
    differ = np.flatnonzero(got != want)
    if len(differ):
        assert out is not None, (isa.decode(row), differ[:4] + BASE)
        dt = np_dtype(CODE_TO_DTYPE[out])
        at = np.unique(differ // dt.itemsize)
        a, b = got.view(dt)[at], want.view(dt)[at]
        same = np.isnan(a) & np.isnan(b)
        if name.startswith(EITHER_ZERO):
            same |= (a == 0) & (b == 0)
        assert same.all(), (isa.decode(row), at[~same][:3] * dt.itemsize + BASE, a[~same][:3], b[~same][:3])
        want[...] = got
    if name.startswith("arg"):
        x, y = (isa.lanes.scalar(s.wb[0], int(row["fmt"])) for s in (plain, exact))
        assert plain.wb[1] == exact.wb[1] and (x == y or (np.isnan(x) and np.isnan(y)))
    else:
        assert plain.wb == exact.wb, isa.decode(row)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(rows(), min_size=1, max_size=6), st.integers(0, 7))
def test_sequences_give_the_same_bytes(sequence, seed):
    plain, exact = fresh(seed)
    for at, (row, out) in enumerate(sequence):
        plain.position = exact.position = at
        check(row, out, plain, exact)


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_gives_the_same_bytes(name):
    @settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(rows([name]), st.integers(0, 3))
    def one(made, seed):
        check(*made, *fresh(seed))

    one()
