"""In which float format bytes of a scratchpad were written: a shadow byte for each, moved as the data move.

May import: numpy, isa, numerics, host.core, simulator.sanitizer_bytes, simulator.sanitizer_operands. Must not: know order, clocks, DDR.

Numbers that an engine has written as floats of one format are not floats of another one. What comes from DDR, what is set as a
pattern, integers and bits may be read as anything; so is an operand of which a part may: lanes behind the last channel still
have what another buffer left there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tx8fast.host.core import CoreTile
from tx8fast.isa import blocked
from tx8fast.isa.base import BY_OPCODE, N_FORMATS
from tx8fast.isa.convert import PAIRS, Convert
from tx8fast.isa.ne import Conv, Gemm
from tx8fast.isa.tensor import Pool, Reduce, Unpool
from tx8fast.isa.vector import BinaryVV, MaskMove, ScalarVS, UnaryV, UnitLoop, UnitVuV
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.simulator.sanitizer_bytes import Range
from tx8fast.simulator.sanitizer_operands import operands

MOVES = frozenset(
    {
        "mirror",
        "transpose",
        "rotate90",
        "rotate180",
        "rotate270",
        "nhwc2nchw",
        "nchw2nhwc",
        "pad",
        "tensor_norm",
        "gather_scatter",
        "img2col",
        "concat",
    }
)
#: names of kinds of floats; TF32 is F32 whose last bits count for nothing
KINDS = ("", "f32", "bf16", "f16")
KIND = np.zeros(N_FORMATS, np.uint8)
for _name, _kind in (("f32", 1), ("tf32", 1), ("bf16", 2), ("f16", 3)):
    KIND[FORMAT_CODES[_name]] = _kind
#: opcode of a conversion -> formats that it reads and writes
CONVERTED = {
    first + k: (FORMAT_CODES[src], FORMAT_CODES[dst]) for first, src, found in PAIRS for k, dst in enumerate(found)
}
BITS = ("bool_", "not_", "and_", "or_", "xor_")  # how names of instructions begin that work on bits, or give some


class Formats:
    """The kinds of one scratchpad's bytes, 0: any."""

    def __init__(self, n_bytes: int) -> None:
        self.kind = np.zeros(n_bytes, np.uint8)
        self.core = CoreTile(self.kind, np.zeros(0, np.uint8), 0)

    def row(self, row: np.void, reads: Sequence[Range], writes: Sequence[Range]) -> Iterator[tuple[Range, str]]:
        """Do what an engine row does (no transfer of DDR), and yield the operands that it reads in another format, and what of them."""
        opcode, fmt = int(row["opcode"]), int(row["fmt"])
        cls = BY_OPCODE[opcode]
        assert cls is not None
        if cls.NAME in MOVES:
            self.core.load(np.asarray(row).reshape(1), np.zeros(1, np.int64), ())
            self.core.run(0, 1)
            return
        spm, p = row["spm"].tolist(), row["p"].tolist()
        read: list[tuple[Range, int]] = []
        made = 0
        if issubclass(cls, (Gemm, Conv, Reduce, Pool, Unpool)):
            read = [
                ((a, a + int(blocked.span_bytes(n, at, c, f))), f)
                for a, n, at, c, f in operands(cls, opcode, fmt, spm, p)
            ]
            made = p[7] if issubclass(cls, Gemm) else p[17] if issubclass(cls, Conv) else fmt
        elif issubclass(cls, Convert):
            source, made = CONVERTED[opcode]
            read = [(span, source) for span in reads[:1]]
        elif issubclass(cls, MaskMove):
            read, made = [(span, fmt) for span in reads[:1]], fmt
        elif issubclass(cls, (UnaryV, BinaryVV, ScalarVS, UnitVuV, UnitLoop)) and not cls.NAME.startswith(BITS):
            read, made = [(span, fmt) for span in reads], fmt
        for (a, b), f in read:
            found = self.kind[a:b]
            if KIND[f] and found.size and found.all() and not (found == KIND[f]).any():
                yield (
                    (a, b),
                    f"reads SPM bytes [{a:#x}, {b:#x}) as {KINDS[KIND[f]]}, which were written as {KINDS[found[0]]}",
                )
        for k, (a, b) in enumerate(writes):
            self.kind[a:b] = 0 if k else KIND[made]
