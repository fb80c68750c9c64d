"""Options of `tx8fast compile` that steer, keep and show the search, and what they print.

May import: click, cli.output, cli.unused, errors, files, and late: api, report, search. Must not: search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.output import PATH, replacing, warn_unused
from tx8fast.cli.unused import STAGES, given
from tx8fast.options import ORDERS
from tx8fast.records import dataclass

#: kinds of records that `search.records` makes, and the one of finished programs
SEARCHED = ("groups", "cuts", "candidates", "buffers")
RECORDS = (*SEARCHED, "order")


def _kinds(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Turn KIND or KIND:PATTERN texts into pairs."""
    pairs = [(kind, pattern) for kind, _, pattern in (text.partition(":") for text in values)]
    for text, (kind, pattern) in zip(values, pairs, strict=True):
        if kind not in RECORDS or ":" in text and not pattern:
            raise click.BadParameter(f"'{text}' is none of {', '.join(RECORDS)}, nor one with ':' and a name behind it")
    return tuple(dict.fromkeys(pairs))


_OPTIONS = (
    click.option(
        "--opt", type=click.Choice(["1", "2", "3"]), default="2", show_default=True, help="Effort of the search."
    ),
    click.option(
        "--search-seconds",
        type=float,
        default=5.0,
        show_default=True,
        metavar="S",
        help="How long --opt 3 may search: an amount of work for chains, a time limit for the integer program.",
    ),
    click.option(
        "--sharing/--no-sharing",
        default=True,
        show_default=True,
        help="Tiles load common operands together and pass them on.",
    ),
    click.option(
        "--order",
        type=click.Choice(ORDERS),
        default="best",
        show_default=True,
        help="How tiles order their instructions: as the loop nest, so that engines wait least, the same by time steps, the best of the "
        "last two.",
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="PATTERN",
        help="Group no ops but those whose name matches (*, ?, [..]); with --load-plans search these again. "
        "Repeatable.",
    ),
    click.option(
        "--save-plans",
        type=PATH,
        metavar="FILE.json",
        help="Write the groups, their plans, and why groups end where they do.",
    ),
    click.option(
        "--load-plans",
        type=PATH,
        metavar="FILE.json",
        help="Take groups and plans from a file that --save-plans wrote, and do not search.",
    ),
    click.option(
        "--show",
        multiple=True,
        metavar="|".join(RECORDS) + "[:PATTERN]",
        callback=_kinds,
        help="With --stop-after search, but for order: print records of this kind, of groups with an op of this name, "
        "one per line. Repeatable.",
    ),
    click.option(
        "--dot", type=PATH, metavar="FILE.dot", help="Write a drawing of the graph with its groups, for graphviz."
    ),
)


def search_options(command: Callable) -> Callable:
    """Add the options to a command; they arrive as those of `SearchArguments` and `search_fields`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class SearchArguments:
    """What is to become of a search's results."""

    save_plans: Path | None
    show: tuple[tuple[str, str], ...]  # (kind, pattern or "")
    dot: Path | None

    @property
    def files(self) -> dict[str, Path]:
        """The files to write, by the option that asks for them."""
        named = {"--save-plans": self.save_plans, "--dot": self.dot}
        return {option: path for option, path in named.items() if path is not None}

    def check_stage(self, stage: str | None) -> None:
        """Raise UsageError if a kind of records does not exist after `stage`, the last one (None: the program)."""
        kinds = {kind for kind, _ in self.show}
        if stage != "search" and kinds & set(SEARCHED):
            raise click.UsageError("--show prints what the search knows; add --stop-after search")
        if stage not in (None, STAGES[-1]) and "order" in kinds:
            raise click.UsageError(f"--show order prints orders of instructions, and --stop-after {stage} makes none")

    def check_files(self, output: Path | None) -> None:
        """Raise ConfigError if a file cannot be written, UsageError if two are one."""
        given = {**({"-o": output} if output is not None else {}), **self.files}
        for option, path in self.files.items():
            files.claim(path, "plans" if option == "--save-plans" else "drawing")
            same = [other for other, p in given.items() if other != option and files.same_output(p, path)]
            if same:
                raise click.UsageError(f"{option} and {same[0]} name one file: {path}")

    def write(self, searched: Any) -> None:
        """Write the files that are asked for."""
        if self.save_plans is not None:
            with replacing(self.save_plans, "plans") as f:
                f.write(searched.text().encode("utf-8"))
        if self.dot is not None:
            with replacing(self.dot, "drawing") as f:
                f.write(_drawing(searched).encode("utf-8", "replace"))

    def records(self, searched: Any) -> list[dict[str, Any]]:
        """Return the records of every kind that is asked for."""
        from tx8fast.search.records import Records

        s = searched
        return [
            row
            for kind, pattern in self.show
            for row in Records(s.table, s.plans, s.machine, s.sharing, [pattern] if pattern else []).of(kind)
        ]


