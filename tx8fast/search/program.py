"""Plan a whole graph table: form groups, one plan per distinct record, all infeasible ops reported together.

May import: graph_table, machine, errors, search.*. Must not: emit programs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tx8fast.errors import InfeasibleError, raise_all
from tx8fast.graph_table import GraphTable, Record
from tx8fast.machine import Machine
from tx8fast.search.chained import chain_table
from tx8fast.search.exact import SearchReport, exact_table
from tx8fast.search.given import Given, take_given
from tx8fast.search.grouping import group_table
from tx8fast.search.members import fix_others, name_steps
from tx8fast.search.partition import SECONDS
from tx8fast.search.planning import Planner
from tx8fast.search.remembered import GroupStore, Remembering
from tx8fast.search.side_by_side import run_side_by_side
from tx8fast.search.streams import inline_table, stream_table
from tx8fast.search.turning import turn
from tx8fast.tile.tiling import Planned

Plans = dict[Record, Planned]


def plan_table(
    table: GraphTable,
    machine: Machine,
    progress: Callable[[int, int], None] | None = None,
    opt: int = 2,
    sharing: bool = True,
    seconds: float = SECONDS,
    report: SearchReport | None = None,
    only: Sequence[str] = (),
    given: Given | None = None,
    groups: GroupStore | None = None,
) -> Plans:
    """Return a plan for every distinct record; from opt 2 on, steps of `table` are first merged into groups where
    the estimate says it pays. At opt 3 `seconds` bounds the integer program, and `report` is filled with what it
    did. only: patterns of op names; the search merges no others. given: groups and plans of an earlier search, with which there
    is none, but for what `only` selects. groups: where plans of single ops and groups are kept; they are the same with and without it. Raises InfeasibleError naming every op that cannot fit, and ConfigError if `given` is
    not of this graph and machine."""
    with _no_collections():
        return _plan_table(
            table,
            machine,
            progress,
            opt,
            sharing,
            seconds,
            SearchReport() if report is None else report,
            only,
            given,
            groups,
        )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Search without the collector of cyclic garbage: it took a tenth of the time, and found next to nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _plan_table(
    table: GraphTable,
    machine: Machine,
    progress: Callable[[int, int], None] | None,
    opt: int,
    sharing: bool,
    seconds: float,
    report: SearchReport,
    only: Sequence[str],
    given: Given | None,
    groups: GroupStore | None,
) -> Plans:
    planner = Planner(machine, sharing) if groups is None else Remembering(machine, sharing, groups)
    if opt >= 2:
        inline_table(table)
    name_steps(table)
    if only:
        fix_others(table, only)
    if given is not None:
        take_given(table, planner, given, bool(only))
    if given is None or only:
        if opt == 3:
            _begin_layers(table, planner)
        options = stream_table(table, planner) if opt >= 2 else {}
        if opt == 2:
            chain_table(table, planner, group_table(table, planner, options))
        elif opt == 3:
            exact_table(table, planner, options, report, seconds)
    else:
        report.functions += given.report
    names: dict[Record, str] = {}
    for fn in table.functions.values():
        for step in fn.steps:
            if step.record is not None and not step.is_empty:
                names.setdefault(step.record, step.name)
    plans: Plans = {}
    problems: list[str] = []
    for i, (record, name) in enumerate(names.items()):
        try:
            plans[record] = planner.plan(record, name)
        except InfeasibleError as err:
            problems.append(str(err))
        if progress is not None:
            progress(i + 1, len(names))
    raise_all(InfeasibleError, "placing slices in scratchpad", problems)
    for fn in table.functions.values() if (opt if given is None else given.opt) >= 2 else ():
        run_side_by_side(fn, plans, machine)
    return plans


def _begin_layers(table: GraphTable, planner: Planner) -> None:
    """Let layers begin where they do at opt 2."""
    trial = replace(table, functions={name: replace(fn) for name, fn in table.functions.items()})
    chain_table(trial, planner, group_table(trial, planner, stream_table(trial, planner)))
    for name in [name for name, fn in trial.functions.items() if fn.turned]:
        turn(table, name, trial.functions[name].turned)
