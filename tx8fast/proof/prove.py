"""The proof: every launch's stores against the graph's own expression, over several seeds.

May import: program.model, graph_table, errors, proof.*. Must not: know ops, rows or how either side computes.

Launches are proved one by one from sealed operands, so they prove independently; the ledger joins them. A launch that has the
same code, the same expression and the same kinds of operands as one that was proved is not run again. docs/proof.md
holds the argument, and what it leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.graph_table import GraphTable
from tx8fast.program.model import Program
from tx8fast.proof import thin
from tx8fast.proof.cells import RESIDUE, SPECIAL, UNDEFINED, Elements
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.degree import degree_of
from tx8fast.proof.ends import End, ends_of
from tx8fast.proof.evaluate import Evaluation, PerChip, Sources
from tx8fast.proof.expression import CONCRETE, Drawn, NotExpressed, Scope, Value
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph, written_out
from tx8fast.proof.lanes import Lanes, lanes, one_thread_each
from tx8fast.proof.report import BITS, Failure, Outside, Report
from tx8fast.proof.work import Arg, Describe, Work, lay_out
from tx8fast.records import dataclass

#: failed launches after which a proof ends
MOST_FAILURES = 8

#: why elements of a launch are left out
UNSEEN = "rows of a mask that hide every key, and what is made of them, are not compared"
ENDLESS = "infinite numbers, and what is made of them, are not compared"

Progress = Callable[[int, int], None]


class Unmodelled(Exception):
    """The machine has no meaning for something that a launch does; the message names it."""


@dataclass(frozen=True)
class Noted:
    """What a launch did besides its results. divided: the residues modulo p of what it took inverses of."""

    divided: np.ndarray
    comparisons: Comparisons


class Runner(Protocol):
    """What executes a launch over the field."""

    def run(
        self, launch: int, operands: Sequence[tuple[Arg, PerChip]], results: Sequence[Arg]
    ) -> tuple[list[PerChip], Noted]:
        """Execute one launch on operands; return its results, and what else is compared.

        Raises Unmodelled, and SimulationError if the launch does something illegal."""
        ...


@dataclass
class Lane:
    """What one thread runs launches on: a machine, with a field of its own."""

    field: Field
    runner: Runner


@dataclass(frozen=True)
class Evaluated:
    """A launch whose expression was evaluated but for its `ends`: values by root, and what they were made from."""

    work: Work
    evaluation: Evaluation
    given: dict[str, PerChip]
    values: dict[str, PerChip]
    scope: Scope
    ends: list[End]


@dataclass
class Prover:
    """A program, the graph it is to compute, and what was found. lanes: launches that run at a time; thin: streams that are matrices
    of low rank, with their rows and columns."""

    program: Program
    graph: Graph
    sources: Sources
    runner: Callable[[Program, Field], Runner]
    works: list[Work]
    report: Report
    lanes: int = 1
    thin: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def seed(self, number: int, chosen: Callable[[Work], bool], progress: Progress | None) -> None:
        """Prove the launches that `chosen` takes with one seed; the others only hand their results on."""
        evaluation = Evaluation(self.graph, Field(number, self.thin), self.sources)
        lanes: Lanes[Lane, Report] = Lanes(lambda: self._lane(number), self.lanes)
        proved: set[tuple] = set()
        special: set[str] = set()
        try:
            for done, work in enumerate(self.works):
                key = self._key(work, evaluation, special)
                if work.part is None:
                    self._take(lanes.put(lambda _, work=work: _outside(work, work.why)))
                    evaluation.invent(work.results)
                elif key not in proved and chosen(work):
                    job, equal = self._begin(work, evaluation, special)
                    if equal:
                        proved.add(key)
                    self._take(lanes.put(job))
                elif key not in proved:
                    self._hand_on(work, evaluation, special)
                evaluation.forget(work.last)
                if progress is not None:
                    progress(done + 1, len(self.works))
                if len(self.report.failures) >= MOST_FAILURES:
                    return
            self._take(lanes.rest())
        finally:
            lanes.close()

    def _lane(self, number: int) -> Lane:
        field = Field(number, self.thin)
        return Lane(field, self.runner(self.program, field))

    def _take(self, found: Sequence[Report]) -> None:
        """Add what launches, in their order, were found to be."""
        for each in found:
            if len(self.report.failures) < MOST_FAILURES:
                self.report.take(each)

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

    def _begin(self, work: Work, evaluation: Evaluation, special: set[str]) -> tuple[Callable[[Lane], Report], bool]:
        """Evaluate one launch; return the rest of its proof, and whether equal ones may be left out: it stores numbers, of
        which nothing hides."""
        assert work.part is not None
        part, roots, field = work.part, [a.root for a in work.results], evaluation.field
        ends = [] if evaluation.fixed(part) else ends_of(self.graph, part.ops, roots)
        given = evaluation.given(part)
        try:
            values, scope = evaluation.launch(part, given, field, {op.number for end in ends for op in end.ops})
        except NotExpressed as err:
            reason = str(err)
            evaluation.invent(work.results)
            return lambda _: _outside(work, reason), False
        operands = [(a, evaluation.shaped(a.root, a.spec)) for a in work.operands]
        wanted = {root: values[root] for root in roots if root in values}
        constants = field.constants.copy()

        def job(lane: Lane) -> Report:
            # what the graph's side registers for launches behind this one must not be known yet
            lane.field.constants = constants
            return self._prove(Evaluated(work, evaluation, given, values, scope, ends), operands, lane)

        evaluation.seal(part, wanted)
        plain = evaluation.plain(wanted)
        if not plain:
            special.update(wanted)
        return job, plain

    def _prove(self, made: Evaluated, operands: list[tuple[Arg, PerChip]], lane: Lane) -> Report:
        """Run a launch and compare; return what was found."""
        work, report = made.work, Report(ran={made.work.launch})
        try:
            found, noted = lane.runner.run(work.launch, operands, work.results)
        except Unmodelled as err:
            return _outside(work, str(err))
        except SimulationError as err:
            if any(_unknown(v).any() for values in made.values.values() for v in values):
                return _outside(work, ENDLESS)  # what chooses or counts may be one of them
            self._fail(report, work, "", f"the launch fails: {err}")
            return report
        self._compare_all(report, made, found, lane.field)
        self._compare_denominators(report, made, noted.divided)
        self._compare_comparisons(report, made, noted.comparisons)
        return report

    def _hand_on(self, work: Work, evaluation: Evaluation, special: set[str]) -> None:
        """Work out the results of a launch that this seed does not prove, for the launches behind it."""
        assert work.part is not None
        try:
            values, _ = evaluation.launch(work.part, evaluation.given(work.part), evaluation.field)
        except NotExpressed:
            evaluation.invent(work.results)
            return
        wanted = {a.root: values[a.root] for a in work.results}
        evaluation.seal(work.part, wanted)
        if not evaluation.plain(wanted):
            special.update(wanted)

    # --- comparison ------------------------------------------------------------------------------------------------

    def _compare_all(self, report: Report, made: Evaluated, found: list[PerChip], field: Field) -> None:
        """Compare the results of a launch. Of what was left out of its values, a vector tells whether it is right; if it does
        not, the launch is evaluated in full."""
        work, values = made.work, made.values
        assert work.part is not None
        end_of = {end.root: end for end in made.ends}
        rest = []
        for a, have in zip(work.results, found, strict=True):
            end = end_of.get(a.root)
            if end is not None and made.evaluation.holds(end, values, have, field):
                report.compared += sum(v.p.size for v in have)
            else:
                rest.append((a, have))
        if any(a.root in end_of for a, _ in rest):
            values, _ = made.evaluation.launch(work.part, made.given, field)
        for a, have in rest:
            self._compare(report, work, a, values[a.root], have, UNSEEN if made.scope.unseen else ENDLESS)

    def _compare(self, report: Report, work: Work, arg: Arg, wanted: PerChip, found: PerChip, why_not: str) -> None:
        """Compare a result. why_not: why it is not asked what elements are that the graph leaves undefined."""
        for chip, (want, have) in enumerate(zip(wanted, found, strict=True)):
            want = want.elements() if isinstance(want, Drawn) else want  # a weight that is itself a result
            unknown = _unknown(want)
            differs = different(want, have) & ~unknown
            report.compared += differs.size
            _leave_out(report, work, int(unknown.sum()), why_not)
            if differs.any():
                where = np.unravel_index(int(np.argmax(differs)), differs.shape) if differs.ndim else ()
                at = [int(i) for i in where]
                why = f"{int(differs.sum()):,} of {differs.size:,} elements differ, the first at {at}" + (
                    f" on chip {chip}" if self.graph.n_chips > 1 else ""
                )
                self._fail(report, work, arg.root, f"{why}: {_says(have, where)}, required {_says(want, where)}")
                return

    def _compare_denominators(self, report: Report, made: Evaluated, divided: np.ndarray) -> None:
        """Demand that a launch with a softmax divides by each of the graph's own denominators (and by whatever else: sums
        lie beside lanes that hold nothing)."""
        part = made.work.part
        assert part is not None
        if not any(op.record.kind == "softmax" and not op.record.attr("log") for op in part.ops):
            return
        own = np.unique(np.concatenate([d.p[d.p & np.uint32(UNDEFINED) == 0] for d in made.scope.denominators]))
        own &= np.uint32(RESIDUE)
        missing = int((~np.isin(own, divided)).sum())
        report.denominators += own.size
        if missing:
            why = f"{missing:,} of the graph's {own.size:,} sums of exponentials are nowhere divided by"
            self._fail(report, made.work, "", why)

    def _compare_comparisons(self, report: Report, made: Evaluated, found: Comparisons) -> None:
        """Demand that a launch makes each of the graph's own comparisons of numbers: a wrong one may give the same truth value."""
        count, missing = made.scope.comparisons.missing(found)
        report.comparisons += count
        if missing:
            why = f"{missing:,} of the graph's {count:,} comparisons are nowhere made: other operands, or another relation"
            self._fail(report, made.work, "", why)

    def _fail(self, report: Report, work: Work, root: str, why: str) -> None:
        op = self.graph.made.get(root)
        report.failures.append(Failure(work.launch, work.name, root, op.name if op is not None else "", why))


