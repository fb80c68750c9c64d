"""Random functions in steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast.numerics.steps import STEPS, Step, steps_text


def random_steps(rng: np.random.Generator, arguments: int, kinds: Sequence[str], count: int) -> str:
    """Return the text of so many steps; late values are used more often than early ones."""
    steps: list[Step] = []
    for i in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        places = arguments + i
        operands: list[int | float] = [
            float(rng.choice([0.0, 1.0, -1.0, 0.5, 3.0, round(float(rng.normal(0, 2)), 3)])) if rng.random() < 0.3
            else max(int(rng.integers(places)), int(rng.integers(places))) for _ in range(STEPS[kind])
        ]  # fmt: skip
        if kind == "select" or not any(type(o) is int for o in operands):
            operands[0] = int(rng.integers(places))
        steps.append(Step(kind, tuple(operands)))
    return steps_text(steps)
