"""Groups that the graph asks for become group records where a lowering takes them.

May import: graph_table, lower, tile, machine, errors. Must not: decide whether a group pays.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from tx8fast.errors import UnusedOptionWarning
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Step
from tx8fast.lower import WINDOWS, NotLowerable, lower
from tx8fast.machine import Machine
from tx8fast.tile.legality import why_not

PRODUCTS = frozenset({"gemm", "contract", "conv"})


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
    records = tuple(s.record for s in part if isinstance(s.record, OpRecord) and len(s.outputs) == 1 and not s.is_empty)
    if len(records) != len(part):
        raise NotLowerable("every member must be an op with one result that has elements")
    if records[0].kind not in PRODUCTS and sum(r.kind in WINDOWS for r in records) < 2:
        raise NotLowerable("a matrix product, a convolution, or a chain of convolutions and pools must lead")
    made = {s.outputs[0]: i for i, s in enumerate(part)}
    inputs = [v for v in dict.fromkeys(v for s in part for v in s.inputs) if v >= 0 and v not in made]

    def wire(v: int) -> tuple[str, int] | None:
        return None if v < 0 else ("op", made[v]) if v in made else ("in", inputs.index(v))

    inside = {id(s) for s in part}
    outside = {v for s in fn.steps if id(s) not in inside for v in s.inputs} | set(fn.results)
    leaving = tuple(i for i, s in enumerate(part) if s.outputs[0] in outside)
    if not leaving:
        raise NotLowerable("nothing uses its results")
    wires = tuple(tuple(wire(v) for v in s.inputs) for s in part)
    record = GroupRecord(records, wires, tuple(fn.values[v] for v in inputs), leaving)
    name = f"{part[0].name}+{part[-1].name.rpartition('.')[2]}"
    return Step("group", name, tuple(inputs), tuple(part[i].outputs[0] for i in leaving), record, barrier=part[-1].barrier,
                op_names=tuple(n for s in part for n in s.op_names))  # fmt: skip
