"""What a search has found, as JSON: the groups, their plans, and why each group ends where it does.

May import: graph_table, lower, machine, search.*. Must not: choose anything.

A step names what it is made of by nest: one loop nest has one list, a chain several. Its plan is found by the key of its
record, so equal groups, wherever they stand, have one plan. `search.results_file` reads the text back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tx8fast.graph_table import GraphTable, Record, Step
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.search.borders import Cuts
from tx8fast.search.exact import SearchReport
from tx8fast.search.members import record_key
from tx8fast.search.planning import Planner
from tx8fast.tile.tiling import Plan, Planned

FORMAT, VERSION = "tx8fast plans", 4
WIDTH = 150  # of a line

Plans = Mapping[Record, Planned]


def results(
    table: GraphTable, plans: Plans, machine: Machine, opt: int, sharing: bool, report: SearchReport
) -> dict[str, Any]:
    """Return the results of `plan_table`. Cycles are estimates; sizes in factor points, tiles and bytes."""
    planner = Planner(machine, sharing)
    planner.known |= plans
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine_digest": machine.digest,
        "opt": opt,
        "sharing": sharing,
        "search": [f.to_json() for f in report.functions],
        "functions": [
            {
                "name": fn.name,
                "turned": list(fn.turned),
                "steps": [_step(s, plans) for s in fn.steps],
                "cuts": Cuts(fn, planner).rows(),
            }
            for fn in table.functions.values()
        ],
        "plans": {record_key(record): plan_row(record, p) for record, p in plans.items()},
    }


def _step(step: Step, plans: Plans) -> dict[str, Any]:
    record = step.record if step.record in plans else None
    return {"kind": step.kind, "nests": [list(n) for n in step.nests], "plan": record and record_key(record)}


def plan_row(record: Record, p: Planned) -> dict[str, Any]:
    """Return the plan of a record: of a chain the plans of its nests, and the accesses whose buffers are handed over."""
    return {
        "op": record.kind,
        "estimate_cycles": p.plan.estimate_cycles,
        "bound": p.plan.bound,
        "nests": [nest_row(n) for n in p.nests or (p,)],
        "holds": [[list(pair) for pair in h] for h in p.holds],
    }


def nest_row(p: Planned) -> dict[str, Any]:
    """Return the plan of one loop nest as `read_nest` takes it."""
    low, plan = p.low, p.plan
    buffered = not isinstance(low, KernelCore | Stream)
    return {
        "op": low.record.kind,
        "engine": "kernel core" if isinstance(low, KernelCore) else low.kind,
        "variant": low.variant,
        "sizes": list(low.sizes),
        "parts": list(plan.parts),
        "slices": list(plan.slices),
        "order": list(plan.order),
        "bufs": plan.bufs,
        "shared": list(plan.shared),
        "held": sorted(plan.held),
        "kept": list(plan.kept),
        "gathered": [list(g) for g in plan.gathered],
        "delivered": list(plan.delivered),
        "copies": list(p.tiling.copies) if buffered else [],
        "spm_bytes": plan.spm_bytes,
        "estimate_cycles": plan.estimate_cycles,
        "bound": plan.bound,
        "candidates": plan.candidates,
        "runner_up": _runner_up(plan.runner_up),
    }


def _runner_up(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "parts": list(plan.parts),
        "slices": list(plan.slices),
        "order": list(plan.order),
        "shared": list(plan.shared),
        "estimate_cycles": plan.estimate_cycles,
    }


def to_text(value: Any, indent: str = "") -> str:
    """Return JSON with one entry per line where a line would be too long, or is a row of a table."""
    inline = json.dumps(value, allow_nan=False)
    flat = not any(isinstance(v, dict | list) for v in (value.values() if isinstance(value, dict) else ()))
    if len(indent) + len(inline) <= WIDTH or isinstance(value, dict) and flat or not isinstance(value, dict | list):
        return inline
    more = indent + " "
    if isinstance(value, dict):
        rows = [f"{json.dumps(k)}: {to_text(v, more)}" for k, v in value.items()]
    else:
        rows = [to_text(v, more) for v in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return f"{ends[0]}\n{more}" + f",\n{more}".join(rows) + f"\n{indent}{ends[1]}"
