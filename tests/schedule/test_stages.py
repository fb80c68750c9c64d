"""Loop stages of a group against the worked example, and the groups that no order can serve."""

import pytest

from tx8fast.errors import InfeasibleError, InternalError
from tx8fast.schedule.stages import (
    IC,
    NH,
    OC,
    LoopOp,
    Nest,
    Repeat,
    baskets,
    build_script,
    build_values,
)

GEMM = (
    LoopOp("load x", "ld", (), ("x",), NH | IC),
    LoopOp("load W", "ld", (), ("W",), OC | IC),
    LoopOp("load b", "ld", (), ("b",), OC),
    LoopOp("gemm", "ne", ("x", "W"), ("y",), NH | OC | IC, sums=IC),
    LoopOp("add", "ct", ("y", "b"), ("z",), NH | OC, inplace=0),
    LoopOp("relu", "ct", ("z",), ("r",), NH | OC, inplace=0),
    LoopOp("store", "st", ("r",), (), NH | OC),
)


def names(ops):
    return [op.name for op in ops]


def shape(script):
    """The script with op names, loops as (times, body)."""
    return [(i.times, shape(i.body)) if isinstance(i, Repeat) else " + ".join(names(i)) for i in script]


@pytest.mark.feature("B64")
def test_gemm_with_split_reduction() -> None:
    found = baskets(Nest(GEMM, oc=2, ic=4), nh=2)
    assert names(found.ic2ic) == ["load x", "load W", "gemm"]
    assert names(found.oc2ic) == ["load b"]
    assert names(found.ic2oc) == ["add", "relu", "store"]
    assert found.nh2oc == found.oc2nh == found.once == found.last == ()


@pytest.mark.feature("B64")
def test_gemm_with_whole_reduction_loads_its_left_side_once_per_row_slice() -> None:
    found = baskets(Nest(GEMM, oc=2), nh=2)
    assert names(found.nh2oc) == ["load x"]
    assert names(found.oc2ic) == ["load W", "load b", "gemm", "add", "relu", "store"]
    assert found.ic2ic == found.ic2oc == found.oc2nh == ()


@pytest.mark.feature("B66")
def test_script_nests_loops_and_splices_single_trips() -> None:
    tail = ["add", "relu", "store"]
    inner = (4, ["load x + load W", "gemm"])
    assert shape(build_script([Nest(GEMM, 2, 4)], 2)) == [(2, [(2, ["load b", inner, *tail])])]
    assert shape(build_script([Nest(GEMM, 2, 1)], 2)) == [(2, ["load x", (2, ["load W", "load b", "gemm", *tail])])]
    assert shape(build_script([Nest(GEMM, 1, 4)], 2)) == ["load b", (2, [inner, *tail])]
    assert shape(build_script([Nest(GEMM)], 1)) == ["load x + load W", "load b", "gemm", *tail]
    single = build_script([Nest(GEMM, 1, 4)], 2, share_loads=False)
    assert shape(single)[1][1][0] == (4, ["load x", "load W", "gemm"])


@pytest.mark.feature("B64")
def test_what_depends_on_no_loop_stays_outside_all_of_them() -> None:
    # With one OC and one K slice the weight and the bias are the same for every row slice.
    found = baskets(Nest(GEMM), nh=2)
    assert names(found.once) == ["load W", "load b"]
    assert shape(build_script([Nest(GEMM)], 2))[:2] == ["load W", "load b"]


@pytest.mark.feature("B69")
def test_values_know_their_depth_copies_and_owner() -> None:
    values = build_values([Nest(GEMM, 2, 4)], 2)
    assert {v: values[v].depth for v in "xWbyzr"} == {"x": 3, "W": 3, "b": 2, "y": 2, "z": 2, "r": 2}
    assert values["y"].psum and not values["z"].psum
    assert values["z"].memory == values["r"].memory == "y"
    assert {v.bufs for v in values.values()} == {2}
    assert build_values([Nest(GEMM, 2, 4)], 2, copies={"y": 1})["r"].bufs == 1
    assert build_values([Nest(GEMM)], 2)["W"].bufs == 1  # outside all loops a second copy has no use


