"""One program per length, chosen when inputs are there: compile, save, load and run them as one.

May import: everything below `api`, and api. Must not: decide what padding can reach (see `passes/padding.py`).

Inputs are padded with zeros at the end up to the smallest length that holds them, outputs are cut back. That this
changes nothing is proved on the graph before anything is compiled, or the model is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast import api, files
from tx8fast.errors import ConfigError, ProgramError, SimulationError, raise_all
from tx8fast.frontend import open_model
from tx8fast.ir.program import IRProgram
from tx8fast.length_probes import Probes, Shapes, built_here, lengths_to_compare, shapes_of
from tx8fast.options import CompileOptions
from tx8fast.passes.padding import analyse_padding
from tx8fast.passes.pipeline import graph_passes, run_pipeline
from tx8fast.passes.same_lengths import Varying, check_same_model
from tx8fast.program import bundle
from tx8fast.records import dataclass

Axes = dict[str, tuple[int, ...]]
#: the length whose graph is analysed, if no bound is smaller: tables stay small, and few other sizes equal it
PROBE = 61


@dataclass
class Bounds:
    """What varies: option or dimension `name` with its bounds, increasing; axes of inputs and outputs that follow it.

    `positions`: integer inputs whose values must be below the length. `least`: the smallest length that is served.
    """

    name: str
    values: tuple[int, ...]
    inputs: Axes
    outputs: Axes
    positions: tuple[str, ...]
    least: int = 1

    def index(self, length: int) -> int:
        """Return the place of the smallest bound that is at least `length`. Raises SimulationError."""
        if length == 1 < self.least:
            raise SimulationError(
                f"choosing a program: {self.name} is 1, required {self.least} to {self.values[-1]}: the graph of the model is "
                "another one for 1; compile that by itself, or as the first of the lengths"
            )
        if not 1 <= length <= self.values[-1]:
            raise SimulationError(
                f"choosing a program: {self.name} is {length}, required 1 to {self.values[-1]}, the largest bound compiled "
                f"(of {', '.join(map(str, self.values))}); compile with a larger one"
            )
        return next(i for i, bound in enumerate(self.values) if length <= bound)


class LengthPrograms:
    """Programs of one model for several lengths. `programs[i]` is that of `bounds.values[i]`."""

    def __init__(self, bounds: Bounds, programs: Sequence[api.CompiledProgram], compile_seconds: float = 0.0) -> None:
        self.bounds = bounds
        self.programs = list(programs)
        self.compile_seconds = compile_seconds

    def at(self, length: int | None = None) -> api.CompiledProgram:
        """Return the smallest program that serves `length`; the largest for None. Raises SimulationError."""
        return self.programs[-1 if length is None else self.bounds.index(length)]

    def fit(self, inputs: Mapping[str, np.ndarray]) -> tuple[api.CompiledProgram, dict[str, np.ndarray], int]:
        """Return the program that serves `inputs`, the inputs padded for it, and their length.

        Raises SimulationError if the inputs disagree about the length, exceed the largest bound, have other sizes than
        the program's, or hold a position beyond the length.
        """
        found = {
            (name, a): np.shape(inputs[name])[a]
            for name, axes in self.bounds.inputs.items()
            if name in inputs
            for a in axes
            if a < np.ndim(inputs[name])
        }
        if len(set(found.values())) != 1:
            listed = ", ".join(f"'{n}' dimension {a}: {size}" for (n, a), size in found.items())
            wanted = ", ".join(f"'{n}'" for n in self.bounds.inputs)
            found_text = listed or f"no input with it; it is a size of {wanted}"
            raise SimulationError(f"reading inputs: {self.bounds.name} must be one number, found {found_text}")
        length = next(iter(found.values()))
        index = self.bounds.index(length)
        problems = []
        for t in self.programs[index].inputs:
            axes, shape = self.bounds.inputs.get(t.name, ()), np.shape(inputs.get(t.name, np.empty(t.shape, bool)))
            sizes = {a: n for a, n in enumerate(t.shape) if a not in axes}
            if len(shape) != len(t.shape) or any(shape[a] != n for a, n in sizes.items()):
                required = ", ".join(str(sizes.get(a, length)) for a in range(len(t.shape)))
                problems.append(f"input '{t.name}' has shape {list(shape)}, required [{required}]")
        for name in self.bounds.positions:
            values = np.asarray(inputs.get(name, 0))
            if values.dtype.kind in "iu" and values.size and not (0 <= values.min() and values.max() < length):
                problems.append(f"input '{name}' is {values.reshape(-1).tolist()}, required 0 to {length - 1}")
        raise_all(SimulationError, f"reading inputs of {self.bounds.name} {length}", problems)
        bound, padded = self.bounds.values[index], {}
        for name, array in inputs.items():
            axes = self.bounds.inputs.get(name, ())
            widths = [(0, bound - length if a in axes else 0) for a in range(np.ndim(array))]
            padded[name] = np.pad(array, widths) if axes and bound > length else array
        return self.programs[index], padded, length

    def crop(self, outputs: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        """Return the outputs without what belongs to the padding."""
        axes = self.bounds.outputs
        return {
            name: array[tuple(slice(0, length) if a in axes[name] else slice(None) for a in range(array.ndim))]
            for name, array in outputs.items()
        }

    def run(self, inputs: Mapping[str, np.ndarray], *args: Any, **options: Any) -> dict[str, np.ndarray]:
        """As `CompiledProgram.run`, with inputs of any length up to the largest bound."""
        program, padded, length = self.fit(inputs)
        return self.crop(program.run(padded, *args, **options), length)

    def simulate(self, length: int | None = None, **options: Any):
        """Return the cycle simulation of the program that serves `length` (None: the largest)."""
        return self.at(length).simulate(**options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.tx8` file with all programs; parameters of equal form are stored once."""
        b = self.bounds
        facts = {"name": b.name, "bounds": b.values, "inputs": b.inputs, "outputs": b.outputs, "positions": b.positions}
        facts["least"] = b.least
        with files.watching(self.programs[0].read):  # all are made of the same files
            bundle.save(facts, [p.program for p in self.programs], path)


