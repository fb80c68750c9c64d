"""Figures of the report as SVG: roofline, time, memories, links, layers.

May import: report.markup, report.repeats, report.units. Must not: compute what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tx8fast.report.markup import Markup, el
from tx8fast.report.repeats import Node, Repeat, flat
from tx8fast.report.units import count_text, size_text, time_text

COLOURS = ("#2f6fb7", "#e08a1e", "#3a9a4d", "#c94f7c", "#8a63c9", "#4aa5a8", "#b0832f", "#7a8699", "#d1495b", "#6b8e23")
#: steps of a bar: what is narrower is joined with its neighbour
STEPS = 1200
MAX_NODES = 400


def colour(group: int) -> str:
    return COLOURS[group % len(COLOURS)]


def svg(width: float, height: float, *parts: object, name: str) -> Markup:
    """Return a figure that scales with the page; `name` is read out."""
    return el(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=name,
        class_="figure",
        style=f"max-width:{1.1 * width:.0f}px",
    )


def text(x: float, y: float, what: object, anchor: str = "start", **more: object) -> Markup:
    return el("text", what, x=x, y=y, text_anchor=anchor, **more)


def roofline(peak: float, rate: float, points: Sequence[Mapping[str, Any]]) -> Markup:
    """peak: MACs per cycle; rate: DDR bytes per cycle; points: label, macs, ddr_bytes, cycles, share of the time, group (-1: all)."""
    shown = [p for p in points if p["macs"] and p["ddr_bytes"] and p["cycles"]]
    ridge = peak / rate
    xs = [p["macs"] / p["ddr_bytes"] for p in shown] + [ridge]
    ys = [p["macs"] / p["cycles"] for p in shown] + [peak]
    x0, x1 = math.floor(math.log10(min(xs)) - 0.1), math.ceil(math.log10(max(xs)) + 0.2)
    y0, y1 = math.floor(math.log10(min(ys)) - 0.1), math.ceil(math.log10(max(ys)) + 0.1)
    w, h, left, top, right, low = 600, 330, 62, 12, 12, 44

    def px(v: float) -> float:
        return left + (math.log10(v) - x0) / (x1 - x0) * (w - left - right)

    def py(v: float) -> float:
        return h - low - (math.log10(v) - y0) / (y1 - y0) * (h - low - top)

    parts: list[object] = []
    for e in range(x0, x1 + 1):
        parts += [
            el("line", x1=px(10.0**e), x2=px(10.0**e), y1=top, y2=h - low, class_="grid"),
            text(px(10.0**e), h - low + 15, _power(e), "middle"),
        ]
    for e in range(y0, y1 + 1):
        parts += [
            el("line", x1=left, x2=w - right, y1=py(10.0**e), y2=py(10.0**e), class_="grid"),
            text(left - 6, py(10.0**e) + 4, _power(e), "end"),
        ]
    begin = max(10.0**x0, 10.0**y0 / rate)
    roof = f"M{px(begin):.1f},{py(begin * rate):.1f} L{px(ridge):.1f},{py(peak):.1f} L{w - right},{py(peak):.1f}"
    parts += [
        el("path", d=roof, class_="roof"),
        text(w - right - 4, py(peak) - 6, f"{count_text(peak)} MACs/cycle", "end"),
        text((left + w - right) / 2, h - 8, "MACs per byte that crosses the DDR", "middle"),
        text(14, (top + h - low) / 2, "MACs per cycle", "middle", transform=f"rotate(-90 14 {(top + h - low) / 2:g})"),
    ]
    for p in sorted(shown, key=lambda p: -p["share"]):
        x, y = px(p["macs"] / p["ddr_bytes"]), py(p["macs"] / p["cycles"])
        tip = el("title", f"{p['label']}: {p['macs'] / p['cycles']:,.0f} MACs/cycle, {p['share']:.1%} of the time")
        if p["group"] < 0:
            cross = f"M{x - 6:.1f},{y:.1f}h12M{x:.1f},{y - 6:.1f}v12"
            parts.append(el("path", tip, d=cross, class_="whole"))
        else:
            parts.append(
                el(
                    "circle",
                    tip,
                    cx=x,
                    cy=y,
                    r=3 + 11 * math.sqrt(p["share"]),
                    fill=colour(p["group"]),
                    class_="point",
                    data_group=p["group"],
                )
            )
    return svg(w, h, *parts, name="roofline")


def _power(e: int) -> Markup:
    return Markup(f'10<tspan dy="-4" font-size="8">{e}</tspan>') if e else Markup("1")


def over_time(
    stretches: Sequence[tuple[int, int, int]],
    names: Sequence[str],
    peaks: Sequence[int],
    capacity: int,
    rates: Sequence[float],
    clock_hz: float,
) -> Markup:
    """stretches: (group, start cycle, cycles); per group its name, its scratchpad peak in bytes and its share of the DDR's bandwidth."""
    w, left, bar, plot = 1180, 128, 22, 64
    total = max(1, stretches[-1][1] + stretches[-1][2]) if stretches else 1
    scale = (w - left - 8) / total
    boxes = joined(stretches, total)
    rows: list[object] = [text(0, 16, "group")]
    for group, at, length in boxes:
        tip = el("title", f"{names[group]}: {length:,} cycles from cycle {at:,}")
        rows.append(
            el(
                "rect",
                tip,
                x=left + at * scale,
                y=2,
                width=max(0.3, length * scale),
                height=bar,
                fill=colour(group),
                data_group=group,
            )
        )
    for top, title, value, mark in (
        (bar + 14, "scratchpad", lambda g: peaks[g] / capacity, size_text(capacity)),
        (bar + plot + 30, "DDR rate", lambda g: min(1.0, rates[g]), "100%"),
    ):
        steps = [f"M{left},{top + plot}"]
        for group, at, length in boxes:
            y = top + plot * (1 - value(group))
            steps.append(f"L{left + at * scale:.1f},{y:.1f}H{left + (at + length) * scale:.1f}")
        rows += [
            text(0, top + 10, title),
            text(left - 6, top + 8, mark, "end"),
            text(left - 6, top + plot, "0", "end"),
            el("line", x1=left, x2=w - 8, y1=top, y2=top, class_="grid"),
            el("path", d="".join(steps) + f"V{top + plot}Z", class_="area"),
        ]
    low = bar + 2 * plot + 46
    for k in range(6):
        at = total * k / 5
        rows.append(
            text(left + at * scale, low, time_text(at / clock_hz), "end" if k == 5 else "middle" if k else "start")
        )
    return svg(w, low + 8, *rows, name="groups, scratchpad and DDR over time")


