"""The model of the demonstration: a small Llama-class checkpoint with random weights, and plain numpy arithmetic for it.

May import: numpy, ml_dtypes. Must not: import the compiler, so that its results are an independent check.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
#: the published sizes of Llama 3 8B
LLAMA_3_8B: dict[str, Any] = SMALL | {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}
Arrays = dict[str, np.ndarray]


def write_config(directory: Path, config: dict[str, Any]) -> Path:
    """Write `config.json` and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.json"
    path.write_text(json.dumps(config, indent=2) + "\n")
    return path


def write_checkpoint(directory: Path, config: dict[str, Any], seed: int = 0) -> Arrays:
    """Write config and random bfloat16 weights as `model.safetensors`; return the weights as float32."""
    write_config(directory, config)
    rng = np.random.default_rng(seed)
    hidden, inter, vocab = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {
        "model.embed_tokens": (vocab, hidden),
        "model.norm": (hidden,),
        "lm_head": (vocab, hidden),
    }
    for i in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inter, hidden),
            "mlp.up_proj": (inter, hidden),
            "mlp.down_proj": (hidden, inter),
        }
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    header, weights, data, offset = {}, {}, [], 0
    for name, shape in shapes.items():
        w = rng.standard_normal(shape)
        w = 1 + 0.1 * w if len(shape) == 1 else w if name == "model.embed_tokens" else w / shape[1] ** 0.5
        stored = w.astype(np.float32).astype(ml_dtypes.bfloat16)
        end = offset + stored.nbytes
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        weights[name + ".weight"] = stored.astype(np.float32)
        data.append(stored.tobytes())
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = len(text).to_bytes(8, "little") + text + b"".join(data)
    (directory / "model.safetensors").write_bytes(content)
    return weights


def decoder(
    config: dict[str, Any],
    w: Arrays,
    ids: np.ndarray,
    past: Arrays | None = None,
    position: int = 0,
) -> Arrays:
    """Return logits (B, S, V) and caches present.{i}.key / .value (B, T, kv_heads * head_dim) in float32.

    Without `past`: ids (B, S) from position 0. With `past` (names past.{i}.key / .value): one token (B, 1) at
    `position`, attending to itself and all slots before it.
    """
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["hidden_size"] // heads
    batch, seq = ids.shape
    positions = position + np.arange(seq)
    frequency = config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    turn = np.exp(1j * np.outer(positions, frequency)).astype(np.complex64)[:, None, :]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[name + ".weight"].T

    def rotate(x: np.ndarray) -> np.ndarray:
        x = x.reshape(batch, seq, -1, dim)
        z = (x[..., : dim // 2] + 1j * x[..., dim // 2 :]) * turn
        return np.concatenate([z.real, z.imag], axis=-1).reshape(batch, seq, -1)

    x, out = w["model.embed_tokens.weight"][ids], {}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm")
        q, k = (rotate(linear(h, f"{at}self_attn.{n}_proj")) for n in "qk")
        v = linear(h, at + "self_attn.v_proj")
        if past is not None:
            keys, values = (np.array(past[f"past.{i}.{n}"], np.float32) for n in ("key", "value"))
            keys[:, positions], values[:, positions] = k, v
            k, v = keys, values
        out[f"present.{i}.key"], out[f"present.{i}.value"] = k, v
        slots = k.shape[1]
        q = q.reshape(batch, seq, kv_heads, heads // kv_heads, dim)
        k, v = (t.reshape(batch, slots, kv_heads, dim) for t in (k, v))
        scores = np.einsum("bshgd,bthd->bhgst", q, k) / dim**0.5
        scores = np.where(np.arange(slots) <= positions[:, None], scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        mixed = np.einsum("bhgst,bthd->bshgd", p, v).reshape(batch, seq, -1)
        x = x + linear(mixed, at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        gate = linear(h, at + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    return {"logits": linear(norm(x, "model.norm"), "lm_head"), **out}
