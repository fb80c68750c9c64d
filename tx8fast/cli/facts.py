"""What commands tell of a program, as JSON-able objects with stable keys.

May import: program, machine, simulator.roofline. Must not: format for people (see `report`).
"""

from __future__ import annotations

from typing import Any

from tx8fast.machine import Machine
from tx8fast.program.model import FORMAT_VERSION, Program, Segment, Tensor
from tx8fast.simulator.roofline import roofline


def program_facts(program: Program) -> dict[str, Any]:
    """Return the head line of a program. Sizes in bytes, bounds in cycles."""
    meta = program.meta
    bound = roofline(Machine.from_dict(program.machine), meta)
    return {
        "model": meta.get("model", ""),
        "phase": meta.get("phase", ""),
        "compute_dtype": meta.get("compute_dtype", ""),
        "options": meta.get("options", {}),
        "machine_digest": meta.get("machine_digest", ""),
        "segments": len(program.segments),
        "launches": len(program.launches),
        "spm_peak_bytes": max((s.spm_peak_bytes for s in program.segments), default=0),
        "ddr_footprint_bytes": program.ddr_bytes,
        "weight_bytes": meta.get("weight_bytes", 0),
        "embedded_bytes": len(program.data),
        "useful_macs": meta.get("useful_macs", 0),
        "unique_ddr_bytes": meta.get("unique_ddr_bytes", 0),
        "bound_cycles": bound.bound_cycles,
        "bound": bound.bound,
        "kernel_core": meta.get("kernel_core", {}),
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
    """Return one row per segment, with the plan that the search chose and how often it is launched."""
    counts = [0] * len(program.segments)
    for launch in program.launches:
        counts[launch.segment] += 1
    return [_segment(i, s, n) for i, (s, n) in enumerate(zip(program.segments, counts, strict=True))]


def _segment(index: int, s: Segment, launches: int) -> dict[str, Any]:
    return {
        "index": index,
        "name": s.name,
        "op": s.info.get("op", ""),
        "engine": s.info.get("engine", ""),
        "parts": s.info.get("parts", []),
        "slices": s.info.get("slices", []),
        "order": s.info.get("order", []),
        "bound": s.info.get("bound", ""),
        "launches": launches,
        "rows": [len(c) for c in s.codes],
        "tiles": int((s.tile_code >= 0).sum()),
        "spm_peak_bytes": s.spm_peak_bytes,
        "estimate_cycles": s.estimate_cycles,
        "barrier": s.barrier,
        "ops": list(s.ops),
    }


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
