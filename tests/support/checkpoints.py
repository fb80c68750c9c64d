"""Small random checkpoints in the layout the Hugging Face tools write, for tests.

`safetensors_bytes` writes the format by hand, so that tests do not check the reader with itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "bfloat16": ("BF16", ml_dtypes.bfloat16),
    "float16": ("F16", np.float16),
    "float32": ("F32", np.float32),
}
_ST = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
}
LLAMA3_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def model_config(model_type: str = "llama", *, layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2,
                 intermediate: int = 96, vocab: int = 128, head_dim: int | None = None, dtype: str = "float32",
                 tied: bool = False, **extra: Any) -> dict[str, Any]:  # fmt: skip
    """Return a config.json object; `extra` adds or replaces keys (None removes one)."""
    config = {
        "model_type": model_type, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": intermediate, "vocab_size": vocab,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": tied,
        "max_position_embeddings": 4096, "torch_dtype": dtype, "head_dim": head_dim or hidden // heads, **extra,
    }  # fmt: skip
    return {k: v for k, v in config.items() if v is not None}


def model_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights by checkpoint name, scaled so that activations stay near one."""
    rng = np.random.default_rng(seed)
    np_dtype = DTYPES[config["torch_dtype"]][1]
    kind, hidden, inter = config["model_type"], config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config.get("num_key_value_heads", config["num_attention_heads"]) * config["head_dim"]
    weights: dict[str, np.ndarray] = {}

    def matrix(name, rows, cols, bias=False, gain=1.0):
        weights[name + ".weight"] = (rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)).astype(np_dtype)
        if bias:
            weights[name + ".bias"] = (rng.standard_normal(rows) * 0.5).astype(np_dtype)

    def gain(name, size):
        weights[name + ".weight"] = (1 + 0.2 * rng.standard_normal(size)).astype(np_dtype)

    qkv_bias = kind == "qwen2" or config.get("attention_bias", False)
    out_bias = kind in ("llama", "qwen3") and config.get("attention_bias", False)
    mlp_bias = kind == "llama" and config.get("mlp_bias", False)
    matrix("model.embed_tokens", config["vocab_size"], hidden, gain=np.sqrt(hidden))
    for i in range(config["num_hidden_layers"]):
        name = f"model.layers.{i}."
        gain(name + "input_layernorm", hidden)
        matrix(name + "self_attn.q_proj", q, hidden, qkv_bias, gain=2.0)
        matrix(name + "self_attn.k_proj", kv, hidden, qkv_bias, gain=2.0)
        matrix(name + "self_attn.v_proj", kv, hidden, qkv_bias)
        matrix(name + "self_attn.o_proj", hidden, q, out_bias)
        if kind == "qwen3":
            gain(name + "self_attn.q_norm", config["head_dim"])
            gain(name + "self_attn.k_norm", config["head_dim"])
        gain(name + "post_attention_layernorm", hidden)
        matrix(name + "mlp.gate_proj", inter, hidden, mlp_bias)
        matrix(name + "mlp.up_proj", inter, hidden, mlp_bias)
        matrix(name + "mlp.down_proj", hidden, inter, mlp_bias)
    gain("model.norm", hidden)
    if not config.get("tie_word_embeddings"):
        matrix("lm_head", config["vocab_size"], hidden)
    return weights


def safetensors_bytes(tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """Return a safetensors file: header length, header padded with blanks to 8 bytes, data."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for key, a in tensors.items():
        header[key] = {
            "dtype": _ST[a.dtype.name],
            "shape": list(a.shape),
            "data_offsets": [offset, offset + a.nbytes],
        }
        offset += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values())


def write_weights(directory: Path, weights: dict[str, np.ndarray], shards: int = 1) -> None:
    """Write model.safetensors, or `shards` files with an index."""
    if shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors_bytes(weights, {"format": "pt"}))
        return
    keys = list(weights)
    weight_map = {}
    for i in range(shards):
        part = {k: weights[k] for k in keys[i * len(keys) // shards : (i + 1) * len(keys) // shards]}
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        (directory / name).write_bytes(safetensors_bytes(part, {"format": "pt"}))
        weight_map |= dict.fromkeys(part, name)
    total = sum(w.nbytes for w in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def make_checkpoint(directory: str | Path, model_type: str = "llama", *, shards: int = 1, seed: int = 0,
                    **sizes: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:  # fmt: skip
    """Write config.json and weights to `directory`; return both. `sizes` as in `model_config`."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = model_config(model_type, **sizes)
    weights = model_weights(config, seed)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    write_weights(directory, weights, shards)
    return config, weights