def joined(stretches: Sequence[tuple[int, int, int]], total: int) -> list[tuple[int, int, int]]:
    """Return stretches of which neighbours that are too narrow to see are one, of the group that is longest there."""
    out: list[tuple[int, int, int]] = []
    share: dict[int, int] = {}
    for group, at, length in stretches:
        if out and (out[-1][2] + length) * STEPS < total:
            share[group] = share.get(group, 0) + length
            out[-1] = (max(share, key=lambda g: (share[g], -g)), out[-1][1], out[-1][2] + length)
        else:
            share = {group: length}
            out.append((group, at, length))
    return out


def ddr_map(ddr_bytes: int, capacity: int, pieces: Iterable[tuple[int, int, str]], kinds: Sequence[str]) -> Markup:
    """pieces: (first byte, bytes, kind), in the order of addresses; what no piece names is the last kind."""
    w, bar = 1180, 34
    scale = w / max(1, ddr_bytes)
    runs: list[list[Any]] = []
    sums = dict.fromkeys(kinds, 0)
    at = 0

    def put(begin: int, size: int, kind: str) -> None:
        sums[kind] += size
        if runs and runs[-1][2] == kind:
            runs[-1][1] = begin + size - runs[-1][0]
        elif size > 0:
            runs.append([begin, size, kind])

    for begin, size, kind in sorted(pieces):
        if begin > at:
            put(at, begin - at, kinds[-1])
        put(max(at, begin), max(0, begin + size - max(at, begin)), kind)
        at = max(at, begin + size)
    put(at, max(0, ddr_bytes - at), kinds[-1])
    rows: list[object] = [
        el(
            "rect",
            el("title", f"{kind}: {size_text(size)} from {begin:#x}"),
            x=begin * scale,
            y=0,
            width=max(0.4, size * scale),
            height=bar,
            fill=colour(kinds.index(kind)),
        )
        for begin, size, kind in runs
        if size * scale > 0.02
    ]
    x = 0.0
    for kind in kinds:
        label = f"{kind} {size_text(sums[kind])}"
        rows += [
            el("rect", x=x, y=bar + 12, width=10, height=10, fill=colour(kinds.index(kind))),
            text(x + 15, bar + 21, label),
        ]
        x += 40 + 7.2 * len(label)
    rows.append(text(w, bar + 21, f"{size_text(ddr_bytes)} of {size_text(capacity)}", "end"))
    return svg(w, bar + 30, *rows, name="DDR map")


