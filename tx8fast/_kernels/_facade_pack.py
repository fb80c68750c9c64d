"""The door to exact placement.

May import: numpy, the checks and the compiled module beside it. Must not: know buffers' meaning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import pack as _pack
from tx8fast._kernels._checks import Ints, check_status, int_array, require

MAX_ITEMS = 2000  # the search keeps O(n^2) numbers
N_RULES = 3  # ways to choose the section where the next item goes
_TABLE_WORDS = 1 << 17
_LIMIT_REACHED, _INFEASIBLE = 5, 6
_KERNEL = "pack"


class PackSearch:
    """Searches one set of items, again and again: what failed is remembered between the calls.

    Item i, one of at most 2000, lives in the half-open, disjoint intervals [start[j], end[j]) for j
    in ptr[i] .. ptr[i + 1] (CSR; at least one each), has size_bytes[i] > 0, and starts at a
    multiple of align_bytes[i], or exactly at fixed[i] if that is not -1. Columns are int64.
    """

    def __init__(
        self,
        ptr: npt.ArrayLike,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        size_bytes: npt.ArrayLike,
        align_bytes: npt.ArrayLike | None = None,
        fixed: npt.ArrayLike | None = None,
    ) -> None:
        ptr_, size = int_array(_KERNEL, "ptr", ptr), int_array(_KERNEL, "size_bytes", size_bytes)
        start_, end_ = int_array(_KERNEL, "start", start), int_array(_KERNEL, "end", end)
        n = len(size)
        align_bytes = np.ones(n, np.int64) if align_bytes is None else align_bytes
        fixed = np.full(n, -1, np.int64) if fixed is None else fixed
        align, held = (
            int_array(_KERNEL, "align_bytes", align_bytes),
            int_array(_KERNEL, "fixed", fixed),
        )
        require(_KERNEL, n <= MAX_ITEMS, f"{n} items, at most {MAX_ITEMS} allowed")
        require(_KERNEL, len(ptr_) == n + 1 and len(align) == len(held) == n, "columns differ in length")
        require(_KERNEL, len(start_) == len(end_), "columns differ in length")
        require(_KERNEL, ptr_[0] == 0 and ptr_[-1] == len(start_), "ptr does not cover the lives")
        require(_KERNEL, (np.diff(ptr_) > 0).all(), "an item without a life")
        require(_KERNEL, (start_ < end_).all(), "empty or reversed interval")
        require(_KERNEL, n == 0 or size.min() > 0, "sizes must be positive")
        require(_KERNEL, n == 0 or align.min() > 0, "alignments must be positive")
        total = float(size.astype(np.float64).sum()) + float(held.max(initial=0))
        total += float(align.max(initial=1)) * n
        require(_KERNEL, total < 2.0**61, "sizes add up to over 2**61")
        self._n, self._size, self._align, self._fixed = n, size, align, held
        self._capacity = -1
        if n:
            self._split(ptr_, start_, end_)

    def _split(self, ptr: Ints, start: Ints, end: Ints) -> None:
        """Cut time into sections and list who lives in each; only sections that no other contains count."""
        n = self._n
        times, ranks = np.unique(np.concatenate((start, end)), return_inverse=True)
        first, last = ranks[: len(start)], ranks[len(start) :]
        # The set of live items is largest just before something ends after something began.
        begins, ends = (np.bincount(r, minlength=len(times)) > 0 for r in (first, last))
        peaks, grown = [], False
        for at, (begin, stop) in enumerate(zip(begins.tolist(), ends.tolist())):
            if stop and grown:
                peaks.append(at)
                grown = False
            grown = grown or begin
        first = np.searchsorted(peaks, first, side="right")
        last = np.searchsorted(peaks, last, side="right")
        alive = np.zeros((n, len(peaks)), np.bool_)
        for i, a, z in zip(np.repeat(np.arange(n), np.diff(ptr)).tolist(), first, last):
            alive[i, a:z] = True
        wide = alive.astype(np.float32)
        together = (wide @ wide.T) > 0
        np.fill_diagonal(together, False)
        self._ptr, self._section = _csr(alive)
        self._nptr, self._neighbour = _csr(together)
        self._mptr, self._member = _csr(alive.T)
        self._by_first = np.argsort(alive.argmax(axis=1), kind="stable").astype(np.int64)
        self._weight = np.ones(len(peaks), np.int64)
        self._failed = np.zeros(_TABLE_WORDS, np.uint64)

    @property
    def n_sections(self) -> Ints:
        """Sections of time in which each item lives (n,)."""
        return np.diff(self._ptr) if self._n else np.empty(0, np.int64)

    def columns(self) -> tuple[Ints, ...]:
        """Return copies of what the kernel and its twin take first: the three CSR pairs and the items."""
        pairs = (
            self._ptr,
            self._section,
            self._nptr,
            self._neighbour,
            self._mptr,
            self._member,
        )
        return tuple(c.copy() for c in (*pairs, self._size, self._align, self._fixed, self._by_first))

    def run(
        self, order: npt.ArrayLike, capacity_bytes: int, budget: int, rule: int = 0
    ) -> tuple[Ints | None, bool, int]:
        """Search for offsets below `capacity_bytes`, visiting at most `budget` nodes.

        `order` is the permutation in which equals are tried, `rule` (below N_RULES) how sections
        are chosen. Returns (offsets (n,) int64 bytes or None, True when the answer is proven, nodes
        visited): None and True means that no placement exists.
        """
        order_ = int_array(_KERNEL, "order", order)
        n = self._n
        require(_KERNEL, len(order_) == n, "columns differ in length")
        require(_KERNEL, 0 <= capacity_bytes < 2**61, "capacity out of range")
        require(_KERNEL, budget >= 0 and 0 <= rule < N_RULES, "budget or rule out of range")
        if n == 0:
            return np.empty(0, np.int64), True, 0
        rank = np.full(n, -1, np.int64)
        require(_KERNEL, order_.min() >= 0 and order_.max() < n, "order is not a permutation")
        rank[order_] = np.arange(n)
        require(_KERNEL, rank.min() >= 0, "order is not a permutation")
        if capacity_bytes != self._capacity:
            self._failed.fill(0)
            self._capacity = capacity_bytes
        offset = np.zeros(n, np.int64)
        status, nodes = _pack.pack(
            self._ptr,
            self._section,
            self._nptr,
            self._neighbour,
            self._mptr,
            self._member.copy(),
            self._size,
            self._align,
            self._fixed,
            rank,
            self._by_first,
            rule,
            capacity_bytes,
            budget,
            self._weight,
            self._failed,
            offset,
        )
        if status in (_LIMIT_REACHED, _INFEASIBLE):
            return None, status == _INFEASIBLE, nodes
        check_status(_KERNEL, status)
        return offset, True, nodes


def _csr(matrix: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    ptr = np.concatenate(([0], np.cumsum(matrix.sum(axis=1), dtype=np.int64)))
    return ptr, np.nonzero(matrix)[1].astype(np.int64)


def pack_exact(
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    order: npt.ArrayLike,
    capacity_bytes: int,
    budget: int,
) -> tuple[Ints | None, bool, int]:
    """Search once for items with one life each; see `PackSearch`."""
    n = len(int_array(_KERNEL, "size_bytes", size_bytes))
    search = PackSearch(np.arange(n + 1), start, end, size_bytes)
    return search.run(order, capacity_bytes, budget)
