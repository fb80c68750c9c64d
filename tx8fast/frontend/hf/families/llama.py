"""Decoders with RMS norms and gated feed-forward parts, the relatives of llama.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.names import AFTER, FUSED_MLP, LATENT, LLAMA
from tx8fast.frontend.hf.family import Family, Fields, biases, cap, flag, number
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import (
    backwards,
    rotation,
    rotation_by_window,
    section_of,
    thetas,
    unturned,
    unturned_beside_windows,
)
from tx8fast.frontend.hf.routing import latent_attention
from tx8fast.frontend.hf.spec import Growth
from tx8fast.frontend.hf.windows import all_layers, chosen_layers, pattern_layers, unrotated_layers, window_of

_LLAMA = Family(
    "grouped queries, biases of attention and feed-forward part",
    LLAMA,
    {**biases(), "mlp_bias": flag("mlp_bias")},
    (rotation(),),
    pairs_lanes=True,
)
_PLAIN = Family("grouped queries", LLAMA, {}, (rotation(),))
_QWEN2_VL = _PLAIN.like(
    "a qwen2 whose rotation has places of images, of which text uses one",
    defaults={"rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_key_value_heads": 8},
    fields={"qkv_bias": True, "windows": chosen_layers},
)
_OLMO2 = Family(
    "norms after each part only, query and key norm over the whole projection",
    AFTER,
    {**biases(), "qk_norm": "full"},
    (rotation(),),
    defaults={"rms_norm_eps": 1e-5},
)

_GLM = Family(
    "rotation of pairs in half of each head, fused gate-up matrices",
    FUSED_MLP,
    {"qkv_bias": flag("attention_bias", True)},
    (rotation("interleaved", part=0.5),),
    defaults={"rms_norm_eps": 1.5625e-07, "head_dim": 128, "num_key_value_heads": 2},
)


def _growing(r: Reader, f: Fields) -> Fields:
    """Queries that grow with their position; the keys stand beside those of the rotation."""
    _, raw = section_of(r)
    step, factor = raw.get("original_max_position_embeddings"), raw.get("llama_4_scaling_beta")
    if factor is None:
        return {}
    if not all(isinstance(v, int | float) and v > 0 for v in (step, factor)):
        r.problems.append(
            f"llama_4_scaling_beta {factor!r} with original_max_position_embeddings {step!r}, required: two numbers > 0"
        )
        return {}
    return {"growth": Growth(float(step or 1), float(factor), first=0.0, turned=True)}


def _text_alone(r: Reader, f: Fields) -> Fields:
    """Layers that attend to images are passed by where there are none; the embedding has rows for marks of images behind the words."""
    crossing = (
        r.get(
            "cross_attention_layers",
            [3, 8, 13, 18, 23, 28, 33, 38],
            "a list of layer numbers",
            lambda v: type(v) is list and all(type(i) is int for i in v),
        )
        or []
    )
    stored = tuple(i for i in range(f["layers"]) if i not in crossing)
    many = len(stored)
    return {
        "layers": many,
        "stored_layers": stored,
        "spare_rows": 8,
        **{k: f[k][:many] for k in ("windows", "sparse", "rope_of")},
    }


def _swa_windows(r: Reader, f: Fields) -> tuple[int, ...]:
    """All but every fourth layer from the first on, unless `layer_types` says otherwise."""
    wide = window_of(r, 128)
    types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "sliding_attention": wide})
    return tuple(types) if types is not None else tuple(wide if i % 4 else 0 for i in range(f["layers"]))


def _minicpm_depth(r: Reader, f: Fields) -> float:
    """Residuals are scaled by the depth, not at all where the file says null."""
    by = r.number("scale_depth", None if "scale_depth" in r.raw else 1.4)
    return by / (f["layers"] or 1) ** 0.5 if by else 1.0


def _minicpm_base(r: Reader, f: Fields) -> float:
    base = r.size("dim_model_base", None if "dim_model_base" in r.raw else 256)
    return (f["hidden"] or 1) / base if base else 1.0


FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _PLAIN.like("an attention window in all layers", fields={"windows": all_layers(4096)}, becomes={"layer_types": "ministral"},
                           defaults={"num_key_value_heads": 8}),
    "qwen2": _PLAIN.like("query, key and value biases, windows from a layer on",
                         fields={"qkv_bias": True, "windows": chosen_layers}, defaults={"num_key_value_heads": 32}),
    "qwen3": _PLAIN.like("per-head query and key norms, windows from a layer on", defaults={"head_dim": 128, "num_key_value_heads": 32},
                         fields={**biases(), "qk_norm": "head", "windows": chosen_layers}),
    "qwen2_vl_text": _QWEN2_VL, "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3_vl_text": _PLAIN.like("a qwen3 whose rotation has places of images, of which text uses one", fields={**biases(), "qk_norm": "head"},
                                 defaults={"head_dim": 128, "num_key_value_heads": 32, "rope_theta": 500000.0}),
    "phi3": Family("fused query-key-value and gate-up matrices, longrope, rotation of a part of each head",
                   FUSED_MLP.but(self_attn__qkv="self_attn.qkv_proj"), {"windows": all_layers()}, (rotation(part=1.0),),
                   defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096, "max_position_embeddings": 4096}),
    "granite": _LLAMA.like("multipliers of embedding, attention, residual and logits", fields={
        "attention_scale": number("attention_multiplier", 1.0), "embedding_scale": number("embedding_multiplier", 1.0),
        "residual_scale": number("residual_multiplier", 1.0), "logits_divisor": number("logits_scaling", 1.0),
    }),
    "olmo2": _OLMO2,
    "smollm3": _LLAMA.like("layers without rotation",
                           defaults={"tie_word_embeddings": True, "num_key_value_heads": 4, "rope_theta": 2000000.0},
                           parts=(unturned("no_rope_layers", "no_rope_layer_interval", 4), unrotated_layers)),
    "olmo": _PLAIN.like("norms without gains, clipped queries, keys and values", norm="layer",
                        fields={**biases(), "norm_gain": False, "norm_bias": False, "qkv_clip": number("clip_qkv", 0.0)}),
    "olmo3": _OLMO2.like("window pattern, scaled rotation only in layers without a window",
                         fields={"windows": pattern_layers(4, key="")}, defaults={"rope_theta": 500000.0},
                         parts=(rotation_by_window({}, {}),)),
    "ministral": _PLAIN.like("layers with and without a window", fields={"windows": all_layers(4096, typed=True)},
                             defaults={"num_key_value_heads": 8}),
    "ministral3": _PLAIN.like("queries that grow with their position, yarn", fields={"windows": all_layers()},
                              parts=(_growing,), defaults={"rms_norm_eps": 1e-5, "head_dim": 128, "num_key_value_heads": 8, "rope_parameters": {
                                  "type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                  "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}}),
    "glm": _GLM,
    "glm4": _GLM.like("rotation of pairs in half of each head, norms before and after each part",
                      names=FUSED_MLP.but(attn_post_norm="post_self_attn_layernorm", mlp_post_norm="post_mlp_layernorm")),
    "exaone4": Family("norms after each part only, per-head query and key norms, rotation only in layers with a window", AFTER,
                      {"qk_norm": "head", "windows": pattern_layers(4)}, (rotation(), unturned_beside_windows),
                      defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 32}),
    "ernie4_5": Family("rotation of pairs, one switch for all biases", LLAMA, biases("use_bias", mlp_bias=flag("use_bias")),
                       (rotation("interleaved"),), defaults={"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "head_dim": 128, "rope_theta": 500000.0,
                                                             "tie_word_embeddings": True}),
    "seed_oss": Family("biases into but not out of the attention", LLAMA,
                       {"qkv_bias": flag("attention_bias", True), "out_bias": flag("attention_out_bias"),
                        "mlp_bias": flag("mlp_bias")}, (rotation(),), defaults={"head_dim": 128, "num_key_value_heads": 8}),
    "hunyuan_v1_dense": Family("query and key norms after the rotation, whose base `alpha` stretches",
                               LLAMA.but(self_attn__q_norm="self_attn.query_layernorm",
                                         self_attn__k_norm="self_attn.key_layernorm"),
                               {**biases(), "qk_norm": "head", "qk_norm_late": True}, (rotation(),),
                               defaults={"rms_norm_eps": 1e-5}),
    "apertus": Family("xIELU with learned slopes, per-head query and key norms",
                      LLAMA.but("mlp.gate_proj", attn_norm="attention_layernorm", mlp_norm="feedforward_layernorm",
                                mlp__act="mlp.act_fn"),
                      {**biases(), "gated": False, "qk_norm": "head"}, (rotation(),),
                      defaults={"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12e6, "rope_parameters": {
                          "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192,
                          "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    "arcee": _LLAMA.like("squared relu without a gate", names=LLAMA.but("mlp.gate_proj"), fields={"gated": False}, pairs_lanes=False,
                         defaults={"hidden_act": "relu2", "rms_norm_eps": 1e-5}),
    "helium": Family("rotation of pairs", LLAMA, {"qkv_bias": flag("attention_bias"), "mlp_bias": flag("mlp_bias")},
                     (rotation("interleaved"),), defaults={"rms_norm_eps": 1e-8, "head_dim": 128, "rope_theta": 1e5, "num_key_value_heads": 20}),
    "mllama_text_model": _LLAMA.like("of an image-text model what sees text alone: layers that attend to images are passed by",
                                     fields={**biases(), "mlp_bias": False}, parts=(_text_alone,), pairs_lanes=False,
                                     defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "rope_theta": 500000.0}),
    "nanochat": Family("norms without gains, also of the embeddings and, behind a rotation backwards, of queries and keys; squared relu without "
                       "a gate, soft cap of the logits",
                       LLAMA.but("mlp.gate_proj", mlp__up_proj="mlp.fc1", mlp__down_proj="mlp.fc2", outer={"embed_norm": "norm"}),
                       {**biases(), "gated": False, "norm_gain": False, "embedding_norm": True, "qk_norm": "head", "qk_norm_gain": False,
                        "qk_norm_late": True, "logits_cap": cap("final_logit_softcapping", 15.0)}, (rotation(), backwards),
                       defaults={"hidden_act": "relu2", "num_attention_heads": 6}),
    "minicpm3": Family("latent attention, multipliers of embedding, residuals and logits", LATENT,
                       {**biases(), "mlp_bias": flag("mlp_bias"), "embedding_scale": number("scale_emb", 12.0),
                        "residual_scale": _minicpm_depth, "logits_divisor": _minicpm_base},
                       (latent_attention("half", 768, lambda r, f: (f["hidden"] or 1) // f["heads"]),),
                       defaults={"rms_norm_eps": 1e-5, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "max_position_embeddings": 32768,
                                 "tie_word_embeddings": True}),
}  # fmt: skip
FAMILIES["granite_swa"] = FAMILIES["granite"].like(
    "multipliers of embedding, attention, residual and logits, a learned sink per head in the softmax, a window in most layers, a base of the "
    "rotation for every layer",
    names=LLAMA.but(self_attn__sinks="self_attn.sinks"),
    fields={"sinks": True, "windows": _swa_windows},
    parts=(thetas("layer_rope_theta"),),
    defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 4, "tie_word_embeddings": True},
    pairs_lanes=False,
)
