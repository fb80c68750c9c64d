"""Chains of groups: candidates of the exact search in which neighbouring groups are one launch.

May import: graph_table, isa, lower, machine, _kernels, search.*. Must not: choose among candidates, emit programs.

In a chain the tiles do not meet between the nests, an operand or result may stay in scratchpad for the next nest, and a
result that only the chain reads need not be stored. The cycles of a chain are the
sum of its nests', each priced by the event kernel without what it need not move; what nests gain by overlapping is left out. Two groups can follow
each other if every tile reads of the first one's results only what it wrote itself; where the best plans do not allow a
hand-over, the best plan that does is tried for one side.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tx8fast import isa
from tx8fast.graph_table import ChainRecord, FunctionTable, Step
from tx8fast.search.delivering import may_send
from tx8fast.search.grouping import uses
from tx8fast.search.handover import (
    Nest,
    common,
    handed,
    may_chain,
    may_gather,
)
from tx8fast.search.memory import Memory
from tx8fast.search.partition import Edge, closure, items_of, mask_of
from tx8fast.search.staying import may_stay, stays_of, with_stays
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Planned, Tiling, of_nests

MAX_NESTS = 5  # of one chain
MAX_PATHS = 120  # chains looked at from one first nest
MAX_FOUND = 1500  # chains of one function among which the integer program chooses: those that save most
NEAR = 8  # groups before and behind one that reads the same, of which it may share the buffer

Items = tuple[int, ...]
Hold = tuple[tuple[int, int], ...]  # accesses of two nests of which the second one is not loaded; () for none


class Chains:
    """Builds the chains of one function over a pool of groups."""

    def __init__(self, fn: FunctionTable, steps: Sequence[Step], edges: Sequence[Edge], memory: Memory) -> None:
        self.fn, self.memory, self.machine = fn, memory, memory.machine
        self.used = uses(fn, steps)
        self.behind = closure(len(steps), edges)
        self.links: dict[tuple[Items, Tiling], list[tuple[Nest, Hold]]] = {}

    def find(self, groups: Mapping[Items, tuple[Step, float]]) -> dict[Items, tuple[Step, float, Planned]]:
        """Return the cheapest chain of every set of steps for which one is cheaper than its groups (step and cycles by
        positions) alone, with its cycles if nothing stayed for a later nest than the next one: by these chains compare as well as
        nests are estimated, and what stays then only makes the chosen ones cheaper."""
        self.own = [nest for items, (step, _) in sorted(groups.items()) if (nest := self._own(items, step))]
        self.touching: dict[int, list[int]] = {}  # value -> those of `own` that read or make it
        for n, nest in enumerate(self.own):
            for v in dict.fromkeys(nest.values):
                self.touching.setdefault(v, []).append(n)
        self.place = {nest.items: n for n, nest in enumerate(self.own)}
        found: dict[Items, tuple[list[Nest], list[Hold], list[frozenset[int]], int]] = {}
        saved: dict[Items, float] = {}
        self.memory.limited = False
        for path, holds in self._paths():
            items = tuple(sorted(i for n in path for i in n.items))
            alone = sum(groups[n.items][1] for n in path)
            most = min(alone, found[items][-1] if items in found else alone)
            held, cost = self._cost(path, holds)
            if cost < most:
                held, cost = self._cost(path, holds, closely=True)
            if cost < most:
                found[items], saved[items] = (path, holds, held, cost), alone - cost
        self.memory.limited |= len(found) > MAX_FOUND
        best = sorted(found, key=lambda items: (-saved[items], items))[:MAX_FOUND]
        chains = {}
        for items in sorted(best):
            step, planned = self._chain(*self._staying(*found[items]))
            chains[items] = step, found[items][-1], planned
        return chains

    def given(self, path: Sequence[Nest], holds: Sequence[Hold]) -> tuple[Step, Planned] | None:
        """Return nests with hand-overs that were found before as one step, None if they are no chain."""
        if not 2 <= len(path) <= MAX_NESTS or len(holds) != len(path) - 1 or any(len(p) != 2 for h in holds for p in h):
            return None
        if any(len({*ends}) < len(h) for h in holds for ends in zip(*h, strict=True)):  # something is to be sent twice
            return None
        first = path[0].how.plan
        if not all(may_chain(n.how.low, n.step) for n in path) or first.gathered or first.delivered:
            return None
        for i, (hold, a, b) in enumerate(zip(holds, path, path[1:], strict=False)):
            sent = {*dict(b.how.plan.gathered)} | {*b.how.plan.delivered} & {kb for _, kb in hold}
            if not (self._may_follow(path[: i + 1], b) and self.memory.local(a, b, sorted(sent))):
                return None
            if not {*hold} <= {*handed(a, b), *common(a, b)} or not self._fit(a, b, hold):
                return None
        if not may_stay(path, holds):
            return None
        held, cycles = self._cost(path, holds, closely=True)
        return self._chain(path, holds, held, cycles)

    def _fit(self, a: Nest, b: Nest, hold: Hold) -> bool:
        """True if the plans of two neighbours hand over, gather or deliver what they are to; hold: of what both read, or b of a."""
        there = {kb for _, kb in hold}
        if not {*dict(b.how.plan.gathered)} <= there:
            return False
        if there & {*b.how.plan.delivered}:
            return {*hold} <= {*handed(a, b)} and self.memory.delivery(a.how, b.how, hold) >= 0
        return len(hold) <= 1 and all(self.memory.hands_over(a.how, ka, b.how, kb) for ka, kb in hold)

    def _own(self, items: Items, step: Step) -> Nest | None:
        """Return a group with its own best plan, None if it cannot be part of a chain."""
        if step.record is None or step.is_empty or step.fixed or isinstance(step.record, ChainRecord):
            return None
        known = self.memory.planner.plan(step.record, step.name)
        return Nest(items, step, self.memory.tiling(known.low, known.plan)) if may_chain(known.low, step) else None

    # -- which nest may follow which ----------------------------------------------------------------------------

    def _paths(self) -> Iterator[tuple[list[Nest], list[Hold]]]:
        """Yield chains of two and more nests with their hand-overs, depth first from every possible first nest."""
        for seed in [*self.own, *self._before()]:
            stack: list[tuple[list[Nest], list[Hold]]] = [([seed], [])]
            left = MAX_PATHS
            while stack and left:
                path, holds = stack.pop()
                for b, hold in self._links(path[-1]):
                    if left and self._may_follow(path, b) and self.memory.look():
                        left -= 1
                        yield [*path, b], [*holds, hold]
                        if len(path) + 1 < MAX_NESTS:
                            stack.append(([*path, b], [*holds, hold]))

    def _may_follow(self, path: Sequence[Nest], b: Nest) -> bool:
        """True if b reads nothing that other tiles wrote in the chain, and the chain with b is convex."""
        inside = mask_of(i for n in path for i in n.items)
        if inside & mask_of(b.items) or self._reach(b.items) & inside:
            return False
        whole = inside | mask_of(b.items)
        between = self._reach(items_of(whole)) & ~whole
        if any(self.behind[i] & whole for i in items_of(between)):
            return False
        return all(self.memory.local(n, b) for n in path[:-1])

    def _reach(self, items: Iterable[int]) -> int:
        found = 0
        for i in items:
            found |= self.behind[i]
        return found

    def _links(self, a: Nest) -> list[tuple[Nest, Hold]]:
        """Return the nests that may follow a, with the accesses whose buffer is handed over."""
        key = a.items, a.how
        if key not in self.links:
            self.links[key] = [
                link
                for b in self._related(a)
                if not self._reach(b.items) & mask_of(a.items)
                for link in self._follow(a, b)
            ]
        return self.links[key]

    def _follow(self, a: Nest, b: Nest) -> Iterator[tuple[Nest, Hold]]:
        memory = self.memory
        pairs = (*handed(a, b), *common(a, b))
        if memory.local(a, b):
            held = [(ka, kb) for ka, kb in pairs if memory.hands_over(a.how, ka, b.how, kb)]
            if held:
                yield b, (max(held, key=lambda h: a.how.slice_bytes[h[0]]),)
                return
            if handed(a, b):
                yield b, ()
        for ka, kb in pairs:
            for how in memory.fit(a.how, ka, b, kb) if a.how.fills_once(ka) else ():
                other = Nest(b.items, b.step, how)
                if memory.local(a, other):
                    yield other, ((ka, kb),)
        gathers = False
        for ka, kb in handed(a, b):
            for leaves in [(), *self._wanted(b)] if ka in a.how.plan.kept else ():
                how = memory.gathered(a.how, ka, b, kb, leaves)
                if how is not None and memory.local(a, other := Nest(b.items, b.step, how), [kb]):
                    gathers = True
                    yield other, ((ka, kb),)
        sent = handed(a, b)
        if gathers or memory.local(a, b):
            return
        if {ka for ka, _ in sent} <= {*a.how.plan.kept} and may_send(a, b, sent):
            for leaves in ((), *self._passed_on(b)):
                if (how := memory.received(a.how, sent, b, leaves)) is not None:
                    yield Nest(b.items, b.step, how), sent

    def _passed_on(self, a: Nest) -> list[Items]:
        """Return the results of a that another group reads, by group."""
        found = {tuple(sorted({ka for ka, _ in handed(a, b)})) for b in self._related(a)}
        return sorted(found - {()})

    def _wanted(self, a: Nest) -> list[Items]:
        """Return the results of a that another group may gather, each by itself."""
        return sorted(
            {(ka,) for b in self._related(a) for ka, kb in handed(a, b) if may_gather(a.how.low, ka, b.how.low, kb)}
        )

    def _before(self) -> Iterator[Nest]:
        """Yield groups with plans that leave something for another group's own plan."""
        seen: set[tuple[Items, Tiling]] = set()
        for b in self.own:
            for a in self._related(b):
                if self._reach(b.items) & mask_of(a.items):
                    continue
                waits, gathers, sent = a.how.plan.waits or b.how.plan.waits, False, handed(a, b)
                for ka, kb in sent if waits else ():
                    for how in self.memory.leaving(a, ka) if may_gather(a.how.low, ka, b.how.low, kb) else ():
                        if self.memory.gathered(how, ka, b, kb) is not None:
                            gathers = True
                            if (a.items, how) not in seen:
                                seen.add((a.items, how))
                                yield Nest(a.items, a.step, how)
                if waits and not gathers and not self.memory.local(a, b) and may_send(a, b, sent):
                    for how in self.memory.sending(a, tuple(sorted(ka for ka, _ in sent))):
                        if (a.items, how) not in seen and self.memory.received(how, sent, b) is not None:
                            seen.add((a.items, how))
                            yield Nest(a.items, a.step, how)
                for ka, kb in (*handed(a, b), *common(a, b)):
                    if b.how.fills_once(kb) and not self.memory.hands_over(a.how, ka, b.how, kb):
                        for how in self.memory.fit(b.how, kb, a, ka, before=True):
                            if (a.items, how) not in seen:
                                seen.add((a.items, how))
                                yield Nest(a.items, a.step, how)

    def _related(self, a: Nest) -> list[Nest]:
        """Return the groups that share a value other than a parameter with `a` and no step: all that one of them makes for
        the other, and of those that only read the same the nearest."""
        mine, here = set(a.items), self.place[a.items]
        found: set[int] = set()
        for v in dict.fromkeys(a.values):
            if v in self.fn.params:
                continue
            others = [n for n in self.touching[v] if mine.isdisjoint(self.own[n].items)]
            made = v in a.step.outputs
            found.update(n for n in others if made or v in self.own[n].step.outputs)
            at = bisect.bisect(others, here)
            found.update(others[max(0, at - NEAR) : at + NEAR])
        return [self.own[n] for n in sorted(found)]

    # -- cost ----------------------------------------------------------------------------------------------------

    def _cost(
        self, path: Sequence[Nest], holds: Sequence[Hold], closely: bool = False
    ) -> tuple[list[frozenset[int]], int]:
        """Return the accesses of every nest that are not moved, and the cycles of the chain; closely: timed as what is chosen is."""
        unstored = self._unstored(path, holds)
        cycles = self.memory.barrier_cycles
        out = []
        for i, nest in enumerate(path):
            n_read = len(nest.how.low.reads)
            hold = holds[i - 1] if i else ()
            there = {kb for _, kb in hold} - {*dict(nest.how.plan.gathered)} | {*nest.how.plan.delivered}
            held = frozenset({n_read + j for j, v in enumerate(nest.step.outputs) if v in unstored} | there)
            out.append(held)
            cycles += self.memory.cycles(nest.how, held, closely)
            if any(kb in nest.how.plan.delivered for _, kb in hold):
                cycles += self.memory.delivery(path[i - 1].how, nest.how, hold)
            if i:  # one launch runs all
                cycles += self._meeting(nest.how) - self.memory.machine.kcore.launch_cycles
        return out, cycles

    def _staying(
        self, path: Sequence[Nest], holds: Sequence[Hold], held: list[frozenset[int]], cycles: int
    ) -> tuple[Sequence[Nest], Sequence[Hold], list[frozenset[int]], int]:
        """Return the chain with what stays for a later nest, if it is cheaper so."""
        stays = with_stays(path, holds, self._fit)
        if any(a is not b for a, b in zip(path, stays, strict=True)):
            held_too, fewer = self._cost(stays, holds, closely=True)
            if fewer < cycles:
                return stays, holds, held_too, fewer
        return path, holds, held, cycles

    def _meeting(self, how: Tiling) -> int:
        """Return the cycles of the tiles' meeting before a later nest's first exchange."""
        return sum(isa.sequence_cycles(self.machine, isa.make("barrier_sub", mask=m)) for m in sharing.masks(how))

    def _unstored(self, path: Sequence[Nest], holds: Sequence[Hold]) -> set[int]:
        """Return results that need not be stored: whoever reads them finds them in scratchpad."""
        inside = {i for n in path for i in n.items}
        stays = {(s.reader, path[s.reader].values[s.operand]) for s in stays_of(path, holds)}
        out = set()
        for i, nest in enumerate(path):
            for v in nest.step.outputs:
                readers = [n for n in range(i + 1, len(path)) if path[n].reads_of(v)]
                given = [any(path[n + 1].values[kb] == v for _, kb in h) for n, h in enumerate(holds)]
                outside = self.used.get(v, set()) - inside
                if (
                    not outside
                    and readers
                    and all((n, v) in stays or all(given[i:n]) for n in readers)
                    and all(len(path[n].reads_of(v)) == 1 for n in readers)
                ):
                    out.add(v)
        return out

    def _chain(
        self, path: Sequence[Nest], holds: Sequence[Hold], held: Sequence[frozenset[int]], cycles: int
    ) -> tuple[Step, Planned]:
        """Return a chain as one step, and its plan."""
        nests = []
        for nest, h in zip(path, held, strict=True):
            cost, demand = self.memory.cycles(nest.how, h, True), nest.how.demand_bytes()
            nests.append(Planned(nest.how.but(held=h, estimate_cycles=cost, spm_bytes=demand), ""))
        step = chain_step(self.fn, path, self._unstored(path, holds))
        return step, Planned(of_nests(nests, cycles), "", tuple(nests), tuple(holds), stays_of(path, holds))


def chain_step(fn: FunctionTable, path: Sequence[Nest], unstored: set[int]) -> Step:
    """Return the nests as one step whose launch runs them one after the other."""
    made = [v for n in path for v in n.step.outputs]
    inputs: list[int] = []
    wires = []
    for nest in path:
        row: list[tuple[str, int] | None] = []
        for v in nest.step.inputs:
            if v < 0:
                row.append(None)
            elif v in made:
                row.append(("op", made.index(v)))
            else:
                if v not in inputs:
                    inputs.append(v)
                row.append(("in", inputs.index(v)))
        wires.append(tuple(row))
    outputs = tuple(n for n, v in enumerate(made) if v not in unstored)
    record = ChainRecord(tuple(n.step.record for n in path), tuple(wires), tuple(fn.values[v] for v in inputs), outputs)  # type: ignore[arg-type,misc]
    name = ">".join([path[0].step.name, *(n.step.name.rpartition(".")[2] for n in path[1:])])
    return Step(
        "group",
        name,
        tuple(inputs),
        tuple(made[n] for n in outputs),
        record,
        op_names=tuple(o for n in path for o in n.step.op_names),
        nests=tuple(tuple(n.step.members) for n in path),
    )
