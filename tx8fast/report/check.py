"""The support table of a model: which unit performs each kind of op, and whether everything fits.

May import: rich, report.units, report.tables. Must not: compute figures.
"""

from __future__ import annotations

from typing import Any

from tx8fast.report.tables import Facts, pairs, table
from tx8fast.report.units import count_text, size_text, time_text


def support_tables(f: Facts) -> list[Any]:
    """Return the table per op kind and the sizes of the model."""
    t = table(
        "op", ">count", ">distinct", ">MACs", "performed by", "why not on an engine", title=f"ops of {f['model']}"
    )
    for row in f["ops"]:
        macs = count_text(row["macs"]) if row["macs"] else ""
        why = f"{row['reason']} (as {row['example']})" if row["reason"] else ""
        t.add_row(row["op"], f"{row['count']:,}", f"{row['distinct']:,}", macs, row["engine"], why)
    fits = "fits" if f["fits_ddr"] else "DOES NOT FIT: a smaller batch or sequence or a narrower dtype would help"
    sizes = pairs([
        *([("recognised as", f["family"])] if f.get("family") else []),
        ("weights", size_text(f["weight_bytes"])),
        ("inputs, outputs", f"{size_text(f['input_bytes'])}, {size_text(f['output_bytes'])}"),
        ("activations", f"{size_text(f['activation_bytes'])} with inputs and outputs"),
        ("DDR", f"{size_text(f['ddr_footprint_bytes'])} of {size_text(f['ddr_capacity_bytes'])}: {fits}"),
        ("useful MACs", f"{count_text(f['useful_macs'])} in {f['compute_dtype']}, {f['compute_bound_cycles']:,.0f} cycles"),
        ("DDR traffic", f"at least {size_text(f['unique_ddr_bytes'])}, {f['memory_bound_cycles']:,.0f} cycles"),
        ("roofline bound", f"{f['bound_cycles']:,.0f} cycles, {time_text(f['bound_seconds'])} ({f['bound']})"),
    ])  # fmt: skip
    return [t, sizes]
