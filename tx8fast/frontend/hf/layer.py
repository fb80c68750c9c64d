"""One layer of a transformer: what mixes tokens, the feed-forward part, and the norms and residual sums around them.

May import: ir, frontend.hf. Must not: read files. Every layer of the same kind emits the same op sequence, so that repeated
layers can be outlined.
"""

from __future__ import annotations

from tx8fast.frontend.hf.altup import corrected, laurel, sided
from tx8fast.frontend.hf.attention import Made, Past, cross_attention
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.feed_forward import beside, experts_beside, feed_forward
from tx8fast.frontend.hf.mixers import MIXERS
from tx8fast.frontend.hf.shared import shared_layer
from tx8fast.frontend.hf.time_mix import channel_mix
from tx8fast.ir.core import Value


def layer(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Emit layer `i` on x [batch, seq, streams * hidden]; return x and what the layer remembers, by the name of the result."""
    if m.c.streams > 1:
        return corrected(m, i, x, lambda first: _layer(m, i, first, past))
    return _layer(m, i, x, past)


def _layer(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    c, name = m.c, f"layers.{i}."
    norm = (lambda v, _: m.narrow(v)) if c.post_norm else lambda v, at: m.norm(m.narrow(v), at)
    if c.mixer(i) == "none":
        return _fed(m, i, x, past)
    source, lent = x, {}
    if c.shared is not None and c.shared.lender[i] >= 0:
        y, lent = shared_layer(m, i, x, past)
        source = m.added(x, y, name + "shared_residual")
    h = norm(source, name + "attn_norm")
    if c.stream is not None:
        x = h
    y, made = MIXERS[c.mixer(i)](m, i, h, past)
    made = lent | made
    y = _channels(m, m.norm(y, name + "attn_post_norm"), name + "attn_scale")
    if c.parallel:
        z = feed_forward(m, i, h if c.one_norm else norm(x, name + "mlp_norm"))
        first, last = (z, x) if c.parts_first else (x, z)
        return m.b("add", m.b("add", first, y, loc=name + "attn_residual"), last, loc=name + "mlp_residual"), made
    if c.stream is not None:
        x, y = _weighed(
            m, x, y, c.stream.attention if c.mixer(i) == "attention" else c.stream.others, name + "attn_residual"
        )
    x = m.added(x, m.scaled(y, c.residual_scale, name + "attn_residual"), name + "attn_residual")
    if c.laurel:
        x = m.scaled(m.b("add", x, laurel(m, i, h), loc=name + "laurel"), 2.0**-0.5, name + "laurel")
    if c.post_norm:
        x = m.norm(x, name + "attn_norm")
    if c.cross:
        y, crossed = cross_attention(m, i, norm(x, name + "cross_norm"), past)
        x, made = m.added(x, y, name + "cross_residual"), made | crossed
        x = m.norm(x, name + "cross_norm") if c.post_norm else x
    if c.fed and not c.fed[i]:
        return x, made
    x, kept = _fed(m, i, x, past)
    return x, made | kept


def _fed(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Add the feed-forward part of layer `i`; return what it remembers, too."""
    c, name = m.c, f"layers.{i}."
    y = m.narrow(x)
    y = y if c.post_norm else m.norm(y, name + "mlp_norm")
    x = y if c.stream is not None else x
    y, made = channel_mix(m, i, y, past) if c.channel_mix else (feed_forward(m, i, y), {})
    if c.sparse[i] and beside(m):
        y = experts_beside(m, i, m.narrow(x), y)
    y = _channels(m, m.norm(y, name + "mlp_post_norm"), name + "mlp_scale")
    if c.stream is not None:
        x, y = _weighed(m, x, y, c.stream.fed, name + "mlp_residual")
    x = m.added(x, m.scaled(y, c.residual_scale, name + "mlp_residual"), name + "mlp_residual")
    if m.aside is not None and c.streams == 1:
        x = m.added(x, sided(m, i, m.narrow(x)), name + "side_residual")
    x = _channels(m, x, name + "factor")
    return (m.norm(x, name + "mlp_norm") if c.post_norm else x), made


def _weighed(m: Blocks, x: Value, y: Value, by: tuple[float, float], name: str) -> tuple[Value, Value]:
    return m.scaled(x, by[0], name), m.scaled(y, by[1], name)


def _channels(m: Blocks, x: Value, name: str) -> Value:
    """Multiply by learned factors per channel, where the family has them."""
    return m.b("mul", x, m.param(name), loc=name) if m.has(name) else x
