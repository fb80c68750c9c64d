"""The weight table: key -> logical shape, dtype and source; bytes appear only through `view`.

May import: numpy, errors, files, weights.derived, weights.dtypes, weights.safetensors. Must not: rename keys,
hash or copy tensor data. Files are mapped read-only, one map per file, dropped when its last entry goes.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from tx8fast.errors import ImportModelError
from tx8fast.files import open_input
from tx8fast.records import dataclass
from tx8fast.weights.derived import evaluate
from tx8fast.weights.dtypes import ITEM_BYTES, dtype_name, np_dtype

DIGEST_CHUNK_BYTES = 64 << 20
CONST_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSource:
    """Bytes [offset, offset + nbytes) of a file, dense, little-endian."""

    path: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """An owned array, for constants of the model file and tests."""

    array: np.ndarray


@dataclass(frozen=True, slots=True)
class MissingSource:
    """Shape known, bytes not: the model can be compiled but not run."""


@dataclass(frozen=True, slots=True, eq=False)
class DerivedSource:
    """An expression of `weights.derived` over other entries of the same table."""

    expr: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()


Source = FileSource | ArraySource | MissingSource | DerivedSource


@dataclass(slots=True, eq=False)
class Weight:
    """One entry. `mutable` is set for keys that the program itself writes.

    `chips`: which chips hold it, None for all. `variants`: chip -> its own source, where chips hold different bytes
    of one type; `source` then stands for the first of them.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    source: Source
    mutable: bool = False
    chips: tuple[int, ...] | None = None
    variants: Mapping[int, Source] = field(default_factory=dict)

    def source_on(self, chip: int | None) -> Source:
        """Return where the bytes for `chip` come from. Raises ImportModelError if that chip has none."""
        if chip is None:
            return self.source
        if self.chips is not None and chip not in self.chips:
            raise ImportModelError(f"weight '{self.key}' is on chips {list(self.chips)}, not on chip {chip}")
        return self.variants.get(chip, self.source)

    @property
    def nbytes(self) -> int:
        """Dense bytes of the tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Stored(Protocol):
    """A tensor of an opened file, in a format of ours."""

    @property
    def path(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


class WeightTable:
    """Ordered mapping of keys to `Weight`. `root`: what file descriptions are relative to."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = None if root is None else os.path.abspath(root)
        self._entries: dict[str, Weight] = {}
        self._maps: dict[str, mmap.mmap | bytes] = {}
        #: what `view` has handed out: the bytes on which a program may depend
        self.file_reads: set[FileSource] = set()
        #: of it, what passes have made something else of
        self.decided: set[FileSource] = set()

    def __getitem__(self, key: str) -> Weight:
        found = self._entries.get(key)
        if found is None:
            raise ImportModelError(f"weight '{key}' is not in the weight table ({len(self._entries)} entries)")
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> list[str]:
        return list(self._entries)

    def values(self) -> list[Weight]:
        return list(self._entries.values())

    def items(self) -> list[tuple[str, Weight]]:
        return list(self._entries.items())

    def get(self, key: str) -> Weight | None:
        return self._entries.get(key)

    def add(self, weight: Weight) -> Weight:
        """Add an entry. Raises ImportModelError if the key exists or the source's size does not fit the type."""
        if weight.key in self._entries:
            raise ImportModelError(f"weight '{weight.key}' is already in the weight table")
        np_dtype(weight.dtype)
        for source in (weight.source, *weight.variants.values()):
            if isinstance(source, FileSource) and source.nbytes != weight.nbytes:
                raise ImportModelError(
                    f"weight '{weight.key}': {source.path} holds {source.nbytes} bytes at offset {source.offset}, "
                    f"{weight.dtype} {list(weight.shape)} needs {weight.nbytes}"
                )
        self._entries[weight.key] = weight
        return weight

    def add_file(self, key: str, entry: Stored) -> Weight:
        """Add a tensor of an opened checkpoint."""
        return self.add(Weight(key, entry.shape, entry.dtype, FileSource(entry.path, entry.offset, entry.nbytes)))

    def add_array(self, key: str, array: np.ndarray) -> Weight:
        """Add an owned array; the table keeps a read-only view, its dtype decides the format."""
        array = np.ascontiguousarray(array).reshape(np.shape(array)).view()
        array.flags.writeable = False
        return self.add(Weight(key, array.shape, dtype_name(array.dtype), ArraySource(array)))

    def add_missing(self, key: str, shape: Sequence[int], dtype: str) -> Weight:
        """Add an entry that can be compiled against but not read."""
        return self.add(Weight(key, tuple(shape), dtype, MissingSource()))

    def add_derived(
        self, key: str, expr: str, attrs: Mapping[str, Any], inputs: Sequence[str], shape: Sequence[int], dtype: str
    ) -> Weight:
        """Add a computed entry; `inputs` are keys of this table. Nothing is evaluated."""
        return self.add(Weight(key, tuple(shape), dtype, DerivedSource(expr, dict(attrs), tuple(inputs))))

    def add_per_chip(self, key: str, sources: Mapping[int, Source], shape: Sequence[int], dtype: str) -> Weight:
        """Add an entry that only the chips named hold, each with its own bytes (or several with the same source)."""
        if not sources:
            raise ImportModelError(f"weight '{key}': a weight per chip needs at least one chip")
        chips = tuple(sorted(sources))
        variants = {chip: sources[chip] for chip in chips}
        return self.add(Weight(key, tuple(shape), dtype, variants[chips[0]], False, chips, variants))

    def remove(self, key: str) -> None:
        """Drop an entry; the file it came from is unmapped with its last entry."""
        weight = self[key]
        del self._entries[key]
        gone = _paths(weight)
        for other in self._entries.values() if gone else ():
            gone -= _paths(other)
        for path in gone:
            self._maps.pop(path, None)

    def release(self) -> None:
        """Drop all file maps; views handed out before must not be used any more. The next `view` maps again."""
        self._maps.clear()

    def move_to(self, other: WeightTable) -> None:
        """Move all entries into `other` without copying bytes; this table is empty afterwards."""
        clash = [k for k in self._entries if k in other._entries]
        if clash:
            raise ImportModelError(f"moving weights: {len(clash)} keys exist in both tables, first '{clash[0]}'")
        other._entries.update(self._entries)
        other._maps.update(self._maps)
        other.file_reads |= self.file_reads
        other.decided |= self.decided
        self._entries, self._maps = {}, {}

    def missing(self) -> list[str]:
        """Return the keys whose bytes are not available, directly or through an input."""
        return [k for k in self._entries if self._is_missing(k)]

    def _is_missing(self, key: str) -> bool:
        source = self[key].source
        if isinstance(source, DerivedSource):
            return any(self._is_missing(k) for k in source.inputs)
        return isinstance(source, MissingSource)

    def view(self, key: str, chip: int | None = None) -> np.ndarray:
        """Return the tensor (as `chip` holds it), read-only: a view of the file map or owned array, or a freshly derived array.

        Raises ImportModelError for a missing entry or a file that changed since it was opened.
        """
        weight = self[key]
        source, dtype = weight.source_on(chip), np_dtype(weight.dtype)
        if isinstance(source, ArraySource):
            return source.array
        if isinstance(source, DerivedSource):
            inputs = [self.view(k, chip if self.varies(k) else None) for k in source.inputs]
            return evaluate(source.expr, source.attrs, inputs, weight.shape, dtype)
        if isinstance(source, FileSource):
            if source.path not in self._maps:
                self._maps[source.path] = _map(source.path)
            self.file_reads.add(source)
            return _slice(self._maps[source.path], source, weight.shape, dtype, key)
        raise ImportModelError(
            f"reading weight '{key}': the model came without weights (compile-only); "
            "name a directory with *.safetensors files to run it"
        )

    def let_go(self) -> None:
        """Give back the memory of what was read; views stay valid, and read their file again."""
        for held in self._maps.values():
            if isinstance(held, mmap.mmap) and hasattr(held, "madvise"):
                held.madvise(mmap.MADV_DONTNEED)

    def store(self, key: str, array: np.ndarray) -> None:
        """Replace the bytes of a mutable entry, as a program's write does; the table keeps a copy.

        Raises ImportModelError if the entry is immutable or its shape or dtype differs.
        """
        weight = self[key]
        array = np.array(array, order="C")
        found = dtype_name(array.dtype)
        if not weight.mutable:
            raise ImportModelError(f"writing weight '{key}': it is immutable; only a program that sets it may write it")
        if array.shape != weight.shape or found != weight.dtype:
            raise ImportModelError(
                f"writing weight '{key}': found {found} {list(array.shape)}, required {weight.dtype} {list(weight.shape)}"
            )
        array.flags.writeable = False
        mutable = Weight(key, weight.shape, weight.dtype, ArraySource(array), True, weight.chips)
        place = list(self._entries)
        self.remove(key)
        entries = {**self._entries, key: mutable}
        self._entries = {k: entries[k] for k in place}

    def const_view(self, key: str, limit_bytes: int = CONST_LIMIT_BYTES) -> np.ndarray | None:
        """Return the tensor if passes may treat it as a constant: immutable, available, at most `limit_bytes`."""
        weight = self[key]
        if weight.mutable or self.varies(key) or weight.nbytes > limit_bytes or self._is_missing(key):
            return None
        return self.view(key)

    def digest(self, key: str) -> str:
        """Return the SHA-256 of the tensor's dtype, shape and bytes as hex, read in chunks; nothing else asks for it."""
        weight = self[key]
        data = np.ascontiguousarray(self.view(key)).reshape(-1).view(np.uint8)
        total = hashlib.sha256(f"{weight.dtype}{list(weight.shape)}".encode())
        for at in range(0, data.size, DIGEST_CHUNK_BYTES):
            total.update(data[at : at + DIGEST_CHUNK_BYTES].data)
        return total.hexdigest()

    def varies(self, key: str) -> bool:
        """True if chips hold different bytes, directly or through an input."""
        weight = self[key]
        return bool(weight.variants) or any(self.varies(k) for k in getattr(weight.source, "inputs", ()))

    def describe(
        self, key: str, chip: int | None = None, made: dict[str, dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return the JSON-able place of the bytes (as `chip` holds them); `resolve` turns it back into an array. made: descriptions
        that are the same on every chip, by key; they are taken from there and put there."""
        weight = self[key]
        source = weight.source_on(chip)
        typed = {"dtype": weight.dtype, "shape": list(weight.shape)}
        if isinstance(source, FileSource):
            return {"kind": "file", **self._place(source), **typed}
        if isinstance(source, DerivedSource):
            inputs = [self._input(k, chip, made) for k in source.inputs]
            return {
                "kind": "derived",
                "expr": source.expr,
                "attrs": dict(source.attrs),
                "inputs": inputs,
                **typed,
            }
        return {"kind": "array" if isinstance(source, ArraySource) else "missing", **typed}

    def _place(self, source: FileSource) -> dict[str, Any]:
        name = os.path.basename(source.path)
        if self.root is not None:
            relative = os.path.relpath(os.path.abspath(source.path), self.root)
            # outside the root only the name is kept: descriptions must not depend on the machine
            name = name if relative.startswith("..") else relative
        return {"file": name.replace(os.sep, "/"), "offset": source.offset, "nbytes": source.nbytes}

    def decide(self, key: str) -> None:
        """Note that a program would be another one with other bytes of this tensor."""
        weight = self[key]
        self.decided |= {s for s in (weight.source, *weight.variants.values()) if isinstance(s, FileSource)}
        for other in getattr(weight.source, "inputs", ()):
            self.decide(other)

    def deciding(self) -> list[dict[str, Any]]:
        """Return of every place in files that `decide` was told of: a weight's name, what `resolve` reads its bytes by, their SHA-256."""
        names = {source: w.key for w in reversed(self.values()) for source in (w.source, *w.variants.values())}
        found = []
        for source in self.decided:
            place = {"kind": "file", **self._place(source), "dtype": "u8", "shape": [source.nbytes]}
            raw = _slice(_map(source.path), source, (source.nbytes,), np_dtype("u8"), source.path)
            found.append({"name": names.get(source, ""), **place, "sha256": hashlib.sha256(raw.data).hexdigest()})
        return sorted(found, key=lambda place: (place["file"], place["offset"], place["nbytes"]))

    def _input(self, key: str, chip: int | None, made: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
        if self.varies(key):
            return self.describe(key, chip, made)
        if made is None:
            return self.describe(key)
        if key not in made:
            made[key] = self.describe(key, None, made)
        return made[key]


def resolve(description: Mapping[str, Any], root: str | os.PathLike[str] | None = None) -> np.ndarray:
    """Return the read-only array that `WeightTable.describe` described; relative files are under `root`.

    Raises ImportModelError if the bytes are not in a file or the description is damaged.
    """
    kind = description.get("kind")
    try:
        shape, dtype = tuple(int(n) for n in description["shape"]), np_dtype(description["dtype"])
        if kind == "file":
            name = PurePosixPath(description["file"])
            if name.is_absolute() or ".." in name.parts:
                raise ImportModelError(f"weight file '{name}' leaves the directory of the weights")
            path = Path(root or ".") / name
            source = FileSource(str(path), int(description["offset"]), int(description["nbytes"]))
            return _slice(_map(source.path), source, shape, dtype, path.name)
        if kind == "derived":
            inputs = [resolve(d, root) for d in description.get("inputs", [])]
            return evaluate(description["expr"], description.get("attrs", {}), inputs, shape, dtype)
    except (KeyError, TypeError, ValueError) as e:
        if isinstance(e, ImportModelError):
            raise
        raise ImportModelError(f"damaged weight description {dict(description)!r}: {e!r}") from e
    raise ImportModelError(f"weight bytes of kind '{kind}' cannot be read from files; expected file or derived")


def _paths(weight: Weight) -> set[str]:
    """The files that hold the entry's bytes."""
    return {s.path for s in (weight.source, *weight.variants.values()) if isinstance(s, FileSource)}


def _map(path: str) -> mmap.mmap | bytes:
    try:
        with open_input(path) as f:
            if os.fstat(f.fileno()).st_size == 0:
                return b""
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise ImportModelError(f"reading weight file {path}: {e.strerror or e}") from e


def _slice(
    data: mmap.mmap | bytes, source: FileSource, shape: tuple[int, ...], dtype: np.dtype, key: str
) -> np.ndarray:
    if source.offset < 0 or source.offset + source.nbytes > len(data):
        raise ImportModelError(
            f"reading weight '{key}': bytes [{source.offset}, {source.offset + source.nbytes}) of {source.path} "
            f"required, the file has {len(data)}; it changed after it was opened"
        )
    if source.nbytes == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype, source.nbytes // dtype.itemsize, source.offset).reshape(shape)
