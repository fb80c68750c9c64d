"""Groups and plans of an earlier search for a graph: found again by name, checked again, taken without a search.

May import: graph_table, lower, machine, search.*, errors. Must not: choose a group or a plan.

What is checked: every step is in exactly one group, groups can share a loop nest and run in the order
given, each has the structure that its plan was made for, and the plan is legal and fits (`search.legal`). Estimates are
worked out anew. A group without a plan is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tx8fast.errors import ConfigError, InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, Record, Step
from tx8fast.lower import NotLowerable
from tx8fast.records import dataclass
from tx8fast.search.barriers import place_barriers
from tx8fast.search.candidates import edges_of
from tx8fast.search.chains import Chains
from tx8fast.search.exact import FunctionReport
from tx8fast.search.grouping import groupable, join, uses
from tx8fast.search.handover import Nest
from tx8fast.search.members import record_key
from tx8fast.search.memory import Memory
from tx8fast.search.planning import Planner
from tx8fast.search.read_nest import Unusable, read_nest
from tx8fast.search.results_file import read_results, stop
from tx8fast.search.trial import PlanTimer
from tx8fast.search.turning import turn
from tx8fast.tile.tiling import Planned


@dataclass(frozen=True)
class Given:
    """A file of search results whose types are right. opt, sharing: options of its search; report: what that did."""

    where: str
    opt: int
    sharing: bool
    machine_digest: str
    report: list[FunctionReport]
    functions: Mapping[str, Sequence[Mapping[str, Any]]]
    plans: Mapping[str, Mapping[str, Any]]
    turned: Mapping[str, Sequence[str]]


def load_given(path: str) -> Given:
    """Return the results in a file. Raises ConfigError."""
    data = read_results(path)
    names = [fn["name"] for fn in data["functions"]]
    twice = sorted({n for n in names if names.count(n) > 1})
    stop(f"reading plans {path}", [f"function '{n}' stands in it twice" for n in twice])
    return Given(
        path,
        data["opt"],
        data["sharing"],
        data["machine_digest"],
        [FunctionReport(**r) for r in data["search"]],
        {fn["name"]: fn["steps"] for fn in data["functions"]},
        data["plans"],
        {fn["name"]: fn["turned"] for fn in data["functions"] if fn["turned"]},
    )


def take_given(table: GraphTable, planner: Planner, given: Given, search_free: bool) -> None:
    """Replace the steps of every function by those of `given`, and let the planner know their plans. search_free: steps that
    are not `fixed` stay as they are, for a search. Raises ConfigError with all problems of one kind."""
    doing = f"using plans {given.where}"
    if given.machine_digest != planner.machine.digest:
        raise ConfigError(
            f"{doing}: they were made for a machine with digest {given.machine_digest:.16}, this one has "
            f"{planner.machine.digest:.16}; search again, or give that machine"
        )
    same = "model, sizes, dtype and group table must be those they were saved with"
    problems = [why for name, names in given.turned.items() if (why := turn(table, name, names))]
    stop(f"{doing}, which are of another graph or edited ({same})", problems or _name_problems(table, given))
    memory = Memory(planner)
    functions = [_Function(fn, given, memory, search_free) for fn in table.functions.values()]
    stop(doing, [p for f in functions for p in f.form()])
    stop(doing, [p for f in functions for p in f.plan()])
    for f in functions:
        f.fn.steps = f.steps
        if given.opt >= 2:
            place_barriers(f.fn)


def _name_problems(table: GraphTable, given: Given) -> list[str]:
    """Return where the steps of the file are not those of the graph."""
    problems = [f"function '{name}' is not in the graph" for name in given.functions if name not in table.functions]
    for fn in table.functions.values():
        if fn.name not in given.functions:
            problems.append(f"function '{fn.name}' of the graph is not in the file")
            continue
        seen: set[str] = set()
        for step in given.functions[fn.name]:
            if not all(step["nests"]) or not step["nests"]:
                problems.append(f"a step of function '{fn.name}' has a nest without ops")
            for name in (n for nest in step["nests"] for n in nest):
                if name not in fn.base:
                    problems.append(f"op '{name:.60}' is not in function '{fn.name}' of the graph")
                elif name in seen:
                    problems.append(f"op '{name}' of function '{fn.name}' is in two groups, or twice in one")
                seen.add(name)
        problems += [f"op '{name}' of function '{fn.name}' is in no group" for name in fn.base if name not in seen]
    return problems


class _Function:
    """The steps of one function: first formed, then planned."""

    def __init__(self, fn: FunctionTable, given: Given, memory: Memory, search_free: bool) -> None:
        self.fn, self.given, self.memory, self.planner = fn, given, memory, memory.planner
        self.base = list(fn.base.values())
        self.place = {name: i for i, name in enumerate(fn.base)}
        self.used = uses(fn, self.base)
        self.search_free = search_free
        self.steps: list[Step] = []
        self.formed: list[
            tuple[list[Step], Mapping[str, Any] | None]
        ] = []  # nests, their entry (None: left to the search)

    def form(self) -> list[str]:
        """Make groups of steps; return what is wrong with them."""
        problems: list[str] = []
        for row in self.given.functions[self.fn.name]:
            members = [self.fn.base[name] for nest in row["nests"] for name in nest]
            if self.search_free and not all(s.fixed for s in members):
                self.formed += [([s], None) for s in members]
                continue
            try:
                nests = [self._group([self.fn.base[name] for name in nest], row) for nest in row["nests"]]
            except Unusable as err:
                problems.append(f"'{members[0].nests[0][0]}' of function '{self.fn.name}': {err}")
            else:
                self.formed.append((nests, row))
        return problems or self._order_problems()

    def _group(self, part: list[Step], row: Mapping[str, Any]) -> Step:
        if len(part) == len(row["nests"]) == 1:
            if part[0].kind != row["kind"]:
                raise Unusable(f"it is a {part[0].kind}, not a {row['kind']:.20}")
            return part[0]
        if len(part) == 1:
            if part[0].record is None:
                raise Unusable("it cannot be part of a chain")
            return part[0]
        if row["kind"] != "group":
            raise Unusable(f"several ops are a group, not a {row['kind']:.20}")
        alone = [s.nests[0][0] for s in part if not (groupable(s) or s.fixed and groupable(replace(s, fixed=False)))]
        if alone:
            raise Unusable(f"'{alone[0]}' can be no member of a group")
        read: set[int] = set()
        for s in part:
            if read.intersection(s.outputs):
                raise Unusable("its ops are not in an order in which they can run")
            read.update(s.inputs)
        step = join(self.fn, part, {self.place[s.nests[0][0]] for s in part}, self.used)
        if not step.outputs:
            raise Unusable("nothing uses its results")
        return step

    def _order_problems(self) -> list[str]:
        """Return the steps that stand before one whose result they need."""
        maker = {v for s in self.base for v in s.outputs}
        ready: set[int] = set()
        problems = []
        for nests, _ in self.formed:
            for step in nests:
                if any(v in maker and v not in ready for v in step.inputs):
                    problems.append(
                        f"'{step.members[0]}' of function '{self.fn.name}' stands before an op whose result it needs"
                    )
                ready.update(step.outputs)
        order = [name for nests, _ in self.formed for s in nests for name in s.members]
        if self.given.opt == 1 and (
            order != list(self.fn.base) or any(len(s.members) > 1 for n, _ in self.formed for s in n)
        ):
            problems.append(
                f"function '{self.fn.name}' has groups or another order than the graph, and opt is 1; write opt 2"
            )
        return problems

    def plan(self) -> list[str]:
        """Plan the steps that were formed; return what is wrong with the plans."""
        problems: list[str] = []
        for nests, row in self.formed:
            try:
                self.steps.append(replace(nests[0], fixed=False) if row is None else self._planned(nests, row))
            except Unusable as err:
                problems += [f"'{nests[0].members[0]}' of function '{self.fn.name}': {line}" for line in err.args]
            except (NotLowerable, InfeasibleError) as err:
                problems.append(f"'{nests[0].members[0]}' of function '{self.fn.name}': {err}")
        return problems

    def _planned(self, nests: Sequence[Step], row: Mapping[str, Any]) -> Step:
        (step, *more), known = nests, self.planner.known
        if not more:
            if step.record is not None and not step.is_empty and row["plan"] is None:
                if isinstance(step.record, GroupRecord):  # an op that does not fit is told with all others
                    self.planner.plan(step.record, step.name)
            elif step.record is not None and not step.is_empty:
                plan = self._found(step.record, row["plan"], 1)
                if plan["nests"][0]["gathered"] or plan["nests"][0]["delivered"]:
                    raise Unusable("operands come from other tiles, and nothing stands before them in their chain")
                if not isinstance(known.get(step.record), Planned):
                    known[step.record] = self._timed(self._nest(step.record, step.name, plan["nests"][0]))
            return replace(step, fixed=True)
        if row["plan"] is None:
            raise Unusable("a chain of groups needs its plan")
        plan = self.given.plans[row["plan"]]
        if len(plan["nests"]) != len(nests):
            raise Unusable(f"{len(nests)} nests, and a plan for {len(plan['nests'])}")
        path = []
        for s, nest in zip(nests, plan["nests"], strict=True):
            assert s.record is not None
            made = self._nest(s.record, s.name, nest)
            items = tuple(sorted(self.place[m] for m in s.members))
            path.append(Nest(items, s, self.memory.tiling(made.low, made.plan)))
        chains = Chains(self.fn, self.base, edges_of(self.base), self.memory)
        found = chains.given(path, [tuple(map(tuple, h)) for h in plan["holds"]])
        if found is None:
            raise Unusable("its nests with these hand-overs are no chain")
        chain, planned = found
        assert chain.record is not None
        self._found(chain.record, row["plan"], len(nests))
        if any(sorted(n.plan.held) != h["held"] for n, h in zip(planned.nests, plan["nests"], strict=True)):
            raise Unusable("other accesses stay in scratchpad than the plan says")
        known[chain.record] = planned
        return replace(chain, fixed=True)

    def _found(self, record: Record, key: str, nests: int) -> Mapping[str, Any]:
        """Return the plan called `key`, which must be one of this record."""
        if record_key(record) != key:
            raise Unusable(
                f"its plan {key:.20} is of other ops, shapes, formats or attributes; found {record_key(record)}"
            )
        plan = self.given.plans[key]
        if len(plan["nests"]) != nests:
            raise Unusable(f"{nests} nest, and a plan for {len(plan['nests'])}")
        return plan

    def _nest(self, record: Record, name: str, row: Mapping[str, Any]) -> Planned:
        return read_nest(record, name, row, self.planner.machine, self.planner.sharing)

    def _timed(self, p: Planned) -> Planned:
        if p.plan.estimate_cycles:
            return p
        cycles = PlanTimer(p.low, self.planner.machine).final(p.tiling)
        return replace(p, tiling=p.tiling.but(estimate_cycles=cycles, spm_bytes=p.tiling.demand_bytes()))
