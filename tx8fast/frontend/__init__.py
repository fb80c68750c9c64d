"""Model readers: `open_model` tells the format of a path and imports it.

May import: frontend.common, the readers (late), errors, files. Must not: import a reader's file-format library itself.
"""

from __future__ import annotations

import os
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from tx8fast.errors import ConfigError, ImportModelError, UnusedOptionWarning
from tx8fast.files import open_input, refer_folder

__all__ = ["open_model"]


#: beside a graph that was exported; `ir.export` says what is in it
DESCRIPTION = "graph.json"
#: how the text of a graph begins, which `reduce` and `--stop-after` write
_GRAPH = re.compile(rb'\s*"tx8be\.module"')
#: "owner/name", as hubs call their models
_HUB_ID = re.compile(
    r"[A-Za-z0-9][\w.-]*/(?!.*\.(?:onnx|gguf|json|mlir|mlirbc|stablehlo|jaxexport)$)[A-Za-z0-9][\w.-]*"
)


def open_model(path: str | os.PathLike[str], **options: Any):
    """Import the model at `path` into an `IRProgram`: an ONNX, StableHLO or GGUF file, a
    Hugging Face directory, a `config.json`, the text of a graph or a directory that `tx8fast export` wrote.

    `options` are the fields of `ImportOptions` (phase, seq, past, batch, dims, constants) and, for
    Hugging Face models, those of its reader. Raises ImportModelError if the format is not recognised.
    """
    if not os.fspath(path):
        raise ImportModelError("opening model: its name is empty; name a file or a directory")
    where = Path(path)
    if where.is_dir():
        refer_folder(where)
        config = where / "config.json"
        files = sorted([*where.glob("*.onnx"), *where.glob("*.gguf")])
        if config.is_file():
            return _open_hf(where, options)
        if (where / DESCRIPTION).is_file():
            return _open_exported(where, options)
        if len(files) == 1:
            return open_model(files[0], **options)
        found = ", ".join(f.name for f in files) or "nothing of the kind"
        raise ImportModelError(
            f"opening model {where}: expected a config.json, one .onnx or .gguf file, or what `export` wrote, found {found}"
        )
    try:
        with open_input(where) as f:
            head = f.read(1 << 16)
    except OSError as e:
        what = "no such file or directory" if isinstance(e, FileNotFoundError) else e.strerror or e
        if isinstance(e, FileNotFoundError) and _HUB_ID.fullmatch(os.fspath(path)):
            what = (
                f"{what}; if it is a model of a hub, fetch it first, for tx8fast loads nothing from a network: "
                f"`huggingface-cli download {where} --local-dir {where.name}`, then name the directory {where.name} (to compile, its "
                "config.json is enough)"
            )
        raise ImportModelError(f"opening model {where}: {what}") from e
    if not head:
        raise ImportModelError(f"opening model {where}: the file is empty")
    if head[:64].lstrip()[:1] == b"{" or head.startswith(b"GGUF") or where.suffix == ".gguf":
        return _open_hf(where, options)
    if _GRAPH.match(head):
        return _open_graph(where, options)
    if _is_stablehlo(head, where.suffix):
        return _open_stablehlo(where, options)
    if where.suffix == ".safetensors":
        raise ImportModelError(
            f"opening model {where}: weights alone are no model; name the directory with config.json"
        )
    return _open_onnx(where, options)


#: options of model directories and config files alone
BUILT = ("as_family", "part", "logits", "input", "source", "attention_mask")


def _no_kernels(path: Path) -> ConfigError:
    return ConfigError(f"opening model {path}: kernels serve nodes of ONNX models, this is none; drop --kernels")


def _check_options(path: Path, options: dict[str, Any], onnx: bool = False) -> None:
    given = [f"--{name.removesuffix('_family').replace('_', '-')}" for name in BUILT if options.get(name)]
    if given:
        raise ConfigError(
            f"opening model {path}: only model directories and config files take {', '.join(given)}; drop "
            f"{'it' if len(given) == 1 else 'them'}"
        )
    if options.get("kernels") and not onnx:
        raise _no_kernels(path)
    tp, chips = options.get("tp") or 1, options.get("chips")
    if chips is not None and chips % tp:
        raise ConfigError(f"import options: chips is {chips}, required a multiple of tp, {tp}")
    if options.get("tp") == 1:
        _warn_of_one()