def compile_lengths(
    model: str | os.PathLike[str],
    name: str,
    bounds: Sequence[int],
    options: CompileOptions | None = None,
    *,
    progress: api.Progress | None = None,
) -> LengthPrograms:
    """Compile one program per bound of `name`: "seq", "past", "batch" or a symbolic dimension of the model.

    Raises ConfigError if the bounds do not increase or are too many, or if inputs shorter than a bound cannot be
    padded for it; Tx8Error for anything else that is wrong with model or options.
    """
    options = options or CompileOptions()
    bounds = tuple(bounds)
    started = time.perf_counter()
    each = [at_length(options, name, b) for b in bounds]
    check_bounds(name, bounds)
    found = _bounds(model, name, bounds, options)
    programs = []
    for i, chosen in enumerate(each):
        part = None if progress is None else _part(progress, i, len(each))
        programs.append(api.compile(model, chosen, progress=part))
        if programs[-1].program.n_chips > 1:
            raise ConfigError(
                "compiling for several lengths: programs of several chips have one length each; give one size"
            )
        for name_, axes in found.outputs.items():
            shape = next(t.shape for t in programs[-1].outputs if t.name == name_)
            if any(shape[a] != bounds[i] for a in axes):
                raise ConfigError(
                    f"compiling for several lengths: output '{name_}' has shape {list(shape)} at {name} = {bounds[i]}, "
                    f"required {bounds[i]} in dimensions {list(axes)}"
                )
    return LengthPrograms(found, programs, time.perf_counter() - started)


def _part(progress: api.Progress, index: int, count: int) -> api.Progress:
    return lambda done, total: progress(index * total + done, count * total)


def at_length(options: CompileOptions, name: str, length: int) -> CompileOptions:
    """Return the options for one length."""
    if name in ("seq", "past", "batch") and name not in options.dims:
        return replace(options, **{name: length})
    return replace(options, dims={**options.dims, name: length})


def check_bounds(name: str, bounds: Sequence[int]) -> None:
    """Raise ConfigError unless there are 2 to 8 bounds that increase."""
    problems = []
    if not 2 <= len(bounds) <= bundle.MAX_PROGRAMS:
        problems.append(
            f"found {len(bounds)} lengths of {name}, required 2 to {bundle.MAX_PROGRAMS}: every one is a program"
        )
    if any(a >= b for a, b in pairwise(bounds)):
        problems.append(f"lengths of {name} are {', '.join(map(str, bounds))}, required increasing ones")
    if bounds and min(bounds) < 1:
        problems.append(f"lengths of {name} start at {min(bounds)}, required at least 1")
    raise_all(ConfigError, "compiling for several lengths", problems)


