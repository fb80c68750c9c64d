"""What collectives send: ring algorithms as lists of transfers between numbered devices.

May import: errors. Must not: know chips, tensors or instructions. Devices of a ring are numbered 0 to n - 1 in its order.
"""

from __future__ import annotations

from tx8fast.errors import VerifyError
from tx8fast.records import dataclass

MAX_CHIPS = 128  # that run one program together
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast_dev")


@dataclass(frozen=True, slots=True)
class Transfer:
    """`nbytes` of `chunk` go from device to device; transfers of one step run together. `combine`: added up on arrival."""

    step: int
    source: int
    target: int
    chunk: int
    nbytes: int
    combine: bool = False


def transfers(kind: str, n: int, nbytes: int = 0, root: int = 0, pairs: tuple[int, ...] = ()) -> list[Transfer]:
    """Return the transfers of a collective among `n` devices, in order of steps; each moves `nbytes`.

    A tensor has n chunks. Behind a reduce_scatter device i holds the whole sum of chunk (i + 1) mod n: it begins with
    device i + 1, and every device adds its own in the order of the ring. all_gather: device i begins with chunk i;
    all_to_all: chunk i is for device i; permute and broadcast_dev have one chunk. Raises VerifyError for other kinds.
    """
    if kind == "all_reduce":
        return _ring(n, nbytes, 0, 0, True) + _ring(n, nbytes, n - 1, 1, False)
    if kind == "reduce_scatter":
        return _ring(n, nbytes, 0, 0, True)
    if kind == "all_gather":
        return _ring(n, nbytes, 0, 0, False)
    if kind == "all_to_all":
        return [Transfer(s - 1, i, (i + s) % n, (i + s) % n, nbytes) for s in range(1, n) for i in range(n)]
    if kind == "permute":
        return [Transfer(0, s, t, 0, nbytes) for s, t in zip(pairs[::2], pairs[1::2], strict=True) if s != t]
    if kind == "broadcast_dev":
        return [Transfer(s, (root + s) % n, (root + s + 1) % n, 0, nbytes) for s in range(n - 1)]
    raise VerifyError(f"'{kind}' is no collective; these are {', '.join(KINDS)}")


def _ring(n: int, nbytes: int, first_step: int, offset: int, combine: bool) -> list[Transfer]:
    """n - 1 steps in which device i hands chunk (i + offset - step) on to its neighbour."""
    return [
        Transfer(first_step + s, i, (i + 1) % n, (i + offset - s) % n, nbytes, combine)
        for s in range(n - 1)
        for i in range(n)
    ]
