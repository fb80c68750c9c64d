"""The machine description: typed, frozen, read from TOML and checked as a whole.

May import: the standard library, errors, files. Must not: compute costs (that is the ISA's job).
Source of the key table: TX8 hardware manual section 5. Every constant is required in a
file, so that none of the cost model can be left to an invisible default; only the choice between models has one.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from tx8fast.errors import ConfigError, raise_all
from tx8fast.files import read_input
from tx8fast.machine import sections as s
from tx8fast.machine.sections import SECTIONS
from tx8fast.records import dataclass
from tx8fast.toml_text import parse_toml

#: first DDR byte address that the DMA engines see (TX8 hardware manual 3.2)
DDR_BASE = 0x2_8000_0000
#: first SPM byte address given to buffers on the standard chip (3.1); a machine has `spm_base`
SPM_BASE = 0x10000
#: entries of the queues of ct, ne, rdma, wdma, tdma (TX8 hardware manual 2)
QUEUE_DEPTH = (6, 6, 6, 6, 4)
MAX_FILE_BYTES = 1 << 16
#: machine files that come with the package; a path, since loading `importlib.resources` takes longer than reading one
CONFIGS = Path(__file__).parent / "configs"
MAX_DEPTH = 8
#: largest whole number that is looked at
_MAX_INT = 2**48
#: keys that addresses are cut by
POWERS_OF_TWO = ("chip.ddr_page", "chip.ddr_burst", "tile.spm_align", "tile.spm_bank_width", "tile.spm_banks")
#: most tiles: instructions name sets of tiles by bits of a signed 64-bit mask
MAX_TILES = 63


@dataclass(frozen=True)
class Machine:
    """One chip. Sections mirror the TOML tables; equal content gives an equal `digest`."""

    chip: s.Chip
    tile: s.Tile
    kcore: s.Kcore
    ne: s.Ne
    ct: s.Ct
    rdma: s.Rdma
    wdma: s.Wdma
    dma: s.Dma
    tdma: s.Tdma
    dte: s.Dte
    noc: s.Noc
    c2c: s.C2c
    sync: s.Sync

    @property
    def n_tiles(self) -> int:
        return self.chip.tiles_x * self.chip.tiles_y

    @property
    def spm_base(self) -> int:
        """First SPM byte address that buffers may use."""
        return self.tile.spm_reserved_low

    @property
    def spm_limit(self) -> int:
        """End (exclusive) of the SPM byte addresses that buffers may use."""
        return self.tile.spm_bytes - self.tile.spm_reserved_high

    @cached_property
    def ddr_bytes_per_cycle(self) -> float:
        """Practical DDR bandwidth of the whole chip in bytes per cycle."""
        return self.chip.ddr_bw * self.chip.ddr_efficiency

    def __hash__(self) -> int:
        """Machines are keys of what is known about them: sections are not walked every time."""
        return hash(self.digest)

    def ne_groups(self, dtype: str) -> int:
        """Return the array groups for input format `dtype`; f32 runs on the tf32 groups."""
        names = {
            "bf16": "bf16",
            "f16": "fp16",
            "tf32": "tf32",
            "f32": "tf32",
            "i8": "int8",
            "u8": "int8",
        }
        if dtype not in names:
            raise ConfigError(f"matrix engine: found input format '{dtype}', expected one of {', '.join(names)}")
        return getattr(self.ne, f"groups_{names[dtype]}")

    def ne_passes(self, dtype: str) -> int:
        """Return how often the arrays run over the operands: more than once only for f32."""
        return self.ne.fp32_passes if dtype == "f32" else 1

    def peak_macs_per_cycle(self, dtype: str) -> float:
        """Return the multiply-accumulates per cycle of the whole chip for input format `dtype`."""
        ne = self.ne
        per_tile = ne.pe_m * ne.pe_n * ne.pe_k * self.ne_groups(dtype)
        return self.n_tiles * per_tile / self.ne_passes(dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return the content as nested tables, the same form as the TOML file."""
        out: dict[str, Any] = {}
        for path, (meta, get) in SCHEMA.items():
            if meta.get("silent") and get(self) == meta["default"]:
                continue
            table = out
            *parents, leaf = path.split(".")
            for name in parents:
                table = table.setdefault(name, {})
            table[leaf] = get(self)
        return out

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Machine:
        """Build a machine from nested tables. Raises ConfigError naming every bad key at once."""
        return _build(data, "reading a machine description")

    @cached_property
    def digest(self) -> str:
        """Sha256 (hex) of the content in a canonical form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _getter(names: tuple[str, ...]) -> Any:
    def get(machine: Machine) -> Any:
        found: Any = machine
        for name in names:
            found = getattr(found, name)
        return found

    return get


def _walk(cls: type, path: str, attrs: tuple[str, ...], out: dict[str, tuple[Mapping, Any]]) -> None:
    for f in fields(cls):
        kind = f.metadata["type"]
        key = f"{path}.{f.metadata.get('key') or f.name}"
        if kind in (int, float):
            out[key] = (f.metadata, _getter((*attrs, f.name)))
        else:
            _walk(kind, key, (*attrs, f.name), out)


def _schema() -> dict[str, tuple[Mapping, Any]]:
    out: dict[str, tuple[Mapping, Any]] = {}
    for name, cls in SECTIONS.items():
        _walk(cls, name, (name,), out)
    return out


#: dotted key -> (field metadata, reader of the value from a machine)
SCHEMA = _schema()


#: keys of older files that mean nothing any more, and what took their place
RETIRED = {
    "kcore.routine_cycles_per_elem": "kcore.load_cycles, store_cycles, op_cycles, divide_cycles and function_cycles",
    "dma.double_buffer": "`--show groups`, which says how many copies of a buffer a plan has",
    "noc.packet_bytes": "noc.link_bytes, since links carry whole messages",
}


def _leaves(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping) and value:
            out.update(_leaves(value, key))
        else:
            out[key] = value
    return out


def _check_value(key: str, value: Any, meta: Mapping) -> str:
    """Return what is wrong with one value, or an empty string."""
    want, low = meta["type"], meta["low"]
    if isinstance(value, bool) or not isinstance(value, (int, float) if want is float else int):
        kind = "a whole number" if want is int else "a number"
        return f"$.{key}: found {type(value).__name__} {reprlib.repr(value)}, required {kind}"
    if isinstance(value, int) and abs(value) > _MAX_INT:
        return f"$.{key}: found a number beyond {_MAX_INT}, required at most {_MAX_INT}"
    if not math.isfinite(value):
        return f"$.{key}: found {value}, required a finite number"
    if (low is None and value <= 0) or (low is not None and value < low):
        return f"$.{key}: found {value}, required " + ("more than 0" if low is None else f"at least {low}")
    return ""


def _check_together(values: Mapping[str, Any]) -> list[str]:
    """Return the rules between or beyond single keys that `values` breaks."""
    problems = [
        f"$.{key}: found {values[key]}, required {meta['least']:g} to {meta['most']:g}"
        for key, (meta, _) in SCHEMA.items()
        if not meta["least"] <= values[key] <= meta["most"]
    ]
    low, high = values["tile.spm_reserved_low"], values["tile.spm_reserved_high"]
    if low + high >= values["tile.spm_bytes"]:
        problems.append(
            f"$.tile.spm_bytes: found {values['tile.spm_bytes']} bytes, required more than the reserved {low + high}"
        )
    if low % (align := values["tile.spm_align"] or 1):
        problems.append(f"$.tile.spm_reserved_low: found {low} bytes, required a multiple of tile.spm_align, {align}")
    tiles = values["chip.tiles_x"] * values["chip.tiles_y"]
    if tiles > MAX_TILES:
        problems.append(f"$.chip.tiles_x: found {tiles} tiles, required at most {MAX_TILES} in tiles_x times tiles_y")
    if values["chip.ddr_efficiency"] > 1:
        problems.append(f"$.chip.ddr_efficiency: found {values['chip.ddr_efficiency']}, required at most 1")
    if values["tile.serial_mode"] > 1:
        problems.append(f"$.tile.serial_mode: found {values['tile.serial_mode']}, required 0 (parallel) or 1 (serial)")
    if values["tile.spm_model"] > 3:
        problems.append(
            f"$.tile.spm_model: found {values['tile.spm_model']}, required 1 (no conflicts), 2 (shared bandwidth) or "
            "3 (arbitration per beat)"
        )
    for key in POWERS_OF_TWO:
        if values[key] & (values[key] - 1):
            problems.append(f"$.{key}: found {values[key]}, required a power of two")
    return problems


def _make(cls: type, path: str, values: Mapping[str, Any]) -> Any:
    found = {}
    for f in fields(cls):
        kind, key = f.metadata["type"], f"{path}.{f.metadata.get('key') or f.name}"
        found[f.name] = kind(values[key]) if kind in (int, float) else _make(kind, key, values)
    return cls(**found)


def _too_deep(data: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with keys that have more parts than any of a machine."""
    layer = list(data.items())
    for _ in range(MAX_DEPTH):
        layer = [(key, inner) for key, table in layer if isinstance(table, Mapping) for inner in table.values()]
    return [f"$.{key:.80}: nested more than {MAX_DEPTH} deep" for key in dict.fromkeys(key for key, _ in layer)]


