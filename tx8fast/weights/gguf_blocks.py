"""The packed block formats of GGUF files as arithmetic: blocks of bytes to f32.

May import: numpy, weights.dtypes, errors. Must not: read files, or need the `gguf` package.

A tensor is a row of blocks of 32 or 256 elements; a block holds its scale (f16), for some formats an offset (f16) and
scales of sub-blocks, and the packed numbers. Unpacking goes a bounded number of blocks at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError

#: elements that are widened to f32 at once
CHUNK_ELEMENTS = 1 << 20
Blocks = np.ndarray  # u8 [n, bytes per block]


def _f16(blocks: Blocks, at: int) -> np.ndarray:
    """The f16 at byte `at` of each block, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """[n, k] bytes -> [n, 2 k]: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(blocks: Blocks, at: int) -> np.ndarray:
    """32 bits at byte `at`, lowest first, as u8 [n, 32]."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")


def _q8_0(b: Blocks) -> np.ndarray:
    return np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.float32) * _f16(b, 0)


def _q4_0(b: Blocks) -> np.ndarray:
    return (_nibbles(b[:, 2:]).astype(np.float32) - 8) * _f16(b, 0)


def _q4_1(b: Blocks) -> np.ndarray:
    return _nibbles(b[:, 4:]).astype(np.float32) * _f16(b, 0) + _f16(b, 2)


def _q5_0(b: Blocks) -> np.ndarray:
    q = _nibbles(b[:, 6:]) | _fifth_bits(b, 2) << 4
    return (q.astype(np.float32) - 16) * _f16(b, 0)


def _q5_1(b: Blocks) -> np.ndarray:
    q = _nibbles(b[:, 8:]) | _fifth_bits(b, 4) << 4
    return q.astype(np.float32) * _f16(b, 0) + _f16(b, 2)


def _k_blocks(b: Blocks, q: np.ndarray) -> np.ndarray:
    """Eight sub-blocks of 32 numbers `q` with a 6-bit scale and a 6-bit minimum each."""
    low, high, mixed = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scale = np.concatenate([low & 63, (mixed & 15) | (low >> 6) << 4], axis=1).astype(np.float32) * _f16(b, 0)
    least = np.concatenate([high & 63, (mixed >> 4) | (high >> 6) << 4], axis=1).astype(np.float32) * _f16(b, 2)
    return (q.astype(np.float32) * scale[:, :, None] - least[:, :, None]).reshape(len(b), 256)


def _k_nibbles(packed: np.ndarray) -> np.ndarray:
    packed = packed.reshape(len(packed), 4, 1, 32)
    return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(len(packed), 8, 32)


def _q4_k(b: Blocks) -> np.ndarray:
    return _k_blocks(b, _k_nibbles(b[:, 16:144]))


def _q5_k(b: Blocks) -> np.ndarray:
    """Byte i of the 32 in front holds the fifth bits of number i of every sub-block, the first sub-block's lowest."""
    top = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    return _k_blocks(b, _k_nibbles(b[:, 48:176]) | top << 4)


def _q6_k(b: Blocks) -> np.ndarray:
    """Sixteen sub-blocks of 16 with an 8-bit scale each; four low bits and two high bits per number."""
    n = len(b)
    low, high = b[:, :128].reshape(n, 2, 1, 64), b[:, 128:192].reshape(n, 2, 1, 32)
    q = np.concatenate([low & 15, low >> 4], axis=2).reshape(n, 8, 32)
    top = np.concatenate([high >> s & 3 for s in (0, 2, 4, 6)], axis=2).reshape(n, 8, 32)
    number = (q | top << 4).astype(np.float32).reshape(n, 16, 16) - 32
    scale = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32) * _f16(b, 208)
    return (number * scale[:, :, None]).reshape(n, 256)


def _two_bits(packed: np.ndarray) -> np.ndarray:
    """[n, 64] bytes -> [n, 8, 32]: of each half the lowest bits of all bytes, then the next."""
    packed = packed.reshape(len(packed), 2, 1, 32)
    return np.concatenate([packed >> s & 3 for s in (0, 2, 4, 6)], axis=2).reshape(len(packed), 8, 32)


