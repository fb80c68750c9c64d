"""The options that say which program to make of a model; shared by `compile` and `check`.

May import: click, cli.output, options, errors. Must not: import the compiler before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tx8fast.cli.output import PATH, warn_unused
from tx8fast.errors import ConfigError
from tx8fast.options import DTYPES, INPUTS, LOGITS, PHASES, CompileOptions

#: one size, or several increasing ones: a program for each
Sizes = int | tuple[int, ...]


class SizesType(click.ParamType):
    """Reads "512" or "128,512,2048"."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sizes:
        if not isinstance(value, str):
            return value
        try:
            sizes = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"'{value}' is not a whole number, nor several with commas between them", param, ctx)
        return sizes[0] if len(sizes) == 1 else sizes


class ChipsType(click.ParamType):
    """Reads "4" (a row) or "4x8"."""

    name = "chips"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if not isinstance(value, str):
            return value
        x, by, y = value.partition("x")
        try:
            return int(x), int(y) if by else 1
        except ValueError:
            self.fail(f"'{value}' is not a number of chips, nor a grid such as 4x2", param, ctx)


def _dims(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, Sizes]:
    """Turn NAME=VALUE texts into a mapping. A name may hold '='; the last one separates."""
    dims: dict[str, Sizes] = {}
    for text in values:
        name, sign, value = text.rpartition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE, for example --dim seq=128")
        try:
            sizes = tuple(int(part) for part in value.split(","))
        except ValueError:
            raise click.BadParameter(f"'{text}': the value is not a whole number") from None
        size = sizes[0] if len(sizes) == 1 else sizes
        if dims.setdefault(name.strip(), size) != size:
            raise click.BadParameter(f"'{name.strip()}' is given as {dims[name.strip()]} and as {size}")
    return dims


_OPTIONS = (
    click.argument("model", type=PATH),
    click.option("--phase", type=click.Choice(PHASES), help="Which program of a language model (default: prefill)."),
    click.option("--seq", type=SizesType(), metavar="S", help="Prompt tokens of a prefill."),
    click.option("--past", type=SizesType(), metavar="P", help="KV cache slots of a decode step."),
    click.option("--batch", type=SizesType(), metavar="B", help="Sequences at once."),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_dims,
        help="Bind a symbolic dimension; repeatable.",
    ),
    click.option(
        "--constants", type=PATH, metavar="FILE.npz", help="Bind model inputs to values known at compile time."
    ),
    click.option("--dtype", type=click.Choice(list(DTYPES)), help="Format to compute in (default: the model's own)."),
    click.option(
        "--io-dtype",
        type=click.Choice(list(DTYPES)),
        help="Format of float inputs, outputs and caches (default: the model's own).",
    ),
    click.option(
        "--as", "as_family", metavar="FAMILY", help="Take a model directory of unknown model_type for one of FAMILY."
    ),
    click.option(
        "--part",
        metavar="PART",
        help="Of a model of several parts (text, vision, encoder, decoder): the one to compile.",
    ),
    click.option("--logits", type=click.Choice(LOGITS), help="Of which tokens of a prompt (default: all)."),
    click.option(
        "--input", "input", type=click.Choice(INPUTS), help="What a decoder takes: token ids (default) or embeddings."
    ),
    click.option("--source", type=int, metavar="N", help="Rows of an encoder's result that a decoder attends to."),
    click.option(
        "--attention-mask",
        is_flag=True,
        help="Let an input say which tokens of an encoder's text are there, and which are padding.",
    ),
    click.option(
        "--kernels",
        default="",
        metavar="FILE.py",
        help="Element-wise functions for ONNX nodes of kinds of one's own (executed).",
    ),
    click.option("--tp", type=int, metavar="N", help="Chips that share the layers of a model."),
    click.option(
        "--chips", type=ChipsType(), metavar="N|XxY", help="Chips that run the program together, in a row or a grid."
    ),
    click.option("--machine", default="tx8", metavar="NAME|FILE.toml", show_default=True, help="Machine description."),
)


def model_options(command: Callable) -> Callable:
    """Add MODEL and everything that makes it static to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def split_lengths(given: dict[str, Any]) -> tuple[dict[str, Any], str, tuple[int, ...]]:
    """Return the options with one size each, and the name and sizes of the option that has several ("" if none has)."""
    one = {**given, "dims": dict(given["dims"])}
    several = {n: given[n] for n in ("seq", "past", "batch") if type(given[n]) is tuple}
    several |= {n: v for n, v in given["dims"].items() if type(v) is tuple}
    if len(several) > 1:
        raise click.UsageError(f"several sizes are given for {' and '.join(several)}; only one option may have several")
    for name, sizes in several.items():
        (one if name in ("seq", "past", "batch") and name not in one["dims"] else one["dims"])[name] = sizes[-1]
        return one, name, sizes
    return one, "", ()


length_option = click.option(
    "--length",
    type=int,
    metavar="N",
    help="Of a file with programs for several lengths: the one that serves N (default: the largest).",
)


def open_program(path: Path, length: int | None) -> Any:
    """Return the `CompiledProgram` of a file, of several the one that serves `length`. Raises ConfigError, ProgramError."""
    from tx8fast import lengths

    loaded = lengths.load(path)
    if isinstance(loaded, lengths.LengthPrograms):
        return loaded.at(length)
    if length is not None:
        raise ConfigError(f"opening {path}: it holds one program; drop --length")
    return loaded


def read_options(constants: Path | None, **fields: Any) -> CompileOptions:
    """Return the checked options; `constants` is read. Raises ConfigError, SimulationError."""
    options = CompileOptions(**fields)
    if constants is None:
        return options
    from dataclasses import replace

    from tx8fast.cli.npz import read_npz

    bound = read_npz(constants, "constants")
    if not bound:
        warn_unused({"--constants"}, f"{constants} holds no arrays")
    return replace(options, constants=bound)
