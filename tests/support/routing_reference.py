"""Routed experts, token by token: the oracle of mixture layers."""

from __future__ import annotations

import numpy as np


def mixture(model, x, name):
    """Return the feed-forward part of a layer of `model` (a `FamilyReference`) on x (B, S, H)."""
    c, kind = model.c, model.kind
    router = name + ("block_sparse_moe.gate" if kind == "mixtral" else "mlp.gate")
    out = np.zeros_like(x)
    for b in range(x.shape[0]):
        for s in range(x.shape[1]):
            token = x[b, s][None, None]
            logits = (model.w[router + ".weight"] @ x[b, s]).ravel()
            bias = model.w.get(router + ".e_score_correction_bias")
            for expert, weight in choose(c, kind, logits, bias):
                if kind == "mixtral":
                    e = f"{name}block_sparse_moe.experts.{expert}."
                    g = model.linear(token, e + "w1")
                    y = model.linear(g / (1 + np.exp(-g)) * model.linear(token, e + "w3"), e + "w2")
                else:
                    y = model._gate(token, f"{name}mlp.experts.{expert}.")
                out[b, s] += weight * y[0, 0]
    if c.get("n_shared_experts"):
        out = out + model._gate(x, name + "mlp.shared_experts.")
    return out


def choose(c, kind, logits, bias):
    """Return (expert, weight) of the experts one token uses."""
    k = c["num_experts_per_tok"]
    soft = np.exp(logits - logits.max())
    soft /= soft.sum()
    if kind in ("mixtral", "qwen3_moe"):
        best = sorted(range(len(soft)), key=lambda e: -soft[e])[:k]
        total = sum(soft[e] for e in best) if kind == "mixtral" or c["norm_topk_prob"] else 1.0
        return [(e, soft[e] / total) for e in best]
    scores = soft if kind == "deepseek_v2" else 1 / (1 + np.exp(-logits))
    rank = scores if bias is None else scores + bias
    allowed = list(range(len(rank)))
    if kind == "deepseek_v3" or c["topk_method"] == "group_limited_greedy":
        size = len(rank) // c["n_group"]
        groups = [list(range(g * size, (g + 1) * size)) for g in range(c["n_group"])]
        two = kind == "deepseek_v3"
        value = lambda g: sum(sorted((rank[e] for e in g), reverse=True)[: 2 if two else 1])  # noqa: E731
        allowed = [e for g in sorted(groups, key=value, reverse=True)[: c["topk_group"]] for e in g]
    best = sorted(allowed, key=lambda e: -rank[e])[:k]
    total = sum(scores[e] for e in best) if kind == "deepseek_v3" and c["norm_topk_prob"] else 1.0
    return [(e, scores[e] / total * c["routed_scaling_factor"]) for e in best]
