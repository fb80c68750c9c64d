"""State-space layers whose every channel decays at rates of its own (Mamba, Gu and Dao 2023), and gated recurrent units (RG-LRU, De et
al. 2024).

May import: ir, frontend.hf. Must not: read files. All recurrences are in f32, over all tokens of a prompt at once (`prefix`).
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.convolution import causal_conv
from tx8fast.frontend.hf.feed_forward import activated
from tx8fast.frontend.hf.prefix import decayed
from tx8fast.frontend.hf.scan import WIDE, wide
from tx8fast.frontend.hf.states import Lru, Selective
from tx8fast.ir.core import Value


def selective(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a layer of x [batch, seq, hidden] with h_t = exp(dt_t A) h_(t-1) + dt_t x_t B_t and y_t = C_t h_t + D x_t, where h is
    [state, channels], and the rows and the state that it leaves behind."""
    c: Selective = m.c.keeper("selective")
    at, b, (batch, seq, _) = f"layers.{i}.selective", m.b, x.shape
    gate, values = (m.linear(x, f"{at}.{p}_proj") for p in ("gate", "value"))
    values, made = causal_conv(m, i, values, c.taps, at + ".conv", past)
    values = b("silu", values, loc=at + ".conv")
    step, written, read = (_normed(m, c, m.linear(values, f"{at}.{p}_proj"), f"{at}.{p}_norm")
                           for p in ("step", "written", "read"))  # fmt: skip
    step = b("gemm", step, m.param(at + ".rate_proj.weight"), trans_b=True, loc=at + ".rate_proj")
    step = b("add", wide(m, step, at), m.param(at + ".rate_proj.bias", WIDE), loc=at + ".step")
    step = b("softplus", step, loc=at + ".step")
    values, written, read = (wide(m, v, at) for v in (values, written, read))
    rate = b("neg", b("exp", m.param(at + ".A_log", WIDE), loc=at + ".rate"), loc=at + ".rate")
    by_channel, by_state = (batch, seq, 1, c.inner), (batch, seq, c.state, 1)
    left = b("mul", b("reshape", step, shape=by_channel, loc=at + ".left"), rate, loc=at + ".left")
    left = b("exp", left, loc=at + ".left")
    taken = b("reshape", b("mul", values, step, loc=at + ".taken"), shape=by_channel, loc=at + ".taken")
    added = b("mul", taken, b("reshape", written, shape=by_state, loc=at + ".taken"), loc=at + ".taken")
    if past is not None:
        before = b("reshape", past.past(i, "state"), shape=(batch, 1, c.state, c.inner), loc=at + ".state")
        states = b("add", b("mul", before, left, loc=at + ".state"), added, loc=at + ".state")
    else:
        states = decayed(m, left, added, at + ".states")
    last = _last(m, states, at)
    y = b("mul", states, b("reshape", read, shape=by_state, loc=at + ".seen"), loc=at + ".seen")
    y = b("reduce", y, op="add", axes=(2,), keepdims=False, loc=at + ".seen")
    y = b("add", y, b("mul", values, m.param(at + ".D", WIDE), loc=at + ".kept"), loc=at + ".kept")
    y = b("swiglu", wide(m, gate, at), y, act="silu", loc=at + ".gate")
    y = y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": last}


def _normed(m: Blocks, c: Selective, x: Value, name: str) -> Value:
    if not c.norms:
        return x
    gain = (m.param(name + ".weight"),) if c.norms == "gain" else ()
    return m.b("rmsnorm", x, *gain, eps=c.eps or m.c.norm_eps, loc=name)


def _last(m: Blocks, states: Value, at: str) -> Value:
    """Return the state behind the last token."""
    batch, seq, *lanes = states.shape
    if seq > 1:
        first, ones = (0, seq - 1, *(0,) * len(lanes)), (1,) * len(states.shape)
        states = m.b("slice", states, start=first, size=(batch, 1, *lanes), step=ones, loc=at + ".state")
    return m.b("reshape", states, shape=(batch, *lanes), loc=at + ".state")


def lru(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a gated recurrent layer of x [batch, seq, hidden] with a_t = exp(-8 r_t softplus(p)) and
    h_t = a_t h_(t-1) + sqrt(1 - a_t^2) g_t x_t, but h_0 = g_0 x_0, where r and g are gates, and the rows and the state that it leaves."""
    c: Lru = m.c.keeper("lru")
    at, b, (batch, seq, _) = f"layers.{i}.lru", m.b, x.shape
    side = activated(m, at + ".", m.linear(x, at + ".gate_proj"))
    values, made = causal_conv(m, i, m.linear(x, at + ".value_proj"), c.taps, at + ".conv", past)
    values = wide(m, values, at)
    taken, kept = (_block_gate(m, c, values, f"{at}.{p}_gate") for p in ("taken", "kept"))
    slope = b("softplus", m.param(at + ".slope", WIDE), loc=at + ".slope")
    decay = m.scaled(b("mul", kept, slope, loc=at + ".decay"), -8.0, at + ".decay")
    left = b("exp", decay, loc=at + ".left")
    one = m.number(1.0, WIDE, at)
    share = b("sub", one, b("exp", m.scaled(decay, 2.0, at + ".share"), loc=at + ".share"), loc=at + ".share")
    if past is None:
        place = m.derived(f"%places/{seq}", "arange", {}, (seq, 1), WIDE)
    else:
        place = b("convert", past.position, dtype=WIDE, loc=at + ".first")
        place = b("reshape", place, shape=(1, 1), loc=at + ".first")
    # the first token of all is taken up whole; no share is above one
    first = b("sub", one, b("min", place, one, loc=at + ".first"), loc=at + ".first")
    share = b("max", b("sqrt", share, loc=at + ".share"), first, loc=at + ".share")
    added = b("mul", b("mul", values, taken, loc=at + ".added"), share, loc=at + ".added")
    if past is None:
        states = decayed(m, left, added, at + ".states")
    else:
        before = b("reshape", past.past(i, "state"), shape=(batch, 1, c.width), loc=at + ".state")
        states = b("add", b("mul", before, left, loc=at + ".state"), added, loc=at + ".state")
    y = states if m.dtype == WIDE else b("convert", states, dtype=m.dtype, loc=at)
    y = b("mul", y, side, loc=at + ".gate")
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": _last(m, states, at)}


def _block_gate(m: Blocks, c: Lru, x: Value, name: str) -> Value:
    """The sigmoid of a product whose matrix is zero but for blocks on its diagonal, stored one below the other."""
    gate = m.b("contract", x, m.param(name + ".weight", WIDE), equation="b t (h i), (h i) o -> b t (h o)",
               sizes=("h", c.blocks, "i", c.width // c.blocks), loc=name)  # fmt: skip
    return m.b("sigmoid", m.b("add", gate, m.param(name + ".bias", WIDE), loc=name), loc=name)
