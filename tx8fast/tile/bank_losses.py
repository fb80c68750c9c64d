"""What instructions lose to banks of the scratchpad, by where their streams begin.

May import: machine, _kernels. Must not: know buffers, plans or instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from tx8fast._kernels import bank_shares
from tx8fast.machine import Machine

BEAT_BYTES = 128  # of one access, the width of an engine's port (pub2)
#: how deep the buffers of beats may be: nobody has measured it, so a phase must be good for all of these
DEPTHS = (*range(8, 19), 24)

#: (bytes behind the bank where the first begins, STEPS parts of a beat per cycle) of every operand of an instruction
Streams = tuple[tuple[int, int], ...]
#: the streams of instructions that run at the same time, those of the engine that is served first in front
Together = tuple[Streams, ...]


class BankLosses:
    """What is known of a machine: the share of its cycles that an instruction waits for banks, of instructions that run at the same
    time those of all engines together, per depth."""

    def __init__(self, machine: Machine) -> None:
        self.banks, self.bank_bytes = machine.tile.spm_banks, machine.tile.spm_bank_width
        self.known: dict[Together, np.ndarray] = {}
        self.tried: dict[tuple, np.ndarray] = {}  # losses at phases that were tried, by these and the streams

    def of(self, wanted: Iterable[Together]) -> np.ndarray:
        """Return the losses of every set of streams, (sets, depths)."""
        wanted = list(wanted)
        new = [s for s in dict.fromkeys(wanted) if s not in self.known]
        if new:
            self.known.update(zip(new, self._worked_out(new), strict=True))
        return np.array([self.known[s] for s in wanted]).reshape(len(wanted), len(DEPTHS))

    def lost(self, wanted: Sequence[Together], cycles: Sequence[int]) -> np.ndarray:
        """Return the cycles, per depth, that sets of streams lose which run for so many."""
        return self._added(self.of(wanted), cycles)

    def least(self, losses: np.ndarray, cycles: Sequence[int]) -> int:
        """Return which of the candidates loses least at the worst of DEPTHS; of equals, which loses least at all of them, and the first.
        losses (candidates, sets, depths): of sets of streams that run for `cycles`."""
        lost = self._added(losses, cycles)
        return int(np.lexsort((lost.sum(axis=1), lost.max(axis=1)))[0])

    @staticmethod
    def _added(losses: np.ndarray, cycles: Sequence[int]) -> np.ndarray:
        """Return the cycles lost by sets of streams, (..., sets, depths), added set by set: a product of matrices would add as the
        host's library does."""
        return (losses * np.array(cycles, np.float64)[:, None]).sum(axis=-2)

    def _worked_out(self, wanted: Sequence[Together]) -> np.ndarray:
        engines = max(map(len, wanted))
        flat = [[(lane, *x) for lane, own in enumerate(s) for x in own] for s in wanted]
        begin = np.cumsum([0, *[len(s) for s in flat]])
        lane, at, step = np.array([x for s in flat for x in s], np.int64).T
        per_bank = self.bank_bytes // BEAT_BYTES or 1
        shares = bank_shares(begin, lane, at // BEAT_BYTES, step, engines, self.banks, per_bank, DEPTHS)
        return (1 / shares - 1).sum(axis=2).T


@lru_cache(maxsize=2)
def bank_losses(machine: Machine) -> BankLosses:
    """Return what is known of a machine's banks, and learnt as it is asked for."""
    return BankLosses(machine)
