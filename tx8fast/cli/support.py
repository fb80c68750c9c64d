"""What the compiler will do with each kind of op, and whether the model fits: known before any search.

May import: graph_table, graphs, ir.program, lower, search.routine (what a routine takes), program.model, schedule.demand, schedule.memory, machine,
simulator.roofline, cli.kernel_core. Must not: search or emit code.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tx8fast.cli.kernel_core import Row, Share, share_of
from tx8fast.errors import Tx8Error
from tx8fast.graph_table import GraphTable, OpRecord, TensorSpec
from tx8fast.graphs import shares_of
from tx8fast.ir.program import IRProgram
from tx8fast.lower import lower
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine
from tx8fast.program.model import MAX_CHIPS
from tx8fast.records import dataclass
from tx8fast.schedule.demand import instances
from tx8fast.schedule.memory import PAGE, plan_frames
from tx8fast.search.routine import kernel_core_plan
from tx8fast.simulator.roofline import Roofline, roofline

#: placing is asked how much it would take, so it must not stop at what one chip has
NO_LIMIT = 1 << 62
KERNEL_CORE = "kernel core"


@dataclass
class _Row:
    op: str
    engine: str
    reason: str
    example: str
    count: int = 0
    macs: int = 0
    cycles: int = 0
    n_bytes: int = 0
    work: int = 0  # cycles of routines, were one kernel core to do all
    distinct: set[OpRecord] = field(default_factory=set)


def support_facts(table: GraphTable, machine: Machine, needed: dict[str, Any]) -> tuple[dict[str, Any], Share]:
    """Return the rows per op kind and the sizes of a model, JSON-able, stable keys, and what its routines on the kernel core
    take. needed: its `demand`."""
    times = instances(table)
    rows: dict[tuple[str, str, str], _Row] = {}
    known: dict[OpRecord, tuple[str, str, int, int]] = {}
    for name, fn in table.functions.items():
        for step in fn.steps:
            if step.kind != "group" or step.is_empty or not isinstance(step.record, OpRecord):
                continue
            if step.record not in known:
                known[step.record] = _engine(step.record, machine)
            engine, reason, cycles, work = known[step.record]
            row = rows.setdefault((step.record.kind, engine, reason), _Row(step.record.kind, engine, reason, step.name))
            row.count += times[name]
            row.macs += times[name] * step.record.useful_macs
            specs = [s for s in (*step.record.operands, *step.record.results) if s is not None]
            row.n_bytes += times[name] * sum(map(spec_bytes, specs))
            row.cycles += times[name] * cycles
            row.work += times[name] * work
            row.distinct.add(step.record)
    main = table.functions["main"]
    footprint = _footprint(table)
    weights = _params(table)
    bound = roofline(machine, needed)
    routines = [Row(r.op, r.reason, r.example, r.count, r.cycles) for r in rows.values() if r.cycles]
    share = share_of(routines, bound.bound_cycles, exact=False)
    return {
        "ops": [
            {
                "op": r.op,
                "engine": r.engine,
                "reason": r.reason,
                "count": r.count,
                "distinct": len(r.distinct),
                "macs": r.macs,
                "example": r.example,
            }
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
        "engine_cycles": _engine_cycles(list(rows.values()), machine, bound),
    }, share


def _engine_cycles(rows: list[_Row], machine: Machine, bound: Roofline) -> dict[str, float]:
    """Return the cycles that each engine needs at its full rate on all tiles, before anything is placed or merged: products; the operands
    and results of every other op once through the vector engine; routines; and the bytes that must cross the DDR."""
    vector = sum(r.n_bytes for r in rows if r.engine != KERNEL_CORE and not r.macs)
    slow = [r for r in rows if r.engine == KERNEL_CORE]
    routines = sum(r.work for r in slow)
    return {
        "ne": bound.compute_cycles,
        "ct": vector / (machine.ct.bytes_per_cycle * machine.n_tiles),
        "kcore": routines / machine.n_tiles,
        "ddr": bound.memory_cycles,
    }


def chips_facts(ir: IRProgram, table: GraphTable, facts: dict[str, Any], tp: int | None) -> dict[str, Any]:
    """Return into how many chips every layer may be cut, and how many the model needs. facts: the `support_facts` of the graph that `tp` chips share.

    DDR bytes of another number of chips are estimates: weights and caches are cut as they would be, everything else is taken as it is."""
    capacity, footprint = facts["ddr_capacity_bytes"], facts["ddr_footprint_bytes"]
    shares = shares_of(ir)
    if shares is None:
        why = "several devices share it already, or its layers are those of an encoder"
        return {"tp": [], "tp_refused": why, "chips_needed": 1 if facts["fits_ddr"] else None}
    found, why = [], ""
    weights, cut = shares(tp or 1)
    caches = _cache_bytes(table) if ir.shares is not None else _named_bytes(table)
    least = float("inf")
    rest = footprint - facts["weight_bytes"] - caches
    for n in range(1, MAX_CHIPS + 1):
        try:
            own, part = shares(n)
        except Tx8Error as e:
            why = why or str(e)
            continue
        if own >= least and n != tp:
            continue  # fewer chips hold less each
        least = min(least, own)
        n_bytes = (
            footprint
            if n == (tp or 1)
            else round(rest + facts["weight_bytes"] * own / max(1, weights) + caches * part / cut)
        )
        found.append({"tp": n, "ddr_bytes": n_bytes, "fits": n_bytes <= capacity})
    return {
        "tp": found,
        "tp_refused": why if len(found) < 2 else "",
        "chips_needed": next((r["tp"] for r in found if r["fits"]), None),
    }


def _cache_bytes(table: GraphTable) -> int:
    """Return the bytes of the KV caches: inputs that are updated in place count once."""
    main = table.functions["main"]
    found = {v: main.values[v] for n, v in zip(main.arg_names, main.args, strict=True) if n.startswith("past.")}
    if not found:
        found = {
            v: main.values[v] for n, v in zip(main.result_names, main.results, strict=True) if n.startswith("present.")
        }
    return sum(_page(s) for s in found.values())


def _named_bytes(table: GraphTable) -> int:
    """Return the bytes of inputs and results."""
    main = table.functions["main"]
    return sum(_page(main.values[v]) for v in {*main.args, *main.results})


def _engine(record: OpRecord, machine: Machine) -> tuple[str, str, int, int]:
    """Return what performs an op, why no engine does, the cycles that its routine then takes on the busiest tile, and those on all."""
    low, reason = lower(record, machine)
    if not isinstance(low, KernelCore):
        return low.kind, "", 0, 0
    whole = low.descriptor((0,) * len(low.sizes), low.sizes)[1]
    one = machine.kcore.routine_base + whole.cycles(machine.kcore)
    return KERNEL_CORE, reason, kernel_core_plan(low, machine).estimate_cycles, one


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
