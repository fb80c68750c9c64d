"""The header of a GGUF file: metadata and the list of tensors, straight from the bytes.

May import: the standard library, errors, files. Must not: touch tensor data, or need the `gguf` package, which makes one array
per token of the vocabulary: half a minute for a header that is read here in a fraction of a second.

Every count and length is compared with what is left of the file before anything is made of it.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.files import open_input
from tx8fast.records import dataclass

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_RANK = 8
#: arrays up to this length become lists; of longer ones (vocabularies) only the length is kept
KEPT_LENGTH = 4096
#: value type -> `struct` format
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
#: the format's numbers of element and block types
FORMATS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Skipped:
    """An array of metadata too long to be kept."""

    length: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """`shape` is outermost first, `offset` in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    format: str
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the data. `size`: bytes of the whole file."""

    metadata: dict[str, Any]
    tensors: list[TensorInfo]
    size: int


def read_gguf_header(path: str | os.PathLike[str]) -> Header:
    """Return metadata and tensors of a little-endian GGUF file of version 2 or 3.

    Raises ImportModelError for a file that is damaged, truncated or none of the kind, UnsupportedError for another
    version or byte order.
    """
    where = os.fspath(path)
    try:
        with open_input(where) as f:
            if os.fstat(f.fileno()).st_size < 24:
                raise ImportModelError(f"opening {where}: truncated, or no GGUF file")
            data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise ImportModelError(f"opening {where}: {e.strerror or e}") from e
    with data:
        return _Cursor(data, where).header()


class _Cursor:
    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data, self.where, self.at, self.size = data, where, 0, len(data)

    def bad(self, what: str) -> ImportModelError:
        return ImportModelError(f"opening {self.where}: {what}; truncated, damaged or no GGUF file")

    def take(self, n_bytes: int, what: str) -> int:
        """Return where the next `n_bytes` begin and go past them."""
        at = self.at
        if n_bytes > self.size - at:
            raise self.bad(f"{what} needs {n_bytes} bytes at byte {at}, the file has {self.size}")
        self.at = at + n_bytes
        return at

    def number(self, kind: str, what: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self.data, self.take(struct.calcsize("<" + kind), what))
        return value

    def text(self, what: str) -> str:
        n_bytes = self.number("Q", what)
        at = self.take(n_bytes, what)
        try:
            return self.data[at : at + n_bytes].decode()
        except UnicodeDecodeError as e:
            raise self.bad(f"{what} is not UTF-8 text") from e

    def header(self) -> Header:
        if self.data[self.take(4, "the magic") : 4] != MAGIC:
            raise self.bad("no 'GGUF' at its start")
        version = self.number("I", "the version")
        if version not in VERSIONS:
            if version & 0xFFFF == 0:
                raise UnsupportedError(
                    f"opening {self.where}: the file is big-endian; only little-endian files are read"
                )
            raise UnsupportedError(f"opening {self.where}: version {version} is not read, supported are 2 and 3")
        n_tensors, n_keys = self.number("Q", "the header"), self.number("Q", "the header")
        metadata: dict[str, Any] = {}
        for _ in range(n_keys):
            key = self.text("a metadata key")
            if key in metadata:
                raise self.bad(f"metadata key '{key}' appears twice")
            metadata[key] = self.value(self.number("I", f"metadata '{key}'"), f"metadata '{key}'")
        raw = [self.tensor() for _ in range(n_tensors)]
        align = metadata.get("general.alignment", 32)
        if type(align) is not int or not 0 < align <= 1 << 20:
            raise self.bad(f"metadata 'general.alignment' is {align!r}, required: a whole number from 1 to {1 << 20}")
        base = -(-self.at // align) * align
        tensors = [TensorInfo(name, shape, form, base + offset) for name, shape, form, offset in raw]
        names = {t.name for t in tensors}
        if len(names) != len(tensors):
            seen: set[str] = set()
            twice = next(t.name for t in tensors if t.name in seen or seen.add(t.name))  # type: ignore[func-returns-value]
            raise self.bad(f"tensor '{twice}' appears twice")
        return Header(metadata, tensors, self.size)

    def tensor(self) -> tuple[str, tuple[int, ...], str, int]:
        name = self.text("a tensor's name")
        rank = self.number("I", f"tensor '{name}'")
        if rank > MAX_RANK:
            raise self.bad(f"tensor '{name}' has {rank} dimensions, at most {MAX_RANK} are possible")
        shape = tuple(reversed([self.number("Q", f"tensor '{name}'") for _ in range(rank)]))
        form = self.number("I", f"tensor '{name}'")
        return name, shape, FORMATS.get(form, f"type {form}"), self.number("Q", f"tensor '{name}'")

    def value(self, kind: int, what: str) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind], what)
        if kind == _TEXT:
            return self.text(what)
        if kind != _ARRAY:
            raise self.bad(f"{what} has the unknown type {kind}")
        inner, length = self.number("I", what), self.number("Q", what)
        if inner in _NUMBERS:
            layout = "<" + _NUMBERS[inner]
            at = self.take(struct.calcsize(layout) * length, what)
            if length > KEPT_LENGTH:
                return Skipped(length)
            return list(struct.unpack_from(f"<{length}{_NUMBERS[inner]}", self.data, at))
        if inner != _TEXT:
            raise self.bad(f"{what} is an array of type {inner}")
        if length * 8 > self.size - self.at:
            raise self.bad(f"{what} has {length} entries, more than the file has room for")
        for _ in range(length):
            self.take(self.number("Q", what), what)
        return Skipped(length)
