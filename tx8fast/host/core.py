"""The door to the C core: tiles that execute rows, alone or several in threads.

May import: numpy, errors, machine, isa, host. Must not: know programs, launches or who waits for whom.
A tile's memories are numpy arrays that the core reads and writes in place. The interpreter is free while rows execute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tx8fast.host import _core
from tx8fast.host._core import STATUS
from tx8fast.host.faults import fault
from tx8fast.isa.record import RECORD
from tx8fast.machine import DDR_BASE

DONE = STATUS["done"]
LEVELS = _core.levels()
#: the widest vectors of this processor; narrower ones give the same bytes
use_level = _core.use_level
use_level(LEVELS - 1)

Bytes = npt.NDArray[np.uint8]


def default_threads() -> int:
    """Return how many threads run tiles unless the caller says otherwise: one per processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Calls:
    """The calls of kernel-core routines of a segment as the core reads them: words (n,) i64, and where each begins, (calls + 1,)."""

    def __init__(self, routines: Sequence[Mapping[str, Any]] = ()) -> None:
        made = []
        if routines:
            from tx8fast.isa.routines import words_of

            made = [words_of(d) for d in routines]
        self.words = np.array([w for words in made for w in words], np.int64)
        self.places = np.cumsum([0, *map(len, made)], dtype=np.int64)


NO_CALLS = Calls()


class CoreTile:
    """One tile: its scratchpad, (n,) u8, and DDR, of which `ddr_bytes` from DDR_BASE on exist.

    number: of the tile on its chip; chip: among the chips of a program, 0 for a single one.
    """

    def __init__(self, spm: Bytes, ddr: Bytes, ddr_bytes: int, number: int = 0, chip: int = 0) -> None:
        self.tile = _core.Tile(spm, ddr, DDR_BASE, ddr_bytes, number, chip)
        self.spm = spm
        self.ddr_end = DDR_BASE + ddr_bytes
        self.rows = np.zeros(0, RECORD)

    def load(
        self,
        rows: np.ndarray,
        addresses: np.ndarray,
        slots: Sequence[int] | np.ndarray,
        calls: Calls = NO_CALLS,
    ) -> None:
        """Take loop-free rows (RECORD), the absolute DDR byte address of each, the addresses of the segment's slots, and the
        calls of routines that rows name."""
        self.rows = np.ascontiguousarray(rows, RECORD)
        addresses, places = (np.ascontiguousarray(x, np.int64) for x in (addresses, slots))
        self.tile.load(self.rows.view(np.uint8).reshape(-1), addresses, places)
        self.tile.load_calls(calls.words, calls.places)

    def run(self, at: int, end: int, before: int = 0) -> int:
        """Execute rows [at, end); return `end`.

        `before`: rows that ran before row 0, for stochastic rounding. Raises SimulationError for a row that cannot run; `at`
        says which."""
        self.tile.stretch(at, end, before)
        self.tile.run()
        return self.stopped()

    def stopped(self) -> int:
        """Return where the last stretch stopped. Raises SimulationError as `run` does."""
        status = self.tile.status
        if status != DONE:
            at = self.tile.at
            row = self.rows[at] if at < len(self.rows) else None
            raise fault(status, self.tile.found, (DDR_BASE, self.ddr_end), row)
        return self.tile.at

    @property
    def at(self) -> int:
        """The row that the last stretch stopped at."""
        return self.tile.at

    @property
    def result(self) -> tuple[int, int]:
        """Register results of the last row that had any: a pattern or count, and an index."""
        return self.tile.result

    @property
    def work(self) -> list[int]:
        """What routines have done in the last stretch, in the order of `isa.routines.WORK`."""
        return self.tile.work

    @property
    def has_messages(self) -> bool:
        """Whether messages wait to be delivered."""
        return self.tile.messages > 0


_ENDS = {code: name for name, code in _core.ENDS.items()}


def run_together(
    own: Sequence[CoreTile],
    numbers: Sequence[int],
    stops: Sequence[np.ndarray],
    tiles: Sequence[CoreTile],
    monitors: np.ndarray,
    n_chips: int,
    threads: int,
) -> tuple[str, int, list[int]]:
    """Execute the rows of the tiles `own` to their ends, in rounds, in at most `threads` threads.

    numbers: of these tiles among `tiles`, all of all chips; stops: of each the rows that may have to wait, rising; monitors:
    (tiles, 4) i64 zeros, then the bytes arrived and not taken. Returns how it ended (`_core.ENDS`), which of `own` that
    concerns, and the row that each stands at.
    """
    status, which, places = _core.run_streams(
        [t.tile for t in own],
        list(numbers),
        [np.ascontiguousarray(s, np.int64) for s in stops],
        [t.tile for t in tiles],
        monitors,
        len(tiles) // n_chips,
        n_chips,
        threads,
    )
    return _ENDS[status], which, places


def deliver(
    sender: CoreTile, tiles: Sequence[CoreTile], monitors: np.ndarray, tiles_per_chip: int, n_chips: int
) -> None:
    """Put what `sender` has sent into the scratchpads of `tiles`, all of all chips, and count the bytes.

    monitors: (tiles, 4) i64, bytes arrived and not yet taken. Raises SimulationError for what does not exist."""
    if _core.deliver(sender.tile, [t.tile for t in tiles], monitors, tiles_per_chip, n_chips):
        sender.stopped()
