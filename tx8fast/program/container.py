"""The outer shell of a `.tx8` file: checked sections of raw bytes and one JSON header.

May import: errors, files. Must not: know what the sections mean.

Layout, little-endian:
  prefix, 64 bytes: magic (8), major, minor (2 x u2), zero (u4), header offset, header bytes, file bytes
    (3 x u8), BLAKE2b-128 of everything in the file outside sections with the digest field as zeros (16), zero (8)
  sections, each at a multiple of 64 bytes, zero-filled up to the next multiple
  header: JSON (UTF-8, sorted keys, no spaces): {"sections": [{"name", "offset", "bytes", "digest"}, ...], "body": ...}

The header is last so that sections of unknown length can be streamed. A section's digest covers its filling.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tx8fast.errors import ProgramError, Tx8Error
from tx8fast.files import open_input, replacing

MAGIC = b"\x89TX8\r\n\x1a\n"
PREFIX = struct.Struct("<8sHHIQQQ16s8x")
ALIGN = 64
MAX_HEADER_BYTES = 1 << 30
MAX_SECTIONS = 128
PIECE_BYTES = 1 << 20  # written and summed up while it is in the cache

Chunks = Iterable[bytes | bytearray | memoryview]


def _digest(*parts: bytes | memoryview) -> str:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part)
    return state.hexdigest()


def _strict(value: Any) -> Any:
    """Return `value` with non-finite floats as {"$float": text}, which strict JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if isinstance(value, dict):
        return {k: _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value


def _scalar(value: Any) -> Any:
    """Return array-library scalars as plain numbers; anything else is refused."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return _strict(value.item())
    raise TypeError(f"{type(value).__name__} {value!r:.80} is not JSON-able")


def _unstrict(obj: dict[str, Any]) -> Any:
    if len(obj) == 1 and obj.get("$float") in ("inf", "-inf", "nan"):
        return float(obj["$float"])
    return obj


def write(
    path: str | os.PathLike[str],
    version: tuple[int, int],
    body: Any,
    sections: Iterable[tuple[str, Chunks]],
) -> None:
    """Write a file under a temporary name beside `path`, then rename it; on any failure nothing is left behind.

    `body` is JSON-able; `sections` are names and iterables of byte chunks, consumed once, in order.
    Raises ProgramError if the file cannot be written or `body` is no JSON.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a rename would replace a device or a pipe
        raise ProgramError(f"writing program file {path}: it exists and is no regular file; give another name")
    try:
        with replacing(path, "program file") as f:
            _write(f, version, body, sections)
    except OSError as e:
        raise ProgramError(f"writing program file {path}: {e.strerror or e}") from e
    except (TypeError, ValueError) as e:
        if isinstance(e, Tx8Error):
            raise
        raise ProgramError(f"writing program file {path}: the header is no JSON: {e}") from e


def _write(f, version: tuple[int, int], body: Any, sections: Iterable[tuple[str, Chunks]]) -> None:
    f.write(bytes(PREFIX.size))
    at = PREFIX.size
    table = []
    for name, chunks in sections:
        state = hashlib.blake2b(digest_size=16)
        size = 0
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            for begin in range(0, len(view), PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                f.write(piece)
                state.update(piece)
            size += len(view)
        fill = bytes(-size % ALIGN)
        f.write(fill)
        state.update(fill)
        table.append({"name": name, "offset": at, "bytes": size, "digest": state.hexdigest()})
        at += size + len(fill)
    text = json.dumps(
        {"sections": table, "body": _strict(body)},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_scalar,
    )
    header = text.encode("utf-8", "surrogatepass")
    if len(header) > MAX_HEADER_BYTES:
        raise ProgramError(f"writing a program: header of {len(header)} bytes, at most {MAX_HEADER_BYTES} allowed")
    f.write(header)
    fields = (MAGIC, *version, 0, at, len(header), at + len(header))
    digest = bytes.fromhex(_digest(PREFIX.pack(*fields, bytes(16)), header))
    f.seek(0)
    f.write(PREFIX.pack(*fields, digest))


class Container:
    """An open file: `body` (the JSON), and sections as read-only views into a memory map."""

    def __init__(self, path: str | os.PathLike[str], version: tuple[int, int]) -> None:
        """Map the file and check prefix, header and section table, but no section's content.

        Raises ProgramError if the file is missing, damaged, or of another major version than `version`.
        """
        self.path = Path(path)
        self._map = self._open()
        self._view = memoryview(self._map)
        self._read(version)

    def _fail(self, text: str) -> ProgramError:
        return ProgramError(f"reading program file {self.path}: {text}")

    def _open(self) -> mmap.mmap:
        try:
            with open_input(self.path) as f:
                size = os.fstat(f.fileno()).st_size
                if size < PREFIX.size:
                    raise self._fail(f"{size} bytes, at least {PREFIX.size} required; the file is truncated")
                return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as e:
            raise self._fail(e.strerror or str(e)) from e

    def _read(self, version: tuple[int, int]) -> None:
        view, total = self._view, len(self._view)
        magic, major, minor, zero, offset, size, file_bytes, digest = PREFIX.unpack(view[: PREFIX.size])
        if magic != MAGIC:
            raise self._fail("this is not a .tx8 file, or its first bytes were changed")
        if major != version[0] or minor > version[1]:
            raise self._fail(
                f"format version {major}.{minor}, this build reads {version[0]}.0 to "
                f"{version[0]}.{version[1]}; compile the model again"
            )
        if file_bytes != total:
            raise self._fail(f"{total} bytes, {file_bytes} expected; the file is truncated or was extended")
        if size > MAX_HEADER_BYTES or offset < PREFIX.size or offset + size != total or offset % ALIGN:
            raise self._fail(f"header at byte {offset} with {size} bytes does not fit; the file is damaged")
        header = view[offset:]
        fields = (magic, major, minor, zero, offset, size, file_bytes)
        if bytes(view[PREFIX.size - 8 : PREFIX.size]) != bytes(8) or zero != 0:
            raise self._fail("reserved bytes are set; the file is damaged")
        if _digest(PREFIX.pack(*fields, bytes(16)), header) != digest.hex():
            raise self._fail("the header's checksum is wrong; the file is damaged")
        try:
            tree = json.loads(bytes(header).decode("utf-8", "surrogatepass"), object_hook=_unstrict)
            self.body = tree["body"]
            table = [(str(s["name"]), int(s["offset"]), int(s["bytes"]), str(s["digest"])) for s in tree["sections"]]
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
            OverflowError,
        ) as e:
            raise self._fail(f"the header is malformed ({type(e).__name__}: {e})") from e
        if len(table) > MAX_SECTIONS:
            raise self._fail(f"{len(table)} sections, at most {MAX_SECTIONS} allowed")
        at = PREFIX.size
        self._sections: dict[str, tuple[int, int, str]] = {}
        for name, begin, count, section_digest in table:
            if begin != at or count < 0 or begin + count > offset or name in self._sections:
                raise self._fail(f"section '{name}' at byte {begin} with {count} bytes does not fit")
            self._sections[name] = (begin, count, section_digest)
            at = begin + count + (-count % ALIGN)
        if at != offset:
            raise self._fail(f"sections end at byte {at}, the header begins at {offset}")

    def section(self, name: str, check: bool = True) -> memoryview:
        """Return the bytes of a section. Raises ProgramError if it is missing or `check` finds it changed."""
        if name not in self._sections:
            raise self._fail(f"section '{name}' is missing")
        begin, size, digest = self._sections[name]
        if check and _digest(self._view[begin : begin + size + (-size % ALIGN)]) != digest:
            raise self._fail(f"the checksum of section '{name}' is wrong; the file is damaged")
        return self._view[begin : begin + size]

    def digest(self, name: str) -> str:
        """Return the stored digest (hex) of a section."""
        return self._sections[name][2]
