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


def gptq(
    w: np.ndarray, bits: int = 4, act_order: bool = True, v2: bool = False, size: int = GROUP, index: bool = True
) -> Made:
    """Words along the input features; zero points less one (in version 1); groups in any order of features."""
    x = w.T
    group = np.arange(x.shape[0]) // size
    if act_order:
        group = np.random.default_rng(5).permutation(group)
    q, scale, zero = _grouped(x, bits, group)
    order = list(range(32 // bits))
    stored_zero = zero if v2 else (zero - 1) % 2**bits
    stored = {"qweight": _pack(q.T, bits, order).T, "qzeros": _pack(stored_zero, bits, order),
              "scales": scale.astype(np.float16)} | ({"g_idx": group.astype(np.int32)} if index else {})  # fmt: skip
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


def int4_zeros(w: np.ndarray) -> Made:
    """compressed-tensors: 4-bit values stored plus 8, with zero points that are packed down the columns."""
    wide = w.reshape(w.shape[0], -1, GROUP)
    low, high = np.minimum(wide.min(2), 0), np.maximum(wide.max(2), 0)
    scale = ((high - low) / 15).astype(np.float16)
    zero = np.clip(np.round(-low / scale) - 8, -8, 7)
    q = np.clip(np.round(wide / scale[..., None].astype(np.float64)) + zero[..., None], -8, 7)
    back = ((q - zero[..., None]) * scale[..., None].astype(np.float64)).reshape(w.shape)
    order = list(range(8))
    rows = np.concatenate([zero + 8, np.zeros((-len(zero) % 8, zero.shape[1]))])
    return {"weight_packed": _pack(q.reshape(w.shape) + 8, 4, order), "weight_scale": scale,
            "weight_zero_point": _pack(rows.T, 4, order).T, "weight_shape": np.array(w.shape)}, back  # fmt: skip


def int8_zeros(w: np.ndarray) -> Made:
    """compressed-tensors: a scale and a zero point per row."""
    low, high = np.minimum(w.min(1, keepdims=True), 0), np.maximum(w.max(1, keepdims=True), 0)
    scale = ((high - low) / 255).astype(np.float32)
    zero = np.clip(np.round(-low / scale) - 128, -128, 127).astype(np.int8)
    q = np.clip(np.round(w / scale) + zero, -128, 127).astype(np.int8)
    return {"weight": q, "weight_scale": scale, "weight_zero_point": zero}, (q - zero.astype(np.float64)) * scale


def fp8_modelopt(w: np.ndarray) -> Made:
    """modelopt FP8: one scale for the whole matrix, one of activations, which nothing needs."""
    stored, back = fp8_tensor(w)
    return {
        "weight": stored["weight"],
        "weight_scale": stored["weight_scale"].reshape(()),
        "input_scale": np.float32(0.1).reshape(()),
    }, back


#: magnitudes of a float with two exponent bits and one mantissa bit, by code
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nvfp4(w: np.ndarray, divide: bool = False) -> Made:
    """Four-bit floats, two a byte, with an eight-bit scale per 16 columns and one number for all."""
    whole = np.float32(np.abs(w).max() / (6 * 448))
    codes, back = np.zeros((w.shape[0], w.shape[1] // 2), np.uint8), np.zeros(w.shape)
    scales = np.zeros((w.shape[0], w.shape[1] // 16), FP8)
    for row, group in np.ndindex(scales.shape):
        part = w[row, 16 * group : 16 * group + 16]
        scales[row, group] = np.float32(np.abs(part).max() / 6 / whole)
        scale = float(scales[row, group]) * float(whole)
        for k, value in enumerate(part):
            code = int(np.argmin([abs(abs(value) / scale - size) for size in FP4]))
            column, sign = 16 * group + k, int(value < 0)
            codes[row, column // 2] |= (code | sign << 3) << (4 * (column % 2))
            back[row, column] = (-1) ** sign * FP4[code] * scale
    if divide:
        return {
            "weight_packed": codes,
            "weight_scale": scales,
            "weight_global_scale": np.array([1 / whole], np.float32),
        }, back
    return {
        "weight": codes,
        "weight_scale": scales,
        "weight_scale_2": np.array(whole),
        "input_scale": np.array(np.float32(0.1)),
    }, back


def nf4(w: np.ndarray, nested: bool = False) -> Made:
    """bitsandbytes: numbers of a table, the first of a byte in its high half, times the largest magnitude of 64 numbers."""
    import json

    book = np.linspace(-1, 1, 16).astype(np.float32) ** 3  # any table will do
    flat, block = w.reshape(-1), 64
    largest = np.array([np.abs(flat[a : a + block]).max() for a in range(0, flat.size, block)], np.float32)
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": list(w.shape)}
    stored = {}
    if nested:
        outer, table, offset = 256, np.linspace(-1, 1, 256).astype(np.float32), float(largest.mean())
        spread = np.array(
            [np.abs(largest[a : a + outer] - offset).max() for a in range(0, largest.size, outer)], np.float32
        )
        packed = np.array(
            [np.argmin(np.abs(table * spread[i // outer] + offset - v)) for i, v in enumerate(largest)], np.uint8
        )
        largest = np.array(
            [table[c] * spread[i // outer] + np.float32(offset) for i, c in enumerate(packed)], np.float32
        )
        state |= {"nested_blocksize": outer, "nested_offset": offset, "nested_dtype": "float32"}
        stored = {"weight.nested_absmax": spread, "weight.nested_quant_map": table}
    codes = [int(np.argmin(np.abs(book - v / largest[i // block]))) for i, v in enumerate(flat)]
    back = np.array([float(book[c]) * float(largest[i // block]) for i, c in enumerate(codes)]).reshape(w.shape)
    data = np.array([[a << 4 | b] for a, b in zip(codes[::2], codes[1::2], strict=True)], np.uint8)
    said = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return {"weight": data, "weight.quant_map": book, "weight.absmax": packed if nested else largest,
            "weight.quant_state.bitsandbytes__nf4": said, **stored}, back  # fmt: skip


_CT = {"quant_method": "compressed-tensors"}
#: name -> (quantization_config, function)
SCHEMES: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], Made]]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}, gptq),
    "gptq-8bit": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP}, lambda w: gptq(w, bits=8, act_order=False)),
    "gptq-short-last": ({"quant_method": "gptq", "bits": 4, "group_size": 20}, lambda w: gptq(w, act_order=False, size=20, index=False)),
    "gptq-v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, lambda w: gptq(w, v2=True)),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}, awq),
    "fp8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 24]}, fp8_blocks),
    "bitsandbytes": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, bitsandbytes),
    "int8": ({**_CT, "format": "int-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, int8_rows),
    "int4": ({**_CT, "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, int4_packed),
    "fp8-tensor": ({**_CT, "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
                   fp8_tensor),
    "int4-zeros": ({**_CT, "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, int4_zeros),
    "int8-zeros": ({**_CT, "format": "int-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, int8_zeros),
    "nvfp4-packed": ({**_CT, "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
                     lambda w: nvfp4(w, divide=True)),
    "modelopt-fp8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8_modelopt),
    "modelopt-nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, nvfp4),
    "auto-round": ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"}, lambda w: gptq(w, act_order=False)),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, nf4),
    "nf4-nested": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, lambda w: nf4(w, nested=True)),
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
