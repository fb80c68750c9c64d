"""Packed and scaled weights back to floats, a block of rows at a time so that no wide copy of a matrix exists.

May import: numpy, weights.dtypes, errors. Must not: read files; know the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError
from tx8fast.weights.dtypes import np_dtype

Shape = tuple[int, ...]
#: elements that are widened to f32 at once
CHUNK_ELEMENTS = 1 << 20


def unpack_bits(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Unsigned fields of `bits` out of 32-bit words [rows, words], as uint8 of `shape`.

    `axis` is the axis the words pack (their count times 32 / bits gives its size, a surplus is cut off);
    `order[i]` is the place, within its word's run of elements, of the field at bit i * bits (default: i);
    `offset` is added modulo 2**bits.
    """
    words = np.ascontiguousarray(inputs[0]).view(np.uint32)
    bits, axis = int(attrs["bits"]), int(attrs["axis"])
    per_word = 32 // bits
    order = list(attrs.get("order") or range(per_word))
    mask = np.uint32((1 << bits) - 1)
    rows, cols = words.shape
    out = np.empty((rows, per_word, cols) if axis == 0 else (rows, cols, per_word), np.uint8)
    for i, place in enumerate(order):
        fields = (words >> np.uint32(i * bits)) & mask
        fields = (fields + np.uint32(attrs.get("offset", 0))) & mask
        out[(slice(None), place) if axis == 0 else (..., place)] = fields
    flat = out.reshape(rows * per_word, cols) if axis == 0 else out.reshape(rows, cols * per_word)
    if any(found < n for found, n in zip(flat.shape, shape, strict=True)):
        raise ImportModelError(
            f"unpacking a weight: {list(words.shape)} words of {bits}-bit fields hold "
            f"{list(flat.shape)} elements, required {list(shape)}"
        )
    return flat[: shape[0], : shape[1]]


#: the values of a float with two exponent bits and one mantissa bit, sign highest (OCP Microscaling Formats v1.0, 5.3.3)
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def mxfp4(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Blocks of 32 four-bit floats, the first of a byte in its low half, times 2**(scale - 127), in the format `dtype`.

    inputs: bytes [.., blocks, 16] and scales [.., blocks], both uint8; the blocks lie along the last dimension of `shape`."""
    blocks, scales = inputs[0].reshape(-1, 16), inputs[1].reshape(-1)
    out = np.empty((len(blocks), 32), np_dtype(attrs["dtype"]))
    step = CHUNK_ELEMENTS // 32
    for at in range(0, len(blocks), step):
        part = blocks[at : at + step]
        codes = np.stack([part & 15, part >> 4], axis=-1).reshape(-1, 32)
        out[at : at + step] = np.ldexp(_FP4[codes], scales[at : at + step, None].astype(np.int32) - 127)
    return out.reshape(shape)


def fp4_groups(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Four-bit floats, the first of a byte in its low half, times a scale per group of a row and one of all, in the format `dtype` (NVFP4).

    inputs: bytes u8 [rows, columns / 2], scales [rows, groups], and one number; `divide`: the scales are divided by it."""
    codes, scales, whole = inputs
    rows, columns = shape
    whole = np.float32(whole.reshape(-1)[0])
    whole = np.float32(1) / whole if attrs.get("divide") else whole
    out = np.empty(shape, np_dtype(attrs["dtype"]))
    step = max(1, CHUNK_ELEMENTS // columns)
    for at in range(0, rows, step):
        part = codes[at : at + step]
        values = _FP4[np.stack([part & 15, part >> 4], axis=-1).reshape(len(part), scales.shape[1], -1)]
        wide = scales[at : at + step].astype(np.float32) * whole
        out[at : at + step] = (values * wide[:, :, None]).reshape(len(part), columns)
    return out


def code_book(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Numbers of a table of 16, the first of a byte in its high half, times the largest magnitude of each block (bitsandbytes NF4 and FP4).

    inputs: bytes u8 [n / 2, 1], table f32 [16], magnitudes [blocks], the state's bytes, which hold JSON with `blocksize`; of magnitudes
    that are packed too (u8) their table f32 [256] and magnitudes f32, and JSON with `nested_blocksize` and `nested_offset`."""
    codes, table, largest, state = inputs[:4]
    said = json.loads(bytes(np.ascontiguousarray(state)))
    if len(inputs) > 4:
        outer = inputs[5][np.arange(largest.size) // said["nested_blocksize"]]
        largest = inputs[4][largest] * outer + np.float32(said["nested_offset"])
    flat, block = codes.reshape(-1), said["blocksize"]
    out = np.empty(2 * flat.size, np_dtype(attrs["dtype"]))
    step = max(1, CHUNK_ELEMENTS // block) * block
    for at in range(0, out.size, step):
        part = flat[at // 2 : (at + step) // 2]
        values = table[np.stack([part >> 4, part & 15], axis=-1).reshape(-1)]
        out[at : at + step] = values * largest[np.arange(at, at + values.size) // block]
    return out.reshape(shape)


def dequantize(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """(q - zero) * scale * gain in the format `dtype`.

    inputs: q; scale; zero, if `zero` is true; group index per stored row, if `groups` is true. Scale and zero
    have one entry per block of q: of `block` = (rows, columns) elements if given, else as many blocks as they
    have entries (sizes that divide q's). `midpoint` is subtracted from q beside zero. `transpose` turns the
    stored [in, out] around.
    """
    rest = list(inputs[1:])
    q, scale = inputs[0], rest.pop(0)
    zero = rest.pop(0) if attrs.get("zero") else None
    index = rest.pop(0) if attrs.get("groups") else None
    stored = q.shape
    block = attrs.get("block")
    # groups of input features are listed per row
    row_of = (
        index.astype(np.int64) if index is not None else _blocks(stored[0], _two(scale).shape[0], block and block[0])
    )
    col_of = _blocks(stored[1], _two(scale).shape[1], block and block[1])
    out = np.empty(stored, np_dtype(attrs["dtype"]))
    gain = np.float32(attrs.get("gain", 1.0))
    step = max(1, CHUNK_ELEMENTS // max(1, stored[1]))
    for a in range(0, stored[0], step):
        part = slice(a, min(a + step, stored[0]))
        wide = q[part].astype(np.float32) - np.float32(attrs.get("midpoint", 0))
        if zero is not None:
            wide -= _spread(_two(zero), row_of[part], col_of)
        wide *= _spread(_two(scale), row_of[part], col_of) * gain
        out[part] = wide.astype(out.dtype)
    return out.T if attrs.get("transpose") else out


def _two(array: np.ndarray) -> np.ndarray:
    """Scales as a matrix: one number is [1, 1], a vector one entry per row."""
    return array.reshape(-1, 1) if array.ndim < 2 else array


def _blocks(n: int, blocks: int, size: int | None) -> np.ndarray:
    """Return the block of each of `n` elements."""
    if size is None:
        if n % blocks:
            raise ImportModelError(
                f"dequantising a weight: {n} elements do not divide into {blocks} blocks of one scale"
            )
        size = n // blocks
    if -(-n // size) > blocks:
        raise ImportModelError(
            f"dequantising a weight: {n} elements in blocks of {size} need {-(-n // size)} scales, found {blocks}"
        )
    return np.arange(n) // size


def _spread(values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float32)
    return wide[rows][:, cols] if values.shape[1] > 1 else wide[rows]
