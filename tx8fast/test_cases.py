"""Programs of one op that are drawn at random, with inputs suited to it: material for tests of a chip or of a model of one.

May import: everything below; the compiler late. Must not: know files.
Source: TX8 back-end notes 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast.compiled import CompiledProgram
from tx8fast.errors import ConfigError
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.steps import STEPS, Step, steps_text
from tx8fast.records import dataclass

FORMATS = ("f32", "bf16", "f16")
LAYOUTS = ("dense", "blocked")
MOST_DIMS = 4
#: the largest number of channels, and of each other dimension
MOST_CHANNELS, MOST_SIZE = 200, 12
Shapes = Callable[[np.random.Generator], tuple[list[tuple[int, ...]], dict[str, Any]]]


@dataclass(frozen=True)
class Drawn:
    """How cases of an op are drawn: shapes of its operands with the op's attributes, and the range of their values."""

    shapes: Shapes
    low: float = -2.0
    high: float = 2.0


def _shape(rng: np.random.Generator, least_dims: int = 1) -> tuple[int, ...]:
    dims = int(rng.integers(least_dims, MOST_DIMS + 1))
    lead = [int(n) for n in rng.integers(1, MOST_SIZE + 1, dims - 1)]
    return (*lead, int(rng.integers(1, MOST_CHANNELS + 1)))


def _same(operands: int) -> Shapes:
    return lambda rng: ([_shape(rng)] * operands, {})


def _gemm(rng: np.random.Generator) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    m, k, n = (int(x) for x in rng.integers(1, MOST_CHANNELS + 1, 3))
    turned = [bool(x) for x in rng.integers(0, 2, 2)]
    left, right = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
    return [left, right], {"trans_a": turned[0], "trans_b": turned[1]}


def _norm(operands: int) -> Shapes:
    def draw(rng: np.random.Generator) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
        shape = _shape(rng, 2)
        return [shape, *[shape[-1:]] * operands], {}

    return draw


def _transpose(rng: np.random.Generator) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    shape = _shape(rng, 2)
    return [shape], {"perm": tuple(int(k) for k in rng.permutation(len(shape)))}


#: steps of a drawn function of a user's: none of them has a value that is no number
_STEPS = ("neg", "abs", "tanh", "sigmoid", "sin", "cos", "add", "sub", "mul", "max", "min", "lt", "ge", "eq", "select")
MOST_STEPS = 6


def _map(rng: np.random.Generator) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    """A function such as a vector kernel of a user's is, of one to three arguments."""
    shapes = [_shape(rng)] * int(rng.integers(1, 4))
    steps: list[Step] = []
    for k in range(int(rng.integers(2, MOST_STEPS + 1))):
        kind, places = str(rng.choice(_STEPS)), len(shapes) + k
        # the last value, so that every step counts; a product has an argument or a number for a factor, so that it stays small
        operands: list[int | float] = [places - 1]
        while len(operands) < STEPS[kind]:
            number = round(float(rng.uniform(-2, 2)), 3)
            operands.append(
                number if rng.random() < 0.3 else int(rng.integers(len(shapes) if kind == "mul" else places))
            )
        steps.append(Step(kind, tuple(operands)))
    return shapes, {"steps": steps_text(steps)}


OPS: dict[str, Drawn] = {
    **dict.fromkeys(
        ("relu", "sigmoid", "tanh", "gelu", "silu", "neg", "abs", "exp", "sin", "cos", "square"), Drawn(_same(1))
    ),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "recip"), Drawn(_same(1), 0.1, 4.0)),
    **dict.fromkeys(("add", "sub", "mul", "max", "min"), Drawn(_same(2))),
    "div": Drawn(_same(2), 0.5, 4.0),
    "softmax": Drawn(_same(1)),
    "rmsnorm": Drawn(_norm(1)),
    "layernorm": Drawn(_norm(2)),
    "gemm": Drawn(_gemm),
    "transpose": Drawn(_transpose),
    "map": Drawn(_map),
}


@dataclass(frozen=True)
class RandomCase:
    """A program, its inputs by name, and what was drawn in a line of text."""

    program: CompiledProgram
    inputs: dict[str, np.ndarray]
    text: str


def random_case(seed: int, op: str | None = None, machine: str = "tx8", opt: int = 2) -> RandomCase:
    """Draw an op (unless it is given), dims, layouts, a format, shapes and values; the same seed draws the same case.

    Raises ConfigError for an op that no case is drawn for."""
    if op is not None and op not in OPS:
        raise ConfigError(f"drawing a test case: no case of '{op}' can be drawn; there are {', '.join(sorted(OPS))}")
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(sorted(OPS)))
    kind = kind if op is None else op
    dtype = str(rng.choice(FORMATS))
    drawn = OPS[kind]
    shapes, attrs = drawn.shapes(rng)
    layouts = [str(rng.choice(LAYOUTS)) if len(s) > 1 else LAYOUTS[0] for s in shapes]
    program = _program(kind, attrs, shapes, dtype, layouts, machine, opt)
    inputs = {f"x{k}": rng.uniform(drawn.low, drawn.high, s).astype(np_dtype(dtype)) for k, s in enumerate(shapes)}
    operands = ", ".join(f"{dtype}{list(s)} {layout}" for s, layout in zip(shapes, layouts))
    more = "".join(f", {k} {v}" for k, v in attrs.items())
    return RandomCase(program, inputs, f"{kind} of {operands}{more}")


def _program(
    kind: str,
    attrs: dict[str, Any],
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    layouts: Sequence[str],
    machine: str,
    opt: int,
) -> CompiledProgram:
    from tx8fast.ir import Builder, new_context
    from tx8fast.ir.program import IRProgram
    from tx8fast.ir.view import build_view
    from tx8fast.machine import load_machine
    from tx8fast.program.verify import verify
    from tx8fast.schedule.assemble import assemble
    from tx8fast.search.program import plan_table
    from tx8fast.weights import WeightTable

    ctx = new_context()
    module = ctx.create("module", n_regions=1)
    names = tuple(f"x{k}" for k in range(len(shapes)))
    fn = ctx.create("func", n_regions=1, sym_name="main", arg_names=names, result_names=("y",))
    module.regions[0].add_block().append(fn)
    block = fn.regions[0].add_block([ctx.tensor(s, dtype) for s in shapes])
    builder = Builder(ctx, block)
    builder.op("return", builder(kind, *block.args, **attrs))
    table = build_view(IRProgram(ctx, module, WeightTable(), kind)).table
    main = table.functions["main"]
    main.lay_out(layouts)
    chip = load_machine(machine)
    program = assemble(table, chip, plan_table(table, chip, opt=opt), lambda key: {}, {"model": kind})
    verify(program)
    return CompiledProgram(program)
