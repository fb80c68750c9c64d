"""Tables of programs and simulations.

May import: report.grid, report.units. Must not: compute figures or know classes of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, Pairs, number
from tx8fast.report.units import count_text, cut_text, size_text, tensor_text, time_text

Facts = Mapping[str, Any]
#: rows of a long list unless all are asked for
SHOWN = 24
ALL = 1 << 60
UNITS = ("ne", "ct", "tdma", "rdma", "wdma", "kcore", "issue", "dte", "noc", "ddr")

GROUPS = (
    Column("label", "group", stretch=True),
    number("cycles", "cycles", 4),
    number("count", "times", 3),
    number("total_cycles", "all cycles", 1),
    number("share", "share", 0, "{:.1%}".format),
    Column("bound", "bound", rank=2),
    number("roofline_ratio", "ratio", 2, "{:.2f}".format),
    Column("mostly", "largest losses", rank=5, stretch=True),
    number("ddr_bytes", "DDR", 6, size_text),
    Column("name", "first launch", hidden=True),
    Column("layers", "layers", hidden=True),
    Column("segments", "segments", cut_text, hidden=True),
    number("instructions", "instructions", hidden=True),
    number("noc_bytes", "links", show=size_text, hidden=True),
    number("bound_cycles", "bound cycles", show="{:,.0f}".format, hidden=True),
    number("useful_macs", "MACs", show=count_text, hidden=True),
    number("lost_cycles", "lost cycles", show="{:,.0f}".format, hidden=True),
)
SEGMENTS = (
    number("index", "#", 0, str),
    Column("label", "group", stretch=True),
    Column("op", "op", rank=7, stretch=True),
    Column("engine", "engine", rank=2),
    Column("parts", "parts", cut_text, rank=4),
    Column("slices", "slices", cut_text, rank=5),
    Column("bound", "bound", rank=6),
    number("launches", "times", 3),
    number("spm_peak_bytes", "SPM", 1, size_text),
    number("estimate_cycles", "estimate", 0),
    Column("name", "name", hidden=True),
    Column("order", "order", cut_text, hidden=True),
    Column("bound_by", "bound by", hidden=True),
    number("steps", "steps", hidden=True),
    number("candidates", "candidates", hidden=True),
    number("tiles", "tiles", hidden=True),
    number("useful_macs", "MACs", show=count_text, hidden=True),
    number("operand_bytes", "operands", show=size_text, hidden=True),
)
SEARCH = (
    Column("name", "function", stretch=True),
    number("steps", "steps", 3),
    number("columns", "candidates", 2),
    number("opt2_cycles", "opt 2", 1),
    number("cycles", "opt 3"),
    number("gap", "gap", 0, "{:.2%}".format),
    Column("status", "ended", rank=1),
)
LENGTHS = (
    number("length", "length"),
    number("segments", "segments", 4),
    number("launches", "launches", 5),
    number("spm_peak_bytes", "scratchpad peak", 3, size_text),
    number("ddr_footprint_bytes", "DDR", 1, size_text),
    number("useful_macs", "useful MACs", 2, count_text),
    number("bound_cycles", "bound, cycles", 0, "{:,.0f}".format),
)
OUTPUTS = (
    Column("name", "output", stretch=True),
    Column("type", "type", rank=1),
    number("min", "min", 0, "{:.6g}".format),
    number("max", "max", 0, "{:.6g}".format),
    number("not_finite", "not finite"),
)
TENSORS = (
    Column("name", "name", stretch=True),
    Column("type", "type", rank=1),
    Column("ddr_dtype", "in DDR", rank=5),
    Column("layout", "layout", rank=4),
    number("address", "address", 2, hex),
    number("size_bytes", "size", 0, size_text),
    Column("source", "bytes from", rank=3, stretch=True),
)
STREAMS = (
    number("source", "from", 0, str),
    Column("targets", "to", lambda v: " ".join(map(str, v)), stretch=True),
    Column("mode", "mode"),
    number("monitor", "monitor", 3, str),
    number("packets", "packets", 1),
    number("packet_bytes", "largest", 2, size_text),
    number("total_bytes", "bytes each", 1, size_text),
    Column("launches", "launches", rank=2),
)
KINDS = (
    Column("op", "op"),
    Column("operands", "operands", rank=1, stretch=True),
    Column("results", "results", rank=2),
    Column("attributes", "attributes", rank=1, stretch=True),
    Column("traits", "traits", hidden=True),
    Column("since", "since", hidden=True),
)


def kernel_core(reasons: Facts) -> list[Any]:
    """Return why ops fell to the kernel core; nothing if none did."""
    rows = [(op, str(reason)) for op, reason in reasons.items()]
    return ["", Listing("on the kernel core (slow):", rows)] if rows else []


def program_tables(f: Facts) -> list[Any]:
    """Return the summary after a compile."""
    rows = [
        ("program", f"{f['program']} ({size_text(f['file_bytes'])})" if f["program"] else ""),
        *_head(f),
        ("roofline bound", f"{f['bound_cycles']:,.0f} cycles ({f['bound']})"),
        ("compiled in", time_text(f["compile_seconds"])),
    ]
    return [Pairs(rows), *search_tables(f["search"]), *kernel_core(f["kernel_core"])]


def search_tables(f: Facts) -> list[Any]:
    """Return what the exact search did; nothing if it did not run."""
    return ["", Grid(SEARCH, f["functions"], "exact search"), ""] if f else []


def length_tables(
    path: str, file_bytes: int, name: str, rows: Sequence[Facts], seconds: float
) -> tuple[list[Any], Grid, list[Any]]:
    """Return the summary after a compile for several lengths: the file, a row per program, and what is on the kernel core."""
    head = Pairs([("programs", f"{path} ({size_text(file_bytes)})"), ("compiled in", time_text(seconds))])
    columns = (number("length", name), *LENGTHS[1:])
    return [head, ""], Grid(columns, rows), kernel_core({op: why for f in rows for op, why in f["kernel_core"].items()})


def _head(f: Facts) -> list[tuple[str, str]]:
    return [
        ("model", " ".join(filter(None, (f["model"], f["phase"], f["compute_dtype"])))),
        *([("chips", " x ".join(map(str, f["chips"])))] if "chips" in f else []),
        ("segments", f"{f['segments']:,}, launched {f['launches']:,} times"),
        ("scratchpad peak", f"{size_text(f['spm_peak_bytes'])} per tile"),
        ("DDR", f"{size_text(f['ddr_footprint_bytes'])}, of it weights {size_text(f['weight_bytes'])}"),
        ("useful MACs", count_text(f["useful_macs"])),
    ]


def cycle_head(f: Facts) -> list[Any]:
    """Return the totals of a cycle simulation and its utilisation."""
    used = f["utilisation"]
    per_second, first = f["tokens_per_second"], f["time_to_first_token_ms"]
    return [
        Pairs(
            [
                ("program", f["program"]),
                ("model", " ".join(filter(None, (f["model"], f["phase"], f["compute_dtype"])))),
                ("cycles", f"{f['cycles']:,} ({time_text(f['seconds'])})"),
                ("tokens/s", f"{per_second:,.1f}" if per_second else ""),
                ("first token", f"after {time_text(first / 1e3)}" if first else ""),
                ("roofline bound", f"{f['bound_cycles']:,.0f} cycles, {f['bound']}"),
                ("roofline ratio", f"{f['roofline_ratio']:.3f} (1 is the limit){_interval_text(f)}"),
                ("lost to", losses_text(f["losses"], f["cycles"], 6)),
                ("busy", ", ".join(f"{u} {used[u]:.1%}" for u in UNITS if u in used)),
                ("DDR traffic", f"{size_text(f['ddr_bytes'])}, at least {size_text(f['unique_ddr_bytes'])}"),
                *([("chip links", f"{size_text(f['c2c_bytes'])}, busy {used['c2c']:.1%}")] if "c2c_bytes" in f else []),
                ("scratchpad peak", f"{size_text(f['spm_peak_bytes'])} per tile"),
                ("instructions", f"{f['instructions']:,}"),
            ]
        ),
        "",
    ]


def _interval_text(f: Facts) -> str:
    """Return between what the ratio lies when the machine's assumed figures are half or half as much again."""
    if "interval_roofline_ratio" not in f:
        return ""
    low, high = f["interval_roofline_ratio"]
    return f", {low:.3f} to {high:.3f} with assumed figures at x1.5 to x0.5"


