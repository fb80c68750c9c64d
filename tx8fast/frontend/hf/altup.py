"""Several streams beside each other, of which layers compute one and predict and correct the others (AltUp, Baykal et al. 2023).

May import: ir, frontend.hf. Must not: read files. Streams stand side by side in the last dimension [batch, seq, streams * hidden].
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.frontend.hf.attention import Made
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.feed_forward import activated
from tx8fast.ir.core import Value

WIDE = "f32"


def spread(m: Blocks, x: Value) -> Value:
    """Return all streams of an embedding x: it, and its projections brought to its size."""
    sizes = _size(m, x, "streams")
    made = [_sized(m, m.linear(x, f"streams.{k}"), sizes, "streams") for k in range(1, m.c.streams)]
    return m.b("concat", x, *made, axis=2, loc="streams")


def gathered(m: Blocks, x: Value) -> Value:
    """Return the mean of all streams, of which the projections are brought to the size of the first."""
    first, *rest = _parts(m, x, "unstreams")
    sizes, total = _size(m, first, "unstreams"), first
    for k, part in enumerate(rest, 1):
        total = m.b("add", total, _sized(m, m.linear(part, f"unstreams.{k}"), sizes, "unstreams"), loc="unstreams")
    return m.scaled(total, 1.0 / m.c.streams, "unstreams")


def corrected(m: Blocks, i: int, x: Value, layer: Callable[[Value], tuple[Value, Made]]) -> tuple[Value, Made]:
    """Emit a layer on streams: each is predicted of all, the first goes through `layer`, and what it learned corrects them all."""
    name, b, n = f"layers.{i}.altup.", m.b, m.c.streams
    streams = _parts(m, x, name + "predict")
    shares = m.linear(_modes(m, i, streams[0]), name + "predict")
    predicted = []
    for j, stream in enumerate(streams):
        for k, other in enumerate(streams):
            share = _column(m, shares, j * n + k, name + "predict")
            stream = b("add", stream, b("mul", other, share, loc=name + "predict"), loc=name + "predict")
        predicted.append(stream)
    y, made = layer(predicted[0])
    news = b("sub", y, predicted[0], loc=name + "correct")
    shares = m.linear(_modes(m, i, y), name + "correct")
    shares = b("add", shares, m.number(1.0, shares.dtype, name + "correct"), loc=name + "correct")
    found = [
        b("add", p, b("mul", news, _column(m, shares, j, name + "correct"), loc=name + "correct"), loc=name + "correct")
        for j, p in enumerate(predicted)
    ]
    row = _sided(m, i, found[0])
    found[1:] = [b("add", v, row, loc=name + "side") for v in found[1:]]
    return b("concat", *found, axis=2, loc=name + "streams"), made


def laurel(m: Blocks, i: int, h: Value) -> Value:
    """Return a residual of low rank, and the row it was made of."""
    name = f"layers.{i}.laurel_"
    y = m.norm(m.linear(m.linear(h, name + "down"), name + "up"), name + "norm")
    return m.b("add", h, y, loc=name + "residual")


def _sided(m: Blocks, i: int, x: Value) -> Value:
    """Return what layer `i` makes of its own row of the second table, behind a gate."""
    name = f"layers.{i}."
    x = m.b("mul", x, m.param(name + "altup.scale"), loc=name + "side") if m.has(name + "altup.scale") else x
    return sided(m, i, x)


def sided(m: Blocks, i: int, x: Value) -> Value:
    """Return what layer `i` makes of its own row of the second table, behind a gate of x."""
    name, side = f"layers.{i}.", m.c.side
    assert side is not None and m.aside is not None
    row = m.b(
        "slice",
        m.aside,
        start=(0, 0, i * side.width),
        size=(*x.shape[:2], side.width),
        step=(1, 1, 1),
        loc=name + "side",
    )
    gate = activated(m, name + "side_", m.linear(x, name + "side_gate"))
    return m.norm(m.linear(m.b("mul", gate, row, loc=name + "side"), name + "side_out"), name + "side_norm")


def _modes(m: Blocks, i: int, x: Value) -> Value:
    name = f"layers.{i}.altup."
    x = m.scaled(m.norm(x, name + "norm"), 1.0 / m.c.hidden, name + "router")
    return m.b("tanh", m.linear(x, name + "router"), loc=name + "router")


def _parts(m: Blocks, x: Value, at: str) -> list[Value]:
    batch, seq, width = x.shape
    hidden = width // m.c.streams
    return [
        m.b("slice", x, start=(0, 0, k * hidden), size=(batch, seq, hidden), step=(1, 1, 1), loc=at)
        for k in range(m.c.streams)
    ]


def _column(m: Blocks, x: Value, at: int, loc: str) -> Value:
    return m.b("slice", x, start=(0, 0, at), size=(*x.shape[:2], 1), step=(1, 1, 1), loc=loc)


def _size(m: Blocks, x: Value, at: str) -> Value:
    """Return the mean square of every row [batch, seq, 1], in f32."""
    x = x if x.dtype == WIDE else m.b("convert", x, dtype=WIDE, loc=at)
    total = m.b("reduce", m.b("square", x, loc=at), op="add", axes=(-1,), loc=at)
    return m.scaled(total, 1.0 / x.shape[-1], at)


def _sized(m: Blocks, x: Value, size: Value, at: str) -> Value:
    """Bring the rows of x to another mean square."""
    own = m.b("max", _size(m, x, at), m.number(1e-5, WIDE, at), loc=at)
    by = m.b("sqrt", m.b("div", size, own, loc=at), loc=at)
    return m.b("mul", x, by if x.dtype == WIDE else m.b("convert", by, dtype=x.dtype, loc=at), loc=at)
