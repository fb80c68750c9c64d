import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def fit(
    ptr: Ints,
    start: Ints,
    end: Ints,
    owner: Ints,
    size: Ints,
    align: Ints,
    order: Ints,
    fixed: Ints,
    bank: int,
    n_times: int,
    offset: Ints,
) -> tuple[int, int]: ...
