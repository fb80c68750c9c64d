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


def feed_forward(m: Blocks, i: int, x: Value) -> Value:
    """Return the feed-forward part of layer `i`."""
    name = f"layers.{i}."
    if m.c.sparse[i]:
        return _experts(m, name, x)
    return _gated(m, name + "mlp.", x) if m.c.gated else _plain(m, name + "mlp.", x)


def _plain(m: Blocks, name: str, x: Value) -> Value:
    return m.out_linear(m.b(m.c.activation, m.linear(x, name + "up_proj"), loc=name + "act"), name + "down_proj")


def _gated(m: Blocks, name: str, x: Value) -> Value:
    gate, up = m.linear(x, name + "gate_proj"), m.linear(x, name + "up_proj")
    return m.out_linear(m.b("swiglu", gate, up, act=m.c.activation, loc=name + "act"), name + "down_proj")


def _experts(m: Blocks, name: str, x: Value) -> Value:
    c, e = m.c, m.c.experts
    assert e is not None
    batch, seq, hidden = x.shape
    macs = batch * seq * e.top_k * hidden * e.intermediate
    at = name + "experts."
    weights = routing_weights(m, name + "router", x)
    gate = m.linear(x, at + "gate_proj", macs)
    up = m.linear(x, at + "up_proj", macs)
    units = m.b("swiglu", gate, up, act=c.activation, loc=at + "act")
    # a product with zeros and ones repeats a weight over its expert's units: it fuses with the products beside it,
    # where a reshape to [tokens, experts, units] would copy the widest tensor of the model twice
    ones = m.derived(f"%spread/{e.count}x{e.intermediate}", "spread", {}, (e.count, e.count * e.intermediate))
    spread = m.b("gemm", m.b("reshape", weights, shape=(batch, seq, e.count), loc=at + "weights"), ones, useful_macs=0,
                 loc=at + "spread")  # fmt: skip
    units = m.b("mul", units, spread, loc=at + "weighted")
    y = m.out_linear(units, at + "down_proj", macs)
    return m.b("add", y, _gated(m, name + "shared_experts.", x), loc=at + "shared") if e.shared else y


def routing_weights(m: Blocks, name: str, x: Value) -> Value:
    """Return the weight of every expert for every token [batch * seq, experts], zero where it is not chosen.

    Scores are compared in f32: ties between rounded scores would choose other experts."""
    b, e = m.b, m.c.experts
    assert e is not None
    tokens = x.shape[0] * x.shape[1]
    flat = b("reshape", x, shape=(tokens, x.shape[2]), loc=name)
    if e.wide_router and m.dtype != ROUTING:
        flat = b("convert", flat, dtype=ROUTING, loc=name)
    logits = m.linear(flat, name, dtype=ROUTING if e.wide_router else None)
    if logits.dtype != ROUTING:
        logits = b("convert", logits, dtype=ROUTING, loc=name)
    scores = b("softmax", logits, axis=-1, loc=name) if e.scores == "softmax" else b("sigmoid", logits, loc=name)
    rank = b("add", scores, m.param(name + ".e_score_correction_bias", ROUTING), loc=name) if e.correction else scores
    if e.groups > 1:
        rank = _best_groups(m, name, rank)
    best, chosen = b.op("topk", rank, k=e.top_k, axis=-1, loc=name).results
    weights = b("gather_elements", scores, chosen, axis=-1, loc=name) if e.correction else best
    if e.normalise:
        weights = b("div", weights, b("reduce", weights, op="add", axes=(-1,), loc=name), loc=name)
    weights = m.scaled(weights, e.scale, name)
    none = m.derived(f"%no_expert/{tokens}x{e.count}", "fill", {"value": 0.0}, (tokens, e.count), ROUTING)
    weights = b("scatter", none, chosen, weights, axis=-1, loc=name)
    return weights if m.dtype == ROUTING else b("convert", weights, dtype=m.dtype, loc=name)


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
