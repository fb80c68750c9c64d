import numpy as np
import numpy.typing as npt

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

def most_lanes() -> int: ...
def product(a: Singles, b: Singles, lanes: int, out: Singles, left: Doubles, right: Doubles) -> int: ...
