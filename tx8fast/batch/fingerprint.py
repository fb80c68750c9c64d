"""What a program's bytes depend on, named field by field: the key of a cache entry.

May import: options, machine, errors, the package's own files. Must not: open a model, read weights.

The values of weights enter a program only where a compilation reads them (folded constants, embedded images). Which bytes
these are is known afterwards: they are listed in the entry (`Read`) and looked at again before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast import __version__
from tx8fast.errors import ConfigError
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.records import dataclass

#: files beside a checkpoint that no program depends on
IRRELEVANT = (
    "tokenizer",
    "vocab",
    "merges",
    "special_tokens",
    "added_tokens",
    "generation_config",
    "preprocessor_config",
    "chat_template",
)
HEAD_BYTES = 64 << 20  # of a GGUF file: metadata and the table of tensors lie in front of the weights
CHUNK_BYTES = 1 << 22
#: options that name a file, whose content counts
FILES = ("load_plans", "group_table", "kernels")


@dataclass(frozen=True)
class Read:
    """Bytes [offset, offset + nbytes) of a file, relative to the model's directory, that a compilation has read."""

    file: str
    offset: int
    nbytes: int
    sha256: str


def digest(fields_: Mapping[str, str]) -> str:
    """Return the key of an entry with these fields."""
    return hashlib.sha256(json.dumps(fields_, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the compiler itself: a changed file makes other programs, whatever the version says."""
    root = Path(__file__).resolve().parent.parent
    total = hashlib.sha256()
    suffixes = (".py", ".pyx", ".pxd", ".toml", ".c", ".h")
    for path in sorted(p for p in root.rglob("*") if p.suffix in suffixes and p.is_file()):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:32]


def fingerprint(model: Path, options: CompileOptions) -> dict[str, str]:
    """Return the fields that decide the program of a model, but for the values of weights. Raises ConfigError for files that
    cannot be read."""
    out = {"version": f"{__version__} ({code_digest()})", "machine": load_machine(options.machine).digest}
    for f in fields(options):
        value = getattr(options, f.name)
        if f.name != "machine":
            out[f"option {f.name}"] = (
                _file(Path(value)) if f.name in FILES and Path(str(value)).is_file() else _text(value)
            )
    try:
        for name, found in _model_files(model):
            out[f"file {name}"] = found
    except OSError as e:
        raise ConfigError(f"reading {e.filename or model}: {e.strerror or e}") from e
    return out


def other_options(fields_: Mapping[str, str]) -> dict[str, str]:
    """Return the options in an entry's fields that are not the usual ones, by name."""
    usual = CompileOptions()
    names = [
        f.name
        for f in fields(usual)
        if fields_.get(f"option {f.name}", _text(getattr(usual, f.name))) != _text(getattr(usual, f.name))
    ]
    found = {name: fields_[f"option {name}"] for name in names}
    return found | ({"chips": "auto"} if fields_.get("chips auto") == "True" else {})


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps({str(k): _text(v) for k, v in sorted(value.items())})
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    return repr(value)


def _model_files(model: Path) -> Iterable[tuple[str, str]]:
    if not model.is_dir():
        head = b"" if not model.is_file() else _head(model, 8)
        yield "model", _file(model, HEAD_BYTES if head.startswith(b"GGUF") else None)
        if model.name != "config.json":
            return
    folder = model if model.is_dir() else model.parent
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if path.suffix == ".safetensors":
            yield path.name, _safetensors(path)
        elif path.suffix == ".json" and not path.name.startswith(IRRELEVANT):
            yield path.name, _file(path)
        elif path.suffix in (".onnx", ".gguf", ".mlir"):
            yield path.name, _file(path, HEAD_BYTES if path.suffix == ".gguf" else None)


def _head(path: Path, n: int) -> bytes:
    with open(path, "rb") as f:
        return f.read(n)


def _safetensors(path: Path) -> str:
    """The header says names, formats and places; the weights behind it are not read."""
    size = path.stat().st_size
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        return f"{size} bytes, header {hashlib.sha256(f.read(min(length, size))).hexdigest()}"


def _file(path: Path, limit: int | None = None) -> str:
    total = hashlib.sha256()
    size = path.stat().st_size
    left = size if limit is None else min(size, limit)
    with open(path, "rb") as f:
        while left > 0 and (chunk := f.read(min(CHUNK_BYTES, left))):
            total.update(chunk)
            left -= len(chunk)
    return f"{size} bytes, {total.hexdigest()}"


def bytes_digest(path: Path, offset: int, nbytes: int) -> str:
    """Return the SHA-256 of a part of a file, "" if the file has no such bytes."""
    total = hashlib.sha256()
    try:
        with open(path, "rb") as f:
            if os.fstat(f.fileno()).st_size < offset + nbytes:
                return ""
            f.seek(offset)
            while nbytes > 0 and (chunk := f.read(min(CHUNK_BYTES, nbytes))):
                total.update(chunk)
                nbytes -= len(chunk)
    except OSError:
        return ""
    return total.hexdigest()


def changed_reads(root: Path, reads: Iterable[Read]) -> list[str]:
    """Return the files whose bytes are no longer those that were read."""
    return sorted({r.file for r in reads if bytes_digest(root / r.file, r.offset, r.nbytes) != r.sha256})
