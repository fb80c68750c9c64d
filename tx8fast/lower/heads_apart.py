"""Results of a group that DDR has head by head, [.., h, s, d], while its members work on rows of all heads, [.., s, (h d)].

May import: lower.{access, base, contraction, transfer}, graph_table, numerics. Must not: decide which ops belong together.

Keys and values that an exported model keeps for later steps lie head by head; its queries do not. A product's columns are whole heads in
either form, so that a group of both works on rows, and what leaves it is put apart by the transfers that store it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import NotLowerable
from tx8fast.lower.contraction import Contraction, merge_runs
from tx8fast.lower.transfer import Box, Descriptor, Local, descriptors
from tx8fast.numerics.layout import block_size

HEAD = -3  # position of the heads' dimension in what lies head by head


class HeadsApart(Access):
    """A result [.., h, s, d] whose slices lie in scratchpad as rows of whole heads, as `rows` has them."""

    def __init__(self, spec: TensorSpec, rows: Access) -> None:
        super().__init__(spec, rows.dims, True)
        self.rows, self.lanes = rows, spec.shape[-1]

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Box:
        *lead, rows, (a, b) = self.rows.box(lo, hi)
        return (*lead, (a // self.lanes, -(-b // self.lanes)), rows, (0, self.lanes))

    def is_solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        return self.rows.is_solid(lo, hi)

    def local(self, box: Box) -> Local:
        *lead, (a, b), (first, last), _ = box
        n = math.prod([y - x for x, y in lead]) * (last - first)
        return Local(n, (b - a) * self.lanes, self.spec.dtype, True)

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        *lead, (a, b), rows, lanes = self.box(lo, hi)
        local = self.local((*lead, (a, b), rows, lanes))
        strides, step = [1, 0], rows[1] - rows[0]
        for x, y in reversed(lead):
            strides.append(step)
            step *= y - x
        if not local.rows or not local.cols:
            return []
        found = [
            descriptors(self.spec, (*lead, (h, h + 1), rows, lanes), local, strides[::-1], 0, (h - a) * self.lanes)
            for h in range(a, b)
        ]
        return merge_runs([d for head in found for d in head])


def in_rows(record: GroupRecord) -> dict[int, OpRecord]:
    """Return, by number, the ops of a group on rows of all heads that have their results head by head in the graph; none if all of the
    group's products do, or none does. Raises NotLowerable for a mixed group with an op that works on heads of its own."""
    products = {i: op for i, op in enumerate(record.ops) if op.kind in Contraction.takes}
    out = {i: made for i, op in products.items() if (made := _product(op)) is not None}
    if not 0 < len(out) < len(products):
        return {}
    for i, (op, wires) in enumerate(zip(record.ops, record.wires, strict=True)):
        apart = [j for j, w in enumerate(wires) if w is not None and w[0] == "op" and w[1] in out]
        if apart:
            out[i] = _follower(op, apart)
    return out


def stored(op: OpRecord, made: Access, apart: bool) -> Access:
    """Return the access to an op's result that leaves its group. made: as the members have it; apart: the graph has it head by head."""
    return HeadsApart(op.results[0], made) if apart else made


