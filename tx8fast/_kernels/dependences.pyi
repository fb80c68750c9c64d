import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def byte_dependences(
    touched: Ints,
    n_read: int,
    at: Ints,
    writer: Ints,
    readers: Ints,
    cell: Ints,
    mark: Ints,
    ptr: Ints,
    before: Ints,
) -> tuple[int, int]: ...
def longest_paths(cycles: Ints, ptr: Ints, before: Ints, tail: Ints) -> int: ...
