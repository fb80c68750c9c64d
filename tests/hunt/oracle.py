"""How far a right result may be from the reference's: measured on the model itself, by disturbing its values.

Every result of an op that rounds is multiplied, in f32, by a random factor of about one unit in the last place of the
format that the product computes in, and so is every operand of an op that adds many terms. What moves the results by that much
is rounding; anything else is a wrong value. A bool or an integer must be equal unless a disturbance changes it. Ops that only
move, choose or compare are not disturbed: a model of these must be equal in every bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hunt import nearly
from hunt.draft import Value, output_codes
from hunt.formats import EPS, F16, F32, FLOATS, I64, NARROW, SMALLEST, array_of, has_narrow, subgraphs, widen
from hunt.op_kinds import (
    CENTRED,
    COORDINATES,
    DECISIONS,
    DIVISORS,
    EARLY,
    ELEMENTWISE,
    EXACT,
    FORMULAS,
    INNER,
    POLES,
    PRODUCTS,
    ROOTS,
    SCORES,
    UNDERFLOWS,
    WRAPS,
)
from hunt.reference import Arrays, NoReference, Session, differs, with_all_values
from hunt.steps import Steps, farthest, same
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

#: elements of a result, and the share of them that roundings change, from which on none of them says anything
MANY, MOSTLY = 64, 0.25
#: how many times the measured deviation is allowed
SLACK = 4.0
#: so often runs that meet steps are looked at for what they take to steps themselves
ROUNDS = 3
SMALL_RUNS, LARGE_RUNS, DECISION_RUNS, LARGE = 4, 3, 18, 4.0


@dataclass(frozen=True)
class Expected:
    """One output: the reference's values, and how far each may be off. exact: no rounding anywhere on the way to it."""

    values: np.ndarray
    allowed: np.ndarray
    unsure: np.ndarray
    exact: bool


@dataclass(frozen=True)
class _Place:
    """A rounding of `value`: the input that disturbs it, its format, what sums before it add (in units of f32), the
    size of the numbers inside the formula, and numbers below which the value may be anything. early: in f16 a factor of the result may
    come before the sum, which would leave the range, and make nothing of a number that is not above `EARLY`."""

    factor: str
    value: str
    code: int
    extra: float
    inner: float | np.ndarray
    floor: float | np.ndarray
    early: bool = False


