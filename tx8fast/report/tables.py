"""Tables of programs and simulations.

May import: rich, report.units. Must not: compute figures or know classes of the compiler.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tx8fast.report.units import count_text, cut_text, size_text, tensor_text, time_text

Facts = Mapping[str, Any]
#: rows of a long list unless all are asked for
SHOWN = 24
UNITS = ("ne", "ct", "tdma", "rdma", "wdma", "kcore", "issue", "dte", "noc", "ddr")


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; columns whose name begins with ">" are right-aligned."""
    t = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        t.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    return t


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a two-column list of names and values; empty values are left out."""
    t = Table(box=None, show_header=False, pad_edge=False)
    t.add_column(no_wrap=True)
    t.add_column(overflow="fold")
    for name, value in rows:
        if value:
            t.add_row(name, value)
    return t


def kernel_core_table(reasons: Facts) -> list[Table]:
    """Return why ops fell to the kernel core; no table if none did."""
    if not reasons:
        return []
    t = table("op", "why no engine performs it", title="on the kernel core (slow)")
    for op, reason in reasons.items():
        t.add_row(op, str(reason))
    return [t]


def program_tables(f: Facts) -> list[Table]:
    """Return the summary after a compile."""
    bound = f"{f['bound_cycles']:,.0f} cycles ({f['bound']})"
    rows = [
        ("program", f"{f['program']} ({size_text(f['file_bytes'])})" if f["program"] else ""),
        *_head(f),
        ("roofline bound", bound),
        ("compiled in", time_text(f["compile_seconds"])),
    ]
    return [pairs(rows), *search_tables(f["search"]), *kernel_core_table(f["kernel_core"])]


def search_tables(f: Facts) -> list[Table]:
    """Return what the exact search did; no table if it did not run."""
    if not f:
        return []
    t = table("function", ">steps", ">candidates", ">opt 2", ">opt 3", ">gap", "ended", title="exact search")
    for row in f["functions"]:
        t.add_row(row["name"], f"{row['steps']:,}", f"{row['columns']:,}", f"{row['opt2_cycles']:,}", f"{row['cycles']:,}",
                  f"{row['gap']:.2%}", row["status"])  # fmt: skip
    return [t]


def length_tables(path: str, file_bytes: int, name: str, rows: Sequence[Facts], seconds: float) -> list[Table]:
    """Return the summary after a compile for several lengths: a row per program."""
    head = pairs([("programs", f"{path} ({size_text(file_bytes)})"), ("compiled in", time_text(seconds))])
    t = table(
        f">{name}", ">segments", ">launches", ">scratchpad peak", ">DDR", ">useful MACs", ">roofline bound, cycles"
    )
    for f in rows:
        t.add_row(f"{f['length']:,}", f"{f['segments']:,}", f"{f['launches']:,}", size_text(f["spm_peak_bytes"]),
                  size_text(f["ddr_footprint_bytes"]), count_text(f["useful_macs"]), f"{f['bound_cycles']:,.0f}")  # fmt: skip
    return [head, t, *kernel_core_table({op: why for f in rows for op, why in f["kernel_core"].items()})]


def _head(f: Facts) -> list[tuple[str, str]]:
    return [
        ("model", " ".join(filter(None, (f["model"], f["phase"], f["compute_dtype"])))),
        *([("chips", " x ".join(map(str, f["chips"])))] if "chips" in f else []),
        ("segments", f"{f['segments']:,}, launched {f['launches']:,} times"),
        ("scratchpad peak", f"{size_text(f['spm_peak_bytes'])} per tile"),
        ("DDR", f"{size_text(f['ddr_footprint_bytes'])}, of it weights {size_text(f['weight_bytes'])}"),
        ("useful MACs", count_text(f["useful_macs"])),
    ]


def cycle_tables(f: Facts) -> list[Table]:
    """Return the figures of a cycle simulation: totals, utilisation, groups by their share of the time."""
    used = f["utilisation"]
    head = pairs([
        ("program", f"{f['program']}  {f['model']} {f['phase']} {f['compute_dtype']}"),
        ("cycles", f"{f['cycles']:,}  ({time_text(f['seconds'])})"),
        ("roofline bound", f"{f['bound_cycles']:,.0f} cycles, {f['bound']}"),
        ("roofline ratio", f"{f['roofline_ratio']:.3f}  (1 is the limit)"),
        ("lost to", losses_text(f["losses"], f["cycles"], 6)),
        ("busy", "  ".join(f"{u} {used[u]:.1%}" for u in UNITS if u in used)),
        ("DDR traffic", f"{size_text(f['ddr_bytes'])}, at least {size_text(f['unique_ddr_bytes'])}"),
        *([("chip links", f"{size_text(f['c2c_bytes'])}, busy {used['c2c']:.1%}")] if "c2c_bytes" in f else []),
        ("scratchpad peak", f"{size_text(f['spm_peak_bytes'])} per tile"),
        ("instructions", f"{f['instructions']:,}"),
    ])  # fmt: skip
    groups = sorted(f["groups"], key=lambda g: -g["total_cycles"])
    columns = (">cycles", ">times", ">total cycles", ">share", "bound", ">ratio", "largest losses", ">DDR")
    t = table("group", *columns, title="groups, longest first")
    for g in groups[:SHOWN]:
        share = g["total_cycles"] / f["cycles"] if f["cycles"] else 0.0
        t.add_row(g["name"], f"{g['cycles']:,}", f"{g['count']:,}", f"{g['total_cycles']:,}", f"{share:.1%}", g["bound"],
                  f"{g['roofline_ratio']:.2f}", losses_text(g["losses"], g["cycles"], 2), size_text(g["ddr_bytes"]))  # fmt: skip
    return [head, t, *_more(len(groups))]


def losses_text(losses: Mapping[str, float], cycles: int, most: int) -> str:
    """Return the largest losses of at least one percent of the cycles."""
    largest = sorted(losses.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name.replace('_', ' ')} {x / cycles:.1%}" for name, x in largest if x >= 0.01 * cycles > 0)


def _more(total: int, shown: int = SHOWN, hint: str = "--json has all") -> list[Any]:
    return [f"... and {total - shown} more ({hint})"] if total > shown else []


def output_tables(f: Facts) -> list[Any]:
    """Return what a functional run produced."""
    t = table("output", "type", ">min", ">max", ">not finite")
    for o in f["outputs"][:SHOWN]:
        low, high = ("-" if o[k] is None else f"{o[k]:.6g}" for k in ("min", "max"))
        t.add_row(o["name"], tensor_text(o["dtype"], o["shape"]), low, high, f"{o['not_finite']:,}")
    facts = [("outputs", f["outputs_file"]), ("executed in", time_text(f["run_seconds"]))]
    if "status" in f:
        facts.append(("status bits", ", ".join(f["status"]) or "none"))
    return [t, *_more(len(f["outputs"])), pairs(facts)]


def segments_table(rows: Sequence[Facts], title: str = "segments") -> Table:
    """Return plans: pieces over tiles (parts) and length per time slice, factor by factor."""
    t = table(">#", "name", "op", "engine", "parts", "slices", "bound", ">launches", ">SPM", ">estimate", title=title)
    for s in rows:
        t.add_row(str(s["index"]), s["name"], s["op"], s["engine"], cut_text(s["parts"]), cut_text(s["slices"]),
                  s["bound"], f"{s['launches']:,}" if "launches" in s else "", size_text(s["spm_peak_bytes"]),
                  f"{s['estimate_cycles']:,}")  # fmt: skip
    return t


def stream_tables(rows: Sequence[Facts], show_all: bool) -> list[Any]:
    """Return the channels between tiles."""
    t = table(">from", "to", "mode", ">monitor", ">packets", ">largest", ">bytes each", ">launches")
    for s in rows if show_all else rows[:SHOWN]:
        t.add_row(str(s["source"]), " ".join(map(str, s["targets"])), s["mode"], str(s["monitor"]), f"{s['packets']:,}",
                  size_text(s["packet_bytes"]), size_text(s["total_bytes"]), f"{s['first']} to {s['last']}")  # fmt: skip
    return [t, *([] if show_all else _more(len(rows)))]


def segments_text(rows: Sequence[Facts]) -> str:
    """Return `segments_table` as plain text for a file."""
    out = io.StringIO()
    Console(file=out, width=200, markup=False, emoji=False, highlight=False).print(segments_table(rows))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def inspect_tables(f: Facts, show_all: bool = False) -> list[Any]:
    """Return everything about a program except its code."""
    shown = 1 << 60 if show_all else SHOWN
    version = ".".join(map(str, f["format_version"]))
    options = ", ".join(f"{k} {v}" for k, v in f["options"].items() if v not in ("", None, {}))
    head = pairs([
        ("program", f"{f['program']}, format {version}"),
        *_head(f),
        ("embedded weights", size_text(f["embedded_bytes"])),
        ("roofline bound", f"{f['bound_cycles']:,.0f} cycles ({f['bound']})"),
        ("options", options),
        ("machine", f["machine_digest"][:16]),
    ])  # fmt: skip
    parts: list[Any] = [head]
    for title, key in (("inputs", "inputs"), ("outputs", "outputs"), ("parameters", "params")):
        columns = ["name", "type", "in DDR", "layout", ">address", ">size"]
        t = table(*columns, *(["bytes from"] if key == "params" else []), title=title)
        for x in f[key][:shown]:
            t.add_row(x["name"], tensor_text(x["dtype"], x["shape"]), x["ddr_dtype"], x["layout"], f"{x['address']:#x}",
                      size_text(x["size_bytes"]), *([x["source"]] if key == "params" else []))  # fmt: skip
        parts += [t, *_more(len(f[key]), shown, "--all shows them")]
    parts += [segments_table(f["segment_rows"][:shown]), *_more(len(f["segment_rows"]), shown, "--all shows them")]
    return [*parts, *kernel_core_table(f["kernel_core"])]
