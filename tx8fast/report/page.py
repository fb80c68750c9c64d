"""The report of a program as one HTML file that needs no network.

May import: report.*. Must not: compute a figure or open files but its own style and script.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from tx8fast.report import figures, page_groups
from tx8fast.report.markup import Markup, data, el, join
from tx8fast.report.page_groups import Facts, share, words
from tx8fast.report.units import count_text, size_text, time_text

#: nothing may be loaded from anywhere, whatever a name holds
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
LARGEST_TENSORS = 12
#: of the DDR map; the last one is what no tensor names
KINDS = ("inputs", "weights", "outputs", "intermediates")
ENGINES = {
    "ne": "matrix engine",
    "ct": "vector engine",
    "tdma": "data movement",
    "rdma": "loads",
    "wdma": "stores",
    "dte": "messages",
    "kcore": "kernel core",
    "noc": "links between tiles",
    "ddr": "DDR",
    "c2c": "links between chips",
}


def page(f: Facts) -> str:
    """Return the report. f: `sim` (what `sim --json` prints), `program`, `segments`, `tensors`, `stretches`, `chain`, `profile`, `machine`, `meanings`
    and `roof`, as `cli.report_facts` makes them."""
    sim, here = f["sim"], files("tx8fast.report")
    title = " ".join(filter(None, (sim["model"], sim["phase"], sim["compute_dtype"]))) or "program"
    style, script = (Markup(here.joinpath(name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title}: tx8fast report"),
        el("style", style),
    )
    body = el(
        "body",
        el("header", el("h1", title), el("p", _line(f), class_="sub")),
        _answers(f),
        _summary(f),
        _time(f),
        page_groups.groups(f),
        page_groups.timeline(),
        page_groups.losses(f),
        page_groups.layers(f),
        _memory(f),
        _links(f),
        _made(f),
        data("tx8fast-sim", sim),
        data(
            "tx8fast-detail",
            {
                **f["profile"],
                "names": [g["label"] for g in sim["groups"]],
                "spm_bytes": f["roof"]["spm_bytes"],
                "clock_hz": f["roof"]["clock_hz"],
            },
        ),
        el("script", script),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _line(f: Facts) -> str:
    sim, made = f["sim"], f["program"]
    chips = f", {made['chips'][0]} x {made['chips'][1]} chips" if "chips" in made else ""
    return f"{sim['program']}, machine {made['machine_digest'][:12]}{chips}"


def _answers(f: Facts) -> Markup:
    sim = f["sim"]
    answers, total = sim["answers"], sim["cycles"]
    bound, peak, loss = answers["bound_by"], answers["spm_peak"], answers["largest_loss"]
    cards = [
        (
            "What bounds it",
            bound["bound"],
            f"{ENGINES.get(bound['busiest'], bound['busiest'])} busy {bound['utilisation']:.1%}; "
            f"roofline ratio {sim['roofline_ratio']:.3f} (1 is the limit)",
            "bound",
        ),
        (
            "Where the scratchpad is fullest",
            f"{size_text(peak['bytes'])} of {size_text(peak['capacity_bytes'])}" if peak else "-",
            peak["label"] if peak else "the program is empty",
            "spm",
        ),
        (
            "What loses most",
            f"{loss['share']:.1%} of the time" if loss else "-",
            f"{loss['label']}: {loss['cycles']:,.0f} cycles above its bound, mostly {words(loss['mostly'])}"
            if loss and total
            else "nothing",
            "loss",
        ),
    ]
    return el(
        "section",
        *(
            el(
                "div",
                el("h2", title),
                el("p", large, class_="large"),
                el("p", small),
                class_="card",
                id=f"answer-{key}",
            )
            for title, large, small, key in cards
        ),
        class_="cards",
    )


def pairs(rows: Sequence[tuple[str, object]]) -> Markup:
    """Return a two-column table of names and values; empty values are left out."""
    shown = (el("tr", el("th", k, scope="row"), el("td", v)) for k, v in rows if v not in ("", None))
    return el("table", join(shown), class_="pairs")


def _summary(f: Facts) -> Markup:
    s, made = f["sim"], f["program"]
    used = "  ".join(f"{u} {s['utilisation'][u]:.1%}" for u in (*ENGINES, "issue") if u in s["utilisation"])
    rate = f"{s['tokens_per_second']:,.1f} tokens/s" if s["tokens_per_second"] else ""
    first = f"{s['time_to_first_token_ms']:,.2f} ms" if s["time_to_first_token_ms"] else ""
    rows = [
        ("time", f"{time_text(s['seconds'])} ({s['cycles']:,} cycles)"),
        ("rate", rate),
        ("time to first token", first),
        ("roofline bound", f"{s['bound_cycles']:,.0f} cycles ({s['bound']})"),
        ("useful MACs", count_text(s["useful_macs"])),
        ("DDR traffic", f"{size_text(s['ddr_bytes'])}, at least {size_text(s['unique_ddr_bytes'])}"),
        (
            "DDR used",
            f"{size_text(s['ddr_footprint_bytes'])} of {size_text(f['roof']['ddr_bytes'])}, of it weights {size_text(made['weight_bytes'])}",
        ),
        ("busy", used),
        ("instructions", f"{s['instructions']:,}"),
        ("code", f"{made['segments']:,} groups compiled, launched {made['launches']:,} times"),
    ]
    points = [
        {
            "label": g["label"],
            "macs": g["useful_macs"],
            "ddr_bytes": g["ddr_bytes"],
            "cycles": g["cycles"],
            "group": i,
            "share": share(g, s),
        }
        for i, g in enumerate(s["groups"])
    ]
    points.append(
        {
            "label": "the whole program",
            "macs": s["useful_macs"],
            "ddr_bytes": s["ddr_bytes"],
            "cycles": s["cycles"],
            "group": -1,
            "share": 1.0,
        }
    )
    note = "A circle is a group, its area its share of the time; the cross is the program. Groups without products are left out."
    plot = figures.roofline(f["roof"]["peak_macs_per_cycle"], f["roof"]["ddr_bytes_per_cycle"], points)
    return el(
        "section",
        el("div", el("h2", "Summary"), pairs(rows)),
        el("div", el("h2", "Roofline"), plot, el("p", note, class_="note")),
        class_="halves",
    )


def _time(f: Facts) -> Markup:
    s, cycles = f["sim"], [g["cycles"] for g in f["sim"]["groups"]]
    stretches = [(group, at, cycles[group]) for group, at in f["stretches"]]
    usable = f["roof"]["ddr_bytes_per_cycle"]
    rates = [g["ddr_bytes"] / (g["cycles"] * usable) if g["cycles"] else 0.0 for g in s["groups"]]
    names = [g["label"] for g in s["groups"]]
    plot = figures.over_time(stretches, names, f["spm"], f["roof"]["spm_bytes"], rates, f["roof"]["clock_hz"])
    note = "Every group as it runs, the scratchpad of its fullest tile, and the share of the DDR's usable bandwidth that it takes."
    return el("section", el("h2", "Over time"), plot, el("p", note, class_="note"))


def _memory(f: Facts) -> Markup:
    tensors = f["tensors"]
    pieces = [(t["offset"], t["size_bytes"], t["kind"]) for t in tensors]
    plot = figures.ddr_map(f["sim"]["ddr_footprint_bytes"], f["roof"]["ddr_bytes"], pieces, KINDS)
    largest = sorted(tensors, key=lambda t: (-t["size_bytes"], t["offset"]))[:LARGEST_TENSORS]
    rows = (
        el(
            "tr",
            el("th", t["name"], scope="row"),
            el("td", t["kind"]),
            el("td", t["type"]),
            el("td", hex(t["offset"]), class_="number"),
            el("td", size_text(t["size_bytes"]), class_="number"),
        )
        for t in largest
    )
    head = el("tr", join(el("th", h, scope="col") for h in ("largest tensors", "kind", "type", "offset", "size")))
    return el(
        "section",
        el("h2", "DDR"),
        plot,
        el("div", el("table", el("thead", head), el("tbody", join(rows)), class_="plain"), class_="wide"),
    )


def _links(f: Facts) -> Markup:
    p, s = f["profile"], f["sim"]
    total = [0] * len(p["links"])
    for g, row in zip(p["groups"], s["groups"], strict=True):
        for i, n in enumerate(g["link_bytes"]):
            total[i] += n * row["count"]
    whole = max(1, s["cycles"]) * f["roof"]["link_bytes_per_cycle"]
    carried = [n / whole for n in total]
    busiest = max(range(len(total)), key=lambda i: (total[i], -i), default=None)
    note = (
        "No messages between tiles."
        if busiest is None or not total[busiest]
        else (
            f"Busiest: tile {p['links'][busiest][0]} to {p['links'][busiest][1]}, {carried[busiest]:.1%} of the link's bandwidth, "
            f"{size_text(total[busiest])}. Darker and redder: more of it."
        )
    )
    figure = figures.links(tuple(p["tiles"]), p["links"], carried)
    return el("section", el("h2", "Links between tiles"), figure, el("p", note, class_="note"))


def _made(f: Facts) -> Markup:
    options = [
        (k, v if isinstance(v, str) else repr(v)) for k, v in f["program"]["options"].items() if v not in ("", None, {})
    ]
    machine = [(f"{section}.{k}" if section else k, str(v)) for section, k, v in f["machine"]]
    return el(
        "section",
        el("div", el("h2", "Options"), pairs(options)),
        el("div", el("h2", "Machine"), el("details", el("summary", f"{len(machine)} figures"), pairs(machine))),
        class_="halves",
    )
