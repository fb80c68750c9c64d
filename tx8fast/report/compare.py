"""Two simulations side by side: which figures differ, in which groups, and what of the groups' plans has changed.

May import: report.grid, report.units. Must not: compute cycles or open files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, number

Facts = Mapping[str, Any]
#: figures of a program that are compared, in this order
TOTALS = (
    "cycles",
    "bound_cycles",
    "roofline_ratio",
    "ddr_bytes",
    "noc_bytes",
    "instructions",
    "spm_peak_bytes",
    "ddr_footprint_bytes",
    "useful_macs",
    "unique_ddr_bytes",
)
#: of a group's plan
PLAN = ("engine", "parts", "slices", "order", "shared")
SHOWN = 24
#: what stands before a name in the table of figures
PARTS = {"totals": "", "losses": "", "options": "option ", "machine": "machine "}
SEPARATOR = " | "


def difference(a: Facts, b: Facts) -> dict[str, Any]:
    """Return what differs from `a` to `b`, JSON-able. Each: `sim` (as `sim --json`), and of programs also `segments`, `options` and `machine`, else None.

    `totals`, `losses`, `options`, `machine`: {name: [in a, in b]}; `groups`: rows with `label`, `status` ("changed", "grouped anew", "only in the first",
    "only in the second"), cycles of all runs, `why`, and the labels of what is compared, `first` and `second`; `same`: groups that take the same cycles."""
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
    for one_side, other in _matched(left, right):
        before, after = (
            [g for label in labels for g in side[label]] for labels, side in ((one_side, left), (other, right))
        )
        if one_side == other and _facts(before) == _facts(after):
            same += 1
            continue
        cycles = [_total(before), _total(after)]
        rows.append(
            {
                "label": SEPARATOR.join(min((x for x in (other, one_side) if x), key=len)),
                **_change(one_side, other),
                "first_cycles": cycles[0],
                "second_cycles": cycles[1],
                "more_cycles": cycles[1] - cycles[0],
                "first": one_side,
                "second": other,
            }
        )
        if one_side and other:
            rows[-1]["why"] += [*_plan_changes(before, after, plans, names), *_loss_changes(before, after)]
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


def _matched(left: Facts, right: Facts) -> list[tuple[list[str], list[str]]]:
    """Return which labels are compared with which: equal ones, and of the others all that share ops with each other."""
    out = [([label], [label]) for label in left if label in right]
    rest = [[label for label in side if label not in other] for side, other in ((left, right), (right, left))]
    seen: set[tuple[int, str]] = set()
    for side in (0, 1):
        for label in rest[side]:
            if (side, label) in seen:
                continue
            todo, found = [(side, label)], {(side, label)}
            while todo:
                s, at = todo.pop()
                near = {(1 - s, other) for other in rest[1 - s] if _ops(at) & _ops(other)} - found
                found |= near
                todo += sorted(near)
            seen |= found
            out.append(([x for x in rest[0] if (0, x) in found], [x for x in rest[1] if (1, x) in found]))
    return out


def _change(first: list[str], second: list[str]) -> dict[str, Any]:
    """Return `status` and the beginning of `why` of groups that are compared."""
    if first == second:
        return {"status": "changed", "why": []}
    for side, labels in (("second", first), ("first", second)):
        if len(labels) == len(first) + len(second):
            status = f"only in the {'first' if side == 'second' else 'second'}"
            return {"status": status, "why": [f"the {side} has none of its ops"]}
    return {"status": "grouped anew", "why": [f"{_quoted(first)} became {_quoted(second)}"]}


def _quoted(labels: list[str]) -> str:
    return ", ".join(map(repr, labels))


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
    Column("label", "group", stretch=True),
    Column("status", "what", rank=2),
    number("first_cycles", "first", 3),
    number("second_cycles", "second", 1),
    number("more_cycles", "change", 0, "{:+,}".format),
    Column("why", "why", "; ".join, rank=4, stretch=True),
)
TOTAL_COLUMNS = (
    Column("name", "figure", stretch=True),
    Column("first", "first", right=True),
    Column("second", "second", right=True),
    Column("change", "change", right=True),
)


def groups_grid(d: Facts) -> Grid:
    """Return the groups that differ, largest change first."""
    return Grid(COLUMNS, d["groups"], "groups, largest change first", SHOWN)


def head_parts(d: Facts) -> list[Any]:
    """Return the figures, options and machine figures that differ."""
    if d["equal"]:
        return ["no difference"]
    rows = [
        {
            "name": f"{head}{k.replace('_', ' ') if part in ('totals', 'losses') else k}",
            "first": _text(x),
            "second": _text(y),
            "change": "" if part == "options" else _share(x, y),
        }
        for part, head in PARTS.items()
        for k, (x, y) in d[part].items()
    ]
    return [
        Grid(TOTAL_COLUMNS, rows),
        f"{d['same']} groups are the same" if d["same"] != 1 else "1 group is the same",
        "",
    ]


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
