"""Encoders of images whose patches stand cell by cell (Qwen-VL): the order of patches, attention in windows, and what merges a cell into a row.

May import: ir, frontend.hf. Must not: read files.

The patches of a cell stand one behind the other, cells row by row. Where windows divide the image, layers see them window by window, so that
a window is a stretch of rows. Where they divide its height alone, a row of windows is one, where its width alone, a column of them, cells being
ordered so; a mask hides the other windows of a band. Else the band is the image.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past, attend
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.spec import Cells, Image
from tx8fast.ir.core import Value
from tx8fast.records import dataclass

#: w windows of s (t) patches
_SCORES = "b (w s) (h d), b (w t) (h d) -> b w h s t"
_MIXED = "b w h s t, b (w t) (h d) -> b (w s) (h d)"


def _kinds(m: Blocks) -> tuple[Cells, Image]:
    assert m.c.cells is not None and m.c.image is not None
    return m.c.cells, m.c.image


@dataclass(frozen=True)
class _Order:
    """Cells stand window by window, `side` x `side`, or (0) row by row, or (`turned`) column by column; what layers with windows see are `bands`
    equal stretches."""

    side: int = 0
    turned: bool = False
    bands: int = 1


def _order(m: Blocks) -> _Order:
    cells, image = _kinds(m)
    if not any(cells.near):
        return _Order()
    size = cells.side * cells.merge
    (down, left), (right, over) = (divmod(n, size) for n in image.patches)
    if not left and not over:
        return _Order(cells.side, bands=down * right)
    return _Order(bands=down) if not left else _Order(turned=True, bands=right) if not over else _Order()


def _attrs(m: Blocks) -> dict[str, object]:
    (cells, image), order = _kinds(m), _order(m)
    return {"grid": list(image.patches), "merge": cells.merge, "side": order.side, "turned": order.turned}


def in_cells(m: Blocks, x: Value) -> Value:
    """Bring patches [batch, rows * columns, hidden] from rows into cells, learned positions added; and cells into windows."""
    cells, image = _kinds(m)
    (rows, columns), (batch, patches, hidden), side = image.patches, x.shape, _order(m).side
    perm = (0, 3, 1, 2, 4) if _order(m).turned else (0, 1, 3, 2, 4)
    x = m.b(
        "reshape",
        x,
        shape=(batch, rows // cells.merge, cells.merge, columns // cells.merge, cells.merge * hidden),
        loc="cells",
    )
    x = m.b("transpose", x, perm=perm, loc="cells")
    if side:
        across = columns // cells.merge // side
        x = _swapped(m, x, (rows // cells.merge // side, side, across, side * cells.merge**2 * hidden), "windows")
    x = m.b("reshape", x, shape=(batch, patches, hidden), loc="cells")
    if not cells.table:
        return x
    stored = m.weights.slots["places.weight"].key
    places = m.derived("%places", "cell_places", _attrs(m), (patches, hidden), m.table[stored].dtype, (stored,))
    places = places if places.dtype == m.dtype else m.b("convert", places, dtype=m.dtype, loc="places")
    return m.b("add", x, places, loc="places")


def _swapped(m: Blocks, x: Value, sizes: tuple[int, int, int, int], at: str) -> Value:
    """Swap the middle two of four dimensions."""
    x = m.b("reshape", x, shape=(x.shape[0], *sizes), loc=at)
    return m.b("transpose", x, perm=(0, 1, 3, 2, 4), loc=at)


def cells(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the attention of layer `i` on x [batch, patches, hidden]."""
    c, at, kind = m.c, f"layers.{i}.self_attn", _kinds(m)[0]
    q, k, v = (m.linear(x, f"{at}.{p}_proj") for p in "qkv")
    attrs, (_, patches, _) = {**_attrs(m), "theta": kind.theta}, x.shape
    cos, sin = (m.derived(f"%cell_{f}", f"cell_{f}", attrs, (patches, c.head_dim)) for f in ("cos", "sin"))
    q, k = (
        m.b("rope", y, cos, sin, heads=c.heads, style="half", rotary_dim=-1, loc=f"{at}.{name}_rope")
        for y, name in ((q, "q"), (k, "k"))
    )
    if not kind.near or not kind.near[i]:
        return m.out_linear(attend(m, q, k, v, at), at + ".o_proj"), {}
    mask, sizes = _mask(m), ("w", _order(m).bands, "h", c.heads, "d", c.head_dim)
    s = m.b("contract", q, k, equation=_SCORES, sizes=sizes, loc=at + ".scores")
    p = m.b("softmax", s, *mask, axis=-1, scale=c.attention_scale, loc=at + ".softmax")
    y = m.b("contract", p, v, equation=_MIXED, sizes=sizes, loc=at + ".mix")
    return m.out_linear(y, at + ".o_proj"), {}


def _mask(m: Blocks) -> tuple[Value, ...]:
    """Return what hides the other windows of a band, if it has any."""
    (kind, image), order = _kinds(m), _order(m)
    if order.side:
        return ()
    (rows, columns), bands = image.patches, order.bands
    grid = [rows, columns // bands] if order.turned else [rows // bands, columns]
    attrs = {"grid": grid, "merge": kind.merge, "turned": order.turned, "window": kind.side, "value": m.mask_value}
    return (m.derived("%cell_mask", "cell_mask", attrs, (grid[0] * grid[1],) * 2),)


def merged(m: Blocks, x: Value, deep: list[Value]) -> dict[str, Value]:
    """Return the results: patches cell by cell, a row for every cell, and such rows of the layers `deep`, cells row by row."""
    results = {"last_hidden_state": _in_rows(m, x)}
    results["pooler_output"] = _merged(m, results["last_hidden_state"], "merger", late=False)
    for n, y in enumerate(deep):
        results[f"deepstack.{n}"] = _merged(m, _in_rows(m, y), f"deep.{n}", late=True)
    return results


def _in_rows(m: Blocks, x: Value) -> Value:
    """Bring cells from windows or columns into rows."""
    (kind, image), (batch, patches, hidden), order = _kinds(m), x.shape, _order(m)
    (rows, columns), cell = (n // kind.merge for n in image.patches), kind.merge**2 * hidden
    if order.turned:
        x = m.b("reshape", x, shape=(batch, columns, rows, cell), loc="rows")
        x = m.b("transpose", x, perm=(0, 2, 1, 3), loc="rows")
    elif order.side:
        x = _swapped(m, x, (rows // order.side, columns // order.side, order.side, order.side * cell), "rows")
    return m.b("reshape", x, shape=(batch, patches, hidden), loc="rows") if order.turned or order.side else x


def _merged(m: Blocks, x: Value, name: str, late: bool) -> Value:
    """Two products on the rows of a cell side by side, behind a norm of each row or (`late`) of all of them."""
    kind, (batch, patches, hidden) = _kinds(m)[0], x.shape
    x = x if late else m.norm(x, name + ".norm")
    x = m.b("reshape", x, shape=(batch, patches // kind.merge**2, kind.merge**2 * hidden), loc=name)
    x = m.norm(x, name + ".norm") if late else x
    return m.linear(m.b("gelu", m.linear(x, name + ".in"), loc=name + ".act"), name + ".out")
