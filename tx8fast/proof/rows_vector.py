"""Meanings of the vector engine's rows: arithmetic, functions, relations, logic, masks, conversions.

May import: numpy, proof, isa (names and forms of opcodes). Must not: import meanings of isa.
Source: TX8 hardware manual 9, 10.3. Integers are concrete and computed as such; floats are elements of the field.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof import forms
from tx8fast.proof.cells import HIDDEN, RESIDUE, UNDEFINED, Elements, choose, rounded, truths
from tx8fast.proof.constants import as_float
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS, INTS
from tx8fast.proof.meaning import Row, meaning
from tx8fast.proof.recipes import FUNCTIONS, function, relation
from tx8fast.proof.tile import Tile

UNIT = 64
#: functions whose operand is a divisor
DIVIDES = ("recip", "div")


def _float_only(row: Row, what: str) -> None:
    if row.fmt not in FLOATS:
        raise SimulationError(f"{what} of format {row.fmt} has no meaning in the proof")


# --- functions of one operand ------------------------------------------------------------------------------------


def _unary(name: str):
    def run(tile: Tile, row: Row) -> None:
        _float_only(row, name)
        x = tile.load(row.spm[0], row.p[0], row.fmt)
        if name in DIVIDES:
            tile.denominators.append(x)
        tile.store(row.spm[1], function(name)(tile.field, x), row.fmt)

    return run


for _name in FUNCTIONS:
    meaning(f"{_name}_v")(_unary(_name))


# --- two operands ------------------------------------------------------------------------------------------------


def _relation(name: str) -> Callable[[Tile, Elements, Elements], Elements]:
    return lambda tile, a, b: relation(tile.field, name, a, b, tile.comparisons)


def _divide(tile: Tile, a: Elements, b: Elements) -> Elements:
    tile.denominators.append(b)
    return tile.field.div(a, b)


FLOAT_OPS: dict[str, Callable[[Tile, Elements, Elements], Elements]] = {
    "add": lambda tile, a, b: tile.field.add(a, b),
    "sub": lambda tile, a, b: tile.field.sub(a, b),
    "mul": lambda tile, a, b: tile.field.mul(a, b),
    "div": _divide,
    "max": lambda tile, a, b: tile.field.maximum(a, b),
    "min": lambda tile, a, b: tile.field.minimum(a, b),
    **{name: _relation(name) for name in ("eq", "ne", "ge", "gt", "le", "lt")},
    "and": lambda tile, a, b: tile.field.mul(_bit(a), _bit(b)),
    "or": lambda tile, a, b: _either(tile.field, _bit(a), _bit(b), 1),
    "xor": lambda tile, a, b: _either(tile.field, _bit(a), _bit(b), 2),
}
INT_OPS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _bit(a: Elements) -> Elements:
    """Return operands of logic: 0 and 1 are truth values, anything else is undefined."""
    bad = a.values() > 1
    return Elements(np.where(bad, np.uint32(UNDEFINED), a.p), a.q) if bad.any() else a


def _either(field: Field, a: Elements, b: Elements, times: int) -> Elements:
    both = field.mul(a, b)
    return field.sub(field.add(a, b), both if times == 1 else field.add(both, both))


def _shapes(form: str, p: list[int]) -> tuple[int, int, list[tuple[slice, slice, tuple[int, ...], tuple[int, ...]]]]:
    """Return (elements of src0, of src1, parts): slices of both and the shapes in which they broadcast."""
    if form != "vuvloop":
        n = p[0]
        count = {"vv": n, "vs": 1, "vuv": p[1] if form == "vuv" else 0}[form]
        if form == "vuv":
            if not 1 <= count <= UNIT or n % count:
                raise SimulationError(f"unit vector: found unit {count} and {n} elements")
            return n, count, [(slice(0, n), slice(0, count), (n // count, count), (1, count))]
        return n, count, [(slice(0, n), slice(0, count), (n,), (count,))]
    n, unit, full, full_unit = p[:4]
    if unit != UNIT or n % unit or full * unit != n * full_unit:
        raise SimulationError(f"vector loop: found elem {n}, unit {unit}, full {full}, full_unit {full_unit}")
    reuse, whole, rest = n // unit, full_unit // unit, full_unit % unit
    head = whole * reuse * unit
    parts: list = [(slice(0, head), slice(0, whole * unit), (whole, reuse, unit), (whole, 1, unit))] if whole else []
    if rest:
        parts.append((slice(head, full), slice(whole * unit, full_unit), (reuse, rest), (1, rest)))
    return full, full_unit, parts


def _binary(name: str, form: str):
    def run(tile: Tile, row: Row) -> None:
        n, count, parts = _shapes(form, row.p)
        dst = row.spm[1] if form == "vs" else row.spm[2]
        if row.fmt not in FLOATS:
            _int_row(tile, row, name, form, n, count, parts, dst)
            return
        x = tile.load(row.spm[0], n, row.fmt)
        if form == "vs":
            scalar = as_float(row.p[1], row.fmt)
            if name == "min":
                tile.store(dst, tile.field.at_most(x, scalar, row.fmt), row.fmt)
                return
            if scalar < 0 and name in ("mul", "div"):
                x = _turned_over(x)
            y = tile.field.constant(scalar, row.fmt, (1,))
            if not tile.spm.with_q:
                y = Elements(y.p, None)
        else:
            y = tile.load(row.spm[1], count, row.fmt)
        if len(parts) == 1:
            _, _, sx, sy = parts[0]
            made = FLOAT_OPS[name](tile, x.reshape(*sx), y.reshape(*sy))
        else:
            done = [
                FLOAT_OPS[name](tile, x.at(a).reshape(*sx), y.at(b).reshape(*sy)).reshape(-1) for a, b, sx, sy in parts
            ]
            made = Elements(np.concatenate([d.p for d in done]), _joined([d.q for d in done]))
        rounds = row.fmt == "f16" and name not in ("max", "min")
        tile.store(dst, rounded(made, row.fmt) if rounds else made, row.fmt)

    return run


def _turned_over(x: Elements) -> Elements:
    """Return what a negative factor may take: what hides would be the largest of all then."""
    bad = x.p & HIDDEN != 0
    return Elements(np.where(bad, np.uint32(UNDEFINED), x.p), x.q) if bad.any() else x


def _joined(parts: list) -> np.ndarray | None:
    return None if any(part is None for part in parts) else np.concatenate(parts)


def _int_row(tile: Tile, row: Row, name: str, form: str, n: int, count: int, parts, dst: int) -> None:
    if name not in INT_OPS:
        raise SimulationError(f"{name} of format {row.fmt} has no meaning in the proof")
    x, x_known = tile.load_ints(row.spm[0], n, row.fmt)
    if form == "vs":
        pattern = np.array([row.p[1] & 0xFFFFFFFF], np.uint64)
        y, y_known = pattern.view(np.uint8)[: forms.bytes_of(row.fmt)].view(INTS[row.fmt]), np.ones(1, bool)
    else:
        y, y_known = tile.load_ints(row.spm[1], count, row.fmt)
    with np.errstate(all="ignore"):
        out = [INT_OPS[name](x[a].reshape(sx), y[b].reshape(sy)).reshape(-1) for a, b, sx, sy in parts]
    good = [(x_known[a].reshape(sx) & y_known[b].reshape(sy)).reshape(-1) for a, b, sx, sy in parts]
    tile.store_ints(dst, np.concatenate(out), np.concatenate(good), row.fmt)


for _name in FLOAT_OPS:
    for _form in ("vv", "vs", "vuv", "vuvloop"):
        if not (_form == "vs" and _name in ("and", "or", "xor")):
            meaning(f"{_name}_{_form}")(_binary(_name, _form))


@meaning("not_v")
def invert(tile: Tile, row: Row) -> None:
    """Bits of integers; the bits of a float are not an element of the field."""
    if row.fmt in FLOATS:
        raise SimulationError(f"not of format {row.fmt} has no meaning in the proof")
    x, good = tile.load_ints(row.spm[0], row.p[0], row.fmt)
    tile.store_ints(row.spm[1], ~x, good, row.fmt)


@meaning("mask_move")
def mask_move(tile: Tile, row: Row) -> None:
    """Take src0 where src1 is not zero, else leave what is there."""
    n = row.p[0]
    if row.fmt not in FLOATS:
        (x, a), (m, b), (y, c) = (tile.load_ints(at, n, row.fmt) for at in row.spm[:3])
        tile.store_ints(row.spm[2], np.where(m != 0, x, y), b & np.where(m != 0, a, c), row.fmt)
        return
    x, m, y = (tile.load(at, n, row.fmt) for at in row.spm[:3])
    out = choose(m.p & np.uint32(RESIDUE | HIDDEN) != 0, x, y)
    tile.store(row.spm[2], Elements(np.where(m.p & UNDEFINED, np.uint32(UNDEFINED), out.p), out.q), row.fmt)


# --- conversions -------------------------------------------------------------------------------------------------


def _may_overlap(src: int, dst: int, n: int, src_bytes: int, dst_bytes: int) -> bool:
    """Say whether a conversion that goes from the first element to the last reads each before it is written over."""
    if src + n * src_bytes <= dst or dst + n * dst_bytes <= src:
        return True
    if dst_bytes > src_bytes:
        return src - dst >= n * (dst_bytes - src_bytes)
    return dst <= src if dst_bytes < src_bytes else dst == src


def _convert(src: str, dst: str):
    sizes = forms.bytes_of(src), forms.bytes_of(dst)

    def run(tile: Tile, row: Row) -> None:
        n, zero = row.p[:2]
        if not _may_overlap(row.spm[0], row.spm[1], n, *sizes):
            raise SimulationError(
                f"converting {n} elements {src} to {dst}: source {row.spm[0]:#x} and destination {row.spm[1]:#x} overlap"
            )
        if src in FLOATS and dst in FLOATS:
            tile.store(row.spm[1], rounded(tile.load(row.spm[0], n, src), dst), dst)
        elif src in FLOATS:
            tile.store_ints(row.spm[1], *truths(tile.load(row.spm[0], n, src)), dst)
        else:
            values, good = tile.load_ints(row.spm[0], n, src)
            found = tile.field.numbers(values.astype(np.int64) - (zero if src == "i8" else 0))
            p = np.where(good, found.p, np.uint32(UNDEFINED))
            tile.store(row.spm[1], Elements(p, found.q), dst)

    return run


for _src, _dsts in {
    "i8": ("f16", "bf16", "f32", "tf32"),
    "i16": ("f16", "bf16", "f32", "tf32"),
    "i32": ("f16", "bf16", "f32", "tf32"),
    "bf16": ("i8", "i16", "i32", "f16", "f32", "tf32"),
    "f16": ("i8", "i16", "i32", "bf16", "f32", "tf32"),
    "f32": ("i8", "i16", "i32", "f16", "bf16", "tf32"),
    "tf32": ("i8", "i16", "i32", "f16", "bf16", "f32"),
}.items():
    for _dst in _dsts:
        meaning(f"cvt_{_src}_{_dst}")(_convert(_src, _dst))
