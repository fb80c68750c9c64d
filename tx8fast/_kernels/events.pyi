import numpy as np
from numpy.typing import NDArray

def simulate(
    kind: NDArray[np.uint8],
    issue: NDArray[np.int64],
    spm_read: NDArray[np.int64],
    spm_write: NDArray[np.int64],
    code_begin: NDArray[np.int64],
    tile_begin: NDArray[np.int64],
    fixed: NDArray[np.int64],
    ddr_bytes: NDArray[np.int64],
    ddr_read: NDArray[np.int64],
    ddr_write: NDArray[np.int64],
    depth: NDArray[np.int64],
    port_rate: float,
    total_rate: float,
    serial: bool,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    busy: NDArray[np.int64],
    blocked: NDArray[np.int64],
) -> int: ...
