"""Options of `tx8fast compile` that are given and change nothing: told, never silently ignored.

May import: click, cli.output. Must not: know what an option means.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from tx8fast.cli.output import warn_unused

#: the stages of a compilation, and what the first to look at an option is; options that are not here are the import's
STAGES = ("import", "passes", "search", "program")
_READ_BY = {
    "passes": ("dtype", "io_dtype", "group_table"),
    "search": ("machine", "opt", "search_seconds", "sharing", "only", "load_plans"),
    "program": ("order", "embed_limit_mib"),
}


def given(names: Iterable[str]) -> set[str]:
    """Return the options among `names` that stand on the command line, as they are written there."""
    context = click.get_current_context()
    written = {p.name: p.opts[-1] for p in context.command.params}
    return {written[n] for n in names if context.get_parameter_source(n) == click.core.ParameterSource.COMMANDLINE}


def warn_unread(last: str | None, writes: bool) -> None:
    """Tell of options that stages behind `last` (None: the program) would read, and of those for a program that nobody keeps."""
    stage = last or STAGES[-1]
    for later in STAGES[STAGES.index(stage) + 1 :]:
        warn_unused(given(_READ_BY[later]), f"--stop-after {stage} ends before the {later}")
    if stage == STAGES[-1] and not writes:
        warn_unused(given(("embed_limit_mib",)), "no program is written; -o OUT.tx8 writes one")
