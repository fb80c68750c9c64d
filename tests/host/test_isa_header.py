"""The header of the instruction set is what the declarations say; the one NaN is the core's; faults have words."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.host import core, isa_header, limits_header, routines_header
from tx8fast.host.faults import fault


@pytest.mark.parametrize("made", [isa_header, routines_header, limits_header])
def test_the_header_is_the_declarations(made):
    written = made.HEADER.read_text(encoding="utf-8")
    assert written == made.text(), "run python -m tx8fast.host.isa_header"


def tile(size=4096):
    return core.CoreTile(np.zeros(size, np.uint8), np.zeros(64, np.uint8), 64)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (isa.make("add_vv", src0=0, src1=4090, dst=0, n=8, fmt="f32"), r"accessing SPM: found bytes \[0xffa, 0x101a\)"),
        (isa.make("add_vv", src0=0, src1=0, dst=0, n=8, fmt="f8e4m3fn"), "found format code 15"),
        (isa.make("add_vv", src0=0, src1=0, dst=0, n=8, fmt="f32", rnd=5), "found rounding mode 5"),
        (isa.make("rdma", dst=0, run_bytes=65), r"accessing DDR: found bytes \[0x280000000, 0x280000041\)"),
        (isa.make("gemm", left=0, right=0, out=0, m=1, k=1, n=1, batch_l=2, batch_r=3, out_fmt=5, fmt="f32"), "batches 2 and 3"),
        (isa.make("memset", dst=0, value=0, n=1 << 50, fmt="i8"), "found counts 1125899906842624"),
        (isa.make("lut16", src0=0, table=0, dst=0, n=1, entries=0), "found offset 0"),
        (isa.make("send", src=0, dst=0, bytes=8, mask=0), "sending to tiles"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_run_says_why_and_changes_nothing(row, text):
    t = tile()
    before = t.rows.copy()
    t.load(isa.rows([row]), np.array([0x280000000]), ())
    with pytest.raises(SimulationError, match=text):
        t.run(0, 1)
    assert t.at == 0 and not len(before)


def test_every_status_has_words():
    row = isa.rows([isa.make("gather_scatter", src0=0, dst=0, size=1)])[0]
    for name, status in core.STATUS.items():
        if name not in ("done", "routine"):
            assert isinstance(fault(status, [1] * 5, (0, 1), row), (SimulationError, MemoryError)), name


def test_threads_deliver_in_tile_order():
    """Two tiles send to the same place of a third in one round: the later tile's bytes stay, in however many threads."""
    for threads in (1, 2, 3):
        tiles = [core.CoreTile(np.full(4096, k, np.uint8), np.zeros(64, np.uint8), 64, k) for k in range(3)]
        code = isa.rows([isa.make("send", src=0, dst=1024, bytes=64, mask=4)])
        monitors = np.zeros((3, 4), np.int64)
        for t in tiles[:2]:
            t.load(code, np.zeros(1, np.int64), ())
        end, which, places = core.run_together(
            tiles[:2], [0, 1], [np.zeros(0, np.int64)] * 2, tiles, monitors, 1, threads
        )
        assert (end, which, places) == ("left_over", 2, [1, 1])
        assert monitors[2, 0] == 128 and not monitors[:2].any()
        assert (tiles[2].spm[1024:1088] == 1).all()
