"""How much a program's cycles depend on the machine's assumed figures.

May import: program.model, machine, errors, simulator.cycle, simulator.stretch. Must not: search, or know what a figure does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tx8fast.machine import Machine
from tx8fast.machine.config import SCHEMA
from tx8fast.machine.tags import Value, assumed_keys, changed, legal, read_tags, value_of
from tx8fast.program.model import Program
from tx8fast.records import dataclass
from tx8fast.simulator.cycle import CycleResult, simulate
from tx8fast.simulator.stretch import total_cycles

FACTORS = (0.5, 1.5)


@dataclass(frozen=True)
class Swing:
    """Cycles of a program with one figure changed. values: the two that were tried, cycles: what they gave."""

    key: str
    value: Value
    values: tuple[Value, Value]
    cycles: tuple[int, int]

    def largest(self, base_cycles: int) -> int:
        """The larger of the two changes, in cycles."""
        return max(abs(c - base_cycles) for c in self.cycles)


@dataclass(frozen=True)
class Sensitivity:
    """swings: the figures that matter first. lowest, highest: cycles with all figures where each by itself gives fewer,
    or more, cycles. bound_cycles: the roofline bound."""

    cycles: int
    lowest_cycles: int
    highest_cycles: int
    bound_cycles: float
    swings: tuple[Swing, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures, JSON-able, stable keys; `change` are shares of the cycles."""
        base = max(1, self.cycles)
        ratio = [self.bound_cycles / c if c else 0.0 for c in (self.cycles, self.highest_cycles, self.lowest_cycles)]
        return {
            "cycles": self.cycles,
            "interval_cycles": [self.lowest_cycles, self.highest_cycles],
            "roofline_ratio": ratio[0],
            "interval_roofline_ratio": ratio[1:],
            "factors": list(FACTORS),
            "keys": [
                {
                    "key": s.key,
                    "value": s.value,
                    "values": list(s.values),
                    "cycles": list(s.cycles),
                    "change": [c / base - 1 if self.cycles else 0.0 for c in s.cycles],
                }
                for s in self.swings
            ],
        }


def extremes(program: Program, keys: Sequence[str]) -> tuple[int, int]:
    """Return the cycles of `program` with all machine figures of `keys` at the better of FACTORS times their values, and at the
    worse: less of a cost is better, more of a share. Two simulations say nearly as much as the many of `sensitivity`."""
    machine = Machine.from_dict(program.machine)
    found = []
    for factor, other in (FACTORS, FACTORS[::-1]):
        by = {k: other if SCHEMA[k][0].get("more_is_faster") else factor for k in keys}
        values = {k: legal(k, value_of(machine, k) * f) for k, f in by.items()}
        found.append(total_cycles(program, changed(machine, values)))
    return min(found), max(found)


def interval(program: Program, result: CycleResult) -> dict[str, Any]:
    """Return between what cycles and roofline ratio of a simulated program lie (`extremes` over the figures that are tagged as
    assumed), JSON-able, under the names that `Sensitivity` has for them."""
    found = extremes(program, assumed_keys(read_tags()))
    cycles = min(result.cycles, *found), max(result.cycles, *found)
    return {
        "interval_cycles": list(cycles),
        "interval_roofline_ratio": [result.roofline.ratio(c) for c in reversed(cycles)],
    }


def sensitivity(
    program: Program, keys: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> Sensitivity:
    """Simulate `program` with each machine figure of `keys` at FACTORS times its value, rounded to what the key may be,
    and with all of them at their better and at their worse side. The program stays as it is. Raises as `simulate`.

    `progress(done, total)` counts simulations.
    """
    machine = Machine.from_dict(program.machine)
    known: dict[str, int] = {}
    total, done = 2 * len(keys) + 3, 0

    def cycles_with(values: dict[str, Value]) -> int:
        nonlocal done
        other = changed(machine, values)
        if other.digest not in known:
            known[other.digest] = total_cycles(program, other)
        done += 1
        if progress is not None:
            progress(done, total)
        return known[other.digest]

    base = simulate(program)
    known[machine.digest] = base.cycles
    cycles_with({})
    swings = []
    for key in keys:
        value = value_of(machine, key)
        low, high = (legal(key, value * f) for f in FACTORS)
        swings.append(Swing(key, value, (low, high), (cycles_with({key: low}), cycles_with({key: high}))))
    swings.sort(key=lambda s: -s.largest(base.cycles))
    corners = []
    for better in (min, max):
        values = {}
        for s in swings:
            tried = dict(zip((s.value, *s.values), (base.cycles, *s.cycles)))
            values[s.key] = better(tried, key=lambda v: tried[v])
        corners.append(cycles_with(values))
    seen = [base.cycles, *corners, *(c for s in swings for c in s.cycles)]
    return Sensitivity(base.cycles, min(seen), max(seen), base.bound_cycles, tuple(swings))
