"""The feed-forward part of a layer: plain, gated, or routed experts.

May import: ir, frontend.hf. Must not: read files.

Experts stand side by side in one tall and one wide matrix: the layer is a gated product over the hidden units
of all experts, and each expert's units are multiplied by its routing weight, zero where it was not chosen. So a
layer has a fixed number of ops for any number of experts, at the cost of computing those not chosen.
"""

from __future__ import annotations

from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value

ROUTING = "f32"
#: activations that one op applies and multiplies
GATES = ("silu", "gelu", "gelu_tanh", "relu", "sigmoid")


def feed_forward(m: Blocks, i: int, x: Value) -> Value:
    """Return the feed-forward part of layer `i`."""
    name = f"layers.{i}."
    if m.c.sparse[i] and not beside(m):
        return _experts(m, name, x, x)
    return (
        _gated(m, name + "mlp.", x, m.c.sparsity[i] if m.c.sparsity else None)
        if m.c.gated
        else _plain(m, name + "mlp.", x)
    )


def beside(m: Blocks) -> bool:
    return m.c.experts is not None and m.c.experts.beside


def experts_beside(m: Blocks, i: int, x: Value, y: Value) -> Value:
    """Add to what the plain part gives, y, what experts give of the stream x; both behind norms of their own."""
    name = f"layers.{i}."
    z = _experts(m, name, m.norm(x, name + "experts_norm"), x)
    return m.b(
        "add", m.norm(y, name + "mlp_own_norm"), m.norm(z, name + "experts_post_norm"), loc=name + "experts_residual"
    )


def _plain(m: Blocks, name: str, x: Value) -> Value:
    return m.out_linear(activated(m, name, m.linear(x, name + "up_proj")), name + "down_proj")


def activated(m: Blocks, name: str, x: Value) -> Value:
    """Return the family's activation of x."""
    at, kind = name + "act", m.c.activation
    if kind == "relu2":
        return m.b("square", m.b("relu", x, loc=at), loc=at)
    if kind == "quick_gelu":
        return m.b("mul", x, m.b("sigmoid", m.scaled(x, 1.702, at), loc=at), loc=at)
    return _xielu(m, at, x) if kind == "xielu" else m.b(kind, x, loc=at)


def _xielu(m: Blocks, at: str, x: Value) -> Value:
    """x > 0: p x^2 + x / 2, else n (exp(x) - 1 - x) + x / 2, where p = softplus(alpha_p), n = 1/2 + softplus(alpha_n)
    (Huang and Schlag 2024). In f32: the difference of numbers near one would lose what a half format has."""
    b, dtype = m.b, x.dtype
    x = x if dtype == ROUTING else b("convert", x, dtype=ROUTING, loc=at)
    p, n = (b("softplus", m.param(f"{at}.alpha_{side}", ROUTING), loc=at) for side in "pn")
    half, one, zero = (m.number(value, ROUTING, at) for value in (0.5, 1.0, 0.0))
    n = b("add", n, half, loc=at)
    low = b("min", x, zero, loc=at)
    bent = b("sub", b("sub", b("exp", low, loc=at), one, loc=at), low, loc=at)
    y = b("add", b("mul", b("square", b("relu", x, loc=at), loc=at), p, loc=at), b("mul", bent, n, loc=at), loc=at)
    y = b("add", y, b("mul", x, half, loc=at), loc=at)
    return y if dtype == ROUTING else b("convert", y, dtype=dtype, loc=at)


def _gated(m: Blocks, name: str, x: Value, above: float | None = None) -> Value:
    gate, up = m.linear(x, name + "gate_proj"), m.linear(x, name + "up_proj")
    gate = _outstanding(m, name + "act", gate, above) if above is not None else gate
    return m.out_linear(_gate(m, name, gate, up), name + "down_proj")


def _outstanding(m: Blocks, at: str, x: Value, above: float) -> Value:
    """What every number of a row exceeds the row's mean and so many of its standard deviations by, else zero."""
    b, dtype, share = m.b, x.dtype, 1.0 / x.shape[-1]
    x = x if dtype == ROUTING else b("convert", x, dtype=ROUTING, loc=at)
    x = b("sub", x, m.scaled(b("reduce", x, op="add", axes=(-1,), loc=at), share, at), loc=at)
    spread = m.scaled(b("reduce", b("square", x, loc=at), op="add", axes=(-1,), loc=at), share, at)
    x = b("relu", b("sub", x, m.scaled(b("sqrt", spread, loc=at), above, at), loc=at), loc=at)
    return x if dtype == ROUTING else b("convert", x, dtype=dtype, loc=at)


