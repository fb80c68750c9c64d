"""Which weights a model needs, and the weight table that holds them: from a checkpoint, or missing.

May import: weights, errors, frontend.hf.config. Must not: know the IR; read tensor bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tx8fast.errors import ImportModelError, raise_all
from tx8fast.frontend.hf.config import ModelConfig
from tx8fast.weights import WeightTable, find_checkpoint, open_checkpoint

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
DEFAULT_DTYPE = "bf16"
_FLOATS = ("bf16", "f16", "f32")


def required_weights(c: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (key, shape) of every weight. Matrices are stored [out, in]."""
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    yield EMBED, (c.vocab, c.hidden)
    for i in range(c.layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (c.hidden,)
        for name, rows, cols, bias in (
            ("self_attn.q_proj", q, c.hidden, c.qkv_bias),
            ("self_attn.k_proj", kv, c.hidden, c.qkv_bias),
            ("self_attn.v_proj", kv, c.hidden, c.qkv_bias),
            ("self_attn.o_proj", c.hidden, q, c.out_bias),
            ("mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias),
            ("mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias),
            ("mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias),
        ):
            yield f"{layer}{name}.weight", (rows, cols)
            if bias:
                yield f"{layer}{name}.bias", (rows,)
        if c.qk_norm:
            yield layer + "self_attn.q_norm.weight", (c.head_dim,)
            yield layer + "self_attn.k_norm.weight", (c.head_dim,)
        yield layer + "post_attention_layernorm.weight", (c.hidden,)
    yield FINAL_NORM, (c.hidden,)
    if not c.tied:
        yield HEAD, (c.vocab, c.hidden)


def load_weights(c: ModelConfig, directory: Path | None, dtype: str | None) -> WeightTable:
    """Return the table of all weights the model needs, under their names in the checkpoint.

    `directory` None, or without safetensors files: entries are missing (compile-only), of `dtype`, the
    config's type or bfloat16. Raises ImportModelError that lists every absent or misfitting tensor.
    """
    table = WeightTable(directory)
    path = None if directory is None else find_checkpoint(directory)
    if path is None:
        stored = c.dtype or dtype or DEFAULT_DTYPE
        for key, shape in required_weights(c):
            table.add_missing(key, shape, stored)
        return table
    entries = open_checkpoint(path)
    problems = []
    for key, shape in required_weights(c):
        entry = entries.get(key)
        if entry is None:
            problems.append(f"'{key}' is absent, required shape {list(shape)}")
        elif entry.shape != shape:
            problems.append(f"'{key}' has shape {list(entry.shape)}, required {list(shape)}")
        elif entry.dtype not in _FLOATS:
            problems.append(
                f"'{key}' has dtype {entry.dtype}, required one of {', '.join(_FLOATS)}"
            )
        else:
            table.add_file(key, entry)
    doing = (
        f"matching checkpoint {os.path.basename(path)} ({len(entries)} tensors) with config.json"
    )
    raise_all(ImportModelError, doing, problems)
    return table
