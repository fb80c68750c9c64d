"""Groups that the graph asks for become group records where a lowering takes them.

May import: graph_table, lower, tile, machine, errors, search.grouping. Must not: decide whether a group pays.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tx8fast.errors import UnusedOptionWarning
from tx8fast.graph_table import FunctionTable, GraphTable, Step
from tx8fast.lower import NotLowerable, lower
from tx8fast.machine import Machine
from tx8fast.search.grouping import groupable, join, uses
from tx8fast.tile.legality import why_not


def form_given_groups(table: GraphTable, machine: Machine) -> None:
    """Replace the steps of every given group by one; groups that cannot be lowered stay single ops, and a warning says why."""
    refused: Counter[str] = Counter()
    for fn in table.functions.values():
        for members in fn.given:
            part = [next(s for s in fn.steps if v in s.outputs) for v in members]
            step = None
            try:
                step = join_steps(fn, part)
                lower(step.record, machine)  # type: ignore[arg-type]
            except NotLowerable as err:
                why = why_not(step.record, machine) if step is not None else None  # type: ignore[arg-type]
                refused[f"{'+'.join(s.record.kind for s in part if s.record is not None)}: {why or err}"] += 1
                continue
            at = fn.steps.index(part[0])
            fn.steps[at : at + len(part)] = [step]
        fn.given = []
    for reason, n in refused.items():
        warnings.warn(
            f"{n} group{'s' * (n > 1)} of the table stay single ops: {reason}", UnusedOptionWarning, stacklevel=2
        )


def join_steps(fn: FunctionTable, part: Sequence[Step]) -> Step:
    """Return neighbouring steps as one. Raises NotLowerable if one of them is no plain op with one result."""
    if not all(groupable(s) for s in part):
        raise NotLowerable("every member must be an op with one result that has elements")
    step = join(fn, part, {fn.steps.index(s) for s in part}, uses(fn, fn.steps))
    if not step.outputs:
        raise NotLowerable("nothing uses its results")
    return replace(step, barrier=part[-1].barrier)
