"""Tiny models of families whose reference outputs were recorded from the transformers library.

A record (tests/data/families/<case>.npz, a few kB) has the tensors' names and shapes, as the library saves them, and the
logits; config and weights are made here, the latter by numpy from a seed, so that no checkpoint need be kept.
`python -m tests.support.record_families CASE ...` writes the records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import write_weights
from tests.support.recorded_configs import CONFIGS

RECORDS = Path(__file__).parents[1] / "data" / "families"
BATCH, SEQ, PAST = 2, 11, 13
#: gains that are stored less one
OFFSET = ("nemotron", "gemma", "vaultgemma", "qwen3_next", "qwen3_5", "recurrent_gemma")


def config_of(case: str, dtype: str = "float32") -> dict[str, Any]:
    """Return a fresh config.json object."""
    config = CONFIGS[case]
    return json.loads(json.dumps({"model_type": case.split("-")[0], "torch_dtype": dtype, **config}))


def token_ids(case: str) -> np.ndarray:
    config = config_of(case)
    vocab = config.get("text_config", config)["vocab_size"]
    return np.random.default_rng(1).integers(8 if "text_config" in config else 0, vocab, (BATCH, SEQ))


def weights_of(case: str, shapes: list[tuple[str, list[int]]], dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Return random tensors by name: gains near one, matrices of unit gain, strong routers, so that rounding does not
    change which experts are chosen."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in shapes:
        x = rng.standard_normal(shape)
        if name.endswith("correction_bias"):
            x *= 0.3
        elif name.endswith("act_fn.beta") or name.endswith("act_fn.eps"):  # constants of the activation
            x = np.full(shape, 0.5 if name.endswith("beta") else -1e-6)
        elif name.endswith("running_var"):
            x = 0.5 + np.abs(x)
        elif name.endswith("convolution.weight"):  # [out, in, row, column]; what a ReLU leaves is less by half
            x *= np.sqrt(2.0 / np.prod(shape[1:]))
        elif len(shape) < 2 or "layernorm" in name or "_norm.weight" in name:
            gain = ("norm" in name or "ln_" in name) and name.endswith("weight")
            less_one = case.startswith(OFFSET) and "linear_attn" not in name
            x = x * 0.2 + (1.0 if gain and not less_one else 0.0)
        elif not any(t in name for t in ("embed", "wte", "wpe")):
            x /= np.sqrt(shape[-1])
        if name.endswith(("gate.weight", "router.weight", "router.layer.weight", "router.proj.weight")):
            x *= 3.0
        weights[name] = np.asarray(x).astype(dtype)
    return weights


def make_recorded(
    directory: Path, case: str, shapes: list[tuple[str, list[int]]] | None = None, dtype: str = "float32"
):
    """Write config.json and weights; return the record."""
    record = None if shapes is not None else dict(np.load(RECORDS / f"{case}.npz"))
    found = json.loads(str(record["shapes"])) if record is not None else shapes or []
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(case, dtype)))
    import ml_dtypes

    write_weights(directory, weights_of(case, found, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32))
    return record
