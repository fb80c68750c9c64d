"""Attention whose scores also compare contents with distances and distances with contents (DeBERTa, He et al. 2021).

May import: ir, frontend.hf. Must not: read files.

The score of query t and key s is (q_t k_s + q_t K(t - s) + k_s Q(t - s)) / sqrt(3 width), where K and Q are projections of a learned row per
bucket of distances: for a given length they are constants. Products with the rows of all distances would have to be moved, row by row, to
where they belong, and nothing moves single elements but DDR. So K is written as a sum of waves over the distances. A wave of t - s is one of t,
turned, times one of s: the products of a query with the rows of all waves are turned by its place, as a rotation of positions
does it, and a product with the waves at all keys puts the scores where they belong. That is exact, as many waves as distances provided.

Queries (for Q: keys) come in blocks: those of a block see fewer distances, each block other ones, and need that much fewer waves.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past, attend
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value

BLOCKS = (1, 2, 4)
#: the halves of a turned row are whole blocks of channels
LANES = 128
_PRODUCTS = "b (i a) (h d), i f (h d) -> b h (i a) f"


def disentangled(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the attention of layer `i` of an encoder on x [batch, seq, hidden]."""
    c, at = m.c, f"layers.{i}.self_attn"
    kind = c.distances
    assert kind is not None
    q, k, v = (m.linear(x, f"{at}.{p}_proj") for p in "qkv")
    key_of, query_of = ("k_proj", "q_proj") if kind.shared else ("pos_k_proj", "pos_q_proj")
    seq, mask = x.shape[1], None
    waves = m.derived(f"%waves/{seq}", "waves", {"factor": c.attention_scale}, (seq, waves_of(seq)[1]))
    if kind.from_places:
        turned = _turned(m, k, f"{at}.{query_of}", 1, at)
        mask = m.b("contract", waves, turned, equation="t f, b h s f -> b h t s", useful_macs=0, loc=at + ".places")
    if kind.to_places:
        turned = _turned(m, q, f"{at}.{key_of}", -1, at)
        y = m.b("contract", turned, waves, equation="b h t f, s f -> b h t s", useful_macs=0, loc=at + ".places")
        mask = y if mask is None else m.b("add", y, mask, loc=at + ".places")

    def softmax(s: Value) -> Value:
        hidden = m.with_padding(mask)
        masks = () if hidden is None else (hidden,)
        return m.b("softmax", s, *masks, axis=-1, scale=c.attention_scale, loc=at + ".softmax")

    return m.out_linear(attend(m, q, k, v, at, softmax), at + ".o_proj"), {}


def waves_of(seq: int) -> tuple[int, int]:
    """Return the number of blocks of a length, and the sines and cosines that the distances of one block take: as few as may be."""
    step = LANES if seq >= LANES else 2
    found = [(-(-(seq + seq // n - 1) // step) * step, n) for n in BLOCKS if seq % n == 0]
    least, blocks = min(found)
    return blocks, least


def _turned(m: Blocks, x: Value, module: str, sign: int, at: str) -> Value:
    """Return, for every row of x [batch, seq, heads * width], its products with the waves of what `module` makes of distances, as seen from its
    own place [batch, heads, seq, waves]. sign: of what a row's own place adds to a distance, less one for a query and one for a key."""
    c, kind, slots, (batch, seq, _) = m.c, m.c.distances, m.weights.slots, x.shape
    assert kind is not None
    blocks, waves = waves_of(seq)
    norm = ("distance_norm.weight", "distance_norm.bias") if kind.normed else ()
    inputs = tuple(slots[name].key for name in ("distances.weight", *norm, module + ".weight", module + ".bias"))
    attrs = {
        "buckets": kind.buckets,
        "farthest": kind.farthest,
        "span": kind.span,
        "sign": sign,
        "length": seq,
        "eps": m.eps("distance_norm") if kind.normed else None,
    }
    shape, dtype = (blocks, waves, c.heads * c.head_dim), m.table[inputs[-2]].dtype
    rows = m.derived(f"%{module}.waves/{seq}", "wave_rows", attrs, shape, dtype, inputs)
    rows = rows if dtype == m.dtype else m.b("convert", rows, dtype=m.dtype, loc=at + ".waves")
    sizes = ("h", c.heads, "d", c.head_dim, "i", blocks, "a", seq // blocks)
    pairs = batch * seq * seq * c.heads * c.head_dim  # what the scores need; waves are a way to it
    y = m.b("contract", x, rows, equation=_PRODUCTS, sizes=sizes, useful_macs=pairs, loc=at + ".waves")
    y = m.b("reshape", y, shape=(batch, c.heads * blocks, seq // blocks, waves), loc=at + ".turns")
    cos, sin = (m.derived(f"%wave_{f}/{seq}", f"wave_{f}", {}, (seq // blocks, waves)) for f in ("cos", "sin"))
    y = m.b("rope", y, cos, sin, heads=1, style="half", rotary_dim=-1, loc=at + ".turns")
    return m.b("reshape", y, shape=(batch, c.heads, seq, waves), loc=at + ".turns")
