"""What commands tell of a program, as JSON-able objects with stable keys.

May import: program, machine, cli.kernel_core, simulator.cycle (as a type), simulator.roofline, simulator.workload, errors. Must not: format for people (see `report`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tx8fast.cli.kernel_core import program_share
from tx8fast.errors import ConfigError, ProgramError, raise_all
from tx8fast.machine import Machine
from tx8fast.program.labels import Layers, label, segment_labels
from tx8fast.program.model import FORMAT_VERSION, Program, Segment, Tensor
from tx8fast.program.rates import rates
from tx8fast.simulator.roofline import roofline
from tx8fast.simulator.workload import engine_cycles
from tx8fast.tile.schedule import POLICIES

if TYPE_CHECKING:
    from tx8fast.simulator.cycle import CycleResult

SHOWN = 6  # names in a message
#: of a program's facts, what a simulation repeats
_HEAD = ("model", "phase", "compute_dtype", "spm_peak_bytes", "ddr_footprint_bytes", "useful_macs", "unique_ddr_bytes")


def _known(facts: Mapping[str, Any], what: str, kind: type, *keys: str) -> dict[str, Any]:
    """Return entries that must be of one type, empty or zero where they are absent. Raises ProgramError."""
    found = {key: facts.get(key, kind()) for key in keys}
    bad = [f"'{k}' is {v!r:.80}, required {kind.__name__}" for k, v in found.items() if type(v) is not kind]
    raise_all(ProgramError, f"reading the facts of {what}", bad)
    return found


def program_facts(program: Program) -> dict[str, Any]:
    """Return the head line of a program. Sizes in bytes, bounds in cycles. Raises ProgramError if meta is damaged."""
    meta, what = program.meta, "the program"
    bound = roofline(Machine.from_dict(program.machine), meta)
    return {
        **_known(meta, what, str, "model", "phase", "compute_dtype", "machine_digest"),
        **_known(meta, what, dict, "options", "kernel_core", "search"),
        **({"chips": list(program.chips)} if program.n_chips > 1 else {}),
        "segments": len(program.segments),
        "launches": len(program.launches),
        "spm_peak_bytes": max((s.spm_peak_bytes for s in program.segments), default=0),
        "ddr_footprint_bytes": program.ddr_bytes,
        "embedded_bytes": len(program.data),
        **_known(meta, what, int, "weight_bytes", "useful_macs", "unique_ddr_bytes"),
        "bound_cycles": bound.bound_cycles,
        "bound": bound.bound,
    }


def tensor_facts(t: Tensor) -> dict[str, Any]:
    """Return one tensor. `address` is an absolute DDR byte address."""
    return {
        "name": t.name,
        "shape": list(t.shape),
        "dtype": t.dtype,
        "ddr_dtype": t.ddr_dtype,
        "layout": t.layout,
        "address": t.address,
        "size_bytes": t.size_bytes,
    }


def param_facts(t: Tensor) -> dict[str, Any]:
    """Return one parameter and where its bytes come from: "embedded", a file, "derived" or "missing"."""
    kind = str(t.source.get("kind", "file" if "file" in t.source else "missing"))
    place = "embedded" if t.embedded >= 0 else str(t.source.get("file", "")) if kind == "file" else kind
    return {**tensor_facts(t), "source": place}


def segment_facts(program: Program) -> list[dict[str, Any]]:
    """Return one row per segment: the plan that the search chose, the second best, and how often it is launched."""
    machine = Machine.from_dict(program.machine)
    counts = [0] * len(program.segments)
    for launch in program.launches:
        counts[launch.segment] += 1
    rows = zip(program.segments, counts, segment_labels(program), strict=True)
    return [_segment(machine, i, s, n, name) for i, (s, n, name) in enumerate(rows)]


def order_records(program: Program, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Return a record per loop nest with the orders of its codes, and what the slowest one takes in each order that was
    measured. patterns: of ops, of which a group has one; "" takes all groups. Raises ConfigError for a pattern without a group."""
    rows: list[dict[str, Any]] = []
    for pattern in patterns:
        found = [s for s in program.segments if not pattern or any(fnmatchcase(name, pattern) for name in s.ops)]
        if not found:
            names = ", ".join(sorted({name for s in program.segments for name in s.ops})[:SHOWN])
            raise ConfigError(f"choosing ops by name for --show order: no op is called '{pattern}'; there are {names}")
        for s in found:
            what = f"segment '{s.name}'"
            for i, nest in enumerate(_known(s.info, what, list, "nests")["nests"] or [s.info]):
                own = {**_known(nest, what, str, "op"), **_known(nest, what, list, "policy")}
                took = _known(nest, what, dict, "policy_cycles")["policy_cycles"]
                rows.append(
                    {
                        "record": "order",
                        "name": s.name,
                        "nest": i,
                        **own,
                        **{f"{policy}_cycles": took.get(policy) for policy in POLICIES},
                        **_known(nest, what, int, "order_bound_cycles"),
                    }
                )
    return rows


