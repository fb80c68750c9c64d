import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def bubble(cycles: Ints, limit: Ints, step: Ints, slack: Ints) -> int: ...
