"""The tables of a machine description as frozen dataclasses, with the legal range of every key.

May import: the standard library. Must not: read files or check values.
Source: TX8 hardware manual section 5. Field metadata holds the type, the lower bound and, where it
differs from the attribute name, the key inside the TOML table.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tx8fast.records import dataclass

#: the largest whole number, and what a rate may be: an instruction's cycles stay below 2**40, which the event kernel
#: requires, and products with counts within 64 bits
MAX_WHOLE = 2**31 - 1
MIN_NUMBER, MAX_NUMBER = 1e-3, 1e12


def whole(low: int = 1, key: str = "", most: int = MAX_WHOLE) -> Any:
    """A whole number from `low` to `most`; `key` is its TOML name if it differs from the field's."""
    return field(metadata={"type": int, "low": low, "key": key, "least": low, "most": most})


def choice(default: int) -> Any:
    """The number of a model; files written before there was a choice mean `default`."""
    return field(
        metadata={"type": int, "low": 1, "key": "", "default": default, "least": 1, "most": MAX_WHOLE, "choice": True}
    )


def later(default: int, low: int = 0, most: int = MAX_WHOLE, more_is_faster: bool = False) -> Any:
    """A whole number that files from before the key do not have. A machine at `default` is written without it, so that it
    stays the machine it was, and so do the programs made for it."""
    meta = {
        "type": int,
        "low": low,
        "key": "",
        "default": default,
        "least": low,
        "most": most,
        "silent": True,
        "more_is_faster": more_is_faster,
    }
    return field(metadata=meta)


def number(low: float | None = None, key: str = "", most: float = MAX_NUMBER) -> Any:
    """A number of at least `low` (None: more than 0), and from `MIN_NUMBER` to `most`."""
    return field(metadata={"type": float, "low": low, "key": key, "least": MIN_NUMBER, "most": most})


def table(kind: type) -> Any:
    """A nested table with its own section class."""
    return field(metadata={"type": kind})


@dataclass(frozen=True)
class Chip:
    """Grid, clock and DDR. Bandwidth in bytes per cycle."""

    tiles_x: int = whole()
    tiles_y: int = whole()
    clock_hz: float = number()
    ddr_bytes: int = whole(most=2**48)
    ddr_bw: float = number()
    ddr_efficiency: float = number()
    ddr_page: int = whole()
    ddr_page_penalty: int = whole(0)
    ddr_burst: int = whole()


@dataclass(frozen=True)
class Tile:
    """Scratchpad (SPM) geometry in bytes and the instruction window."""

    spm_bytes: int = whole()
    spm_reserved_low: int = whole(0)
    spm_reserved_high: int = whole(0)
    spm_banks: int = whole()
    spm_bank_width: int = whole()
    spm_model: int = choice(1)
    spm_fifo_beats: int = later(16, low=1, most=1 << 20)
    spm_align: int = whole(256)  # at which operands of reductions and weights begin at least (TX8 hardware manual 3.1)
    workers: int = whole()
    serial_mode: int = whole(0)


@dataclass(frozen=True)
class Kcore:
    """Kernel core: issue cost and our cost assumptions for routines, in cycles: of a call, of an element or word loaded or stored, of a
    simple operation, of a division or square root, of a transcendental function; of a receive, of waiting for one's own
    messages, of the end of a loop's pass, and of a launch on every tile that it has code for."""

    issue_base: int = whole(0)
    issue_per_reg: int = whole(0)
    wait_cycles: int = whole(0)
    routine_base: int = whole(0)
    load_cycles: int = later(1)
    store_cycles: int = later(1)
    op_cycles: int = later(1)
    divide_cycles: int = later(20)
    function_cycles: int = later(60)
    recv_cycles: int = later(0)
    send_wait_cycles: int = later(0)
    loop_cycles: int = later(0)
    launch_cycles: int = later(0)


@dataclass(frozen=True)
class Ne:
    """Matrix engine: array step per group, groups per input format, operand ports."""

    pe_m: int = whole()
    pe_n: int = whole()
    pe_k: int = whole()
    groups_bf16: int = whole(key="groups.bf16")
    groups_fp16: int = whole(key="groups.fp16")
    groups_tf32: int = whole(key="groups.tf32")
    groups_int8: int = whole(key="groups.int8")
    fp32_passes: int = whole()
    startup: int = whole(0)
    port_bytes: int = whole()


@dataclass(frozen=True)
class CtFactor:
    """Work multipliers of the vector engine by instruction family (TX8 hardware manual 16.2)."""

    arithmetic: int = whole()
    division: int = whole()
    transcendental: int = whole()
    two_step: int = whole()
    lut: int = whole()
    random: int = whole()


@dataclass(frozen=True)
class Ct:
    """Vector engine."""

    bytes_per_cycle: int = whole()
    startup: int = whole(0)
    misalign_penalty: int = whole(0)
    factor: CtFactor = table(CtFactor)


@dataclass(frozen=True)
class Rdma:
    """DDR to SPM transfers."""

    startup: int = whole(0)


@dataclass(frozen=True)
class Wdma:
    """SPM to DDR transfers."""

    startup: int = whole(0)


@dataclass(frozen=True)
class Dma:
    """What both DDR directions share."""

    port_bytes: int = whole()
    run_overhead: int = whole(0)


@dataclass(frozen=True)
class Tdma:
    """SPM to SPM moves. beside_ct_percent: of its rate while the vector engine works, in models with conflicts."""

    startup: int = whole(0)
    bytes_per_cycle: int = whole()
    beside_ct_percent: int = later(100, low=1, most=100, more_is_faster=True)


@dataclass(frozen=True)
class Dte:
    """Tile to tile block transfer. write_port_bytes: a tile's port for what arrives, 0 = as much as its links bring."""

    setup_hw: int = whole(0)
    setup_sw: int = whole(0)
    engines: int = whole()
    write_port_bytes: int = later(0)


@dataclass(frozen=True)
class Noc:
    """On-chip mesh links."""

    link_bytes: int = whole()
    hop_cycles: int = whole(0)


@dataclass(frozen=True)
class C2c:
    """Chip-to-chip links."""

    link_bytes: int = whole()
    latency: int = whole(0)


@dataclass(frozen=True)
class Sync:
    """Flag-based synchronisation."""

    barrier_base: int = whole(0)
    handshake: int = whole(0)


#: TOML table name -> section class, in file order
SECTIONS: dict[str, type] = {
    "chip": Chip,
    "tile": Tile,
    "kcore": Kcore,
    "ne": Ne,
    "ct": Ct,
    "rdma": Rdma,
    "wdma": Wdma,
    "dma": Dma,
    "tdma": Tdma,
    "dte": Dte,
    "noc": Noc,
    "c2c": C2c,
    "sync": Sync,
}