@pytest.mark.feature("B64")
def test_whole_rows_are_collected_for_ops_that_need_all_channels() -> None:
    ops = (*GEMM[:-1], LoopOp("softmax", "ct", ("r",), ("s",), NH, inplace=0), LoopOp("store", "st", ("s",), (), NH))
    found = baskets(Nest(ops, 2, 4), 2)
    assert names(found.oc2nh) == ["softmax", "store"]
    values = build_values([Nest(ops, 2, 4)], 2)
    assert values["r"].depth == 1 and values["r"].memory == "r"  # a row, so not in the bytes of a slice
    assert values["s"].memory == "r"


@pytest.mark.feature("B71")
@pytest.mark.parametrize("late", ["read by another op", "loaded outside the loop"])
def test_in_place_needs_the_last_reader_and_equal_loops(late: str) -> None:
    ops = [
        LoopOp("load", "ld", (), ("x",), NH),
        LoopOp("exp", "ct", ("x",), ("y",), NH, inplace=0),
        LoopOp("store", "st", ("y",), (), NH),
    ]
    assert build_values([Nest(tuple(ops))], 4)["y"].memory == "x"
    if late == "read by another op":
        ops.append(LoopOp("store x", "st", ("x",), (), NH))
    else:
        ops[0] = LoopOp("load", "ld", (), ("x",))
    assert build_values([Nest(tuple(ops))], 4)["y"].memory == "y"


SECOND = (LoopOp("load V", "ld", (), ("V",), OC), LoopOp("gemm2", "ne", ("r", "V"), ("o",), NH | OC, sums=OC),
          LoopOp("store o", "st", ("o",), (), NH))  # fmt: skip


@pytest.mark.feature("B65")
def test_chained_gemms_share_one_loop() -> None:
    # The channel slices of the first product are the reduction slices of the second.
    found = baskets(Nest((*GEMM[:-1], *SECOND), 4, 2), 3)
    assert names(found.ic2oc) == ["add", "relu", "gemm2"]
    assert names(found.oc2ic) == ["load b", "load V"]
    assert names(found.oc2nh) == ["store o"]
    values = build_values([Nest((*GEMM[:-1], *SECOND), 4, 2)], 3)
    assert values["o"].depth == 1 and values["o"].psum


@pytest.mark.feature("B65")
def test_second_gemm_in_its_own_loops() -> None:
    second = (
        LoopOp("load V", "ld", (), ("V",), OC),
        LoopOp("gemm2", "ne", ("r", "V"), ("o",), NH | OC),
        LoopOp("store o", "st", ("o",), (), NH | OC),
    )
    nests = [Nest(GEMM[:-1], 2, 4), Nest(second, 5)]
    (nh,) = shape(build_script(nests, 3))
    assert nh == (
        3,
        [
            (2, ["load b", (4, ["load x + load W", "gemm"]), "add", "relu"]),
            (5, ["load V", "gemm2", "store o"]),
        ],
    )
    assert build_values(nests, 3)["r"].depth == 1  # all slices of the first product are kept


@pytest.mark.feature("B65")
def test_impossible_groups_are_reported_together() -> None:
    half = (*GEMM[:-1], LoopOp("gemm2", "ne", ("r", "x"), ("o",), NH | OC | IC, sums=IC))
    with pytest.raises(InfeasibleError, match="'gemm2' needs a result that exists only after its own loop"):
        baskets(Nest(half, 2, 4), 2)
    partial = (
        *GEMM[:4],
        LoopOp("early", "ct", ("y",), ("e",), NH | OC | IC),
        LoopOp("odd", "ne", ("x",), ("o",), NH | IC, sums=NH),
    )
    with pytest.raises(InfeasibleError, match="2 problems") as info:
        build_script([Nest(partial, 2, 4)], 2)
    assert "'early' reads 'y' before 'gemm' has summed it up" in str(info.value)
    assert "'odd' accumulates over a loop outside one" in str(info.value)


def test_wrong_descriptions_are_our_own_fault() -> None:
    with pytest.raises(InternalError, match="engine 'gpu'"):
        LoopOp("a", "gpu")
    with pytest.raises(InternalError, match="two ops are called 'load x'"):
        baskets(Nest((GEMM[0], GEMM[0])), 1)
