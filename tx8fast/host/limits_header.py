"""What the fields of rows may hold, as a C header written from the declarations: `python -m tx8fast.host.isa_header` renews it.

May import: isa, machine. Must not: hold a number of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tx8fast.host.routines_header import listed
from tx8fast.isa.base import INSTRUCTIONS
from tx8fast.isa.expand import MAX_ROWS
from tx8fast.isa.limits import DDR_OFFSET, FORMAT_FIELDS, LIMITS, PRODUCTS, SIZE
from tx8fast.isa.lookup import NUMBER
from tx8fast.isa.record import MAX_LOOPS
from tx8fast.machine import DDR_BASE
from tx8fast.numerics.formats import FORMAT_CODES

HEADER = Path(__file__).with_name("csrc") / "tx8_limits.h"


def text() -> str:
    """Return the header."""
    forms = list(dict.fromkeys(cls.FIELDS_P for cls in INSTRUCTIONS.values()))
    opcodes = [(cls.OPCODE, name, forms.index(cls.FIELDS_P), _mask(cls.FORMATS)) for name, cls in INSTRUCTIONS.items()]
    numbers = [(i, p.index(NUMBER[0])) for i, p in enumerate(forms) if NUMBER[0] in p]
    parts = [
        "/* Written by tx8fast.host.limits_header from the declarations of tx8fast.isa. Do not edit. */",
        "#ifndef TX8_LIMITS_H\n#define TX8_LIMITS_H\n",
        f"#define TX8_DDR_BASE {DDR_BASE} /* byte address of the first byte of DDR */",
        f"#define TX8_MAX_ROWS {MAX_ROWS} /* of one code with its loops written out */",
        f"#define TX8_MAX_LOOPS {MAX_LOOPS} /* around a row */",
        f"#define TX8_DDR_OFFSET {DDR_OFFSET} /* bytes; offsets, steps and reaches are smaller */",
        f"#define TX8_SIZE {SIZE} /* elements or bytes; products of counts are smaller */",
        f"#define TX8_FORMS {len(forms)} /* of parameters */\n",
        "/* opcode, name, form of its parameters, a bit for the code of each format that it takes */",
        listed("TX8_OPCODES(X)", (f'X({code:#x}, "{name}", {form}, {mask:#x})' for code, name, form, mask in opcodes)),
        "/* name of a parameter, lowest value, first that is too high */",
        listed("TX8_LIMITS(X)", (f"X({name}, {low}, {high})" for name, (low, high) in _limited(forms).items())),
        "/* the named parameters of a form, by place */",
        listed("TX8_LIMITED(F, P)", _form_fields(forms)),
        "/* form, parameter that holds a format code, name */",
        listed(
            "TX8_FORMAT_PARAMETERS(X)",
            (f'X({i}, {p.index(f)}, "{f}")' for i, p in enumerate(forms) for f in FORMAT_FIELDS if f in p),
        ),
        "/* form, parameters whose product is a size; -1: none */",
        listed(
            "TX8_PRODUCTS(X)",
            (
                f"X({i}, {', '.join(map(str, _places(p, names)))})"
                for i, p in enumerate(forms)
                for names in PRODUCTS
                if set(names) <= set(p)
            ),
        ),
        "/* form, three strides with their counts; -1: none */",
        listed("TX8_REACHES(X)", _reaches(forms)),
        "/* form, parameter that holds the slot of a row number */",
        listed("TX8_NUMBER_SLOTS(X)", (f"X({i}, {k})" for i, k in numbers)),
        "#endif",
    ]
    return "\n".join(parts) + "\n"


def _mask(formats: tuple[str, ...]) -> int:
    return sum(1 << FORMAT_CODES[name] for name in formats)


def _places(fields: tuple[str, ...], names: tuple[str, ...], width: int = 5) -> list[int]:
    found = [fields.index(name) if name in fields else -1 for name in names]
    return found + [-1] * (width - len(found))


def _limited(forms: list[tuple[str, ...]]) -> dict[str, tuple[int, int]]:
    """The limits of all parameters that have some, by name."""
    names = dict.fromkeys(name for fields in forms for name in fields)
    return {name: LIMITS[name] for name in names if name in LIMITS and name not in FORMAT_FIELDS}


def _form_fields(forms: list[tuple[str, ...]]) -> Iterator[str]:
    known = _limited(forms)
    for i, fields in enumerate(forms):
        named = [f"P({k}, {name})" for k, name in enumerate(fields) if name in known]
        if named:
            yield from f"F({i}, {'|'.join(named)})".split("|")


def _reaches(forms: list[tuple[str, ...]]) -> Iterator[str]:
    for i, fields in enumerate(forms):
        for side in ("", "s", "d"):
            if {f"{side}s0", f"{side}n0"} <= set(fields):
                names = tuple(f"{side}{letter}{level}" for level in range(3) for letter in "sn")
                yield f"X({i}, {', '.join(map(str, _places(fields, names, 6)))})"
