"""Attention among the patches of a square of an image, or of all of it, whose scores know how far apart rows and columns are (SAM, Kirillov
et al. 2023; decomposed positions: Li et al. 2022), and what makes a map of the result.

May import: ir, frontend.hf. Must not: read files.

The score of query q and key k is q k / sqrt(width) + q R(row of q - row of k) + q C(column of q - column of k). The products of a query with the
rows of all R and C stand behind its lanes, and behind a key's lanes zeros and ones that say which row and column are its own: the sum is
one product of wider heads.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import MIXED, SCORES, Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value

#: a query's products with what is learned about every row as seen from its own
_ROWS = "b h w d, h k d -> b h w k"


def squares(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the attention of layer `i` on x [batch, rows * columns, hidden]."""
    c, at = m.c, f"layers.{i}.self_attn"
    assert c.image is not None and c.squares is not None
    (rows, columns), side = c.image.patches, c.squares.sides[i]
    if not side:
        return m.out_linear(_attended(m, i, x, rows, columns), at + ".o_proj"), {}
    y = _attended(m, i, _cut(m, x, rows, columns, side, at), side, side)
    return m.out_linear(_joined(m, y, x.shape[0], rows, columns, side, at), at + ".o_proj"), {}


def _attended(m: Blocks, i: int, x: Value, rows: int, columns: int) -> Value:
    """Attention among all patches of x [batch, rows * columns, hidden]."""
    c, b, at = m.c, m.b, f"layers.{i}.self_attn"
    q, k, v = (m.linear(x, f"{at}.{p}_proj") for p in "qkv")
    width, scale = c.head_dim, c.attention_scale
    if m.has(f"layers.{i}.row_places.weight"):
        turned = _turned(m, q, rows, columns, at)  # a product takes a matrix per row; of columns the image is turned
        seen = [
            _seen(m, i, q, "row_places", rows, columns),
            _turned(m, _seen(m, i, turned, "column_places", columns, rows), columns, rows, at),
        ]
        q = _beside(m, m.scaled(q, scale, at + ".scale"), seen, at)
        wide = rows + columns
        own = m.derived(f"%own_place/{rows}x{columns}", "own_place", {"rows": rows}, (rows * columns, 1, wide))
        k = _beside(m, k, [b("broadcast", own, shape=(*x.shape[:2], c.heads, wide), loc=at + ".places")], at)
        width, scale = width + wide, 1.0
    s = b("contract", q, k, equation=SCORES, sizes=("h", c.heads, "g", 1, "d", width), loc=at + ".scores")
    p = b("softmax", s, axis=-1, scale=scale, loc=at + ".softmax")
    return b("contract", p, v, equation=MIXED, sizes=("h", c.heads, "g", 1, "d", c.head_dim), loc=at + ".mix")


def _seen(m: Blocks, i: int, q: Value, name: str, rows: int, columns: int) -> Value:
    """Return the products of every query and head with what is learned of each of the rows [batch, patches, heads, rows]."""
    stored = m.weights.slots[f"layers.{i}.{name}.weight"].key
    dtype = m.table[stored].dtype
    table = m.derived(f"%{name}/{i}", "rows_by_distance", {}, (rows, rows, m.c.head_dim), dtype, (stored,))
    table = table if dtype == m.dtype else m.b("convert", table, dtype=m.dtype, loc=name)
    batch, at = q.shape[0], f"layers.{i}.self_attn.places"
    split = m.b("reshape", q, shape=(batch, rows, columns * m.c.heads, m.c.head_dim), loc=at)
    y = m.b("contract", split, table, equation=_ROWS, loc=at)
    return m.b("reshape", y, shape=(batch, rows * columns, m.c.heads, rows), loc=at)


def _turned(m: Blocks, x: Value, rows: int, columns: int, at: str) -> Value:
    """Put patches [batch, rows * columns, ...] in the order of columns."""
    at, (batch, _, *rest) = at + ".places", x.shape
    x = m.b("reshape", x, shape=(batch, rows, columns, *rest), loc=at)
    x = m.b("transpose", x, perm=(0, 2, 1, *range(3, 3 + len(rest))), loc=at)
    return m.b("reshape", x, shape=(batch, columns * rows, *rest), loc=at)


def _beside(m: Blocks, x: Value, more: list[Value], at: str) -> Value:
    """Put lanes [batch, patches, heads, n] behind those of every head of x [batch, patches, heads * lanes]."""
    batch, seq, width = x.shape
    heads = m.c.heads
    split = m.b("reshape", x, shape=(batch, seq, heads, width // heads), loc=at + ".places")
    y = m.b("concat", split, *more, axis=3, loc=at + ".places")
    return m.b("reshape", y, shape=(batch, seq, heads * y.shape[3]), loc=at + ".places")


def _cut(m: Blocks, x: Value, rows: int, columns: int, side: int, at: str) -> Value:
    """Cut patches [batch, rows * columns, hidden] into squares [batch * squares, side * side, hidden], with zeros where the last ones reach
    beyond the image."""
    b, at, (batch, _, width) = m.b, at + ".cut", x.shape
    down, right = -(-rows // side), -(-columns // side)
    x = b("reshape", x, shape=(batch, rows, columns, width), loc=at)
    if (down * side, right * side) != (rows, columns):
        x = b("pad", x, lo=(0, 0, 0, 0), hi=(0, down * side - rows, right * side - columns, 0), loc=at)
    x = b("reshape", x, shape=(batch, down, side, right, side, width), loc=at)
    x = b("transpose", x, perm=(0, 1, 3, 2, 4, 5), loc=at)
    return b("reshape", x, shape=(batch * down * right, side * side, width), loc=at)


def _joined(m: Blocks, x: Value, batch: int, rows: int, columns: int, side: int, at: str) -> Value:
    """Put squares together again, without what reaches beyond the image."""
    b, at, width = m.b, at + ".join", x.shape[2]
    down, right = -(-rows // side), -(-columns // side)
    x = b("reshape", x, shape=(batch, down, right, side, side, width), loc=at)
    x = b("transpose", x, perm=(0, 1, 3, 2, 4, 5), loc=at)
    x = b("reshape", x, shape=(batch, down * side, right * side, width), loc=at)
    if (down * side, right * side) != (rows, columns):
        x = b("slice", x, start=(0, 0, 0, 0), size=(batch, rows, columns, width), step=(1, 1, 1, 1), loc=at)
    return b("reshape", x, shape=(batch, rows * columns, width), loc=at)


def mapped(m: Blocks, x: Value) -> Value:
    """Return the map [batch, channels, rows, columns] of patches [batch, rows * columns, hidden]: two convolutions, each with a norm."""
    c, b = m.c, m.b
    assert c.image is not None
    rows, columns = c.image.patches
    x = m.normalised(m.linear(x, "map1"), "map1_norm", m.param("map1_norm.weight"), eps=1e-6)
    x = b("reshape", x, shape=(x.shape[0], rows, columns, x.shape[2]), loc="map2")
    x = b("conv", x, m.param("map2.weight"), stride=(1, 1), pad_lo=(1, 1), pad_hi=(1, 1), loc="map2")
    x = m.normalised(x, "map2_norm", m.param("map2_norm.weight"), eps=1e-6)
    return b("transpose", x, perm=(0, 3, 1, 2), loc="map2")
