"""Model 3 of the scratchpad's banks: how fast rows run that are active at the same time.

May import: numpy, machine, _kernels. Must not: know rows, programs or events.
Source: TX8 hardware manual 3.1, 16.8; how far an operand may run ahead is the machine's `tile.spm_fifo_beats`.

What arbitration sees of a row is its form: for every operand the bank where it begins and the beats that it asks for
per cycle. Programs have hundreds of thousands of rows and a few hundred forms, so rows are reduced to forms first, and every
set of forms that meets is arbitrated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast._kernels import STEPS, bank_shares
from tx8fast.machine import Machine

BEAT = 128  # bytes of one access, the width of an engine's port
MOST_SETS = 1 << 17  # that are remembered
NOTHING = -1  # the form of a lane that has no row


class Arbiter:
    """Forms and sets of forms of one machine, as far as they have been seen."""

    def __init__(self, machine: Machine) -> None:
        self.banks = machine.tile.spm_banks
        self.per_bank = machine.tile.spm_bank_width // BEAT or 1
        self.fifo = machine.tile.spm_fifo_beats
        self.forms: list[tuple[tuple[int, int], ...]] = []
        self._form_of: dict[tuple[tuple[int, int], ...], int] = {}
        self._shares: dict[tuple[int, ...], np.ndarray] = {}

    def form_ids(self, first: np.ndarray, streamed: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Return the form (n,) of rows: first (n, k) byte addresses of operands, streamed (n, k) their bytes, length (n,)
        the cycles that the rows take undisturbed."""
        phase = first // BEAT % (self.banks * self.per_bank)
        step = np.ceil(streamed / BEAT * STEPS / length[:, None]).astype(np.int64)
        phase = np.where(step > 0, phase, 0)
        at, which = distinct([*phase.T, *step.T])
        known = np.array([self._intern(p, s) for p, s in zip(phase[at].tolist(), step[at].tolist())], np.int64)
        return known[which] if len(known) else which

    def _intern(self, phase: Sequence[int], step: Sequence[int]) -> int:
        form = tuple((p, s) for p, s in zip(phase, step) if s)
        number = self._form_of.setdefault(form, len(self.forms))
        if number == len(self.forms):
            self.forms.append(form)
        return number

    def speeds(self, active: np.ndarray) -> np.ndarray:
        """Return the share (lanes, n) of its rate that every lane gets. active (lanes, n): forms that run at the same
        time, lanes in order of priority; NOTHING where a lane rests."""
        at, which = distinct(list(active))
        sets = [tuple(column) for column in active[:, at].T.tolist()]
        if len(self._shares) > MOST_SETS:
            self._shares.clear()
        new = [forms for forms in sets if forms not in self._shares]
        if new:
            self._shares.update(zip(new, self._arbitrate(new), strict=True))
        rows = np.array([self._shares[forms] for forms in sets]).reshape(len(sets), len(active))
        return np.ascontiguousarray(rows[which].T)

    def _arbitrate(self, sets: Sequence[tuple[int, ...]]) -> np.ndarray:
        begin, streams = [0], []
        for forms in sets:
            streams += [(lane, p, s) for lane, form in enumerate(forms) if form >= 0 for p, s in self.forms[form]]
            begin.append(len(streams))
        lane, beat, step = np.array(streams, np.int64).reshape(-1, 3).T
        lanes = len(sets[0])
        return bank_shares(np.array(begin, np.int64), lane, beat, step, lanes, self.banks, self.per_bank, [self.fifo])[
            0
        ]


@lru_cache(maxsize=2)
def arbiter_of(machine: Machine) -> Arbiter:
    """Return the arbiter of a machine, with what is known from simulations before."""
    return Arbiter(machine)


def distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where the distinct rows of a table given by its integer columns first stand, and which of them each row is."""
    key, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if low == high:
            continue
        if count > (1 << 62) // (high - low + 1):  # the next factor would not fit: number what is there anew
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
            count = int(key.max(initial=0)) + 1
        key = key * (high - low + 1) + (column - low)
        count *= high - low + 1
    _, at, which = np.unique(key, return_index=True, return_inverse=True)
    return at, which.reshape(-1)
