import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def pack(
    ptr: Ints,
    section: Ints,
    nptr: Ints,
    neighbour: Ints,
    mptr: Ints,
    member: Ints,
    size: Ints,
    align: Ints,
    fixed: Ints,
    rank: Ints,
    by_first: Ints,
    rule: int,
    capacity: int,
    budget: int,
    weight: Ints,
    failed: npt.NDArray[np.uint64],
    offset: Ints,
) -> tuple[int, int]: ...
