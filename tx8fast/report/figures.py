"""Tables of what figures depend on: assumptions of the machine file, and measurements.

May import: rich, report.units and report.tables. Must not: compute figures or know classes of the compiler.
"""

from __future__ import annotations

from typing import Any

from tx8fast.report.tables import Facts, pairs, table


def sensitivity_tables(f: Facts) -> list[Any]:
    """Return the interval of a program's cycles and the figures that it depends on."""
    low, high = f["interval_cycles"]
    worst, best = f["interval_roofline_ratio"]
    head = pairs([
        ("program", f"{f['program']}  {f['model']} {f['phase']} {f['compute_dtype']}"),
        ("cycles", f"{f['cycles']:,}, with other assumptions {low:,} to {high:,}"),
        ("roofline ratio", f"{f['roofline_ratio']:.3f}, {worst:.3f} to {best:.3f}"),
    ])  # fmt: skip
    t = table("assumed", ">value", ">tried", ">cycles", ">change", ">tried", ">cycles", ">change")
    moved = [row for row in f["keys"] if any(row["change"])]
    for row in moved:
        sides = zip(row["values"], row["cycles"], row["change"], strict=True)
        t.add_row(row["key"], f"{row['value']:g}", *(x for v, c, d in sides for x in (f"{v:g}", f"{c:,}", f"{d:+.2%}")))
    still = [row for row in f["keys"] if not any(row["change"])]
    rest = [row["key"] for row in still if row["value"]]
    zero = [row["key"] for row in still if not row["value"]]
    lines = [(f"no difference: {', '.join(rest)}", rest), (f"0, which no factor changes: {', '.join(zero)}", zero)]
    return [head, *([t] if moved else []), *(line for line, keys in lines if keys)]


def calibration_tables(f: Facts) -> list[Any]:
    """Return what was fitted, and how far the simulator is from each measurement before and after."""
    t = table("engine", "size", ">tiles", ">offset", ">measured", ">before", ">", ">after", ">", title="cycles")
    for r in f["measurements"]:
        t.add_row(r["engine"], r["size"], f"{r['tiles']}", f"{r['offset']}", r["measured"], f"{r['before']:,}",
                  f"{r['before_residual']:+.1%}", f"{r['after']:,}", f"{r['after_residual']:+.1%}")  # fmt: skip
    k = table("figure", ">before", ">after", title="fitted")
    for row in f["keys"]:
        k.add_row(row["key"], f"{row['before']:g}", f"{row['after']:g}")
    why: dict[str, list[str]] = {}
    for key, reason in f["left"].items():
        why.setdefault(reason, []).append(key)
    far = f"largest residual {f['largest_residual']:.1%}, beyond 5 %: {f['not_met']} of {len(f['measurements'])}"
    head = pairs([("machine", f["machine"]), ("written", f["output"])])
    return [
        head,
        t,
        far,
        *([k] if f["keys"] else []),
        *(f"left, {reason}: {', '.join(keys)}" for reason, keys in why.items()),
    ]
