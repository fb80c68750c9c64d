"""Attention without a softmax whose state decays at a fixed pace per head (lightning attention, Qin et al. 2024).

May import: ir, frontend.hf. Must not: read files. It is a state-space scan whose steps are all one and whose every head reads and writes
for itself: `scan` computes it.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.scan import WIDE, prompt, step, wide
from tx8fast.frontend.hf.states import Lightning, Scan
from tx8fast.ir.core import Value

#: of the norm behind it, which has the library's default
EPS = 1e-6


def lightning(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a layer of x [batch, seq, hidden] with S_t = e^-s S_(t-1) + v_t k_t and y_t = S_t q_t, and the state that it leaves behind."""
    c: Lightning = m.c.keeper("lightning")
    at, b, (batch, seq, _) = f"layers.{i}.lightning", m.b, x.shape
    query, key, value = (
        wide(m, b("silu", m.linear(x, f"{at}.{p}_proj"), loc=at + ".act"), at) for p in ("query", "key", "value")
    )
    slopes = [-slope for slope in c.slopes(i)]
    decay = m.derived(f"%slopes/{i}/{batch}x{seq}", "fill", {"value": slopes}, (batch, seq, c.heads), WIDE)
    as_scan = Scan(c.heads, c.width, c.width, c.heads, 1, c.chunk)
    if past is None:
        y, state = prompt(m, as_scan, value, decay, key, query, at)
    else:
        y, state = step(m, as_scan, value, decay, key, query, past.past(i, "state"), at)
    y = b("rmsnorm", y, m.param(at + ".norm.weight", WIDE), eps=EPS, loc=at + ".norm")
    y = y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)
    y = b("mul", y, b("sigmoid", m.linear(x, at + ".gate_proj"), loc=at + ".gate"), loc=at + ".gate")
    return m.linear(y, at + ".out_proj"), {f"present.{i}.state": state}
