"""Exact interpretation: every instruction one element at a time, matrix products in the specified order.

May import: isa, simulator.exact_*. Must not: be needed by a plain run; it is its oracle, and hundreds of times slower.

What differs from a plain run: the order of additions in matrix products and convolutions, for which the plain run has
one of its own (fp32) or leaves it to a matrix library, within the tolerance of the TX8 hardware manual 6.5. Everything else gives the same bytes, NaN
payloads aside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tx8fast import isa
from tx8fast.simulator import exact_moves, exact_tensor, exact_vector

#: engines whose instructions have an exact meaning of their own; the NE's goes through `TileState.product`
ENGINES = ("ct", "tdma", "rdma", "wdma")


@cache
def meanings() -> tuple[Callable[..., Any] | None, ...]:
    """Return by opcode what to run; rows that compute nothing are those of the plain run."""
    own = exact_vector.meanings() | exact_moves.meanings() | exact_tensor.meanings()
    out: list[Callable[..., Any] | None] = [cls.run if cls else None for cls in isa.BY_OPCODE]
    for name, cls in isa.INSTRUCTIONS.items():
        if cls.UNIT in ENGINES:
            out[cls.OPCODE] = own[name]
    return tuple(out)
