"""Several chips that run one program together, bit by bit: one functional simulator per chip.

May import: numpy, program.model, machine, errors, simulator.functional, simulator.exchange. Must not: model time.
Chips run one after the other through a launch that stays on the chip; in one that spans chips all their tiles take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.program.model import Launch, Program, Tensor
from tx8fast.simulator.exchange import Exchange
from tx8fast.simulator.execution import execution
from tx8fast.simulator.functional import FunctionalSimulator


class ChipsSimulator:
    """The chips of a program; `write` and `read` have a leading axis over chips."""

    def __init__(
        self,
        program: Program,
        *,
        debug: bool = False,
        exact: bool = False,
        observer: Any = None,
        threads: int | None = None,
    ) -> None:
        self.program, self.observer = program, observer
        codes: dict[Any, Any] = {}
        self.execute = execution(program.inputs, exact, observer, threads)
        try:
            self.chips = [
                FunctionalSimulator(
                    program,
                    debug=debug,
                    exact=exact,
                    chip=c,
                    codes=codes,
                    threads=threads,
                    observer=None if observer is None else observer.of_chip(c),
                )
                for c in range(program.n_chips)
            ]
        except MemoryError:
            raise SimulationError(
                f"running {program.n_chips} chips: their memories of {program.ddr_bytes:,} bytes each exceed this machine's"
            ) from None
        self.machine = self.chips[0].machine

    def release(self) -> None:
        """Forget the last launch on all chips."""
        for chip in self.chips:
            chip.release()

    def room(self, tensor: Tensor) -> None:
        """Parameters are made outside of DDR, of which every chip has its own."""

    def store(self, address: int, image: np.ndarray) -> None:
        """Put bytes into every chip's DDR: the same (n,), or a row of (chips, n) each."""
        for c, chip in enumerate(self.chips):
            chip.store(address, image if image.ndim == 1 else image[c])

    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        """Store an input: of its shape for all chips alike, or with a leading axis of one per chip."""
        for c, chip in enumerate(self.chips):
            chip.write(tensor, array if array.ndim == len(tensor.shape) else array[c])

    def read(self, tensor: Tensor) -> np.ndarray:
        """Return (chips, *shape)."""
        return np.stack([chip.read(tensor) for chip in self.chips])

    def status_names(self) -> list[str]:
        """Return which exception bits vector engines of any chip have set."""
        return sorted({name for chip in self.chips for name in chip.status_names()})

    def run(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Execute all launches in order on all chips. Raises SimulationError at the first illegal one."""
        for i, launch in enumerate(self.program.launches, 1):
            self.run_launch(launch)
            if progress is not None:
                progress(i, len(self.program.launches))

    def run_launch(self, launch: Launch) -> None:
        """Execute one launch on all chips. Raises SimulationError as `run` does."""
        if len(self.program.segments[launch.segment].tile_code) > self.machine.n_tiles:
            self._run_together(launch)
        else:
            for chip in self.chips:
                chip.run_launch(launch)

    def _run_together(self, launch: Launch) -> None:
        n, segment = self.machine.n_tiles, self.program.segments[launch.segment]
        where = f"launch '{launch.name}', segment '{segment.name}'"
        streams = [stream for c, chip in enumerate(self.chips) for stream in chip.streams_of(launch, c)]
        exchange = Exchange(
            self.machine,
            lambda t: self.chips[t // n].state_of(t % n),
            self.execute,
            where,
            self.observer,
            n_chips=len(self.chips),
        )
        if self.observer is not None:
            self.observer.begin(launch, segment, [s.tile for s in streams])
        exchange.run(streams)
        if self.observer is not None:
            self.observer.end()
