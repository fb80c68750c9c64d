"""A plain numpy decoder of the Llama family, the oracle of front end and simulator tests.

Independent of the product: follows the published model definitions with explicit head axes, repeated
key/value heads, rotate-half rotation and boolean masks. Weights are given by checkpoint name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


class LlamaReference:
    """`config`: the JSON object of config.json. `weights`: name -> array, widened to `dtype` here."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, np.ndarray], dtype=np.float64) -> None:
        self.config = config
        self.dtype = dtype
        self.weights = {k: np.asarray(v).astype(np.float32).astype(dtype) for k, v in weights.items()}
        self.kind = config["model_type"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        default = 128 if self.kind == "qwen3" else config["hidden_size"] // self.heads
        self.head_dim = config.get("head_dim") or default

    def prefill(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """`ids` (B, S) -> logits (B, S, V) and present.{i}.key / .value (B, S, kv_heads * head_dim)."""
        return self._run(ids, np.arange(ids.shape[1]), None)

    def decode(self, ids: np.ndarray, position: int, past: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One token per row: `ids` (B, 1) is token `position`; the cache (B, P, ..) is valid in [0, position)."""
        return self._run(ids, np.array([position]), past)

    def _run(self, ids, positions, past):
        c, w = self.config, self.weights
        x = w["model.embed_tokens.weight"][ids]
        out = {}
        for i in range(c["num_hidden_layers"]):
            name = f"model.layers.{i}."
            cache = None if past is None else (past[f"past.{i}.key"], past[f"past.{i}.value"])
            h = self._norm(x, w[name + "input_layernorm.weight"])
            y, key, value = self._attention(h, name + "self_attn.", positions, cache, self._window(i))
            out[f"present.{i}.key"], out[f"present.{i}.value"] = key, value
            x = x + y
            h = self._norm(x, w[name + "post_attention_layernorm.weight"])
            gate = self._act(self._linear(h, name + "mlp.gate_proj"))
            x = x + self._linear(gate * self._linear(h, name + "mlp.up_proj"), name + "mlp.down_proj")
        x = self._norm(x, w["model.norm.weight"])
        head = "model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight"
        return {"logits": np.einsum("bsd,vd->bsv", x, w[head]), **out}

    def _linear(self, x, name):
        y = np.einsum("bsi,oi->bso", x, self.weights[name + ".weight"])
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def _norm(self, x, gamma):
        variance = (x * x).sum(-1, keepdims=True) / x.shape[-1]
        return gamma * (x / np.sqrt(variance + self.config.get("rms_norm_eps", 1e-6)))

    def _act(self, x):
        kind = self.config.get("hidden_act", "silu")
        if kind == "silu":
            return x / (1 + np.exp(-x))
        if kind == "gelu":
            return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        if kind == "gelu_pytorch_tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        raise ValueError(kind)

    def _attention(self, x, name, positions, cache, window):
        batch, seq, _ = x.shape

        def heads(y, n):
            return y.reshape(batch, seq, n, self.head_dim).transpose(0, 2, 1, 3)

        q = heads(self._linear(x, name + "q_proj"), self.heads)
        k = heads(self._linear(x, name + "k_proj"), self.kv_heads)
        v = heads(self._linear(x, name + "v_proj"), self.kv_heads)
        if name + "q_norm.weight" in self.weights:
            q = self._norm(q, self.weights[name + "q_norm.weight"])
            k = self._norm(k, self.weights[name + "k_norm.weight"])
        q, k = self._rotate(q, positions), self._rotate(k, positions)
        if cache is None:
            keys, values, slots = k, v, positions
        else:
            keys, values = (self._split(np.array(t, self.dtype)) for t in cache)
            keys[:, :, positions], values[:, :, positions] = k, v
            slots = np.arange(keys.shape[2])
        groups = self.heads // self.kv_heads
        wide_k, wide_v = np.repeat(keys, groups, axis=1), np.repeat(values, groups, axis=1)
        scores = np.einsum("bhsd,bhtd->bhst", q, wide_k) / math.sqrt(self.head_dim)
        seen = slots[None, :] <= positions[:, None]
        if window:
            seen &= positions[:, None] - slots[None, :] < window
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        y = np.einsum("bhst,bhtd->bshd", p, wide_v).reshape(batch, seq, -1)
        return self._linear(y, name + "o_proj"), self._join(keys), self._join(values)

    def _split(self, t):
        batch, slots, _ = t.shape
        return t.reshape(batch, slots, self.kv_heads, self.head_dim).transpose(0, 2, 1, 3).copy()

    def _join(self, t):
        return t.transpose(0, 2, 1, 3).reshape(t.shape[0], t.shape[2], -1)

    def _window(self, layer):
        c = self.config
        if self.kind == "mistral":
            return c.get("sliding_window")
        if self.kind in ("qwen2", "qwen3") and c.get("use_sliding_window"):
            return c["sliding_window"] if layer >= c.get("max_window_layers", 28) else None
        return None

    def _frequencies(self):
        c = self.config
        theta, dim = c.get("rope_theta", 10000.0), self.head_dim
        freqs = [1.0 / theta ** (2 * j / dim) for j in range(dim // 2)]
        scaling = c.get("rope_scaling")
        if not scaling:
            return np.array(freqs)
        if scaling["rope_type"] == "linear":
            return np.array(freqs) / scaling["factor"]
        original = scaling["original_max_position_embeddings"]
        low_wave = original / scaling["low_freq_factor"]
        high_wave = original / scaling["high_freq_factor"]
        result = []
        for f in freqs:
            wave = 2 * math.pi / f
            if wave < high_wave:
                result.append(f)
            elif wave > low_wave:
                result.append(f / scaling["factor"])
            else:
                a, b = scaling["low_freq_factor"], scaling["high_freq_factor"]
                smooth = (original / wave - a) / (b - a)
                result.append((1 - smooth) * f / scaling["factor"] + smooth * f)
        return np.array(result)

    def _rotate(self, x, positions):
        angle = np.outer(positions, self._frequencies())
        cos, sin = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        a, b = x[..., : self.head_dim // 2], x[..., self.head_dim // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
