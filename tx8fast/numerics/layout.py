"""Tensor layouts: dense row-major and the channel-blocked form, as sizes, offsets and bytes.

May import: numpy, tx8fast.numerics.formats, tx8fast.errors. Must not: know instructions or the IR.
Source: TX8 hardware manual 7.2 (parameters) and 7.3 (offsets). "dense" stands for Tensor and
NTensor, "blocked" for Cx and NCx. A tensor is seen as (N batches, P positions, C channels).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast.errors import ConfigError
from tx8fast.numerics.formats import ITEM_BYTES, np_dtype

BATCH_ALIGN_BYTES = 256
#: channels of a turned tensor that are laid out at a time: the lines that so many come from stay in the cache
LANES = 32
_BLOCKS = {dtype: 128 if size == 1 else 64 for dtype, size in ITEM_BYTES.items()}


def block_size(dtype: str) -> int:
    """Return the channels of one block: 128 for one-byte formats, else 64."""
    return _BLOCKS[dtype]


def staggered(n: int, block: int) -> bool:
    """Return whether parts of `n` channels side by side begin anywhere in a block: they are no whole blocks, nor equal parts of one."""
    return bool(n % block and block % n)


@lru_cache(maxsize=1 << 12)
def blocked_params(c: int, dtype: str) -> tuple[int, int]:
    """Return (Cx full blocks, C0 channels of the tail) of `c` channels."""
    block = block_size(dtype)
    full, rest = divmod(c, block)
    if rest == 0:
        return full, 0
    if rest > block // 2:
        return full + 1, 0
    return full, max(4, 1 << (rest - 1).bit_length())


def padded_channels(c: int, dtype: str) -> int:
    """Return the channels stored per position, padding included."""
    cx, c0 = blocked_params(c, dtype)
    return cx * block_size(dtype) + c0


def batch_used_bytes(p: int, c: int, dtype: str) -> int:
    """Return the bytes of one batch before it is padded to the batch stride."""
    return p * padded_channels(c, dtype) * ITEM_BYTES[dtype]


def batch_stride_bytes(p: int, c: int, dtype: str) -> int:
    """Return the distance of two batches in the blocked form: a multiple of 256 bytes."""
    return -(-batch_used_bytes(p, c, dtype) // BATCH_ALIGN_BYTES) * BATCH_ALIGN_BYTES


def blocked_bytes(n: int, p: int, c: int, dtype: str) -> int:
    """Return the footprint of the blocked form; the last batch is padded too."""
    return n * batch_stride_bytes(p, c, dtype)


def dense_bytes(shape: Sequence[int], dtype: str) -> int:
    """Return the footprint of the dense row-major form."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def image_bytes(shape: Sequence[int], dtype: str, layout: str) -> int:
    """Return the footprint of a tensor in DDR: "dense" or "blocked"."""
    return dense_bytes(shape, dtype) if layout == "dense" else blocked_bytes(*npc(shape), dtype)


