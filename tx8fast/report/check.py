"""The support table of a model: which unit performs each kind of op, and whether everything fits.

May import: report.grid, report.units, report.tables. Must not: compute figures.
"""

from __future__ import annotations

from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, Pairs, number
from tx8fast.report.tables import Facts
from tx8fast.report.units import count_text, size_text, time_text

OPS = (
    Column("op", "op", stretch=True),
    number("count", "count", 1),
    number("distinct", "distinct", 2),
    number("macs", "MACs", 0, lambda n: count_text(n) if n else ""),
    Column("engine", "performed by"),
    Column("example", "for example", rank=3, stretch=True),
    Column("reason", "why not on an engine", hidden=True),
)


ENGINES = {"ne": "matrix engine", "ct": "vector engine", "kcore": "kernel core", "ddr": "DDR"}


def _help(f: Facts) -> str:
    more = f"{f['chips_needed']} chips (--tp {f['chips_needed']}) or " if f["chips_needed"] else ""
    return f"{more}a smaller batch or sequence or a narrower dtype"


def _chips(f: Facts) -> str:
    """Return how many chips the model needs and which numbers are possible."""
    if not f["tp"]:
        return ""
    own = next((size_text(r["ddr_bytes"]) for r in f["tp"] if r["tp"] == f["chips_needed"]), "")
    needed = f"needs {f['chips_needed']}, with {own} on each by estimate" if own else "too large for any number of them"
    if len(f["tp"]) < 2:
        return f"{needed}; --tp is not possible: {f['tp_refused']}"
    return f"{needed}; --tp may be {', '.join(str(r['tp']) for r in f['tp'] if r['tp'] > 1)}"


def ops_grid(f: Facts) -> Grid:
    """Return a row per kind of op."""
    return Grid(OPS, f["ops"], f"ops of {f['model']}")


def size_parts(f: Facts) -> list[Any]:
    """Return why ops are on the kernel core, and the sizes of the model."""
    slow = [(row["op"], f"{row['reason']} (as {row['example']})") for row in f["ops"] if row["reason"]]
    fits = "fits" if f["fits_ddr"] else f"DOES NOT FIT: {_help(f)} would help"
    cycle_seconds = f["bound_seconds"] / f["bound_cycles"] if f["bound_cycles"] else 0.0
    engines = ", ".join(f"{ENGINES[k]} {time_text(n * cycle_seconds)}" for k, n in f["engine_cycles"].items() if n)
    sizes = Pairs(
        [
            ("recognised as", f.get("family", "")),
            ("weights", size_text(f["weight_bytes"])),
            ("inputs, outputs", f"{size_text(f['input_bytes'])}, {size_text(f['output_bytes'])}"),
            ("activations", f"{size_text(f['activation_bytes'])} with inputs and outputs"),
            ("DDR", f"{size_text(f['ddr_footprint_bytes'])} of {size_text(f['ddr_capacity_bytes'])}: {fits}"),
            (
                "useful MACs",
                f"{count_text(f['useful_macs'])} in {f['compute_dtype']}, {f['compute_bound_cycles']:,.0f} cycles",
            ),
            ("DDR traffic", f"at least {size_text(f['unique_ddr_bytes'])}, {f['memory_bound_cycles']:,.0f} cycles"),
            ("at full rates", engines),
            ("chips", _chips(f)),
            ("roofline bound", f"{f['bound_cycles']:,.0f} cycles, {time_text(f['bound_seconds'])} ({f['bound']})"),
        ]
    )
    listing = ["", Listing("why not on an engine:", slow)] if slow else []
    return [*listing, "", sizes]
