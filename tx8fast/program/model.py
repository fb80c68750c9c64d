"""The program artifact: what the compiler hands to the simulators and emitters, as plain data.

May import: numpy, isa.record, errors. Must not: import the compiler.

A program is a list of segments (compiled code of one group for all tiles, position independent in DDR)
and a list of launches (segment + absolute DDR addresses of its arguments), executed in order by all
tiles. A segment that ends in a barrier leaves every tile idle, so launches can be simulated one by one.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from tx8fast.records import dataclass

FORMAT_VERSION = (3, 0)
MAX_CHIPS = 128
ROLES = ("operand", "result", "update")
#: what the buffer table's third column says of buffers that are not one argument's: of none, or of several in turn
SCRATCH, SEVERAL = -1, -2


@dataclass(frozen=True)
class Argument:
    """What a launch finds at an argument's address. shape, dtype: the tensor's logical ones in DDR; layout: "dense" or "blocked".

    operand: read only. result: the launch stores every element; its bytes are undefined before. update: a result that takes
    over the bytes of argument `replaces` where both have the same address, so that only changed elements are stored there."""

    role: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    replaces: int = -1


@dataclass
class Segment:
    """Code of one group. Tiles with equal slice shapes share one code array.

    codes: RECORD arrays with LOOP/END rows (isa.control); `tile_code[t]` indexes it, -1 = tile idle. Of a segment that
    spans chips, t counts on over the tiles of all chips; any other is the same on every chip.
    slot_arg: (n_slots,) int32, the launch argument that each DDR slot belongs to.
    tile_offset: (n_tiles, n_slots) int64 bytes, added to the argument's address.
    routines: kernel-core routine descriptors (isa.kcore) that KCORE rows index.
    arguments: n_args declarations; None for an absent operand, or where nothing is declared.
    buffers: (n, 3) int32, the scratchpad's buffers: address, bytes, and the argument whose slices it holds, SCRATCH or
    SEVERAL. Each range of scratchpad bytes that a row touches lies in one of them; buffers whose lifetimes differ may overlap.
    ops: names of the model's ops this segment came from (provenance; rows' `op` field indexes it).
    """

    name: str
    codes: list[np.ndarray]
    tile_code: np.ndarray
    slot_arg: np.ndarray
    tile_offset: np.ndarray
    n_args: int
    ops: list[str]
    routines: list[dict[str, Any]] = field(default_factory=list)
    barrier: bool = True
    spm_peak_bytes: int = 0
    estimate_cycles: int = 0
    info: dict[str, Any] = field(default_factory=dict)  # plan: sharding, split, bound, engine ... (JSON)
    arguments: list[Argument | None] = field(default_factory=list)
    buffers: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int32))


@dataclass
class Launch:
    segment: int
    args: np.ndarray  # (n_args,) int64, absolute DDR byte addresses
    name: str  # "layers.3/attn.q_proj"
    values: tuple[str, ...] = ()  # debug data: the graph's value behind every argument, "" if absent (docs/proof.md)


@dataclass
class Tensor:
    """A named DDR tensor: program input, output or parameter.

    `shape`, `dtype` are the logical ones that users see; `ddr_dtype` and `layout` ("dense" | "blocked") say how
    its bytes lie in DDR; `address` is absolute, `size_bytes` the DDR footprint (padding included).
    For parameters `source` says where the bytes come from (program/params.py), `embedded` the byte offset
    in the file's data section or -1. Of several chips every one has the tensor at this address; `per_chip`: with
    bytes of its own, their images lie one after the other in the data section.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    ddr_dtype: str
    layout: str
    address: int
    size_bytes: int
    source: dict[str, Any] = field(default_factory=dict)
    embedded: int = -1
    per_chip: bool = False


@dataclass
class Program:
    """`meta` holds JSON-able facts: model name, phase, options, useful_macs, ddr bytes, kernel-core ops."""

    machine: dict[str, Any]
    segments: list[Segment]
    launches: list[Launch]
    inputs: list[Tensor]
    outputs: list[Tensor]
    params: list[Tensor]
    ddr_bytes: int  # highest used DDR byte offset (from the DDR base) + 1
    meta: dict[str, Any]
    data: bytes | bytearray | memoryview = b""  # embedded parameter bytes, packed as they lie in DDR
    chips: tuple[int, int] = (1, 1)  # grid (x, y) of chips that run it together, each with a DDR of its own

    @property
    def n_chips(self) -> int:
        return self.chips[0] * self.chips[1]


def input_shapes(program: Program, tensor: Tensor) -> list[tuple[int, ...]]:
    """Return the shapes in which an input may be given: the same for every chip, or with a leading axis over chips."""
    shape = tuple(tensor.shape)
    return [shape] if program.n_chips == 1 else [shape, (program.n_chips, *shape)]
