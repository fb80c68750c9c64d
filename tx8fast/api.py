"""The pipeline as plain calls: compile a model, load a program, run and simulate it.

May import: everything below; simulators late, so that compiling never pays for them. Must not: hold logic of
a stage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tx8fast import files
from tx8fast.collectives import MAX_CHIPS
from tx8fast.compiled import CompiledProgram, Progress, Searched
from tx8fast.errors import ConfigError, InternalError, ProgramError, TooLargeError, Tx8Error, raise_all
from tx8fast.frontend import BUILT, open_model
from tx8fast.graph_table import GraphTable
from tx8fast.graphs import Dump, lower_graph, model_demand, param_source, quiet_collector, shares_of
from tx8fast.ir.program import IRProgram
from tx8fast.machine import Machine, load_machine
from tx8fast.options import CompileOptions
from tx8fast.program import io
from tx8fast.program.model import Program, Tensor
from tx8fast.program.params import pack_param, reads_files, stays_in_files
from tx8fast.program.verify import verify
from tx8fast.schedule.assemble import assemble
from tx8fast.schedule.capacity import check_capacity
from tx8fast.search.exact import SearchReport
from tx8fast.search.given import load_given
from tx8fast.search.given_groups import form_given_groups
from tx8fast.search.program import plan_table
from tx8fast.search.remembered import GroupStore

if TYPE_CHECKING:
    from tx8fast.proof.audit import Finding
    from tx8fast.proof.report import Report

#: called with the name of one of PHASES when it begins
Begins = Callable[[str], None]
PHASES = ("import", "passes", "search", "emission")


class KeptPlans(Protocol):
    """Where results of searches are kept from one compilation to the next. groups: what is known of single ops and groups, for the graph that was
    asked for last."""

    @property
    def groups(self) -> GroupStore | None: ...

    def find(self, ir: IRProgram, machine: Machine, options: CompileOptions) -> str:
        """Return a file for `load_plans` with what was found for a graph as the passes left it, "" if there is none."""
        ...

    def keep(self, found: Searched) -> None:
        """Keep what was found for the graph that was asked for last."""
        ...


def compile(
    model: str | os.PathLike[str],
    options: CompileOptions | None = None,
    *,
    progress: Progress | None = None,
    dump: Dump | None = None,
    begins: Begins | None = None,
    **fields: Any,
) -> CompiledProgram:
    """Compile the model at a path. Options come as `CompileOptions` or as its fields by keyword.

    `progress(done, total)` counts groups, planned and assembled; `dump(stage, graph)` sees the graph after the import and every pass;
    `begins(name)` is called at the beginning of each of PHASES. Raises Tx8Error for anything wrong with model or options."""
    if options is not None and fields:
        raise ConfigError("give options as one object or as keywords, not both")
    options = options or CompileOptions(**_known(fields))
    started = time.perf_counter()
    with quiet_collector(), files.watching() as read:
        machine = load_machine(options.machine)
        if begins is not None:
            begins(PHASES[0])
        ir = open_model(model, **options.import_options())
        root = Path(model)
        program = compile_ir(ir, machine, options, root if root.is_dir() else root.parent, progress, dump, begins)
    program.compile_seconds = time.perf_counter() - started
    program.read = read
    return program


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    names = CompileOptions.__dataclass_fields__
    unknown = [f"unknown option '{n}', known are {', '.join(names)}" for n in fields if n not in names]
    raise_all(ConfigError, "reading options", unknown)
    return fields


def compile_ir(
    ir: IRProgram,
    machine: Machine,
    options: CompileOptions,
    root: Path | None = None,
    progress: Progress | None = None,
    dump: Dump | None = None,
    begins: Begins | None = None,
    kept: KeptPlans | None = None,
) -> CompiledProgram:
    """Compile an imported graph: passes, view, search, schedule, placement. kept: where the search looks before it begins."""
    begin: Begins = begins or (lambda _: None)
    begin(PHASES[1])
    view = lower_graph(ir, options, dump)
    describe = partial(param_source, ir, view)
    needed = model_demand(ir, view, machine, options)  # before the search changes the table
    begin(PHASES[2])
    known = kept.find(ir, machine, options) if kept is not None and not options.load_plans else ""
    searched = replace(options, load_plans=known) if known else options
    groups = kept.groups if kept is not None else None
    with _advising(ir, options):
        found = search_graph(view.table, machine, searched, _half(progress, 0), groups)
    if kept is not None and not searched.load_plans:
        kept.keep(found)
    meta = {
        "model": ir.name,
        "phase": ir.phase,
        "machine_digest": machine.digest,
        "options": {
            "dtype": options.dtype or "",
            "opt": found.opt,
            "sharing": found.sharing,
            "seq": options.seq,
            "past": options.past,
            "batch": options.batch,
            "dims": dict(sorted(options.dims.items())),
        },
    }
    given = ((name, getattr(options, name)) for name in ("io_dtype", "tp", *BUILT))
    meta["options"] |= {name: value for name, value in given if value not in (None, False)}
    named = (("group_table", options.group_table), ("kernels", options.kernels))
    meta["options"] |= {name: Path(file).name for name, file in named if file}
    if found.report.functions:
        meta["search"] = found.report.to_json()
    begin(PHASES[3])
    with _advising(ir, options):
        join, told = found.opt > 1, _half(progress, 1)
        program = assemble(view.table, machine, found.plans, describe, meta | needed, told, options.order, join)
    _check(program)
    _embed(program, ir, view.inline, options.embed_limit_bytes)
    if ir.weights is not None and ir.weights.decided and reads_files(program):
        program.meta["deciding"] = ir.weights.deciding()
    return CompiledProgram(program, root, searched=found)


@contextmanager
def _advising(ir: IRProgram, options: CompileOptions) -> Iterator[None]:
    """Add to the error of a model that is too large for one chip over how many chips its layers can be cut, if they can."""
    try:
        yield
    except TooLargeError as error:
        possible = []
        shares = shares_of(ir)
        if shares is not None:
            for n in range((options.tp or 1) + 1, MAX_CHIPS + 1):
                with suppress(Tx8Error):
                    shares(n)
                    possible.append(str(n))
        if not possible:
            raise
        raise TooLargeError(f"{error}, and so would more chips: --tp {', '.join(possible)}") from error


def _check(program: Program) -> None:
    """Look for defects of our own in what was compiled. Raises InternalError."""
    try:
        verify(program)
    except ProgramError as error:
        raise InternalError(
            f"compiling '{program.meta['model']}': the program breaks rules of its own; {error}"
        ) from error


def search_graph(
    table: GraphTable,
    machine: Machine,
    options: CompileOptions,
    progress: Progress | None = None,
    groups: GroupStore | None = None,
) -> Searched:
    """Form groups in `table` and plan them, or take both from `options.load_plans`. groups: where plans of single ops and groups are kept."""
    given = load_given(options.load_plans) if options.load_plans else None
    opt, sharing = (given.opt, given.sharing) if given is not None else (options.opt, options.sharing)
    form_given_groups(table, machine)
    check_capacity(table, machine)
    report = SearchReport()
    plans = plan_table(
        table, machine, progress, opt, sharing, options.search_seconds, report, options.only, given, groups
    )
    return Searched(table, machine, plans, report, opt, sharing)


def _half(progress: Progress | None, index: int) -> Progress | None:
    """Return a callback for one of two stages that shows up in `progress` as half of the work."""
    return None if progress is None else lambda done, total: progress(index * total + done, 2 * total)


def _embed(program: Program, ir: IRProgram, inline: Mapping[str, np.ndarray], limit_bytes: int) -> None:
    """Store parameter images in the program: always those that exist nowhere else, the others while small."""
    weights = ir.weights
    missing = set(weights.missing()) if weights is not None else set()

    def readable(t: Tensor) -> bool:
        generated = t.source.get("kind") == "derived" and not t.source.get("inputs")
        return not generated and t.source["key"] not in missing

    copies = {True: program.n_chips, False: 1}
    everything = sum(t.size_bytes * copies[t.per_chip] for t in program.params if readable(t)) <= limit_bytes
    chosen = [t for t in program.params if readable(t) and (everything or not stays_in_files(t.source))]
    held = bytearray(sum(t.size_bytes * copies[t.per_chip] for t in chosen))  # images are made where they stay
    data, at = np.frombuffer(held, np.uint8), 0
    for t in chosen:
        t.embedded, key = at, t.source["key"]
        for chip in range(program.n_chips) if t.per_chip else (None,):
            array = inline[key] if key in inline else weights.view(key, chip)  # type: ignore[union-attr]
            pack_param(
                np.asarray(array),
                t,
                data[at : at + t.size_bytes],
                weights.let_go if weights is not None else lambda: None,
            )
            at += t.size_bytes
    program.data = held


def options_of(
    program: Program, constants: Mapping[str, np.ndarray] | None = None, group_table: str = "", kernels: str = ""
) -> CompileOptions:
    """Return the options that a program was compiled with, as far as they decide its graph. constants: those of the model's
    inputs that were bound, which a program does not keep; group_table, kernels: the files, of which it keeps the names. Raises ConfigError if the program's facts are damaged."""
    kept = program.meta.get("options")
    if not isinstance(kept, dict):
        raise ConfigError("reading the program's options: it does not say what it was compiled with")
    names = (
        "seq",
        "past",
        "batch",
        "tp",
        "dims",
        "opt",
        "sharing",
        "group_table",
        "io_dtype",
        "kernels",
        *BUILT,
    )
    given = {n: kept[n] for n in names if kept.get(n) is not None}
    given |= {n: file for n, file in (("group_table", group_table), ("kernels", kernels)) if file}
    chips = program.chips if program.n_chips > 1 else None
    return CompileOptions(
        phase=program.meta.get("phase") or None,
        dtype=kept.get("dtype") or None,
        chips=chips,
        constants=dict(constants or {}),
        **given,
    )


