"""The options that say which program to make of a model; shared by `compile` and `check`.

May import: click, options, errors. Must not: import the compiler before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tx8fast.options import PHASES, CompileOptions


def _dims(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    """Turn NAME=VALUE texts into a mapping. A name may hold '='; the last one separates."""
    dims: dict[str, int] = {}
    for text in values:
        name, sign, value = text.rpartition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE, for example --dim seq=128")
        try:
            size = int(value)
        except ValueError:
            raise click.BadParameter(f"'{text}': the value is not a whole number") from None
        if dims.setdefault(name.strip(), size) != size:
            raise click.BadParameter(f"'{name.strip()}' is given as {dims[name.strip()]} and as {size}")
    return dims


_OPTIONS = (
    click.argument("model", type=click.Path(path_type=Path)),
    click.option("--phase", type=click.Choice(PHASES), help="Which program of a language model (default: prefill)."),
    click.option("--seq", type=int, metavar="S", help="Prompt tokens of a prefill."),
    click.option("--past", type=int, metavar="P", help="KV cache slots of a decode step."),
    click.option("--batch", type=int, metavar="B", help="Sequences at once."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=VALUE", callback=_dims,
                 help="Bind a symbolic dimension; repeatable."),
    click.option("--constants", type=click.Path(path_type=Path), metavar="FILE.npz",
                 help="Bind model inputs to values known at compile time."),
    click.option("--dtype", type=click.Choice(["bf16", "fp16", "fp32", "int8"]),
                 help="Format to compute in (default: the model's own)."),
    click.option("--machine", default="tx8", metavar="NAME|FILE.toml", show_default=True, help="Machine description."),
)  # fmt: skip


def model_options(command: Callable) -> Callable:
    """Add MODEL and everything that makes it static to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_options(constants: Path | None, **fields: Any) -> CompileOptions:
    """Return the checked options; `constants` is read. Raises ConfigError, SimulationError."""
    options = CompileOptions(**fields)
    if constants is None:
        return options
    from dataclasses import replace

    from tx8fast.cli.npz import read_npz

    return replace(options, constants=read_npz(constants, "constants"))
