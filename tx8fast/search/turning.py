"""Layers that begin elsewhere: some of a layer's steps go to the call before, so that one launch can run nests of two layers.

May import: graph_table, search.grouping. Must not: choose where a layer begins, know plans.

A function that is called again and again reads in each call what the one before has made. Its first steps may as well be the last
ones of the call before: those of the first call stand in front of all calls then, and what remains of the last call behind them. What
a layer's first steps make for the others becomes an argument. In which call of the graph a value stands says `FunctionTable.layer`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tx8fast.graph_table import FunctionTable, GraphTable, Step
from tx8fast.records import dataclass

HERE, NEXT = 0, 1  # the layer of a call, and the one behind it
#: where a value of the new function comes from: its kind, the layer, and its number in the old function
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Calls:
    """Calls of one function, each of which may read results of the one before. links: by argument, the result that it is."""

    fn: FunctionTable
    steps: tuple[Step, ...]
    links: Mapping[int, int]


def calls_in_turn(table: GraphTable, name: str) -> Calls | None:
    """Return the calls of a function, None if it cannot begin elsewhere: it does already, is called by others than main or less than
    three times, writes over its arguments, calls functions, returns what it does not make, or has steps that are to stay."""
    fn, main = table.functions[name], table.functions["main"]
    callers = [f.name for f in table.functions.values() for s in f.steps if s.callee == name]
    calls = [(i, s) for i, s in enumerate(main.steps) if s.callee == name]
    made = {v for s in fn.base.values() for v in s.outputs}
    if name == "main" or fn.turned or len(calls) < 3 or set(callers) != {"main"} or fn.donated:
        return None
    if len({*fn.results}) < len(fn.results) or not {*fn.results} <= made or any(s.fixed for s in fn.steps):
        return None
    if any(s.kind == "call" or s.in_place >= 0 for s in fn.base.values()):
        return None
    begin = calls[0][0]
    steps = tuple([s for _, s in calls])
    there = {*main.args, *main.params, -1, *(v for s in main.steps[:begin] for v in s.outputs)}
    links: dict[int, int] = {}
    for at in range(len(fn.args)):
        found = {_result(a, b.inputs[at]) for a, b in zip(steps, steps[1:], strict=False)}
        if found == {-1}:
            if not {s.inputs[at] for s in steps} <= there:
                return None
        elif len(found) == 1 and steps[0].inputs[at] in there:
            links[at] = found.pop()
        else:
            return None
    return Calls(fn, steps, links)


def whole_groups(fn: FunctionTable, names: set[str]) -> bool:
    """Return whether every group of a function has all of its ops among `names`, or none."""
    return all(names.isdisjoint(s.members) or names.issuperset(s.members) for s in fn.steps)


def _result(call: Step, value: int) -> int:
    return call.outputs.index(value) if value in call.outputs else -1


def turn(table: GraphTable, name: str, names: Collection[str]) -> str:
    """Let the steps of a function that are called `names` go to the call before; return why that is not possible, else nothing."""
    calls = calls_in_turn(table, name) if name in table.functions else None
    if calls is None:
        return f"function '{name}' cannot begin elsewhere"
    fn, first = calls.fn, {*names}
    if not first < fn.base.keys():
        return f"function '{name}' does not consist of steps that begin it and others"
    if not whole_groups(fn, first):
        return f"function '{name}' cannot begin inside of a group"
    later = {v for n, s in fn.base.items() if n not in first for v in s.outputs}
    for n in first:
        if not later.isdisjoint(fn.base[n].inputs):
            return f"op '{n:.60}' of function '{name}' reads what is made behind it"
    new = Turned(table.functions["main"], calls, first)
    new.take(table)
    return ""


class Turned:
    """The two functions in which the steps called `names` go to the call before."""

    def __init__(self, main: FunctionTable, calls: Calls, names: Collection[str]) -> None:
        self.old, self.calls = calls.fn, calls
        self.first = {n for n in calls.fn.base if n in names}
        self.before = {v for n in self.first for v in calls.fn.base[n].outputs}
        self.fn = replace(
            calls.fn, values=[], args=[], results=[], params={}, steps=[], given=[], base={}, origin={}, arg_names=[], layer={},
            turned=tuple([n for n in calls.fn.base if n in self.first]),
        )  # fmt: skip
        self.main = replace(
            main, values=[*main.values], params={**main.params}, steps=[], base={}, origin={**main.origin}
        )
        self.known: dict[Key, int] = {}
        self.arguments: list[Key] = []
        self.own: list[dict[int, int]] = [
            {} for _ in calls.steps
        ]  # by call: values of main that stand for those of the function
        self._build(main)

    def take(self, table: GraphTable) -> None:
        """Put both in the place of the old ones."""
        table.functions |= {"main": self.main, self.old.name: self.fn}

    def _build(self, main: FunctionTable) -> None:
        old, steps = self.old, self.calls.steps
        self.fn.steps = [self._step(s, NEXT if self._goes(s) else HERE) for s in self._in_order(old.steps)]
        self.fn.base = {n: self._step(s, NEXT if n in self.first else HERE) for n, s in old.base.items()}
        read = {self._main_value(i, v) for _, side, v in self.arguments for i in range(side, len(steps))}
        read |= {v for s in main.steps if s.callee != old.name for v in s.inputs} | {*main.results}
        results: list[Key] = []
        for v in old.results:
            if v not in self.before and any(self._main_value(i, v) in read for i in range(len(steps) - 1)):
                results.append(("made", HERE, v))
        crossing = [v for kind, _, v in self.arguments if kind == "crossing"]
        results += [
            ("made", NEXT, v) for v in dict.fromkeys([*crossing, *(v for v in old.results if v in self.before)])
        ]
        self.fn.results = [self.known[key] for key in results]
        turned = [
            replace(
                call,
                inputs=tuple([self._main_value(i + side, v) for _, side, v in self.arguments]),
                outputs=tuple([self._main_value(i + side, v) for _, side, v in results]),
                layers=(call.call_number, steps[i + 1].call_number),
            )
            for i, call in enumerate(steps[:-1])
        ]
        at = next(i for i, s in enumerate(main.steps) if s.callee == old.name)
        own = self._in_order(old.steps)
        self.main.steps = [
            *main.steps[:at],
            *(self._inlined(s, 0) for s in own if self._goes(s)),
            *turned,
            *(self._inlined(s, len(steps) - 1) for s in own if not self._goes(s)),
            *(s for s in main.steps[at:] if s.callee != old.name),
        ]
        number = {s.outputs: i for i, s in enumerate(steps)}
        for name, step in main.base.items():
            if step.callee != old.name:
                self.main.base[name] = step
                continue
            i = number[step.outputs]
            if i < len(turned):
                self.main.base[name] = turned[i]
            for n, s in old.base.items():
                if i == (0 if n in self.first else len(steps) - 1):
                    self.main.base[f"{name}/{n}"] = self._inlined(s, i)

    def _goes(self, step: Step) -> bool:
        return not self.first.isdisjoint(step.members)

    def _in_order(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps that stay, then those that go to the call before."""
        return sorted(steps, key=self._goes)

    # -- values ---------------------------------------------------------------------------------------------------

    def _key(self, side: int, v: int) -> Key:
        old, calls = self.old, self.calls
        if v in old.params:
            return "param", HERE, v
        if v not in old.args:
            return ("crossing" if side == HERE and v in self.before else "made"), side, v
        at = old.args.index(v)
        if side == NEXT and at in calls.links:
            return self._key(HERE, old.results[calls.links[at]])
        same = len({s.inputs[at] for s in calls.steps}) == 1
        return "argument", HERE if same else side, v

    def _value(self, side: int, v: int) -> int:
        """Return the new function's value for one of the old function in a layer."""
        if v < 0:
            return v
        key = kind, layer, v = self._key(side, v)
        if key not in self.known:
            new = self.known[key] = len(self.fn.values)
            self.fn.values.append(self.old.values[v])
            self.fn.origin[new], self.fn.layer[new] = self.old.path(v), layer
            if kind == "param":
                self.fn.params[new] = self.old.params[v]
            elif kind != "made":
                self.fn.args.append(new)
                self.arguments.append(key)
        return self.known[key]

    def _main_value(self, i: int, v: int) -> int:
        """Return the value of main that stands for one of the old function in its i-th call."""
        call, old, own = self.calls.steps[i], self.old, self.own[i]
        if v < 0:
            return v
        if v in old.args:
            return call.inputs[old.args.index(v)]
        if v in old.results:
            return call.outputs[old.results.index(v)]
        if v not in own:
            new = own[v] = len(self.main.values)
            self.main.values.append(old.values[v])
            if v in old.params:
                self.main.params[new] = old.params[v]
            self.main.origin[new] = (call.call_number, *old.path(v))
        return own[v]

    # -- steps ----------------------------------------------------------------------------------------------------

    def _step(self, step: Step, side: int) -> Step:
        """Return a step of the new function."""
        return _moved(step, lambda v: self._value(side, v))

    def _inlined(self, step: Step, i: int) -> Step:
        """Return a step of the i-th call as one of main."""
        call = self.calls.steps[i]
        (name,) = call.members
        nests = tuple([tuple([f"{name}/{n}" for n in nest]) for nest in step.nests])
        moved = _moved(step, lambda v: self._main_value(i, v))
        return replace(moved, name=f"{call.name}/{step.name}", nests=nests)

    def parts(self, of: Mapping[tuple[int, ...], Sequence[Step]]) -> tuple[dict, dict]:
        """Return what `group_table` says of the old function's groups for main and for the new function."""
        main: dict[tuple[int, ...], tuple[Step, ...]] = {s.outputs: () for s in self.main.steps if s.layers}
        fn: dict[tuple[int, ...], tuple[Step, ...]] = {}
        for step in self.old.steps:
            cut, goes = of[step.outputs], self._goes(step)
            i = 0 if goes else len(self.calls.steps) - 1
            own = [self._inlined(s, i) for s in (step, *cut)]
            main[own[0].outputs] = tuple(own[1:])
            new = [self._step(s, NEXT if goes else HERE) for s in (step, *cut)]
            fn[new[0].outputs] = tuple(new[1:])
        return main, fn


def _moved(step: Step, value) -> Step:
    return replace(step, inputs=tuple(map(value, step.inputs)), outputs=tuple(map(value, step.outputs)))