def prove(
    program: Program,
    model: str | os.PathLike[str],
    options: CompileOptions | None = None,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Prove that a program computes the model at a path (docs/proof.md); of weights those are read that lie in the program.

    options: what the program was compiled with, by default what it says itself. quick: one seed. Raises Tx8Error if the
    program is not of this model."""
    options = options or options_of(program)
    with quiet_collector():
        return prove_ir(program, open_model(model, **options.import_options()), options, quick=quick, progress=progress)


def prove_ir(
    program: Program, ir: IRProgram, options: CompileOptions, *, quick: bool = False, progress: Progress | None = None
) -> Report:
    """Prove that a program computes an imported graph, which is consumed (the passes run on it in place); see `prove`."""
    from tx8fast.proof.draw import bands
    from tx8fast.proof.evaluate import Sources
    from tx8fast.proof.graph import written_out
    from tx8fast.proof.held import compare_held
    from tx8fast.proof.prove import prove as prove_table
    from tx8fast.proof.runner import MachineRunner

    view = lower_graph(ir, options)
    looked_at = bands(written_out(view.table))

    def known(key: str, chip: int) -> np.ndarray | None:
        if key in view.inline:
            return view.inline[key]
        if key not in ir.weights:
            return None
        source = ir.weights.describe(key, None if chip < 0 else chip)
        # what the importer worked out (masks, tables) is the model's own, too: the compiler may look at it, as it did at bands
        generated = source["kind"] == "array" or (source["kind"] == "derived" and not source["inputs"])
        generated |= key in looked_at and source["kind"] != "missing"
        return np.asarray(ir.weights.view(key, None if chip < 0 else chip)) if generated else None

    def varies(key: str) -> bool:
        return key not in view.inline and ir.weights.varies(key)

    concrete = frozenset(t.name for t in program.params if known(t.source["key"], -1) is not None)
    runner = lambda program, field: MachineRunner(program, field, concrete)  # noqa: E731
    sources = Sources(known, varies)
    report = prove_table(program, view.table, sources, partial(param_source, ir, view), runner, quick, progress)
    missing = set(ir.weights.missing())

    def bytes_of(key: str, chip: int) -> np.ndarray | None:
        if key in missing:
            return None
        return view.inline[key] if key in view.inline else np.asarray(ir.weights.view(key, None if chip < 0 else chip))

    report.failures[:0] = compare_held(program, bytes_of)
    return report


def precision(program: Program) -> list[Finding]:
    """Return where a program holds fewer bits than it could, by segment and op (`proof.audit.Finding`)."""
    from tx8fast.proof.audit import audit

    return audit(program)


def load(path: str | os.PathLike[str]) -> CompiledProgram:
    """Open a `.tx8` file. Raises ProgramError if it is damaged."""
    return CompiledProgram(io.load(path))