def search_fields(
    opt: str,
    search_seconds: float,
    sharing: bool,
    order: str,
    only: tuple[str, ...],
    load_plans: Path | None,
    stage: str | None,
) -> dict[str, Any]:
    """Return fields of `CompileOptions`. Refuses options that contradict --load-plans, warns of those without effect."""
    searches = stage not in ("import", "passes")
    if load_plans is not None and searches:
        brought = sorted(given(("opt", "sharing", "search_seconds")))
        if brought and not (only and brought == ["--search-seconds"]):
            raise click.UsageError(f"--load-plans brings its own {brought[0]} with it; drop one of the two")
    elif opt != "3" and searches:
        warn_unused(given(["search_seconds"]), f"it limits the integer program of --opt 3, and this is --opt {opt}")
    if opt == "1" and load_plans is None and searches:
        warn_unused(given(["only"]), "--opt 1 groups no ops")
    return {
        "opt": int(opt),
        "search_seconds": search_seconds,
        "sharing": sharing,
        "order": order,
        "only": tuple(only),
        "load_plans": "" if load_plans is None else str(load_plans),
    }


def record_line(row: dict[str, Any]) -> str:
    """Return a record as `kind key=value ...`: lists with commas, what is not plain in quotes."""
    kind, *rest = row.items()
    return " ".join([str(kind[1]), *(f"{key}={_plain(value)}" for key, value in rest)])


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value)) or "none"
    if value is None:
        return "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    simple = text and text.isprintable() and not set(text) & set(" =,\"'\\") and text != "none"
    return text if simple else json.dumps(text)


def _drawing(searched: Any) -> str:
    """Return the graph: a frame per function, in it a frame per group, and per nest of a chain."""
    from tx8fast.report.drawing import Box, Node, drawing

    boxes: list[Box] = []
    edges: list[tuple[str, str, str]] = []
    for fn in searched.table.functions.values():
        maker = {v: name for name, s in fn.base.items() for v in s.outputs}

        def node(name: str, fn: Any = fn) -> Node:
            step = fn.base[name]
            kind = (
                step.record.kind if step.record is not None else f"call of {step.callee}" if step.callee else "reshape"
            )
            return Node(
                f"{fn.name}/{name}", kind, "box" if step.record is not None else "box3d" if step.callee else "oval"
            )

        frames: list[Box] = []
        for i, step in enumerate(fn.steps):
            nests = [Box("", [node(m) for m in nest]) for nest in step.nests]
            frames.append(
                Box(_caption(i, step, searched.plans), *(((), nests) if len(nests) > 1 else (nests[0].nodes, ())))
            )
        boxes.append(Box(fn.name, (), frames))
        for name, step in fn.base.items():
            for v in dict.fromkeys(step.inputs):
                if v in maker:
                    shape = ",".join(map(str, fn.values[v].shape))
                    edges.append((f"{fn.name}/{maker[v]}", f"{fn.name}/{name}", f"{fn.values[v].dtype}[{shape}]"))
    return drawing(boxes, edges)


def _caption(index: int, step: Any, plans: Any) -> str:
    if step.record not in plans:
        return f"{index}"
    plan = plans[step.record].plan
    return f"{index}: {step.record.kind}, {plan.estimate_cycles:,} cycles, {plan.bound}"
