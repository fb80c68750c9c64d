import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def pack(
    first: Ints,
    last: Ints,
    size: Ints,
    rank: Ints,
    ptr: Ints,
    neighbour: Ints,
    n_sections: int,
    capacity: int,
    budget: int,
    offset: Ints,
) -> tuple[int, int]: ...
