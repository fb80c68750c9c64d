"""Exact interpretation: every instruction one element at a time, matrix products in the specified order.

May import: numpy, isa, simulator.exact_*. Must not: be needed by a plain run; it is its oracle, and hundreds of times slower.

It gives the bytes that the core gives and shares no code with it. It also notes what the vector engine's exception byte would hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import Message
from tx8fast.isa.control import Kcore
from tx8fast.simulator import exact_matrix, exact_moves, exact_tensor, exact_vector


def _send(cls: type[Message]) -> Callable[..., None]:
    to_chips = "chip" in cls.FIELDS_P

    def run(state, fmt, rnd, spm, p, ddr):
        state.send(cls.pieces(state.spm, spm[0], p), spm[1], p[2], p[3] if to_chips else 0)

    return run


def _routine(state, fmt, rnd, spm, p, ddr):
    state.run_routine(p[0])


def _nothing(state, fmt, rnd, spm, p, ddr):
    """Who waits for whom is decided between stretches of rows."""


@cache
def meanings() -> tuple[Callable[..., None] | None, ...]:
    """Return by opcode what to run."""
    own = exact_vector.meanings() | exact_moves.meanings() | exact_tensor.meanings() | exact_matrix.meanings()
    out: list[Callable[..., None] | None] = [None] * len(isa.BY_OPCODE)
    for name, cls in isa.INSTRUCTIONS.items():
        if issubclass(cls, Message):
            out[cls.OPCODE] = _send(cls)
        elif issubclass(cls, Kcore):
            out[cls.OPCODE] = _routine
        else:
            out[cls.OPCODE] = own.get(name) or (_nothing if cls.UNIT == "sync" else None)
    return tuple(out)


def run_row(state: Any, row: Any, address: int) -> None:
    """Execute one RECORD element; `address` is its absolute DDR address in bytes. Raises SimulationError if it cannot be."""
    run = meanings()[int(row["opcode"])]
    if run is None:
        raise SimulationError(f"exact interpretation: '{isa.class_of(int(row['opcode'])).NAME}' has no meaning")
    run(state, int(row["fmt"]), int(row["rnd"]), row["spm"].tolist(), row["p"].tolist(), int(address))
