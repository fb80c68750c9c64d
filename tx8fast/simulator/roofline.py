"""The lower bound on a program's cycles, from facts about the model only.

May import: machine, errors. Must not: look at instructions; the bound must not depend on how the
program was compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tx8fast.errors import ProgramError
from tx8fast.machine import Machine


@dataclass(frozen=True)
class Roofline:
    """Cycles that the matrix engines (`compute`) and the DDR (`memory`) need at least, at their full rates."""

    compute_cycles: float
    memory_cycles: float

    @property
    def bound_cycles(self) -> float:
        """The larger of the two."""
        return max(self.compute_cycles, self.memory_cycles)

    @property
    def bound(self) -> str:
        """Which resource sets the bound: "compute" or "memory"."""
        return "compute" if self.compute_cycles >= self.memory_cycles else "memory"

    def ratio(self, cycles: int) -> float:
        """Bound over simulated cycles; 1.0 is the limit, 0.0 for an empty program."""
        return self.bound_cycles / cycles if cycles else 0.0


def roofline(machine: Machine, meta: Mapping[str, Any]) -> Roofline:
    """Return the bound of a program with `meta` keys useful_macs, unique_ddr_bytes and compute_dtype.

    Missing keys count as 0 (and bf16). Raises ProgramError if one is not a non-negative number.
    """
    values = {}
    for key in ("useful_macs", "unique_ddr_bytes"):
        value = meta.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ProgramError(f"computing the roofline bound: meta '{key}' is {value!r}, required a number >= 0")
        values[key] = value
    macs = values["useful_macs"]
    peak = machine.peak_macs_per_cycle(str(meta.get("compute_dtype", "bf16"))) if macs else 1.0
    return Roofline(macs / peak, values["unique_ddr_bytes"] / machine.ddr_bytes_per_cycle)
