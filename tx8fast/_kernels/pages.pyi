import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def extra_pages(start: Ints, runs: Ints, page: int, out: Ints) -> int: ...
