"""The C core against the element-by-element interpreter: the same bytes, one random row after the other, for every vector set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parent.parent / "simulator"))
from random_rows import BASE, NAMES, REGION, REGIONS, rows  # noqa: E402

from tx8fast import isa  # noqa: E402
from tx8fast.host import core  # noqa: E402
from tx8fast.machine import DDR_BASE, load_machine  # noqa: E402
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES, np_dtype  # noqa: E402
from tx8fast.simulator.exact import run_row as run_exact  # noqa: E402
from tx8fast.simulator.memory import Ddr  # noqa: E402
from tx8fast.simulator.state import TileState, run_row  # noqa: E402

MACHINE = load_machine("tx8")
END = BASE + REGION * REGIONS
TILE = 3
WRITTEN = slice(BASE, END + (1 << 16))  # by rows, at most
#: of every instruction in every format
EXAMPLES = 20 if os.environ.get("TX8FAST_SANITIZE_C") else 3


def fresh(seed):
    """Return an exact state and a core tile over equal memories: small numbers of every format, and some of any pattern."""
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, END - BASE).astype(np.uint8)
    for k, fmt in enumerate(("f32", "bf16", "f16", "i32")):
        x = (rng.standard_normal(REGION // np_dtype(fmt).itemsize) * 3).astype(np_dtype(fmt))
        memory[k * REGION : (k + 1) * REGION] = x.view(np.uint8)
    ddr = rng.integers(0, 256, 4096).astype(np.uint8)
    states = []
    for _ in range(2):
        state = TileState(MACHINE, Ddr(4096), TILE)
        state.spm[BASE:END] = memory
        state.ddr.data[...] = ddr
        state.slots = [DDR_BASE]
        states.append(state)
    exact, own = states
    return exact, own


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


def check(row, states, at=0):
    for state in states:
        legal_offsets(row, state)
        state.wb, state.position = (0, 0), at
    exact, own = states
    run_row(own, row, int(row["ddr"]))
    with np.errstate(all="ignore"):
        run_exact(exact, row, int(row["ddr"]))
    differ = np.flatnonzero(exact.spm[WRITTEN] != own.spm[WRITTEN]) + BASE
    assert not len(differ), (isa.decode(row), differ[:4], exact.spm[differ[:4]], own.spm[differ[:4]])
    assert np.array_equal(exact.ddr.data, own.ddr.data), isa.decode(row)
    if exact.wb != (0, 0):
        assert exact.wb == own.wb, isa.decode(row)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(rows(), min_size=1, max_size=6), st.integers(0, 7), st.integers(0, core.LEVELS - 1))
def test_sequences_give_the_same_bytes(sequence, seed, level):
    states = fresh(seed)
    assert core.use_level(level)
    try:
        for at, made in enumerate(sequence):
            check(made, states, at)
    finally:
        core.use_level(core.LEVELS - 1)


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_gives_the_same_bytes_in_each_of_its_formats(name):
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.data(), st.integers(0, 3))
    def one(data, seed):
        states = fresh(seed)
        for fmt in isa.INSTRUCTIONS[name].FORMATS:
            check(data.draw(rows([name], [fmt])), states)

    one()


def test_a_format_that_an_instruction_does_not_take_is_told():
    for name, cls in isa.INSTRUCTIONS.items():
        row = isa.make_rows(name, 1, **dict.fromkeys((*cls.FIELDS_SPM, *cls.FIELDS_P), 1))
        for fmt, code in FORMAT_CODES.items():
            row["fmt"] = code
            found = [text for _, text in isa.value_problems(row)]
            assert any(text.startswith(f"format {fmt} of a {name}, required ") for text in found) == (
                fmt not in cls.FORMATS
            )
