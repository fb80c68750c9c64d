import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def depends(read: Ints, write: Ints, reach: int, ptr: Ints, before: Ints) -> tuple[int, int]: ...
def weave(
    engine: Ints,
    cycles: Ints,
    ptr: Ints,
    before: Ints,
    after_ptr: Ints,
    after: Ints,
    touch_ptr: Ints,
    touch: Ints,
    size: Ints,
    reach: int,
    budget: int,
    order: Ints,
    work: Ints,
    free: Ints,
    rejected: Ints,
    buffers: Ints,
) -> int: ...
