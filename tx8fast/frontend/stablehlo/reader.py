"""Parses StableHLO text, portable artifacts and `jax.export` files through jaxlib's bindings.

May import: errors, numpy, ml_dtypes, jaxlib (late). Must not: create ops, import jax.

Every read uses a context of its own and parses a copy, so nothing that another user of the bindings holds can
change under it.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError, UnsupportedError

#: how MLIR bytecode begins; inside another file the producer's name follows
_BYTECODE = b"ML\xefR"
_ARTIFACT = re.compile(re.escape(_BYTECODE) + rb".StableHLO_v", re.S)
#: attribute of a call that stands for an operation of CHLO: the operation's own attributes
_MEANT = "tx8fast.chlo"
#: MLIR element type -> our dtype name
DTYPES = {
    "f32": "f32", "bf16": "bf16", "f16": "f16", "f64": "f64", "i1": "pred", "i4": "i4", "ui4": "u4", "i8": "i8",
    "ui8": "u8", "i16": "i16", "ui16": "u16", "i32": "i32", "ui32": "u32", "i64": "i64", "ui64": "u64",
    "f8E4M3FN": "f8e4m3fn", "f8E5M2": "f8e5m2",
}  # fmt: skip


def bindings():
    """Return (ir, passmanager, stablehlo, chlo, sdy, register) of jaxlib.

    Raises ImportModelError naming the extra to install if it is not there.
    """
    try:
        from jaxlib.mlir import ir, passmanager  # pyright: ignore[reportMissingImports]
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # pyright: ignore[reportMissingImports]
        from jaxlib.mlir.dialects import chlo, sdy, stablehlo  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise ImportModelError(
            f"reading StableHLO needs jaxlib, which cannot be imported ({e}); install it with: pip install 'tx8fast[stablehlo]'"
        ) from e
    return ir, passmanager, stablehlo, chlo, sdy, _jax_mlir_ext.register_dialects


def new_mlir_context() -> Any:
    """Return a fresh MLIR context that knows func, StableHLO, CHLO, VHLO and sdy."""
    ir, _, stablehlo, chlo, sdy, register = bindings()
    registry = ir.DialectRegistry()
    register(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    try:
        stablehlo.register_stablehlo_passes()
    except Exception:  # already registered by another user of the bindings in this process
        pass
    return context


def parse(data: bytes, what: str, context: Any) -> Any:
    """Return the MLIR module of a file's bytes; call it with `context` entered.

    Raises ImportModelError with the parser's words and, if it knows one, the line.
    """
    ir, _, stablehlo, *_ = bindings()
    inside = _ARTIFACT.search(data) if b"\0" in data else None
    at = 0 if data.startswith(_BYTECODE) else inside.start() if inside is not None else -1
    try:
        if at >= 0:
            return stablehlo.deserialize_portable_artifact(context, _embedded(data, at, what))
        if b"\0" in data:
            raise ImportModelError(
                f"{what}: neither StableHLO text nor a portable artifact; the file is damaged or of another format"
            )
        return ir.Module.parse(data.decode("utf-8"), context)
    except UnicodeDecodeError as e:
        raise ImportModelError(f"{what}: neither StableHLO text nor a portable artifact: {e}") from e
    except (ir.MLIRError, ValueError) as e:
        if isinstance(e, ImportModelError):
            raise
        raise ImportModelError(f"{what}: {_readable(str(e))}") from e


def _embedded(data: bytes, at: int, what: str) -> bytes:
    """Return the artifact that starts at `at`: the whole file, or one length-prefixed vector of a `jax.export` file."""
    if at == 0:
        return data
    size = int.from_bytes(data[max(at - 4, 0) : at], "little")
    if size > len(data) - at:
        raise ImportModelError(
            f"{what}: the artifact inside has {size} bytes, the file {len(data) - at}; it is truncated"
        )
    return data[at : at + size]


def _readable(message: str) -> str:
    """Turn the parser's message into one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    found = [
        re.sub(r'^error: "[^"]*":(\d+):(\d+): ', r"line \1, column \2: ", line)
        for line in lines
        if line.startswith("error:")
    ]
    text = "; ".join(found) or " ".join(lines) or "not a StableHLO module"
    hint = "; only stablehlo, chlo, func and sdy operations are read" if "unregistered dialect" in text else ""
    return (
        text.replace(". If this is intended, please use -allow-unregistered-dialect with the MLIR tool used", "") + hint
    )


