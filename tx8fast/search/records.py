"""What the search knows of single groups, as flat records: for people who ask why a plan is what it is.

May import: graph_table, lower, machine, search.*. Must not: choose anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast._kernels import BOUNDS
from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, Record, Step
from tx8fast.lower import lower, variants
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.search.borders import Cuts
from tx8fast.search.fitting import make_tiling
from tx8fast.search.members import check_patterns, record_key, selects
from tx8fast.search.planner import only_plan
from tx8fast.search.planning import Planner
from tx8fast.search.prices import priced
from tx8fast.search.results import plan_row
from tx8fast.search.trial import PlanTimer
from tx8fast.tile.tiling import Planned

FIRST = 10  # candidates of one lowering that are listed

Row = dict[str, Any]


class Records:
    """Records of the groups in which a pattern selects an op; of all groups without patterns. Raises ConfigError for
    patterns without an op."""

    def __init__(
        self,
        table: GraphTable,
        plans: Mapping[Record, Planned],
        machine: Machine,
        sharing: bool,
        patterns: Sequence[str] = (),
    ) -> None:
        check_patterns(table, patterns)
        self.table, self.plans, self.machine, self.sharing, self.patterns = table, plans, machine, sharing, patterns

    def of(self, category: str) -> list[Row]:
        """Return the records of a category (see `CATEGORIES`); the first entry of each says what it is of."""
        return list(CATEGORIES[category](self))

    def _chosen(self) -> Iterator[tuple[FunctionTable, int, Step]]:
        for fn in self.table.functions.values():
            for i, step in enumerate(fn.steps):
                if step.record in self.plans and (not self.patterns or selects(self.patterns, fn, step)):
                    yield fn, i, step

    def _nests(self) -> Iterator[tuple[Row, Planned]]:
        """Yield every nest with what names it; groups of equal plans once."""
        seen = set()
        for fn, i, step in self._chosen():
            assert step.record is not None
            if step.record not in seen:
                seen.add(step.record)
                p = self.plans[step.record]
                for n, nest in enumerate(p.nests or (p,)):
                    yield {"function": fn.name, "index": i, "nest": n}, nest

    def groups(self) -> Iterator[Row]:
        for fn, i, step in self._chosen():
            assert step.record is not None
            row = plan_row(step.record, self.plans[step.record])
            for n, (nest, members) in enumerate(zip(row["nests"], step.nests, strict=True)):
                second = nest.pop("runner_up")
                yield {
                    "record": "group",
                    "function": fn.name,
                    "index": i,
                    "nest": n,
                    "ops": list(members),
                    "plan": record_key(step.record),
                    "first_tile": step.first_tile,
                    **nest,
                    "runner_up_cycles": second["estimate_cycles"] if second else None,
                }

    def cuts(self) -> Iterator[Row]:
        planner = Planner(self.machine, self.sharing)
        planner.known |= self.plans
        chosen = {m for _, _, step in self._chosen() for m in step.members}
        for fn in self.table.functions.values():
            for row in Cuts(fn, planner).rows():
                if {row["first"], row["second"]} & chosen:
                    yield {"record": "cut", "function": fn.name, **row}

    def buffers(self) -> Iterator[Row]:
        for where, nest in self._nests():
            if not isinstance(nest.low, KernelCore | Stream):
                for name, size in nest.tiling.items():
                    yield {"record": "buffer", **where, "buffer": name, "bytes": size}

    def candidates(self) -> Iterator[Row]:
        """The candidates that the formulas find cheapest, and what the event kernel says of those that fit."""
        capacity = self.machine.spm_limit - self.machine.spm_base
        for where, nest in self._nests():
            record = nest.low.record
            for low in (lower(record, self.machine)[0], *variants(record, self.machine)):
                low.sharing = self.sharing
                try:
                    if only_plan(low, self.machine) is not None:
                        continue
                    parts, slices, inner, cycles, _, bound = priced(low, self.machine)
                except InfeasibleError:
                    continue
                timer = PlanTimer(low, self.machine)
                for i in np.argsort(cycles, kind="stable")[:FIRST]:
                    made = make_tiling(low, parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], len(cycles))
                    plan, used = made.plan, made.demand_bytes()
                    fits = used <= capacity and low.fits(plan.slices)
                    yield {
                        "record": "candidate",
                        **where,
                        "variant": low.variant,
                        "parts": list(plan.parts),
                        "slices": list(plan.slices),
                        "order": list(plan.order),
                        "shared": list(plan.shared),
                        "price_cycles": int(cycles[i]),
                        "bound": plan.bound,
                        "spm_bytes": used,
                        "fits": fits,
                        "cycles": timer.final(made) if fits else None,
                    }


CATEGORIES: dict[str, Callable[[Records], Iterator[Row]]] = {
    "groups": Records.groups,
    "cuts": Records.cuts,
    "candidates": Records.candidates,
    "buffers": Records.buffers,
}