def _build(data: Mapping[str, Any], doing: str) -> Machine:
    raise_all(ConfigError, doing, _too_deep(data))
    given = {key: value for key, value in _leaves(data).items() if key not in RETIRED}
    values = {key: meta["default"] for key, (meta, _) in SCHEMA.items() if "default" in meta} | given
    problems = [f"$.{key}: unknown key" for key in values if key not in SCHEMA]
    for key, (meta, _) in SCHEMA.items():
        if key not in values:
            problems.append(f"$.{key}: missing, required a {meta['type'].__name__}")
        elif bad := _check_value(key, values[key], meta):
            problems.append(bad)
    if not problems:
        problems = _check_together(values)
    raise_all(ConfigError, doing, problems)
    return Machine(**{name: _make(cls, name, values) for name, cls in SECTIONS.items()})


def builtin_machines() -> list[str]:
    """Return the names of the machine files that come with the package, sorted."""
    return sorted(path.stem for path in CONFIGS.glob("*.toml"))


def read_machine_text(source: str | Path) -> tuple[str, str]:
    """Return (text, label) of a built-in machine or a TOML file."""
    name = str(source)
    if not name:
        raise ConfigError("loading machine: its name is empty; built-in machines: " + ", ".join(builtin_machines()))
    if isinstance(source, str) and source.isidentifier():
        entry = CONFIGS / f"{name}.toml"
        if entry.is_file():
            return entry.read_text("utf-8"), name
    try:
        return read_input(source, MAX_FILE_BYTES).decode("utf-8"), name
    except (OSError, UnicodeDecodeError) as err:
        known = ", ".join(builtin_machines())
        why = getattr(err, "strerror", None) or err
        raise ConfigError(f"loading machine '{name}': {why}; built-in machines: {known}") from None


def load_machine(source: str | Path = "tx8", overrides: Mapping[str, Any] | None = None) -> Machine:
    """Return the machine `source`: a built-in name or the path of a TOML file.

    `overrides` maps dotted keys ("chip.ddr_bw") to values and wins over the file. Raises
    ConfigError that lists every unknown, missing, mistyped or out-of-range key together.
    """
    text, label = read_machine_text(source)
    try:
        data = parse_toml(text)
    except ValueError as err:  # a syntax error, or a number of thousands of digits
        raise ConfigError(f"loading machine '{label}': not valid TOML: {err}") from None
    for key, value in (overrides or {}).items():
        if key in RETIRED:
            raise ConfigError(f"loading machine '{label}': override $.{key}: it is no longer used; see {RETIRED[key]}")
        table = data
        *parents, leaf = key.split(".")
        for name in parents:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"loading machine '{label}': override $.{key}: $.{name} is not a table")
        table[leaf] = value
    return _build(data, f"loading machine '{label}'")
