"""Quantised variants of a checkpoint as the usual tools store them, with the float weights they stand for.

Packing is done element by element, the slow obvious way. Each function takes one weight [out, in] float64 and
returns (stored tensors by suffix, dequantised weight); `convert` applies one to all linear layers of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

GROUP = 16
FP8 = ml_dtypes.float8_e4m3fn
Made = tuple[dict[str, np.ndarray], np.ndarray]


def _pack(values: np.ndarray, bits: int, order: list[int]) -> np.ndarray:
    """Pack the last axis: field i of a word is element order[i] of its run."""
    per = 32 // bits
    words = np.zeros((*values.shape[:-1], values.shape[-1] // per), np.uint32)
    for index in np.ndindex(words.shape):
        run = values[(*index[:-1], slice(index[-1] * per, (index[-1] + 1) * per))]
        word = 0
        for i, place in enumerate(order):
            word |= int(run[place]) << (i * bits)
        words[index] = word
    return words.view(np.int32)


def _grouped(w: np.ndarray, bits: int, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Asymmetric rounding of w [in, out] per group of rows: q, scale [groups, out], zero [groups, out]."""
    top = 2**bits - 1
    n = group.max() + 1
    scale, zero = np.zeros((n, w.shape[1])), np.zeros((n, w.shape[1]))
    for g in range(n):
        part = w[group == g]
        low, high = np.minimum(part.min(0), 0), np.maximum(part.max(0), 0)
        scale[g] = ((high - low) / top).astype(np.float16)
        zero[g] = np.clip(np.round(-low / scale[g]), 0, top)
    q = np.clip(np.round(w / scale[group]) + zero[group], 0, top)
    return q, scale, zero


def gptq(w: np.ndarray, bits: int = 4, act_order: bool = True, v2: bool = False) -> Made:
    """Words along the input features; zero points less one (in version 1); groups in any order of features."""
    x = w.T
    group = np.arange(x.shape[0]) // GROUP
    if act_order:
        group = np.random.default_rng(5).permutation(group)
    q, scale, zero = _grouped(x, bits, group)
    order = list(range(32 // bits))
    stored_zero = zero if v2 else (zero - 1) % 2**bits
    stored = {"qweight": _pack(q.T, bits, order).T, "qzeros": _pack(stored_zero, bits, order),
              "scales": scale.astype(np.float16), "g_idx": group.astype(np.int32)}  # fmt: skip
    return stored, ((q - zero[group]) * scale[group]).T


def awq(w: np.ndarray) -> Made:
    """Words along the output features, fields in the order 0 2 4 6 1 3 5 7."""
    x = w.T
    group = np.arange(x.shape[0]) // GROUP
    q, scale, zero = _grouped(x, 4, group)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    stored = {
        "qweight": _pack(q, 4, order),
        "qzeros": _pack(zero, 4, order),
        "scales": scale.astype(np.float16),
    }
    return stored, ((q - zero[group]) * scale[group]).T


def fp8_blocks(w: np.ndarray, block: tuple[int, int] = (16, 24)) -> Made:
    """8-bit floats with one scale per block of rows and columns; the last blocks may be partial."""
    rows, cols = (-(-n // b) for n, b in zip(w.shape, block))
    scale, q, back = np.zeros((rows, cols), np.float32), np.zeros(w.shape, FP8), np.zeros(w.shape)
    for i in range(rows):
        for j in range(cols):
            at = (slice(i * block[0], (i + 1) * block[0]), slice(j * block[1], (j + 1) * block[1]))
            scale[i, j] = np.abs(w[at]).max() / 448
            q[at] = (w[at] / scale[i, j]).astype(np.float32).astype(FP8)
            back[at] = q[at].astype(np.float64) * scale[i, j]
    return {"weight": q, "weight_scale_inv": scale}, back


def bitsandbytes(w: np.ndarray) -> Made:
    """8-bit integers; the row's largest magnitude is 127."""
    top = np.abs(w).max(1).astype(np.float32)
    q = np.round(w / top[:, None] * 127).astype(np.int8)
    return {"weight": q, "SCB": top}, q * top[:, None].astype(np.float64) / 127


def int8_rows(w: np.ndarray) -> Made:
    """compressed-tensors: a scale per row."""
    scale = (np.abs(w).max(1, keepdims=True) / 127).astype(np.float32)
    q = np.clip(np.round(w / scale), -128, 127).astype(np.int8)
    return {"weight": q, "weight_scale": scale}, q * scale.astype(np.float64)


def int4_packed(w: np.ndarray) -> Made:
    """compressed-tensors: signed 4-bit values stored plus 8, a scale per group of columns."""
    wide = w.reshape(w.shape[0], -1, GROUP)
    scale = (np.abs(wide).max(2) / 7).astype(np.float16)
    q = np.clip(np.round(wide / scale[..., None].astype(np.float64)), -8, 7)
    back = (q * scale[..., None].astype(np.float64)).reshape(w.shape)
    words = _pack(q.reshape(w.shape) + 8, 4, list(range(8)))
    return {"weight_packed": words, "weight_scale": scale, "weight_shape": np.array(w.shape)}, back


def fp8_tensor(w: np.ndarray) -> Made:
    """compressed-tensors float-quantized: one scale for the whole matrix."""
    scale = np.array([np.abs(w).max() / 448], np.float32)
    q = (w / scale).astype(np.float32).astype(FP8)
    return {"weight": q, "weight_scale": scale}, q.astype(np.float64) * scale


_CT = {"quant_method": "compressed-tensors"}
#: name -> (quantization_config, function)
SCHEMES: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], Made]]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}, gptq),
    "gptq-8bit": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP}, lambda w: gptq(w, bits=8, act_order=False)),
    "gptq-v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, lambda w: gptq(w, v2=True)),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}, awq),
    "fp8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 24]}, fp8_blocks),
    "bitsandbytes": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, bitsandbytes),
    "int8": ({**_CT, "format": "int-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, int8_rows),
    "int4": ({**_CT, "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, int4_packed),
    "fp8-tensor": ({**_CT, "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
                   fp8_tensor),
}  # fmt: skip


def convert(
    weights: dict[str, np.ndarray], make: Callable[[np.ndarray], Made]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Quantise all matrices of the layers but routers; return the tensors to store and the float weights they mean."""
    stored, meant = {}, {}
    for name, w in weights.items():
        if w.ndim == 2 and ".layers." in name and not name.endswith("gate.weight"):
            tensors, meant[name] = make(w.astype(np.float64))
            stored |= {name.removesuffix("weight") + k: np.ascontiguousarray(v) for k, v in tensors.items()}
        else:
            stored[name] = meant[name] = w
    return stored, meant
