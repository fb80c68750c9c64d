"""What the report shows of a program, as one object.

May import: cli.facts, program, machine, simulator. Must not: format for people (see `report`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tx8fast.cli.facts import program_facts, segment_facts, simulation_facts
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.program.labels import Layers
from tx8fast.program.model import Program, Tensor
from tx8fast.simulator.cycle import CycleResult
from tx8fast.simulator.losses import LOSSES
from tx8fast.simulator.profile import profile
from tx8fast.simulator.sensitivity import interval

CUT = "what the groups' bounds exceed the model's by: intermediates cross the DDR, or not all groups are bound by the same"


def report_facts(
    path: str, program: Program, result: CycleResult, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Return what `report.page.page` takes. Raises as `cycle.simulate`."""
    machine = Machine.from_dict(program.machine)
    head = program_facts(program)
    found = profile(program, progress)
    launches = [s["launches"] for s in found.pop("stretches")]
    peak = {s.name: s.spm_peak_bytes for s in program.segments}
    names = [program.launches[own[0]].name for own in launches]
    layers = Layers(launch.name for launch in program.launches)
    return {
        "sim": {**simulation_facts(path, program, result), **interval(program, result)},
        "program": head,
        "segments": segment_facts(program),
        "tensors": [
            *_tensors(program.inputs, "inputs"),
            *_tensors(program.params, "weights"),
            *_tensors(program.outputs, "outputs"),
        ],
        "stretches": [(group, at) for _, group, at in result.timeline],
        "chain": [
            {"group": group, "segments": [program.launches[i].segment for i in own]}
            for own, (_, group, _) in zip(launches, result.timeline, strict=True)
        ],
        "edges": _edges(program, launches),
        "layers_text": lambda indices: layers.text(names[i] for i in indices),
        "spm": [max((peak[s] for s in g.segments), default=0) for g in result.groups],
        "profile": found,
        "machine": _machine(program.machine),
        "meanings": {**LOSSES, "cut": CUT},
        "roof": {
            "peak_macs_per_cycle": machine.peak_macs_per_cycle(head["compute_dtype"] or "bf16"),
            "ddr_bytes_per_cycle": machine.ddr_bytes_per_cycle,
            "ddr_bytes": machine.chip.ddr_bytes,
            "spm_bytes": machine.tile.spm_bytes,
            "clock_hz": machine.chip.clock_hz,
            "link_bytes_per_cycle": machine.noc.link_bytes,
        },
    }


def _tensors(tensors: list[Tensor], kind: str) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "kind": kind,
            "type": f"{t.ddr_dtype}[{', '.join(map(str, t.shape))}]",
            "offset": t.address - DDR_BASE,
            "size_bytes": t.size_bytes,
        }
        for t in tensors
    ]


def _edges(program: Program, stretches: list[list[int]]) -> list[tuple[int, int]]:
    """Return (writer, reader) of stretches of which one reads at an address what the other has written there last."""
    written: dict[int, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for number, launches in enumerate(stretches):
        for i in launches:
            launch = program.launches[i]
            arguments = program.segments[launch.segment].arguments
            pairs = [(a, at) for a, at in zip(arguments, np.asarray(launch.args).tolist()) if a is not None]
            for a, at in pairs:
                if a.role != "result" and written.get(at, number) != number:
                    edges[written[at], number] = None
            written.update({at: number for a, at in pairs if a.role != "operand"})
    return list(edges)


def _machine(tree: dict[str, Any]) -> list[tuple[str, str, Any]]:
    out: list[tuple[str, str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            out += [(key, k, v) for k, v in value.items()]
        else:
            out.append(("", key, value))
    return out
