"""Reference routines: what every operation means, as numpy functions.

May import: numpy and the numerics package. Must not: know the IR, instructions or machines.
`ROUTINES[name](arrays, attrs, out_types)` returns the list of results. `arrays` holds the operands
(None where an optional one is missing), `attrs` plain values with defaults for missing keys, and
`out_types` one (shape, format) per result; results are cast to that format. Narrow floats are
computed in f32 and rounded once. Illegal operands raise SimulationError.
A result may share memory with an operand; callers that write must copy.
"""

from __future__ import annotations

import functools

import numpy as np

from tx8fast.numerics.routines import (
    activation,
    contraction,
    convolution,
    elementwise,
    extra,
    indexing,
    movement,
    normalisation,
    reduction,
)
from tx8fast.numerics.routines.support import Arrays, Attrs, OutTypes, Routine, canonical

__all__ = ["ROUTINES", "Routine"]


def _quiet(fn: Routine, moves: bool) -> Routine:
    """Wrap `fn` so that infinities and NaN are results, not numpy warnings; of what computes, NaN is the canonical one."""

    @functools.wraps(fn)
    def run(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            results = fn(arrays, attrs, out_types)
        if moves or (fn is elementwise.convert and np.asarray(arrays[0]).dtype == results[0].dtype):
            return results
        return [canonical(y, dtype) for y, (_, dtype) in zip(results, out_types)]

    return run


_FAMILIES = (
    elementwise,
    activation,
    reduction,
    normalisation,
    contraction,
    convolution,
    movement,
    indexing,
    extra,
)

#: operation name -> reference function
ROUTINES: dict[str, Routine] = {
    name: _quiet(fn, family in (movement, indexing) or name == "bitcast")
    for family in _FAMILIES
    for name, fn in family.ROUTINES.items()
}
