"""Screenshots as numbers, with nothing but zlib.

Written after the PNG specification, third edition, sections 9 (filters) and 11 (chunks).
"""

from __future__ import annotations

import struct
import zlib

import numpy as np


def grey(data: bytes) -> np.ndarray:
    """Return the image as [height, width] floats from 0 (black) to 1; 8 bits per channel, RGB or RGBA, not interlaced."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, head = 8, b"", (0, 0, 0, 0, 0, 0, 0)
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        head = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    width, height, depth, colour, _, _, interlaced = head
    assert depth == 8 and colour in (2, 6) and not interlaced
    n = 3 if colour == 2 else 4
    raw = zlib.decompress(packed)
    stride = width * n
    before = bytearray(stride)
    rows = []
    for y in range(height):
        start = y * (stride + 1)
        before = _row(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, n)
        rows.append(np.frombuffer(before, np.uint8).reshape(width, n)[:, :3] @ np.array([0.299, 0.587, 0.114]))
    return np.stack(rows) / 255


def _row(kind: int, row: bytearray, above: bytearray, n: int) -> bytearray:
    """Undo the filter of a row."""
    if kind < 3:
        given = np.frombuffer(row, np.uint8)
        if kind == 1:
            given = np.cumsum(given.reshape(-1, n), axis=0, dtype=np.uint8).reshape(-1)
        return bytearray(given + np.frombuffer(above, np.uint8) if kind == 2 else given)
    for i, x in enumerate(row):
        left, up, corner = (row[i - n], above[i], above[i - n]) if i >= n else (0, above[i], 0)
        guess = (left + up) // 2
        if kind == 4:
            p = left + up - corner
            guess = min((left, up, corner), key=lambda v: abs(p - v))  # the first of equal ones
        row[i] = (x + guess) & 255
    return row
