"""The graph of a Llama-class decoder: one builder for prefill and decode.

May import: ir, weights, errors, frontend.hf. Must not: read files. Activations are [batch, seq, features] and are never
reshaped or transposed; heads stay inside the last dimension. Every layer emits the same op sequence, so
that repeated layers can be outlined. The KV cache of a layer is [batch, slot, kv_heads * head_dim]: key
(after rotation) and value of one token are one row, so an update writes contiguous bytes.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.checkpoint import EMBED, FINAL_NORM, HEAD
from tx8fast.frontend.hf.config import ModelConfig
from tx8fast.ir.core import Builder, Context, Value
from tx8fast.weights import MASK_VALUE, WeightTable

SCORES = "b s (h g d), b t (h d) -> b (h g) s t"
MIXED = "b (h g) s t, b t (h d) -> b s (h g d)"


def visible_pairs(seq: int, window: int) -> int:
    """Return how many (query, key) pairs a causal mask of `seq` tokens leaves, `window` 0 = unlimited."""
    full = seq if not window else min(window, seq)
    return full * (full + 1) // 2 + (seq - full) * full


class LlamaBuilder:
    """Emits ops at the end of a function block. `dtype` is the activations' format, that of the embedding table."""

    cos: Value  # set by `prefill_inputs` or `decode_inputs`
    sin: Value

    def __init__(
        self,
        ctx: Context,
        b: Builder,
        c: ModelConfig,
        weights: WeightTable,
        dtype: str,
        mask_value: float,
    ) -> None:
        self.ctx, self.b, self.c, self.weights = ctx, b, c, weights
        self.dtype, self.mask_value = dtype, mask_value
        self.sizes = ("h", c.kv_heads, "g", c.heads // c.kv_heads, "d", c.head_dim)
        self.masks: dict[int, Value] = {}  # by window
        self.window_sizes = list(dict.fromkeys(c.windows))  # in order of first use

    def param(self, key: str) -> Value:
        """Return the weight `key` in the activations' format; most checkpoints have one format throughout."""
        w = self.weights[key]
        loc = key.removeprefix("model.")
        v = self.b("get_param", result_types=[self.ctx.tensor(w.shape, w.dtype)], key=key, loc=loc)
        return v if w.dtype == self.dtype else self.b("convert", v, dtype=self.dtype, loc=loc)

    def derived(
        self,
        key: str,
        expr: str,
        attrs: dict[str, Any],
        shape: tuple[int, ...],
        dtype: str | None = None,
    ) -> Value:
        dtype = dtype or self.dtype
        if key not in self.weights:
            self.weights.add_derived(key, expr, attrs, (), shape, dtype)
        return self.b("get_param", result_types=[self.ctx.tensor(shape, dtype)], key=key, loc=key)

    def linear(self, x: Value, name: str, bias: bool) -> Value:
        """y = x W^T (+ bias) with W [out, in] as stored."""
        w = self.param(name + ".weight")
        operands = [x, w, self.param(name + ".bias")] if bias else [x, w]
        return self.b("gemm", *operands, trans_b=True, loc=_loc(name))

    def norm(self, x: Value, name: str) -> Value:
        return self.b(
            "rmsnorm", x, self.param(name + ".weight"), eps=self.c.norm_eps, loc=_loc(name)
        )

    def rope_tables(self, length: int) -> tuple[Value, Value]:
        """Return cos and sin [length, head_dim]; the sine carries the sign of the rotation."""
        c = self.c
        attrs = {
            "theta": c.rope_theta,
            "rotary_dim": c.rotary_dim,
            "scaling": dict(c.rope_scaling),
            "style": "half",
        }
        shape = (length, c.head_dim)
        return (
            self.derived(f"%rope_cos/{length}", "rope_cos", attrs, shape),
            self.derived(f"%rope_sin/{length}", "rope_sin", attrs, shape),
        )

    def prefill_inputs(self, seq: int) -> None:
        """Emit rotation tables and additive masks [seq, seq] that all layers share."""
        self.cos, self.sin = self.rope_tables(seq)
        shared: dict[int, Value] = {}
        for window in self.window_sizes:
            effective = window if window < seq else 0
            if effective not in shared:
                attrs = {"window": effective, "value": self.mask_value}
                name = f"%causal_mask/{seq}" + (f"/{effective}" if effective else "")
                shared[effective] = self.derived(name, "causal_mask", attrs, (seq, seq))
            self.masks[window] = shared[effective]

    def decode_inputs(self, position: Value, past: int) -> None:
        """Emit rotation rows [1, head_dim] at `position` and additive mask rows [past] that all layers share."""
        b = self.b
        cos, sin = self.rope_tables(past)
        self.cos = b("embedding", cos, position, loc="rope.cos")
        self.sin = b("embedding", sin, position, loc="rope.sin")
        slot = self.derived(f"%slots/{past}", "arange", {}, (past,), "i64")
        zero = self.derived("%zero", "fill", {"value": 0.0}, ())
        low = self.derived("%mask_value", "fill", {"value": self.mask_value}, ())
        causal = b("le", slot, position, loc="mask.causal")
        shared: dict[int, Value] = {}
        for window in self.window_sizes:
            effective = window if window < past else 0
            if effective not in shared:
                seen = causal
                if effective:
                    width = self.derived(
                        f"%window/{effective}", "fill", {"value": effective}, (1,), "i64"
                    )
                    oldest = b("sub", position, width, loc="mask.oldest")
                    seen = b(
                        "and", causal, b("gt", slot, oldest, loc="mask.window"), loc="mask.seen"
                    )
                shared[effective] = b("select", seen, zero, low, loc="mask")
            self.masks[window] = shared[effective]

    def head_norm(self, x: Value, heads: int, name: str) -> Value:
        """RMS-normalise every head of [batch, seq, heads * head_dim] on its own."""
        batch, seq, width = x.shape
        split = self.b("reshape", x, shape=(batch, seq, heads, self.c.head_dim), loc=_loc(name))
        return self.b("reshape", self.norm(split, name), shape=(batch, seq, width), loc=_loc(name))

    def layer(self, i: int, x: Value, past: tuple[Value, Value, Value] | None) -> list[Value]:
        """Emit decoder layer `i` on x [batch, seq, hidden]; return x, key, value, the latter as cached.

        `past`: the key and value caches and the position to write, None in a prefill.
        """
        b, c, name = self.b, self.c, f"model.layers.{i}"
        attn, at = name + ".self_attn", _loc(name + ".self_attn")
        h = self.norm(x, name + ".input_layernorm")
        q = self.linear(h, attn + ".q_proj", c.qkv_bias)
        k = self.linear(h, attn + ".k_proj", c.qkv_bias)
        v = self.linear(h, attn + ".v_proj", c.qkv_bias)
        if c.qk_norm:
            q = self.head_norm(q, c.heads, attn + ".q_norm")
            k = self.head_norm(k, c.kv_heads, attn + ".k_norm")
        rotary = -1 if c.rotary_dim == c.head_dim else c.rotary_dim
        q = b("rope", q, self.cos, self.sin, heads=c.heads, rotary_dim=rotary, loc=at + ".q_rope")
        k = b(
            "rope", k, self.cos, self.sin, heads=c.kv_heads, rotary_dim=rotary, loc=at + ".k_rope"
        )
        macs = -1
        if past is not None:
            keys, values, position = past
            k = b("kv_update", keys, k, position, axis=1, loc=at + ".k_cache")
            v = b("kv_update", values, v, position, axis=1, loc=at + ".v_cache")
        else:
            batch, seq, width = q.shape
            macs = batch * width * visible_pairs(seq, c.windows[i])
        s = b(
            "contract",
            q,
            k,
            equation=SCORES,
            sizes=self.sizes,
            useful_macs=macs,
            loc=at + ".scores",
        )
        p = b(
            "softmax",
            s,
            self.masks[c.windows[i]],
            axis=-1,
            scale=c.head_dim**-0.5,
            loc=at + ".softmax",
        )
        o = b("contract", p, v, equation=MIXED, sizes=self.sizes, useful_macs=macs, loc=at + ".mix")
        x = b("add", x, self.linear(o, attn + ".o_proj", c.out_bias), loc=at + ".residual")
        h = self.norm(x, name + ".post_attention_layernorm")
        gate = self.linear(h, name + ".mlp.gate_proj", c.mlp_bias)
        up = self.linear(h, name + ".mlp.up_proj", c.mlp_bias)
        m = b("swiglu", gate, up, act=c.activation, loc=_loc(name + ".mlp.act"))
        down = self.linear(m, name + ".mlp.down_proj", c.mlp_bias)
        return [b("add", x, down, loc=_loc(name + ".mlp.residual")), k, v]

    def embed(self, ids: Value) -> tuple[Value, Value]:
        """Return the embedding table and x [batch, seq, hidden] of token ids [batch, seq] i64."""
        table = self.param(EMBED)
        return table, self.b("embedding", table, ids, loc="embed_tokens")

    def head(self, x: Value, table: Value, last_only: bool) -> Value:
        """Return logits [batch, seq (or 1), vocab]; `table` is the embedding, used if weights are tied."""
        if last_only and x.shape[1] > 1:
            batch, seq, hidden = x.shape
            x = self.b(
                "slice",
                x,
                start=(0, seq - 1, 0),
                size=(batch, 1, hidden),
                step=(1, 1, 1),
                loc="last_token",
            )
        x = self.norm(x, FINAL_NORM.removesuffix(".weight"))
        w = table if self.c.tied else self.param(HEAD)
        return self.b("gemm", x, w, trans_b=True, loc="lm_head")


def build(ctx: Context, b: Builder, c: ModelConfig, weights: WeightTable, args: dict[str, Value], *, dtype: str,
          compute_dtype: str, past: int | None, last_only: bool) -> dict[str, Value]:  # fmt: skip
    """Emit the whole model; return the named results: logits, then present.{i}.key and .value of every layer.

    `args`: input_ids and, for decode (`past` slots), position and past.{i}.key / .value. The mask constant
    must stay finite in the format the graph is stored in and in the one it will be computed in.
    """
    mask_value = max(MASK_VALUE[dtype], MASK_VALUE[compute_dtype])
    m = LlamaBuilder(ctx, b, c, weights, dtype, mask_value)
    table, x = m.embed(args["input_ids"])
    if past is None:
        m.prefill_inputs(x.shape[1])
    else:
        m.decode_inputs(args["position"], past)
    present: dict[str, Value] = {}
    for i in range(c.layers):
        key, value = f"{i}.key", f"{i}.value"
        cache = None
        if past is not None:
            cache = args["past." + key], args["past." + value], args["position"]
        x, present["present." + key], present["present." + value] = m.layer(i, x, cache)
    return {"logits": m.head(x, table, last_only), **present}


def _loc(name: str) -> str:
    return name.removeprefix("model.")
