"""Graph table and plans -> program: emit each distinct op once, flatten calls into launches, give everything an address.

May import: graph_table, lower.transfer, tile.tiling, schedule, program.model, isa, machine, errors. Must not: know the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from tx8fast.errors import InternalError
from tx8fast.graph_table import FunctionTable, GraphTable, OpRecord, Record, Step, TensorSpec
from tx8fast.lower.collective import Collective
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.program.model import Argument, Launch, Program, Segment, Tensor
from tx8fast.records import dataclass
from tx8fast.schedule.capacity import model_too_large
from tx8fast.schedule.chain import build_chain
from tx8fast.schedule.collective import collective_segment
from tx8fast.schedule.meeting import joined_launches
from tx8fast.schedule.memory import Arena, Frame, plan_frames
from tx8fast.schedule.overwrites import find_overwrites
from tx8fast.schedule.segment import build_segment
from tx8fast.tile.tiling import Planned

Describe = Callable[[str], dict[str, Any]]
Path = tuple[int, ...]  # of calls, each by its number


@dataclass
class SegmentTable:
    """Emits segments, one per distinct (record, barrier, whether tiles must meet before they exchange, first tile)."""

    machine: Machine
    plans: Mapping[Record, Planned]
    order: str = "best"  # of instructions, one of `tile.schedule.ORDERS`
    segments: list[Segment] = field(default_factory=list)
    known: dict[tuple[Record, bool, bool, int], int] = field(default_factory=dict)
    kernel_core: dict[str, str] = field(default_factory=dict)  # op kind -> why
    progress: Callable[[int, int], None] | None = None

    def index(self, step: Step, before: Segment | None) -> int:
        """Return the number of a step's segment; `before` is that of the launch before it."""
        record = step.record
        assert record is not None
        p = self.plans[record]
        meet = before is not None and not before.barrier and any(g > 1 for g in p.plan.shared)
        build = build_chain if p.nests else _build_single
        key = (record, step.barrier, meet, step.first_tile)
        if key not in self.known:
            if p.reason:
                self.kernel_core.setdefault(record.kind, p.reason)
            self.known[key] = len(self.segments)
            made = build(p, self.machine, step, meet, self.order)
            code, offset = (np.roll(x, step.first_tile, axis=0) for x in (made.tile_code, made.tile_offset))
            self.segments.append(replace(made, arguments=declared(record), tile_code=code, tile_offset=offset))
            if self.progress is not None:
                self.progress(len(self.segments), max(len(self.segments), len(self.plans)))
        return self.known[key]


def declared(record: Record) -> list[Argument | None]:
    """Return what a segment's arguments are, operands and then results."""
    replaces = record.in_place if isinstance(record, OpRecord) else -1
    kind = "update" if replaces >= 0 else "result"
    inputs = [None if s is None else Argument("operand", s.shape, s.dtype, s.layout) for s in record.operands]
    return [*inputs, *(Argument(kind, s.shape, s.dtype, s.layout, replaces) for s in record.results)]


def _build_single(p: Planned, machine: Machine, step: Step, meet: bool, order: str) -> Segment:
    if isinstance(p.low, Collective):
        return collective_segment(p.low, p.plan, machine, step.name, step.op_names, step.barrier)
    return build_segment(p.tiling, machine, step.name, step.op_names, step.barrier, meet, order=order)


def assemble(
    table: GraphTable,
    machine: Machine,
    plans: Mapping[Record, Planned],
    describe: Describe,
    meta: dict[str, Any],
    progress: Callable[[int, int], None] | None = None,
    order: str = "best",
    join: bool = False,
) -> Program:
    """Return the program of `table`. join: whether neighbouring launches become one where that lets loads begin earlier. `describe` turns a weight key into its source description;
    `progress(done, total)` counts segments; `order` is that of instructions (`tile.schedule.ORDERS`).

    Raises InfeasibleError if the model needs more DDR than the chip has."""
    if join:
        table, plans = joined_launches(table, plans, machine)
    frames = plan_frames(table.functions, machine.chip.ddr_bytes)
    program = _Linker(table, machine, SegmentTable(machine, plans, order, progress=progress), frames, describe).program(
        meta
    )
    problems = find_overwrites(table, program)
    if problems:
        raise InternalError("the program would read what has been written over: " + "; ".join(problems))
    return program