def _outside(work: Work, why: str) -> Report:
    """Return that a launch lies outside the proof."""
    return Report(
        outside={work.launch: Outside(work.launch, work.name, why, work.elements)},
        ran={work.launch} if work.part else set(),
    )


def _unknown(value: Value) -> np.ndarray:
    """Return which elements the graph leaves undefined."""
    return value.p & np.uint32(UNDEFINED) != 0 if isinstance(value, Elements) else np.zeros((), bool)


def _leave_out(report: Report, work: Work, elements: int, why: str) -> None:
    """Note that some of a launch's elements are not compared."""
    if elements:
        report.compared -= elements
        before = report.outside.get(work.launch)
        count = elements + (before.elements if before is not None else 0)
        report.outside[work.launch] = Outside(work.launch, work.name, why, count)


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
        return str(int(value[where]))
    word = int(value.p[where])
    if word & SPECIAL:
        return "an undefined element" if word & UNDEFINED else "an element that hides"
    return f"residue {word & RESIDUE}"


def prove(
    program: Program,
    table: GraphTable,
    sources: Sources,
    describe: Describe,
    runner: Callable[[Program, Field], Runner],
    quick: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Return what a proof of `program` against `table`, the graph as the search receives it, finds.

    quick: one seed. Raises ProgramError if the program is not one of this graph."""
    graph = written_out(table)
    work = lay_out(program, graph, describe)
    report = Report(
        segments=len(program.segments),
        launches=len(program.launches),
        elements=sum(w.elements for w in work.works) * graph.n_chips,
    )
    for launch, root, why in work.conflicts:
        op = graph.made.get(root)
        report.failures.append(Failure(-1, launch, root, op.name if op is not None else "", f"the value {why}"))
    roots = thin.thin_roots(graph, work.works, sources)
    prover = Prover(program, graph, sources, runner, work.works, report, lanes(), thin.streams(graph, roots, sources))
    given = dict.fromkeys(roots, thin.DEGREE)
    degrees = {w.launch: degree_of(graph, w.part, given) for w in work.works if w.part is not None}
    of_bits = Field(1)
    needed = {i: math.ceil(BITS / max(1.0, d.bits(of_bits))) for i, d in degrees.items()}
    seeds = 1 if quick else max(needed.values(), default=1)
    for n in range(seeds):
        if len(report.failures) >= MOST_FAILURES or (n and report.failures):
            break
        with one_thread_each():
            prover.seed(n + 1, lambda w, n=n: n == 0 or needed[w.launch] > n, progress)
        report.seeds = n + 1
    bits = (max(0.0, d.bits(of_bits)) * (1 if quick else needed[i]) for i, d in degrees.items())
    report.bits = min(bits, default=0.0)
    return report


__all__ = ["CONCRETE", "Elements", "Prover", "Runner", "Unmodelled", "different", "prove"]
