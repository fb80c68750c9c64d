"""Where a program keeps fewer bits than it could: what the proof, to which rounding is the identity, does not see.

May import: numpy, isa (names), program, proof.code, proof.forms. Must not: decide whether a loss matters; the report names them.

Four kinds: a sum of which partial results are stored in 16 bits (partial products of the matrix engine, reductions and windows
of the vector engine), f32 taken as tf32, which has 10 bits of a fraction, rows of 16 bits and short exponentials in code whose
arguments are all wider, and a value that is widened to f32 again after it was narrowed in the same launch: an intermediate
that the rows around it hold in f32. Each is counted by segment and op.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tx8fast import isa
from tx8fast.program.model import Program, Segment
from tx8fast.proof.code import written_out
from tx8fast.proof.forms import NAMES
from tx8fast.records import dataclass

NARROW = ("bf16", "f16")
#: reductions whose result is a sum of many
SUMS = ("reduce_sum", "reduce_avg", "pool_sum", "pool_avg")
_NARROWING = {f"cvt_f32_{fmt}": fmt for fmt in NARROW}
_WIDENING = {f"cvt_{fmt}_f32": fmt for fmt in NARROW}


@dataclass(frozen=True)
class Finding:
    """`rows` rows of one segment (over all tiles) that came from `op`; `what`: "sum in bf16", "computed in tf32", "computed in bf16 between values in f32",
    "short exponential between values in f32", "narrowed to bf16 between f32 rows"."""

    segment: str
    op: str
    what: str
    rows: int


def audit(program: Program) -> list[Finding]:
    """Return what every segment that some launch runs loses, by segment, op and kind, in that order."""
    out: list[Finding] = []
    for number in sorted({launch.segment for launch in program.launches}):
        segment = program.segments[number]
        found: Counter[tuple[str, str]] = Counter()
        tiles = Counter(int(t) for t in segment.tile_code if t >= 0)
        for index, times in tiles.items():
            for (op, what), rows in _losses(written_out(segment.codes[index]), _is_wide(segment)).items():
                found[segment.ops[op] if 0 <= op < len(segment.ops) else "", what] += rows * times
        out += [Finding(segment.name, op, what, rows) for (op, what), rows in sorted(found.items())]
    return out


def _is_wide(segment: Segment) -> bool:
    """Say whether code takes and gives numbers in f32 alone."""
    kinds = {a.dtype for a in segment.arguments if a is not None}
    return "f32" in kinds and kinds.isdisjoint(NARROW)


def _losses(rows: np.ndarray, wide: bool) -> Counter[tuple[int, str]]:
    """Count the losses of one tile's rows by (op, kind); wide: nothing of 16 bits comes in or goes out."""
    found: Counter[tuple[int, str]] = Counter()
    products: set[int] = set()  # where results of 16 bits of the matrix engine begin
    narrowed: dict[tuple[int, int], str] = {}  # scratchpad range of a narrowed value -> format
    for row in rows:
        cls = isa.class_of(int(row["opcode"]))
        op = int(row["op"])
        fields = dict(zip(cls.FIELDS_P, row["p"].tolist()))
        if cls.UNIT == "ne":
            places = dict(zip(cls.FIELDS_SPM, row["spm"].tolist()))
            adds = fields.get("psum_en") and NAMES.get(fields["psum_fmt"]) in NARROW
            # a residual is no partial sum: no product has made it
            if adds and fields.get("k", fields.get("c", 2)) > 1 and places["psum"] in products:
                found[op, f"partial sums in {NAMES[fields['psum_fmt']]}"] += 1
            (products.add if NAMES.get(fields["out_fmt"]) in NARROW else products.discard)(places["out"])
        else:
            products.difference_update(_starts(cls, row))
        fmt = NAMES.get(int(row["fmt"]), "")
        if cls.NAME in SUMS and fmt in NARROW:
            found[op, f"sum in {fmt}"] += 1
        if wide and fmt in NARROW and cls.UNIT in ("ct", "ne"):
            found[op, f"computed in {fmt} between values in f32"] += 1
        if wide and cls.NAME == "exp_lp_v":
            found[op, "short exponential between values in f32"] += 1
        if "tf32" in (
            fmt,
            cls.NAME.rpartition("_")[2],
            *(NAMES.get(fields[x], "") for x in ("out_fmt", "psum_fmt") if x in fields),
        ):
            found[op, "computed in tf32"] += 1
        if cls.NAME in _NARROWING:
            start = int(row["spm"][1])
            narrowed[start, start + 2 * fields["n"]] = _NARROWING[cls.NAME]
        elif cls.NAME in _WIDENING:
            start = int(row["spm"][0])
            span = start, start + 2 * fields["n"]
            if any(a < span[1] and span[0] < b for a, b in narrowed):
                found[op, f"narrowed to {_WIDENING[cls.NAME]} between f32 rows"] += 1
        else:
            _written(cls, row, fields, narrowed)
    return found


def _written(cls, row: np.ndarray, fields: dict[str, int], narrowed: dict[tuple[int, int], str]) -> None:
    """Forget narrowed values that a row writes over."""
    if not narrowed:
        return
    _, writes = cls.FAMILY.spans(row.reshape(1))
    for start, size in writes:
        a = int(np.asarray(start)[0])
        b = a + int(np.broadcast_to(size, (1,))[0])
        for span in [s for s in narrowed if a < s[1] and s[0] < b]:
            del narrowed[span]


def _starts(cls, row: np.ndarray) -> list[int]:
    """Return where the scratchpad ranges begin that a row writes."""
    _, writes = cls.FAMILY.spans(row.reshape(1))
    return [int(np.asarray(start)[0]) for start, size in writes if int(np.broadcast_to(size, (1,))[0]) > 0]