def element_offset(n, p, c, P: int, C: int, dtype: str):  # noqa: N803 - the manual's names
    """Return the byte offset of element (n, p, c) of a blocked tensor with P positions, C channels.

    `n`, `p`, `c` may be integers or integer arrays that broadcast together.
    """
    block, size = block_size(dtype), ITEM_BYTES[dtype]
    cx, c0 = blocked_params(C, dtype)
    base = n * batch_stride_bytes(P, C, dtype)
    in_full = ((c // block) * P + p) * block + c % block
    in_tail = cx * block * P + p * c0 + (c - cx * block)
    if isinstance(c, np.ndarray):
        return base + np.where(c // block < cx, in_full, in_tail) * size
    return base + (in_full if c // block < cx else in_tail) * size


def dense_offset(n, p, c, P: int, C: int, dtype: str):  # noqa: N803 - the manual's names
    """Return the byte offset of element (n, p, c) of a dense tensor."""
    return ((n * P + p) * C + c) * ITEM_BYTES[dtype]


def npc(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return how a logical shape is seen as (batches, positions, channels)."""
    rank = len(shape)
    if rank == 0:
        return 1, 1, 1
    if rank == 1:
        return 1, 1, shape[0]
    if rank == 2:
        return 1, shape[0], shape[1]
    return shape[0], math.prod(shape[1:-1]), shape[-1]


def _regions(buf: np.ndarray, n: int, p: int, c: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return views of a (n, stride) byte buffer: full blocks [n,Cx,p,B] and tail [n,p,C0]."""
    block, size = block_size(dtype), ITEM_BYTES[dtype]
    cx, c0 = blocked_params(c, dtype)
    carrier = np.dtype(f"u{size}")
    split, used = cx * block * p * size, batch_used_bytes(p, c, dtype)
    full = buf[:, :split].view(carrier).reshape(n, cx, p, block)
    tail = buf[:, split:used].view(carrier).reshape(n, p, c0)
    return full, tail


def pack(x: np.ndarray, dtype: str, out: np.ndarray | None = None) -> np.ndarray:
    """Return the blocked bytes (u8, flat) of `x` shaped (N, P, C); padding is zero. out: where they go, as many zeros.

    Raises ConfigError if `x` is not of rank 3 or not stored as `dtype`.
    """
    x = np.asarray(x)
    if x.ndim != 3 or x.dtype != np_dtype(dtype):
        raise ConfigError(f"packing a tensor: found rank {x.ndim} {x.dtype}, expected rank 3 {np_dtype(dtype)}")
    n, p, c = x.shape
    stride = batch_stride_bytes(p, c, dtype)
    buf = np.zeros((n, stride), np.uint8) if out is None else out.reshape(n, stride)
    place(x, dtype, buf, p)
    return buf.reshape(-1)


def place(x: np.ndarray, dtype: str, batches: np.ndarray, positions: int, at: int = 0) -> None:
    """Write some positions of a tensor, (N, some, C) stored as `dtype` in any order, into its blocked bytes, (N, batch stride) u8: those
    from `at` on of so many `positions`. Padding is left as it is."""
    n, rows, c = x.shape
    if x.size == 0:
        return
    full, tail = (region[..., at : at + rows, :] for region in _regions(batches, n, positions, c, dtype))
    x = x.view(f"u{ITEM_BYTES[dtype]}")
    block = block_size(dtype)
    whole, rest = divmod(c, block)
    blocks = x[:, :, : whole * block].reshape(n, rows, whole, block).transpose(0, 2, 1, 3)
    step = LANES if x.strides[-1] != x.itemsize else block
    for lane in range(0, block, step):
        full[:, :whole, :, lane : lane + step] = blocks[..., lane : lane + step]
    if rest and full.shape[1] > whole:
        full[:, whole, :, :rest] = x[:, :, whole * block :]
    elif rest:
        tail[:, :, :rest] = x[:, :, whole * block :]


def unpack(buf: np.ndarray, n: int, p: int, c: int, dtype: str) -> np.ndarray:
    """Return the (n, p, c) tensor stored in blocked bytes `buf` (u8, at least the footprint).

    Raises ConfigError if `buf` is too short.
    """
    raw = np.ascontiguousarray(buf).reshape(-1).view(np.uint8)
    need = blocked_bytes(n, p, c, dtype)
    if raw.size < need:
        raise ConfigError(f"unpacking ({n}, {p}, {c}) {dtype}: found {raw.size} bytes, required {need} bytes")
    out = np.empty((n, p, c), f"u{ITEM_BYTES[dtype]}")
    if out.size == 0:
        return out.view(np_dtype(dtype))
    full, tail = _regions(raw[:need].reshape(n, -1), n, p, c, dtype)
    block = block_size(dtype)
    whole, rest = divmod(c, block)
    out[:, :, : whole * block] = full[:, :whole].transpose(0, 2, 1, 3).reshape(n, p, whole * block)
    if rest and full.shape[1] > whole:
        out[:, :, whole * block :] = full[:, whole, :, :rest]
    elif rest:
        out[:, :, whole * block :] = tail[:, :, :rest]
    return out.view(np_dtype(dtype))
