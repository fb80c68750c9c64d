"""Launches that are joined with a meeting between them: the same bits, the second one's weights under way before it, and only where that is so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.search.test_delivering import layer
from tests.simulator.planting import findings
from tests.support.one_op import Arg, Case, build, check
from tx8fast import isa
from tx8fast.schedule import ahead, meeting

LOAD, MEET = (isa.instruction(n).OPCODE for n in ("rdma", "barrier_sub"))
#: rows, width, heads of keys, queries of each, their values; all together are not as wide
LAYERS = [(96, 512, 8, 1, 72), (128, 768, 8, 2, 64), (77, 512, 8, 1, 80), (160, 640, 8, 1, 72)]


def both(args, body, machine: str = "tx8") -> tuple[Case, Case]:
    """Return the program with launches apart, and with those joined that may be."""
    return build(args, body, machine), build(args, body, machine, join=True)


def blocked(b, kind: str, *values, **attrs):
    return b.op(kind, *values, mem_layout="blocked", **attrs).result


def early(case: Case) -> int:
    """Return how many loads of the last product's weights stand before a meeting of all tiles."""
    found = 0
    for segment in case.program.segments:
        weights = [n for n, a in enumerate(segment.arguments) if a is not None and a.shape == case.args[-1].shape]
        for code in segment.codes:
            meets = (code["opcode"] == MEET) & (code["p"][:, 0] == (1 << case.machine.n_tiles) - 1)
            slots = np.flatnonzero(np.isin(segment.slot_arg, weights))
            loads = np.flatnonzero((code["opcode"] == LOAD) & np.isin(code["slot"], slots))
            found += int((loads < np.flatnonzero(meets).max(initial=-1)).sum())
    return found


@pytest.mark.parametrize("rows, width, kv, group, depth", LAYERS)
@pytest.mark.slow(but_every=4)
def test_joined_launches_make_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, rows: int, width: int, kv: int, group: int, depth: int
) -> None:
    """Also where more is loaded early than there is time for."""
    monkeypatch.setattr(ahead, "_cycles", lambda _, rows: np.zeros(len(rows)))
    apart, joined = both(*layer(rows, width, kv, group, depth))
    assert len(joined.program.launches) < len(apart.program.launches)
    assert early(joined) > early(apart) == 0
    values = [a.values(np.random.default_rng(rows)) for a in apart.args]
    assert all(
        np.array_equal(a, b) for a, b in zip(apart.run(values).values(), joined.run(values).values(), strict=True)
    )
    check(joined, values, tolerance=0.05)
    assert not findings(joined.program)


def test_what_runs_side_by_side_stays_so() -> None:
    """Two products of one operand have no barrier between them, and their sum reads nothing but what they make."""
    args = [Arg((1, 64, 1024), "bf16", "blocked"), *[Arg((1024, 512), "bf16", "blocked", -0.1, 0.1)] * 2]

    def body(b, x, w, v):
        h = blocked(b, "exp", x)
        return [blocked(b, "add", blocked(b, "gemm", h, w), blocked(b, "gemm", h, v))]

    apart, joined = both(args, body)
    assert len(joined.program.launches) == len(apart.program.launches)


def test_small_loads_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    args, body = layer(*LAYERS[0])
    apart = build(args, body)
    monkeypatch.setattr(meeting, "MEETING_BYTES", 1 << 22)
    assert len(build(args, body, join=True).program.launches) == len(apart.program.launches)
    monkeypatch.setattr(meeting, "MEETING_BYTES", 0)
    monkeypatch.setattr(meeting, "MOST_NESTS", 1)
    assert len(build(args, body, join=True).program.launches) == len(apart.program.launches)


def test_no_more_is_loaded_early_than_there_is_time_for() -> None:
    """Where nothing is sent tiles would wait for the loads, and for nothing else."""
    chip = build(*layer(33, 128, 2, 1, 64)).machine
    load = lambda to: isa.make("rdma", dst=to, run_bytes=1 << 16, n0=1, n1=1, n2=1, slot=1)  # noqa: E731
    work = isa.make("gemm", left=0x10000, right=0x20000, out=0x30000, m=256, k=512, n=512, fmt=3, out_fmt=3)
    border = ahead.Border(((),) * chip.n_tiles, [], np.array([False, True]))
    behind = isa.rows([load(0x100000 * n) for n in (1, 2, 3)])
    one = int(ahead._cycles(chip, behind)[0])
    took = int(ahead._cycles(chip, isa.rows([work]))[0])
    for times in (0, 1, 3):
        before = isa.rows([isa.make("rdma", dst=0x10000, run_bytes=64, n0=1, n1=1, n2=1, slot=0), *[work] * times])
        with_them, rest = ahead.across(chip, border, before, behind, slot=0)
        assert len(with_them) - len(before) == min(3, times * took // one) == 3 - len(rest)
