"""Random models: walks from operator to operator, idioms with something added, and models made for pairs not yet seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import hunt.idioms_places  # noqa: F401  registers itself
import hunt.idioms_signals  # noqa: F401  registers itself
import numpy as np
from hunt import idioms_experts, idioms_exports, idioms_heads, idioms_hidden, idioms_padded, idioms_quantised  # noqa: F401  they register themselves
from hunt.draft import LARGEST, SIZES, Draft, Unfit, Value
from hunt.execute import Setting
from hunt.formats import BF16, F16, F32
from hunt.idioms import IDIOMS
from hunt.pairs import SMALL_ROOM, SMALL_SIZES, Growth, OpenPairs, Pair, suits
from hunt.products import ELEMENTS, long_sums, products
from hunt.recipes import Kind, apply, kinds, name_of, possible
from hunt.reference import Arrays
from hunt.starts import STARTS
from onnx import ModelProto

MAX_NODES = 11
#: of so many seeds one is of a product with long sums; of chains of products the hunt takes every fortieth
LONG_SUMS = 160


@dataclass
class Program:
    """A model, inputs, how it is compiled, and where it comes from. missed: pairs that it was made for and does not hold."""

    model: ModelProto
    feeds: Arrays
    setting: Setting
    seed: int
    origin: str
    missed: dict[Pair, str] = field(default_factory=dict)


def pairs_of(model: ModelProto) -> set[Pair]:
    """Return (producer, consumer) of every edge of the main graph."""
    maker = {o: name_of((n.domain, n.op_type)) for n in model.graph.node for o in n.output}
    return {
        (maker[i], name_of((n.domain, n.op_type)))
        for n in model.graph.node
        for i in (*n.input, *(m for a in n.attribute if a.HasField("g") for k in a.g.node for m in k.input))
        if i in maker
    }


def alone_of(model: ModelProto) -> set[Pair]:
    """Return the pairs of which the second is the only reader of the first."""
    g = model.graph
    readers = Counter(i for n in g.node for i in n.input) + Counter(o.name for o in g.output)
    return {
        (name_of((p.domain, p.op_type)), name_of((n.domain, n.op_type)))
        for n in g.node for p in g.node if set(p.output) & set(n.input) and sum(readers[o] for o in p.output) == 1
    }  # fmt: skip


class Missed(Unfit):
    """None of the pairs that a model was for came about; `pairs`: why not."""

    def __init__(self, pairs: dict[Pair, str]) -> None:
        super().__init__("nothing fits")
        self.pairs = pairs


class Generator:
    """Makes one program per seed, which alone decides; or, with `paired`, one for pairs that are missing."""

    def __init__(self) -> None:
        self.kinds = kinds()

    def program(self, seed: int) -> Program:
        """Return a walk or an idiom. Raises Unfit if nothing sensible comes of this seed."""
        rng = np.random.default_rng(seed)
        code = [F32, BF16, F16][int(rng.choice(3, p=[0.5, 0.35, 0.15]))]
        d = Draft(rng, code)
        idiom = d.chance(0.35)
        origin = self._idiom(d) if idiom else self._walk(d)
        return self._program(d, seed, origin, self._setting(d))

    def paired(self, seed: int, wanted: OpenPairs, chain: bool) -> Program:
        """Return a model of pairs that are wanted: formats, levels, sharing and machines take turns. Raises Unfit if none came about."""
        rng = np.random.default_rng([seed, 1])
        code = (F32, BF16, F32, F16, BF16)[seed % 5]
        d = Draft(rng, code, SIZES if seed % 4 == 3 else SMALL_SIZES, SMALL_ROOM)
        growth = Growth(d, wanted, chain)
        growth.grow()
        override = d.pick(["bf16", "fp16", "fp32"]) if d.chance(0.1) else ""
        setting = Setting(
            1 + seed % 3, d.chance(0.75), override, ("2x2", "small", "2x2", "2x2", "2x2", "", "2x2")[seed % 7]
        )
        if d.nodes:
            program = self._program(d, seed, "chain" if chain else "fan", setting)
            program.missed = growth.missed()
            return program
        raise Missed(growth.missed())

    def products(self, seed: int) -> Program:
        """Return a chain of matrix products, compiled so that its tiles hand results to each other if any way does it; of some seeds one
        with long sums, compiled so that these are finished in bands."""
        rng = np.random.default_rng([seed, 2])
        if seed % LONG_SUMS == LONG_SUMS - 40:
            d = Draft(rng, int(rng.choice([BF16, F16])), at_most=ELEMENTS)  # in f32 no sums are rounded
            long_sums(d)
            return self._program(d, seed, "products", Setting(d.pick([2, 3]), machine_name="small", eager=True))
        d = Draft(rng, int(rng.choice([F32, BF16, F16])), at_most=ELEMENTS)
        products(d)
        return self._program(
            d, seed, "products", Setting(d.pick([2, 3]), machine_name=d.pick(["", "", "2x2"]), eager=True)
        )

    def _program(self, d: Draft, seed: int, origin: str, setting: Setting) -> Program:
        if not d.nodes:
            raise Unfit("nothing fits")
        more = [v for v in d.values if v.kind == "node" and d.chance(0.12)] if origin != "chain" else []
        return Program(*d.model(more), setting, seed, origin)

    def _setting(self, d: Draft) -> Setting:
        override = d.pick(["bf16", "fp16", "fp32"]) if d.chance(0.15) else ""
        if override == "fp16" and (d.largest > LARGEST or any(map(_beyond_fp16, d.values))):
            override = ""  # in fp16 all that hides is one number, and a row that sees nothing has equal shares (docs/simulators.md)
        return Setting(d.pick([1, 2, 2, 3]), d.chance(0.75), override, d.pick(["", "", "small", "2x2", "2x2"]))

    # ---- walks

    def _walk(self, d: Draft) -> str:
        """From an operator to the next, several from the same value now and then."""
        producer = d.pick(self.kinds)
        x = self._first(d, producer)
        if x is None:
            return "walk"
        at = [(producer, x)]
        length = d.int(3, MAX_NODES)
        for _ in range(4 * length):
            if len(d.nodes) >= length:
                break
            k, x = at[-1] if d.chance(0.6) else d.pick(at)
            consumer = d.pick(self.kinds)
            y = self._try(d, x, consumer) if possible(k, consumer) else None
            if y is not None:
                at.append((consumer, y))
        return "walk"

    def _first(self, d: Draft, producer: Kind) -> Value | None:
        """Return a result of `producer`, of a start that suits it."""
        for _ in range(30):
            y = self._try(d, STARTS[d.pick(suits(producer) or list(STARTS))](d), producer)
            if y is not None:
                return y
        return None

    def _try(self, d: Draft, x: Value, kind: Kind) -> Value | None:
        return d.attempt(lambda: apply(d, x, kind))

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


def _beyond_fp16(v: Value) -> bool:
    """True for a stored tensor or an input with a finite number that fp16 has not."""
    a = v.array
    return v.kind != "node" and v.is_float and bool((np.isfinite(a) & (np.abs(a) > np.finfo(np.float16).max)).any())
