"""DDR addresses: parameters, inputs and outputs, and per-function frames whose temporaries share space.

May import: graph_table, alloc, lower.transfer, schedule.capacity. Must not: know instructions.

Every value has a root: an alias shares its operand's bytes, and so does an update that the graph has marked to write over
its operand (`Step.in_place`). A root is an argument, a parameter or a temporary; temporaries live from the epoch (stretch
between barriers) of their first write to that of their last read.
"""

from __future__ import annotations

from dataclasses import field

from tx8fast.alloc import Buffer, allocate_ddr
from tx8fast.graph_table import FunctionTable, TensorSpec, epochs
from tx8fast.lower.transfer import spec_bytes
from tx8fast.records import dataclass
from tx8fast.schedule.capacity import intermediates_too_large

PAGE = 4096


@dataclass
class Frame:
    """Layout of one function's values. root[v]: value id whose bytes v shares; params: key and form of every root that is a
    parameter, of this function or of one it calls; offset[v]: temporary's offset."""

    root: list[int]
    params: dict[int, tuple[str, TensorSpec]]
    offset: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    result_roots: list[int] = field(default_factory=list)


def plan_frames(functions: dict[str, FunctionTable], capacity_bytes: int) -> dict[str, Frame]:
    """Return the frame of every function; callees are laid out before their callers."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for step in functions[name].steps:
            if step.kind == "call":
                visit(step.callee)
        order.append(name)

    for name in functions:
        visit(name)
    frames: dict[str, Frame] = {}
    for name in order:
        frames[name] = _frame(functions[name], functions, frames, capacity_bytes)
    return frames


def _frame(fn: FunctionTable, functions: dict[str, FunctionTable], frames: dict[str, Frame], capacity: int) -> Frame:
    root = list(range(len(fn.values)))
    params = {v: (key, fn.values[v]) for v, key in fn.params.items()}
    epoch = epochs(fn.steps)
    for step in fn.steps:
        if step.kind == "alias":
            root[step.outputs[0]] = root[step.inputs[0]]
        elif step.in_place >= 0:
            root[step.outputs[0]] = root[step.inputs[step.in_place]]
        elif step.kind == "call":
            callee, frame = functions[step.callee], frames[step.callee]
            first: dict[int, int] = {}
            for out, r in zip(step.outputs, frame.result_roots, strict=True):
                if r in callee.args:
                    root[out] = root[step.inputs[callee.args.index(r)]]
                elif r in frame.params:
                    params[out] = frame.params[r]
                else:
                    root[out] = first.setdefault(r, out)
    args = set(fn.args)
    result_roots = [root[v] for v in fn.results]
    life: dict[int, list[int]] = {}
    for i, step in enumerate(fn.steps):
        for v in (*step.inputs, *step.outputs):
            if v >= 0:
                life.setdefault(root[v], [epoch[i], epoch[i]])[1] = epoch[i]
    own = [r for r in life if r not in args and r not in params and r not in result_roots]
    made_by = {v: step.name for step in reversed(fn.steps) if step.kind != "alias" for v in step.outputs}
    buffers = [
        Buffer(made_by.get(r, f"v{r}"), ((life[r][0], life[r][1] + 1),), max(1, spec_bytes(fn.values[r])), PAGE)
        for r in own
    ]
    frame = Frame(root, params, result_roots=result_roots)
    if buffers:
        placed = allocate_ddr(buffers)
        if placed.peak_bytes > capacity:
            raise intermediates_too_large(fn.name, buffers, placed.peak_bytes, capacity)
        frame.offset = {r: int(o) for r, o in zip(own, placed.offsets, strict=True)}
        frame.size_bytes = -(-placed.peak_bytes // PAGE) * PAGE
    return frame


class Arena:
    """Hands out page-aligned DDR ranges in order; knows the highest address used."""

    def __init__(self, base: int) -> None:
        self.base = self.top = base

    def take(self, spec: TensorSpec) -> int:
        address = self.top
        self.top += -(-max(1, spec_bytes(spec)) // PAGE) * PAGE
        return address
