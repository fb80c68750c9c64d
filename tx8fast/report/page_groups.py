"""What the report's page says about single groups: their table, timeline, losses and layers.

May import: report.*. Must not: compute a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.report import figures
from tx8fast.report.advice import help_text
from tx8fast.report.markup import Markup, el, join
from tx8fast.report.repeats import fold
from tx8fast.report.units import size_text

Facts = Mapping[str, Any]
#: rows of a table; the JSON block has all
ROWS = 400
#: column of the table of groups: key, heading, what it means
COLUMNS = (
    ("label", "group", "layers and ops"),
    ("count", "times", "how often it runs"),
    ("cycles", "cycles", "of one run"),
    ("total_cycles", "all cycles", "of all runs"),
    ("share", "share", "of the program's time"),
    ("bound", "bound", "the engine that is busy longest"),
    ("roofline_ratio", "roofline", "bound over cycles, 1 is the limit"),
    ("lost", "lost", "cycles above the bound, of all runs"),
    ("mostly", "mostly to", "the largest loss"),
    ("spm", "scratchpad", "peak of a tile"),
    ("ddr_bytes", "DDR", "bytes of one run"),
    ("noc_bytes", "links", "bytes of one run over all links"),
)


def words(name: str) -> str:
    """Return a loss's name as a reader writes it."""
    return name.replace("_", " ")


def share(g: Facts, sim: Facts) -> float:
    """Return a group's part of the program's time."""
    return g["total_cycles"] / sim["cycles"] if sim["cycles"] else 0.0


def groups(f: Facts) -> Markup:
    """Return the table of the groups."""
    s = f["sim"]
    order = sorted(range(len(s["groups"])), key=lambda i: (-s["groups"][i]["total_cycles"], i))
    head = el(
        "tr", join(el("th", el("button", title, type="button", title=why), scope="col") for _, title, why in COLUMNS)
    )
    body = []
    for i in order[:ROWS]:
        g = s["groups"][i]
        lost = (g["cycles"] - g["bound_cycles"]) * g["count"]
        mostly = max(g["losses"], key=lambda k: g["losses"][k], default="")
        cells: dict[str, tuple[object, object]] = {
            "label": (g["label"], g["label"]),
            "bound": (g["bound"], g["bound"]),
            "mostly": (words(mostly), mostly),
            "share": (f"{share(g, s):.1%}", share(g, s)),
            "roofline_ratio": (f"{g['roofline_ratio']:.2f}", g["roofline_ratio"]),
            "lost": (f"{lost:,.0f}", lost),
            "spm": (size_text(f["spm"][i]), f["spm"][i]),
            **{k: (size_text(g[k]), g[k]) for k in ("ddr_bytes", "noc_bytes")},
            **{k: (f"{g[k]:,}", g[k]) for k in ("count", "cycles", "total_cycles")},
        }
        texts = ("label", "bound", "mostly")
        chip = el("span", class_="chip", style=f"background:{figures.colour(i)}")
        body.append(
            el(
                "tr",
                join(
                    el(
                        "td",
                        *((chip, shown) if key == "label" else (shown,)),
                        class_=None if key in texts else "number",
                        data_v=value if key in texts else repr(value),
                    )
                    for key, (shown, value) in ((k, cells[k]) for k, *_ in COLUMNS)
                ),
                data_group=i,
            )
        )
    more = (
        el("p", f"... and {len(order) - ROWS} more, in the JSON of this page", class_="note")
        if len(order) > ROWS
        else ""
    )
    return el(
        "section",
        el("h2", "Groups"),
        el("div", el("table", el("thead", head), el("tbody", join(body)), id="groups"), class_="wide"),
        more,
        el("p", "Click a heading to sort, a row to see its timeline.", class_="note screen"),
    )


def timeline() -> Markup:
    """Return the place of the timeline, which the script fills."""
    controls = el(
        "p",
        el("label", "group ", el("select", id="pick")),
        " ",
        el("button", "whole group", type="button", id="reset"),
        class_="screen",
    )
    note = "One run of the group: every tile's engines, lightly where they are busy in parts only. Turn the wheel to zoom, drag to move."
    return el(
        "section",
        el("h2", "Timeline of a group"),
        controls,
        el("p", "", id="picked"),
        el("p", "", id="legend", class_="legend"),
        el("canvas", id="timeline"),
        el("p", note, class_="note"),
        el("h3", "Scratchpad of one tile"),
        el("canvas", id="buffers"),
        el("p", "Buffers by address, darkly while instructions touch them.", class_="note"),
        id="timelines",
    )


def losses(f: Facts) -> Markup:
    """Return the largest losses, and what would help."""
    s = f["sim"]
    rows = []
    for name, cycles in sorted(s["losses"].items(), key=lambda item: -item[1]):
        if not s["cycles"] or cycles < 0.001 * s["cycles"]:
            continue
        groups = sorted(s["groups"], key=lambda g: -g["losses"].get(name, 0.0) * g["count"])
        most = [g["label"] for g in groups[:2] if g["losses"].get(name, 0.0) * g["count"] > 0.1 * cycles]
        rows.append(
            el(
                "tr",
                el("th", words(name), scope="row"),
                el("td", f"{cycles / s['cycles']:.1%}", class_="number"),
                el("td", f["meanings"].get(name, "")),
                el("td", "; ".join(most)),
                el("td", help_text(name, f["program"]["options"])),
            )
        )
    head = el(
        "tr",
        join(
            el("th", h, scope="col") for h in ("loss", "of the time", "cycles in which", "mostly in", "what would help")
        ),
    )
    slow = [el("li", f"{op} runs on the kernel core: {why}") for op, why in f["program"]["kernel_core"].items()]
    return el(
        "section",
        el("h2", "Largest losses, and what would help"),
        el("div", el("table", el("thead", head), el("tbody", join(rows)), class_="plain"), class_="wide"),
        el("ul", join(slow)) if slow else "",
    )


def layers(f: Facts) -> Markup:
    """Return the graph of the layers."""
    chain, s = f["chain"], f["sim"]
    nodes = fold([tuple(c["segments"]) for c in chain])
    captions, groups, repeats = {}, {}, {}
    spot: dict[int, int] = {}

    def walk(some: Sequence[Any]) -> list[int]:
        found: list[int] = []
        for node in some:
            if hasattr(node, "body"):
                inside = walk(node.body)
                layers = f["layers_text"](sorted(inside))
                repeats[min(inside)] = f"{layers or 'repeated'}: {node.count} times, compiled once"
                found += inside
                continue
            group = s["groups"][chain[node.first]["group"]]
            share = sum(s["groups"][chain[i]["group"]]["cycles"] for i in node.all) / max(1, s["cycles"])
            spot.update(dict.fromkeys(node.all, node.first))
            groups[node.first] = chain[node.first]["group"]
            name = group["label"].partition(": ")[2] if group["layers"] else group["label"]
            engines = ", ".join(dict.fromkeys(f["segments"][i]["engine"] for i in chain[node.first]["segments"]))
            captions[node.first] = (
                name or group["label"],
                f"{engines}; {group['cycles']:,} cycles, {share:.1%} of the time",
            )
            found += node.all
        return found

    walk(nodes)
    edges = {(spot[a], spot[b]) for a, b in f["edges"]}
    return el(
        "section",
        el("h2", "Layers"),
        figures.layers(nodes, captions, groups, repeats, edges),
        el(
            "p",
            "Groups in the order in which they run; arrows are tensors that one writes and the other reads.",
            class_="note",
        ),
    )
