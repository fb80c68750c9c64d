"""Tiny random checkpoints of every supported family, with the tensor names and layouts its published files have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import DTYPES, write_weights

HIDDEN, HEADS, KV, DIM, INTER, VOCAB, LAYERS = 32, 4, 2, 8, 48, 64, 2
_BASE = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV,
         "head_dim": DIM, "intermediate_size": INTER, "vocab_size": VOCAB, "max_position_embeddings": 128}  # fmt: skip
_FULL = {**_BASE, "num_key_value_heads": HEADS}
_NO_KV = {k: v for k, v in _BASE.items() if k not in ("num_key_value_heads", "head_dim")}
_RMS = {
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8, "beta_slow": 1,
         "mscale": 0.7, "mscale_all_dim": 1.2}  # fmt: skip
_MLA = {**{k: v for k, v in _FULL.items() if k != "head_dim"}, **_RMS, "kv_lora_rank": 24, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 12, "first_k_dense_replace": 1, "moe_intermediate_size": 16,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "routed_scaling_factor": 1.5,
        "n_group": 4, "topk_group": 2}  # fmt: skip
_LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 2.0],
    "long_factor": [1.0, 2.0, 3.0, 8.0],
}

#: name of the case -> config; "family-variant" for more than one of a family
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_BASE, **_RMS, "attention_bias": True, "mlp_bias": True},
    "mistral": {**_BASE, **_RMS, "sliding_window": 5},
    "qwen2": {**_BASE, **_RMS, "rope_scaling": {k: v for k, v in _YARN.items() if "mscale" not in k}},
    "qwen3": {**_BASE, **_RMS},
    "gemma": {**_BASE, **_RMS, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gemma2": {**_BASE, **_RMS, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, **_SLIDING,
               "query_pre_attn_scalar": 12, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 12.0},
    "gemma3_text": {**_BASE, **_RMS, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, **_SLIDING,
                    "query_pre_attn_scalar": 12, "rope_theta": 1e6, "rope_local_base_freq": 500.0,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "phi3": {**{k: v for k, v in _BASE.items() if k != "head_dim"}, **_RMS, "sliding_window": 6, "pad_token_id": 0},
    "phi3-longrope": {**{k: v for k, v in _BASE.items() if k != "head_dim"}, **_RMS, "rope_scaling": _LONG,
                      "original_max_position_embeddings": 64, "pad_token_id": 0},
    "gpt2": {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCAB, "n_positions": 32},
    "gpt_neox": {**_NO_KV, "rotary_pct": 0.5, "hidden_act": "gelu", "layer_norm_eps": 1e-5},
    "gpt_neox-serial": {**_NO_KV, "rotary_pct": 1.0, "use_parallel_residual": False, "attention_bias": False},
    "opt": {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "ffn_dim": INTER,
            "vocab_size": VOCAB, "max_position_embeddings": 32, "word_embed_proj_dim": HIDDEN},
    "opt-after": {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "ffn_dim": INTER,
                  "vocab_size": VOCAB, "max_position_embeddings": 32, "word_embed_proj_dim": 16,
                  "do_layer_norm_before": False},
    "granite": {**{k: v for k, v in _BASE.items() if k != "head_dim"}, **_RMS, "embedding_multiplier": 3.0,
                "attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 6.0},
    "olmo2": {**{k: v for k, v in _BASE.items() if k != "head_dim"}, **_RMS},
    "smollm3": {**{k: v for k, v in _BASE.items() if k != "head_dim"}, **_RMS, "no_rope_layers": [1, 0],
                "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "mixtral": {**_BASE, **_RMS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**_BASE, **_RMS, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
                  "norm_topk_prob": True, "mlp_only_layers": [0], "decoder_sparse_step": 1},
    "deepseek_v2": {**_MLA, "q_lora_rank": 20, "topk_method": "group_limited_greedy"},
    "deepseek_v2-lite": {**_MLA, "q_lora_rank": None, "topk_method": "greedy"},
    "deepseek_v3": {**_MLA, "q_lora_rank": 20, "norm_topk_prob": True, "rope_scaling": _YARN},
    "bert": {**_NO_KV, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "pad_token_id": 0},
    "vit": {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INTER,
            "image_size": 16, "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-6},
}  # fmt: skip
ENCODERS = ("bert", "vit")
ARCHITECTURES = {"bert": "BertModel", "vit": "ViTForImageClassification"}


def family_config(case: str, dtype: str = "float32") -> dict[str, Any]:
    """Return a fresh config.json object."""
    return {"model_type": case.split("-")[0], "torch_dtype": dtype, **CONFIGS[case]}


def tensor_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every stored tensor."""
    yield from _SHAPES.get(config["model_type"], _llama_like)(config)


def _pair(name: str, *shape: int, bias: int = 0) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield name + ".weight", shape
    if bias:
        yield name + ".bias", (bias,)


def _gated(name: str, hidden: int, inter: int, bias: bool = False):
    yield from _pair(name + "gate_proj", inter, hidden, bias=inter * bias)
    yield from _pair(name + "up_proj", inter, hidden, bias=inter * bias)
    yield from _pair(name + "down_proj", hidden, inter, bias=hidden * bias)


