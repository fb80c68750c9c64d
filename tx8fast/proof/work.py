"""What there is to prove of a program: its launches over the graph, with operands, results and the ledger of DDR.

May import: program.model, graph_table, errors, proof.graph, proof.ledger, proof.evaluate. Must not: compute anything over the field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from tx8fast.errors import ProgramError, raise_all
from tx8fast.graph_table import TensorSpec
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.proof.evaluate import Slice, slice_of
from tx8fast.proof.expression import NotExpressed
from tx8fast.proof.graph import Graph
from tx8fast.proof.ledger import Ledger, size_of
from tx8fast.records import dataclass

#: weight key -> how the model at hand describes the weight, to compare with what the program holds
Describe = Callable[[str], dict[str, Any]]


@dataclass(frozen=True)
class Arg:
    """A launch's argument: its place in the list, the root of its value, how it lies in DDR."""

    index: int
    root: str
    spec: TensorSpec
    address: int


@dataclass
class Work:
    """A launch to prove. part: the ops between operands and results; None if they have no end (`why`)."""

    launch: int
    name: str
    operands: list[Arg]
    results: list[Arg]
    part: Slice | None
    why: str = ""
    last: tuple[str, ...] = ()  # roots that no later launch reads

    @property
    def elements(self) -> int:
        """How many elements the launch stores."""
        total = 0
        for a in self.results:
            n = 1
            for d in a.spec.shape:
                n *= d
            total += n
        return total


@dataclass
class Worklist:
    """All launches of a program, and what is wrong with addresses (launch name, value's root or output's name, reason)."""

    works: list[Work]
    conflicts: list[tuple[str, str, str]] = field(default_factory=list)


def lay_out(program: Program, graph: Graph, describe: Describe) -> Worklist:
    """Return the launches of `program` as stores of the graph's values.

    Raises ProgramError if the program was not made of this model with these options: other inputs, outputs, parameters or values."""
    _check_interface(program, graph, describe)
    ledger = Ledger()
    conflicts: list[tuple[str, str, str]] = []
    root_of = {name: root for root, name in graph.inputs.items()}
    for t in program.inputs:
        ledger.store(root_of[t.name], _spec(t), t.address, f"input '{t.name}'")
    for t in program.params:
        ledger.store(f"param {t.source['key']}", _spec(t), t.address, f"parameter '{t.name}'")
    for root, by in ledger.lost.items():
        conflicts.append((by, root, f"{by} lies over {root}"))
    works = []
    for i, launch in enumerate(program.launches):
        segment = program.segments[launch.segment]
        work = _work(i, launch, segment, graph)
        for a in work.operands:
            found = ledger.problem(a.root, a.spec, a.address)
            if found:
                conflicts.append((launch.name, a.root, found))
        conflicts += [(launch.name, r, why) for r, why in _overlaps(work, segment)]
        for a in work.results:
            ledger.store(a.root, a.spec, a.address, f"launch {i} ({launch.name})")
        works.append(work)
    for t, name in zip(program.outputs, graph.results, strict=True):
        found = ledger.problem(graph.roots[name], _spec(t), t.address)
        if found:
            conflicts.append(("at the end", f"output '{t.name}'", found))
    _note_last(works)
    return Worklist(works, conflicts)


def _spec(t: Tensor) -> TensorSpec:
    return TensorSpec(tuple(t.shape), t.ddr_dtype, t.layout)


def _says(spec: TensorSpec | None) -> str:
    return "none of that name" if spec is None else f"{spec.shape} {spec.dtype} {spec.layout}"


