import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def shard_enum(
    shape: Ints,
    base: Ints,
    limit: Ints,
    n_parts: int,
    n_first: bool,
    slot: Ints,
    out: Ints,
    out_eff: Ints,
) -> tuple[int, int]: ...
