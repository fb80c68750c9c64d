"""Why neighbouring groups are apart: what one group of both would have cost, or why there can be none.

May import: graph_table, lower, tile, search.*, errors. Must not: choose anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import ChainRecord, FunctionTable, GroupRecord, Step
from tx8fast.lower import NotLowerable
from tx8fast.lower.chain import WINDOWS
from tx8fast.lower.sequence import may_stream
from tx8fast.lower.transfer import spec_bytes
from tx8fast.search.candidates import edges_of
from tx8fast.search.grouping import MAX_CHAIN, MAX_GROUP, groupable, join, uses
from tx8fast.search.partition import closure, items_of, mask_of
from tx8fast.search.planning import Planner
from tx8fast.search.streams import is_sequence
from tx8fast.tile.legality import why_not


class Cuts:
    """The cuts of one function, whose steps are those after the search. `planner` knows their plans."""

    def __init__(self, fn: FunctionTable, planner: Planner) -> None:
        self.fn, self.planner = fn, planner
        self.steps = list(fn.base.values())
        self.place = {name: i for i, name in enumerate(fn.base)}
        self.used = uses(fn, self.steps)
        self.behind = closure(len(self.steps), edges_of(self.steps))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per pair of steps, one of them a group, of which the second reads a result of the first, or follows it and reads an
        operand that it reads too. Bytes: of the values between them; cycles: of one group and of both apart."""
        maker = {v: i for i, s in enumerate(self.fn.steps) for v in s.outputs}
        out = []
        for j, b in enumerate(self.fn.steps):
            between: dict[int, set[int]] = {}
            for v in b.inputs:
                if v in maker:
                    between.setdefault(maker[v], set()).add(v)
            if j and j - 1 not in between and (common := set(self.fn.steps[j - 1].inputs) & set(b.inputs) - {-1}):
                between[j - 1] = common
            for i in sorted(between):
                size = sum(spec_bytes(self.fn.values[v]) for v in between[i])
                a = self.fn.steps[i]
                if a.kind != "group" and b.kind != "group":
                    continue
                out.append({"first": a.members[0], "second": b.members[0], "bytes": size, **self._why(a, b)})
        return out

    def _why(self, a: Step, b: Step) -> dict[str, Any]:
        apart = self._cycles(a) + self._cycles(b)
        merged, why = self._merged(a, b, apart)
        return {"apart_cycles": apart, "merged_cycles": merged, "why": why}

    def _cycles(self, step: Step) -> int:
        if step.record is None or step.is_empty:
            return 0
        return self.planner.plan(step.record, step.name).plan.estimate_cycles

    def _merged(self, a: Step, b: Step, apart: int) -> tuple[int | None, str]:
        """Return the cycles of one group, None if there is none, and the reason for the cut."""
        for step in (a, b):
            if step.kind != "group":
                return (
                    None,
                    f"'{step.members[0]}' is a {'call' if step.kind == 'call' else 'reshape without code'}, where groups end",
                )
            if isinstance(step.record, ChainRecord):
                return (
                    None,
                    f"'{step.members[0]}' begins a chain of groups, and no chain with more of them was found cheaper",
                )
        items = sorted(self.place[m] for s in (a, b) for m in s.members)
        part = [self.steps[i] for i in items]
        for s in part:
            if s.fixed:
                return None, f"'{s.members[0]}' is none of the ops that are searched"
            if not groupable(s):
                return None, f"'{s.members[0]}' has several results, no element, or comes from a pattern table"
        if (between := self._between(items)) is not None:
            return None, f"'{self.steps[between].nests[0][0]}' has to run between the two"
        step = join(self.fn, part, set(items), self.used)
        assert isinstance(step.record, GroupRecord)
        if (why := why_not(step.record, self.planner.machine)) is not None:
            return None, why
        kinds = [op.kind for op in step.record.ops]
        if is_sequence(kinds) and len(part) > MAX_GROUP and not may_stream(step.record, self.planner.machine):
            return None, "there are too few sequences for the tiles, or one is too long to stay in scratchpad"
        try:
            bound = self.planner.bound(step.record, step.name)
            if bound >= apart:
                return int(bound), f"one group takes at least {int(bound):,} cycles, two {apart:,}"
            merged = self.planner.plan(step.record, step.name).plan.estimate_cycles
        except (NotLowerable, InfeasibleError) as err:
            return None, str(err)
        if merged >= apart:
            return merged, f"one group takes {merged:,} cycles, two {apart:,}"
        windows = sum(s.record.kind in WINDOWS for s in part) > 1  # type: ignore[union-attr]
        most = MAX_CHAIN if windows else MAX_GROUP
        if len(part) > most:
            return merged, f"one group takes {merged:,} cycles, two {apart:,}, but the search tries at most {most} ops"
        return merged, f"one group takes {merged:,} cycles, two {apart:,}, but it was no candidate"

    def _between(self, items: Sequence[int]) -> int | None:
        """Return a step that one of `items` needs and that needs another one, None if there is none."""
        inside = mask_of(items)
        after = 0
        for i in items:
            after |= self.behind[i]
        return next((k for k in items_of(after & ~inside) if self.behind[k] & inside), None)
