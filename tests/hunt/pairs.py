"""Models that hold many pairs of operators which have not stood next to each other yet, and what is known of those that cannot.

A model begins with one operator's results and puts them, and what comes of them, through operators that have not read such a
result before. `fan`: many readers of one value; `chain`: one reader each, so that the two may share a group. Every model is
aimed at a few pairs: it begins with values that their readers take. A pair at which several models were aimed in vain is given
up, with a reason: shapes or element types that do not meet, values that must be known, a refusal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np
from hunt.draft import Draft, Unfit, Value
from hunt.formats import F32
from hunt.recipes import STATIC, Kind, accepts, apply, kinds, name_of, possible
from hunt.starts import STARTS

Pair = tuple[str, str]
#: models that are aimed at a pair before it is given up; of one model: pairs that it begins with, pairs that it is aimed at
#: in vain, values for each of them
TRIES, AIMS, VAIN, PROBES = 2, 6, 24, 8
FAN_NODES, CHAIN_NODES = 22, 10
#: operators whose results are known before the program runs
KNOWN = (*STATIC, "Shape", "Size")
#: sizes of most models: a program of small tensors has the same code at a fraction of the cost
SMALL_SIZES, SMALL_ROOM = (1, 2, 2, 3, 4, 4, 5, 7, 8, 16, 33), 2000


class OpenPairs:
    """Which pairs are still wanted: by producer, the readers. tries, why: what came of models that were aimed at a pair."""

    def __init__(self, settled: Iterable[Pair] = ()) -> None:
        self.kinds = {name_of(k): k for k in kinds()}
        self.tries: Counter[Pair] = Counter()
        self.why: dict[Pair, str] = {}
        self.readers: dict[str, set[str]] = {
            p: {c for c in self.kinds if possible(self.kinds[p], self.kinds[c])} for p in self.kinds
        }
        self.drop(settled)

    def drop(self, pairs: Iterable[Pair]) -> None:
        """These are wanted no longer."""
        for producer, consumer in pairs:
            self.readers.get(producer, set()).discard(consumer)

    def fail(self, pair: Pair, why: str) -> bool:
        """A pair did not come about, though a model was aimed at it; True if it is given up."""
        if pair[1] not in self.readers.get(pair[0], ()):
            return False
        self.tries[pair] += 1
        self.why[pair] = why or self.why.get(pair, "")
        if self.tries[pair] < TRIES:
            return False
        self.drop([pair])
        return True

    def count(self) -> int:
        return sum(map(len, self.readers.values()))


@cache
def suits(kind: Kind) -> tuple[str, ...]:
    """Return the starts that an operator takes as they are."""
    found = []
    for name, start in STARTS.items():
        for seed in range(3):
            d = Draft(np.random.default_rng(seed), F32, SMALL_SIZES, SMALL_ROOM)
            try:
                apply(d, start(d), kind)
            except Unfit:
                continue
            found.append(name)
            break
    return tuple(found)


def general_reason(text: str) -> str:
    """Return a reason without names and numbers, the same for one cause."""
    text = re.sub(r"\[ONNXRuntimeError\][^)]*\)|'[^']*'|\"[^\"]*\"|\([-\d, ]*\)|[-\d.]+", "#", text.partition("\n")[0])
    return re.sub(r"\s+", " ", text).strip()[:90]


class Growth:
    """One model in the making. `aims`: the pairs that it is for; `why`: of pairs that did not come about, what was in the way."""

    def __init__(self, draft: Draft, wanted: OpenPairs, chain: bool) -> None:
        self.d, self.wanted, self.chain = draft, wanted, chain
        self.aims: list[Pair] = []
        self.why: dict[Pair, str] = {}
        self.made: set[Pair] = set()

    def grow(self) -> None:
        """Fill the draft. Raises Unfit if no pair is missing."""
        d = self.d
        at = self._roots(self._producer())
        while at and len(d.nodes) < (CHAIN_NODES if self.chain else FAN_NODES):
            k = len(at) - 1 if self.chain else d.int(0, len(at) - 1)
            y = self._extend(*at[k])
            if self.chain:
                at = [y] if y is not None else []
            elif y is None:
                at.pop(k)
            elif self.wanted.readers[y[0]]:
                at.append(y)

    def _roots(self, producer: str) -> list[tuple[str, Value]]:
        """Begin with a few pairs of one producer: return its results, and in a chain what the second made of it."""
        at: list[tuple[str, Value]] = []
        for consumer in self._aims(producer):
            if len(at) == (1 if self.chain else AIMS) or len(self.aims) == VAIN:
                break
            pair = producer, consumer
            if pair in self.made:
                continue
            found = self._pair(pair)
            if found is None:
                self.aims.append(pair)
            else:
                self.made.add(pair)
                at.append((consumer, found[1]) if self.chain else (producer, found[0]))
        return at

    def _pair(self, pair: Pair) -> tuple[Value, Value] | None:
        """Return results of both operators, of a start that both take if there is one."""
        d = self.d
        first, second = (self.wanted.kinds[n] for n in pair)
        both = [s for s in suits(first) if s in suits(second)]
        for k in range(PROBES):
            nodes, values = len(d.nodes), len(d.values)
            x, why = self._put(STARTS[d.pick((both if k % 4 < 3 else []) or suits(first) or list(STARTS))](d), first)
            if x is None:
                self.why.setdefault(pair, f"{pair[0]}: {why}")
            elif not accepts(second, x):
                self.why.setdefault(pair, "element types do not meet")
            else:
                y, why = self._put(x, second)
                if y is not None:
                    return x, y
                self.why[pair] = why
            del d.nodes[nodes:], d.values[values:]
        return None

    def missed(self) -> dict[Pair, str]:
        """Return the pairs that the model was for and does not hold, with what was in the way."""
        none = "no value that the one gives and the other takes"
        return {p: general_reason(self.why.get(p, none)) for p in self.aims if p not in self.made}

    def _producer(self) -> str:
        """One of those with the most pairs missing."""
        readers = self.wanted.readers
        most = [p for p in sorted(readers, key=lambda p: (-len(readers[p]), p))[:12] if readers[p]]
        if not most:
            raise Unfit("no pair is missing")
        return self.d.pick(most)

    def _aims(self, producer: str) -> list[str]:
        """Readers in the order in which models are aimed at them: those with few tries first."""
        order = self.d.rng.permutation(len(options := sorted(self.wanted.readers[producer])))
        return sorted((options[i] for i in order), key=lambda c: self.wanted.tries[producer, c])

    def _put(self, x: Value, kind: Kind) -> tuple[Value | None, str]:
        """Put a value through an operator; return the result, or None and why not."""
        d, nodes, values = self.d, len(self.d.nodes), len(self.d.values)
        try:
            return apply(d, x, kind), ""
        except Unfit as e:
            del d.nodes[nodes:], d.values[values:]
            return None, str(e)

    def _extend(self, name: str, x: Value) -> tuple[str, Value] | None:
        """Put a value through an operator that is wanted behind `name`."""
        options = sorted(self.wanted.readers[name])
        for i in self.d.rng.permutation(len(options)):
            pair, kind = (name, options[i]), self.wanted.kinds[options[i]]
            if pair in self.made:
                continue
            if not accepts(kind, x):
                self.why.setdefault(pair, "element types do not meet")
                continue
            if x.static and pair[1] not in STATIC and name not in KNOWN:
                self.why.setdefault(pair, "computed before the program runs")
                continue
            y, why = self._put(x, kind)
            if y is not None:
                self.made.add(pair)
                return pair[1], y
            self.why[pair] = why
        return None