def expand_chlo(module: Any, known: Container[str]) -> None:
    """Write the CHLO ops of a module that are not among `known` in ops of StableHLO; call it with the module's context entered.

    The dialect's pass would expand all of them, and what a known one becomes would depend on what else there is: the
    known ones are calls meanwhile. Raises ImportModelError if the pass fails, and of a module that marks its own calls so.
    """
    ir, passmanager, *_ = bindings()
    every = _walk(module.operation)
    ours = [op for op in every if op.name.startswith("chlo.")]
    if all(op.name in known for op in ours):
        return
    if any(op.name == "stablehlo.custom_call" and _MEANT in op.attributes for op in every):
        raise ImportModelError(
            f"writing CHLO in ops of StableHLO: a custom_call has the attribute '{_MEANT}'; take it out"
        )
    for op in ours:
        if op.name in known and len(op.regions) == 0:
            meant = [op.attributes[i] for i in range(len(op.attributes))]
            own = ir.DictAttr.get({a.name: a.attr for a in meant})
            _replace(op, "stablehlo.custom_call", {"call_target_name": ir.StringAttr.get(op.name), _MEANT: own})
    try:
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
    except ir.MLIRError as e:
        raise ImportModelError(f"writing CHLO in ops of StableHLO: {_readable(str(e))}") from e
    for op in [op for op in _walk(module.operation) if op.name == "stablehlo.custom_call" and _MEANT in op.attributes]:
        own = op.attributes[_MEANT]
        meant = [own[i] for i in range(len(own))]
        _replace(op, op.attributes["call_target_name"].value, {a.name: a.attr for a in meant})


def _walk(root: Any) -> list[Any]:
    """Return all operations below one."""
    found, stack = [], [root]
    while stack:
        for region in stack.pop().regions:
            for block in region.blocks:
                for op in block.operations:
                    found.append(op.operation)
                    if len(op.operation.regions):
                        stack.append(op.operation)
    return found


def _replace(op: Any, name: str, attributes: dict[str, Any]) -> None:
    """Put an operation of another name and other attributes where one without regions is."""
    ir = bindings()[0]
    types, at = [r.type for r in op.results], ir.InsertionPoint(op)
    new = ir.Operation.create(name, types, list(op.operands), attributes, loc=op.location, ip=at)
    for old, result in zip(op.results, new.results):
        old.replace_all_uses_with(result)
    op.erase()


class Types:
    """(shape, dtype) of MLIR types, remembered by type."""

    def __init__(self) -> None:
        self.ir = bindings()[0]
        self._known: dict[Any, tuple[tuple[int, ...], str]] = {}

    def __call__(self, type_: Any) -> tuple[tuple[int, ...], str]:
        """Raises UnsupportedError for anything but a tensor of static shape and of an element type we have."""
        found = self._known.get(type_)
        if found is None:
            found = self._known[type_] = self._read(type_)
        return found

    def _read(self, type_: Any) -> tuple[tuple[int, ...], str]:
        if not isinstance(type_, self.ir.RankedTensorType):
            raise UnsupportedError(f"type {type_} is not supported, only tensors of static shape are")
        if not type_.has_static_shape:
            raise UnsupportedError(f"type {type_} has a dynamic dimension; export the model with fixed shapes")
        element = str(type_.element_type)
        if element not in DTYPES:
            raise UnsupportedError(f"element type {element} is not supported; supported are {', '.join(DTYPES)}")
        return tuple(type_.shape), DTYPES[element]


def dense_array(attr: Any, shape: tuple[int, ...], dtype: str, np_dtype: np.dtype) -> np.ndarray:
    """Return a constant's array: of rank 0 if all its elements are equal, else of `shape`."""
    if getattr(attr, "is_splat", False) and 0 not in shape:
        return np.asarray(attr.get_splat_value().value).astype(np_dtype).reshape(())
    try:
        array = np.array(attr)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        array = _printed(attr, np_dtype)
    return array.astype(np_dtype, copy=False).reshape(shape)


def _printed(attr: Any, np_dtype: np.dtype) -> np.ndarray:
    """Decode a constant of a format that the bindings give no buffer for; larger ones print as their bytes."""
    text = str(attr)
    if m := re.match(r'dense(?:_resource)?<"0x([0-9A-Fa-f]*)">', text):
        return np.frombuffer(bytes.fromhex(m.group(1)), np_dtype)
    if not text.startswith("dense<"):
        raise UnsupportedError(f"constant {text[:60]} is stored outside the module; export it with its data inside")
    body = text[len("dense<") : text.rindex(">", 0, text.rindex(":"))]
    bits = np.dtype(f"u{np_dtype.itemsize}")
    words = re.findall(r"[^\s,\[\]]+", body)
    values = [
        np.array([int(w, 16)], bits).view(np_dtype)[0] if w.startswith("0x") else np_dtype.type(float(w)) for w in words
    ]
    return np.array(values, np_dtype)
