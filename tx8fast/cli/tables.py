"""How a command's table is shown: which columns, in which order, as text or CSV.

May import: click, cli.output, and late: report. Must not: know what is in a table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tx8fast.cli.output import show, warn_unused
from tx8fast.records import dataclass

if TYPE_CHECKING:
    from tx8fast.report.grid import Grid


@dataclass(frozen=True)
class TableChoice:
    """What was asked of the table. columns: keys or headings, empty: the usual ones; sort: one of them, or ""."""

    columns: tuple[str, ...] = ()
    sort: str = ""
    csv: bool = False

    @property
    def given(self) -> bool:
        return bool(self.columns or self.sort or self.csv)

    def check(self, grid: Grid, as_json: bool) -> None:
        """Raise ConfigError for columns that a table like `grid` will not have, before there is any work; JSON has them all."""
        if not as_json:
            grid.chosen(self.columns, self.sort)

    def show(self, before: Sequence[Any], grid: Grid, after: Sequence[Any] = ()) -> None:
        """Print `grid` as it was asked for, between other parts; of CSV the table alone. Raises ConfigError for unknown columns."""
        grid = grid.chosen(self.columns, self.sort)
        if self.csv:
            click.echo(grid.csv(), nl=False)
        else:
            show([*before, grid, *after])


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(n.strip() for n in (value or "").split(",") if n.strip())


def table_options(command: Callable) -> Callable:
    """Add `--columns`, `--sort` and `--csv` to a command, which gets them as `table`."""

    @functools.wraps(command)
    def run(*args: Any, columns: tuple[str, ...], sort: str, as_csv: bool, **given: Any) -> Any:
        if as_csv and given.get("as_json"):
            raise click.UsageError("--csv and --json are two outputs; give one of them")
        if given.get("as_json") and (columns or sort):
            warn_unused([n for n, v in (("--columns", columns), ("--sort", sort)) if v], "--json has all of the table")
        return command(*args, table=TableChoice(columns, sort, as_csv), **given)

    for option in (
        click.option(
            "--csv", "as_csv", is_flag=True, help="Print the table alone, unrounded, as comma-separated values."
        ),
        click.option(
            "--sort",
            default="",
            metavar="COLUMN[:up|:down]",
            help="Sort the table (default: numbers fall, names rise).",
        ),
        click.option(
            "--columns", callback=_names, metavar="A,B,..", help="Columns of the table, by the names that --csv prints."
        ),
    ):
        run = option(run)
    return run
