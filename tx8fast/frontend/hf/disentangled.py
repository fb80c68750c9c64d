"""Attention whose scores also compare contents with distances and distances with contents (DeBERTa, He et al. 2021).

May import: ir, frontend.hf. Must not: read files.

The score of query t and key s is (q_t k_s + q_t K(t - s) + k_s Q(t - s)) / sqrt(3 width), where K and Q are projections of a learned row per
bucket of distances. Rows are laid out by distance, so that a product with all of them has the scores of row t in a stretch that begins one
column earlier per row: cutting the flat result into rows that are one shorter puts them below each other, and nothing is looked up.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import SCORES, Made, Past, attend
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value


def disentangled(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the attention of layer `i` of an encoder on x [batch, seq, hidden]."""
    c, at = m.c, f"layers.{i}.self_attn"
    kind = c.distances
    assert kind is not None
    q, k, v = (m.linear(x, f"{at}.{p}_proj") for p in "qkv")
    key_of, query_of = ("k_proj", "q_proj") if kind.shared else ("pos_k_proj", "pos_q_proj")

    def softmax(s: Value) -> Value:
        if kind.to_places:
            s = m.b("add", s, _sheared(m, q, m.linear(_rows(m, x, False), f"{at}.{key_of}"), at), loc=at + ".scores")
        if kind.from_places:
            found = _sheared(m, k, m.linear(_rows(m, x, True), f"{at}.{query_of}"), at)
            s = m.b("add", s, m.b("transpose", found, perm=(0, 1, 3, 2), loc=at + ".places"), loc=at + ".scores")
        return m.b("softmax", s, axis=-1, scale=c.attention_scale, loc=at + ".softmax")

    return m.out_linear(attend(m, q, k, v, at, softmax), at + ".o_proj"), {}


def _rows(m: Blocks, x: Value, rising: bool) -> Value:
    """Return the row of every distance of query and key [1, 2 * seq - 1, hidden], from the farthest ahead or (`rising`) behind."""
    kind, (batch, seq, hidden) = m.c.distances, x.shape
    assert kind is not None
    if rising not in m.distances:
        stored = m.weights.slots["distances.weight"].key
        attrs = {"buckets": kind.buckets, "farthest": kind.farthest, "span": kind.span, "rising": rising}
        key, dtype = f"%distances/{seq}/{'up' if rising else 'down'}", m.table[stored].dtype
        rows = m.derived(key, "distance_rows", attrs, (1, 2 * seq - 1, hidden), dtype, (stored,))
        rows = rows if dtype == m.dtype else m.b("convert", rows, dtype=m.dtype, loc="distances")
        rows = m.norm(rows, "distance_norm")
        m.distances[rising] = (
            rows if batch == 1 else m.b("broadcast", rows, shape=(batch, 2 * seq - 1, hidden), loc="distances")
        )
    return m.distances[rising]


def _sheared(m: Blocks, x: Value, rows: Value, at: str) -> Value:
    """Return, for every row of x [batch, seq, heads * width], its products with the rows of its own distances [batch, heads, seq, seq]."""
    c, b, at, (batch, seq, _) = m.c, m.b, at + ".places", x.shape
    heads, wide = c.heads, 2 * seq - 1
    s = b("contract", x, rows, equation=SCORES, sizes=("h", heads, "g", 1, "d", c.head_dim), loc=at)
    if seq == 1:
        return s
    s = b("reshape", s, shape=(batch, heads, seq * wide), loc=at)
    s = b("slice", s, start=(0, 0, seq - 1), size=(batch, heads, seq * (wide - 1)), step=(1, 1, 1), loc=at)
    s = b("reshape", s, shape=(batch, heads, seq, wide - 1), loc=at)
    return b("slice", s, start=(0, 0, 0, 0), size=(batch, heads, seq, seq), step=(1, 1, 1, 1), loc=at)