def _gate(m: Blocks, name: str, gate: Value, up: Value) -> Value:
    """act(gate) * up, or its clamped form."""
    b, c, at = m.b, m.c, name + "act"
    if c.activation not in GATES:
        return b("mul", activated(m, name, gate), up, loc=at)
    if not c.gate_limit:
        return b("swiglu", gate, up, act=c.activation, loc=at)
    gate = b("min", gate, m.number(c.gate_limit, gate.dtype, at), loc=at)
    up = b("clamp", up, lo=-c.gate_limit, hi=c.gate_limit, loc=at)
    glu = b("mul", gate, b("sigmoid", m.scaled(gate, c.gate_slope, at), loc=at), loc=at)
    return b("mul", b("add", up, m.number(1.0, up.dtype, at), loc=at), glu, loc=at)


def _experts(m: Blocks, name: str, x: Value, asked: Value) -> Value:
    """What experts give of x; the router sees `asked`."""
    e = m.c.experts
    assert e is not None
    batch, seq, hidden = x.shape
    macs = batch * seq * e.top_k * hidden * e.intermediate
    at = name + "experts."
    weights = m.b(
        "reshape", routing_weights(m, name + "router", asked), shape=(batch, seq, e.count), loc=at + "weights"
    )
    gate = m.linear(x, at + "gate_proj", macs)
    up = m.linear(x, at + "up_proj", macs)
    # a product with zeros and ones repeats a weight over its expert's units: it fuses with the products beside it,
    # where a reshape to [tokens, experts, units] would copy the widest tensor of the model twice
    ones = m.derived(f"%spread/{e.count}x{e.intermediate}", "spread", {}, (e.count, e.count * e.intermediate))
    spread = m.b("gemm", weights, ones, useful_macs=0, loc=at + "spread")
    if e.weigh_inputs:
        gate, up = (m.b("mul", v, spread, loc=at + "weighted") for v in (gate, up))
    units = _gate(m, at, gate, up)
    units = units if e.weigh_inputs else m.b("mul", units, spread, loc=at + "weighted")
    y = m.out_linear(units, at + "down_proj", macs)
    if e.bias:
        shares = m.b("gemm", weights, m.param(at + "down_bias.weight"), useful_macs=0, loc=at + "down_bias")
        y = m.b("add", y, shares, loc=at + "down_bias")
    if not e.shared:
        return y
    shared = _gated(m, name + "shared_experts.", x)
    if e.shared_gate:
        gate = m.b("sigmoid", m.linear(x, name + "shared_gate"), loc=at + "shared_gate")
        shared = m.b("mul", shared, gate, loc=at + "shared_gate")
    y = m.b("add", y, shared, loc=at + "shared")
    return m.scaled(y, 0.5, at + "shared") if e.shared_mean else y