def links(grid: tuple[int, int], pairs: Sequence[Sequence[int]], carried: Sequence[float]) -> Markup:
    """Tiles as a grid; every link as an arrow, darker the more of its bandwidth (0 to 1) is used."""
    step, side, pad = 96, 44, 14
    width, height = grid[0] * step - step + side + 2 * pad, grid[1] * step - step + side + 2 * pad
    most = max([*carried, 1e-12])

    def centre(tile: int) -> tuple[float, float]:
        return pad + side / 2 + tile % grid[0] * step, pad + side / 2 + tile // grid[0] * step

    rows: list[object] = []
    for (a, b), share in zip(pairs, carried, strict=True):
        (xa, ya), (xb, yb) = centre(a), centre(b)
        length = math.hypot(xb - xa, yb - ya)
        if length > step * 1.5:
            continue  # a link around the edge has no place in a plane; the table below has it
        dx, dy = (xb - xa) / length, (yb - ya) / length
        off = 6
        x1, y1 = xa + dx * (side / 2 + 2) - dy * off, ya + dy * (side / 2 + 2) + dx * off
        x2, y2 = xb - dx * (side / 2 + 2) - dy * off, yb - dy * (side / 2 + 2) + dx * off
        heat = share / most
        shade = f"hsl({220 - 220 * heat:.0f} 70% {86 - 36 * heat:.0f}%)"
        rows.append(
            el(
                "path",
                el("title", f"tile {a} to {b}: {share:.1%} of the link's bandwidth"),
                class_="link",
                d=f"M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}",
                stroke=shade,
                stroke_width=4 + 4 * heat,
            )
        )
    for tile in range(grid[0] * grid[1]):
        x, y = centre(tile)
        rows += [
            el("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, rx=5, class_="tile"),
            text(x, y + 4, tile, "middle"),
        ]
    return svg(width, height, *rows, name="links between tiles")


def layers(
    nodes: Sequence[Node],
    captions: Mapping[int, Sequence[str]],
    groups: Mapping[int, int],
    repeats: Mapping[int, str],
    edges: Iterable[tuple[int, int]],
) -> Markup:
    """Groups in the order of execution. captions: by first index of an item two lines; groups: its number; repeats: by first index of
    the first item of a repeat, its caption; edges: (first index of the writer, of the reader)."""
    items = flat(nodes)
    box, gap, width = 38, 12, 560
    place: dict[int, tuple[float, float]] = {}
    rows: list[object] = []
    frames: list[object] = []
    y = 8.0

    def draw(some: Sequence[Node], depth: int) -> None:
        nonlocal y
        for node in some:
            if len(place) >= MAX_NODES:
                return
            x = 10 + 22 * depth
            if isinstance(node, Repeat):
                first, begin = flat(node.body)[0][0].first, y
                y += 24
                draw(node.body, depth + 1)
                frames.append(
                    el("rect", x=x, y=begin, width=width - 44 * depth, height=y - begin - 4, rx=8, class_="repeat")
                )
                frames.append(text(x + 12, begin + 16, repeats[first], class_="repeated"))
                y += gap - 4
            else:
                place[node.first] = (x, y)
                w = width - 44 * depth
                top, below = captions[node.first]
                tip = el("title", top)
                rows.append(
                    el(
                        "g",
                        tip,
                        el(
                            "rect",
                            x=x,
                            y=y,
                            width=w,
                            height=box,
                            rx=5,
                            class_="node",
                            stroke=colour(groups[node.first]),
                        ),
                        text(x + 10, y + 16, _fit(top, w / 6.6)),
                        text(x + 10, y + 31, _fit(below, w / 6.2), class_="small"),
                        data_group=groups[node.first],
                    )
                )
                y += box + gap

    draw(nodes, 0)
    order = {item.first: i for i, (item, _) in enumerate(items)}
    arcs: list[object] = []
    lanes: list[int] = []  # where the last arc of a lane ends
    for a, b in sorted(edges, key=lambda e: (order[e[0]], order[e[1]])):
        if a not in place or b not in place or order[b] <= order[a]:
            continue
        (xa, ya), (xb, yb) = place[a], place[b]
        if order[b] == order[a] + 1:
            arcs.append(el("path", d=f"M{max(xa, xb) + 24:g},{ya + box:g}V{yb:g}", class_="edge"))
            continue
        lane = next((k for k, end in enumerate(lanes) if end <= order[a]), len(lanes))
        lanes[lane : lane + 1] = [order[b]]
        out = 10 + width + 12 + 9 * lane
        xs, xt = xa + width - 2 * (xa - 10), xb + width - 2 * (xb - 10)
        arcs.append(el("path", d=f"M{xs:g},{ya + box - 10:g}H{out:g}V{yb + 10:g}H{xt:g}", class_="edge arc"))
    more = len(items) - len(place)
    note = [text(10, y + 10, f"... and {more} more")] if more > 0 else []
    arrow = el(
        "defs",
        el(
            "marker",
            el("path", d="M0,0L6,3L0,6z", class_="head"),
            id="arrow",
            markerWidth=6,
            markerHeight=6,
            refX=5,
            refY=3,
            orient="auto",
        ),
    )
    return svg(
        10 + width + 24 + 9 * len(lanes),
        y + 16,
        arrow,
        *frames,
        *arcs,
        *rows,
        *note,
        name="groups in the order of execution",
    )


def _fit(what: str, most: float) -> str:
    return what if len(what) <= most else what[: int(most) - 3] + "..."
