"""Checks a finished program's DDR: whatever a launch reads is still what was made for it, and nobody is writing it.

May import: graph_table, lower.transfer, program.model. Must not: call memory or assemble, or look at how they placed anything.

The program is run on names: every range of DDR bytes holds the name of the value that was last written there. The steps of
the table say which value each argument of a launch must be; the launches say where it looks. Between two barriers tiles run
at their own pace, so launches of one such stretch may not write what another one of them reads or writes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import field

from tx8fast.graph_table import FunctionTable, GraphTable, Step, TensorSpec
from tx8fast.lower.transfer import spec_bytes
from tx8fast.program.model import Launch, Program, Tensor
from tx8fast.records import dataclass


@dataclass(slots=True)
class _Stretch:
    """DDR bytes [start, end) of one value; written, read: the epoch of the last such launch."""

    start: int
    end: int
    value: int
    written: int
    read: int = -1


def find_overwrites(table: GraphTable, program: Program, limit: int = 20) -> list[str]:
    """Return one sentence per broken rule, at most `limit`; an empty list means that the program's DDR is right.

    Rules: a launch finds in every operand's bytes the value that the graph means; what it writes or reads, no other launch
    since the last barrier has written, nor read what it writes; its results lie apart from its operands, but where the step
    is marked as in place; at the end parameters are as they were and outputs hold the results."""
    check = _Check(table, program)
    found: list[str] = []
    for problem in check.run():
        found.append(problem)
        if len(found) == limit:
            break
    return found


@dataclass
class _Ddr:
    """Disjoint stretches in order of their addresses."""

    starts: list[int] = field(default_factory=list)
    held: dict[int, _Stretch] = field(default_factory=dict)

    def over(self, start: int, end: int) -> list[_Stretch]:
        """Return the stretches that share bytes with [start, end)."""
        i = max(0, bisect_right(self.starts, start) - 1)
        out = [self.held[s] for s in self.starts[i : bisect_left(self.starts, end)]]
        return out[1:] if out and out[0].end <= start else out

    def holds(self, start: int, end: int, value: int) -> bool:
        """True if all of [start, end) holds `value`."""
        at = start
        for s in self.over(start, end):
            if s.start > at or s.value != value:
                return False
            at = s.end
        return at >= end

    def write(self, start: int, end: int, value: int, epoch: int) -> None:
        old = self.over(start, end)
        parts = [_Stretch(start, end, value, epoch)]
        if old and old[0].start < start:
            parts.insert(0, _Stretch(old[0].start, start, old[0].value, old[0].written, old[0].read))
        if old and old[-1].end > end:
            parts.append(_Stretch(end, old[-1].end, old[-1].value, old[-1].written, old[-1].read))
        i = bisect_left(self.starts, old[0].start if old else start)
        self.starts[i : i + len(old)] = [s.start for s in parts]
        for s in old:
            del self.held[s.start]
        self.held.update((s.start, s) for s in parts)


class _Check:
    def __init__(self, table: GraphTable, program: Program) -> None:
        self.table, self.program = table, program
        self.ddr, self.epoch, self.made = _Ddr(), 0, 0
        self.launches: Iterator[Launch] = iter(program.launches)
        self.params: dict[tuple[str, TensorSpec], int] = {}
        self.sizes: dict[TensorSpec, int] = {}

    def run(self) -> Iterator[str]:
        main = self.table.functions["main"]
        for t in self.program.params:
            self.params[t.source["key"], TensorSpec(t.shape, t.ddr_dtype, t.layout)] = self._there(t)
        args = [self._there(t) for t in self.program.inputs]
        results = yield from self._function(main, args)
        left = next(self.launches, None)
        if left is not None:
            yield f"launch '{left.name}' is no step of the graph"
        values = {(t.source["key"], TensorSpec(t.shape, t.ddr_dtype, t.layout)): t for t in self.program.params}
        for key, t in values.items():
            if not self._still(t, self.params[key]):
                yield f"parameter '{t.name}' has been written over when the program ends"
        for t, value in zip(self.program.outputs, results, strict=True):
            if not self._still(t, value):
                yield f"output '{t.name}' does not lie at its address when the program ends"

    def _there(self, t: Tensor) -> int:
        self.made += 1
        if t.size_bytes:
            self.ddr.write(t.address, t.address + t.size_bytes, self.made, -1)
        return self.made

    def _still(self, t: Tensor, value: int) -> bool:
        return 0 in t.shape or self.ddr.holds(t.address, t.address + t.size_bytes, value)

    def _size(self, spec: TensorSpec) -> int:
        if spec not in self.sizes:
            self.sizes[spec] = 0 if 0 in spec.shape else spec_bytes(spec)
        return self.sizes[spec]

    def _function(self, fn: FunctionTable, args: list[int]) -> Iterator[str]:
        """Run one function on the values `args`; return the values of its results."""
        values = dict(zip(fn.args, args, strict=True))
        values |= {v: self.params[key, fn.values[v]] for v, key in fn.params.items()}
        for step in fn.steps:
            if step.kind == "alias":
                values[step.outputs[0]] = values[step.inputs[0]]
            elif step.kind == "call":
                inner = [values[v] for v in step.inputs]
                made = yield from self._function(self.table.functions[step.callee], inner)
                values.update(zip(step.outputs, made, strict=True))
            else:
                for v in step.outputs:
                    self.made += 1
                    values[v] = self.made
                if not step.is_empty:
                    yield from self._launch(fn, step, values)
        return [values[v] for v in fn.results]

    def _launch(self, fn: FunctionTable, step: Step, values: dict[int, int]) -> Iterator[str]:
        launch = next(self.launches, None)
        if launch is None:
            yield f"step '{step.name}' has no launch"
            return
        n_in = len(step.inputs)
        if not launch.name.endswith(step.name) or len(launch.args) != n_in + len(step.outputs):
            yield f"launch '{launch.name}' with {len(launch.args)} arguments is not step '{step.name}'"
            return
        places = [
            (a, a + self._size(fn.values[v]) if v >= 0 else a)
            for a, v in zip(launch.args.tolist(), (*step.inputs, *step.outputs), strict=True)
        ]
        for k, ((start, end), v) in enumerate(zip(places, step.inputs)):
            if start == end:
                continue
            if not self.ddr.holds(start, end, values[v]):
                yield f"launch '{launch.name}': operand {k} has been written over before it is read"
            elif any(s.written == self.epoch for s in self.ddr.over(start, end)):
                yield f"launch '{launch.name}': no barrier between it and the launch that makes operand {k}"
        for j, (start, end) in enumerate(places[n_in:]):
            if any(self.epoch in (s.written, s.read) for s in self.ddr.over(start, end)):
                yield f"launch '{launch.name}': result {j} is written where a launch since the last barrier reads or writes"
            for k, (a, b) in enumerate(places[:n_in]):
                if a < end and start < b and not (j == 0 and k == step.in_place and (a, b) == (start, end)):
                    yield f"launch '{launch.name}': result {j} lies in operand {k}, which is no update in place"
        for start, end in places[:n_in]:
            for s in self.ddr.over(start, end):
                s.read = self.epoch
        for (start, end), v in zip(places[n_in:], step.outputs, strict=True):
            if start < end:
                self.ddr.write(start, end, values[v], self.epoch)
        self.epoch += self.program.segments[launch.segment].barrier
