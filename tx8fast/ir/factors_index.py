"""Factor rules of the indexing kinds, of quantisation scales and of rotary embedding.

May import: graph_table, ir.factors. Must not: know IR objects. Signature as in ir.factors. An axis that
indices address is a W factor: which part is read depends on data.
"""

from __future__ import annotations

from tx8fast.graph_table import Dim, Rule
from tx8fast.ir.factors import ONE, RuleBuilder, Shapes, aligned


def gather(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """table [p.., v, q..], indices [j..], out [p.., j.., q..]; embedding is axis 0."""
    table, indices = ins
    a = attrs.get("axis", 0) % len(table)
    r = RuleBuilder()
    out = r.factors(outs[0])
    v = r.one(r.factor(table[a], "W", "v"))
    n = len(indices)
    return r.build(((*out[:a], v, *out[a + n :]), out[a : a + n]), (out,), [("kcore", 1, tuple(range(len(out))))])


def gather_elements(ins: Shapes, outs: Shapes, attrs) -> Rule:
    a = attrs["axis"] % len(ins[0])
    r = RuleBuilder()
    out = r.factors(outs[0])
    v = r.one(r.factor(ins[0][a], "W", "v"))
    x = tuple(v if i == a else Dim(n, ((i, 1),)) for i, n in enumerate(ins[0]))
    return r.build((x, out), (out,), [("kcore", 1, tuple(range(len(out))))])


def gather_nd(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """x [b.., v.., q..], indices [b.., j.., r], out [b.., j.., q..]."""
    x, indices = ins
    b, depth, lead = attrs["batch_dims"], indices[-1], len(indices) - 1
    r = RuleBuilder()
    out = r.factors(outs[0])
    v = r.factors(x[b : b + depth], "W")
    index = (*out[:lead], r.one(r.factor(depth, "W")))
    return r.build(((*out[:b], *v, *out[lead:]), index), (out,), [("kcore", 1, tuple(range(len(out))))])


def scatter(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Each owner of a part of the result reads all updates along `axis` and keeps those it owns."""
    a = attrs["axis"] % len(ins[0])
    r = RuleBuilder()
    out = r.factors(outs[0])
    j = r.one(r.factor(ins[1][a], "W", "j"))
    index = tuple(j if i == a else Dim(n, ((i, 1),)) for i, n in enumerate(ins[1]))
    return r.build((out, index, index), (out,), [("kcore", 1, tuple(range(len(out))))])


def scatter_nd(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """operand [v.., q..], indices [j.., r], updates [j.., q..]."""
    x, indices = ins[0], ins[1]
    depth = indices[-1]
    r = RuleBuilder()
    out = r.factors(outs[0])
    j = r.factors(indices[:-1], "W")
    index = (*j, r.one(r.factor(depth, "W")))
    return r.build((out, index, (*j, *out[depth:])), (out,), [("kcore", 1, tuple(range(len(x))))])


def kv_update(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """The owner of a cache part writes what falls into it: new rows and the position are needed whole."""
    a = attrs["axis"] % len(ins[0])
    r = RuleBuilder()
    out = r.factors(outs[0])
    t = r.one(r.factor(ins[1][a], "W", "t"))
    new = tuple(t if i == a else d for i, d in enumerate(out))
    fs = tuple(len(out) if i == a else i for i in range(len(out)))
    return r.build((out, new, (Dim(1, full=True),)), (out,), [("kcore", 1, fs)])


def quantise(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Scale: one value, one per channel of `axis`, or one per block of every dimension (coordinate / block)."""
    r = RuleBuilder()
    x = r.factors(outs[0])

    def scale(s):
        if s is None or len(s) == 0:
            return s if s is None else ()
        if len(s) == 1 and len(x) != 1:
            return aligned((x[attrs["axis"] % len(x)],), s)
        return tuple(d if d.size == n else ONE if n == 1 else Dim(n, d.terms, 0, d.size // n) for d, n in zip(x, s))

    return r.build((x, *[scale(s) for s in ins[1:]]), (x,), [("kcore", 1, r.all())])


def rope(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """x [b.., s, (h two i)] or (h i two); tables [s, (two i)]. With untouched lanes the whole head is one W factor."""
    x, heads, style = ins[0], attrs["heads"], attrs["style"]
    d = x[-1] // heads
    rotary = d if attrs["rotary_dim"] == -1 else attrs["rotary_dim"]
    r = RuleBuilder()
    lead = r.factors(x[:-1])
    h = r.factor(heads, "P", "h")
    if rotary != d:
        lanes = (r.factor(d, "W", "lane"),)
    elif style == "half":
        two = r.factor(2, "W", "two")
        lanes = (two, r.factor(d // 2, "P", "i"))
    else:
        i = r.factor(d // 2, "P", "i")
        lanes = (i, r.factor(2, "W", "two"))
    dims = (*lead, r.radix(h, *lanes))
    tables = [(lead[-1] if s[0] == x[-2] else ONE, r.radix(*lanes)) for s in ins[1:]]
    return r.build((dims, *tables), (dims,), [("ct", 3, r.all())])
