"""The proof: every launch's stores against the graph's own expression, over several seeds.

May import: program.model, graph_table, errors, proof.*. Must not: know ops, rows or how either side computes.

Launches are proved one by one from sealed operands, so they prove independently; the ledger joins them. A launch that has the
same code, the same expression and the same kinds of operands as one that was proved is not run again. docs/proof.md
holds the argument, and what it leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.graph_table import GraphTable
from tx8fast.program.model import Program
from tx8fast.proof.cells import RESIDUE, SPECIAL, UNDEFINED, Elements
from tx8fast.proof.degree import degree_of
from tx8fast.proof.evaluate import Evaluation, PerChip, Sources
from tx8fast.proof.expression import CONCRETE, NotExpressed, Scope, Value
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph, written_out
from tx8fast.proof.report import Failure, Outside, Report
from tx8fast.proof.work import Arg, Describe, Work, lay_out

#: bits that the default number of seeds reaches: a wrong program passes with probability at most 2^-40
BITS = 40
#: failed launches after which a proof ends
MOST_FAILURES = 8

Progress = Callable[[int, int], None]


class Unmodelled(Exception):
    """The machine has no meaning for something that a launch does; the message names it."""


class Runner(Protocol):
    """What executes a launch over the field."""

    def run(
        self, launch: int, operands: Sequence[tuple[Arg, PerChip]], results: Sequence[Arg]
    ) -> tuple[list[PerChip], np.ndarray]:
        """Execute one launch on operands; return its results, and the residues modulo p of what it took inverses of.

        Raises Unmodelled, and SimulationError if the launch does something illegal."""
        ...


@dataclass
class Prover:
    """A program, the graph it is to compute, and what was found."""

    program: Program
    graph: Graph
    sources: Sources
    runner: Callable[[Program, Field], Runner]
    works: list[Work]
    report: Report

    def seed(self, number: int, chosen: Callable[[Work], bool], progress: Progress | None) -> None:
        """Prove the launches that `chosen` takes with one seed; the others only hand their results on."""
        field = Field(number)
        evaluation = Evaluation(self.graph, field, self.sources)
        runner = self.runner(self.program, field)
        proved: set[tuple] = set()
        special: set[str] = set()
        for done, work in enumerate(self.works):
            key = self._key(work, evaluation, special)
            if work.part is None:
                self._outside(work, work.why, evaluation)
            elif key not in proved and chosen(work):
                if self._prove(work, evaluation, runner, special):
                    proved.add(key)
                self.report.ran.add(work.launch)
            elif key not in proved:
                self._hand_on(work, evaluation, special)
            evaluation.forget(work.last)
            if progress is not None:
                progress(done + 1, len(self.works))
            if len(self.report.failures) >= MOST_FAILURES:
                return

    def _key(self, work: Work, evaluation: Evaluation, special: set[str]) -> tuple:
        """Return what two launches must share for the proof of one to be that of the other: the code, the ops with their wires,
        and the operands: which are one, which are constant or hide something."""
        if work.part is None:
            return (work.launch,)
        roots = evaluation.graph.roots
        place: dict[str, Any] = {}
        for a in work.operands:
            fixed = a.root in special or evaluation.is_exact(a.root)
            place.setdefault(a.root, a.root if fixed else ("operand", a.index))
        for s in work.part.sources:
            place.setdefault(s, s)
        for i, op in enumerate(work.part.ops):
            place.update({name: ("op", i, k) for k, name in enumerate(op.outputs) if name not in place})
        ops = tuple((op.record, tuple(place[roots[n]] if n else "" for n in op.inputs)) for op in work.part.ops)
        first: dict[int, int] = {}
        same = tuple(first.setdefault(a.address, a.index) for a in (*work.operands, *work.results))
        ends = tuple((a.index, place[a.root], a.spec) for a in work.results)
        starts = tuple((a.index, place[a.root], a.spec) for a in work.operands)
        return self.program.launches[work.launch].segment, ops, starts, ends, same

    def _prove(self, work: Work, evaluation: Evaluation, runner: Runner, special: set[str]) -> bool:
        """Prove one launch; return whether an equal one may be left out: it stores numbers, of which nothing hides."""
        assert work.part is not None
        roots = [a.root for a in work.results]
        try:
            wanted, scope = evaluation.launch(work.part, roots)
        except NotExpressed as err:
            self._outside(work, str(err), evaluation)
            return False
        operands = [(a, evaluation.shaped(a.root, a.spec)) for a in work.operands]
        try:
            found, divided = runner.run(work.launch, operands, work.results)
        except Unmodelled as err:
            self._outside(work, str(err), evaluation, seal=False)
            found = None
        except SimulationError as err:
            self._fail(work, "", f"the launch fails: {err}")
            found = None
        if found is not None:
            for a, values in zip(work.results, found, strict=True):
                self._compare(work, a, wanted[a.root], values)
            self._compare_denominators(work, scope, divided)
        evaluation.seal(work.part, wanted)
        if evaluation.plain(wanted):
            return True
        special.update(roots)
        return False

    def _hand_on(self, work: Work, evaluation: Evaluation, special: set[str]) -> None:
        """Work out the results of a launch that this seed does not prove, for the launches behind it."""
        assert work.part is not None
        try:
            wanted, _ = evaluation.launch(work.part, [a.root for a in work.results])
        except NotExpressed:
            evaluation.invent(work.results)
            return
        evaluation.seal(work.part, wanted)
        if not evaluation.plain(wanted):
            special.update(wanted)

    # --- comparison ------------------------------------------------------------------------------------------------

    def _compare(self, work: Work, arg: Arg, wanted: PerChip, found: PerChip) -> None:
        for chip, (want, have) in enumerate(zip(wanted, found, strict=True)):
            differs = different(want, have)
            self.report.compared += differs.size
            if differs.any():
                where = np.unravel_index(int(np.argmax(differs)), differs.shape) if differs.ndim else ()
                at = [int(i) for i in where]
                why = f"{int(differs.sum()):,} of {differs.size:,} elements differ, the first at {at}" + (
                    f" on chip {chip}" if self.graph.n_chips > 1 else ""
                )
                self._fail(work, arg.root, f"{why}: {_says(have, where)}, required {_says(want, where)}")
                return

    def _compare_denominators(self, work: Work, scope: Scope, divided: np.ndarray) -> None:
        """Demand that a launch with a softmax divides by each of the graph's own denominators (and by whatever else: sums
        lie beside lanes that hold nothing)."""
        assert work.part is not None
        if not any(op.record.kind == "softmax" and not op.record.attr("log") for op in work.part.ops):
            return
        own = np.unique(np.concatenate([(d.p & np.uint32(RESIDUE)).reshape(-1) for d in scope.denominators]))
        missing = int((~np.isin(own, divided)).sum())
        self.report.denominators += own.size
        if missing:
            self._fail(work, "", f"{missing:,} of the graph's {own.size:,} sums of exponentials are nowhere divided by")

    def _fail(self, work: Work, root: str, why: str) -> None:
        op = self.graph.made.get(root)
        self.report.failures.append(Failure(work.launch, work.name, root, op.name if op is not None else "", why))

    def _outside(self, work: Work, why: str, evaluation: Evaluation, seal: bool = True) -> None:
        self.report.outside.setdefault(work.launch, Outside(work.launch, work.name, why, work.elements))
        if seal:
            evaluation.invent(work.results)


def different(want: Value, have: Value) -> np.ndarray:
    """Return which elements differ; undefined ones always do."""
    if isinstance(want, np.ndarray) or isinstance(have, np.ndarray):
        if not (isinstance(want, np.ndarray) and isinstance(have, np.ndarray)) or want.shape != have.shape:
            return np.ones(want.shape, bool)
        return np.asarray(want != have)
    a, b = want.values(), have.values()
    return np.asarray((a != b) | (a & UNDEFINED != 0) | (b & UNDEFINED != 0))


def _says(value: Value, where: tuple) -> str:
    if isinstance(value, np.ndarray):
        return str(value[where])
    word = int(value.p[where])
    if word & SPECIAL:
        return "an undefined element" if word & UNDEFINED else "an element that hides"
    return f"residue {word & RESIDUE}"


def prove(program: Program, table: GraphTable, sources: Sources, describe: Describe, runner: Callable[[Program, Field], Runner],
          quick: bool = False, progress: Progress | None = None) -> Report:  # fmt: skip
    """Return what a proof of `program` against `table`, the graph as the search receives it, finds.

    quick: one seed. Raises ProgramError if the program is not one of this graph."""
    graph = written_out(table)
    work = lay_out(program, graph, describe)
    report = Report(segments=len(program.segments), launches=len(program.launches),
                    elements=sum(w.elements for w in work.works) * graph.n_chips)  # fmt: skip
    for launch, root, why in work.conflicts:
        op = graph.made.get(root)
        report.failures.append(Failure(-1, launch, root, op.name if op is not None else "", f"the value {why}"))
    prover = Prover(program, graph, sources, runner, work.works, report)
    degrees = {w.launch: degree_of(graph, w.part) for w in work.works if w.part is not None}
    field = Field(1)
    needed = {i: math.ceil(BITS / d.bits(field)) for i, d in degrees.items()}
    seeds = 1 if quick else max(needed.values(), default=1)
    for n in range(seeds):
        if len(report.failures) >= MOST_FAILURES or (n and report.failures):
            break
        prover.seed(n + 1, lambda w, n=n: n == 0 or needed[w.launch] > n, progress)
        report.seeds = n + 1
    report.bits = min((d.bits(field) * (1 if quick else needed[i]) for i, d in degrees.items()), default=0.0)
    return report


__all__ = ["CONCRETE", "Elements", "Prover", "Runner", "Unmodelled", "different", "prove"]