def _llama_like(c):
    kind, h = c["model_type"], c["hidden_size"]
    dim = c.get("head_dim", h // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    bias = c.get("attention_bias", False)
    qkv_bias = bias or kind == "qwen2"
    yield from _pair("model.embed_tokens", c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        n = f"model.layers.{i}."
        if kind != "olmo2":
            yield from _pair(n + "input_layernorm", h)
        if "kv_lora_rank" in c:
            yield from _mla(c, n + "self_attn.")
        elif kind == "phi3":
            yield from _pair(n + "self_attn.qkv_proj", q + 2 * kv, h)
            yield from _pair(n + "self_attn.o_proj", h, q)
        else:
            yield from _pair(n + "self_attn.q_proj", q, h, bias=q * qkv_bias)
            yield from _pair(n + "self_attn.k_proj", kv, h, bias=kv * qkv_bias)
            yield from _pair(n + "self_attn.v_proj", kv, h, bias=kv * qkv_bias)
            yield from _pair(n + "self_attn.o_proj", h, q, bias=h * bias)
        if kind in ("qwen3", "qwen3_moe", "gemma3_text", "olmo2"):
            full = kind == "olmo2"
            yield from _pair(n + "self_attn.q_norm", q if full else dim)
            yield from _pair(n + "self_attn.k_norm", kv if full else dim)
        yield from _pair(n + "post_attention_layernorm", h)
        if kind in ("gemma2", "gemma3_text"):
            yield from _pair(n + "pre_feedforward_layernorm", h)
        if kind in ("gemma2", "gemma3_text", "olmo2"):
            yield from _pair(n + "post_feedforward_layernorm", h)
        yield from _feed_forward(c, i, n)
    yield from _pair("model.norm", h)
    if not c.get("tie_word_embeddings"):
        yield from _pair("lm_head", c["vocab_size"], h)


def _mla(c, n):
    h, heads = c["hidden_size"], c["num_attention_heads"]
    nope, rope, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
    if c["q_lora_rank"]:
        yield from _pair(n + "q_a_proj", c["q_lora_rank"], h)
        yield from _pair(n + "q_a_layernorm", c["q_lora_rank"])
        yield from _pair(n + "q_b_proj", heads * (nope + rope), c["q_lora_rank"])
    else:
        yield from _pair(n + "q_proj", heads * (nope + rope), h)
    yield from _pair(n + "kv_a_proj_with_mqa", rank + rope, h)
    yield from _pair(n + "kv_a_layernorm", rank)
    yield from _pair(n + "kv_b_proj", heads * (nope + c["v_head_dim"]), rank)
    yield from _pair(n + "o_proj", h, heads * c["v_head_dim"])


def _feed_forward(c, i, n):
    kind, h = c["model_type"], c["hidden_size"]
    if kind == "phi3":
        yield from _pair(n + "mlp.gate_up_proj", 2 * c["intermediate_size"], h)
        yield from _pair(n + "mlp.down_proj", h, c["intermediate_size"])
    elif kind == "mixtral":
        yield from _pair(n + "block_sparse_moe.gate", c["num_local_experts"], h)
        for e in range(c["num_local_experts"]):
            for w, shape in (("w1", (c["intermediate_size"], h)), ("w2", (h, c["intermediate_size"])),
                             ("w3", (c["intermediate_size"], h))):  # fmt: skip
                yield from _pair(f"{n}block_sparse_moe.experts.{e}.{w}", *shape)
    elif (kind == "qwen3_moe" and i not in c["mlp_only_layers"]) or i >= c.get("first_k_dense_replace", 99):
        count = c.get("num_experts") or c["n_routed_experts"]
        yield from _pair(n + "mlp.gate", count, h)
        if kind == "deepseek_v3":
            yield n + "mlp.gate.e_score_correction_bias", (count,)
        for e in range(count):
            yield from _gated(f"{n}mlp.experts.{e}.", h, c["moe_intermediate_size"])
        if c.get("n_shared_experts"):
            yield from _gated(n + "mlp.shared_experts.", h, c["moe_intermediate_size"] * c["n_shared_experts"])
    else:
        yield from _gated(n + "mlp.", h, c["intermediate_size"], c.get("mlp_bias", False))


def _gpt2(c):
    h = c["n_embd"]
    yield from _pair("transformer.wte", c["vocab_size"], h)
    yield from _pair("transformer.wpe", c["n_positions"], h)
    for i in range(c["n_layer"]):
        n = f"transformer.h.{i}."
        yield from _pair(n + "ln_1", h, bias=h)
        yield from _pair(n + "attn.c_attn", h, 3 * h, bias=3 * h)
        yield from _pair(n + "attn.c_proj", h, h, bias=h)
        yield from _pair(n + "ln_2", h, bias=h)
        yield from _pair(n + "mlp.c_fc", h, 4 * h, bias=4 * h)
        yield from _pair(n + "mlp.c_proj", 4 * h, h, bias=h)
    yield from _pair("transformer.ln_f", h, bias=h)


def _gpt_neox(c):
    h, inter = c["hidden_size"], c["intermediate_size"]
    bias = c.get("attention_bias", True)
    yield from _pair("gpt_neox.embed_in", c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        n = f"gpt_neox.layers.{i}."
        yield from _pair(n + "input_layernorm", h, bias=h)
        yield from _pair(n + "post_attention_layernorm", h, bias=h)
        yield from _pair(n + "attention.query_key_value", 3 * h, h, bias=3 * h * bias)
        yield from _pair(n + "attention.dense", h, h, bias=h * bias)
        yield from _pair(n + "mlp.dense_h_to_4h", inter, h, bias=inter)
        yield from _pair(n + "mlp.dense_4h_to_h", h, inter, bias=h)
    yield from _pair("gpt_neox.final_layer_norm", h, bias=h)
    yield from _pair("embed_out", c["vocab_size"], h)


def _opt(c):
    h, inter, width = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
    yield from _pair("model.decoder.embed_tokens", c["vocab_size"], width)
    yield from _pair("model.decoder.embed_positions", c["max_position_embeddings"] + 2, h)
    if width != h:
        yield from _pair("model.decoder.project_in", h, width)
        yield from _pair("model.decoder.project_out", width, h)
    if c.get("do_layer_norm_before", True):
        yield from _pair("model.decoder.final_layer_norm", h, bias=h)
    for i in range(c["num_hidden_layers"]):
        n = f"model.decoder.layers.{i}."
        for p in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _pair(f"{n}self_attn.{p}", h, h, bias=h)
        yield from _pair(n + "self_attn_layer_norm", h, bias=h)
        yield from _pair(n + "fc1", inter, h, bias=inter)
        yield from _pair(n + "fc2", h, inter, bias=h)
        yield from _pair(n + "final_layer_norm", h, bias=h)


def _encoder_layers(c, attention: str, norms: tuple[str, str]):
    h, inter = c["hidden_size"], c["intermediate_size"]
    for i in range(c["num_hidden_layers"]):
        n = f"encoder.layer.{i}."
        for p in ("query", "key", "value"):
            yield from _pair(n + attention + p, h, h, bias=h)
        yield from _pair(n + "attention.output.dense", h, h, bias=h)
        yield from _pair(n + "intermediate.dense", inter, h, bias=inter)
        yield from _pair(n + "output.dense", h, inter, bias=h)
        for norm in norms:
            yield from _pair(n + norm, h, bias=h)


def _bert(c):
    h = c["hidden_size"]
    yield from _pair("embeddings.word_embeddings", c["vocab_size"], h)
    yield from _pair("embeddings.position_embeddings", c["max_position_embeddings"], h)
    yield from _pair("embeddings.token_type_embeddings", c["type_vocab_size"], h)
    yield from _pair("embeddings.LayerNorm", h, bias=h)
    yield from _encoder_layers(c, "attention.self.", ("attention.output.LayerNorm", "output.LayerNorm"))
    yield from _pair("pooler.dense", h, h, bias=h)


def _vit(c):
    h, p = c["hidden_size"], c["patch_size"]
    yield "vit.embeddings.cls_token", (1, 1, h)
    yield "vit.embeddings.position_embeddings", (1, (c["image_size"] // p) ** 2 + 1, h)
    yield from _pair("vit.embeddings.patch_embeddings.projection", h, c["num_channels"], p, p, bias=h)
    for name, shape in _encoder_layers(c, "attention.attention.", ("layernorm_before", "layernorm_after")):
        yield "vit." + name, shape
    yield from _pair("vit.layernorm", h, bias=h)
    yield from _pair("classifier", 2, h, bias=2)


_SHAPES = {"gpt2": _gpt2, "gpt_neox": _gpt_neox, "opt": _opt, "bert": _bert, "vit": _vit}


def family_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random tensors by name: gains near one (near zero where the family adds one), matrices of unit gain.

    Routers are strong, so that rounding does not change which experts are chosen."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[config["torch_dtype"]][1]
    centre = 0.0 if config["model_type"].startswith("gemma") else 1.0
    flipped = config["model_type"] == "gpt2"
    weights = {}
    for name, shape in tensor_shapes(config):
        x = rng.standard_normal(shape)
        if name.endswith("correction_bias"):
            x *= 0.3
        elif len(shape) == 1:
            x = x * 0.2 + (0.0 if name.endswith("bias") else centre)
        elif name.endswith("projection.weight") or not any(t in name for t in ("embed", "wte", "wpe")):
            x /= np.sqrt(shape[0] if flipped and len(shape) == 2 else np.prod(shape[1:]))
        if name.endswith("gate.weight"):
            x *= 3.0
        weights[name] = x.astype(dtype)
    return weights


def make_family(directory: Path, case: str, dtype: str = "float32", seed: int = 0):
    """Write config.json and weights; return both."""
    directory.mkdir(parents=True, exist_ok=True)
    config = family_config(case, dtype)
    weights = family_weights(config, seed)
    stored = {**config, "architectures": [ARCHITECTURES.get(config["model_type"], "")]}
    (directory / "config.json").write_text(json.dumps(stored))
    write_weights(directory, weights)
    return config, weights
