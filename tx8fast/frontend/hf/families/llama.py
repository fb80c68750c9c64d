"""Decoders with RMS norms and gated feed-forward parts, the relatives of llama.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.names import AFTER, FUSED_MLP, LLAMA
from tx8fast.frontend.hf.family import Family, biases, flag, number
from tx8fast.frontend.hf.rope import rotation, unturned
from tx8fast.frontend.hf.windows import all_layers, chosen_layers

_LLAMA = Family(
    "grouped queries, biases of attention and feed-forward part",
    LLAMA, {**biases(), "mlp_bias": flag("mlp_bias")}, (rotation(),), pairs_lanes=True,
)  # fmt: skip
_PLAIN = Family("grouped queries", LLAMA, {}, (rotation(),))
_OLMO2 = Family("norms after each part only, query and key norm over the whole projection", AFTER,
                {**biases(), "qk_norm": "full"}, (rotation(),), defaults={"rms_norm_eps": 1e-5})  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _PLAIN.like("an attention window in all layers", fields={"windows": all_layers(4096)}),
    "qwen2": _PLAIN.like("query, key and value biases, windows from a layer on",
                         fields={"qkv_bias": True, "windows": chosen_layers()}),
    "qwen3": _PLAIN.like("per-head query and key norms, windows from a layer on", defaults={"head_dim": 128},
                         fields={**biases(), "qk_norm": "head", "windows": chosen_layers()}),
    "phi3": _PLAIN.like("fused query-key-value and gate-up matrices, longrope",
                        names=FUSED_MLP.but(self_attn__qkv="self_attn.qkv_proj"), defaults={"rms_norm_eps": 1e-5},
                        fields={"windows": all_layers()}),
    "granite": _LLAMA.like("multipliers of embedding, attention, residual and logits", fields={
        "attention_scale": number("attention_multiplier", 1.0), "embedding_scale": number("embedding_multiplier", 1.0),
        "residual_scale": number("residual_multiplier", 1.0), "logits_divisor": number("logits_scaling", 1.0),
    }),
    "olmo2": _OLMO2,
    "smollm3": _LLAMA.like("layers without rotation", fields={"windows": chosen_layers(0)},
                           defaults={"tie_word_embeddings": True, "num_key_value_heads": 4, "rope_theta": 2000000.0},
                           parts=(unturned("no_rope_layers", "no_rope_layer_interval", 4),)),
}  # fmt: skip
