"""`tx8fast compile`: model in, program file out, with a look at every stage on the way.

May import: click, cli.*, and late: api, report. Must not: hold logic of a stage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.kernel_core import forbid_option, program_share, state
from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import (
    DEFECT,
    DONE,
    PATH,
    json_option,
    progress,
    replacing,
    show_graph,
    show_json,
    tell,
    warn_unused,
)
from tx8fast.cli.output import show as print_parts
from tx8fast.cli.search import SearchArguments, record_line, search_fields, search_options
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.cli.unused import STAGES, warn_unread
from tx8fast.cli.unused import given as given_options
from tx8fast.errors import ConfigError


@click.command("compile")
@model_options
@click.option("-o", "--output", type=PATH, metavar="OUT.tx8", help="Program file to write.")
@search_options
@click.option(
    "--group-table",
    default="",
    metavar="N|FILE",
    help="Make groups of what matches a pattern table; the search only adds to them.",
)
@click.option(
    "--embed-limit-mib",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Store the weights in the program file if they take at most this much.",
)
@click.option(
    "--standalone",
    is_flag=True,
    help="Store all that a host without Python needs: weights of any size, and tables that are computed.",
)
@click.option(
    "--prove",
    is_flag=True,
    help="Prove that the program computes the model before it is written (see `tx8fast verify`).",
)
@click.option(
    "--dump-dir",
    type=PATH,
    metavar="DIR",
    help="Write the graph after the import and after every pass, and the plans, as numbered text files.",
)
@click.option(
    "--stop-after",
    type=click.Choice(STAGES),
    metavar="|".join(STAGES),
    help="Stop early and print what exists then: the graph, the plans, or the program's figures.",
)
@forbid_option
@json_option
@table_options
def compile_(
    model: Path,
    output: Path | None,
    opt: str,
    search_seconds: float,
    sharing: bool,
    order: str,
    only: tuple[str, ...],
    save_plans: Path | None,
    load_plans: Path | None,
    show: tuple[tuple[str, str], ...],
    dot: Path | None,
    group_table: str,
    embed_limit_mib: int,
    standalone: bool,
    prove: bool,
    dump_dir: Path | None,
    stop_after: str | None,
    forbid: tuple[str, ...],
    as_json: bool,
    table: TableChoice,
    **given: Any,
) -> int:
    """Compile MODEL into a program file."""
    wanted = SearchArguments(save_plans, show, dot)
    if stop_after in STAGES[:-1] and output is not None:
        raise click.UsageError(f"--stop-after {stop_after} makes no program; drop -o, the text goes to stdout")
    if stop_after in STAGES[:2] and wanted.files:
        raise click.UsageError(f"--stop-after {stop_after} makes no plans; drop {' and '.join(wanted.files)}")
    if stop_after in STAGES[:2] and table.given:
        raise click.UsageError(f"--stop-after {stop_after} prints no table; drop --columns, --sort and --csv")
    wanted.check_stage(stop_after)
    if stop_after in STAGES[:-1] and forbid:
        raise click.UsageError(f"--stop-after {stop_after} makes no program; drop --forbid, or use `check --forbid`")
    if prove and stop_after in STAGES[:-1]:
        raise click.UsageError(f"--stop-after {stop_after} makes no program to prove; drop --prove")
    if stop_after is None and output is None and not wanted.files and not prove and not show:
        raise click.UsageError("-o OUT.tx8 is required (or --save-plans, --dot, --show order, --prove, --stop-after)")
    warn_unread(stop_after, output is not None)
    given, varying, lengths = split_lengths(given)
    options = read_options(
        **given,
        **search_fields(opt, search_seconds, sharing, order, only, load_plans, stop_after),
        group_table=group_table,
        embed_limit_bytes=0 if standalone else embed_limit_mib << 20,
    )
    if table.given:
        from tx8fast.report.tables import length_tables, segments_grid

        table.check(length_tables("", 0, varying, [], 0.0)[1] if varying else segments_grid([]), as_json)
    if standalone and (output is None or varying):
        raise click.UsageError("--standalone needs -o, and one length: each file that a host runs is of one")
    if standalone:
        warn_unused(given_options(("embed_limit_mib",)), "--standalone stores all weights")
    if output is not None:
        files.claim(output, "program")
    wanted.check_files(output)
    if varying:
        if output is None or dump_dir is not None or stop_after is not None or wanted.files or load_plans is not None:
            raise click.UsageError(
                f"several sizes of {varying} need -o, and take no --dump-dir, --stop-after, --save-plans, --load-plans, --dot"
            )
        return _several(model, output, varying, lengths, options, prove, forbid, as_json, table)
    dump = None if dump_dir is None else Dumps(dump_dir)
    if stop_after in STAGES[:-1]:
        _partly(model, options, stop_after, dump, wanted, as_json, table)
        return DONE

    from tx8fast import api
    from tx8fast.cli.facts import order_records, program_facts, segment_facts

    with progress("compiling", as_json) as callback:
        compiled = api.compile(model, options, progress=callback, dump=dump, begins=callback.phase)
    share = program_share(compiled.program)
    state(share, forbid, f"compiling {model}")
    # every instruction is timed for these rows: only where somebody reads them
    plans = segment_facts(compiled.program) if dump is not None or as_json or table.given else []
    orders = order_records(compiled.program, [pattern for _, pattern in show])
    if dump is not None:
        from tx8fast.report.tables import segments_text

        dump.write("plans", "txt", segments_text(plans))
    report = None
    if prove:
        with progress("proving", as_json) as callback:
            report = api.prove(compiled.program, model, options, progress=callback)
        if not report.proved:
            return _refused([report], as_json)
    with files.together():
        wanted.write(compiled.searched)
        if output is not None:
            compiled.save(output, standalone)
    facts = {
        "program": None if output is None else str(output),
        "file_bytes": None if output is None else output.stat().st_size,
        **program_facts(compiled.program),
        "kernel_core_share": share.part(share.routine_cycles),
        "compile_seconds": compiled.compile_seconds,
        "segment_rows": plans,
        **({} if report is None else {"proof": report.to_json()}),
        **({"records": orders} if show else {}),
    }
    if as_json:
        show_json(facts)
    elif show:
        for row in orders:
            click.echo(record_line(row))
    else:
        from tx8fast.report.tables import program_tables, segments_grid

        if table.given:
            table.show([], segments_grid(plans))
        else:
            print_parts(program_tables(facts))
        _print_proof([] if report is None else [report], table)
    return DONE


def _print_proof(reports: Sequence[Any], table: TableChoice | None = None) -> None:
    for report in reports:
        for line in report.lines():
            click.echo(line, err=table is not None and table.csv)  # of CSV nothing else is on stdout


def _refused(reports: Sequence[Any], as_json: bool) -> int:
    """Say what could not be proved; nothing is written, and the defect is ours."""
    if as_json:
        show_json({"program": None, "proofs": [r.to_json() for r in reports]})
    else:
        _print_proof(reports)
    tell(
        "the compiled program does not compute the model: this is a defect in tx8fast, and no file was written; please report it",
        "defect",
    )
    return DEFECT


def _several(
    model: Path,
    output: Path,
    name: str,
    bounds: tuple[int, ...],
    options: Any,
    prove: bool,
    forbid: tuple[str, ...],
    as_json: bool,
    table: TableChoice,
) -> int:
    """Compile one program per size into one file."""
    from tx8fast import api
    from tx8fast.cli.facts import program_facts
    from tx8fast.lengths import compile_lengths

    with progress("compiling", as_json) as callback:
        made = compile_lengths(model, name, bounds, options, progress=callback)
    for bound, one in zip(bounds, made.programs, strict=True):
        state(program_share(one.program), forbid, f"compiling {model} for {name} {bound}")
    reports = []
    if prove:
        with progress("proving", as_json) as callback:
            reports = [
                api.prove(p.program, model, api.options_of(p.program, options.constants), progress=callback)
                for p in made.programs
            ]
        if not all(r.proved for r in reports):
            return _refused(reports, as_json)
    made.save(output)
    size = output.stat().st_size
    rows = [
        {"length": b, **program_facts(p.program), "compile_seconds": p.compile_seconds}
        for b, p in zip(bounds, made.programs, strict=True)
    ]
    if as_json:
        show_json(
            {
                "program": str(output),
                "file_bytes": size,
                "varying": name,
                "programs": rows,
                "compile_seconds": made.compile_seconds,
                **({"proofs": [r.to_json() for r in reports]} if prove else {}),
            }
        )
        return DONE
    from tx8fast.report.tables import length_tables

    before, grid, after = length_tables(str(output), size, name, rows, made.compile_seconds)
    table.show([] if table.given else before, grid, () if table.given else after)
    _print_proof(reports, table)
    return DONE


def _partly(
    model: Path,
    options: Any,
    stage: str,
    dump: Callable | None,
    wanted: SearchArguments,
    as_json: bool,
    table: TableChoice,
) -> None:
    """Run the stages up to `stage` and print their outcome."""
    from tx8fast import api
    from tx8fast.frontend import open_model
    from tx8fast.machine import load_machine

    machine = load_machine(options.machine)
    ir = open_model(model, **options.import_options())
    if stage == "import":
        if dump is not None:
            dump("import", ir)
    else:
        view = api.lower_graph(ir, options, dump)
        if stage == "search":
            with progress("searching", as_json) as callback:
                searched = api.search_graph(view.table, machine, options, callback)
            with files.together():
                wanted.write(searched)
            _print_search(searched, wanted, as_json, table)
            return
    if as_json:
        show_json({"stage": stage, "model": ir.name, "n_ops": ir.n_ops(), "text": ir.text()})
    else:
        show_graph(ir.text())


def _print_search(searched: Any, wanted: SearchArguments, as_json: bool, table: TableChoice) -> None:
    from tx8fast.cli.plans import plan_facts
    from tx8fast.report.tables import search_tables, segments_grid

    if wanted.show:
        rows = wanted.records(searched)
        if as_json:
            show_json({"stage": "search", "records": rows})
        for row in () if as_json else rows:
            click.echo(record_line(row))
        return
    rows = plan_facts(searched.table, searched.plans)
    search = searched.report.to_json() if searched.report.functions else {}
    if as_json:
        show_json({"stage": "search", "segment_rows": rows, "search": search})
    else:
        table.show([] if table.given else search_tables(search), segments_grid(rows))


class Dumps:
    """Numbered text files in a directory, which is made when the first one is written.

    Dumps of an earlier run are replaced if its first one, the graph as imported, is the same; nothing else is.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.again = False

    def __call__(self, stage: str, ir: Any) -> None:
        """Write the graph as `stage` left it."""
        self.write(stage, "mlir", ir.text() + "\n")

    def write(self, name: str, suffix: str, text: str) -> None:
        """Write the next file. Raises ConfigError if that is impossible, or would replace what is no dump of this model."""
        path, content = self.directory / f"{self.count:02d}-{name}.{suffix}", text.encode("utf-8", "surrogatepass")
        try:
            files.make_folder(self.directory)
            if self.count == 0:
                self.again = path.is_file() and path.read_bytes() == content
            taken = not self.again and os.path.lexists(path)
        except OSError as e:
            raise ConfigError(f"writing dumps to {self.directory}: {e.strerror or e}") from e
        if taken:
            raise ConfigError(
                f"writing dumps to {self.directory}: it has a file {path.name}, of another model or other sizes; "
                "name another directory"
            )
        with replacing(path, "dumps") as f:
            f.write(content)
        self.count += 1