def groups_grid(f: Facts) -> Grid:
    """Return the groups of a simulation, longest first."""
    rows = [
        {
            **g,
            "share": g["total_cycles"] / f["cycles"] if f["cycles"] else 0.0,
            "mostly": losses_text(g["losses"], g["cycles"], 2),
            "lost_cycles": (g["cycles"] - g["bound_cycles"]) * g["count"],
        }
        for g in sorted(f["groups"], key=lambda g: -g["total_cycles"])
    ]
    return Grid(GROUPS, rows, "groups, longest first", SHOWN)


def losses_text(losses: Mapping[str, float], cycles: int, most: int) -> str:
    """Return the largest losses of at least one percent of the cycles."""
    largest = sorted(losses.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name.replace('_', ' ')} {x / cycles:.1%}" for name, x in largest if x >= 0.01 * cycles > 0)


def output_tables(f: Facts) -> tuple[Grid, list[Any]]:
    """Return what a functional run produced, and how."""
    rows = [{**o, "type": tensor_text(o["dtype"], o["shape"])} for o in f["outputs"]]
    facts = [("outputs", f["outputs_file"]), ("executed in", time_text(f["run_seconds"]))]
    if "status" in f:
        facts.append(("status bits", ", ".join(f["status"]) or "none"))
    return Grid(OUTPUTS, rows, most=SHOWN), ["", Pairs(facts)]


