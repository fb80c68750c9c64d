"""Ways of list scheduling: by what it chooses among rows that could start at the same time.

May import: _kernels. Must not: know plans, ops or addresses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tx8fast._kernels import Csr, Ints, longest_paths


class Way(NamedTuple):
    """How multicasts and rows are ordered. behind: stores stay behind the loads of the fill after next, which hold up all tiles;
    reach: places by which a row may go earlier than it stands in the nest, 0: any; drains: waits take in every window that will be
    over by their end; better_than: the order that is improved, in which of rows that could start at the same time the older one goes
    first ("age") or that on which most waits ("path"); held: meanwhile multicasts hold up the core, else rows go on beside them;
    whole: rows that go between sending and receiving are not looked for."""

    policy: str
    behind: bool = False
    reach: int = 0
    drains: bool = False
    better_than: str = ""
    held: bool = False
    whole: bool = False


def by_path(cycles: np.ndarray, before: Csr) -> Ints:
    """Return the rank (n,) of every row: that from whose begin to the end of the last row that waits for it are more cycles goes
    first. cycles (n,); before: what each must follow."""
    return np.argsort(np.argsort(-longest_paths(cycles, before), kind="stable"))
