"""One function per dense family: from its config keys to the fields of `ModelConfig` that differ from the common ones.

May import: frontend.hf. Must not: know the IR or weights. `FAMILIES[model_type](reader, common fields) -> fields`;
`DEFAULTS[model_type]` are the keys that published files leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tx8fast.frontend.hf.encoders import bert, vit
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import read_rope, section_of
from tx8fast.frontend.hf.sparse import deepseek_v2, deepseek_v3, mixtral, qwen3_moe
from tx8fast.frontend.hf.windows import all_layers, chosen_layers, pattern_layers

Fields = dict[str, Any]
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "hidden_size": 2304,
           "intermediate_size": 9216, "num_hidden_layers": 26}  # fmt: skip
_GPT2 = {"n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "tie_word_embeddings": True,
         "activation_function": "gelu_new", "n_positions": 1024}  # fmt: skip
_DEEPSEEK = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEFAULTS: dict[str, Fields] = {
    "qwen3": {"head_dim": 128},
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3_text": {**_GEMMA, **_GEMMA3},
    "phi3": {"rms_norm_eps": 1e-5},
    "gpt2": _GPT2,
    "gpt_neox": {"hidden_act": "gelu", "attention_bias": True, "use_parallel_residual": True},
    "opt": {"activation_function": "relu", "tie_word_embeddings": True, "do_layer_norm_before": True,
            "enable_bias": True},
    "olmo2": {"rms_norm_eps": 1e-5},
    "smollm3": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "mixtral": {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "num_local_experts": 8,
                "num_experts_per_tok": 2},
    "qwen3_moe": {"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8},
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": {**_DEEPSEEK, "norm_topk_prob": True, "rope_interleave": True},
    "bert": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 512},
    "vit": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16, "num_channels": 3},
}  # fmt: skip

#: newer spelling -> the one read here
ALIASES: dict[str, dict[str, str]] = {
    "mixtral": {"num_experts": "num_local_experts"},
    "qwen3_moe": {"num_local_experts": "num_experts"},
    "deepseek_v2": {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"},
    "deepseek_v3": {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"},
}  # fmt: skip


def rotated(r: Reader, f: Fields, **options: Any) -> Fields:
    """One rotation for all layers."""
    section, raw = section_of(r)
    rope = read_rope(r, options.pop("head_dim", f["head_dim"]), section=section, raw=raw, **options)
    return {"ropes": (rope,), "rope_of": (0,) * f["layers"]}


def llama(r: Reader, f: Fields) -> Fields:
    bias = r.flag("attention_bias")
    return {**rotated(r, f), "qkv_bias": bias, "out_bias": bias, "mlp_bias": r.flag("mlp_bias")}


def mistral(r: Reader, f: Fields) -> Fields:
    return {**rotated(r, f), "windows": all_layers(r, f["layers"])}


def qwen2(r: Reader, f: Fields) -> Fields:
    return {**rotated(r, f), "qkv_bias": True, "windows": chosen_layers(r, f["layers"])}


def qwen3(r: Reader, f: Fields) -> Fields:
    bias = r.flag("attention_bias")
    return {**rotated(r, f), "qkv_bias": bias, "out_bias": bias, "qk_norm": "head",
            "windows": chosen_layers(r, f["layers"])}  # fmt: skip


def gemma(r: Reader, f: Fields) -> Fields:
    r.fixed("use_bidirectional_attention", False)
    bias = r.flag("attention_bias")
    return {**rotated(r, f), "qkv_bias": bias, "out_bias": bias, "norm_offset": 1.0,
            "embedding_scale": (f["hidden"] or 1) ** 0.5}  # fmt: skip


def gemma2(r: Reader, f: Fields) -> Fields:
    return {
        **gemma(r, f),
        "attention_scale": (r.number("query_pre_attn_scalar", 256) or 1) ** -0.5,
        "attention_cap": r.number("attn_logit_softcapping", 0.0 if "attn_logit_softcapping" in r.raw else 50.0),
        "logits_cap": r.number("final_logit_softcapping", 0.0 if "final_logit_softcapping" in r.raw else 30.0),
        "windows": pattern_layers(r, f["layers"], every=2),
    }


def gemma3(r: Reader, f: Fields) -> Fields:
    windows = pattern_layers(r, f["layers"], every=r.size("sliding_window_pattern", 6) or 6)
    section, raw = section_of(r)
    if "full_attention" in raw or "sliding_attention" in raw:
        parts = {k: raw.get(k) or {} for k in ("full_attention", "sliding_attention")}
        far = read_rope(r, f["head_dim"], section=section, raw=parts["full_attention"], theta=1e6)
        near = read_rope(r, f["head_dim"], section=section, raw=parts["sliding_attention"])
    else:
        far = read_rope(r, f["head_dim"], section=section, raw=raw, theta=1e6)
        near = read_rope(r, f["head_dim"], section=section, raw={}, theta_key="rope_local_base_freq")
    return {
        **gemma(r, f),
        "ropes": (far, near),
        "rope_of": tuple(1 if w else 0 for w in windows),
        "attention_scale": (r.number("query_pre_attn_scalar", 256) or 1) ** -0.5,
        "attention_cap": r.number("attn_logit_softcapping", 0.0),
        "logits_cap": r.number("final_logit_softcapping", 0.0),
        "windows": windows,
        "qk_norm": "head",
    }


def phi3(r: Reader, f: Fields) -> Fields:
    return {**rotated(r, f), "windows": all_layers(r, f["layers"])}


def gpt2(r: Reader, f: Fields) -> Fields:
    for key in ("add_cross_attention", "scale_attn_by_inverse_layer_idx"):
        r.fixed(key, False)
    scale = f["attention_scale"] if r.flag("scale_attn_weights", True) else 1.0
    return {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "attention_scale": scale,
            "positions": r.size("n_positions", 1024)}  # fmt: skip


def gpt_neox(r: Reader, f: Fields) -> Fields:
    bias = r.flag("attention_bias")
    return {**rotated(r, f, theta_key="rotary_emb_base", part_key="rotary_pct", part=0.25), "gated": False,
            "qkv_bias": bias, "out_bias": bias, "mlp_bias": True, "parallel": r.flag("use_parallel_residual")}  # fmt: skip


def opt(r: Reader, f: Fields) -> Fields:
    r.fixed("layer_norm_elementwise_affine", True)
    bias = r.flag("enable_bias")
    before = r.flag("do_layer_norm_before")
    width = r.size("word_embed_proj_dim", f["hidden"])
    return {"gated": False, "qkv_bias": bias, "out_bias": bias, "mlp_bias": bias, "post_norm": not before,
            "final_norm": before and not r.flag("_remove_final_layer_norm"),
            "embedding_width": 0 if width == f["hidden"] else width,
            "positions": r.size("max_position_embeddings", 2048), "position_offset": 2}  # fmt: skip


def granite(r: Reader, f: Fields) -> Fields:
    return {
        **llama(r, f),
        "attention_scale": r.number("attention_multiplier", 1.0),
        "embedding_scale": r.number("embedding_multiplier", 1.0),
        "residual_scale": r.number("residual_multiplier", 1.0),
        "logits_divisor": r.number("logits_scaling", 1.0),
    }


def olmo2(r: Reader, f: Fields) -> Fields:
    bias = r.flag("attention_bias")
    return {**rotated(r, f), "qkv_bias": bias, "out_bias": bias, "qk_norm": "full"}


def smollm3(r: Reader, f: Fields) -> Fields:
    layers = f["layers"]
    every = r.size("no_rope_layer_interval", 4) or 4
    turns = r.layer_list("no_rope_layers", layers, {0: -1, 1: 0})
    if turns is None:
        turns = [0 if (i + 1) % every else -1 for i in range(layers)]
    return {**llama(r, f), **rotated(r, f, theta=2000000.0), "rope_of": tuple(turns),
            "windows": chosen_layers(r, layers, first=0)}  # fmt: skip


FAMILIES: dict[str, Callable[[Reader, Fields], Fields]] = {
    "llama": llama, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "gemma": gemma, "gemma2": gemma2,
    "gemma3_text": gemma3, "phi3": phi3, "gpt2": gpt2, "gpt_neox": gpt_neox, "opt": opt, "granite": granite,
    "olmo2": olmo2, "smollm3": smollm3, "mixtral": mixtral, "qwen3_moe": qwen3_moe, "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3, "bert": bert, "vit": vit,
}  # fmt: skip