def _segment(machine: Machine, index: int, s: Segment, launches: int, name: str) -> dict[str, Any]:
    what = f"segment '{s.name}'"
    work = engine_cycles(machine, s)
    return {
        "index": index,
        "name": s.name,
        "label": name,
        **_known(s.info, what, str, "op", "engine", "bound"),
        **_known(s.info, what, list, "parts", "slices", "order", "shared"),
        **_known(s.info, what, int, "steps", "candidates", "useful_macs", "operand_bytes"),
        "launches": launches,
        "rows": [len(c) for c in s.codes],
        "tiles": int((s.tile_code >= 0).sum()),
        "spm_peak_bytes": s.spm_peak_bytes,
        "estimate_cycles": s.estimate_cycles,
        "engine_cycles": work,
        "bound_by": max(work, key=lambda unit: work[unit]),
        "runner_up": _runner_up(_known(s.info, what, dict, "runner_up")["runner_up"], s.estimate_cycles),
        "barrier": s.barrier,
        "ops": list(s.ops),
    }


def _runner_up(found: Mapping[str, Any], chosen_cycles: int) -> dict[str, Any] | None:
    """Return the second best plan and by what share of the best one's cycles it lost, None if there is none."""
    cycles = found.get("cycles")
    if type(cycles) is not int:
        return None
    return {**found, "slower_by": cycles / chosen_cycles - 1 if chosen_cycles else 0.0}


def inspect_facts(program: Program) -> dict[str, Any]:
    """Return everything `inspect` shows except code."""
    return {
        "format_version": list(FORMAT_VERSION),
        **program_facts(program),
        "inputs": [tensor_facts(t) for t in program.inputs],
        "outputs": [tensor_facts(t) for t in program.outputs],
        "params": [param_facts(t) for t in program.params],
        "segment_rows": segment_facts(program),
    }


def simulation_facts(path: str, program: Program, result: CycleResult) -> dict[str, Any]:
    """Return what `sim --json` prints of a program and its simulation. Raises ProgramError if meta is damaged."""
    head, groups = program_facts(program), group_labels(program, result)
    facts, share = result.to_json(), program_share(program, result.cycles)
    for row, (layers, name) in zip(facts["groups"], groups, strict=True):
        row |= {"label": name, "layers": layers}
    return {
        "program": path,
        **{k: head[k] for k in _HEAD},
        **rates(program, result.seconds),
        **facts,
        "kernel_core_share": share.part(share.routine_cycles),
        "answers": _answers(program, result, [name for _, name in groups]),
    }


def group_labels(program: Program, result: CycleResult) -> list[tuple[str, str]]:
    """Return (layers, label) of every group of a simulation."""
    ops = {s.name: s.ops or [s.name] for s in program.segments}
    names: list[list[str]] = [[] for _ in result.groups]
    for name, group, _ in result.timeline:
        names[group].append(name)
    layers = Layers(name for name, _, _ in result.timeline)
    return [
        (layers.text(n), label(n, [op for s in g.segments for op in ops[s]], layers))
        for n, g in zip(names, result.groups, strict=True)
    ]


def _answers(program: Program, result: CycleResult, names: list[str]) -> dict[str, Any]:
    """Return what bounds the program, where the scratchpad is fullest, and which group loses most cycles; None if it is empty."""
    used = {u: x for u, x in result.utilisation.items() if u not in ("sync", "issue")}
    out: dict[str, Any] = {
        "bound_by": {
            "bound": result.roofline.bound,
            "busiest": max(used, key=lambda u: used[u]),
            "utilisation": max(used.values()),
        },
        "spm_peak": None,
        "largest_loss": None,
    }
    if not result.groups:
        return out
    peak = {s.name: s.spm_peak_bytes for s in program.segments}
    full = max(range(len(names)), key=lambda i: (max(peak[s] for s in result.groups[i].segments), -i))
    segment = max(result.groups[full].segments, key=lambda s: peak[s])
    out["spm_peak"] = {
        "group": full,
        "label": names[full],
        "segment": segment,
        "bytes": peak[segment],
        "capacity_bytes": result.machine.tile.spm_bytes,
        "start_cycle": next(at for _, group, at in result.timeline if group == full),
    }
    lost = [(g.cycles - g.roofline.bound_cycles) * g.count for g in result.groups]
    worst = max(range(len(lost)), key=lambda i: (lost[i], -i))
    kinds = result.groups[worst].losses
    kind = max(kinds, key=lambda k: kinds[k], default="")
    out["largest_loss"] = {
        "group": worst,
        "label": names[worst],
        "segments": list(result.groups[worst].segments),
        "cycles": lost[worst],
        "share": lost[worst] / result.cycles if result.cycles else 0.0,
        "mostly": kind,
        "mostly_cycles": kinds.get(kind, 0.0) * result.groups[worst].count,
    }
    return out
