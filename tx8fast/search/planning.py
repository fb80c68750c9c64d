"""Plans by record: every distinct op or group is lowered and planned once.

May import: graph_table, lower, machine, search.*. Must not: emit programs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tx8fast.errors import InfeasibleError, InternalError
from tx8fast.graph_table import ChainRecord, Record
from tx8fast.lower import NotLowerable, lower, variants
from tx8fast.lower.base import Lowering
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.search.bands import undisturbed
from tx8fast.search.planner import Draft
from tx8fast.tile.tiling import Planned

E = TypeVar("E", bound=Exception)
MATRIX_FORMATS = ("bf16", "f16", "f32", "i8", "u8")
#: kinds of ops that write every element of their result
WHOLE = frozenset({"gemm", "contract", "conv", "softmax", "layernorm", "rmsnorm", "rope", *BINARY, *UNARY})


class Planner:
    """Remembers plans, and failures, by record."""

    def __init__(self, machine: Machine, sharing: bool = True) -> None:
        self.machine = machine
        self.sharing = sharing
        self.known: dict[Record, Planned | Exception] = {}
        self.drafts: dict[Record, tuple[list[Draft], str]] = {}  # of records without a plan, and why the kernel core
        #: what formulas say of planned lowerings whose operands may stay: few candidates, which are measured
        self.prices: dict[Lowering, tuple[np.ndarray, ...]] = {}

    def plan(self, record: Record, name: str) -> Planned:
        """Return the plan. Raises NotLowerable (groups only) or InfeasibleError."""
        if record not in self.known:
            try:
                self.known[record] = self._undisturbed(*self._drafted(record, name))
            except (NotLowerable, InfeasibleError) as err:
                self.known[record] = _fresh(err)
            self.drafts.pop(record, None)
        found = self.known[record]
        if isinstance(found, Exception):
            raise _fresh(found)
        return found

    def floor(self, record: Record) -> float:
        """Return cycles that no plan of the record goes below, without lowering it: its multiplications at the peak rate, and
        where every element of its results is written, what that takes the DDR."""
        rates = [self.machine.peak_macs_per_cycle(s.dtype) for s in record.operands if s and s.dtype in MATRIX_FORMATS]
        macs = record.useful_macs / max(rates) if rates else 0.0
        stored = sum([math.prod(s.shape) * ITEM_BYTES[s.dtype] for s in record.results]) if record.kind in WHOLE else 0
        return max(macs, stored / self.machine.ddr_bytes_per_cycle)

    def bound(self, record: Record, name: str, tight: bool = False) -> float:
        """Return cycles that the record's plan hardly goes below; those of the plan if there is one. tight: after a look at what
        fits scratchpad. Raises like `plan` as far as it is known."""
        if record not in self.known:
            try:
                drafts, _ = self._drafted(record, name)
                return min([draft.tighten() if tight else draft.bound for draft in drafts])
            except (NotLowerable, InfeasibleError) as err:
                self.known[record] = _fresh(err)
        return float(self.plan(record, name).plan.estimate_cycles)

    def forget(self) -> None:
        """Free the priced candidates of records without a plan."""
        self.drafts.clear()

    def _drafted(self, record: Record, name: str) -> tuple[list[Draft], str]:
        """Return the record's lowerings with their candidates priced."""
        if isinstance(record, ChainRecord):
            raise InternalError(f"planning '{name}': a chain is planned where it is made")
        if record not in self.drafts:
            low, reason = lower(record, self.machine)
            drafts = []
            failed: InfeasibleError | None = None
            for option in (low, *variants(record, self.machine)):
                option.sharing = self.sharing
                try:
                    drafts.append(Draft(option, self.machine, name))
                except InfeasibleError as err:
                    failed = failed or _fresh(err)
            if failed is not None and not drafts:
                raise _fresh(failed)
            self.drafts[record] = drafts, reason
        return self.drafts[record]

    def _undisturbed(self, drafts: list[Draft], reason: str) -> Planned:
        best = self._best(drafts, reason)
        return undisturbed(best, [t for d in drafts if d.low is best.low for t in d.near], self.machine)

    def _best(self, drafts: list[Draft], reason: str) -> Planned:
        options: list[Planned] = []
        failed: InfeasibleError | None = None
        uncut: dict[tuple, int] | None = {} if any(draft.low.twin for draft in drafts) else None
        for draft in sorted(drafts, key=lambda d: d.bound):
            try:
                made = draft.best(min([p.plan.estimate_cycles for p in options], default=math.inf), uncut)
            except InfeasibleError as err:
                failed = failed or _fresh(err)
                continue
            if made is not None:
                options.append(Planned(made, reason))
        if failed is not None and not options:
            raise _fresh(failed)
        best = min(options, key=lambda p: p.plan.estimate_cycles)
        self.prices |= {d.low: d.prices for d in drafts if d.low is best.low and d.only is None and d.stay}
        others = [p.plan for p in options if p is not best] + [p for p in [best.plan.runner_up] if p is not None]
        second = min(others, key=lambda p: p.estimate_cycles, default=None)
        return replace(best, tiling=best.tiling.but(runner_up=second and second.but(runner_up=None)))


def _fresh(err: E) -> E:
    """Return the same error without its traceback, whose frames would keep everything the search knows alive."""
    return type(err)(*err.args)
