"""Opening GGUF files: tensors become entries of a weight table, packed ones as lazy dequantisation of their blocks.

May import: weights.*, errors, files. Must not: read tensor bytes.

Keys are the file's tensor names. A packed tensor's blocks are an entry of their own, `<name>#<format>`, of u8 and
shape [blocks, bytes per block]; the tensor itself is derived from it (see `weights/gguf_blocks.py`).
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

from tx8fast.errors import ImportModelError, UnsupportedError, raise_all
from tx8fast.files import open_input
from tx8fast.records import dataclass
from tx8fast.weights.dtypes import ITEM_BYTES
from tx8fast.weights.gguf_blocks import BLOCKS
from tx8fast.weights.gguf_header import MAGIC, Header, TensorInfo, read_gguf_header
from tx8fast.weights.table import DerivedSource, FileSource, Weight, WeightTable

#: formats stored plainly, by GGUF's name
PLAIN = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F64": "f64",
    "I8": "i8",
    "I16": "i16",
    "I32": "i32",
    "I64": "i64",
}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class GgufEntry:
    """One stored tensor: bytes [offset, offset + nbytes) of `path`; `shape` is outermost first, `format` GGUF's name."""

    path: str
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    format: str

    @property
    def dtype(self) -> str:
        """Our name of a plain format, GGUF's name of a packed one."""
        return PLAIN.get(self.format, self.format)


def is_gguf(path: Path) -> bool:
    """Return True if a file begins as GGUF files do."""
    if not path.is_file():
        return False
    with open_input(path) as f:
        return f.read(len(MAGIC)) == MAGIC


def open_gguf(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, GgufEntry]]:
    """Return metadata and all tensors of a GGUF file and of the files it was split into, without reading one.

    Raises ImportModelError for a damaged file (all problems at once), and UnsupportedError for formats that
    nothing here unpacks.
    """
    where = os.fspath(path)
    header = read_gguf_header(where)
    entries: dict[str, GgufEntry] = {}
    problems: list[str] = []
    unknown: dict[str, str] = {}
    for part in _parts(where, header):
        found = _entries(part, header if part == where else read_gguf_header(part), problems, unknown)
        problems += [f"tensor '{name}' is in {entries[name].path} and in {part}" for name in found if name in entries]
        entries |= found
    raise_all(ImportModelError, f"opening {where}", problems)
    if unknown:
        listed = ", ".join(f"{f} (first '{name}')" for f, name in unknown.items())
        raise UnsupportedError(
            f"opening {where}: formats {listed} are not supported; supported are {', '.join([*PLAIN, *BLOCKS])}"
        )
    return header.metadata, entries


def _parts(where: str, header: Header) -> list[str]:
    """Return the files of a model, in order: itself, or all that the first of several names."""
    count = header.metadata.get("split.count", 1)
    if type(count) is not int or count <= 1:
        return [where]
    name = _SHARD.search(where)
    if name is None or int(name[2]) != count or header.metadata.get("split.no") != int(name[1]) - 1:
        raise ImportModelError(
            f"opening {where}: it is one of {count} parts, whose names must end in -00001-of-{count:05}.gguf and so on"
        )
    if int(name[1]) != 1:
        raise ImportModelError(
            f"opening {where}: it is part {name[1]} of {count}; name the first, which has the metadata"
        )
    return [f"{where[: name.start()]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]


def _entries(where: str, header: Header, problems: list[str], unknown: dict[str, str]) -> dict[str, GgufEntry]:
    entries: dict[str, GgufEntry] = {}
    for t in header.tensors:
        if t.format not in PLAIN and t.format not in BLOCKS:
            unknown.setdefault(t.format, t.name)
        elif (nbytes := _nbytes(t, problems)) is not None:
            if t.offset + nbytes > header.size:
                problems.append(
                    f"tensor '{t.name}': bytes [{t.offset}, {t.offset + nbytes}) required, the file has {header.size}; "
                    "truncated"
                )
            entries[t.name] = GgufEntry(where, t.offset, nbytes, t.shape, t.format)
    problems += _overlaps(entries)
    return entries


def _nbytes(t: TensorInfo, problems: list[str]) -> int | None:
    elements = math.prod(t.shape)
    if t.format in PLAIN:
        return elements * ITEM_BYTES[PLAIN[t.format]]
    per_block, block_bytes, _ = BLOCKS[t.format]
    if t.shape and t.shape[-1] % per_block == 0:
        return elements // per_block * block_bytes
    problems.append(f"tensor '{t.name}': {t.format} {list(t.shape)} needs rows of a multiple of {per_block} elements")
    return None


def _overlaps(entries: dict[str, GgufEntry]) -> list[str]:
    out = []
    end, before = 0, ""
    for name, e in sorted(entries.items(), key=lambda kv: (kv[1].offset, kv[1].nbytes)):
        if e.nbytes and e.offset < end:
            out.append(f"tensor '{name}' overlaps '{before}' by {end - e.offset} bytes")
        if e.offset + e.nbytes > end:
            end, before = e.offset + e.nbytes, name
    return out


def add_gguf(table: WeightTable, name: str, entry: GgufEntry, dtype: str) -> str:
    """Add a tensor of `open_gguf` under its name; a packed one becomes `dtype` once somebody reads it. Return its key."""
    source = FileSource(entry.path, entry.offset, entry.nbytes)
    if entry.format in PLAIN:
        return table.add(Weight(name, entry.shape, PLAIN[entry.format], source)).key
    block_bytes = BLOCKS[entry.format][1]
    raw = f"{name}#{entry.format.lower()}"
    attrs: dict[str, Any] = {"format": entry.format}
    table.add(Weight(raw, (entry.nbytes // block_bytes, block_bytes), "u8", source))
    return table.add(Weight(name, entry.shape, dtype, DerivedSource("gguf_blocks", attrs, (raw,)))).key