def _bounds(model: str | os.PathLike[str], name: str, bounds: tuple[int, ...], options: CompileOptions) -> Bounds:
    """Prove that a longer program can serve shorter inputs, on the graph of a short length; compare the others with it:
    those of all bounds, and of some lengths that are served without being compiled."""
    doing = f"compiling for several lengths of {name}"
    longer = [b for b in bounds if b > 1]  # a program for one token is never given less
    with api.quiet_collector():
        length = min(longer[0], PROBE)
        # a reader leaves out masks and factors that do nothing at a length: of all lengths the longest one's graph is compared
        whole = {"longest": bounds[-1]} if built_here(model) and name in ("seq", "past") else {}
        load = lambda n: open_model(model, **at_length(options, name, n).import_options(), **whole)  # noqa: E731
        after_passes = partial(_passes, options=options)
        probe = load(length)
        probes = Probes(probe, length, load, doing)
        probes.compare(lengths_to_compare(bounds, [length], built_here(model), len(probe.main.body)))
        after_passes(probe)
        inputs: Axes = {}
        sizes: dict[int, Shapes] = {}
        varying = Varying()
        for bound in longer if length < longer[0] else longer[1:] or [longer[0] + 1]:
            other = load(bound)
            after_passes(other)
            sizes[bound] = shapes_of(other)
            inputs = _axes(probe, other, length, bound, doing)
            varying.add(check_same_model(probe, other, doing), doing)
        padding = analyse_padding(probe, inputs, varying)
        least = probes.settle(probe, sizes, after_passes)
    return Bounds(name, bounds, inputs, padding.outputs, padding.positions, least)


def _passes(program: IRProgram, options: CompileOptions) -> None:
    run_pipeline(program, graph_passes(options.ir_dtype, outline=False), verify_between=False)


def _axes(short: IRProgram, long: IRProgram, a: int, b: int, doing: str) -> Axes:
    """Return the dimensions of the inputs that follow the length."""
    found: Axes = {}
    problems = []
    for name, x, y in zip(short.main.attrs["arg_names"], short.main.body.args, long.main.body.args):
        at = tuple(i for i, (n, m) in enumerate(zip(x.shape, y.shape)) if n != m)
        if any((x.shape[i], y.shape[i]) != (a, b) for i in at):
            problems.append(
                f"input '{name}' is {list(x.shape)} for {a} and {list(y.shape)} for {b}: its sizes are not the length"
            )
        elif at:
            found[name] = at
    raise_all(ConfigError, doing, problems)
    if not found:
        raise ConfigError(f"{doing}: no input depends on it")
    return found


def load(path: str | os.PathLike[str]) -> api.CompiledProgram | LengthPrograms:
    """Open a `.tx8` file, whether it holds one program or several lengths. Raises ProgramError if it is damaged."""
    container = bundle.open_several(path)
    if container is None:
        return api.load(path)
    facts, programs = bundle.load(container)
    try:
        axes = [{str(n): tuple(int(a) for a in at) for n, at in facts[side].items()} for side in ("inputs", "outputs")]
        found = Bounds(
            str(facts["name"]),
            tuple(int(b) for b in facts["bounds"]),
            axes[0],
            axes[1],
            tuple(str(n) for n in facts["positions"]),
            int(facts.get("least", 1)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ProgramError(f"reading program file {path}: malformed lengths ({type(e).__name__}: {e})") from e
    _check_loaded(found, programs, Path(path))
    return LengthPrograms(found, [api.CompiledProgram(p) for p in programs])


def _check_loaded(b: Bounds, programs: Sequence[Any], path: Path) -> None:
    """Raise ProgramError unless the programs have the tensors and sizes that the lengths speak of."""
    good = len(b.values) == len(programs) and all(x < y for x, y in pairwise(b.values)) and b.values[0] >= 1
    for bound, program in zip(b.values, programs):
        for side, tensors in ((b.inputs, program.inputs), (b.outputs, program.outputs)):
            shapes = {t.name: t.shape for t in tensors}
            good = good and side.keys() <= shapes.keys()
            good = good and all(0 <= a < len(shapes[n]) and shapes[n][a] == bound for n, at in side.items() for a in at)
        good = good and {t.name for t in program.outputs} == b.outputs.keys() and bool(b.inputs)
    if not good:
        raise ProgramError(
            f"reading program file {path}: its programs do not have the lengths it states; the file is damaged"
        )
