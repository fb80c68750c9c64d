"""The plan of one loop nest, read back from a row of `search.results`.

May import: graph_table, lower, machine, _kernels, search.*, tile. Must not: choose a plan, or know files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tx8fast._kernels import BOUNDS
from tx8fast.graph_table import GroupRecord, OpRecord, Record
from tx8fast.lower import in_bands, lower, variants
from tx8fast.machine import Machine
from tx8fast.search.legal import plan_problems, shard_of
from tx8fast.search.planner import only_plan
from tx8fast.tile.tiling import Plan, Planned, Tiling


class Unusable(Exception):
    """Why a plan that was read cannot be used."""


def read_nest(record: Record, name: str, row: Mapping[str, Any], machine: Machine, sharing: bool) -> Planned:
    """Return one loop nest with its plan, checked as one from outside, its estimate not worked out. row: of
    `results.nest_row`, of the right types. Raises Unusable, NotLowerable, InfeasibleError."""
    if not isinstance(record, OpRecord | GroupRecord):
        raise Unusable("a chain has no single nest")
    low, reason = lower(record, machine)
    if row["variant"]:
        options = [*variants(record, machine), *filter(None, [in_bands(record, machine)])]
        if not 1 <= row["variant"] <= len(options):
            raise Unusable(f"lowering {row['variant']} of {record.kind}, there are 0 to {len(options)}")
        low = options[row["variant"] - 1]
    low.sharing = sharing
    parts, slices, order, shared, kept = (tuple(row[k]) for k in ("parts", "slices", "order", "shared", "kept"))
    second = row["runner_up"]
    runner_up = None
    if second is not None:
        cut, length, loops, loaded = (tuple(second[k]) for k in ("parts", "slices", "order", "shared"))
        runner_up = Plan(cut, (), length, loops, 1, second["estimate_cycles"], 0, "", shared=loaded)
    own = only_plan(low, machine, name)
    if own is not None:
        if (parts, slices, order, shared) != (own.parts, own.slices, own.order, own.shared):
            raise Unusable(
                f"parts {list(parts)}, slices {list(slices)}; its only plan has {list(own.parts)}, {list(own.slices)}"
            )
        return Planned(Tiling(low, own).but(runner_up=runner_up), reason)
    n = len(low.sizes)
    if not len(parts) == len(slices) == len(order) == n or min(parts, default=1) < 1:
        raise Unusable(
            f"parts {list(parts)}, slices {list(slices)}, order {list(order)}, required {n} of each, parts from 1 on"
        )
    if row["bound"] not in BOUNDS:
        raise Unusable(f"bound {row['bound']!r:.30}, required one of {', '.join(BOUNDS)}")
    plan = Plan(
        parts,
        shard_of(low, parts),
        slices,
        order,
        row["bufs"],
        0,
        0,
        row["bound"],
        row["candidates"],
        shared,
        runner_up,
        kept=kept,
        gathered=tuple(map(tuple, row["gathered"])),
        delivered=tuple(row["delivered"]),
    )
    if problems := plan_problems(made := Tiling(low, plan), machine):
        raise Unusable(*problems)
    return Planned(made, reason)
