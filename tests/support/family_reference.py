"""Plain numpy forward passes of every supported family, the oracle of front end and simulator tests.

Written from the published model definitions, with explicit head axes, boolean masks and a loop over tokens and
experts; independent of the product. Tensors are looked up by checkpoint name. float64 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support.routing_reference import mixture

Array = np.ndarray


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


ACT = {
    "gelu": gelu,
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
}
ACT["gelu_pytorch_tanh"] = ACT["gelu_new"]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q: Array, k: Array, v: Array, scale: float, seen: Array, cap: float = 0.0) -> Array:
    """q (B, H, S, D), k and v (B, H or fewer, T, ..) -> (B, S, H * Dv)."""
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    scores = np.einsum("bhsd,bhtd->bhst", q, k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    p = softmax(np.where(seen, scores, -np.inf))
    return np.einsum("bhst,bhtd->bshd", p, v).reshape(q.shape[0], q.shape[2], -1)


def rotate_halves(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the first 2 * cos.shape[-1] lanes of the last axis as two halves."""
    r = cos.shape[-1]
    a, b = x[..., :r], x[..., r : 2 * r]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * r :]], axis=-1)


def rotate_pairs(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate neighbouring lanes as complex numbers."""
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * (cos + 1j * sin)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


class FamilyReference:
    """`config`: the JSON object of config.json; `weights`: name -> array."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
        self.c = config
        self.w = {k: np.asarray(v).astype(np.float64) for k, v in weights.items()}
        self.kind: str = config["model_type"]
        self.h = config.get("hidden_size", config.get("n_embd"))
        self.heads = config.get("num_attention_heads", config.get("n_head"))
        self.kv = config.get("num_key_value_heads") or self.heads
        self.dim = config.get("head_dim") or self.h // self.heads
        self.layers = config.get("num_hidden_layers", config.get("n_layer"))

    # ------------------------------------------------------------ pieces

    def linear(self, x, name):
        w = self.w[name + ".weight"]
        y = x @ (w if self.kind == "gpt2" else w.T)
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def rms(self, x, name, eps=None):
        gain = self.w[name + ".weight"]
        if self.kind.startswith("gemma"):
            gain = 1 + gain
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + (eps or self.c["rms_norm_eps"])) * gain

    def layer_norm(self, x, name):
        eps = self.c.get("layer_norm_eps", self.c.get("layer_norm_epsilon", 1e-5))
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d**2).mean(-1, keepdims=True) + eps) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def split(self, x, heads):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def join(self, x):
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)

    def seen(self, n, window=0):
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        return (j <= i) & ((i - j < window) if window else True)

    def window(self, i):
        c = self.c
        if self.kind in ("mistral", "phi3"):
            return c.get("sliding_window") or 0
        if self.kind in ("gemma2", "gemma3_text"):
            return c["sliding_window"] if c["layer_types"][i] == "sliding_attention" else 0
        return 0

    def angles(self, n, i):
        """Return cos and sin (n, lanes / 2) of layer `i`, None if it has no rotation."""
        c = self.c
        if self.kind == "smollm3" and not c["no_rope_layers"][i]:
            return None
        theta, dim = c.get("rope_theta", 10000.0), self.dim
        scaling = c.get("rope_scaling") or {"rope_type": "default"}
        if self.kind == "gpt_neox":
            dim = int(dim * c["rotary_pct"])
        if "kv_lora_rank" in c:
            dim = c["qk_rope_head_dim"]
        if self.kind == "gemma3_text" and self.window(i):
            theta, scaling = c["rope_local_base_freq"], {"rope_type": "default"}
        freq = np.array([theta ** (-2 * j / dim) for j in range(dim // 2)])
        gain = 1.0
        if scaling["rope_type"] == "linear":
            freq = freq / scaling["factor"]
        elif scaling["rope_type"] == "yarn":
            freq, gain = self.yarn(freq, theta, dim, scaling)
        elif scaling["rope_type"] == "longrope":
            trained, longest = c["original_max_position_embeddings"], c["max_position_embeddings"]
            freq = freq / np.array(scaling["long_factor" if n > trained else "short_factor"])
            gain = math.sqrt(1 + math.log(longest / trained) / math.log(trained))
        angle = np.outer(np.arange(n), freq)
        return np.cos(angle) * gain, np.sin(angle) * gain

    def yarn(self, freq, theta, dim, s):
        def lane(turns):
            return dim * math.log(s["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(lane(s["beta_fast"])), 0)
        high = min(math.ceil(lane(s["beta_slow"])), dim - 1)
        out = []
        for j, f in enumerate(freq):
            keep = 1 - min(max((j - low) / (high - low), 0), 1)
            out.append(keep * f + (1 - keep) * f / s["factor"])
        t = lambda m: 0.1 * m * math.log(s["factor"]) + 1  # noqa: E731
        return np.array(out), t(s["mscale"]) / t(s["mscale_all_dim"]) if "mscale" in s else t(1)

    # ------------------------------------------------------------ decoders

    def prefill(self, ids: Array) -> dict[str, Array]:
        """`ids` (B, S) -> logits (B, S, V) and the caches of every layer (B, S, width)."""
        if self.kind in ("gpt2", "opt", "gpt_neox"):
            return self._layer_norm_decoder(ids)
        c, n, out = self.c, ids.shape[1], {}
        x = self.w["model.embed_tokens.weight"][ids]
        if self.kind.startswith("gemma"):
            x = x * math.sqrt(self.h)
        x = x * c.get("embedding_multiplier", 1.0)
        ratio = c.get("residual_multiplier", 1.0)
        for i in range(self.layers):
            name = f"model.layers.{i}."
            before = self.kind != "olmo2"
            h = self.rms(x, name + "input_layernorm") if before else x
            y, out[f"present.{i}"] = self._attention(h, i, name + "self_attn.", n)
            if self.kind in ("olmo2", "gemma2", "gemma3_text"):
                y = self.rms(y, name + "post_attention_layernorm")
            x = x + y * ratio
            second = (
                "pre_feedforward_layernorm"
                if "gemma" in self.kind and self.kind != "gemma"
                else "post_attention_layernorm"
            )
            y = self._feed_forward(self.rms(x, name + second) if before else x, i, name)
            if self.kind in ("olmo2", "gemma2", "gemma3_text"):
                y = self.rms(y, name + "post_feedforward_layernorm")
            x = x + y * ratio
        x = self.rms(x, "model.norm")
        head = "model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight"
        logits = x @ self.w[head].T / c.get("logits_scaling", 1.0)
        cap = c.get("final_logit_softcapping")
        return {
            "logits": cap * np.tanh(logits / cap) if cap else logits,
            **_flat(out, "kv_lora_rank" in c),
        }

    def _attention(self, x, i, name, n):
        c = self.c
        if "kv_lora_rank" in c:
            return self._latent(x, i, name, n)
        if self.kind == "phi3":
            both = self.linear(x, name + "qkv_proj")
            q_size, kv_size = self.heads * self.dim, self.kv * self.dim
            q, k, v = np.split(both, [q_size, q_size + kv_size], axis=-1)
        else:
            q, k, v = (self.linear(x, name + p + "_proj") for p in "qkv")
        if self.kind == "olmo2":
            q, k = self.rms(q, name + "q_norm"), self.rms(k, name + "k_norm")
        q, k, v = self.split(q, self.heads), self.split(k, self.kv), self.split(v, self.kv)
        if self.kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            q, k = self.rms(q, name + "q_norm"), self.rms(k, name + "k_norm")
        turn = self.angles(n, i)
        if turn is not None:
            q, k = rotate_halves(q, *turn), rotate_halves(k, *turn)
        scale = 1 / math.sqrt(c.get("query_pre_attn_scalar", self.dim))
        scale = c.get("attention_multiplier", scale)
        cap = c.get("attn_logit_softcapping", 0.0)
        y = attend(q, k, v, scale, self.seen(n, self.window(i)), cap)
        return self.linear(y, name + "o_proj"), (self.join(k), self.join(v))

    def _latent(self, x, i, name, n):
        c = self.c
        nope, rope, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
        if c["q_lora_rank"]:
            q = self.linear(
                self.rms(self.linear(x, name + "q_a_proj"), name + "q_a_layernorm", 1e-6),
                name + "q_b_proj",
            )
        else:
            q = self.linear(x, name + "q_proj")
        q = self.split(q, self.heads)
        both = self.linear(x, name + "kv_a_proj_with_mqa")
        latent, k_rope = self.rms(both[..., :rank], name + "kv_a_layernorm", 1e-6), both[..., rank:]
        expanded = self.split(self.linear(latent, name + "kv_b_proj"), self.heads)
        turn = self.angles(n, i)
        k_rope = rotate_pairs(k_rope, *turn)
        q = np.concatenate([q[..., :nope], rotate_pairs(q[..., nope:], *turn)], axis=-1)
        shared = np.broadcast_to(k_rope[:, None], (x.shape[0], self.heads, n, rope))
        k = np.concatenate([expanded[..., :nope], shared], axis=-1)
        scale = 1 / math.sqrt(nope + rope)
        s = c.get("rope_scaling")
        if s:
            scale *= (0.1 * s["mscale_all_dim"] * math.log(s["factor"]) + 1) ** 2
        y = attend(q, k, expanded[..., nope:], scale, self.seen(n))
        return self.linear(y, name + "o_proj"), (latent, k_rope)

    def _gate(self, x, name):
        act = ACT[self.c.get("hidden_activation") or self.c["hidden_act"]]
        return self.linear(
            act(self.linear(x, name + "gate_proj")) * self.linear(x, name + "up_proj"),
            name + "down_proj",
        )

    def _feed_forward(self, x, i, name):
        c = self.c
        if self.kind == "phi3":
            gate, up = np.split(self.linear(x, name + "mlp.gate_up_proj"), 2, axis=-1)
            return self.linear(ACT["silu"](gate) * up, name + "mlp.down_proj")
        sparse = {"mixtral": True, "qwen3_moe": i not in c.get("mlp_only_layers", []),
                  "deepseek_v2": i >= c.get("first_k_dense_replace", 0),
                  "deepseek_v3": i >= c.get("first_k_dense_replace", 0)}.get(self.kind, False)  # fmt: skip
        return mixture(self, x, name) if sparse else self._gate(x, name + "mlp.")

    def _layer_norm_decoder(self, ids):
        c, w, n, out = self.c, self.w, ids.shape[1], {}
        base, layer, final, head = {
            "gpt2": ("transformer.", "h.{}.", "ln_f", "transformer.wte.weight"),
            "opt": (
                "model.decoder.",
                "layers.{}.",
                "final_layer_norm",
                "model.decoder.embed_tokens.weight",
            ),
            "gpt_neox": ("gpt_neox.", "layers.{}.", "final_layer_norm", "embed_out.weight"),
        }[self.kind]
        x = w[base + {"gpt2": "wte", "opt": "embed_tokens", "gpt_neox": "embed_in"}[self.kind] + ".weight"][ids]
        if base + "project_in.weight" in w:
            x = self.linear(x, base + "project_in")
        if self.kind != "gpt_neox":
            first, table = (0, "wpe") if self.kind == "gpt2" else (2, "embed_positions")
            x = x + w[base + table + ".weight"][first : first + n]
        names = {"gpt2": ("ln_1", "ln_2", "mlp.c_fc", "mlp.c_proj"),
                 "opt": ("self_attn_layer_norm", "final_layer_norm", "fc1", "fc2"),
                 "gpt_neox": ("input_layernorm", "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")}  # fmt: skip
        norm1, norm2, up, down = names[self.kind]
        act = ACT[{"gpt2": "gelu_new", "opt": "relu", "gpt_neox": "gelu"}[self.kind]]
        before = c.get("do_layer_norm_before", True)
        for i in range(self.layers):
            name = base + layer.format(i)
            mlp = lambda v: self.linear(act(self.linear(v, name + up)), name + down)  # noqa: B023, E731
            y, out[f"present.{i}"] = self._mha(self.layer_norm(x, name + norm1) if before else x, i, name, n)
            if self.kind == "gpt_neox" and c.get("use_parallel_residual", True):
                x = x + y + mlp(self.layer_norm(x, name + norm2))
            elif before:
                x = x + y
                x = x + mlp(self.layer_norm(x, name + norm2))
            else:
                x = self.layer_norm(x + y, name + norm1)
                x = self.layer_norm(x + mlp(x), name + norm2)
        if base + final + ".weight" in w:
            x = self.layer_norm(x, base + final)
        if base + "project_out.weight" in w:
            x = self.linear(x, base + "project_out")
        return {"logits": x @ w[head].T, **_flat(out)}

    def _mha(self, x, i, name, n):
        if self.kind == "opt":
            q, k, v = (self.split(self.linear(x, f"{name}self_attn.{p}_proj"), self.heads) for p in "qkv")
        elif self.kind == "gpt2":
            q, k, v = (self.split(t, self.heads) for t in np.split(self.linear(x, name + "attn.c_attn"), 3, axis=-1))
        else:  # per head: query, key, value side by side
            both = self.split(self.linear(x, name + "attention.query_key_value"), self.heads)
            q, k, v = np.split(both, 3, axis=-1)
            turn = self.angles(n, i)
            q, k = rotate_halves(q, *turn), rotate_halves(k, *turn)
        y = attend(q, k, v, 1 / math.sqrt(self.dim), self.seen(n))
        out = {"opt": "self_attn.out_proj", "gpt2": "attn.c_proj", "gpt_neox": "attention.dense"}[self.kind]
        return self.linear(y, name + out), (self.join(k), self.join(v))


def _flat(caches, latent=False):
    names = ("latent", "rope_key") if latent else ("key", "value")
    return {f"{k}.{n}": v for k, pair in caches.items() for n, v in zip(names, pair, strict=True)}
