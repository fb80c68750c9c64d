"""What is known of planned lowerings that may be nests of chains: what they cost, hand over, leave and gather.

May import: graph_table, isa, lower, machine, _kernels, search.*, tile. Must not: build chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast._kernels import BOUNDS
from tx8fast.graph_table import ChainRecord, Record
from tx8fast.lower import lower, variants
from tx8fast.lower.base import Lowering
from tx8fast.search import delivering
from tx8fast.search.delivering import Pairs
from tx8fast.search.fitting import cut, make_tiling
from tx8fast.search.gathering import aligned, gathered, leave, leaving
from tx8fast.search.handover import Nest, can_hand_over, columns_left, handed, has_room, is_local, same_parts
from tx8fast.search.nests import closely_timed
from tx8fast.search.planning import Planner
from tx8fast.search.prices import priced
from tx8fast.search.trial import PlanTimer
from tx8fast.tile.tiling import Plan, Tiling

TRIES = 3  # plans tried for one hand-over
SLICED = 60  # plans looked at of which a result is left in slices
MAX_TRIES = 400  # of them in all functions together; equal ones count once
LOOKS_PER_SECOND = 10_000  # chains, and plans for hand-overs, that are looked at per second of the search's limit


class Memory:
    """What is known of planned lowerings, wherever they stand: equal layers ask nothing twice. seconds: limit of the search;
    work is counted, so that what is found does not depend on the machine. limited: True if something of the function at hand
    was left out."""

    def __init__(self, planner: Planner, seconds: float = 0.0) -> None:
        self.looks = int(seconds * LOOKS_PER_SECOND)
        self.limited = False
        self.planner, self.machine = planner, planner.machine
        self.barrier_cycles = isa.sequence_cycles(self.machine, isa.make("barrier"))
        self.tries = MAX_TRIES
        self.tilings: dict[tuple[int, Plan], Tiling] = {}
        self.timers: dict[tuple[int, bool], PlanTimer] = {}
        self.costs: dict[tuple[Tiling, frozenset[int], bool], int] = {}
        self.formulas: dict[int, tuple[np.ndarray, ...]] = {}
        self.candidates: dict[tuple[int, int], Tiling | None] = {}
        self.answers: dict[tuple, int] = {}
        self.fits: dict[tuple, list[Tiling]] = {}
        self.options: dict[Record, list[Lowering]] = {}
        self.pieces: dict[tuple, np.ndarray | None] = {}
        self.firsts: dict[Any, Iterator[Any]] = {}  # plans by lowering, also those that have operands delivered
        self.deliveries: dict[tuple, int] = {}
        self.left: dict[tuple, list[Tiling]] = {}
        self.pairs: dict[tuple, Tiling | None] = {}

    def look(self) -> bool:
        """Return whether one more chain or plan may be looked at."""
        if not self.looks:
            self.limited = True
            return False
        self.looks -= 1
        return True

    def tiling(self, low: Lowering, plan: Plan) -> Tiling:
        """Return the one object for a lowering and a plan."""
        key = id(low), plan
        if key not in self.tilings:
            self.tilings[key] = Tiling(low, plan)
        return self.tilings[key]

    def local(self, a: Nest, b: Nest, gathered: Sequence[int] = ()) -> bool:
        """True if b reads nothing of a's results that another tile wrote; gathered: read accesses that do not count."""
        return bool(self._ask(is_local, a.how, b.how, tuple([p for p in handed(a, b) if p[1] not in gathered])))

    def hands_over(self, a: Tiling, ka: int, b: Tiling, kb: int) -> bool:
        """True if b may use the buffer of a's access ka as that of its read kb, or gather it from what tiles have."""
        columns = dict(b.plan.gathered).get(kb, 0)
        return (
            self._ask(columns_left, a, ka, b, kb) == columns
            if columns
            else bool(self._ask(can_hand_over, a, ka, b, kb))
        )

    def _ask(self, question: Callable[..., int], *what: Any) -> int:
        key = (question, *what)
        if key not in self.answers:
            self.answers[key] = question(*what)
        return self.answers[key]

    def cycles(self, how: Tiling, held: frozenset[int], closely: bool = False) -> int:
        """Return the cycles of a nest with its final wait, without moving what is held; closely: timed as what is chosen is."""
        closely = closely and closely_timed(how)
        if (how, held, closely) not in self.costs:
            timer = self.timers.get((id(how.low), closely))
            if timer is None:
                plain = PlanTimer(how.low, self.machine)
                timer = self.timers[id(how.low), closely] = plain.closer() if closely else plain
            self.costs[how, held, closely] = timer.cycles(how.but(held=held)) - self.barrier_cycles
        return self.costs[how, held, closely]

    def fit(self, a: Tiling, ka: int, b: Nest, kb: int, before: bool = False) -> list[Tiling]:
        """Return the best plan of b's group whose access kb has the buffer of a's access ka, and of those that leave a result in slices;
        none if there is none or the limit of tries is reached. `before`: b is to hand it to a."""
        key = a, ka, b.step.record, kb, before
        if key not in self.fits:
            held = frozenset(() if before else {kb})
            best: dict[bool, Tiling] = {}
            for low in self.lowerings(b):
                for how in self._fitting(a, ka, low, kb, before):
                    other = best.setdefault(how.fills_once(kb), how)
                    if self.cycles(how, held, True) < self.cycles(other, held, True):
                        best[how.fills_once(kb)] = how
            self.fits[key] = [*best.values()]
        return self.fits[key]

    def leaving(self, a: Nest, ka: int) -> list[Tiling]:
        """Return plans that leave a's result ka where others may gather it."""
        key = a.step.record, ka
        if key not in self.left:
            self.left[key] = leaving(self, a, ka)
        return self.left[key]

    def gathered(self, first: Tiling, ka: int, b: Nest, kb: int, leaves: Sequence[int] = ()) -> Tiling | None:
        """Return the plan with which b gathers as operand kb what a plan leaves of its result ka, None if there is none. leaves:
        results that it leaves in turn."""
        key = first, ka, b.step.record, kb, *leaves
        if key not in self.pairs:
            self.pairs[key] = gathered(self, first, ka, b, kb, leaves)
        return self.pairs[key]

    def sending(self, a: Nest, kas: tuple[int, ...]) -> list[Tiling]:
        """Return plans that leave a's results where tiles send them on from."""
        key = a.step.record, kas
        if key not in self.left:
            self.left[key] = delivering.sending(self, a, kas)
        return self.left[key]

    def received(self, first: Tiling, pairs: Pairs, b: Nest, leaves: tuple[int, ...] = ()) -> Tiling | None:
        """Return the plan with which b has delivered what a plan leaves, None if there is none. leaves: results that it leaves in turn."""
        key = first, pairs, b.step.record, leaves
        if key not in self.pairs:
            self.pairs[key] = delivering.received(self, first, pairs, b, leaves)
        return self.pairs[key]

    def delivery(self, a: Tiling, b: Tiling, pairs: Pairs) -> int:
        """Return the cycles in which tiles deliver what one plan leaves to another one, -1 if that is not possible."""
        return delivering.delivery_cycles(self, a, b, pairs)

    def prices(self, low: Lowering) -> tuple[np.ndarray, ...]:
        """Return what the formulas say of a lowering's candidates."""
        if id(low) not in self.formulas:
            self.formulas[id(low)] = self.planner.prices.get(low) or priced(low, self.machine)
        return self.formulas[id(low)]

    def candidate(self, low: Lowering, i: int) -> Tiling | None:
        """Return the plan of a lowering's candidate, None if even its slices have no room."""
        if (id(low), i) not in self.candidates:
            parts, slices, inner, cycles, _, bound = self.prices(low)
            made = None
            if low.least_bytes(cut(low, parts[i], slices[i])[1]) <= self.machine.spm_limit - self.machine.spm_base:
                made = make_tiling(low, parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], len(cycles))
            self.candidates[id(low), i] = made
        return self.candidates[id(low), i]

    def lowerings(self, b: Nest) -> list[Lowering]:
        record = b.step.record
        assert record is not None and not isinstance(record, ChainRecord)
        if record not in self.options:
            n_read = len(b.how.low.reads)
            more = [
                low
                for low in (lower(record, self.machine)[0], *variants(record, self.machine))
                if low.chains and len(low.reads) == n_read and low.variant != b.how.low.variant
            ]
            for low in more:
                low.sharing = self.planner.sharing
            self.options[record] = [b.how.low, *more]
        return self.options[record]

    def _fitting(self, a: Tiling, ka: int, low: Lowering, kb: int, before: bool) -> Iterator[Tiling]:
        """Yield the first few plans in the order of the formulas whose access kb has the buffer of a's access ka: of those that fill it
        once, and of those that leave a result in slices of columns."""
        access = (*low.reads, *low.writes)[kb]
        parts, _, _, cycles, _, _ = self.prices(low)
        rows = {f for d in access.dims[:-1] for f, _ in d.terms}
        whole = self._whole(low, access.factors)
        firsts = [(whole, len(cycles))]
        if before and kb >= len(low.reads) and access.factors > rows:
            firsts.append((self._whole(low, rows) & ~whole, SLICED))
        same: dict[bytes, bool] = {}
        for among, looked in firsts:
            tried: set[tuple] = set()  # plans that differ in the order of loops with one trip are one
            for i in np.flatnonzero(among)[np.argsort(cycles[among], kind="stable")][:looked].tolist():
                sharding = parts[i].tobytes()
                if not same.get(sharding, True):
                    continue
                if len(tried) == TRIES or not (self.tries and self.look()):
                    break
                how = self.candidate(low, i)
                if how is None:
                    continue
                if sharding not in same:
                    same[sharding] = same_parts(a, ka, how, kb)
                form = how.plan.parts, how.plan.slices
                if same[sharding] and form not in tried and (found := self._handing(a, ka, how, kb, before)):
                    tried.add(form)
                    self.tries -= 1
                    yield self.tiling(low, found.plan)

    def _whole(self, low: Lowering, factors: Iterable[int]) -> np.ndarray:
        """Return which candidates have one slice of all that a tile has of some factors."""
        parts, slices = self.prices(low)[:2]
        whole = np.ones(len(parts), bool)
        for f in factors:
            whole &= parts[:, f] * slices[:, f] >= low.sizes[f]
        return whole

    def _handing(self, a: Tiling, ka: int, how: Tiling, kb: int, before: bool) -> Tiling | None:
        """Return a plan whose access kb has the buffer of a's access ka, None if it has not, or no room."""
        if not how.fills_once(kb):
            if not before or kb < len(how.low.reads):
                return None
            how = aligned(leave(how, kb), kb)
        if not has_room(how):
            return None
        fits = can_hand_over(how, kb, a, ka) if before else can_hand_over(a, ka, how, kb)
        return how if fits else None