def segments_grid(rows: Sequence[Facts], most: int = ALL, hint: str = "--all shows them") -> Grid:
    """Return plans: pieces over tiles (parts) and length per time slice, factor by factor."""
    return Grid(SEGMENTS, [{"label": r["name"], **r} for r in rows], "segments", most, hint)


def stream_grid(rows: Sequence[Facts], show_all: bool) -> Grid:
    """Return the channels between tiles."""
    return Grid(
        STREAMS,
        [{**s, "launches": f"{s['first']} to {s['last']}"} for s in rows],
        "streams",
        ALL if show_all else SHOWN,
    )


def kinds_grid(rows: Sequence[Facts]) -> Grid:
    """Return the kinds of ops."""
    return Grid(KINDS, rows)


def segments_text(rows: Sequence[Facts]) -> str:
    """Return the segments as plain text for a file."""
    return "\n".join(segments_grid(rows).lines()) + "\n"


def inspect_head(f: Facts, show_all: bool = False) -> list[Any]:
    """Return everything about a program except its segments and code."""
    version = ".".join(map(str, f["format_version"]))
    options = ", ".join(f"{k} {v}" for k, v in f["options"].items() if v not in ("", None, {}))
    parts: list[Any] = [
        Pairs(
            [
                ("program", f"{f['program']}, format {version}"),
                *_head(f),
                ("embedded weights", size_text(f["embedded_bytes"])),
                ("roofline bound", f"{f['bound_cycles']:,.0f} cycles ({f['bound']})"),
                ("options", options),
                ("machine", f["machine_digest"][:16]),
            ]
        ),
        "",
    ]
    for title, key in (("inputs", "inputs"), ("outputs", "outputs"), ("parameters", "params")):
        rows = [{**x, "type": tensor_text(x["dtype"], x["shape"])} for x in f[key]]
        columns = TENSORS if key == "params" else TENSORS[:-1]
        parts += [Grid(columns, rows, title, ALL if show_all else SHOWN, "--all shows them"), ""]
    return parts
