"""Routines cost what they do: in the cycle simulator, as in the C core that does it; their products count for the roofline bound."""

from __future__ import annotations

import pytest
from support.one_op import Arg, one_op

from tx8fast.isa.work import Work
from tx8fast.machine import load_machine
from tx8fast.simulator.cycle import simulate

MACHINE = load_machine()


def lstm(steps: int):
    t, b, i, h = steps, 2, 16, 24
    args = [Arg((t, b, i)), Arg((1, 4 * h, i)), Arg((1, 4 * h, h)), Arg((1, 8 * h)), Arg((b,), "i64", lo=t, hi=t)]
    args += [Arg((1, b, h)), Arg((1, b, h)), Arg((1, 3 * h))]
    return one_op("recurrent", *args, net="lstm", activations=("Sigmoid", "Tanh", "Tanh"))


def routine_cycles(case) -> int:
    """Cycles of the busiest tile's routine, without the call."""
    return max(Work(*(r["work"].values())).cycles(MACHINE.kcore) for s in case.program.segments for r in s.routines)


def test_a_sequence_of_a_hundred_steps_takes_25_times_one_of_four():
    short, long = lstm(4), lstm(100)
    assert 24.5 < routine_cycles(long) / routine_cycles(short) < 25.5
    assert simulate(long.program).cycles - simulate(short.program).cycles >= routine_cycles(long) - routine_cycles(
        short
    )


def test_topk_grows_with_k():
    taken = [simulate(one_op("topk", Arg((4, 400)), k=k).program).cycles for k in (1, 8, 64, 256)]
    assert taken == sorted(taken) and taken[-1] > 2 * taken[0]


def test_sums_of_products_pay_every_product():
    small, large = (one_op("einsum", Arg((8, k)), Arg((k, 8)), equation="ab,bc->ac") for k in (16, 160))
    assert 9 < routine_cycles(large) / routine_cycles(small) < 10
    conv = one_op("conv_nd", Arg((1, 6, 6, 6, 4)), Arg((3, 3, 3, 5, 4)), stride=(1, 1, 1), dilation=(1, 1, 1),
                  pad_lo=(1, 1, 1), pad_hi=(1, 1, 1))  # fmt: skip
    products = 6**3 * 27 * 5 * 4
    assert routine_cycles(conv) >= 4 * products


@pytest.mark.parametrize(
    ("case", "products"),
    [
        (lambda: one_op("einsum", Arg((8, 5)), Arg((5, 7)), equation="ab,bc->ac"), 8 * 5 * 7),
        (lambda: lstm(4), 4 * 2 * 96 * (16 + 24)),
        (lambda: one_op("conv_nd", Arg((1, 6, 6, 6, 4)), Arg((3, 3, 3, 5, 4)), stride=(1, 1, 1), dilation=(1, 1, 1),
                        pad_lo=(1, 1, 1), pad_hi=(1, 1, 1)), 6**3 * 27 * 20),
        (lambda: one_op("conv_transpose_nd", Arg((1, 3, 3, 3, 4)), Arg((2, 2, 2, 5, 4)), stride=(2, 2, 2), dilation=(1, 1, 1),
                        pad_lo=(0, 0, 0), pad_hi=(0, 0, 0), out_pad=(0, 0, 0)), 27 * 8 * 20),
        (lambda: one_op("cumsum", Arg((4, 8)), axis=1), 0),
    ],
)  # fmt: skip
def test_products_of_routines_are_useful_ones(case, products):
    made = case()
    assert sum(s.info["useful_macs"] for s in made.program.segments) == products


def test_work_in_the_rows_is_that_of_the_routines():
    from tx8fast import isa

    for segment in lstm(4).program.segments:
        for code in segment.codes:
            for row in code[code["opcode"] == isa.INSTRUCTIONS["kcore"].OPCODE]:
                fields = isa.decode(row)
                assert {k: fields[k] for k in segment.routines[fields["routine"]]["work"]} == segment.routines[
                    fields["routine"]
                ]["work"]
