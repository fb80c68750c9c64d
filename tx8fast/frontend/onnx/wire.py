"""Finds where inline tensor bytes lie in an ONNX file, so that weights are mapped instead of copied.

May import: the standard library. Must not: decode anything but the field headers it walks past.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

_GRAPH, _INITIALIZER, _TENSOR_NAME, _RAW_DATA = 7, 5, 8, 9  # field numbers of onnx.proto


def raw_data_places(path: str) -> dict[str, tuple[int, int]]:
    """Return name -> (offset, size) in bytes of the raw data of every initialiser of the main graph.

    Raises OSError if the file cannot be read and ValueError if its fields run past its end.
    """
    places: dict[str, tuple[int, int]] = {}
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, start, end in _fields(data, 0, len(data)):
            if number != _GRAPH:
                continue
            for inner, a, b in _fields(data, start, end):
                if inner != _INITIALIZER:
                    continue
                name, place = "", None
                for field, lo, hi in _fields(data, a, b):
                    if field == _TENSOR_NAME:
                        name = data[lo:hi].decode("utf-8", "replace")
                    elif field == _RAW_DATA:
                        place = (lo, hi - lo)
                if place is not None:
                    places[name] = place
    return places


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of every length-delimited field in [at, end); others are skipped."""
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            if at + size > end:
                raise ValueError(f"field {tag >> 3} at byte {at} runs past byte {end}")
            yield tag >> 3, at, at + size
            at += size
        elif kind == 0:
            _, at = _varint(data, at, end)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {at}")


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"number at byte {at} is cut off")
