"""One Llama of two layers as a configuration, GGUF, ONNX and StableHLO: widths of a real one, weights that lie in a hole.

A compilation reads no weights, so that files of the right length, made of nothing, serve. The ONNX graphs (tests/data/formats) are what
torch 2.15 exports of transformers 5.23 in bfloat16, with a cache of static length for the step; tables and masks stand in them.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.gguf_files import gguf_metadata

STORED = Path(__file__).parents[1] / "data" / "formats"
#: tokens of the prompt, and slots of the caches
TOKENS = 256
CONFIG: dict[str, Any] = {
    "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
HIDDEN, LAYERS, HEADS, KV, DIM = (CONFIG[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads",
                                                      "num_key_value_heads", "head_dim"))  # fmt: skip
_INNER, _VOCAB = CONFIG["intermediate_size"], CONFIG["vocab_size"]
_LAYER = {"n1": (HIDDEN,), "q": (HIDDEN, HEADS * DIM), "k": (HIDDEN, KV * DIM), "v": (HIDDEN, KV * DIM), "o": (HEADS * DIM, HIDDEN),
          "n2": (HIDDEN,), "gate": (HIDDEN, _INNER), "up": (HIDDEN, _INNER), "down": (_INNER, HIDDEN)}  # fmt: skip
#: parameters of the JAX function, matrices [in, out]
SHAPES: dict[str, tuple[int, ...]] = {
    "embed": (_VOCAB, HIDDEN), "norm": (HIDDEN,), "head": (HIDDEN, _VOCAB),
    **{f"{i}.{n}": s for i in range(LAYERS) for n, s in _LAYER.items()},
}  # fmt: skip
_GGUF_LAYER = {"n1": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "n2": "ffn_norm", "gate": "ffn_gate",
               "up": "ffn_up", "down": "ffn_down"}  # fmt: skip
_GGUF = {"embed": "token_embd", "norm": "output_norm", "head": "output"}


def _bytes(shape: tuple[int, ...]) -> int:
    return 2 * math.prod(shape)


def write_config(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder / "config.json"


def write_gguf(folder: Path) -> Path:
    import gguf

    path = folder / "llama.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for key, value in gguf_metadata(CONFIG).items():
        {int: writer.add_uint32, float: writer.add_float32}[type(value)](f"llama.{key}", value)
    for name, shape in SHAPES.items():
        layer, _, part = name.partition(".")
        stored = f"blk.{layer}.{_GGUF_LAYER[part]}" if part else _GGUF[name]
        rows = shape[::-1] if name != "embed" else shape
        writer.add_tensor_info(
            f"{stored}.weight", rows, np.dtype("uint16"), _bytes(shape), gguf.GGMLQuantizationType.BF16
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as f:
        f.truncate(path.stat().st_size + sum(map(_bytes, SHAPES.values())) + (1 << 16))
    return path


def write_onnx(folder: Path, phase: str) -> Path:
    shutil.copy(STORED / f"llama-{phase}.onnx", folder)
    with open(folder / "llama.weights", "wb") as f:
        f.truncate(sum(map(_bytes, SHAPES.values())))
    return folder / f"llama-{phase}.onnx"


def write_stablehlo(folder: Path, phase: str) -> Path:
    """What JAX writes of `_model`, its parameters in a safetensors file beside it."""
    import jax

    shape = jax.ShapeDtypeStruct
    params = {k: shape(s, "bfloat16") for k, s in SHAPES.items()}
    if phase == "prefill":
        traced = jax.jit(_model).lower(params, shape((1, TOKENS), "int32"))
    else:
        caches = [shape((1, TOKENS, KV, DIM), "bfloat16")] * (2 * LAYERS)
        traced = jax.jit(_model, donate_argnums=2).lower(params, shape((1, 1), "int32"), caches, shape((), "int32"))
    path, at, header = folder / f"llama-{phase}.mlir", 0, {}
    path.write_text(traced.as_text(debug_info=True))
    for name, s in SHAPES.items():
        header[f"params['{name}']"] = {"dtype": "BF16", "shape": list(s), "data_offsets": [at, at + _bytes(s)]}
        at += _bytes(s)
    text = json.dumps(header).encode()
    with open(path.with_suffix(".safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    return path


def _model(params: Any, ids: Any, past: Any = None, position: Any = 0) -> Any:
    """Logits and caches [1, tokens, kv heads, lanes] of a prompt, or of a step at `position` behind `past`."""
    import jax
    import jax.numpy as jnp

    batch, rows = ids.shape
    x, caches, at = params["embed"][ids], [], position + jnp.arange(rows)
    angles = at[:, None].astype(jnp.float32) / CONFIG["rope_theta"] ** (jnp.arange(0, DIM, 2) / DIM)
    angles = jnp.concatenate([angles, angles], -1)[None, :, None]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)

    def norm(y: Any, gain: Any) -> Any:
        wide = y.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + CONFIG["rms_norm_eps"])
        return gain * (wide * scale).astype(y.dtype)

    def turned(y: Any) -> Any:
        a, b = jnp.split(y, 2, -1)
        return y * cos + jnp.concatenate([-b, a], -1) * sin

    for i in range(LAYERS):
        w = {n: params[f"{i}.{n}"] for n in _LAYER}
        h = norm(x, w["n1"])
        q = turned((h @ w["q"]).reshape(batch, rows, HEADS, DIM)).reshape(batch, rows, KV, HEADS // KV, DIM)
        k, v = turned((h @ w["k"]).reshape(batch, rows, KV, DIM)), (h @ w["v"]).reshape(batch, rows, KV, DIM)
        if past is not None:
            k, v = (jax.lax.dynamic_update_slice(past[2 * i + j], y, (0, position, 0, 0)) for j, y in enumerate((k, v)))
        caches += [k, v]
        scores = jnp.einsum("bqkge,btke->bkgqt", q, k).astype(jnp.float32) * DIM**-0.5
        scores = jnp.where(jnp.arange(k.shape[1])[None] <= at[:, None], scores, -1e30)
        mixed = jnp.einsum("bkgqt,btke->bqkge", jax.nn.softmax(scores, -1).astype(x.dtype), v)
        x = x + mixed.reshape(batch, rows, HEADS * DIM) @ w["o"]
        h = norm(x, w["n2"])
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return norm(x, params["norm"]) @ params["head"], *caches
