import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def list_order(
    engine: Ints,
    issue: Ints,
    cycles: Ints,
    window: Ints,
    home: Ints,
    held: Ints,
    ptr: Ints,
    before: Ints,
    rank: Ints,
    depth: Ints,
    wait_cycles: int,
    drains: bool,
    order: Ints,
    worker: Ints,
) -> tuple[int, int]: ...
def improved_ranks(
    engine: Ints, issue: Ints, cycles: Ints, ptr: Ints, before: Ints, first: Ints, depth: Ints, rank: Ints
) -> int: ...
