import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Small = NDArray[np.int32]

def number(a: Ints, b: Ints, first: Ints, which: Ints) -> tuple[int, int]: ...
def sets(
    start: Ints, end: Ints, lane: Small, form: Small, knots: Ints, state: Small, out: Small
) -> tuple[int, int, int]: ...
def stretch(
    start: Ints,
    lane: Small,
    work: Ints,
    knots: Ints,
    state: Small,
    speed: NDArray[np.float64],
    done: NDArray[np.float64],
    out: Ints,
) -> int: ...