def _q2_k(b: Blocks) -> np.ndarray:
    """Sixteen sub-blocks of 16 with a 4-bit scale below a 4-bit minimum each."""
    sides, n = b[:, :16], len(b)
    scale, least = (sides & 15).astype(np.float32) * _f16(b, 80), (sides >> 4).astype(np.float32) * _f16(b, 82)
    number = _two_bits(b[:, 16:80]).reshape(n, 16, 16).astype(np.float32)
    return (number * scale[:, :, None] - least[:, :, None]).reshape(n, 256)


def _q3_k(b: Blocks) -> np.ndarray:
    """Two low bits; bit i of the 32 bytes in front is the third of sub-block i of 32; sixteen 6-bit scales, less 32."""
    n = len(b)
    top = b[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    number = (_two_bits(b[:, 32:96]) | top << 2).astype(np.float32).reshape(n, 16, 16) - 4
    low = np.concatenate([b[:, 96:104] & 15, b[:, 96:104] >> 4], axis=1)
    high = np.concatenate([b[:, 104:108] >> s & 3 for s in (0, 2, 4, 6)], axis=1)
    scale = ((low | high << 4).astype(np.float32) - 32) * _f16(b, 108)
    return (number * scale[:, :, None]).reshape(n, 256)


#: numbers of a four-bit code, closer to each other near zero
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
#: floats with two exponent bits and one mantissa bit, sign highest (OCP Microscaling Formats v1.0, 5.3.3)
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _iq4_nl(b: Blocks) -> np.ndarray:
    return _IQ4[_nibbles(b[:, 2:])] * _f16(b, 0)


def _iq4_xs(b: Blocks) -> np.ndarray:
    """Eight sub-blocks of 32 with a 6-bit scale, less 32, each."""
    n = len(b)
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(n, 8)
    words = np.ascontiguousarray(b[:, 2:4]).view("<u2")
    high = (words >> np.arange(0, 16, 2, dtype=np.uint16)[None] & 3).astype(np.uint8)
    scale = ((low | high << 4).astype(np.float32) - 32) * _f16(b, 0)
    packed = b[:, 8:].reshape(n * 8, 16)
    return (_IQ4[_nibbles(packed)].reshape(n, 8, 32) * scale[:, :, None]).reshape(n, 256)


def _mxfp4(b: Blocks) -> np.ndarray:
    return np.ldexp(_FP4[_nibbles(b[:, 1:])], b[:, :1].astype(np.int32) - 127)


#: format -> (elements per block, bytes per block, unpacking)
BLOCKS: dict[str, tuple[int, int, Callable[[Blocks], np.ndarray]]] = {
    "Q8_0": (32, 34, _q8_0),
    "Q4_0": (32, 18, _q4_0),
    "Q4_1": (32, 20, _q4_1),
    "Q5_0": (32, 22, _q5_0),
    "Q5_1": (32, 24, _q5_1),
    "Q4_K": (256, 144, _q4_k),
    "Q5_K": (256, 176, _q5_k),
    "Q6_K": (256, 210, _q6_k),
    "Q2_K": (256, 84, _q2_k),
    "Q3_K": (256, 110, _q3_k),
    "IQ4_NL": (32, 18, _iq4_nl),
    "IQ4_XS": (256, 136, _iq4_xs),
    "MXFP4": (32, 17, _mxfp4),
}


def unpack_blocks(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """Blocks u8 [n, bytes per block] of `attrs["format"]` as f32 of `shape`."""
    name = attrs.get("format")
    if name not in BLOCKS:
        raise ImportModelError(
            f"unpacking a weight: unknown block format {name!r}, expected one of {', '.join(BLOCKS)}"
        )
    per_block, block_bytes, unpack = BLOCKS[name]
    blocks = inputs[0]
    if blocks.ndim != 2 or blocks.shape[1] != block_bytes or len(blocks) * per_block != int(np.prod(shape)):
        raise ImportModelError(
            f"unpacking a weight: {list(blocks.shape)} bytes of {name} blocks ({per_block} elements in {block_bytes} "
            f"bytes) do not hold {list(shape)} elements"
        )
    out = np.empty((len(blocks), per_block), np.float32)
    step = CHUNK_ELEMENTS // per_block
    for a in range(0, len(blocks), step):
        out[a : a + step] = unpack(blocks[a : a + step])
    return out.reshape(shape)
