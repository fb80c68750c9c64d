"""Causal convolutions over the last few tokens, channel by channel, and the layers that consist of one.

May import: ir, frontend.hf. Must not: read files. What a step remembers are the rows in front of it [batch, taps - 1, channels].
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.states import ShortConv
from tx8fast.ir.core import Value

#: rows that the matrix engine's convolution takes at once
MAX_ROWS = 4096


def causal_conv(
    m: Blocks, i: int, x: Value, taps: int, name: str, past: Past, cache: str = "conv"
) -> tuple[Value, Made]:
    """Return the convolution of x [batch, seq, channels] with the slot `name`, and the last rows of x, which the next step finds in `cache`."""
    b, (batch, seq, channels) = m.b, x.shape
    if past is not None:
        rows = b("concat", past.past(i, cache), x, axis=1, loc=name)
    else:
        rows = b("pad", x, lo=(0, taps - 1, 0), hi=(0, 0, 0), loc=name)
    last = b("slice", rows, start=(0, seq, 0), size=(batch, taps - 1, channels), step=(1, 1, 1), loc=name + ".rows")
    bias = (m.param(name + ".bias"),) if m.has(name + ".bias") else ()
    pieces = []
    for at in range(0, seq, MAX_ROWS - taps + 1):
        size = min(seq - at, MAX_ROWS - taps + 1)
        piece = rows
        if size < seq:
            piece = b(
                "slice", rows, start=(0, at, 0), size=(batch, size + taps - 1, channels), step=(1, 1, 1), loc=name
            )
        piece = b("reshape", piece, shape=(batch, size + taps - 1, 1, channels), loc=name)
        piece = b("conv", piece, m.param(name + ".weight"), *bias, groups=channels, loc=name)
        pieces.append(b("reshape", piece, shape=(batch, size, channels), loc=name))
    y = pieces[0] if len(pieces) == 1 else b("concat", *pieces, axis=1, loc=name)
    return y, {f"present.{i}.{cache}": last}


def short_conv(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Gate, convolution, gate (LFM2)."""
    c: ShortConv = m.c.keeper("conv")
    at = f"layers.{i}.conv"
    before, after, x = (m.linear(x, f"{at}.{p}_proj") for p in ("before", "after", "value"))
    y, made = causal_conv(m, i, m.b("mul", before, x, loc=at + ".gate"), c.taps, at + ".conv", past)
    return m.linear(m.b("mul", after, y, loc=at + ".gate"), at + ".out_proj"), made
