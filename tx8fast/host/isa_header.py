"""The C header of the instruction set, written from the declarations: `python -m tx8fast.host.isa_header` renews it.

May import: isa, numerics. Must not: hold a number of its own. A test compares the file with what this module writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tx8fast import isa
from tx8fast.host import limits_header, routines_header
from tx8fast.isa.base import BLOCK, FORMAT_BYTES
from tx8fast.isa.convert import PAIRS, Convert
from tx8fast.isa.vector import BinaryVV, MaskMove, ScalarVS, UnaryV, UnitLoop, UnitVuV, Vector
from tx8fast.numerics.formats import FLOATS, FORMAT_CODES, SIGNED, UNSIGNED

HEADER = Path(__file__).with_name("csrc") / "tx8_isa.h"
_TYPES = {"<u2": "uint16_t", "|u1": "uint8_t", "<i2": "int16_t", "<i4": "int32_t", "<i8": "int64_t"}
_FORMS = {UnaryV: "V", BinaryVV: "VV", ScalarVS: "VS", UnitVuV: "VUV", UnitLoop: "UNIT_LOOP"}
_LOGIC = ("not", "and", "or", "xor")
_RELATIONS = ("eq", "ne", "ge", "gt", "le", "lt")


def text() -> str:
    """Return the header."""
    parts = [
        "/* Written by tx8fast.host.isa_header from the declarations of tx8fast.isa. Do not edit. */",
        "#ifndef TX8_ISA_H\n#define TX8_ISA_H\n#include <stdint.h>",
        *_record(),
        *_formats(),
        *_vectors(),
        *_conversions(),
        *_others(),
        "#endif",
    ]
    return "\n".join(parts) + "\n"


def _record() -> Iterator[str]:
    yield "\n/* One instruction. */\ntypedef struct {"
    fields = isa.RECORD.fields
    assert fields is not None
    for name, (kind, *_) in fields.items():
        base, shape = kind.subdtype or (kind, ())
        yield f"    {_TYPES[base.str]} {name}{''.join(f'[{n}]' for n in shape)};"
    yield "} tx8_row;"
    size = f'(sizeof(tx8_row) == {isa.RECORD.itemsize}, "a row has no padding");'
    yield f"#ifdef __cplusplus\nstatic_assert{size}\n#else\n_Static_assert{size}\n#endif"


def _formats() -> Iterator[str]:
    yield "\n/* name, code, bytes, channels of a block, kind: F float, S signed, U unsigned, B truth value */"
    yield "#define TX8_FORMATS(X) \\"
    lines = []
    for name, code in FORMAT_CODES.items():
        kind = "F" if name in FLOATS else "S" if name in SIGNED else "U" if name in UNSIGNED else "B"
        lines.append(f"    X({name.upper()}, {code}, {int(FORMAT_BYTES[code])}, {int(BLOCK[code])}, {kind})")
    yield " \\\n".join(lines)


def _vectors() -> Iterator[str]:
    yield "\n/* vector instructions: opcode, function, form, what it works on */\n#define TX8_VECTORS(X) \\"
    lines = []
    for name, cls in isa.INSTRUCTIONS.items():
        if cls.FAMILY is not Vector:
            continue
        base = name.rsplit("_", 1)[0]
        function = base.removeprefix("bool_")
        truth = base.startswith("bool_")
        kind = ("BITS" if truth else "WORDS") if function in _LOGIC else "VALUES_TO_BITS" if truth else "VALUES"
        lines.append(f"    X({cls.OPCODE}, {function.upper()}, {_FORMS[cls.__mro__[1]]}, {kind})")
    yield " \\\n".join(lines)


def _conversions() -> Iterator[str]:
    yield "\n/* conversions: opcode, source, destination */\n#define TX8_CONVERSIONS(X) \\"
    rows = [(first + k, src, dst) for first, src, dsts in PAIRS for k, dst in enumerate(dsts)]
    yield " \\\n".join(f"    X({opcode}, {src.upper()}, {dst.upper()})" for opcode, src, dst in rows)


def _others() -> Iterator[str]:
    yield "\n/* opcodes */\nenum {"
    own = {name: cls for name, cls in isa.INSTRUCTIONS.items() if cls.FAMILY not in (Vector, Convert)}
    for name, cls in own.items():
        yield f"    TX8_OP_{name.upper()} = {cls.OPCODE:#x},"
    yield "};\n\n/* where a field stands: S in the addresses, P in the parameters */\nenum {"
    seen: dict[str, tuple] = {}
    classes = [*own.items(), *((form.lower(), cls) for cls, form in _FORMS.items()), ("convert", Convert)]
    for name, cls in classes:
        parent = cls.__mro__[1]
        fields = cls.FIELDS_SPM, cls.FIELDS_P
        if name in own and (parent.FIELDS_SPM, parent.FIELDS_P) == fields and parent is not MaskMove:
            name = parent.__name__
        if not any(fields) or name.upper() in seen:
            continue
        seen[name.upper()] = fields
        for letter, names in zip("SP", fields):
            items = [f"TX8_{letter}_{name.upper()}_{field.upper()} = {k}" for k, field in enumerate(names)]
            for at in range(0, len(items), 4):
                yield "    " + ", ".join(items[at : at + 4]) + ","
    yield "};"


if __name__ == "__main__":
    HEADER.write_text(text(), encoding="utf-8")
    for header in (routines_header, limits_header):
        header.HEADER.write_text(header.text(), encoding="utf-8")
