"""What a compilation gives: what the search found, and the program with what users do with it.

May import: files, errors, graph_table, machine, numerics.{fitting, formats}, program, search results; simulators late, so that compiling never pays for them. Must not: compile.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tx8fast import files
from tx8fast.errors import ConfigError, SimulationError, UnusedOptionWarning, raise_all
from tx8fast.graph_table import GraphTable
from tx8fast.machine import Machine
from tx8fast.numerics.fitting import integer_misfit, integers_required
from tx8fast.numerics.formats import INTS
from tx8fast.program import io
from tx8fast.program.model import Program, Tensor, input_shapes
from tx8fast.program.params import param_arrays, reads_files, with_images
from tx8fast.records import dataclass
from tx8fast.search.exact import SearchReport
from tx8fast.search.program import Plans
from tx8fast.search.results import results, to_text

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Searched:
    """A graph whose steps are the groups that were chosen, and their plans. opt, sharing: options of the search."""

    table: GraphTable
    machine: Machine
    plans: Plans
    report: SearchReport
    opt: int
    sharing: bool

    def text(self) -> str:
        """Return the results as a file that `load_plans` takes."""
        found = results(self.table, self.plans, self.machine, self.opt, self.sharing, self.report)
        return to_text(found) + "\n"


class CompiledProgram:
    """A program with what users do with it: save, run, simulate. `weights_dir` is where parameters are read; `searched`:
    what the search found, unless the program comes from a file; `read`: the files it was made of."""

    def __init__(
        self,
        program: Program,
        weights_dir: Path | None = None,
        compile_seconds: float = 0.0,
        searched: Searched | None = None,
        read: files.Registry | None = None,
    ) -> None:
        self.program, self.read, self.searched, self.weights_dir = program, read, searched, weights_dir
        self.compile_seconds = compile_seconds
        self.status: list[str] = []  # exception bits of the vector engines in the last exact run

    @property
    def inputs(self) -> list[Tensor]:
        return self.program.inputs

    @property
    def outputs(self) -> list[Tensor]:
        return self.program.outputs

    def save(self, path: str | os.PathLike[str], standalone: bool = False) -> None:
        """Write the `.tx8` file; nothing is left behind on failure. `standalone`: with everything that a host without Python needs to
        run it, all weights and computed tables. Raises ConfigError for a file of the model, ProgramError for weights that are missing."""
        with files.watching(self.read):
            if standalone:
                program, images = with_images(self.program, self.weights_dir)
                io.save(program, path, images, calls=True)
            else:
                io.save(self.program, path)

    def save_plans(self, path: str | os.PathLike[str]) -> None:
        """Write what the search found, for the option `load_plans`; nothing is left behind on failure."""
        if self.searched is None:
            raise ConfigError(f"writing plans {path}: this program was loaded; only a compilation has plans")
        with files.watching(self.read), files.replacing(path, "plans") as f:
            f.write(self.searched.text().encode("utf-8"))

    def simulate(self, serial: bool | None = None, progress: Progress | None = None):
        """Return the cycle simulation's `CycleResult`; `progress(done, total)` counts launches."""
        from tx8fast.simulator.cycle import simulate

        return simulate(self.program, serial=serial, progress=progress)

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        weights_dir: str | os.PathLike[str] | None = None,
        debug: bool = False,
        progress: Progress | None = None,
        sanitize: bool = False,
        exact: bool = False,
        threads: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Execute the program bit by bit; return one array per output name. `progress(done, total)` counts launches.
        Of several chips, results have a leading axis over chips, and inputs may have one.

        `sanitize` also looks for races, uninitialised reads and unfinished messages and raises SanitizerError with all it finds.
        `exact` interprets element by element and fills `status`; for small programs. `threads`: at most so many make
        parameters and execute tiles, None: one per processor.
        Raises SimulationError listing every missing, unknown or misshapen input and integers that do not fit."""
        from tx8fast.host.core import default_threads
        from tx8fast.simulator.chips import ChipsSimulator
        from tx8fast.simulator.functional import FunctionalSimulator

        self._check_inputs(inputs)
        watch = None
        if sanitize:
            from tx8fast.simulator.sanitizer import Sanitizer

            watch = Sanitizer(self.program)
        if self.program.n_chips > 1:
            sim = ChipsSimulator(self.program, debug=debug, exact=exact, observer=watch, threads=threads)
        else:
            sim = FunctionalSimulator(self.program, debug=debug, observer=watch, exact=exact, threads=threads)
        self._check_weights(weights_dir)
        params = param_arrays(self.program, weights_dir or self.weights_dir, sim.room, threads or default_threads())
        for tensor, image in params:
            sim.store(tensor.address, image)
        for t in self.program.inputs:
            sim.write(t, np.asarray(inputs[t.name]))
        if watch is not None:
            watch.run(sim, progress)
        else:
            sim.run(progress)
        self.status = sim.status_names()
        sim.release()
        return {t.name: sim.read(t) for t in self.program.outputs}

    def emit_c(
        self,
        folder: str | os.PathLike[str],
        weights_dir: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, np.ndarray] | None = None,
    ) -> list[str]:
        """Write the program as C into a directory, with its parameters as they lie in DDR, a description in JSON, the C model
        and how to build it; return the names of the files. `inputs`: also a test case, these inputs and what the program makes of them.

        Raises ProgramError for what the public C interface cannot say and for missing weights, ConfigError for a directory that
        cannot be written."""
        from tx8fast.codegen.files import write_c

        self._check_weights(weights_dir)
        given = expected = None
        if inputs is not None:
            from tx8fast.simulator.chips import ChipsSimulator
            from tx8fast.simulator.functional import FunctionalSimulator

            self._check_inputs(inputs)
            several = self.program.n_chips > 1
            sim = ChipsSimulator(self.program) if several else FunctionalSimulator(self.program)
            memories = [chip.ddr for chip in sim.chips] if isinstance(sim, ChipsSimulator) else [sim.ddr]
            for tensor, image in param_arrays(self.program, weights_dir or self.weights_dir, sim.room):
                sim.store(tensor.address, image)
            for t in self.inputs:
                sim.write(t, np.asarray(inputs[t.name]))
            held = lambda t: [m.view(t.address, t.size_bytes).tobytes() for m in memories]  # noqa: E731
            given = {t.name: held(t) for t in self.inputs}
            sim.run()
            expected = {t.name: held(t) for t in self.outputs}
            sim.release()
        params = param_arrays(self.program, weights_dir or self.weights_dir)
        with files.watching(self.read):
            return write_c(self.program, Path(folder), params, given, expected)

    def _check_weights(self, weights_dir: str | os.PathLike[str] | None) -> None:
        """Warn of a directory of weights that nothing is read from."""
        if weights_dir is not None and not reads_files(self.program):
            why = "every weight is in the program file; compile the other checkpoint, or with --embed-limit-mib 0"
            warnings.warn(f"--weights has no effect: {why}", UnusedOptionWarning, stacklevel=3)

    def _check_inputs(self, inputs: Mapping[str, np.ndarray]) -> None:
        known = {t.name: t for t in self.program.inputs}
        problems = [
            f"unknown input '{n}', the program takes {', '.join(known) or 'none'}" for n in inputs if n not in known
        ]
        for name, t in known.items():
            if name not in inputs:
                problems.append(f"input '{name}' ({t.dtype}{list(t.shape)}) is missing")
            elif tuple(np.shape(inputs[name])) not in input_shapes(self.program, t):
                required = " or ".join(str(list(s)) for s in input_shapes(self.program, t))
                problems.append(f"input '{name}' has shape {list(np.shape(inputs[name]))}, required {required}")
            elif t.dtype in INTS:
                # of floats and bits every width and kind is converted; integers would lose what they say
                wrong = integer_misfit(np.asarray(inputs[name]), t.dtype)
                if wrong is not None:
                    problems.append(f"input '{name}' {wrong}, required {integers_required(t.dtype)}")
        raise_all(SimulationError, "reading inputs", problems)
