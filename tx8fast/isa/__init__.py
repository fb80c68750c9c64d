"""The instruction set: declarations, code arrays, cost and ranges.

May import: numpy, machine, numerics, _kernels, errors. Must not: know the compiler or whole programs, or execute anything.

    row = isa.make("add_vv", src0=a, src1=b, dst=c, n=64, fmt="bf16")
    code = isa.roll(isa.rows([row, ...]))
"""

from tx8fast.isa import comm, control, convert, dma, lookup, ne, peripheral, scalar, tdma, tensor, vector
from tx8fast.isa.base import (
    BY_OPCODE,
    INSTRUCTIONS,
    UNITS,
    Instruction,
    by_family,
    class_of,
    decode,
    distinct,
    finish,
    instruction,
    make,
    make_rows,
)
from tx8fast.isa.expand import execution, expand, roll, rolled, row_forms
from tx8fast.isa.lanes import scalar_pattern
from tx8fast.isa.limits import check_fields, offset_problems, value_problems
from tx8fast.isa.quant import pack_quant
from tx8fast.isa.record import MAX_LOOPS, N_P, N_SPM, RECORD, rows, words_but, words_of
from tx8fast.isa.table import durations, issue_cycles, ranges, rereads, sequence_cycles, spm_ranges, units
from tx8fast.isa.tdma import channel_norm

finish()


__all__ = [
    "BY_OPCODE",
    "INSTRUCTIONS",
    "MAX_LOOPS",
    "N_P",
    "N_SPM",
    "RECORD",
    "UNITS",
    "Instruction",
    "by_family",
    "channel_norm",
    "check_fields",
    "class_of",
    "comm",
    "control",
    "convert",
    "decode",
    "distinct",
    "dma",
    "durations",
    "execution",
    "expand",
    "instruction",
    "issue_cycles",
    "lookup",
    "make",
    "make_rows",
    "ne",
    "offset_problems",
    "pack_quant",
    "peripheral",
    "ranges",
    "rereads",
    "roll",
    "rolled",
    "row_forms",
    "rows",
    "scalar",
    "scalar_pattern",
    "sequence_cycles",
    "spm_ranges",
    "tdma",
    "tensor",
    "units",
    "value_problems",
    "vector",
    "words_but",
    "words_of",
]