def _warn_of_one() -> None:
    text = "tp 1 has no effect: a layer that nothing shares is whole anyway"
    warnings.warn(text, UnusedOptionWarning, stacklevel=4)


def _to_cut(program: Any, path: Path, options: dict[str, Any]) -> Any:
    """Tell the passes over how many chips they are to cut a graph that was read whole. Raises ConfigError if it was made for several devices."""
    program.again = partial(open_model, path, **{k: v for k, v in options.items() if k not in ("tp", "chips")})
    tp = options.get("tp") or 1
    if tp > 1:
        if program.chips != (1, 1):
            raise ConfigError(
                f"opening model {path}: it was made for {program.chips[0] * program.chips[1]} devices, which share it already; drop --tp"
            )
        program.parts = tp
    return program


def _open_graph(path: Path, options: dict[str, Any]):
    from tx8fast.frontend.graph import import_graph

    _check_options(path, options)
    return _to_cut(import_graph(path, options), path, options)


def _open_exported(path: Path, options: dict[str, Any]):
    from tx8fast.frontend.exported import import_exported

    _check_options(path, options)
    return _to_cut(import_exported(path, options), path, options)


def _open_onnx(path: Path, options: dict[str, Any]):
    from dataclasses import fields

    from tx8fast.frontend.common import ImportOptions
    from tx8fast.frontend.onnx import import_onnx

    _check_options(path, options, onnx=True)
    known = {f.name for f in fields(ImportOptions)}
    program = import_onnx(path, ImportOptions(**{k: v for k, v in options.items() if k in known}))
    return _to_cut(program, path, options)


#: how MLIR bytecode begins; a portable artifact then names StableHLO, a `jax.export` file holds one after its header
_BYTECODE = b"ML\xefR"
_ARTIFACT = re.compile(re.escape(_BYTECODE) + rb".StableHLO_v", re.S)
_MLIR_TEXT = re.compile(rb"\b(stablehlo|chlo)\.[a-z_]+|\bfunc\.func\b")


def _is_stablehlo(head: bytes, suffix: str) -> bool:
    """Tell StableHLO, text or bytes, by the first bytes of a file (64 KiB are plenty) and its suffix."""
    if head.startswith(_BYTECODE) or suffix in (".mlir", ".mlirbc", ".stablehlo", ".jaxexport"):
        return True
    if b"\0" in head:
        return _ARTIFACT.search(head) is not None
    return _MLIR_TEXT.search(head) is not None


def _open_stablehlo(path: Path, options: dict[str, Any]):
    from dataclasses import fields

    from tx8fast.frontend.common import ImportOptions
    from tx8fast.frontend.stablehlo import import_stablehlo

    _check_options(path, options)
    known = {f.name for f in fields(ImportOptions)} - ({"chips"} if (options.get("tp") or 1) > 1 else set())
    program = import_stablehlo(path, ImportOptions(**{k: v for k, v in options.items() if k in known}))
    return _to_cut(program, path, options)


def _open_hf(path: Path, options: dict[str, Any]):
    from dataclasses import fields

    from tx8fast.frontend.hf import HfOptions, import_hf

    known = {f.name for f in fields(HfOptions)}
    if options.get("constants"):
        raise ConfigError(
            f"opening model {path}: constants ({', '.join(options['constants'])}) cannot be bound, models of this kind have no symbolic dimensions; "
            "give batch, seq and past instead"
        )
    if options.get("kernels"):
        raise _no_kernels(path)
    if options.get("tp") == 1:
        _warn_of_one()
    if options.get("phase") == "decode" and options.get("seq") == 1:
        warnings.warn("seq has no effect, a decode step takes one token", UnusedOptionWarning, stacklevel=2)
    return import_hf(path, HfOptions(**{k: v for k, v in options.items() if k in known and v not in (None, "")}))
