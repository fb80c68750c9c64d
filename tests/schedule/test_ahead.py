"""Loads that go before the tiles meet: only what is nobody's until then, and where it holds up nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.search.test_delivering import delivered_to, eager, layer  # noqa: F401
from tests.simulator.planting import findings
from tests.support.one_op import build, check
from tx8fast import isa
from tx8fast.schedule import ahead

LOAD, MEET, LOOP = (isa.instruction(n).OPCODE for n in ("rdma", "barrier_sub", "loop"))


def load(to: int, slot: int, run_bytes: int = 256, worker: int = 1) -> tuple:
    return isa.make("rdma", dst=to, run_bytes=run_bytes, n0=1, n1=1, n2=1, slot=slot, worker=worker)


def border(used: list[tuple[int, int]], read: list[bool]) -> ahead.Border:
    return ahead.Border((), used, np.array(read))


def test_loads_of_free_bytes_and_unwritten_tensors_go_first() -> None:
    rows = isa.rows([
        load(0x1000, 4), isa.make("wait_worker", workers=2), load(0x2000, 4), load(0x3000, 5), load(0x2F00, 4),
        isa.make("barrier_sub", mask=3), load(0x5000, 4),
    ])  # fmt: skip
    # the third one's tensor is written, the second one's and the fourth one's bytes are in use, the last one waits for others
    found = ahead.first_loads(border([(0x1F00, 0x2001), (0x2FFF, 0x3000)], [True, False]), rows, slot=4)
    assert found.tolist() == [0]
    found = ahead.first_loads(border([(0x1100, 0x2000), (0x2100, 0x2F00)], [True, True]), rows, slot=4)
    assert found.tolist() == [0, 2, 3, 4]


def test_no_more_loads_go_first_than_the_engine_takes() -> None:
    rows = isa.rows([load(0x1000 * n, 0) for n in range(1, 12)])
    assert len(ahead.first_loads(border([], [True]), rows, slot=0)) == ahead.MOST


def test_they_go_behind_the_last_load_and_no_loop_is_cut() -> None:
    plain = [load(0x1000, 0), isa.make("wait_worker", workers=1 << 2), isa.make("wait_worker", workers=1 << 1)]
    made = ahead.with_loads(isa.rows(plain), isa.rows([load(0x8000, 1)]))
    assert made["slot"].tolist() == [0, 1, -1, -1]
    assert made["worker"][1] == 0  # for which nothing waits behind
    looped = isa.rows([isa.make("loop", count=3), load(0x1000, 0), isa.make("wait"), isa.make("end"), isa.make("wait")])
    made = ahead.with_loads(looped, isa.rows([load(0x8000, 1)]))
    assert made["slot"].tolist() == [-1, 0, -1, -1, 1, -1]
    assert ahead.with_loads(isa.rows([]), isa.rows([load(0x8000, 1)]))["slot"].tolist() == [1]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "rows, width, kv, group, depth",
    [(128, 256, 4, 2, 128), (64, 256, 8, 1, 64), (96, 128, 4, 4, 64), (77, 192, 6, 1, 64)],
)
@pytest.mark.slow(but_every=3)
def test_what_is_loaded_early_is_whole_when_it_is_used(rows: int, width: int, kv: int, group: int, depth: int) -> None:
    """The last product's weights come while tiles are at attention, into bytes that nobody touches until all meet."""
    case = build(*layer(rows, width, kv, group, depth), opt=2)
    segment = next(s for s in case.program.segments if sum(delivered_to(s)))
    early, weights = 0, np.flatnonzero(segment.slot_arg == segment.n_args - 2)
    codes = [isa.expand(c)[0] if (c["opcode"] == LOOP).any() else c for c in segment.codes]
    everyone = max(int(c["p"][c["opcode"] == MEET, 0].max(initial=0)) for c in codes)
    for rows_of in codes:
        meets = np.flatnonzero((rows_of["opcode"] == MEET) & (rows_of["p"][:, 0] == everyone))
        read, written = isa.spm_ranges(rows_of)
        for n in np.flatnonzero((rows_of["opcode"] == LOAD) & np.isin(rows_of["slot"], weights)).tolist():
            lo, hi = written[n, 0].tolist()
            for meet in meets[meets > n][:1].tolist():
                early += 1
                others = np.concatenate([a[n + 1 : meet].reshape(-1, 2) for a in (read, written)])
                assert not ((others[:, 0] < hi) & (lo < others[:, 1])).any()
    assert early
    check(case, tolerance=0.05)
    assert not findings(case.program)
