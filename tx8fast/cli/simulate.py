"""`tx8fast sim` (cycles) and `tx8fast run` (bytes): what a program file does.

May import: click, cli.*, and late: api, program, report. Must not: hold logic of a simulator.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.kernel_core import forbid_option, program_share, state
from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import PATH, json_option, progress, replacing, show_json, tell
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError

_PROGRAM = click.argument("program", type=PATH, metavar="PROGRAM.tx8")

#: those of simulator.trace_view, which is not imported for the help text
DETAILS = ("auto", "instructions", "ops", "launches")


class WindowType(click.ParamType):
    """Reads "1000:5000", "1000:" or ":5000"."""

    name = "window"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if not isinstance(value, str):
            return value
        first, colon, last = value.partition(":")
        try:
            window = int(first or 0), int(last or 1 << 62)
        except ValueError:
            window = (0, 0)
        if not colon or not 0 <= window[0] < window[1]:
            self.fail(f"'{value}' is not a range of cycles such as 1000:5000, 1000: or :5000", param, ctx)
        return window


class LayersType(click.ParamType):
    """Reads "0,3-5"."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        if not isinstance(value, str):
            return value
        found: set[int] = set()
        for part in value.split(","):
            first, dash, last = part.strip().partition("-")
            if (
                not first.isdecimal()
                or dash
                and not last.isdecimal()
                or int(last or first) - int(first) not in range(1 << 16)
            ):
                self.fail(f"'{value}' is not a list of layers such as 0,3-5", param, ctx)
            found.update(range(int(first), int(last or first) + 1))
        return frozenset(found)


def _view(window: tuple[int, int] | None, layers: frozenset[int] | None, detail: str | None) -> Any:
    from tx8fast.simulator.trace_view import END, TraceView

    return TraceView(window or (0, END), layers or frozenset(), detail or "auto")


@click.command()
@_PROGRAM
@click.option(
    "--trace",
    type=PATH,
    metavar="OUT.pftrace|OUT.json",
    help="Also write what every engine does when: for ui.perfetto.dev, or chrome://tracing.",
)
@click.option("--trace-window", type=WindowType(), metavar="FROM:TO", help="Only these cycles of the trace.")
@click.option("--trace-layers", type=LayersType(), metavar="0,3-5", help="Only these layers of the trace.")
@click.option(
    "--trace-detail", type=click.Choice(DETAILS), help="How finely the trace shows work (default: auto, as fits 20 MB)."
)
@length_option
@forbid_option
@json_option
@table_options
def sim(
    program: Path,
    trace: Path | None,
    trace_window: tuple[int, int] | None,
    trace_layers: frozenset[int] | None,
    trace_detail: str | None,
    length: int | None,
    forbid: tuple[str, ...],
    as_json: bool,
    table: TableChoice,
) -> None:
    """Simulate PROGRAM cycle by cycle: time, utilisation, distance from the roofline."""
    from tx8fast.cli.facts import simulation_facts
    from tx8fast.program.verify import verify
    from tx8fast.simulator.sensitivity import interval

    unused = {"--trace-window": trace_window, "--trace-layers": trace_layers, "--trace-detail": trace_detail}
    if trace is None and any(v is not None for v in unused.values()):
        raise click.UsageError(
            f"{', '.join(k for k, v in unused.items() if v is not None)}: there is no --trace to cut"
        )
    if trace is not None:
        from tx8fast.simulator.trace import check_name, write_trace

        check_name(trace)
        files.claim(trace, "trace")
    compiled = open_program(program, length)
    verify(compiled.program)
    with progress("simulating", as_json) as callback:
        result = compiled.simulate(progress=callback)
    share = program_share(compiled.program, result.cycles)
    state(share, forbid, f"simulating {program}")
    if trace is not None:
        with replacing(trace, "trace") as f:
            chosen = write_trace(
                compiled.program, f, trace.suffix, view=_view(trace_window, trace_layers, trace_detail)
            )
        tell(f"trace: {trace.stat().st_size:,} bytes, {chosen.text()}")
    facts = {**simulation_facts(str(program), compiled.program, result), **interval(compiled.program, result)}
    if as_json:
        show_json(facts)
    else:
        from tx8fast.report.tables import cycle_head, groups_grid

        table.show(cycle_head(facts), groups_grid(facts))


@click.command("run")
@_PROGRAM
@click.option(
    "--inputs",
    required=True,
    type=PATH,
    metavar="IN.npz",
    help="One array per input name; bfloat16 as uint16 bit patterns or as any float type.",
)
@click.option(
    "--outputs",
    required=True,
    type=PATH,
    metavar="OUT.npz",
    help="Where the results go; bfloat16 as uint16 bit patterns.",
)
@click.option(
    "--weights",
    type=PATH,
    metavar="DIR|FILE",
    help="Directory of the checkpoint, or a file in it, for weights that are not in the program file.",
)
@click.option(
    "--sanitize",
    is_flag=True,
    help="Report races, uninitialised reads and unfinished messages; nothing is written if there are any.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="The same bytes by an interpreter, element by element, status bits reported; for small programs.",
)
@json_option
@table_options
def run_(
    program: Path,
    inputs: Path,
    outputs: Path,
    weights: Path | None,
    sanitize: bool,
    exact: bool,
    as_json: bool,
    table: TableChoice,
) -> None:
    """Execute PROGRAM bit by bit on arrays."""
    from tx8fast import lengths
    from tx8fast.cli.npz import fit_inputs, read_npz, write_npz
    from tx8fast.program.verify import verify

    if weights is not None and not weights.exists():
        raise ConfigError(f"reading weights: {weights}: no such file or directory")
    files.claim(outputs, "outputs")
    if weights is not None:
        files.refer_folder(weights) if weights.is_dir() else files.refer(weights)
    compiled = lengths.load(program)
    given, length, serves = read_npz(inputs, "inputs"), None, None
    if isinstance(compiled, lengths.LengthPrograms):
        serves = compiled
        compiled, given, length = serves.fit(given)
    if not sanitize:  # it names the same faults, and where they show
        verify(compiled.program)
    given = fit_inputs(given, compiled.inputs, str(inputs), compiled.program.n_chips)
    started = time.perf_counter()
    with progress("executing", as_json) as callback:
        results = compiled.run(given, weights, progress=callback, sanitize=sanitize, exact=exact)
    seconds = time.perf_counter() - started
    if serves is not None and length is not None:
        results = serves.crop(results, length)
    with replacing(outputs, "outputs") as f:
        write_npz(f, results)
    rows = [
        {"name": t.name, "shape": list(results[t.name].shape), "dtype": t.dtype, **_statistics(results[t.name])}
        for t in compiled.outputs
    ]
    facts = {"program": str(program), "outputs_file": str(outputs), "run_seconds": seconds, "outputs": rows}
    if length is not None:
        facts["length"] = length
    if exact:
        facts["status"] = compiled.status
    if as_json:
        show_json(facts)
    else:
        from tx8fast.report.tables import output_tables

        grid, after = output_tables(facts)
        table.show([], grid, () if table.given else after)


def _statistics(array) -> dict[str, float | int | None]:
    """Return the smallest and largest finite value and the number of values that are not finite."""
    import numpy as np

    values = np.asarray(array).astype(np.float64).reshape(-1)
    good = values[np.isfinite(values)]
    low, high = (float(good.min()), float(good.max())) if good.size else (None, None)
    return {"min": low, "max": high, "not_finite": int(values.size - good.size)}
