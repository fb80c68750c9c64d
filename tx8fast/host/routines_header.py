"""The C header of the kernel core's routines, written from the declarations: `python -m tx8fast.host.isa_header` renews it.

May import: isa.routines. Must not: hold a number of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tx8fast.isa.routines import BY_CODE, CALLS_VERSION, WHY, WORK, Work
from tx8fast.isa.routines.images import CELL_ACTIVATIONS, NETS, SAMPLE_MODES, SAMPLE_PADDINGS
from tx8fast.isa.routines.moves import COMBINES, PAD_MODES
from tx8fast.isa.routines.rows import REDUCTIONS
from tx8fast.isa.routines.values import ACT_EACH, ACTIVATIONS
from tx8fast.numerics.steps import MOST_ARGUMENTS, MOST_STEPS

LINE = 116
HEADER = Path(__file__).with_name("csrc") / "tx8_routines.h"
_ENUMS: dict[str, Iterable[str]] = {
    "TX8_WORK_": WORK,
    "TX8_WHY_": WHY,
    "TX8_ACT_": ACTIVATIONS,
    "TX8_REDUCE_": REDUCTIONS,
    "TX8_PAD_": PAD_MODES,
    "TX8_COMBINE_": COMBINES,
    "TX8_SAMPLE_": (*SAMPLE_MODES, "", *SAMPLE_PADDINGS),
    "TX8_NET_": NETS,
    "TX8_CELL_": CELL_ACTIVATIONS,
}


def text() -> str:
    """Return the header."""
    functions = dict.fromkeys(r.function for r in BY_CODE)
    parts = [
        "/* Written by tx8fast.host.isa_header from the declarations of tx8fast.isa.routines. Do not edit. */",
        "#ifndef TX8_ROUTINES_H\n#define TX8_ROUTINES_H\n",
        f"#define TX8_WORK {len(WORK)} /* kinds of work */",
        f"#define TX8_ROUTINE_COUNT {len(BY_CODE)}",
        f"#define TX8_MAP_STEPS {MOST_STEPS}",
        f"#define TX8_MAP_ARGUMENTS {MOST_ARGUMENTS}",
        f"#define TX8_CALLS_VERSION {CALLS_VERSION} /* of calls as words */\n",
        "/* code, name, function */",
        listed("TX8_ROUTINES(X)", (f"X({r.code}, {r.name}, {r.function})" for r in BY_CODE)),
        "/* functions */",
        listed("TX8_ROUTINE_FUNCTIONS(X)", (f"X({name})" for name in functions)),
        "/* by code: whether operand 0 may lie where result 0 does, whether channel blocks are taken as they lie; work of an element beside loads and stores */",
        listed("TX8_ROUTINE_UPDATES", (f"[{r.code}] = {int(r.updates)}," for r in BY_CODE)),
        listed("TX8_ROUTINE_TAKES_BLOCKS", (f"[{r.code}] = {int(r.takes_blocks)}," for r in BY_CODE)),
        listed("TX8_ROUTINE_EACH", (f"[{r.code}] = {_braces(r.each)}," for r in BY_CODE)),
        "/* the work of activations per element, of reductions per element and per row */",
        listed("TX8_ACT_EACH", (f"{_braces(ACT_EACH[name])}," for name in ACTIVATIONS)),
        listed("TX8_REDUCE_EACH", (f"{_braces(each)}," for each, _ in REDUCTIONS.values())),
        listed("TX8_REDUCE_ROW", (f"{_braces(row)}," for _, row in REDUCTIONS.values())),
        "/* why a call is refused, in words about the three numbers found */",
        listed("TX8_WHY_TEXTS(X)", (f'X({k}, "{_printed(text)}")' for k, text in enumerate(WHY.values()))),
        _enum("TX8_R_", [r.name for r in BY_CODE]),
        *(_enum(prefix, names) for prefix, names in _ENUMS.items()),
        "#endif",
    ]
    return "\n".join(parts) + "\n"


def _printed(text: str) -> str:
    """A text with places for numbers as `printf` takes it."""
    for k in range(3):
        text = text.replace(f"{{{k}}}", f"%{k + 1}$lld")
    return text


def _braces(work: Work) -> str:
    return "{" + ", ".join(map(str, work.values())) + "}"


def _rows(items: Iterable[str], between: str = " ") -> Iterator[str]:
    """Items in lines of at most so many characters."""
    line = ""
    for item in items:
        if line and len(line) + len(between) + len(item) > LINE:
            yield line
            line = ""
        line = f"{line}{between}{item}" if line else item
    if line:
        yield line


def listed(name: str, items: Iterable[str]) -> str:
    return f"#define {name} \\\n" + " \\\n".join(f"    {row}" for row in _rows(items)) + "\n"


def _enum(prefix: str, names: Iterable[str]) -> str:
    """Names by place; what follows an empty name begins at 0 again."""
    return "enum {\n" + "".join(f"    {row}\n" for row in _rows(_members(prefix, names))) + "};\n"


def _members(prefix: str, names: Iterable[str]) -> Iterator[str]:
    k = 0
    for name in names:
        if name:
            yield f"{prefix}{name.upper()} = {k},"
        k = k + 1 if name else 0