class _Linker:
    def __init__(
        self, table: GraphTable, machine: Machine, code: SegmentTable, frames: dict[str, Frame], describe: Describe
    ) -> None:
        self.table, self.machine, self.code = table, machine, code
        self.frames, self.describe = frames, describe
        self.arena = Arena(DDR_BASE)
        self.params: dict[tuple[str, TensorSpec], Tensor] = {}
        self.named: set[str] = set()  # keys of `params`
        self.launches: list[Launch] = []

    def program(self, meta: dict[str, Any]) -> Program:
        main = self.table.functions["main"]
        frame = self.frames["main"]
        for fn in self.table.functions.values():
            for v, key in fn.params.items():
                self._param(key, fn.values[v])
        arg_at = [self.arena.take(main.values[a]) for a in main.args]
        dest: dict[int, int] = {}
        for r in frame.result_roots:
            if r not in main.args and r not in frame.params and r not in dest:
                dest[r] = self.arena.take(main.values[r])
        top = self._place(main, arg_at, dest, self.arena.top, "", ((),))
        inputs = [
            self._tensor(n, main.values[a], at) for n, a, at in zip(main.arg_names, main.args, arg_at, strict=True)
        ]
        address = self._addresses(main, arg_at, dest, self.arena.top)
        outputs = [
            self._tensor(n, main.values[v], address[v]) for n, v in zip(main.result_names, main.results, strict=True)
        ]
        ddr_bytes = top - DDR_BASE
        if ddr_bytes > self.machine.chip.ddr_bytes:
            named = self.arena.top - DDR_BASE
            raise model_too_large(self.table, ddr_bytes, ddr_bytes - named, self.machine.chip.ddr_bytes)
        facts = {
            **meta,
            "kernel_core": dict(sorted(self.code.kernel_core.items())),
            "spm_peak_bytes": max((s.spm_peak_bytes for s in self.code.segments), default=0),
            "weight_bytes": sum(t.size_bytes for t in self.params.values()),
        }
        return Program(
            self.machine.to_dict(),
            self.code.segments,
            self.launches,
            inputs,
            outputs,
            list(self.params.values()),
            ddr_bytes,
            facts,
            chips=self.table.chips,
        )

    def _param(self, key: str, spec: TensorSpec) -> Tensor:
        found = self.params.get((key, spec))
        if found is None:
            name = f"{key}#{len(self.params)}" if key in self.named else key
            self.named.add(key)
            source = self.describe(key)
            shape, dtype = tuple(source.get("shape", spec.shape)), source.get("dtype", spec.dtype)
            found = Tensor(
                name,
                spec.shape,
                dtype,
                spec.dtype,
                spec.layout,
                self.arena.take(spec),
                spec_bytes(spec),
                {**source, "key": key, "shape": list(shape)},
                per_chip=source.get("kind") == "chips",
            )
            self.params[key, spec] = found
        return found

    def _tensor(self, name: str, spec: TensorSpec, address: int) -> Tensor:
        return Tensor(name, spec.shape, spec.dtype, spec.dtype, spec.layout, address, spec_bytes(spec))

    def _addresses(self, fn: FunctionTable, args: list[int], dest: dict[int, int], base: int) -> list[int]:
        """Return the absolute address of every value of one function instance."""
        frame = self.frames[fn.name]
        own: dict[int, int] = {a: at for a, at in zip(fn.args, args, strict=True)}
        for v, (key, spec) in frame.params.items():
            own[v] = self.params[key, spec].address
        own |= {r: base + o for r, o in frame.offset.items()} | dest
        return [own.get(frame.root[v], base) for v in range(len(fn.values))]

    def _place(
        self, fn: FunctionTable, args: list[int], dest: dict[int, int], base: int, prefix: str, calls: Sequence[Path]
    ) -> int:
        """Append the launches of one function instance; return the first free address above it. calls: the calls of the
        graph that lead here, as in `FunctionTable.path`, by `FunctionTable.layer`."""
        frame = self.frames[fn.name]
        address = self._addresses(fn, args, dest, base)
        top = free = base + frame.size_bytes
        for step in fn.steps:
            if step.kind == "call":
                callee = self.table.functions[step.callee]
                its = self.frames[step.callee]
                inner = [address[v] for v in step.inputs]
                wanted = {
                    r: address[v]
                    for r, v in zip(its.result_roots, step.outputs, strict=True)
                    if r not in callee.args and r not in its.params
                }
                inside = [(*calls[0], n) for n in step.layers or (step.call_number,)]
                top = max(top, self._place(callee, inner, wanted, free, f"{prefix}{step.name}/", inside))
            elif step.kind == "group" and not step.is_empty:
                self._launch(fn, step, address, prefix, calls)
        return top

    def _launch(self, fn: FunctionTable, step: Step, address: list[int], prefix: str, calls: Sequence[Path]) -> None:
        assert step.record is not None
        ids = (*step.inputs, *step.outputs)
        args = [address[v] if v >= 0 else 0 for v in ids]
        paths = [(*calls[fn.layer.get(v, 0)], *fn.path(v)) if v >= 0 else () for v in ids]
        values = tuple([".".join(map(str, path)) for path in paths])
        before = self.code.segments[self.launches[-1].segment] if self.launches else None
        where = self.code.index(step, before)
        self.launches.append(Launch(where, np.array(args, np.int64), prefix + step.name, values))
