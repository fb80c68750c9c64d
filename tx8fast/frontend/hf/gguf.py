"""GGUF files as models: their metadata as a config, their tensor names as those of the slots.

May import: weights, errors, frontend.hf. Must not: know the IR; read tensor bytes but those of rotation factors.

A converted file differs from the checkpoint it was made of: matrices stored [in, out] are turned, queries and keys of
some families have the lanes of each head in the order of an interleaved rotation, gains lack no summand, experts
are stacked, tied heads are left away.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError, UnsupportedError, raise_all
from tx8fast.frontend.hf.config import parse_config
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.weights.gguf import GgufEntry, open_gguf

Metadata = dict[str, Any]
Entries = dict[str, GgufEntry]
#: general.architecture -> family
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
    "granite": "granite",
    "olmo2": "olmo2",
    "smollm3": "smollm3",
}
#: metadata, after the architecture's name -> config key; those of `REQUIRED` have no default
KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "attention.sliding_window": "sliding_window",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
    "attention.scale": "attention_multiplier",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "use_parallel_residual": "use_parallel_residual",
}
REQUIRED = ("embedding_length", "block_count", "attention.head_count", "feed_forward_length")
#: the number of layers by which the models that scale scores by hidden / heads are told from their smaller kin
WIDE_SCORES = {"gemma2": 46, "gemma3_text": 62}
#: general.file_type -> the format of all matrices
FILE_TYPES = {0: "float32", 1: "float16", 32: "bfloat16"}
MAX_FACTORS = 4096


def read_gguf(path: Path) -> tuple[ModelConfig, Entries]:
    """Return the checked config and the tensors of a GGUF file.

    Raises UnsupportedError for an architecture that is not supported, ImportModelError for missing or bad metadata and
    damaged files.
    """
    metadata, entries = open_gguf(path)
    doing = f"reading the metadata of {path}"
    arch = metadata.get("general.architecture")
    if type(arch) is not str or arch not in ARCHITECTURES:
        raise UnsupportedError(
            f"{doing}: general.architecture is {arch!r}, supported are {', '.join(ARCHITECTURES)}; "
            "compile the checkpoint it was converted from, or its export to ONNX"
        )
    problems: list[str] = []
    raw = _config(arch, metadata, entries, problems)
    raise_all(ImportModelError, doing, problems)
    config = parse_config(raw, str(path))
    as_stored = {
        "norm_offset": 0.0,
        "flipped": False,
        "fused": "rows",
        "paired_lanes": FAMILIES[config.model_type].pairs_lanes,
    }
    return replace(config, **as_stored, quantization={"method": "gguf"}), entries


def _config(arch: str, metadata: Metadata, entries: Entries, problems: list[str]) -> dict[str, Any]:
    given = {k: _plain(v) for k in KEYS if (v := metadata.get(f"{arch}.{k}")) is not None}
    problems += [f"key '{arch}.{k}' is missing" for k in REQUIRED if k not in given]
    embedding = entries.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        problems.append("tensor 'token_embd.weight' [vocabulary, hidden] is missing")
    kind = "mixtral" if arch == "llama" and given.get("expert_count") else ARCHITECTURES[arch]
    epsilon = "attention.layer_norm_epsilon" if FAMILIES[kind].norm == "layer" else "attention.layer_norm_rms_epsilon"
    if epsilon not in given:
        problems.append(f"key '{arch}.{epsilon}' is missing")
    if problems or embedding is None:
        return {}
    raw: dict[str, Any] = {KEYS[k]: v for k, v in given.items()}
    raw |= {"model_type": kind, "vocab_size": embedding.shape[0], "tie_word_embeddings": "output.weight" not in entries}
    file_type = metadata.get("general.file_type")
    raw |= {"torch_dtype": FILE_TYPES.get(file_type if type(file_type) is int else -1)}
    heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
    raw.setdefault("num_key_value_heads", heads)
    raw.setdefault("rope_theta", 10000.0)
    if "head_dim" not in raw and type(heads) is int and type(hidden) is int and heads > 0:
        raw["head_dim"] = hidden // heads
    if "output_norm.bias" in entries and FAMILIES[kind].norm != "layer":
        problems.append(f"tensor 'output_norm.bias' is present, norms of '{arch}' have no bias")
    biased = "blk.0.attn_q.bias" in entries or "blk.0.attn_qkv.bias" in entries
    if biased != ("blk.0.attn_output.bias" in entries) and kind != "qwen2":
        problems.append(f"'{arch}' with biases of only some attention matrices is not supported")
    raw |= {"attention_bias": biased, "mlp_bias": "blk.0.ffn_up.bias" in entries}
    if kind in WIDE_SCORES:
        wide = raw["num_hidden_layers"] == WIDE_SCORES[kind]
        raw["query_pre_attn_scalar"] = raw["hidden_size"] // heads if wide else raw["head_dim"]
    if kind == "qwen3_moe":
        raw["norm_topk_prob"] = True
    _rotation(arch, metadata, entries, raw, problems)
    spelling = FAMILIES[kind].keys
    return {spelling.get(k, k): v for k, v in raw.items() if v is not None}


def _plain(value: Any) -> Any:
    """An array of equal entries, one per layer, counts as one; an f32 as the shortest decimal number that gives it."""
    if isinstance(value, list) and value and all(v == value[0] for v in value):
        value = value[0]
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _rotation(arch: str, metadata: Metadata, entries: Entries, raw: dict[str, Any], problems: list[str]) -> None:
    def get(name: str, default: Any = None) -> Any:
        value = metadata.get(f"{arch}.rope.{name}")
        return default if value is None else _plain(value)

    width, turned = raw.get("head_dim"), get("dimension_count")
    raw["partial_rotary_factor"] = turned / width if type(turned) is int and type(width) is int and width > 0 else 1.0
    kind, trained = (
        get("scaling.type", "none"),
        get("scaling.original_context_length", raw.get("max_position_embeddings")),
    )
    linear = get("scale_linear")
    scaling: dict[str, Any] | None = None
    if "rope_freqs.weight" in entries:
        factors = _factors(entries, "rope_freqs.weight", problems)
        scaling = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0}
    elif "rope_factors_long.weight" in entries or kind == "longrope":
        short, long = (_factors(entries, f"rope_factors_{n}.weight", problems) for n in ("short", "long"))
        scaling = {
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "attention_factor": get("scaling.attn_factor", 1.0),
        }
    elif kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": get("scaling.factor"),
            "beta_fast": get("scaling.yarn_beta_fast"),
            "beta_slow": get("scaling.yarn_beta_slow"),
        }
    elif kind == "linear" or linear not in (None, 1.0):
        scaling = {"rope_type": "linear", "factor": get("scaling.factor", linear)}
    elif kind != "none":
        problems.append(f"key '{arch}.rope.scaling.type' is {kind!r}, supported: none, linear, yarn, longrope")
    if scaling is not None and scaling.get("factor", 0) != 1.0:
        raw["rope_scaling"] = {**scaling, "original_max_position_embeddings": trained}


def _factors(entries: Entries, name: str, problems: list[str]) -> list[float]:
    """Read the divisors of the rotation's frequencies, one per pair of lanes."""
    entry = entries.get(name)
    if entry is None or entry.format != "F32" or len(entry.shape) != 1 or not 0 < entry.shape[0] <= MAX_FACTORS:
        found = "missing" if entry is None else f"{entry.format} {list(entry.shape)}"
        problems.append(f"tensor '{name}' is {found}, required: F32 of one dimension, at most {MAX_FACTORS} long")
        return []
    factors = np.fromfile(entry.path, "<f4", entry.shape[0], offset=entry.offset)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        problems.append(f"tensor '{name}' holds values that are not numbers > 0")
        return []
    return [_plain(float(f)) for f in factors]