def whole_heads(writes: Sequence[Access], units: list[int], most: list[int]) -> None:
    """Change units and most points of slices so that of what DDR has head by head slices are whole heads."""
    for made in [w for w in writes if isinstance(w, HeadsApart)]:
        for f, width in made.dims[-1].terms:
            units[f] = math.lcm(units[f], made.lanes // math.gcd(made.lanes, width))
            most[f] -= most[f] % units[f]


def _rows(spec: TensorSpec) -> TensorSpec:
    """Return what [.., h, s, d] is as rows, [.., s, (h d)]."""
    *lead, heads, rows, lanes = spec.shape
    return replace(spec, shape=(*lead, rows, heads * lanes))


def _product(op: OpRecord) -> OpRecord | None:
    """Return a product whose columns are one dimension that its result has in two, heads and their lanes, as one on rows; None for
    another one."""
    rule, out = op.rule, op.results[0]
    if rule is None or len(out.shape) < -HEAD or len(op.operands) != 2 or out.layout != "blocked":
        return None
    left, right = rule.ins[0] or (), rule.ins[1] or ()
    made = [d.identity for d in rule.outs[0] if d.identity is not None]
    if len(made) < len(out.shape) or out.shape[-1] % block_size(out.dtype):
        return None
    head, lanes = made[HEAD], made[-1]
    columns = [p for p, d in enumerate(right) if d.terms == ((head, out.shape[-1]), (lanes, 1))]
    if len(columns) != 1 or {f for d in left for f, _ in d.terms} & {head, lanes}:
        return None
    size = rule.sizes[head] * rule.sizes[lanes]
    whole = Dim(size, ((lanes, 1),))
    right = tuple([whole if p == columns[0] else d for p, d in enumerate(right)])
    result = (*rule.outs[0][:HEAD], rule.outs[0][-2], whole)
    rest = [f for f in range(len(rule.sizes)) if f != head]
    sizes = [size if f == lanes else rule.sizes[f] for f in rest]
    dims = [tuple([_renumbered(d, rest) for d in t]) for t in (left, right, result)]
    made_of = Rule(tuple(sizes), "".join([rule.kinds[f] for f in rest]), (dims[0], dims[1]), (dims[2],))
    return replace(op, results=(_rows(out),), rule=made_of)


def _renumbered(dim: Dim, factors: Sequence[int]) -> Dim:
    return replace(dim, terms=tuple([(factors.index(f), c) for f, c in dim.terms]))


def _follower(op: OpRecord, apart: Sequence[int]) -> OpRecord:
    """Return an op on results of which `apart` says which operands they are, as one on rows. Raises NotLowerable."""
    spec = op.results[0]
    heads = spec.shape[HEAD]
    others = [s for j, s in enumerate(op.operands) if s is not None and j not in apart]
    attrs = dict(op.attrs)
    alone = attrs.get("heads")
    if alone is None and any(math.prod(s.shape) > 1 for s in others) or alone not in (None, 1) or op.rule is None:
        raise NotLowerable(f"{op.kind} works on heads, and products of its group on rows of all of them")
    if alone is not None:
        attrs["heads"] = heads
        if "axes" in attrs:
            attrs["axes"] = (-1,)
    operands = tuple([_rows(s) if j in apart and s is not None else s for j, s in enumerate(op.operands)])
    rule = op.rule if alone is None else _on_heads(op.rule, spec)
    return replace(op, attrs=tuple(attrs.items()), operands=operands, results=(_rows(spec),), rule=rule)


def _on_heads(rule: Rule, spec: TensorSpec) -> Rule:
    """Return the rule of an op on single heads [.., h, s, d] as that on rows [.., s, (h d)]: heads come behind the rows."""
    rank = len(spec.shape)
    head, rows = rank + HEAD, rank - 2
    made = rule.outs[0]
    if [d.identity for d in made[:-1]] != list(range(rank - 1)):
        raise NotLowerable("an op on heads has the factors of their dimensions first")
    one = [f for f in range(rank - 1, len(rule.sizes)) if rule.sizes[f] == 1]  # the single head of rows that are one
    order = [*range(head), rows, head, *[f for f in range(rank - 1, len(rule.sizes)) if f not in one[:1]]]
    renamed = {f: i for i, f in enumerate(order)}

    def seen(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        def dim(d: Dim) -> Dim:
            return replace(d, terms=tuple([(renamed[f], c) for f, c in d.terms if f in renamed]))

        if len(dims) != rank or dims[head].identity != head:
            return tuple(map(dim, dims))
        last = dims[-1]
        terms = ((head, spec.shape[-1]), *[t for t in last.terms if t[0] not in one[:1]])
        merged = Dim(spec.shape[HEAD] * spec.shape[-1], terms)
        return (*map(dim, dims[:head]), dim(dims[rows]), dim(merged))

    ins = tuple([None if dims is None else seen(dims) for dims in rule.ins])
    kinds = "".join([rule.kinds[f] for f in order])
    return Rule(tuple([rule.sizes[f] for f in order]), kinds, ins, (seen(made),))
