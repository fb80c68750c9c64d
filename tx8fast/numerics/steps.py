"""What a function does to one element, as text: "neg %0; exp %1; add %2 1.0; div %0 %3".

May import: errors. Must not: compute.

A step is a kind of op and its operands: a number, or %k, the value at place k: the arguments come first, then the results of the steps.
The last step is the function. All values are f32, each step rounds once; truth values are the numbers 1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tx8fast.errors import ConfigError
from tx8fast.records import dataclass

ONE = ("neg", "abs", "square", "sqrt", "rsqrt", "recip", "exp", "log", "sin", "cos", "tanh", "sigmoid")
TWO = ("add", "sub", "mul", "div", "max", "min")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: kinds of steps, and how many operands each has
STEPS = {**dict.fromkeys(ONE, 1), **dict.fromkeys((*TWO, *COMPARISONS), 2), "select": 3}
MOST_STEPS, MOST_ARGUMENTS = 128, 16


@dataclass(frozen=True)
class Step:
    """operands: places (int) or numbers (float)."""

    kind: str
    operands: tuple[int | float, ...]

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"%{o}" if type(o) is int else repr(o) for o in self.operands)])


def steps_text(steps: Sequence[Step]) -> str:
    """Return the text of steps."""
    return "; ".join(map(str, steps))


@lru_cache(maxsize=1 << 10)
def parse_steps(text: str, arguments: int) -> tuple[Step, ...]:
    """Return the steps of a text. Raises ConfigError for what is none."""
    out: list[Step] = []
    for part in text.split(";"):
        kind, *words = part.split() or [""]
        if STEPS.get(kind) != len(words):
            raise ConfigError(f"steps: found '{part.strip()}', required one of {', '.join(STEPS)} with its operands")
        out.append(Step(kind, tuple(_operand(word, arguments + len(out)) for word in words)))
        if not any(type(o) is int for o in out[-1].operands):
            raise ConfigError(f"steps: '{part.strip()}' is of numbers alone")
        if kind == "select" and type(out[-1].operands[0]) is not int:
            raise ConfigError(f"steps: '{part.strip()}' does not choose by a value")
    if not 1 <= len(out) <= MOST_STEPS or not 1 <= arguments <= MOST_ARGUMENTS:
        raise ConfigError(
            f"steps: found {len(out)} on {arguments} arguments, required 1 to {MOST_STEPS} on 1 to {MOST_ARGUMENTS}"
        )
    return tuple(out)


def _operand(word: str, places: int) -> int | float:
    try:
        value = int(word[1:]) if word[:1] == "%" else float(word)
    except ValueError:
        value = math.nan
    if type(value) is int and 0 <= value < places or type(value) is float and math.isfinite(value):
        return value
    raise ConfigError(f"steps: operand '{word}' is neither a finite number nor one of {places} places")
