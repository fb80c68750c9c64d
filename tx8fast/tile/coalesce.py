"""Neighbouring dimensions that all members of a fused op step through alike, made one: (n, h, w) of 1 x 1 convolutions.

May import: graph_table. Must not: know kinds of ops.

Merging needs the same pair everywhere: in every tensor of every member either both dimensions come, one behind the other and each a factor by
itself, or neither. The last dimension stays as it is: it lies in channel blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.graph_table import Dim, Rule

Value = tuple[str, int]  # "in" or "op", number
Place = tuple[str, int, int]  # value, position of the first dimension of a pair
Dims = tuple[Dim, ...]
Wires = Sequence[Sequence[Value | None]]


Pair = tuple[int, int]


def coalesced(rules: Sequence[Rule], wires: Wires) -> tuple[Rule, ...]:
    """Return the rules with every pair merged that may be; ranks of tensors shrink alike in all of them."""
    views = [_View(rule, i, wires[i]) for i, rule in enumerate(rules)]
    places = {place for v in views for place in v.places} - {place for v in views for place in v.broken}
    while wrong := {place for v in views for place in v.wrong(places)}:
        places -= wrong
    return tuple([_merged(v, places) for v in views]) if places else tuple(rules)


class _View:
    """What a member sees. tensors: (value, dimensions); places: pairs of dimensions that step two factors, -1 each where the tensor
    broadcasts in both; broken: those of other pairs; behind, before: of every factor its occurrences' neighbours by their places."""

    def __init__(self, rule: Rule, i: int, wires: Sequence[Value | None]) -> None:
        self.rule = rule
        self.values = [*wires, *(None,) * (len(rule.ins) - len(wires))]
        self.own: Value = ("op", i)
        self.tensors = [
            (v, dims) for v, dims in zip(self.values, rule.ins, strict=False) if v is not None and dims is not None
        ]
        self.tensors.append((self.own, rule.outs[0]))
        self.places: dict[Place, Pair] = {}
        self.broken: list[Place] = []
        self.behind: dict[int, list[tuple[Place, int]]] = {}
        self.before: dict[int, list[tuple[Place, int]]] = {}
        for value, dims in self.tensors:
            self._look(value, dims)

    def _look(self, value: Value, dims: Dims) -> None:
        sizes, rank = self.rule.sizes, len(dims)
        steps = []  # the factor of every dimension, -1: constant, None: neither
        for d in dims:
            f = d.identity
            steps.append(f if f is not None and sizes[f] == d.size else -1 if d.size == 1 and not d.terms else None)
        for p, (d, f) in enumerate(zip(dims, steps, strict=True)):
            place = (*value, p)
            if p < rank - 2:
                g = steps[p + 1]
                if (
                    f is None
                    or g is None
                    or (f < 0) != (g < 0)
                    or f == g >= 0
                    or self.places.get(place, (f, g)) != (f, g)
                ):
                    self.broken.append(place)
                else:
                    self.places[place] = f, g
            for x, _ in d.terms:
                behind = steps[p + 1] if p < rank - 2 and f is not None else None
                before = steps[p - 1] if 0 < p < rank - 1 and f is not None else None
                self.behind.setdefault(x, []).append((place, -1 if behind is None else behind))
                self.before.setdefault(x, []).append(((*value, p - 1), -1 if before is None else before))

    def wrong(self, places: set[Place]) -> list[Place]:
        """Return the places that cannot be merged if only `places` are."""
        kinds = self.rule.kinds
        return [
            place
            for place, (f, g) in self.places.items()
            if place in places
            and f >= 0
            and not (
                kinds[f] == kinds[g] in ("P", "R")
                and all([n == g and at in places for at, n in self.behind[f]])
                and all([n == f and at in places for at, n in self.before[g]])
            )
        ]


def _merged(view: _View, places: set[Place]) -> Rule:
    """Return the rule over merged factors: of a run of them the last one stays, with the product of their sizes."""
    rule = view.rule
    merged = {place: pair for place, pair in view.places.items() if place in places}
    if not merged:
        return rule
    behind = dict(pair for pair in merged.values() if pair[0] >= 0)
    sizes = list(rule.sizes)
    last = list(range(len(sizes)))
    for f in range(len(sizes)):
        while last[f] in behind:
            last[f] = behind[last[f]]
        if last[f] != f:
            sizes[last[f]] *= rule.sizes[f]
    kept = [f for f in range(len(sizes)) if last[f] == f]
    number = {f: k for k, f in enumerate(kept)}

    def remade(value: Value | None, dims: Dims | None) -> Dims | None:
        if dims is None or value is None:
            return dims
        out = []
        for p, d in enumerate(dims):
            if (*value, p) in merged:
                continue  # goes into the next one
            f = d.identity
            if f is not None and sizes[f] != rule.sizes[f]:
                out.append(Dim(sizes[f], ((number[f], 1),)))
            else:
                out.append(Dim(d.size, tuple([(number[last[f]], c) for f, c in d.terms]), d.c0, d.den, d.full))
        return tuple(out)

    ins = tuple([remade(v, dims) for v, dims in zip(view.values, rule.ins, strict=False)])
    out = remade(view.own, rule.outs[0])
    assert out is not None
    work = tuple([(e, c, tuple(sorted({number[last[f]] for f in fs}))) for e, c, fs in rule.work])
    names = tuple([rule.names[f] for f in kept]) if rule.names else ()
    kinds = "".join([rule.kinds[f] for f in kept])
    return Rule(tuple([sizes[f] for f in kept]), kinds, ins, (out, *rule.outs[1:]), work, names, rule.combine)
