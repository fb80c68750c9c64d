"""The graph's own expression of what a launch stores: op by op from the launch's operands, in one field.

May import: numpy, graph_table, proof.*. Must not: know how the launch computes it.

A launch's operands are sealed values: fresh elements of which nothing is known but their name. What a launch stores is sealed
for the launches behind it; within the launch it is what the ops make of the operands, also where it is stored and used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tx8fast.graph_table import TensorSpec
from tx8fast.proof.cells import ABSENT, SPECIAL, UNDEFINED, Elements, choose, rounded
from tx8fast.proof.draw import Known, input_value, limits, param_value
from tx8fast.proof.ends import End, holds
from tx8fast.proof.expression import CONCRETE, Drawn, NotExpressed, Scope, Value, evaluate, moved
from tx8fast.proof.expressions_chips import COLLECTIVES
from tx8fast.proof.expressions_mapped import step_numbers
from tx8fast.proof.families import load
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph, Instance
from tx8fast.records import dataclass

#: most ops that one launch may compute: chains of whole models have some hundred
MOST_OPS = 4096

#: kinds, activations and reductions that take exponentials, or compare numbers: the words modulo q of operands matter
TWO_SIDED = frozenset({"softmax", "exp", "erf", "gelu", "elu", "logsumexp", "sign", "arg_reduce", "map"})

PerChip = list[Any]  # of Value, or Drawn for what is drawn where it is used


@dataclass(frozen=True)
class Sources:
    """Where parameters come from. known: the values of a constant that the model holds for itself, None for a weight;
    varies: whether a parameter is another one on every chip."""

    known: Known
    varies: Callable[[str], bool] = lambda key: False


@dataclass
class Slice:
    """The ops between a launch's operands and its results, in order. sources: roots that are read and made by none of them."""

    ops: list[Instance]
    sources: list[str]


def slice_of(graph: Graph, operands: Sequence[str], results: Sequence[str]) -> Slice:
    """Return the ops that make `results` of `operands` (roots) and, where those do not suffice, of inputs and parameters.

    Raises NotExpressed if that takes the whole model again."""
    ops: dict[int, Instance] = {}
    sources: dict[str, None] = {}
    given = set(operands)
    waiting = list(results)
    while waiting:
        root = waiting.pop()
        op = graph.made.get(root)
        if op is None:
            sources[root] = None
            continue
        if op.number in ops:
            continue
        ops[op.number] = op
        if len(ops) > MOST_OPS:
            raise NotExpressed(f"it stores what more than {MOST_OPS} ops make of its operands")
        for name in op.inputs:
            if name and graph.roots[name] in given:
                sources[graph.roots[name]] = None
            elif name:
                waiting.append(graph.roots[name])
    return Slice([ops[n] for n in sorted(ops)], list(sources))


