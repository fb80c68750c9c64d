"""Windows that no engine slides become convolutions and pools with the same numbers."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from passes.lift_check import lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.ir.ops.base import engine_of
from tx8fast.passes import legalize_windows
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.legalize import Legalize
from tx8fast.weights.derived import evaluate


@st.composite
def windows(draw, rank, most=4):
    """Sizes, kernel, strides, dilations and both pads of windows over `rank` dimensions."""
    several = lambda a, b: tuple(draw(st.integers(a, b)) for _ in range(rank))  # noqa: E731
    return several(1, 7), several(1, most), several(1, 4), several(1, 2), several(0, 5), several(0, 5)


@given(st.data())
def test_transposed_convolutions_are_convolutions(data) -> None:
    """Every stride, padding that crops all but one place, groups; what has gaps in a kernel whose results have gaps stays."""
    rank = data.draw(st.sampled_from([2, 2, 3]))
    size, kernel, stride, dilation, lo, hi = data.draw(windows(rank))
    extra = tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    groups, ins, outs = data.draw(st.sampled_from([(1, 3, 2), (2, 1, 3), (3, 2, 1)]))
    out = [
        s * (n - 1) + e + d * (k - 1) + 1 - a - b
        for n, k, s, d, a, b, e in zip(size, kernel, stride, dilation, lo, hi, extra, strict=True)
    ]
    assume(min(out) >= 1)
    bias = data.draw(st.booleans())
    g = SmallGraph(x=((2, *size, groups * ins), "f32"), w=((*kernel, outs, groups * ins), "f32"),
                   **({"b": ((groups * outs,), "f32")} if bias else {}))  # fmt: skip
    kind = "conv_transpose" if rank == 2 else "conv_transpose_nd"
    attrs = {"stride": stride, "dilation": dilation, "pad_lo": lo, "pad_hi": hi, "out_pad": extra, "groups": groups}
    made = lifted(g.done(y=g(kind, *g.args.values(), **attrs)), Legalize())
    gaps = any(k > 1 and s > 1 and d > 1 for k, s, d in zip(kernel, stride, dilation, strict=True))
    missed = any(a // s > n - 1 + (-(-k // s) - 1) * (d if s == 1 else 1) or (a + o - 1) // s < 0
                 for n, k, s, d, a, o in zip(size, kernel, stride, dilation, lo, out, strict=True))  # fmt: skip
    assert (kind in made) == (gaps or missed) and ("conv" in made) == (not (gaps or missed))


@given(st.data())
def test_three_dimensions_are_two(data) -> None:
    size, kernel, stride, dilation, lo, hi = data.draw(windows(3, 3))
    assume(all(n + a + b >= d * (k - 1) + 1 for n, k, d, a, b in zip(size, kernel, dilation, lo, hi, strict=True)))
    groups, ins, outs = data.draw(st.sampled_from([(1, 3, 2), (2, 1, 3), (3, 2, 1)]))
    g = SmallGraph(x=((2, *size, groups * ins), "f32"), w=((*kernel, groups * outs, ins), "f32"))
    attrs = {"stride": stride, "dilation": dilation, "pad_lo": lo, "pad_hi": hi}
    made = lifted(g.done(y=g("conv_nd", *g.args.values(), **attrs, groups=groups)), Legalize())
    assert made == ["broadcast"] or ("conv" in made and "conv_nd" not in made)  # alone where no window sees the image


@given(st.data())
def test_the_largest_of_three_dimensions(data) -> None:
    size, kernel, stride, dilation, lo, hi = data.draw(windows(3, 3))
    lo, hi = (tuple(min(p, k - 1) for p, k in zip(pads, kernel, strict=True)) for pads in (lo, hi))
    assume(all(n + a + b >= d * (k - 1) + 1 for n, k, d, a, b in zip(size, kernel, dilation, lo, hi, strict=True)))
    g = SmallGraph(x=((2, *size, 3), "f32"))
    attrs = {"stride": stride, "dilation": dilation, "pad_lo": lo, "pad_hi": hi, "ceil_mode": data.draw(st.booleans())}
    program = g.done(y=g("max_pool_nd", g.args["x"], kernel=kernel, **attrs))
    made = lifted(program, Legalize(), tolerance=0)
    assert "max_pool_nd" not in made and all(engine_of(op) != "kcore" for op in ops_of(program, "max_pool"))


@given(st.data(), st.booleans())
def test_the_mean_of_three_dimensions(data, count_pad: bool) -> None:
    size, kernel, stride, _, lo, hi = data.draw(windows(3, 3))
    lo, hi = (tuple(min(p, k - 1) for p, k in zip(pads, kernel, strict=True)) for pads in (lo, hi))
    assume(all(n + a + b >= k for n, k, a, b in zip(size, kernel, lo, hi, strict=True)))
    g = SmallGraph(x=((2, *size, 3), "f32"))
    attrs = {"stride": stride, "dilation": (1, 1, 1), "pad_lo": lo, "pad_hi": hi, "ceil_mode": data.draw(st.booleans())}
    made = lifted(g.done(y=g("avg_pool_nd", g.args["x"], kernel=kernel, **attrs, count_pad=count_pad)), Legalize())
    assert "avg_pool_nd" not in made


@pytest.mark.parametrize("groups,ins,outs", [(1, 3, 9), (3, 2, 4), (5, 1, 3)])
def test_phases_of_more_channels_than_an_instruction_takes(monkeypatch, groups: int, ins: int, outs: int) -> None:
    monkeypatch.setattr(legalize_windows, "MAX_CHANNELS", 32)
    g = SmallGraph(
        x=((2, 3, 4, groups * ins), "f32"), w=((2, 2, outs, groups * ins), "f32"), b=((groups * outs,), "f32")
    )
    made = lifted(g.done(y=g("conv_transpose", *g.args.values(), stride=(2, 2), groups=groups)), Legalize())
    assert "conv_transpose" not in made and made.count("conv") > 1


def test_integers_stay() -> None:
    g = SmallGraph(x=((1, 3, 3, 3, 2), "i32"), w=((2, 2, 2, 2, 2), "i32"))
    three = {"stride": (1, 1, 1), "dilation": (1, 1, 1), "pad_lo": (0, 0, 0), "pad_hi": (0, 0, 0)}
    assert lifted(g.done(y=g("conv_nd", *g.args.values(), **three)), Legalize()) == ["conv_nd"]


def test_a_large_kernel_is_turned_when_its_bytes_are_needed() -> None:
    """Above the limit of folding, its phases are an entry of the table that is computed from the weight: no op is left for it."""
    g = SmallGraph(x=((1, 4, 4, 8), "f32"), w=((3, 4, 5, 8), "f32"))
    y = g("conv_transpose", *g.args.values(), stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1))
    made = lifted(g.done(y=y), Legalize())
    assert {"pad", "slice", "transpose"} <= {*made}
    w = np.arange(480, dtype=np.float32).reshape(3, 4, 5, 8)
    g = SmallGraph(x=((1, 4, 4, 8), "f32"))
    y = g("conv_transpose", g.args["x"], g.array("w", w), stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1))
    program = g.done(y=y)
    Legalize().run(program)
    FoldConstants(limit_bytes=100).run(program)
    (conv,) = ops_of(program, "conv")
    key = conv.operands[1].op.attrs["key"]
    wanted = np.pad(w, ((0, 1), (0, 0), (0, 0), (0, 0))).reshape(2, 2, 2, 2, 5, 8)[::-1, :, ::-1]
    assert np.array_equal(program.weights.view(key), wanted.transpose(0, 2, 1, 3, 4, 5).reshape(2, 2, 20, 8))


@pytest.mark.parametrize("start, step", [([0, 3], [1, -1]), ([2, 0], [-1, 1]), ([1, 1], [1, 1]), ([2, 3], [-2, -1])])
def test_slices_in_steps(start, step) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    size = [min(2, n) for n in x.shape]
    places = np.ix_(*[[a + s * i for i in range(n)] for a, s, n in zip(start, step, size, strict=True)])
    found = evaluate("slice", {"start": start, "step": step}, [x], tuple(size), np.dtype(np.float32))
    assert np.array_equal(found, x[places])
