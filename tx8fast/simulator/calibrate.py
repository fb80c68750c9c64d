"""Machine figures that fit measurements.

May import: numpy, machine, simulator.measurements. Must not: read or write files, or know what a figure does.

Least squares of the relative residuals, Gauss-Newton steps from finite differences, then single steps of every figure. Only
figures that the measurements tell apart are changed; ties go to the figure with the larger part in the cycles, then by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast.machine import Machine
from tx8fast.machine.tags import Value, changed, legal, value_of
from tx8fast.records import dataclass
from tx8fast.simulator.measurements import Measurement, predicted_cycles

ROUNDS = 20
STEP = 0.1  # of a figure, for its influence
APART = 0.02  # of its influence, that no other figures have, makes a figure one of its own
GAIN = 1e-9  # by which the sum of squares must shrink
CLOSE = 0.05  # a measurement is met if the simulator is within this share of it


@dataclass(frozen=True)
class Calibration:
    """values: what was fitted; left: figures that were not, and why; before, after: cycles of each measurement."""

    machine: Machine
    fitted: Machine
    values: dict[str, Value]
    left: dict[str, str]
    measurements: tuple[Measurement, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything, JSON-able, stable keys."""
        rows = [
            {
                "engine": m.engine,
                "size": m.size,
                "tiles": m.tiles,
                "offset": m.offset,
                "measured": m.text,
                "before": b,
                "before_residual": m.residual(b),
                "after": a,
                "after_residual": m.residual(a),
            }
            for m, b, a in zip(self.measurements, self.before, self.after, strict=True)
        ]
        far = [r for r in rows if abs(r["after_residual"]) > CLOSE]
        return {
            "keys": [{"key": k, "before": value_of(self.machine, k), "after": v} for k, v in self.values.items()],
            "left": self.left,
            "measurements": rows,
            "not_met": len(far),
            "largest_residual": max(abs(r["after_residual"]) for r in rows),
        }


def calibrate(machine: Machine, measurements: Sequence[Measurement], keys: Sequence[str]) -> Calibration:
    """Return the machine whose figures `keys` fit the measurements best."""

    def cycles(values: dict[str, Value]) -> tuple[int, ...]:
        other = changed(machine, values)
        return tuple(predicted_cycles(other, m) for m in measurements)

    def residuals(values: dict[str, Value]) -> np.ndarray:
        return np.array([m.residual(c) for m, c in zip(measurements, cycles(values), strict=True)])

    def slopes(values: dict[str, Value], names: Sequence[str]) -> np.ndarray:
        """Change of the cycles, as shares of what was measured, per unit of each figure."""
        base, out = np.array(cycles(values)), []
        for name in names:
            other = legal(name, values[name] + max(STEP * values[name], 1))
            moved = (np.array(cycles({**values, name: other})) - base) / ([m.low for m in measurements])
            out.append(moved / (other - values[name]) if other != values[name] else np.zeros(len(base)))
        return np.array(out).reshape(len(names), len(base)).T

    values = {k: value_of(machine, k) for k in keys}
    chosen, left = _independent(values, slopes(values, keys))
    values = {k: values[k] for k in chosen}
    found = residuals(values)
    for _ in range(ROUNDS if chosen else 0):
        active = np.where(found != 0, 1.0, 0.0)[:, None]  # what lies inside its range pulls at nothing
        step = np.linalg.lstsq(slopes(values, chosen) * active, -found, rcond=1e-6)[0]
        for part in (1.0, 0.5, 0.25, 0.125):
            other = {k: legal(k, values[k] + part * s) for k, s in zip(chosen, step.tolist(), strict=True)}
            if _better(trial := residuals(other), found):
                values, found = other, trial
                break
        else:
            break
    values = _polish(values, residuals)
    fitted = {k: v for k, v in values.items() if v != value_of(machine, k)}
    left |= {k: "fits best as it is" for k in chosen if k not in fitted}
    return Calibration(machine, changed(machine, fitted), fitted, left, tuple(measurements), cycles({}), cycles(fitted))


def _better(one: np.ndarray, other: np.ndarray) -> bool:
    return float(one @ one) < float(other @ other) - GAIN


def _independent(values: dict[str, Value], influence: np.ndarray) -> tuple[list[str], dict[str, str]]:
    """Return the figures that the measurements tell apart, and why the others are left."""
    names = list(values)
    scaled = influence * np.array([max(1.0, abs(values[n])) for n in names])
    size = np.sqrt((scaled**2).sum(axis=0))
    chosen: list[int] = []
    left = {n: "no measurement depends on it" for n, s in zip(names, size.tolist(), strict=True) if s == 0}
    for k in sorted(range(len(names)), key=lambda k: (-size[k], names[k])):
        if names[k] in left:
            continue
        rest = scaled[:, k]
        if chosen:
            rest = rest - scaled[:, chosen] @ np.linalg.lstsq(scaled[:, chosen], rest, rcond=None)[0]
        if float(rest @ rest) ** 0.5 <= APART * size[k]:
            left[names[k]] = (
                f"the measurements do not tell it from {', '.join(names[c] for c in _like(scaled, chosen, k))}"
            )
        else:
            chosen.append(k)
    return [names[k] for k in sorted(chosen)], left


def _like(scaled: np.ndarray, chosen: list[int], k: int) -> list[int]:
    """Return the chosen figures whose influence makes up that of figure k."""
    parts = np.abs(np.linalg.lstsq(scaled[:, chosen], scaled[:, k], rcond=None)[0])
    return [c for c, part in zip(chosen, parts.tolist(), strict=True) if part > 0.01 * parts.max()]


def _polish(values: dict[str, Value], residuals: Any) -> dict[str, Value]:
    """Return `values` after steps of single figures, each half as long as the one before, that make the fit better."""
    best = residuals(values)
    for name in values:
        step = max(1, int(values[name]) // 8)
        while step:
            for other in (legal(name, values[name] + step), legal(name, values[name] - step)):
                if _better(trial := residuals({**values, name: other}), best):
                    values, best = {**values, name: other}, trial
                    break
            else:
                step //= 2
    return values
