"""Writing small programs by hand: code, segments, launches.

May import: numpy, isa, machine, program.model, errors. Must not: place buffers or choose addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import ProgramError
from tx8fast.isa.record import MAX_LOOPS, RECORD
from tx8fast.machine import Machine
from tx8fast.program.model import SEVERAL, Launch, Program, Segment, Tensor


class CodeBuilder:
    """Appends rows in program order; `loop` makes rows repeat.

    >>> b = CodeBuilder()
    >>> with b.loop(4):
    ...     b.add("rdma", dst=0x10000, run_bytes=256, slot=0, ddr_step=(256,))
    >>> b.finish()  # waits for the engines, then for all tiles
    >>> code = b.code()
    """

    def __init__(self) -> None:
        self._rows: list[tuple[tuple, tuple[int, ...], int]] = []
        self._depth = 0

    def add(self, name: str, ddr_step: Sequence[int] = (), **fields: Any) -> CodeBuilder:
        """Append one instruction; `fields` as for `isa.make`, `ddr_step` bytes per iteration, outermost loop first."""
        if len(ddr_step) > self._depth:
            raise ProgramError(f"adding '{name}': {len(ddr_step)} loop steps inside {self._depth} loops")
        self._rows.append((isa.make(name, **fields), tuple(ddr_step), self._depth))
        return self

    @contextmanager
    def loop(self, count: int) -> Iterator[None]:
        """Repeat what is added inside `count` times. At most MAX_LOOPS deep."""
        if self._depth == MAX_LOOPS:
            raise ProgramError(f"opening a loop: at most {MAX_LOOPS} may be nested")
        self.add("loop", count=count)
        self._depth += 1
        yield
        self._depth -= 1
        self.add("end")

    def finish(self) -> CodeBuilder:
        """Append what ends a segment: join the tile's engines, then all tiles."""
        return self.add("wait").add("barrier")

    def code(self) -> np.ndarray:
        """Return the RECORD array."""
        out = np.zeros(len(self._rows), RECORD)
        for i, (row, ddr_step, depth) in enumerate(self._rows):
            out[i] = row
            out[i]["depth"] = depth
            out[i]["ddr_step"][: len(ddr_step)] = ddr_step
        return out


def make_segment(
    machine: Machine,
    name: str,
    codes: Sequence[np.ndarray],
    tile_code: Sequence[int] | None = None,
    slot_arg: Sequence[int] = (),
    tile_offset: Any = None,
    n_args: int | None = None,
    **more: Any,
) -> Segment:
    """Return a segment; by default all tiles run code 0, slots begin at their argument, slot i is argument i, of which
    nothing is declared, and the whole scratchpad is one buffer."""
    n_tiles = machine.n_tiles
    slots = np.asarray(slot_arg, np.int32)
    n_args = int(slots.max(initial=-1)) + 1 if n_args is None else n_args
    whole = [[machine.spm_base, machine.spm_limit - machine.spm_base, SEVERAL]]
    offset = np.zeros((n_tiles, len(slots)), np.int64) if tile_offset is None else np.asarray(tile_offset, np.int64)
    return Segment(
        name=name,
        codes=list(codes),
        tile_code=np.asarray([0] * n_tiles if tile_code is None else tile_code, np.int32),
        slot_arg=slots,
        tile_offset=offset,
        n_args=n_args,
        ops=more.pop("ops", []),
        arguments=list(more.pop("arguments", [None] * n_args)),
        buffers=np.asarray(more.pop("buffers", whole), np.int32),
        **more,
    )


def make_program(
    machine: Machine,
    segments: Sequence[Segment],
    launches: Sequence[tuple[int, Sequence[int]]],
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
    ddr_bytes: int = 1 << 20,
    meta: Mapping[str, Any] | None = None,
    data: bytes = b"",
) -> Program:
    """Return a program of `launches` (segment index, argument addresses)."""
    return Program(
        machine=machine.to_dict(),
        segments=list(segments),
        launches=[
            Launch(which, np.asarray(args, np.int64), f"{segments[which].name}#{i}")
            for i, (which, args) in enumerate(launches)
        ],
        inputs=list(inputs),
        outputs=list(outputs),
        params=list(params),
        ddr_bytes=ddr_bytes,
        meta=dict(meta or {}),
        data=data,
    )
