"""What the compiler will do with each kind of op, and whether the model fits: known before any search.

May import: graph_table, lower, search.planner (what a routine takes), schedule.demand, schedule.memory, machine,
simulator.roofline, cli.kernel_core. Must not: search or emit code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tx8fast.cli.kernel_core import Row, Share, share_of
from tx8fast.graph_table import GraphTable, OpRecord, TensorSpec
from tx8fast.lower import lower
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine
from tx8fast.schedule.demand import instances
from tx8fast.schedule.memory import PAGE, plan_frames
from tx8fast.search.planner import kernel_core_plan
from tx8fast.simulator.roofline import roofline

#: placing is asked how much it would take, so it must not stop at what one chip has
NO_LIMIT = 1 << 62


@dataclass
class _Row:
    op: str
    engine: str
    reason: str
    example: str
    count: int = 0
    macs: int = 0
    cycles: int = 0
    distinct: set[OpRecord] = field(default_factory=set)


def support_facts(table: GraphTable, machine: Machine, needed: dict[str, Any]) -> tuple[dict[str, Any], Share]:
    """Return the rows per op kind and the sizes of a model, JSON-able, stable keys, and what its routines on the kernel core
    take. needed: its `demand`."""
    times = instances(table)
    rows: dict[tuple[str, str, str], _Row] = {}
    known: dict[OpRecord, tuple[str, str]] = {}
    routine_cycles: dict[OpRecord, int] = {}
    for name, fn in table.functions.items():
        for step in fn.steps:
            if step.kind != "group" or step.is_empty or not isinstance(step.record, OpRecord):
                continue
            if step.record not in known:
                known[step.record], routine_cycles[step.record] = _engine(step.record, machine)
            engine, reason = known[step.record]
            row = rows.setdefault((step.record.kind, engine, reason), _Row(step.record.kind, engine, reason, step.name))
            row.count += times[name]
            row.macs += times[name] * step.record.useful_macs
            row.cycles += times[name] * routine_cycles[step.record]
            row.distinct.add(step.record)
    main = table.functions["main"]
    footprint = _footprint(table)
    weights = _params(table)
    bound = roofline(machine, needed)
    routines = [Row(r.op, r.reason, r.example, r.count, r.cycles) for r in rows.values() if r.cycles]
    share = share_of(routines, bound.bound_cycles, exact=False)
    return {
        "ops": [
            {"op": r.op, "engine": r.engine, "reason": r.reason, "count": r.count, "distinct": len(r.distinct),
             "macs": r.macs, "example": r.example}
            for r in sorted(rows.values(), key=lambda r: (-r.macs, r.op, r.reason))
        ],
        **needed,
        "weight_bytes": sum(spec_bytes(s) for _, s in weights),
        "activation_bytes": footprint - sum(_page(s) for _, s in weights),
        "input_bytes": sum(spec_bytes(main.values[v]) for v in main.args),
        "output_bytes": sum(spec_bytes(main.values[v]) for v in main.results),
        "ddr_footprint_bytes": footprint,
        "ddr_capacity_bytes": machine.chip.ddr_bytes,
        "fits_ddr": footprint <= machine.chip.ddr_bytes,
        "compute_bound_cycles": bound.compute_cycles,
        "memory_bound_cycles": bound.memory_cycles,
        "bound_cycles": bound.bound_cycles,
        "bound": bound.bound,
        "bound_seconds": bound.bound_cycles / machine.chip.clock_hz,
        "kernel_core_share": share.part(share.routine_cycles),
    }, share  # fmt: skip


def _engine(record: OpRecord, machine: Machine) -> tuple[tuple[str, str], int]:
    """Return which engine performs an op, why none does, and the cycles that the kernel core's routine takes then."""
    low, reason = lower(record, machine)
    if not isinstance(low, KernelCore):
        return (low.kind, ""), 0
    return ("kernel core", reason), kernel_core_plan(low, machine).estimate_cycles


def _params(table: GraphTable) -> list[tuple[str, TensorSpec]]:
    """Return the distinct (key, spec) of all parameters: one DDR tensor each."""
    found = {(key, fn.values[v]): None for fn in table.functions.values() for v, key in fn.params.items()}
    return list(found)


def _page(spec: TensorSpec) -> int:
    return -(-max(1, spec_bytes(spec)) // PAGE) * PAGE


def _footprint(table: GraphTable) -> int:
    """Return the DDR bytes of parameters, inputs, outputs and the deepest stack of temporaries."""
    frames = plan_frames(table.functions, NO_LIMIT)

    def stack(name: str) -> int:
        calls = [stack(s.callee) for s in table.functions[name].steps if s.kind == "call"]
        return frames[name].size_bytes + max(calls, default=0)

    main = table.functions["main"]
    own = [
        r for r in dict.fromkeys(frames["main"].result_roots) if r not in main.args and r not in frames["main"].params
    ]
    named = sum(_page(main.values[v]) for v in (*main.args, *own))
    return sum(_page(s) for _, s in _params(table)) + named + stack("main")
