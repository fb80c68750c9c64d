"""A planner that takes what is known of single ops and groups from a store, and lets the store know what it finds out.

May import: graph_table, lower, machine, search.*, tile, errors. Must not: choose anything, or know files.

The search asks of a record a bound, a tighter one, and its plan, and decides by the answers which records it asks about
next. So each answer is kept by itself, and is given for that question alone: a search with a store asks what a search
without one would ask, and finds the same. A plan is kept apart by whether the tighter bound was known before, because
lowerings are tried in the order of their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import ChainRecord, GroupRecord, OpRecord, Record
from tx8fast.lower import NotLowerable
from tx8fast.machine import Machine
from tx8fast.search.planning import Planner
from tx8fast.search.read_nest import Unusable, read_nest
from tx8fast.search.results import nest_row
from tx8fast.search.results_file import NEST, match
from tx8fast.tile.tiling import Planned

#: what is asked of a record
BOUND, TIGHT_BOUND, PLAN, TIGHT_PLAN = QUESTIONS = ("bound", "tight bound", "plan", "plan after tight bound")
FAILURES: dict[str, type[Exception]] = {"not lowerable": NotLowerable, "infeasible": InfeasibleError}

Answer = Mapping[str, Any]


class GroupStore(Protocol):
    """Answers by record, JSON-able: `cycles` (null: no plan fits), `nest` (a row of `results.nest_row`), or `failed` and
    `text`, for a step of this `name` ("": of any)."""

    def find(self, record: OpRecord | GroupRecord, question: str) -> Answer | None:
        """Return the answer to one of QUESTIONS, None if it is not known."""
        ...

    def keep(self, record: OpRecord | GroupRecord, question: str, answer: Answer) -> None:
        """Take an answer that was not known."""
        ...

    def refuse(self, record: OpRecord | GroupRecord, why: str) -> None:
        """Take note that an answer cannot be right."""
        ...


class Remembering(Planner):
    """Plans and bounds as a `Planner` finds them, with what the store knows."""

    def __init__(self, machine: Machine, sharing: bool, store: GroupStore) -> None:
        super().__init__(machine, sharing)
        self.store = store
        self.tight: set[Record] = set()  # records whose tighter bound was asked for

    def plan(self, record: Record, name: str) -> Planned:
        if record in self.known or isinstance(record, ChainRecord):
            return super().plan(record, name)
        question = TIGHT_PLAN if record in self.tight else PLAN
        found = self._kept(record, question, name)
        if isinstance(found, Planned | Exception):
            self.known[record] = found
            self.drafts.pop(record, None)
            return super().plan(record, name)
        try:
            if record in self.tight:  # the bound may have come from the store
                super().bound(record, name, True)
            made = super().plan(record, name)
        except (NotLowerable, InfeasibleError) as err:
            self._keep_failure(record, question, name, err)
            raise
        self.store.keep(record, question, {"nest": nest_row(made)})
        return made

    def bound(self, record: Record, name: str, tight: bool = False) -> float:
        if record in self.known or isinstance(record, ChainRecord):
            return super().bound(record, name, tight)
        if tight:
            self.tight.add(record)
        tight = record in self.tight
        question = TIGHT_BOUND if tight else BOUND
        found = self._kept(record, question, name)
        if isinstance(found, float):
            return found
        if isinstance(found, Exception):
            self.known[record] = found
            return super().bound(record, name, tight)
        try:
            cycles = super().bound(record, name, tight)
        except (NotLowerable, InfeasibleError) as err:
            self._keep_failure(record, question, name, err)
            raise
        self.store.keep(record, question, {"cycles": float(cycles) if math.isfinite(cycles) else None})
        return cycles

    def forget(self) -> None:
        super().forget()
        self.tight.clear()

    def _kept(self, record: OpRecord | GroupRecord, question: str, name: str) -> Planned | float | Exception | None:
        """Return an answer of the store, None if it has none that can be used."""
        answer = self.store.find(record, question)
        if answer is None:
            return None
        try:
            if "failed" in answer:
                return FAILURES[answer["failed"]](answer["text"]) if answer["name"] in ("", name) else None
            if question in (BOUND, TIGHT_BOUND):
                return math.inf if answer["cycles"] is None else float(answer["cycles"])
            return self._planned(record, name, answer["nest"])
        except (Unusable, NotLowerable, InfeasibleError, ValueError, TypeError, KeyError, OverflowError) as err:
            self.store.refuse(record, str(err) or type(err).__name__)
            return None

    def _planned(self, record: OpRecord | GroupRecord, name: str, row: Mapping[str, Any]) -> Planned:
        problems: list[str] = []
        match(row, NEST, "$", problems)
        if problems:
            raise Unusable(*problems)
        made = read_nest(record, name, row, self.machine, self.sharing)
        cycles, size = row["estimate_cycles"], row["spm_bytes"]
        return Planned(made.tiling.but(estimate_cycles=cycles, spm_bytes=size), made.reason)

    def _keep_failure(self, record: OpRecord | GroupRecord, question: str, name: str, err: Exception) -> None:
        """Keep why there is no plan. What does not fit is told with the step's name, so it holds for this name alone."""
        kind = next(k for k, t in FAILURES.items() if isinstance(err, t))
        of = name if kind == "infeasible" else ""
        self.store.keep(record, question, {"failed": kind, "text": str(err), "name": of})