class Oracle:
    """The reference of one model, with all values known and all roundings disturbed at will."""

    def __init__(self, model: ModelProto, feeds: Arrays) -> None:
        self.model = model
        self.feeds = {k: np.asarray(v) for k, v in feeds.items()}
        self.stored = {t.name: array_of(t) for t in model.graph.initializer}
        self.wide = widen(model) if has_narrow(model) else model
        self.outputs = [o.name for o in model.graph.output]
        self.declared = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
        self.plain = Session(with_all_values(self.wide)).run(self.feeds)
        if any(_declares_another(o, self.plain[o.name]) for o in model.graph.output):
            raise NoReference("an output is declared with another shape")
        self.values = {**self.feeds, **self.plain}
        if any(differs(node, self.values | self.stored) for node in model.graph.node):
            raise NoReference("the reference does not follow ONNX")
        self.codes = _element_types(model, self.values | self.stored)
        self._noisy: tuple[Session, list[_Place]] | None = None
        self._kept: dict[str, str] = {}  # values that rounding may make nothing -> their name in the disturbed model
        self._steps = Steps(self.wide.graph, self.tainted(), self.stored | self.values)

    def expected(self, compute: int | None = None, slack: float = SLACK) -> dict[str, Expected]:
        """Return what each output may be. compute: the float format that replaces the model's own. Raises NoReference."""
        if compute in NARROW and any(n.op_type == "DynamicQuantizeLinear" for n in self.model.graph.node):
            raise NoReference("the reference takes a scale in f32 that is rounded here")
        given = [
            (n, SCORES.get(compute or self.codes.get(n.input[0], 0), np.inf)) for n in self.model.graph.node if n.input
        ]
        if any(nearly.scores_above(limit, n, self.values | self.stored) for n, limit in given if limit < np.inf):
            raise NoReference("scores that the reference has in f32")
        least = SMALLEST.get(compute or 0, 0.0)
        if any(
            nearly.nothing_in(n, self.feeds | self.stored, DIVISORS.get(n.op_type), least)
            for n in self.model.graph.node
        ):
            raise NoReference("what is divided by is nothing in the format")
        small = [self._disturbed(compute, s, 1.0) for s in range(SMALL_RUNS)]
        count = DECISION_RUNS if any(n.op_type in DECISIONS for n in self.model.graph.node) else LARGE_RUNS
        large = [self._disturbed(compute, 100 + s, LARGE) for s in range(count)]
        runs = [r for r in small if r], [r for r in large if r]
        if len(runs[0]) < len(small) or len(runs[1]) < len(large):
            raise NoReference("the model does not survive a disturbance")
        tried: list[Arrays] = []
        for _ in range(ROUNDS):
            met = [
                m
                for m in (*self._nothing(*runs), *self._steps.met(*runs, SLACK))
                if m and not any(same(m, t) for t in tried)
            ]
            tried += met
            ends = [self._disturbed(compute, seed, 1.0, given) for given in met for seed in (1000, 1001)]
            runs[1].extend(end for end in ends if end is not None)
            if None in ends:
                raise NoReference("the model does not survive a rounding to nothing, or to a step")
        if any(run[name].shape != self.plain[name].shape for run in (*runs[0], *runs[1]) for name in self.outputs):
            raise NoReference("roundings decide the shape of a result")
        tainted = self.tainted()
        for node in self.model.graph.node:
            values = self.values.get(node.input[0]) if node.op_type == "Unique" and node.input[0] in tainted else None
            if (
                values is not None
                and values.dtype.kind == "f"
                and nearly.ties_decide(values, self._unit(node.input[0], compute))
            ):
                raise NoReference("roundings decide which numbers are equal")
        winners = {n.output[0]: n for n in self.model.graph.node if n.op_type == "Hardmax"}
        poled = self.behind(lambda node: node.op_type in POLES)
        found = {}
        for name in self.outputs:
            want = self.plain[name]
            if want.dtype.kind != "f":
                unsure = np.zeros(want.shape, bool)
                for run in (*runs[0], *runs[1]):
                    unsure |= run[name] != want
                if unsure.size >= MANY and unsure.mean() > MOSTLY:  # what few roundings leave alone is chance
                    unsure[:] = True
                found[name] = Expected(want, np.zeros(want.shape), unsure, name not in tainted)
                continue
            wide = want.astype(np.float64)
            with np.errstate(all="ignore"):
                near = np.max([np.abs(run[name] - wide) for run in runs[0]], axis=0)
                far = np.max([np.abs(run[name] - wide) for run in runs[1]], axis=0)
            unsure = ~np.isfinite(near + far)
            near, far = np.where(unsure, 0, near), np.where(unsure, 0, far)
            jumps = far > 8 * LARGE * near + 1e-30  # a decision on the way went the other way
            deviation = np.where(jumps, far, np.maximum(near, far / LARGE))
            common = float(np.median(deviation)) if deviation.size else 0.0
            allowed = slack * (deviation + common)
            code = self.declared[name]
            if name in tainted:
                # the product stores a result, and what the model stores that is moved there, in the format that it computes in
                unit = max(EPS[code if code in FLOATS else F32], EPS.get(compute or 0, 0.0))
                allowed = allowed + unit * np.maximum(np.abs(wide), 2.0**-124)  # below are numbers of fewer bits
                if code == F16 or compute == F16:
                    allowed = allowed + 2.0**-22
            if name in tainted and name in winners:
                unsure |= nearly.any_may_win(winners[name], [run[name] for run in (*runs[0], *runs[1])])
            if (
                name in poled
            ):  # rounding moves these by more than themselves, far from where the others are: they are anything
                unsure |= (allowed >= np.abs(wide)) & (allowed > 8 * np.median(np.abs(wide)))
            found[name] = Expected(want, allowed, unsure, name not in tainted)
        return found

    def tainted(self) -> set[str]:
        """Return the values that an op which rounds has had a part in."""
        return self.behind(lambda node: not self._is_exact(node))

    def behind(self, begins: Callable[[NodeProto], bool]) -> set[str]:
        """Return the values that a node of some kind has had a part in."""
        found: set[str] = set()
        for node in self.model.graph.node:
            inner = {n for g in subgraphs(node) for m in g.node for n in m.input}
            if begins(node) or any(n in found for n in (*node.input, *inner)):
                found.update(node.output)
        return found

    def _is_exact(self, node) -> bool:
        if node.op_type == "Cast":  # to a float it may round
            return self.codes.get(node.output[0]) not in FLOATS
        if node.op_type in ("ScatterND", "ScatterElements"):
            return all(a.name != "reduction" or a.s in (b"none", b"max", b"min") for a in node.attribute)
        if any(v in self.values and self.values[v].dtype.kind != "f" for v in node.output):
            return not any(self.codes.get(v) in FLOATS for v in node.input) or node.op_type in EXACT
        return node.op_type in EXACT

    def _nothing(self, small: list[Arrays], large: list[Arrays]) -> tuple[Arrays, Arrays]:
        """Return, of values that something is divided by and of remainders, factors of 0 where rounding may leave nothing of them,
        as all disturbances come near and none of them meets exactly 0; and factors of -0, as nothing may have either sign."""
        found: dict[str, np.ndarray] = {}
        for value, name in self._kept.items():
            plain = self.values[value].astype(np.float64)
            near, far = (farthest(runs, name, plain) for runs in (small, large))
            # far goes half of the way where a remainder jumps to the other end
            factor = np.where(np.maximum(SLACK * near, 2 * far) >= np.abs(plain), 0, 1).astype(np.float32)
            if not factor.all():
                found[f"{value} or nothing"] = factor
        return found, {k: np.where(factor == 0, np.float32(-0.0), factor) for k, factor in found.items()}

    def _disturbed(self, compute: int | None, seed: int, size: float, met: Arrays | None = None) -> Arrays | None:
        if self._noisy is None:
            self._noisy = self._noisy_session()
        session, places = self._noisy
        # every other run disturbs the other way, so that what a step decides is seen on both sides of it
        rng, side = np.random.default_rng(seed // 2), 1 - seed % 2 * 2
        feeds = dict(self.feeds)
        coarsest = max((EPS.get(c or 0, 0.0) for c in (compute, *self.codes.values())), default=0.0)
        feeds[nearly.NEAR] = np.asarray(8 * LARGE * coarsest if seed % 2 else -1, np.float32)
        feeds |= {f"{v} or nothing": np.ones(self.values[v].shape, np.float32) for v in self._kept}
        feeds |= self._steps.none() | (met or {})
        for place in places:
            factor, value = place.factor, place.value
            array = self.values[value] if value in self.values else self.stored[value]
            fmt = max(
                (compute or place.code, place.code), key=EPS.__getitem__
            )  # what a model stores in a narrow format stays so
            eps = size * EPS[fmt]
            accumulated = size * EPS[F32] * place.extra
            # the whole step up or down where a decision may hang on it: half of the large runs then flip what is near
            noise = rng.uniform(-1, 1, array.shape) if size == 1 else rng.integers(0, 2, array.shape) * 2.0 - 1
            feeds[factor] = np.asarray(1 + (eps + accumulated) * side * noise, np.float32)
            tiny = place.floor + SMALLEST[fmt] * (array != 0)  # no rounding makes a number of nothing
            tiny = tiny + EARLY * (place.early and fmt == F16) * (array != 0)
            more = (tiny + eps * place.inner) * side * rng.uniform(-1, 1, array.shape)
            feeds[factor + "+"] = np.asarray(more, np.float32)
        try:
            return session.run(feeds)
        except NoReference:
            return None

    def _noisy_session(self) -> tuple[Session, list[_Place]]:
        """The wide model with a factor and a summand at every rounding, both inputs; and where they stand."""
        noisy = ModelProto()
        noisy.CopyFrom(self.wide)
        g = noisy.graph
        places: list[_Place] = []
        nodes = []

        def disturb(
            value: str,
            into: str,
            extra: float,
            inner: float | np.ndarray,
            source: str,
            floor: float | np.ndarray = 0.0,
            early: bool = False,
        ) -> None:
            factor = f"noise{len(places)}"
            code = self.codes.get(value, F32)
            places.append(_Place(factor, value, code if code in FLOATS else F32, extra, inner, floor, early))
            for name in (factor, factor + "+"):
                g.input.append(helper.make_tensor_value_info(name, F32, (self.values | self.stored)[value].shape))
            nodes.append(helper.make_node("Mul", [source, factor], [factor + "*"]))
            nodes.append(helper.make_node("Add", [factor + "*", factor + "+"], [into]))

        def keep(value: str, name: str, source: str, into: str) -> None:
            """Put `source`, or nothing, into `into`: the choice is made by where `name` may come to nothing."""
            if value not in self._kept:
                self._kept[value] = name
                g.input.append(helper.make_tensor_value_info(f"{value} or nothing", F32, self.values[value].shape))
                if name not in {o.name for o in g.output}:
                    g.output.append(helper.make_tensor_value_info(name, F32, self.values[value].shape))
            nodes.append(helper.make_node("Mul", [source, f"{value} or nothing"], [into]))

        def divide(node: NodeProto, new: NodeProto) -> None:
            """Let what a node divides by be nothing, behind its disturbance: nothing added to it."""
            by = DIVISORS.get(node.op_type)
            if by is None or (value := node.input[by]) not in tainted or self.values[value].dtype != np.float32:
                return
            if self._kept.get(value, value) == value:  # not a remainder, all of whose readers see the choice
                source, new.input[by] = new.input[by], f"{value} or nothing of it {len(nodes)}"
                keep(value, value, source, new.input[by])

        tainted = self.tainted()
        for node in self.wide.graph.node:
            new = type(node)()
            new.CopyFrom(node)
            if node.input and node.input[0] in tainted and (made := nearly.choice(node, self.values)):
                nodes += made
                continue
            if self._is_exact(node):
                divide(node, new)
                nodes.append(new)
                continue
            terms = self._terms(node)
            # of several steps, which round in between; or of nothing but what the model stores, whose sums round like all others
            whole = bool(node.domain) or self.values.keys().isdisjoint(node.input)
            known = self.values | self.stored if whole else self.values
            for k, name in enumerate(node.input):
                if name in self._steps.floats:
                    continue  # rounded before, and where it meets what its reader jumps at, exactly that
                if name in known and known[name].dtype == np.float32 and k < 4:
                    source, new.input[k] = new.input[k], f"{name}@{len(places)}"
                    floor = nearly.NORMAL ** (1 / nearly.exponent(node)) if node.op_type in ROOTS else 0.0
                    disturb(name, new.input[k], terms**0.5, 0.0, source, floor, node.op_type in PRODUCTS)
            divide(node, new)
            nodes.append(new)
            inner = FORMULAS.get(node.op_type, 1.0 if node.op_type in INNER else 0.0)
            if node.op_type in COORDINATES and node.output[0] in self.values:
                inner *= max(1.0, max(self.values[node.output[0]].shape, default=1) / 16)
            for k, name in enumerate(node.output):
                if name in self.values and self.values[name].dtype == np.float32:
                    new.output[k] = name + "@"
                    wraps = node.op_type in WRAPS
                    left = nearly.norm_of_single_numbers(node, self.values | self.stored, 4 * EPS[F32])
                    left = (
                        left
                        + nearly.lost_of_products(node, self.values | self.stored)
                        + (node.op_type in UNDERFLOWS) * nearly.NORMAL
                    )
                    inside = inner and inner * self._inside(node, self.values[name])
                    if k == 0:
                        for sizes in (nearly.sizes_in_norm, nearly.sizes_in_window):
                            inside = inside + sizes(node, self.values | self.stored)
                    disturb(name, name + "?" if wraps else name, 1 + terms / 2, inside, name + "@", left)
                    if wraps:
                        keep(name, name + "?", name + "?", name)
        g.input.append(helper.make_tensor_value_info(nearly.NEAR, F32, ()))
        g.input.extend(self._steps.inputs())
        g.output.extend(self._steps.measured())
        del g.node[:]
        g.node.extend(self._steps.chosen(nodes))
        return Session(noisy), places

    def _inside(self, node: NodeProto, result: np.ndarray) -> np.ndarray:
        """Return the size of the numbers that a formula passes through: of every element's own, if it is made of a few."""
        largest = np.asarray(max(1.0, float(np.abs(result).max(initial=0))))
        known = self.values | self.stored
        floats = [np.abs(known[n]) for n in node.input if n in known and known[n].dtype == np.float32]
        if not floats or node.op_type not in ELEMENTWISE - COORDINATES - CENTRED:
            return largest
        return np.fmin(largest, np.fmax(1, sum(floats, np.abs(result))))

    def _unit(self, value: str, compute: int | None) -> float:
        code = self.codes.get(value, F32)
        return max(EPS[c] for c in (compute or code, code) if c in EPS)

    def _terms(self, node) -> float:
        """How many numbers an element of the result may be the sum of, roughly."""
        if node.op_type in ELEMENTWISE:
            return 1.0
        known = self.values if not self.values.keys().isdisjoint(node.input) else self.stored
        shapes = [known[n].shape for n in node.input if n in known]
        sizes = [float(np.prod(s)) for s in shapes] or [1.0]
        out = float(np.prod(self.values[node.output[0]].shape)) if node.output[0] in self.values else 1.0
        normed = nearly.terms_of_norm(node, known)
        return max([1.0, normed, sizes[0] / max(out, 1.0), *(float(max(s, default=1)) for s in shapes[:1])])


def _declares_another(output: ValueInfoProto, found: np.ndarray) -> bool:
    """True where a smaller model still says what the larger one gave."""
    t = output.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in t.shape.dim]
    return t.HasField("shape") and (
        len(dims) != found.ndim or any(d not in (None, n) for d, n in zip(dims, found.shape))
    )


def _element_types(model: ModelProto, values: Arrays) -> dict[str, int]:
    """Element types of all values of the main graph, whose arrays are known; narrow floats spread where inference gives up."""
    g = model.graph
    found = {i.name: i.type.tensor_type.elem_type for i in [*g.input, *g.output]} | {
        t.name: t.data_type for t in g.initializer
    }
    for node in g.node:
        reads = [*node.input, *(n for inner in subgraphs(node) for m in inner.node for n in m.input)]
        given = [Value(n, values[n], found[n], "") for n in reads if n in values]
        made = [values.get(n, np.zeros(0)) for n in node.output]
        found |= dict(zip(node.output, output_codes(node, given, made)))
    return {k: v for k, v in found.items() if v} | {"": I64}
