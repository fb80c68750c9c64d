"""Which ops of a graph n chips share, and how: the fewest weight bytes per chip, then the fewest bytes over links.

May import: ir, passes.chip_layouts, passes.chip_facts. Must not: change the graph.

Ops are decided in graph order. What has been decided so far differs in how the values lie that later ops read, so of decisions that leave them
alike the cheapest is kept, and of those that do not the cheapest few: a model is narrow between its layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.passes.chip_facts import ChipFacts, contiguous, n_bytes, sent
from tx8fast.passes.chip_layouts import FREE, WHOLE, Digits, Layout, Way, digits_of, rule_of

#: decisions that are kept behind an op
KEPT = 64
#: what it costs to put parts together in the middle of a graph: as much as reading so many bytes of weights, and for every byte over links six
#: (the DDR is six times as fast)
GATHER_BYTES, LINK_BYTES = 1 << 20, 6
#: kinds that give of summands a summand: of all operands alike, of the first one
SUMS, SCALES = (
    frozenset({"add", "sub", "concat"}),
    frozenset({"neg", "mul", "div", "reshape", "transpose", "slice", "broadcast"}),
)

#: of values that are not as at first, whole or free: how they lie, and whether they are there whole, too
States = dict[Value, tuple[Layout, bool]]


class Choice(NamedTuple):
    """What becomes of an op. way: how it is cut, None = each chip does all of it; sums: the operands that it takes as summands, to give one."""

    op: Op
    way: Way | None
    sums: tuple[int, ...] = ()


class _Step(NamedTuple):
    choice: Choice
    after: tuple[tuple[Value, tuple[Layout, bool]], ...]
    weight_bytes: int
    link_bytes: int


class _Path(NamedTuple):
    weight_bytes: int
    link_bytes: int
    states: States
    last: Any  # (choice, those before)


class ChipPlan(ChipFacts):
    """choices: by op, of those that are not done whole by every chip."""

    def __init__(self, program: IRProgram, parts: int, gather_bytes: int = GATHER_BYTES) -> None:
        super().__init__(program)
        self.parts, self.gather_bytes = parts, gather_bytes
        self.choices: dict[Op, Choice] = {}

    def search(self) -> ChipPlan:
        """Choose, for every op."""
        paths = [_Path(0, 0, {}, None)]
        last = {v: op for op in self.ops for v in op.operands} | {
            v: self.end for v in self.end.operands if v not in self.kept
        }
        for op in self.ops:
            dies = [v for v in dict.fromkeys(op.operands) if last[v] is op]
            touched = any(v in self.free or v in p.states for p in paths for v in op.operands)
            if not (touched or op in self.weights or op in self.grown):
                continue
            known: dict[Any, list[_Step]] = {}
            found: dict[Any, _Path] = {}
            for p in paths:
                key = tuple([p.states.get(v) for v in op.operands])
                if key not in known:
                    known[key] = list(self._steps(op, p.states))
                for s in known[key]:
                    states = {**p.states, **dict(s.after)}
                    for v in dies:
                        states.pop(v, None)
                    step = _Path(
                        p.weight_bytes + s.weight_bytes, p.link_bytes + s.link_bytes, states, (s.choice, p.last)
                    )
                    alike = frozenset(states.items())
                    if alike not in found or step[:2] < found[alike][:2]:
                        found[alike] = step
            paths = sorted(found.values(), key=lambda p: p[:2])[:KEPT]
        best = min(paths, key=lambda p: (p[0], p[1] + self._closing(p.states)))
        trail = best.last
        while trail is not None:
            choice, trail = trail
            if choice.way is not None or choice.sums:
                self.choices[choice.op] = choice
        return self

    def _lies(self, v: Value, states: States) -> tuple[Layout, bool]:
        return states.get(v) or (FREE if v in self.free else WHOLE, False)

    def _closing(self, states: States) -> int:
        """Return the bytes over links that make results whole."""
        ends = [(v, states[v]) for v in dict.fromkeys(self.end.operands) if v in states]
        return sum(
            sent(v, lies) for v, (lies, whole) in ends if not whole and not (v in self.kept and contiguous(v, lies))
        )

    def _steps(self, op: Op, states: States) -> Iterator[_Step]:
        of = partial(self._step, op, states)
        yield of(None)  # type: ignore[misc]
        lies = [self._lies(v, states)[0] for v in op.operands]
        sums = [i for i, s in enumerate(lies) if s.kind == "sum"]
        if sums and len({lies[i] for i in sums}) == 1:
            alike = op.kind in SUMS and len(sums) == len(lies)
            scaled = op.kind in SCALES or (op.kind == "reduce" and op.attrs["op"] == "add")
            if alike or (scaled and len(sums) == 1 and (sums == [0] or op.kind == "mul")):
                yield of(None, tuple(sums))  # type: ignore[misc]
        for digits in dict.fromkeys(self._digits(op, lies)):
            made = self.way(op, digits)
            step = of(made) if made is not None else None
            if step is not None:
                yield step

    def _digits(self, op: Op, lies: list[Layout]) -> Iterator[Digits]:
        """Yield by what an op may be cut: by what it reads, by the results that its weights are for, and by what it spreads."""
        rule = rule_of(op)
        if rule is None or not rule.ins:
            return
        for dims, layout in zip(rule.ins, lies):
            if digits := digits_of(rule, dims, layout):
                yield digits
        own = [
            f
            for i in self.weights.get(op, ())
            for dim in rule.ins[i] or ()
            for f, _ in dim.terms
            if rule.kinds[f] == "P"
        ]
        for f in dict.fromkeys([*own, *self.grown.get(op, ())]):
            sizes = [n for n in range(self.parts, 1, -1) if self.parts % n == 0 and rule.sizes[f] % n == 0]
            far = [n for n in sizes if (made := self.way(op, ((f, n),))) and self.travels(op.results[0], made.outs[0])]
            yield from (((f, n),) for n in dict.fromkeys([*far[:1], *(sizes[:1] if f in own else ())]))

    def _step(self, op: Op, states: States, made: Way | None, sums: tuple[int, ...] = ()) -> _Step | None:
        """Return what a choice costs and leaves; None if an operand cannot be had as it is needed."""
        after: States = {}
        weight_bytes = link_bytes = 0
        for i, v in enumerate(op.operands):
            need = made.needs[i] if made is not None else WHOLE
            lies, whole = after.get(v) or self._lies(v, states)
            if i in self.weights.get(op, ()):
                weight_bytes += n_bytes(v) // need.parts
            if lies == need or i in sums or (need == WHOLE and whole):
                continue
            if lies == FREE:
                if need != WHOLE and not contiguous(v, need):
                    return None
                after[v] = need, False
            elif need != WHOLE:
                if lies != WHOLE or not self.narrows(v, need):
                    return None
            else:
                link_bytes += sent(v, lies)
                if lies.kind == "cut":
                    weight_bytes += self.gather_bytes + LINK_BYTES * sent(v, lies) if self.gather_bytes else 0
                after[v] = (lies, True) if lies.kind == "cut" else (WHOLE, False)
        for i, r in enumerate(op.results):
            out = made.outs[i] if made is not None else states[op.operands[sums[0]]][0] if sums else WHOLE
            if made is not None and made.late:
                link_bytes += sent(r, out)
                out = WHOLE
            if out != WHOLE:
                after[r] = out, False
        return _Step(Choice(op, made, sums), tuple(after.items()), weight_bytes, link_bytes)
