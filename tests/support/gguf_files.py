"""GGUF files made of tiny Hugging Face checkpoints, in the arrangement that converters give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

ARCH = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3", "gpt_neox": "gptneox"}
PERMUTED = ("llama", "mistral", "mixtral", "granite", "smollm3")
_LLAMA = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.gate": "ffn_gate_inp",
}  # fmt: skip
_SANDWICH = {**_LLAMA, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
_NAMES = {
    "gemma2": _SANDWICH, "gemma3_text": _SANDWICH, "olmo2": _SANDWICH,
    "gpt2": {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
             "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "gpt_neox": {"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output",
                 "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
                 "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
                 "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
}  # fmt: skip
_EXPERTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def permuted(x: np.ndarray, heads: int) -> np.ndarray:
    """Rows [2, lane] of each head become rows [lane, 2]."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def gguf_tensors(config: dict[str, Any], weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the checkpoint's tensors as a converter renames and rearranges them."""
    kind = config["model_type"]
    heads = config.get("num_attention_heads", config.get("n_head"))
    kv_heads = config.get("num_key_value_heads", heads)
    names = _NAMES.get(kind, _LLAMA)
    out: dict[str, np.ndarray] = {}
    experts: dict[str, list[np.ndarray]] = {}
    for name, x in weights.items():
        module, suffix = name.rsplit(".", 1)
        block = ""
        for prefix in ("model.layers.", "transformer.h.", "gpt_neox.layers."):
            if module.startswith(prefix):
                number, module = module.removeprefix(prefix).split(".", 1)
                block = f"blk.{number}."
        if module.startswith("rope_"):
            out[name] = x
            continue
        if ".experts." in module:
            experts.setdefault(f"{block}ffn_{_EXPERTS[module.rsplit('.', 1)[1]]}_exps.weight", []).append(x)
            continue
        if kind == "gpt2" and module.rsplit(".", 1)[1:] in (["c_attn"], ["c_proj"], ["c_fc"]) and x.ndim == 2:
            x = x.T
        if kind in PERMUTED and module in ("self_attn.q_proj", "self_attn.k_proj"):
            x = permuted(x, heads if module.endswith("q_proj") else kv_heads)
        if kind == "gpt_neox" and module == "attention.query_key_value":
            x = x.reshape(heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
        if kind.startswith("gemma") and "norm" in module:
            x = x + 1
        out[f"{block}{names[module]}.{suffix}"] = np.ascontiguousarray(x)
    return out | {name: np.stack(parts) for name, parts in experts.items()}


def gguf_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a config, without the architecture's name."""
    c = config
    heads, hidden = c.get("num_attention_heads", c.get("n_head")), c.get("hidden_size", c.get("n_embd"))
    meta: dict[str, Any] = {
        "block_count": c.get("num_hidden_layers", c.get("n_layer")), "embedding_length": hidden,
        "context_length": c.get("max_position_embeddings", c.get("n_positions")), "attention.head_count": heads,
        "attention.head_count_kv": c.get("num_key_value_heads", heads),
        "feed_forward_length": c.get("intermediate_size", 4 * hidden),
    }  # fmt: skip
    if c["model_type"] in ("gpt2", "gpt_neox"):
        meta["attention.layer_norm_epsilon"] = c.get("layer_norm_eps", 1e-5)
    else:
        meta["attention.layer_norm_rms_epsilon"] = c["rms_norm_eps"]
        meta["rope.freq_base"] = c["rope_theta"]
    if "head_dim" in c:
        meta["attention.key_length"] = meta["attention.value_length"] = c["head_dim"]
    if "rotary_pct" in c:
        meta["rope.dimension_count"] = int(hidden // heads * c["rotary_pct"])
        meta["use_parallel_residual"] = c.get("use_parallel_residual", True)
    scaling = c.get("rope_scaling") or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        meta |= {"rope.scaling.type": scaling["rope_type"], "rope.scaling.factor": scaling["factor"]}
        if "original_max_position_embeddings" in scaling:
            meta["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
    for key, name in (("sliding_window", "attention.sliding_window"), ("num_experts_per_tok", "expert_used_count"),
                      ("num_local_experts", "expert_count"), ("num_experts", "expert_count"),
                      ("moe_intermediate_size", "expert_feed_forward_length"), ("attention_multiplier", "attention.scale"),
                      ("embedding_multiplier", "embedding_scale"), ("residual_multiplier", "residual_scale"),
                      ("logits_scaling", "logit_scale"), ("attn_logit_softcapping", "attn_logit_softcapping"),
                      ("final_logit_softcapping", "final_logit_softcapping")):  # fmt: skip
        if key in c:
            meta[name] = c[key]
    return meta


def write_gguf(
    path: Path, arch: str, metadata: dict[str, Any], tensors: dict[str, np.ndarray], packed: str = ""
) -> None:
    """Write a file; `packed` names the block format of all matrices whose rows fill blocks, "" = none."""
    import gguf

    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in metadata.items():
        name = key if key.startswith(("general.", "split.")) else f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, x in tensors.items():
        kind = getattr(gguf.GGMLQuantizationType, packed) if packed and x.ndim > 1 else None
        if kind is not None and x.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
            writer.add_tensor(name, gguf.quants.quantize(x.astype(np.float32), kind), raw_dtype=kind)
        elif x.ndim == 1:
            writer.add_tensor(name, x.astype(np.float32))
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()


def make_gguf(
    path: Path, config: dict[str, Any], weights: dict[str, np.ndarray], packed: str = "", **metadata: Any
) -> None:
    """Convert a checkpoint; `metadata` adds keys."""
    kind = config["model_type"]
    meta = {**gguf_metadata(config), **metadata}
    write_gguf(path, ARCH.get(kind, kind), meta, gguf_tensors(config, weights), packed)
