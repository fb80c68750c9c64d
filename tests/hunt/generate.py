"""Random models: walks from operator to operator that prefer pairs not yet seen, and idioms with something added."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hunt.draft import Draft, Unfit, Value
from hunt.execute import Setting
from hunt.formats import BF16, F16, F32
from hunt.idioms import IDIOMS
from hunt.recipes import Kind, apply, kinds, name_of, possible
from hunt.reference import Arrays
from hunt.starts import STARTS
from onnx import ModelProto

Pair = tuple[str, str]
MAX_NODES = 11


@dataclass
class Program:
    """A model, inputs, how it is compiled, and where it comes from (`seed`: enough to make it again)."""

    model: ModelProto
    feeds: Arrays
    setting: Setting
    seed: int
    origin: str


def pairs_of(model: ModelProto) -> set[Pair]:
    """Return (producer, consumer) of every edge of the main graph."""
    maker = {o: name_of((n.domain, n.op_type)) for n in model.graph.node for o in n.output}
    return {
        (maker[i], name_of((n.domain, n.op_type)))
        for n in model.graph.node
        for i in (*n.input, *(m for a in n.attribute if a.HasField("g") for k in a.g.node for m in k.input))
        if i in maker
    }


class Generator:
    """Makes one program per seed. What it has learnt (which starts suit which operator) and which pairs are covered
    only steer the choice between pairs; with `fixed` they steer nothing, and a seed alone decides."""

    def __init__(self, fixed: bool = False) -> None:
        self.fixed = fixed
        self.kinds = kinds()
        self.named = {name_of(k): k for k in self.kinds}
        self.covered: Counter[Pair] = Counter()
        self.tried: Counter[Pair] = Counter()
        self.suits: dict[Kind, Counter[str]] = {}

    def program(self, seed: int) -> Program:
        """Raises Unfit if nothing sensible comes of this seed."""
        rng = np.random.default_rng(seed)
        code = [F32, BF16, F16][int(rng.choice(3, p=[0.5, 0.35, 0.15]))]
        d = Draft(rng, code)
        idiom = d.chance(0.35)
        origin = self._idiom(d) if idiom else self._walk(d)
        if not d.nodes:
            raise Unfit("nothing fits")
        more = [v for v in d.values if v.kind == "node" and d.chance(0.12)]
        model, feeds = d.model(more)
        pairs = pairs_of(model)
        self.covered.update(pairs)
        return Program(model, feeds, self._setting(d), seed, origin)

    def _setting(self, d: Draft) -> Setting:
        override = d.pick(["bf16", "fp16", "fp32"]) if d.chance(0.15) else ""
        return Setting(d.pick([1, 2, 2, 3]), d.chance(0.75), override, d.pick(["", "", "small", "2x2", "2x2"]))

    # ---- walks

    def _walk(self, d: Draft) -> str:
        """From an operator to the next, several from the same value now and then."""
        producer = self._producer(d)
        x = self._first(d, producer)
        if x is None:
            return "walk"
        at = [(producer, x)]
        length = d.int(3, MAX_NODES)
        for _ in range(4 * length):
            if len(d.nodes) >= length or not at:
                break
            k, x = at[-1] if d.chance(0.6) else d.pick(at)
            consumer = self._consumer(d, k)
            y = self._try(d, x, consumer)
            self.tried[name_of(k), name_of(consumer)] += 1
            if y is not None:
                at.append((consumer, y))
        return "walk"

    def _producer(self, d: Draft) -> Kind:
        options = [d.pick(self.kinds) for _ in range(6)]
        if self.fixed:
            return options[0]
        return min(options, key=lambda k: sum(self.covered[name_of(k), other] > 0 for other in self.named))

    def _consumer(self, d: Draft, producer: Kind) -> Kind:
        options = [k for k in (d.pick(self.kinds) for _ in range(24)) if possible(producer, k)]
        if self.fixed or not options:
            return options[0] if options else d.pick(self.kinds)
        return min(options, key=lambda k: (self.covered[name_of(producer), name_of(k)] > 0,
                                           self.tried[name_of(producer), name_of(k)]))  # fmt: skip

    def _first(self, d: Draft, producer: Kind) -> Value | None:
        """Return a result of `producer`, of a start that suits it."""
        names = list(STARTS)
        known = self.suits.setdefault(producer, Counter())
        for _ in range(30):
            start = d.pick(names)
            if not self.fixed and known and d.chance(0.8):
                start = d.pick(sorted(known))
            y = self._try(d, STARTS[start](d), producer)
            if y is not None:
                known[start] += 1
                return y
        return None

    def _try(self, d: Draft, x: Value, kind: Kind) -> Value | None:
        before = len(d.nodes)
        try:
            return apply(d, x, kind)
        except Unfit:
            del d.nodes[before:]  # of an operator that begins with another
            return None

    # ---- idioms

    def _idiom(self, d: Draft) -> str:
        """One of the known shapes of networks or almost; then a few operators that read what it left behind."""
        name = d.pick(sorted(IDIOMS))
        IDIOMS[name](d)
        made = [v for v in d.values if v.kind == "node"]
        for _ in range(d.pick([0, 0, 1, 2, 3])):
            x = d.pick(made)
            y = self._try(d, x, d.pick(self.kinds))
            if y is not None:
                made.append(y)
        return name
