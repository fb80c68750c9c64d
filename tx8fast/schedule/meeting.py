"""Launches of which the second one begins with weights, joined to one within which all tiles meet: the first weights come before they do.

May import: graph_table, isa, lower.base, machine, tile. Must not: choose groups or plans.

Between two launches nothing is loaded: every tile ends what it does, meets the others, and only then asks for the first bytes of the next one. As
nests of one launch (`schedule.chain`) both have the plans that they have alone, and all that the first one makes goes through DDR as
before; but what nobody writes in the launch is loaded while the nest before the meeting works (`schedule.ahead`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tx8fast import isa
from tx8fast.graph_table import ChainRecord, FunctionTable, GraphTable, Record, Step, epochs
from tx8fast.lower.base import MEETING_BYTES
from tx8fast.machine import Machine
from tx8fast.tile.tiling import Planned, of_nests

MOST_NESTS = 8  # of one launch


def joined_launches(
    table: GraphTable, plans: Mapping[Record, Planned], machine: Machine
) -> tuple[GraphTable, dict[Record, Planned]]:
    """Return the table with neighbouring launches joined, and the plans of its records. What is between two barriers runs side by side and
    stays so."""
    plans, functions = dict(plans), {}
    for name, fn in table.functions.items():
        aliased = {v for s in fn.steps if s.kind == "alias" for v in (*s.inputs, *s.outputs)}
        steps: list[Step] = []
        epoch: list[int] = []
        alone = Counter(epochs(fn.steps))
        for n, step in zip(epochs(fn.steps), fn.steps, strict=True):
            before = steps[-1] if steps and alone[n] == alone[epoch[-1]] == 1 else None
            if before is not None and _may_join(before, step, plans, aliased):
                both = _joined(before, step, fn)
                plans[_record(both)] = _planned(plans[_record(before)], plans[_record(step)], machine)
                steps[-1], epoch[-1] = both, n
            else:
                steps.append(step)
                epoch.append(n)
        functions[name] = replace(fn, steps=steps)
    return replace(table, functions=functions), plans


def _may_join(a: Step, b: Step, plans: dict[Record, Planned], aliased: set[int]) -> bool:
    """True if both are engines' nests, and the second one needs the first, and for its first slice so much else that it gains by loading
    that early."""
    if not (_is_launch(a) and _is_launch(b)):
        return False
    pa, pb = plans[_record(a)], plans[_record(b)]
    if not (_nests(a, pa) and _nests(b, pb)) or len(pa.nests or (pa,)) + len(pb.nests or (pb,)) > MOST_NESTS:
        return False
    apart = {*a.outputs}.isdisjoint(b.inputs) or {*a.outputs, *b.inputs} & aliased
    return not apart and _first_bytes(b, pb, a.outputs) >= MEETING_BYTES


def _record(step: Step) -> Record:
    assert step.record is not None
    return step.record


def _is_launch(step: Step) -> bool:
    return step.kind == "group" and not step.is_empty and step.barrier and not step.first_tile


def _nests(step: Step, p: Planned) -> bool:
    """True for nests of engines that need in DDR nothing but what they load, and write over nothing there."""
    whole = p.low.chains and len(p.low.writes) == len(step.outputs) and step.in_place < 0
    return bool(p.nests) or (not p.reason and whole)


def _first_bytes(step: Step, p: Planned, made: Sequence[int]) -> int:
    """Return the bytes that a tile loads for the first slice of a launch, of what is not among `made`."""
    first, record = (p.nests or (p,))[0], _as_chain(step)
    wires = [record.wires[0][k] for k in first.low.arguments()]
    values = [step.inputs[w[1]] if w is not None and w[0] == "in" else -1 for w in wires]
    sizes = zip(values, first.tiling.slice_bytes, strict=False)
    return sum([size for v, size in sizes if v >= 0 and v not in made])


def _as_chain(step: Step) -> ChainRecord:
    """Return a step's record as a chain, of one part if it is none."""
    record = _record(step)
    if isinstance(record, ChainRecord):
        return record
    wires = tuple([None if v < 0 else ("in", k) for k, v in enumerate(step.inputs)])
    return ChainRecord((record,), (wires,), record.operands, tuple(range(len(record.results))))


def _joined(a: Step, b: Step, fn: FunctionTable) -> Step:
    """Return both as one step."""
    first, second = _as_chain(a), _as_chain(b)
    inputs = list(dict.fromkeys([*a.inputs, *[v for v in b.inputs if v not in a.outputs]]))
    inputs = [v for v in inputs if v >= 0]
    n_made = sum([len(part.results) for part in first.parts])
    made = dict(zip(a.outputs, first.outputs, strict=True))

    def wire(w: tuple[str, int] | None, values: Sequence[int], before: int) -> tuple[str, int] | None:
        if w is None or w[0] == "op":
            return w and ("op", w[1] + before)
        v = values[w[1]]
        return ("op", made[v]) if before and v in made else ("in", inputs.index(v))

    wires = [
        tuple([wire(w, step.inputs, before) for w in row])
        for step, chain, before in ((a, first, 0), (b, second, n_made))
        for row in chain.wires
    ]
    outputs = (*first.outputs, *[n + n_made for n in second.outputs])
    operands = tuple([fn.values[v] for v in inputs])
    return Step(
        "group",
        f"{a.name}>{b.name.rpartition('.')[2]}",
        tuple(inputs),
        (*a.outputs, *b.outputs),
        ChainRecord((*first.parts, *second.parts), tuple(wires), operands, outputs),
        op_names=(*a.op_names, *b.op_names),
        nests=(*a.nests, *b.nests),
    )


def _planned(a: Planned, b: Planned, machine: Machine) -> Planned:
    """Return the plans of both, with a meeting between them instead of an end and a launch."""
    nests = (*(a.nests or (a,)), *(b.nests or (b,)))
    at = len(nests) - len(b.nests or (b,))
    meeting = isa.sequence_cycles(machine, isa.make("barrier_sub", mask=(1 << machine.n_tiles) - 1))
    ending = isa.sequence_cycles(machine, isa.make("barrier")) + machine.kcore.launch_cycles
    cycles = a.plan.estimate_cycles + b.plan.estimate_cycles + meeting - ending
    stays = [s._replace(maker=s.maker + at, reader=s.reader + at) for s in b.stays]
    return Planned(
        of_nests(nests, cycles),
        "",
        nests,
        (*a.holds, (), *b.holds),
        (*a.stays, *stays),
        (*a.meets, at, *[n + at for n in b.meets]),
    )
