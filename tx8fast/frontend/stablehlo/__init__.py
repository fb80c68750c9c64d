"""StableHLO import: `import_stablehlo(path, options) -> IRProgram` from text, portable artifacts and `jax.export` files.

May import: frontend.common, frontend.stablehlo, ir, weights, errors. Must not: be imported for other formats.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, ImportModelError, Tx8Error, UnsupportedError, UnusedOptionWarning, raise_all
from tx8fast.files import read_input
from tx8fast.frontend.common import Emitter, ImportOptions, Tensor, build_program, np_type
from tx8fast.frontend.stablehlo import clusters
from tx8fast.frontend.stablehlo.guard import survive
from tx8fast.frontend.stablehlo.importer import Importer
from tx8fast.frontend.stablehlo.node import Handler
from tx8fast.frontend.stablehlo.reader import bindings, expand_chlo, new_mlir_context, parse
from tx8fast.frontend.stablehlo.view import whole
from tx8fast.ir import new_context
from tx8fast.ir.chips import MAX_CHIPS
from tx8fast.ir.program import IRProgram
from tx8fast.weights import WeightTable
from tx8fast.weights.safetensors import open_checkpoint

#: largest file that is read: the parser needs several times its size
MAX_FILE_BYTES = 1 << 32

__all__ = ["import_module", "import_stablehlo", "supported_ops"]


@lru_cache(maxsize=1)
def _handlers() -> dict[str, Handler]:
    from tx8fast.frontend.stablehlo import collective, contraction, control, elementwise, index, reduce, shape

    found: dict[str, Handler] = {}
    for family in (elementwise, shape, contraction, reduce, index, control, collective):
        found.update(family.HANDLERS)
    return found


def supported_ops() -> tuple[str, ...]:
    """Return the names of the MLIR ops that have a handler; CHLO has more, expanded by its own pass."""
    return tuple(sorted(_handlers()))


def import_stablehlo(path: str | os.PathLike[str], options: ImportOptions | None = None) -> IRProgram:
    """Read a StableHLO file into a program with one function "main".

    Arguments whose names are keys of a `.safetensors` file of the same stem beside the file become weights.
    Raises ImportModelError or UnsupportedError, each listing all problems of the file.
    """
    where = Path(path)
    try:
        data = read_input(where, MAX_FILE_BYTES)
    except OSError as e:
        raise ImportModelError(f"reading StableHLO {where}: {e.strerror or e}") from e
    beside = where.with_suffix(".safetensors")
    return import_module(data, str(where), options, beside if beside.is_file() else None)


def import_module(
    data: bytes, path: str = "", options: ImportOptions | None = None, weights_file: Path | None = None
) -> IRProgram:
    """Import the bytes of a module; `path` names their file in messages."""
    options = options or ImportOptions()
    what = path or "the module"
    fixed = [n for n in ("seq", "past", "batch") if getattr(options, n) is not None] + sorted(options.dims)
    if fixed:
        raise ConfigError(
            f"importing {what}: {', '.join(fixed)} cannot be bound, StableHLO has fixed shapes; export again with others"
        )
    if options.phase:
        warnings.warn("phase has no effect, StableHLO has fixed shapes", UnusedOptionWarning, stacklevel=2)
    bindings()  # says what to install
    survive(lambda: _parsed(data, what, threads=False), len(data), f"reading StableHLO {what}")
    context, module = _parsed(data, what)
    ctx = new_context()
    weights = WeightTable(Path(path).parent if path else None)
    with context:
        devices = _devices(module, what, options)

        def fill(block) -> tuple[list[str], list[str], list]:
            emitter = Emitter(ctx, block, weights)
            importer = Importer(module, what, emitter, _handlers(), clusters.find, devices)
            main = _main(importer)
            entry = _entry(main)
            names, args, positions = _arguments(importer, main, entry, block, options, weights_file)
            found = importer.run_block(entry, args)
            importer.finish()
            results = importer.needed(found)
            donated.extend(_donated(main, positions))
            emitter.loc = "return"
            return (
                names,
                [f"result{i}" for i in range(len(results))],
                [emitter.value(importer.views.full(v)) for v in results],
            )

        donated: list[int] = []
        try:
            program = build_program(ctx, weights, Path(path).stem if path else "model", fill)
        except (RuntimeError, UnicodeError) as e:
            if type(e) is not RuntimeError and not isinstance(e, UnicodeError):
                raise
            raise ImportModelError(  # the bindings' word for names that are no text, and for data that do not fit
                f"importing {what}: the bindings of jaxlib cannot read an entry of it ({e}); the file is damaged"
            ) from e
    program.module.attrs["chip_x"] = devices[0] * devices[1]
    if donated:
        func = next(op for op in program.module.regions[0].blocks[0] if op.kind == "func")
        func.attrs["donated"] = tuple(donated)
    return program


def _parsed(data: bytes, what: str, threads: bool = True) -> tuple[Any, Any]:
    """Return a new MLIR context and the module in it, of CHLO only what has handlers."""
    context = new_mlir_context()
    context.enable_multithreading(threads)
    with context:
        module = parse(data, f"reading StableHLO {what}", context)
        expand_chlo(module, _handlers())
    return context, module


def _devices(module: Any, what: str, options: ImportOptions) -> tuple[int, int]:
    """Return (replicas, partitions) of a module: what it says, else so many partitions as chips are asked for."""
    attrs = module.operation.attributes
    replicas, partitions = (
        int(attrs[name].value) if name in attrs else 1 for name in ("mhlo.num_replicas", "mhlo.num_partitions")
    )
    if not (replicas >= 1 and partitions >= 1 and min(replicas, partitions) == 1):
        raise UnsupportedError(
            f"importing {what}: {replicas} replicas of {partitions} partitions; export with several of one kind only"
        )
    declared = replicas * partitions
    if declared > MAX_CHIPS:
        raise UnsupportedError(f"importing {what}: it is for {declared} devices, at most {MAX_CHIPS} are supported")
    if options.chips and declared not in (1, options.chips):
        raise ConfigError(f"importing {what}: it was made for {declared} devices, {options.chips} chips are asked for")
    return (replicas, partitions) if declared > 1 else (1, options.chips or 1)


def _entry(main: Any) -> Any:
    """Return the block that one device runs: that of `main`, or of the manual computation that is all it does."""
    block = main.regions[0].blocks[0]
    ops = [o.operation for o in block.operations]
    if len(ops) == 2 and ops[0].name == "sdy.manual_computation":
        inner = ops[0]
        if list(inner.operands) == list(block.arguments) and list(ops[1].operands) == list(inner.results):
            return inner.regions[0].blocks[0]
    return block


def _main(importer: Importer) -> Any:
    """The entry function: main, or the only public one."""
    functions = importer.functions
    if "main" in functions:
        return functions["main"]
    public = [
        f
        for f in functions.values()
        if "sym_visibility" not in f.attributes or f.attributes["sym_visibility"].value == "public"
    ]
    if len(public) != 1:
        found = ", ".join(functions) or "none"
        raise ImportModelError(
            f"importing {importer.what}: no function 'main' and no single public one; functions: {found}"
        )
    return public[0]


def _arguments(
    importer: Importer, main: Any, entry: Any, block: Any, options: ImportOptions, weights_file: Path | None
):
    """Declare the arguments; return (names of those that stay, a view or None for each, result position of each)."""
    from tx8fast.weights import FileSource, Weight

    formals = list(entry.arguments)
    names = _names(main, list(main.regions[0].blocks[0].arguments))
    problems, types = [], []
    for name, formal in zip(names, formals):
        try:
            types.append(importer.types(formal.type))
        except Tx8Error as e:
            problems.append(f"argument '{name}': {e}")
    for result in main.attributes["function_type"].value.results:
        try:
            importer.types(result)
        except Tx8Error as e:
            problems.append(f"result: {e}")
    raise_all(ImportModelError, f"importing {importer.what}", problems)
    unknown = [n for n in options.constants if n not in names]
    raise_all(
        ConfigError,
        f"importing {importer.what}",
        [f"'{n}' is no argument; arguments are {', '.join(names)}" for n in unknown],
    )
    stored = open_checkpoint(weights_file) if weights_file is not None else {}
    emitter, kept, args, positions = importer.emitter, [], [], []
    for name, (shape, dtype) in zip(names, types):
        positions.append(len(kept) if name not in options.constants and name not in stored else -1)
        if name in options.constants:
            array = np.asarray(options.constants[name])
            if array.shape != shape:
                raise ConfigError(f"binding argument '{name}': found shape {list(array.shape)}, required {list(shape)}")
            args.append(whole(emitter.const(array.astype(np_type(dtype), copy=False), dtype)))
        elif name in stored:
            found, n = stored[name], importer.devices[0] * importer.devices[1]
            if (tuple(found.shape), found.dtype) == (shape, dtype):
                emitter.weights.add(Weight(name, shape, dtype, FileSource(found.path, found.offset, found.nbytes)))
            elif (tuple(found.shape), found.dtype) == ((n, *shape), dtype) and n > 1:
                size = found.nbytes // n
                parts = {c: FileSource(found.path, found.offset + c * size, size) for c in range(n)}
                emitter.weights.add_per_chip(name, parts, shape, dtype)
            else:
                also = f", or {[n, *shape]} with a part for each chip" if n > 1 else ""
                raise ImportModelError(
                    f"{weights_file}: '{name}' is {found.dtype}{list(found.shape)}, the argument {dtype}{list(shape)}{also}"
                )
            args.append(whole(Tensor(shape, dtype, key=name)))
        else:
            args.append(whole(Tensor(shape, dtype, value=block.add_arg(emitter.ctx.tensor(shape, dtype), name))))
            kept.append(name)
    return kept, args, positions


def _names(main: Any, formals: list[Any]) -> list[str]:
    """Names of arguments: from `jax.arg_info`, else from their locations, else arg0, arg1, ..."""
    given = list(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else [{}] * len(formals)
    names = []
    for i, (formal, attrs) in enumerate(zip(formals, given)):
        name = attrs["jax.arg_info"].value if "jax.arg_info" in attrs else getattr(formal.location, "name_str", "")
        names.append(name or f"arg{i}")
    counts = Counter(names)
    return [n if counts[n] == 1 else f"arg{i}" for i, n in enumerate(names)]


def _donated(main: Any, positions: list[int]) -> list[int]:
    """Flat (argument, result) pairs of buffers that JAX donates."""
    pairs: list[int] = []
    for i, attrs in enumerate(main.attributes["arg_attrs"] if "arg_attrs" in main.attributes else ()):
        if "tf.aliasing_output" in attrs and positions[i] >= 0:
            pairs += [positions[i], attrs["tf.aliasing_output"].value]
    return pairs
