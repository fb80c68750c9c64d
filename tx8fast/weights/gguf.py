"""Opening GGUF files: tensors become entries of a weight table, packed ones as lazy dequantisation of their blocks.

May import: the `gguf` package (late, an optional extra), numpy, weights.*, errors. Must not: read tensor bytes.

Keys are the file's tensor names. A packed tensor's blocks are an entry of their own, `<name>#<format>`, of u8 and
shape [blocks, bytes per block]; the tensor itself is derived from it (see `weights/gguf_blocks.py`).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError, raise_all
from tx8fast.weights.dtypes import FLOATS, ITEM_BYTES
from tx8fast.weights.gguf_blocks import BLOCKS
from tx8fast.weights.table import DerivedSource, FileSource, Weight, WeightTable

#: formats stored plainly, by GGUF's name
PLAIN = {
    "F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufEntry:
    """One stored tensor: bytes [offset, offset + nbytes) of `path`; `shape` is outermost first, `format` GGUF's name."""

    path: str
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    format: str


def open_gguf(path: str | os.PathLike[str]) -> dict[str, GgufEntry]:
    """Return all tensors of a GGUF file, in the file's order, without reading one.

    Raises ConfigError without the `gguf` package, ImportModelError for a damaged file (all problems at once), and
    UnsupportedError for formats that nothing here unpacks.
    """
    try:
        import gguf
    except ImportError as e:
        raise ConfigError(
            f"opening {path}: GGUF files need the 'gguf' package; install tx8fast[gguf] or convert the file to safetensors"
        ) from e
    where = os.fspath(path)
    try:
        size = os.path.getsize(where)
        reader = gguf.GGUFReader(where)  # type: ignore[attr-defined]
    except OSError as e:
        raise ImportModelError(f"opening {where}: {e.strerror or e}") from e
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as e:
        raise ImportModelError(f"opening {where}: truncated, damaged or no GGUF file: {e}") from e
    if getattr(reader, "byte_order", "I") != "I":
        raise UnsupportedError(f"opening {where}: the file is big-endian; only little-endian files are read")
    entries: dict[str, GgufEntry] = {}
    problems: list[str] = []
    unknown: dict[str, str] = {}
    for t in reader.tensors:
        entry = GgufEntry(where, int(t.data_offset), int(t.n_bytes), tuple(int(n) for n in reversed(t.shape)),
                          t.tensor_type.name)  # fmt: skip
        if entry.format not in PLAIN and entry.format not in BLOCKS:
            unknown.setdefault(entry.format, t.name)
        else:
            problems += _problems(t.name, entry, size)
        entries[t.name] = entry
    problems += _overlaps(entries)
    raise_all(ImportModelError, f"opening {where}", problems)
    if unknown:
        listed = ", ".join(f"{f} (first '{name}')" for f, name in unknown.items())
        raise UnsupportedError(
            f"opening {where}: formats {listed} are not supported; supported are {', '.join([*PLAIN, *BLOCKS])}"
        )
    return entries


def _problems(name: str, e: GgufEntry, size: int) -> list[str]:
    elements = math.prod(e.shape)
    if e.format in PLAIN:
        need = elements * ITEM_BYTES[PLAIN[e.format]]
    else:
        per_block, block_bytes, _ = BLOCKS[e.format]
        if not e.shape or e.shape[-1] % per_block:
            return [f"tensor '{name}': {e.format} {list(e.shape)} needs rows of a multiple of {per_block} elements"]
        need = elements // per_block * block_bytes
    out = []
    if e.nbytes != need:
        out.append(f"tensor '{name}': has {e.nbytes} bytes, {e.format} {list(e.shape)} needs {need}")
    if e.offset < 0 or e.offset + e.nbytes > size:
        out.append(
            f"tensor '{name}': bytes [{e.offset}, {e.offset + e.nbytes}) required, the file has {size}; truncated"
        )
    return out


def _overlaps(entries: dict[str, GgufEntry]) -> list[str]:
    out = []
    end, before = 0, ""
    for name, e in sorted(entries.items(), key=lambda kv: (kv[1].offset, kv[1].nbytes)):
        if e.nbytes and e.offset < end:
            out.append(f"tensor '{name}' overlaps '{before}' by {end - e.offset} bytes")
        if e.offset + e.nbytes > end:
            end, before = e.offset + e.nbytes, name
    return out


def add_gguf(table: WeightTable, entries: dict[str, GgufEntry], dtype: str = "f32") -> list[str]:
    """Add the tensors of `open_gguf`; packed ones get the format `dtype` once somebody reads them. Return their keys."""
    if dtype not in FLOATS:
        raise ConfigError(f"adding GGUF weights: packed tensors become floats, found '{dtype}'")
    for name, e in entries.items():
        source = FileSource(e.path, e.offset, e.nbytes)
        if e.format in PLAIN:
            table.add(Weight(name, e.shape, PLAIN[e.format], source))
            continue
        block_bytes = BLOCKS[e.format][1]
        raw = f"{name}#{e.format.lower()}"
        attrs: dict[str, Any] = {"format": e.format}
        table.add(Weight(raw, (e.nbytes // block_bytes, block_bytes), "u8", source))
        table.add(Weight(name, e.shape, dtype, DerivedSource("gguf_blocks", attrs, (raw,))))
    return list(entries)
