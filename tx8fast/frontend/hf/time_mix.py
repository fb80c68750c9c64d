"""Layers that average values over time and see the token before each (RWKV 4, Peng et al. 2023).

May import: ir, frontend.hf. Must not: read files.

With w = exp(decay): a_t = e^-w a_(t-1) + e^k_t v_t, b_t = e^-w b_(t-1) + e^k_t and y_t = (a_(t-1) + e^(u + k_t) v_t) / (b_(t-1) + e^(u + k_t)).
Both sums are kept over the largest exponent so far. All of it in f32, over all tokens of a prompt at once (`prefix`).
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.prefix import Parts, prefixes
from tx8fast.frontend.hf.scan import FAR, WIDE, wide
from tx8fast.frontend.hf.states import TimeMix
from tx8fast.ir.core import Value

STATES = ("numerator", "denominator", "largest")


def time_mix(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the averages that layer `i` takes of x [batch, seq, hidden], and what it remembers."""
    c: TimeMix = m.c.keeper("time_mix")
    at, b, (batch, seq, _) = f"layers.{i}.time_mix", m.b, x.shape
    mixed, made = _mixed(m, i, x, past, "row", at, ("key", "value", "receptance"))
    key, value, gate = (
        m.linear(v, f"{at}.{p}_proj") for v, p in zip(mixed, ("key", "value", "receptance"), strict=True)
    )
    gate = b("sigmoid", gate, loc=at + ".gate")
    key, value = wide(m, key, at), wide(m, value, at)
    decay = b("neg", b("exp", m.param(at + ".decay", WIDE), loc=at + ".decay"), loc=at + ".decay")
    bonus = b("add", key, m.param(at + ".first", WIDE), loc=at + ".first")
    shape = (batch, seq, c.width)
    own = (value, m.derived(f"%filled/1.0/{shape}", "fill", {"value": 1.0}, shape, WIDE), key)

    def join(before: Parts, after: Parts, span: int) -> Parts:
        later = b("add", before[2], m.scaled(decay, float(span), at + ".decay"), loc=at + ".later")
        return _joined(m, (*before[:2], later), after, at + ".joined")

    if past is None:
        upto = prefixes(m, own, join, at + ".states")
        empty = (0.0, 0.0, FAR)
        before = tuple(_behind(m, v, value, at) for v, value in zip(upto, empty, strict=True))
        last = tuple(
            b("slice", v, start=(0, seq - 1, 0), size=(batch, 1, c.width), step=(1, 1, 1), loc=at + ".state")
            for v in upto
        )
    else:
        before = tuple(b("reshape", past.past(i, name), shape=shape, loc=at + ".state") for name in STATES)
        last = join(before, own, 1)
    seen = _joined(m, before, (value, own[1], bonus), at + ".seen")
    y = b("div", seen[0], seen[1], loc=at + ".average")
    y = b("mul", gate, y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at), loc=at + ".gate")
    kept = {
        f"present.{i}.{name}": b("reshape", v, shape=(batch, c.width), loc=at + ".state")
        for name, v in zip(STATES, last, strict=True)
    }
    return m.linear(y, at + ".out_proj"), made | kept


def channel_mix(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the feed-forward part of layer `i`, which sees the token before, and what it remembers."""
    at, b = f"layers.{i}.mlp", m.b
    (units, gate), made = _mixed(m, i, x, past, "fed_row", at, ("key", "receptance"))
    units = b("square", b("relu", m.linear(units, at + ".up_proj"), loc=at + ".act"), loc=at + ".act")
    gate = b("sigmoid", m.linear(gate, at + ".receptance_proj"), loc=at + ".gate")
    return b("mul", gate, m.out_linear(units, at + ".down_proj"), loc=at + ".gate"), made


def _mixed(
    m: Blocks, i: int, x: Value, past: Past, cache: str, at: str, parts: tuple[str, ...]
) -> tuple[list[Value], Made]:
    """Return blends of every token with the one before by learned shares, one per part, and the last token."""
    b, (batch, seq, hidden) = m.b, x.shape
    last = (
        b("slice", x, start=(0, seq - 1, 0), size=(batch, 1, hidden), step=(1, 1, 1), loc=at + ".row") if seq > 1 else x
    )
    before = past.past(i, cache) if past is not None else _behind(m, x, 0.0, at)
    news = b("sub", x, before, loc=at + ".mix")
    mixed = [
        b("add", before, b("mul", news, m.param(f"{at}.{part}_mix"), loc=at + ".mix"), loc=at + ".mix")
        for part in parts
    ]
    return mixed, {f"present.{i}.{cache}": last}


def _behind(m: Blocks, x: Value, first: float, at: str) -> Value:
    """Move all tokens one place on; `first` takes the place of the first."""
    batch, seq, width = x.shape
    row = m.derived(f"%filled/{first}/{batch}x{width}/{x.dtype}", "fill", {"value": first}, (batch, 1, width), x.dtype)
    if seq == 1:
        return row
    x = m.b("slice", x, start=(0, 0, 0), size=(batch, seq - 1, width), step=(1, 1, 1), loc=at + ".before")
    return m.b("concat", row, x, axis=1, loc=at + ".before")


def _joined(m: Blocks, one: Parts, two: Parts, at: str) -> Parts:
    """Add sums that are kept over exponents: (numerator, denominator, exponent) each."""
    b = m.b
    top = b("max", one[2], two[2], loc=at)
    shares = [b("exp", b("sub", v[2], top, loc=at), loc=at) for v in (one, two)]
    sums = (
        b("add", *(b("mul", share, v[k], loc=at) for share, v in zip(shares, (one, two), strict=True)), loc=at)
        for k in (0, 1)
    )
    return *sums, top
