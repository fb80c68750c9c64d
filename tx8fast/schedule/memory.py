"""DDR addresses: parameters, inputs and outputs, and per-function frames whose temporaries share space.

May import: graph_table, alloc, lower.transfer. Must not: know instructions.

Every value has a root: an alias shares its operand's bytes, and a cache update works in place on its first
operand. A root is an argument, a parameter or a temporary; temporaries live from the epoch (stretch between
barriers) of their first write to that of their last read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tx8fast.alloc import Buffer, allocate_ddr
from tx8fast.graph_table import FunctionTable, TensorSpec
from tx8fast.lower.transfer import spec_bytes

PAGE = 4096
IN_PLACE = frozenset({"kv_update"})


@dataclass
class Frame:
    """Layout of one function's values. root[v]: value id whose bytes v shares; offset[v]: temporary's offset."""

    root: list[int]
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
    kept = _kept_args(functions, order[::-1])
    frames: dict[str, Frame] = {}
    for name in order:
        frames[name] = _frame(functions[name], functions, frames, kept[name], capacity_bytes)
    return frames


def _kept_args(functions: dict[str, FunctionTable], callers_first: list[str]) -> dict[str, set[int]]:
    """Return per function the argument positions whose bytes some caller still needs after the call."""
    kept: dict[str, set[int]] = {name: set() for name in functions}
    for name in callers_first:
        fn = functions[name]
        root = list(range(len(fn.values)))
        for step in fn.steps:
            if step.kind == "alias":
                root[step.outputs[0]] = root[step.inputs[0]]
        last: dict[int, int] = {}
        for v, i in enumerate(_last_uses(fn)):
            last[root[v]] = max(i, last.get(root[v], -1))
        fixed = {*fn.params, *(fn.args[k] for k in kept[name])}
        for i, step in enumerate(fn.steps):
            if step.kind == "call":
                roots = [root[v] for v in step.inputs]
                kept[step.callee] |= {k for k, r in enumerate(roots) if r in fixed or last[r] > i or roots.count(r) > 1}
    return kept


def _frame(fn: FunctionTable, functions: dict[str, FunctionTable], frames: dict[str, Frame], kept: set[int],
           capacity: int) -> Frame:  # fmt: skip
    root = list(range(len(fn.values)))
    epoch = _epochs(fn)
    fixed = {*fn.params, *(fn.args[k] for k in kept)}
    for i, step in enumerate(fn.steps):
        if step.kind == "alias":
            root[step.outputs[0]] = root[step.inputs[0]]
        elif step.kind == "group" and step.record is not None and step.record.kind in IN_PLACE:
            cache, out = step.inputs[0], step.outputs[0]
            if fn.values[cache] == fn.values[out] and _may_overwrite(fn, root, epoch, fixed, i):
                root[out] = root[cache]
        elif step.kind == "call":
            callee, frame = functions[step.callee], frames[step.callee]
            first: dict[int, int] = {}
            for out, r in zip(step.outputs, frame.result_roots, strict=True):
                if r in callee.args:
                    root[out] = root[step.inputs[callee.args.index(r)]]
                else:
                    root[out] = first.setdefault(r, out)
    args = set(fn.args)
    result_roots = [root[v] for v in fn.results]
    life: dict[int, list[int]] = {}
    for i, step in enumerate(fn.steps):
        for v in (*step.inputs, *step.outputs):
            if v >= 0:
                life.setdefault(root[v], [epoch[i], epoch[i]])[1] = epoch[i]
    own = [r for r in life if r not in args and r not in fn.params and r not in result_roots]
    buffers = [Buffer(f"v{r}", ((life[r][0], life[r][1] + 1),), max(1, spec_bytes(fn.values[r])), PAGE) for r in own]
    frame = Frame(root, result_roots=result_roots)
    if buffers:
        placed = allocate_ddr(buffers, capacity)
        frame.offset = {r: int(o) for r, o in zip(own, placed.offsets, strict=True)}
        frame.size_bytes = -(-placed.peak_bytes // PAGE) * PAGE
    return frame


def _epochs(fn: FunctionTable) -> list[int]:
    """Number of barriers before each step. Between two barriers tiles run at their own pace, so bytes that one
    step still reads must not be written by another one of the same epoch. A call ends with a barrier."""
    epochs, now = [], 0
    for step in fn.steps:
        epochs.append(now)
        now += step.kind == "call" or (step.kind == "group" and step.barrier)
    return epochs


def _may_overwrite(fn: FunctionTable, root: list[int], epoch: list[int], fixed: set[int], i: int) -> bool:
    """True if step i may write over its first operand: its bytes are not in `fixed`, and whoever else reads them,
    through whatever alias, is behind a barrier by then."""
    cache = fn.steps[i].inputs[0]
    made = {v for s in fn.steps[:i] for v in s.outputs} | set(fn.args) | set(fn.params)
    same = {v for v in made if root[v] == root[cache]}
    if root[cache] in fixed or same & set(fn.results):
        return False
    readers = [j for j, s in enumerate(fn.steps) if j != i and same & set(s.inputs) and s.kind != "alias"]
    return all(epoch[j] < epoch[i] for j in readers) and fn.steps[i].inputs[1:].count(cache) == 0


def _last_uses(fn: FunctionTable) -> list[int]:
    """Position of the last step that reads each value, -1 if none does; behind all steps for results."""
    last = [-1] * len(fn.values)
    for i, step in enumerate(fn.steps):
        for v in step.inputs:
            if v >= 0:
                last[v] = i
    for v in fn.results:
        last[v] = max(last[v], len(fn.steps))
    return last


class Arena:
    """Hands out page-aligned DDR ranges in order; knows the highest address used."""

    def __init__(self, base: int) -> None:
        self.base = self.top = base

    def take(self, spec: TensorSpec) -> int:
        address = self.top
        self.top += -(-max(1, spec_bytes(spec)) // PAGE) * PAGE
        return address
