"""Two simulations side by side: which figures differ, in which groups, and what of the groups' plans has changed.

May import: report.grid, report.units. Must not: compute cycles or open files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, number

Facts = Mapping[str, Any]
#: figures of a program that are compared, in this order
TOTALS = ("cycles", "bound_cycles", "roofline_ratio", "ddr_bytes", "noc_bytes", "instructions", "spm_peak_bytes", "ddr_footprint_bytes",
          "useful_macs", "unique_ddr_bytes")  # fmt: skip
#: of a group's plan
PLAN = ("engine", "parts", "slices", "order", "shared")
SHOWN = 24


def difference(a: Facts, b: Facts) -> dict[str, Any]:
    """Return what differs from `a` to `b`, JSON-able. Each: `sim` (as `sim --json`), and of programs also `segments`, `options` and `machine`, else None.

    `totals`, `losses`, `options`, `machine`: {name: [in a, in b]}; `groups`: rows with `label`, `status` ("changed", "only in the first", "only in the
    second"), cycles of all runs and `why`; `same`: groups that take the same cycles."""
    one, two = a["sim"], b["sim"]
    out: dict[str, Any] = {
        "totals": {k: [one.get(k), two.get(k)] for k in TOTALS if one.get(k) != two.get(k)},
        "losses": _changed(one["losses"], two["losses"]),
        "options": _changed(a.get("options") or {}, b.get("options") or {}),
        "machine": _changed(a.get("machine") or {}, b.get("machine") or {}),
    }
    left, right = _by_label(one["groups"]), _by_label(two["groups"])
    plans = [{tuple(s["ops"]): s for s in f.get("segments") or ()} for f in (a, b)]
    names = [{s["name"]: tuple(s["ops"]) for s in f.get("segments") or ()} for f in (a, b)]
    rows, same = [], 0
    for label in dict.fromkeys((*left, *right)):
        before, after = left.get(label), right.get(label)
        if before is not None and after is not None:
            if _facts(before) == _facts(after):
                same += 1
                continue
            why = [*_plan_changes(before, after, plans, names), *_loss_changes(before, after)]
            status = "changed"
        else:
            status = "only in the first" if after is None else "only in the second"
            side, others = ("second", right) if after is None else ("first", left)
            shared = [o for o in others if _ops(label) & _ops(o)]
            why = [
                f"in the {side} its ops are in {', '.join(map(repr, shared))}"
                if shared
                else f"the {side} has none of its ops"
            ]
        cycles = [_total(before), _total(after)]
        rows.append({"label": label, "status": status, "first_cycles": cycles[0], "second_cycles": cycles[1], "more_cycles": cycles[1] - cycles[0],
                     "why": why})  # fmt: skip
    out["groups"] = sorted(rows, key=lambda r: (-abs(r["more_cycles"]), r["label"]))
    out["same"] = same
    out["equal"] = not rows and not any(out[k] for k in ("totals", "losses", "options", "machine"))
    return out


def _changed(a: Facts, b: Facts) -> dict[str, list[Any]]:
    return {k: [a.get(k), b.get(k)] for k in dict.fromkeys((*a, *b)) if a.get(k) != b.get(k)}


def _by_label(groups: Sequence[Facts]) -> dict[str, list[Facts]]:
    out: dict[str, list[Facts]] = {}
    for g in groups:
        out.setdefault(g["label"], []).append(g)
    return out


def _ops(label: str) -> set[tuple[str, str]]:
    """Return (layers, op) of every op that a label names; without numbers of layers, which may be other ones."""
    layers, _, ops = label.rpartition(": ")
    return {(layers.partition(" ")[0], op) for op in ops.split(" + ")}


def _total(groups: Sequence[Facts] | None) -> int:
    return sum(g["total_cycles"] for g in groups or ())


def _facts(groups: Sequence[Facts]) -> list[Any]:
    return [(g["cycles"], g["count"], g["ddr_bytes"], g["noc_bytes"], g["instructions"]) for g in groups]


def _plan_changes(
    before: Sequence[Facts], after: Sequence[Facts], plans: Sequence[Mapping], names: Sequence[Mapping]
) -> list[str]:
    """Return how the plans of a group's segments differ; they are found by their ops."""
    found: list[str] = []
    for segment in dict.fromkeys(s for g in before for s in g["segments"]):
        ops = names[0].get(segment)
        x, y = plans[0].get(ops), plans[1].get(ops)
        if x is None or y is None:
            continue
        found += [f"{k} {_short(x[k])} became {_short(y[k])}" for k in PLAN if x[k] != y[k]]
    counts = [sum(g["count"] for g in some) for some in (before, after)]
    if counts[0] != counts[1]:
        found.append(f"it runs {counts[1]:,} times, not {counts[0]:,}")
    return found


def _loss_changes(before: Sequence[Facts], after: Sequence[Facts], most: int = 2) -> list[str]:
    """Return which terms of a group's cycles have grown or shrunk most, over all its runs."""
    terms: list[dict[str, float]] = []
    for some in (before, after):
        sums: dict[str, float] = {}
        for g in some:
            for k, v in (("roofline bound", g["bound_cycles"]), *g["losses"].items()):
                sums[k] = sums.get(k, 0.0) + v * g["count"]
        terms.append(sums)
    change = {k: terms[1].get(k, 0.0) - terms[0].get(k, 0.0) for k in dict.fromkeys((*terms[0], *terms[1]))}
    largest = sorted((k for k, v in change.items() if abs(v) >= 1), key=lambda k: -abs(change[k]))[:most]
    return [f"{k.replace('_', ' ')} {change[k]:+,.0f} cycles" for k in largest]


def _short(value: Any) -> str:
    return "x".join(map(str, value)) or "-" if isinstance(value, list) else str(value)


COLUMNS = (
    Column("label", "group", stretch=True), Column("status", "what", rank=2), number("first_cycles", "first", 3), number("second_cycles", "second", 1),
    number("more_cycles", "change", 0, "{:+,}".format), Column("why", "why", "; ".join, rank=4, stretch=True),
)  # fmt: skip
TOTAL_COLUMNS = (
    Column("name", "figure", stretch=True), Column("first", "first", right=True), Column("second", "second", right=True), Column("change", "change", right=True),
)  # fmt: skip


def groups_grid(d: Facts) -> Grid:
    """Return the groups that differ, largest change first."""
    return Grid(COLUMNS, d["groups"], "groups, largest change first", SHOWN)


def head_parts(d: Facts) -> list[Any]:
    """Return the figures, options and machine figures that differ."""
    if d["equal"]:
        return ["no difference"]
    rows = [{"name": k, "first": _text(x), "second": _text(y), "change": _share(x, y)}
            for part in ("totals", "losses", "options", "machine") for k, (x, y) in d[part].items()]  # fmt: skip
    return [Grid(TOTAL_COLUMNS, rows), f"{d['same']} groups are the same", ""]


def why_parts(d: Facts) -> list[Any]:
    """Return the reasons as a list: a terminal's table has no room for them."""
    return (
        ["", Listing("why:", [(r["label"], "; ".join(r["why"])) for r in d["groups"][:SHOWN] if r["why"]])]
        if d["groups"]
        else []
    )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _share(x: Any, y: Any) -> str:
    usable = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (x, y))
    return f"{y / x - 1:+.1%}" if usable and x else ""
