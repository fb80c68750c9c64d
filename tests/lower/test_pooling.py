"""Pools and reductions over positions on the vector engine equal numpy."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from support.one_op import Arg, check, check_plans, one_op

CHANNELS = (1, 3, 5, 31, 33, 64, 65, 97, 128, 130)


@st.composite
def pools(draw):
    pair = lambda a, b: (draw(st.integers(a, b)), draw(st.integers(a, b)))  # noqa: E731
    size, kernel, stride = pair(1, 17), pair(1, 5), pair(1, 3)
    lo, hi = [tuple(draw(st.integers(0, k - 1)) for k in kernel) for _ in range(2)]
    for i in range(2):
        assume(size[i] + lo[i] + hi[i] >= kernel[i])
    kind = draw(st.sampled_from(["max_pool", "avg_pool"]))
    attrs = {"count_pad": draw(st.booleans())} if kind == "avg_pool" else {}
    x = Arg((draw(st.integers(1, 3)), *size, draw(st.sampled_from(CHANNELS))), draw(st.sampled_from(["bf16", "f32"])),
            "blocked")  # fmt: skip
    return one_op(kind, x, out="blocked", machine=draw(st.sampled_from(["tx8", "test_2x2"])), kernel=kernel, stride=stride,
                  pad_lo=lo, pad_hi=hi, ceil_mode=draw(st.booleans()), **attrs)  # fmt: skip


@given(pools(), st.integers(0, 1 << 20))
def test_pool(case, seed) -> None:
    padded_away = "altogether" in str(case.program.meta["kernel_core"])
    assume(not padded_away)
    assert case.segment.info["engine"] == "pool", case.program.meta["kernel_core"]
    check_plans(case, seed)


def test_windows_that_have_no_room() -> None:
    """One row of results needs 200 rows of 130 positions, 3.3 MB: the kernel core does it and says why."""
    case = one_op(
        "max_pool", Arg((1, 200, 130, 64), "bf16", "blocked"), out="blocked", kernel=(200, 65), stride=(200, 65)
    )
    assert case.segment.info["engine"] == "kernel core" and "smallest slices need" in str(
        case.program.meta["kernel_core"]
    )
    check(case)


@st.composite
def reductions(draw):
    shape = tuple(draw(st.integers(1, 12)) for _ in range(draw(st.integers(2, 3))))
    axes = draw(st.sampled_from([(1,), (2,), (1, 2)] if len(shape) == 3 else [(1,)]))
    x = Arg((*shape, draw(st.sampled_from(CHANNELS))), draw(st.sampled_from(["bf16", "f32"])), "blocked")
    return one_op("reduce", x, out="blocked", op=draw(st.sampled_from(["add", "mean", "max", "min"])), axes=axes,
                  keepdims=draw(st.booleans()) or len(axes) < len(shape) - 1)  # fmt: skip


@given(reductions(), st.integers(0, 1 << 20))
def test_reduce_over_positions(case, seed) -> None:
    assert case.segment.info["engine"] == "positions", case.program.meta["kernel_core"]
    check_plans(case, seed)


def test_average_of_full_windows_is_one_instruction() -> None:
    from tx8fast.lower.base import Slice
    from tx8fast.lower.emitter import Emitter

    case = one_op("avg_pool", Arg((1, 8, 8, 64), "bf16", "blocked"), out="blocked", kernel=(2, 2), stride=(2, 2))
    low, em = case.lowering(), Emitter()
    assert low.scratch_bytes((0, 0, 0), (1, 4, 64)) == []
    low.emit(em, Slice((0, 0, 0), (1, 4, 64), [0x10000], [0x20000], [], []))
    assert len(em.rows) == 1
    check(case)


def test_dilated_pool_stays_on_the_kernel_core() -> None:
    case = one_op("max_pool", Arg((1, 9, 9, 5), "f32"), kernel=(3, 3), dilation=(2, 2))
    assert case.segment.info["engine"] == "kernel core"
    check(case)