@dataclass
class Evaluation:
    """The values of one seed. `exact`: roots whose values are concrete or constants, which are not sealed."""

    graph: Graph
    field: Field
    origin: Sources
    stored: dict[str, PerChip] = dataclasses.field(default_factory=dict)
    exact: set[str] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        load()
        self.limits = limits(self.graph)
        self.register_constants()

    def register_constants(self) -> None:
        """Tell the field all constants of the graph, before a program's are looked up among them."""
        records = {op.record for op in self.graph.instances}
        seen = {v for record in records for _, v in record.attrs if type(v) is float}
        seen.update(*map(step_numbers, records))
        for value in sorted(seen):
            if np.isfinite(value):
                self.field.constants.register(value)

    # --- stored values ---------------------------------------------------------------------------------------------

    def value(self, root: str) -> PerChip:
        """Return a value as it lies in DDR, per chip; one object if all have the same."""
        found = self.stored.get(root)
        if found is None:
            found = self._drawn(root)
            if root in self.graph.inputs or isinstance(found[0], np.ndarray):
                self.stored[root] = found
        return found

    def _drawn(self, root: str) -> PerChip:
        g, n = self.graph, self.graph.n_chips
        if root in g.inputs:
            name = g.inputs[root]
            spec = g.specs[root]
            value = input_value(self.field, name, spec, self.limits.get(root))
            if isinstance(value, np.ndarray):
                self.exact.add(root)
            return [value] * n
        if root in g.params:
            key = g.params[root]
            spec = g.spec_of(root)
            limit = self.limits.get(root)
            if self.origin.known(key, -1) is not None:
                self.exact.add(root)
            if self.origin.varies(key):
                return [param_value(self.field, key, c, spec, self.origin.known, limit) for c in range(n)]
            return [param_value(self.field, key, -1, spec, self.origin.known, limit)] * n
        # what a launch stored: numbers, sealed
        return [self.field.random(f"value {root} chip {c}", g.specs[root].shape) for c in range(n)]

    def is_exact(self, root: str) -> bool:
        """Say whether a stored value is concrete or a constant, so that which one it is matters."""
        g = self.graph
        if root in g.params:
            return root in self.exact or self.origin.known(g.params[root], -1) is not None
        return root in self.exact or (root in g.inputs and g.specs[root].dtype in CONCRETE)

    def invent(self, results: Sequence[Any]) -> None:
        """Store something for results that are outside the proof: numbers are drawn, integers are zero."""
        for a in results:
            if a.spec.dtype in CONCRETE:
                self.stored[a.root] = [np.zeros(a.spec.shape, CONCRETE[a.spec.dtype])] * self.graph.n_chips

    def shaped(self, root: str, spec: TensorSpec) -> PerChip:
        """Return a stored value in the shape of one of its names."""
        return _each(self.value(root), lambda v: _reshaped(v, spec))

    # --- a launch --------------------------------------------------------------------------------------------------

    def given(self, part: Slice) -> dict[str, PerChip]:
        """Return what a launch starts from, by root: without q sides where nothing takes them."""
        values = {root: self.value(root) for root in part.sources}
        if not self.two_sided(part) and not self.fixed(part):
            values = {root: _each(found, _one_side) for root, found in values.items()}
        return values

    def launch(
        self, part: Slice, given: dict[str, PerChip], field: Field, left_out: Collection[int] = ()
    ) -> tuple[dict[str, PerChip], Scope]:
        """Return the values of all roots of a launch before they are sealed, and the denominators of all divisions.

        left_out: numbers of ops whose results are not wanted. Depends on nothing that changes. Raises NotExpressed, naming the op."""
        values = dict(given)
        scope = Scope(field)
        for op in part.ops:
            if op.number in left_out:
                continue
            try:
                made = self._op(scope, op, values)
            except NotExpressed as err:
                raise NotExpressed(f"{op.name}: {err}") from err
            values.update(zip(op.outputs, made, strict=True))
        return values, scope

    def fixed(self, part: Slice) -> bool:
        """Say whether a launch reads nothing but what is concrete or constant."""
        return all(self.is_exact(root) for root in part.sources)

    def two_sided(self, part: Slice) -> bool:
        """Say whether the q sides of operands matter to some op."""
        return any(
            op.record.kind in TWO_SIDED
            or TWO_SIDED & {v for _, v in op.record.attrs if type(v) is str}
            or any(spec.dtype == "pred" for spec in op.record.results)
            for op in part.ops
        )

    def _op(self, scope: Scope, op: Instance, values: dict[str, PerChip]) -> list[PerChip]:
        g, record = self.graph, op.record
        operands = [
            None if not n else _each(values[g.roots[n]], lambda v, n=n: _reshaped(v, g.specs[n])) for n in op.inputs
        ]
        if record.kind in COLLECTIVES:
            (own,) = operands
            assert own is not None
            return [COLLECTIVES[record.kind](scope, record, own)]
        made: dict[tuple, list[Value]] = {}
        per_chip = []
        for c in range(g.n_chips):
            given = [None if v is None else v[c] for v in operands]
            key = tuple(id(v) for v in given)
            if key not in made:
                made[key] = evaluate(scope, record, given)
            per_chip.append(made[key])
        return [[values[k] for values in per_chip] for k in range(len(record.results))]

    def holds(self, end: End, values: dict[str, PerChip], found: PerChip, field: Field) -> bool:
        """Say whether a result that is the end of a product is right on every chip, as far as a random vector tells."""
        own = [{root: v[c] for root, v in values.items()} for c in range(self.graph.n_chips)]
        return all(holds(field, self.graph, end, v, have) for v, have in zip(own, found, strict=True))

    # --- sealing ---------------------------------------------------------------------------------------------------

    def seal(self, part: Slice, made: dict[str, PerChip]) -> None:
        """Keep what a launch stored for the launches behind it: fresh elements, but for what is concrete, constant or hides."""
        fixed = self.fixed(part)
        for root, values in made.items():
            if not fixed and self.plain({root: values}):
                continue  # drawn when it is read
            self.stored[root] = _each(values, partial(self._kept if fixed else self._sealed, root))
            if fixed or isinstance(values[0], np.ndarray):
                self.exact.add(root)

    def _kept(self, root: str, value: Value) -> Value:
        if isinstance(value, Elements) and (value.q is None or (value.q == ABSENT).any()):
            return self._sealed(root, value)
        # the graph's side does not round: a launch may have stored an infinite number
        return rounded(value, "") if isinstance(value, Elements) else value

    def _sealed(self, root: str, value: Value) -> Value:
        """Return fresh elements also for those of which nothing is known: whatever a launch stores, it is some number."""
        if not isinstance(value, Elements):
            return value
        sealed, unknown = self.field.seal(value), value.p & np.uint32(UNDEFINED) != 0
        return choose(unknown, self.field.random(f"unknown {root}", value.shape), sealed) if unknown.any() else sealed

    def plain(self, made: dict[str, PerChip]) -> bool:
        """Say whether results are nothing but numbers: those of an equal launch may then be drawn afresh."""
        return all(isinstance(v, Elements) and not (v.p & SPECIAL).any() for values in made.values() for v in values)

    def forget(self, roots: Sequence[str]) -> None:
        """Drop stored values that no launch reads any more."""
        for root in roots:
            self.stored.pop(root, None)


def _each(values: PerChip, f: Callable[[Value], Value]) -> PerChip:
    """Return `f` of every chip's value; chips that share a value share the result."""
    made: dict[int, Value] = {}
    for v in values:
        if id(v) not in made:
            made[id(v)] = f(v)
    return [made[id(v)] for v in values]


def _reshaped(value: Value, spec: TensorSpec) -> Value:
    if value.shape == spec.shape:
        return value
    return moved(value.elements() if isinstance(value, Drawn) else value, lambda a: a.reshape(spec.shape))


def _one_side(value: Value) -> Value:
    """Return elements without their q sides."""
    if isinstance(value, Drawn):
        return replace(value, sides="p")
    return Elements(value.p, None) if isinstance(value, Elements) else value
