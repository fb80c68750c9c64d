"""The lower bound on a program's cycles, from facts about the model only.

May import: machine, errors. Must not: look at instructions; the bound must not depend on how the
program was compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.errors import ProgramError
from tx8fast.machine import Machine
from tx8fast.records import dataclass

#: most multiplications or bytes that a program file may claim: far above any model, and a number of every format
MOST = 10**30


@dataclass(frozen=True)
class Roofline:
    """Cycles that the matrix engines (`compute`) and the DDR (`memory`) need at least, at their full rates, for so
    many useful multiplications and bytes that must cross the DDR."""

    compute_cycles: float
    memory_cycles: float
    useful_macs: int = 0
    unique_ddr_bytes: int = 0

    @property
    def bound_cycles(self) -> float:
        """The larger of the two."""
        return max(self.compute_cycles, self.memory_cycles)

    @property
    def bound(self) -> str:
        """Which resource sets the bound: "compute" or "memory"."""
        return "compute" if self.compute_cycles >= self.memory_cycles else "memory"

    def to_json(self) -> dict[str, float]:
        """Return the bound and its terms, stable keys."""
        return {
            "bound_cycles": self.bound_cycles,
            "compute_bound_cycles": self.compute_cycles,
            "memory_bound_cycles": self.memory_cycles,
            "useful_macs": self.useful_macs,
            "unique_ddr_bytes": self.unique_ddr_bytes,
        }

    def ratio(self, cycles: int) -> float:
        """Bound over simulated cycles; 1.0 is the limit, 0.0 for an empty program."""
        return self.bound_cycles / cycles if cycles else 0.0


def roofline(machine: Machine, meta: Mapping[str, Any]) -> Roofline:
    """Return the bound of a program with `meta` keys useful_macs, unique_ddr_bytes and compute_dtype.

    Missing keys count as 0 (and bf16). Raises ProgramError if one is not a non-negative number.
    """
    return _bound(machine, _number(meta, "useful_macs", "meta"), _number(meta, "unique_ddr_bytes", "meta"), meta)


def group_roofline(
    machine: Machine, infos: Sequence[Mapping[str, Any]], meta: Mapping[str, Any], ddr_bytes: int
) -> Roofline:
    """Return the bound of segments that run between two barriers, from what `infos` say of each.

    Its bytes are those of operands and results, each once, but never more than the `ddr_bytes` that move: an op may
    need a part of an operand only. Raises as `roofline`.
    """
    macs = sum(_number(info, "useful_macs", "segment info") for info in infos)
    once = sum(_number(info, "operand_bytes", "segment info") for info in infos)
    return _bound(machine, macs, min(once, ddr_bytes), meta)


def _number(facts: Mapping[str, Any], key: str, where: str) -> float:
    value = facts.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ProgramError(
            f"computing the roofline bound: {where} '{key}' is {value!r:.40}, required a number from 0 to {MOST:g}"
        )
    return value


def _bound(machine: Machine, macs: float, ddr_bytes: float, meta: Mapping[str, Any]) -> Roofline:
    peak = machine.peak_macs_per_cycle(str(meta.get("compute_dtype", "bf16"))) if macs else 1.0
    return Roofline(macs / peak, ddr_bytes / machine.ddr_bytes_per_cycle, int(macs), int(ddr_bytes))
