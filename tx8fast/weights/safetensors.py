"""Opening safetensors checkpoints: headers are read and validated, tensor bytes are not touched.

May import: the standard library, weights.dtypes, errors, files. Must not: map or read tensor data.

A file is an 8-byte little-endian header length, a JSON header, then the tensors without gaps. A sharded
checkpoint has a `*.safetensors.index.json` whose `weight_map` names the file of every tensor.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from tx8fast.errors import ImportModelError, raise_all
from tx8fast.files import open_input, read_input
from tx8fast.records import dataclass
from tx8fast.weights.dtypes import ITEM_BYTES, SAFETENSORS

MAX_HEADER_BYTES = 100_000_000
MAX_RANK = 8
SINGLE_NAME = "model.safetensors"


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One stored tensor: bytes [offset, offset + nbytes) of `path`."""

    path: str
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


def find_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """Return the index (preferred) or the single safetensors file of a model directory, or None.

    Raises ImportModelError if several candidates exist and none has the usual name.
    """
    folder = Path(directory)
    for pattern, usual in (
        ("*.safetensors.index.json", SINGLE_NAME + ".index.json"),
        ("*.safetensors", SINGLE_NAME),
    ):
        found = sorted(folder.glob(pattern))
        if not found:
            continue
        preferred = folder / usual
        if preferred in found:
            return preferred
        if len(found) == 1:
            return found[0]
        names = ", ".join(p.name for p in found[:5])
        raise ImportModelError(
            f"opening the checkpoint in {folder}: {len(found)} candidates ({names}) and none is '{usual}'; "
            f"shards need a '{SINGLE_NAME}.index.json' beside them"
        )
    return None


def open_checkpoint(path: str | os.PathLike[str]) -> dict[str, CheckpointEntry]:
    """Return all tensors of a `.safetensors` file or of an index of shards, in file order.

    Raises ImportModelError that lists every problem of every file.
    """
    path = Path(path)
    problems: list[str] = []
    if path.name.endswith(".index.json"):
        entries = _open_sharded(path, problems)
    else:
        entries = read_header(path, problems)
    raise_all(ImportModelError, f"opening checkpoint {path}", problems)
    return entries


def _open_sharded(path: Path, problems: list[str]) -> dict[str, CheckpointEntry]:
    try:
        index = json.loads(read_input(path, MAX_HEADER_BYTES), object_pairs_hook=_unique)
    except (OSError, ValueError, RecursionError) as e:
        problems.append(f"the index cannot be read: {e}")
        return {}
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        problems.append("the index has no 'weight_map' object of tensor name -> file name")
        return {}
    shards: dict[str, dict[str, CheckpointEntry]] = {}
    for name in sorted(set(weight_map.values())):
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            problems.append(f"shard name '{name}' leaves the model directory")
        else:
            shards[name] = read_header(path.parent / name, problems)
    if problems:
        return {}
    entries: dict[str, CheckpointEntry] = {}
    for key, name in weight_map.items():
        entry = shards[name].get(key)
        if entry is None:
            problems.append(f"the index puts '{key}' into {name}, which does not contain it")
        else:
            entries[key] = entry
    return entries


def read_header(path: Path, problems: list[str]) -> dict[str, CheckpointEntry]:
    """Return the tensors of one file in order of their offsets; append what is wrong to `problems`."""
    try:
        with open_input(path) as f:
            size = os.fstat(f.fileno()).st_size
            head = f.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length < 2 or length > MAX_HEADER_BYTES or length + 8 > size:
                problems.append(
                    f"{path.name}: header length {length} is not credible for a file of {size} bytes "
                    f"(required: 2 to {max(min(MAX_HEADER_BYTES, size - 8), 2)} bytes); truncated or not safetensors"
                )
                return {}
            text = f.read(length)
        header = json.loads(text, object_pairs_hook=_unique)
    except OSError as e:
        problems.append(f"{path.name}: cannot be read: {e.strerror or e}")
        return {}
    except (ValueError, RecursionError) as e:
        problems.append(f"{path.name}: the header is not valid JSON: {e}")
        return {}
    if not isinstance(header, dict):
        problems.append(f"{path.name}: the header is not a JSON object")
        return {}
    header.pop("__metadata__", None)
    base = 8 + length
    entries: dict[str, CheckpointEntry] = {}
    for key, raw in header.items():
        entry = _entry(path, base, key, raw, problems)
        if entry is not None:
            entries[key] = entry
    if len(entries) == len(header):  # with an unreadable entry the coverage check would only repeat the complaint
        entries = dict(sorted(entries.items(), key=lambda kv: (kv[1].offset, kv[1].nbytes)))
        _check_coverage(path.name, base, size, entries, problems)
    return entries


def _check_coverage(name: str, base: int, size: int, entries: dict[str, CheckpointEntry], problems: list[str]) -> None:
    end = base
    for key, e in entries.items():
        if e.offset != end:
            what = "hole" if e.offset > end else "overlap"
            problems.append(f"{name}: {what} of {abs(e.offset - end)} bytes before '{key}'")
        end = max(end, e.offset + e.nbytes)
    if end > size:
        problems.append(f"{name}: truncated: tensors need {end} bytes, the file has {size}")
    elif end < size:
        problems.append(f"{name}: {size - end} bytes after the last tensor")


def _entry(path: Path, base: int, key: str, raw: Any, problems: list[str]) -> CheckpointEntry | None:
    where = f"{path.name}: tensor '{key}'"
    if not isinstance(raw, dict):
        problems.append(f"{where}: its header entry is not an object")
        return None
    dtype = SAFETENSORS.get(raw["dtype"]) if isinstance(raw.get("dtype"), str) else None
    shape, offsets = raw.get("shape"), raw.get("data_offsets")
    before = len(problems)
    if dtype is None:
        problems.append(f"{where}: dtype {raw.get('dtype')!r} is not one of {', '.join(SAFETENSORS)}")
    if not _naturals(shape) or len(shape) > MAX_RANK:
        problems.append(f"{where}: shape {shape!r} is not a list of at most {MAX_RANK} sizes >= 0")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        problems.append(f"{where}: data_offsets {offsets!r} is not [begin, end] with 0 <= begin <= end")
    if len(problems) > before or dtype is None or shape is None or offsets is None:
        return None
    nbytes = offsets[1] - offsets[0]
    need = math.prod(shape) * ITEM_BYTES[dtype]
    if nbytes != need:
        problems.append(f"{where}: has {nbytes} bytes, {raw['dtype']} {shape} needs {need}")
        return None
    return CheckpointEntry(str(path), base + offsets[0], nbytes, tuple(shape), dtype)


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key '{key}' appears twice")
        found[key] = value
    return found
