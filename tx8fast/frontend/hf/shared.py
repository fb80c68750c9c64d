"""Transformer layers that several places of a model share, in front of scans (Zamba, Glorioso et al. 2024).

May import: ir, frontend.hf. Must not: read files. They see the stream and the embedding side by side; every place has a matrix out of the layer, and may have
residuals of low rank beside the shared matrices (Zamba 2).
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past, attended, remember, results
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value


def shared_layer(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return what the shared layer gives at place `i` to x [batch, seq, hidden], and the keys and values that it remembers there."""
    c, at = m.c, f"layers.{i}.shared"
    assert m.embedded is not None
    both = m.norm(m.b("concat", x, m.embedded, axis=2, loc=at), at + ".attn_norm")
    q, k, v = (_adapted(m, both, f"{at}.{p}_proj") for p in "qkv")
    q, k = (
        m.rope(y, c.rope_of[i], heads, f"{at}.{p}_rope") for y, heads, p in ((q, c.heads, "q"), (k, c.kv_heads, "k"))
    )
    k, v = made = remember(m, i, (k, v), past, at)
    y = m.norm(m.linear(attended(m, i, q, k, v, past, at), at + ".o_proj"), at + ".mlp_norm")
    gate, up = (_adapted(m, y, f"{at}.{p}_proj") for p in ("gate", "up"))
    y = m.linear(m.b("swiglu", gate, up, act=c.activation, loc=at + ".act"), at + ".down_proj")
    return m.linear(y, at + ".out_proj"), results(m, i, made)


def _adapted(m: Blocks, x: Value, name: str) -> Value:
    y = m.linear(x, name)
    if not m.has(name + "_down.weight"):
        return y
    return m.b("add", y, m.linear(m.linear(x, name + "_down"), name + "_up"), loc=name)
