"""Tables of what figures depend on: assumptions of the machine file, and measurements.

May import: report.grid. Must not: compute figures or know classes of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, Pairs, number

Facts = Mapping[str, Any]
SWINGS = (
    Column("key", "assumed", stretch=True),
    number("value", "value", 0, "{:g}".format),
    number("low", "tried", 2, "{:g}".format),
    number("low_cycles", "cycles", 1),
    number("low_change", "change", 0, "{:+.2%}".format),
    number("high", "tried", 2, "{:g}".format),
    number("high_cycles", "cycles", 1),
    number("high_change", "change", 0, "{:+.2%}".format),
)
MEASURED = (
    Column("engine", "engine", stretch=True),
    Column("size", "size"),
    number("tiles", "tiles", 3),
    number("offset", "offset", 4),
    Column("measured", "measured", right=True),
    number("before", "before", 2),
    number("before_residual", "off by", 1, "{:+.1%}".format),
    number("after", "after", 2),
    number("after_residual", "off by", 0, "{:+.1%}".format),
)
FITTED = (
    Column("key", "figure"),
    number("before", "before", 0, "{:g}".format),
    number("after", "after", 0, "{:g}".format),
)


def sensitivity_tables(f: Facts) -> tuple[list[Any], Grid, list[Any]]:
    """Return the interval of a program's cycles, the figures that it depends on, and those that it does not."""
    low, high = f["interval_cycles"]
    worst, best = f["interval_roofline_ratio"]
    head = Pairs(
        [
            ("program", f"{f['program']}  {f['model']} {f['phase']} {f['compute_dtype']}"),
            ("cycles", f"{f['cycles']:,}, with other assumptions {low:,} to {high:,}"),
            ("roofline ratio", f"{f['roofline_ratio']:.3f}, {worst:.3f} to {best:.3f}"),
        ]
    )
    names = (
        ("values", ("low", "high")),
        ("cycles", ("low_cycles", "high_cycles")),
        ("change", ("low_change", "high_change")),
    )
    moved = [
        {
            "key": row["key"],
            "value": row["value"],
            **{k: v for key, two in names for k, v in zip(two, row[key], strict=True)},
        }
        for row in f["keys"]
        if any(row["change"])
    ]
    still = [row for row in f["keys"] if not any(row["change"])]
    rest = [
        (what, ", ".join(row["key"] for row in still if bool(row["value"]) is there))
        for what, there in (("no difference", True), ("0, which no factor changes", False))
    ]
    return [head, ""], Grid(SWINGS, moved), ["", Pairs(rest)]


def calibration_tables(f: Facts) -> tuple[list[Any], Grid, list[Any]]:
    """Return the machine, how far the simulator is from each measurement before and after, and what was fitted."""
    why: dict[str, list[str]] = {}
    for key, reason in f["left"].items():
        why.setdefault(reason, []).append(key)
    far = f"largest residual {f['largest_residual']:.1%}, beyond 5 %: {f['not_met']} of {len(f['measurements'])}"
    fitted = ["", Grid(FITTED, f["keys"])] if f["keys"] else []
    left = Listing("left as they are:", [(reason, ", ".join(keys)) for reason, keys in why.items()])
    head = Pairs([("machine", f["machine"]), ("written", f["output"])])
    return [head, ""], Grid(MEASURED, f["measurements"]), [far, *fitted, "", left]