def routing_weights(m: Blocks, name: str, x: Value) -> Value:
    """Return the weight of every expert for every token [batch * seq, experts], zero where it is not chosen.

    Scores are compared in f32: ties between rounded scores would choose other experts."""
    b, e = m.b, m.c.experts
    assert e is not None
    tokens = x.shape[0] * x.shape[1]
    flat = b("reshape", x, shape=(tokens, x.shape[2]), loc=name)
    if e.router_norm:
        flat = b("mul", m.normalised(flat, name), m.param(name + "_scale"), loc=name)
        flat = m.scaled(flat, x.shape[2] ** -0.5, name)
    if e.wide_router and m.dtype != ROUTING:
        flat = b("convert", flat, dtype=ROUTING, loc=name)
    logits = m.linear(flat, name, dtype=ROUTING if e.wide_router else None)
    if logits.dtype != ROUTING:
        logits = b("convert", logits, dtype=ROUTING, loc=name)
    none = m.derived(f"%no_expert/{tokens}x{e.count}", "fill", {"value": 0.0}, (tokens, e.count), ROUTING)
    if e.jitter >= 0:
        weights = _drawn(m, name, logits, none)
        return weights if m.dtype == ROUTING else b("convert", weights, dtype=m.dtype, loc=name)
    scores = b("softmax", logits, axis=-1, loc=name) if e.scores == "softmax" else b("sigmoid", logits, loc=name)
    rank = b("add", scores, m.param(name + ".e_score_correction_bias", ROUTING), loc=name) if e.correction else scores
    if e.groups > 1:
        rank = _best_groups(m, name, rank)
    best, chosen = b.op("topk", rank, k=e.top_k, axis=-1, loc=name).results
    weights = b("gather_elements", scores, chosen, axis=-1, loc=name) if e.correction else best
    if e.normalise:
        total = b("reduce", weights, op="add", axes=(-1,), loc=name)
        total = b("add", total, m.number(e.floor, ROUTING, name), loc=name) if e.floor else total
        total = b("max", total, m.number(e.least, ROUTING, name), loc=name) if e.least else total
        weights = b("div", weights, total, loc=name)
    weights = m.scaled(weights, e.scale, name)
    weights = b("scatter", none, chosen, weights, axis=-1, loc=name)
    if e.expert_scale:
        weights = b("mul", weights, m.param(name.replace("router", "expert_scale"), ROUTING), loc=name)
    return weights if m.dtype == ROUTING else b("convert", weights, dtype=m.dtype, loc=name)


def _drawn(m: Blocks, name: str, logits: Value, none: Value) -> Value:
    """Choose one expert after another: each has its softmax weight among those not chosen before whose logit is within
    2 * jitter of the best, relative to the larger of the best and the logit's magnitude (sparse mixer, Liu et al. 2024)."""
    b, e = m.b, m.c.experts
    assert e is not None
    tokens = logits.shape[0]
    limit, gone = m.number(2 * e.jitter, ROUTING, name), m.number(-1e30, ROUTING, name)
    hidden = m.derived(f"%chosen/{tokens}", "fill", {"value": -1e30}, (tokens, 1), ROUTING)
    left, total = logits, None
    for _ in range(e.top_k):
        best, chosen = b.op("topk", left, k=1, axis=-1, loc=name).results
        size = b("max", b("abs", logits, loc=name), best, loc=name)
        far = b("gt", b("div", b("sub", best, logits, loc=name), size, loc=name), limit, loc=name)
        share = b("softmax", b("select", far, gone, left, loc=name), axis=-1, loc=name)
        share = b("gather_elements", share, chosen, axis=-1, loc=name)
        part = b("scatter", none, chosen, share, axis=-1, loc=name)
        total = part if total is None else b("add", total, part, loc=name)
        left = b("scatter", left, chosen, hidden, axis=-1, loc=name)
    assert total is not None
    return total


def _best_groups(m: Blocks, name: str, rank: Value) -> Value:
    """Hide the experts outside of each token's best groups."""
    b, e = m.b, m.c.experts
    assert e is not None
    tokens, count = rank.shape
    grouped = b("reshape", rank, shape=(tokens, e.groups, count // e.groups), loc=name)
    if e.group_score == "max":
        score = b("reduce", grouped, op="max", axes=(-1,), loc=name)
    else:
        two = b.op("topk", grouped, k=min(2, count // e.groups), axis=-1, loc=name).results[0]
        score = b("reduce", two, op="add", axes=(-1,), loc=name)
    score = b("reshape", score, shape=(tokens, e.groups), loc=name)
    kept = b.op("topk", score, k=e.top_groups, axis=-1, loc=name).results[1]
    hidden = m.derived(f"%no_group/{tokens}x{e.groups}", "fill", {"value": -1e30}, (tokens, e.groups), ROUTING)
    shown = m.derived(f"%group/{tokens}x{e.top_groups}", "fill", {"value": 0.0}, (tokens, e.top_groups), ROUTING)
    penalty = b("scatter", hidden, kept, shown, axis=-1, loc=name)
    penalty = b("reshape", penalty, shape=(tokens, e.groups, 1), loc=name)
    return b("reshape", b("add", grouped, penalty, loc=name), shape=(tokens, count), loc=name)