def _check_interface(program: Program, graph: Graph, describe: Describe) -> None:
    problems = []
    own = {name: graph.specs[root] for root, name in graph.inputs.items()}
    given = {t.name: _spec(t) for t in program.inputs}
    for name in dict.fromkeys([*own, *given]):
        if own.get(name) != given.get(name):
            problems.append(
                f"input '{name}': the program has {_says(given.get(name))}, the model {_says(own.get(name))}"
            )
    ends = [(t.name, _spec(t)) for t in program.outputs]
    if len(ends) != len(graph.results):
        problems.append(f"the program has {len(ends)} outputs, the model {len(graph.results)}")
    for k, ((name, spec), own_name, value) in enumerate(zip(ends, graph.outputs, graph.results, strict=False)):
        if name != own_name:
            problems.append(f"output {k}: the program calls it '{name}', the model '{own_name}'")
        if spec != graph.specs[value]:
            problems.append(f"output '{name}': the program has {_says(spec)}, the model {_says(graph.specs[value])}")
    for t in (*program.inputs, *program.outputs):
        if t.dtype != t.ddr_dtype:
            problems.append(
                f"'{t.name}': the program takes or gives {t.dtype} where {t.ddr_dtype} lies in DDR, required one format"
            )
    if program.chips != graph.chips:
        problems.append(f"the program is for {program.chips} chips, the model for {graph.chips}")
    keys = set(graph.params.values())
    for t in program.params:
        key = t.source.get("key")
        if key not in keys:
            problems.append(f"parameter '{t.name}': the model has no weight '{key}'")
            continue
        wanted = describe(key)
        held = {k: v for k, v in t.source.items() if k != "key"}
        if wanted.get("kind") == "missing" != held.get("kind"):
            problems.append(
                f"parameter '{t.name}': the model's folder has no file with weight '{key}'; its bytes are not read, but its place "
                "is compared with the program's"
            )
            continue
        if {**wanted, "shape": list(wanted["shape"])} != {**held, "shape": list(held["shape"])}:
            problems.append(f"parameter '{t.name}': the program takes it from {held}, the model from {wanted}")
    for launch in program.launches:
        if not launch.values and len(launch.args):
            problems.append(f"launch '{launch.name}' does not name its values; compile the model again")
        unknown = [v for v in launch.values if v and v not in graph.specs]
        if unknown:
            problems.append(
                f"launch '{launch.name}' names values that the model does not have: {', '.join(unknown[:3])}"
            )
            continue
        if problems:
            continue  # of another model, other shapes say nothing more
        for value, declared in zip(launch.values, program.segments[launch.segment].arguments):
            if value and declared is not None:
                own = graph.specs[value]
                if (tuple(declared.shape), declared.dtype) != (own.shape, own.dtype):
                    problems.append(
                        f"launch '{launch.name}', value {value}: the program has {tuple(declared.shape)} {declared.dtype}, "
                        f"the model {own.shape} {own.dtype}"
                    )
    raise_all(ProgramError, "comparing the program with the model, compiled with the same options", problems)


def _work(index: int, launch: Launch, segment: Segment, graph: Graph) -> Work:
    operands, results = [], []
    for k, (name, address) in enumerate(zip(launch.values, launch.args, strict=True)):
        declared = segment.arguments[k] if segment.arguments else None
        if declared is None or not name:
            continue
        arg = Arg(
            k, graph.roots[name], TensorSpec(tuple(declared.shape), declared.dtype, declared.layout), int(address)
        )
        (operands if declared.role == "operand" else results).append(arg)
    try:
        part = slice_of(graph, [a.root for a in operands], [a.root for a in results])
    except NotExpressed as err:
        return Work(index, launch.name, operands, results, None, str(err))
    return Work(index, launch.name, operands, results, part)


def _overlaps(work: Work, segment: Segment) -> list[tuple[str, str]]:
    """Return the results that lie over other arguments, but where the launch declares that it takes over their bytes."""
    found = []
    for i, r in enumerate(work.results):
        declared = segment.arguments[r.index]
        for other in (*work.operands, *work.results[:i]):
            replaced = declared is not None and declared.replaces == other.index and r.address == other.address
            begin, end = (
                max(r.address, other.address),
                min(r.address + size_of(r.spec), other.address + size_of(other.spec)),
            )
            if begin < end and not replaced:
                found.append((r.root, f"is stored over argument {other.index} of the same launch"))
    return found


def _note_last(works: list[Work]) -> None:
    """Note for every launch the values that no later one reads."""
    seen: set[str] = set()
    for work in reversed(works):
        roots = {a.root for a in work.operands} | set(work.part.sources if work.part is not None else ())
        work.last = tuple(sorted(roots - seen))
        seen |= roots
