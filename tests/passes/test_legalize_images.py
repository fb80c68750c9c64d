"""Images that engines do not take as they lie: rows for columns, channels for columns, bands of columns, one group at a time."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from passes.lift_check import lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes import legalize_images
from tx8fast.passes.legalize import Legalize, LegalizeFormats


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Fields and room that small images are above of."""
    for name, n in (("MOST_COLUMNS", 12), ("MOST_KERNEL", 3), ("MOST_BYTES", 300)):
        monkeypatch.setattr(legalize_images, name, n)


@st.composite
def sizes(draw, most_rows=4):
    """Rows, columns, and pairs of kernel, stride, dilation and both pads, with at least one window."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(5, 40))
    kernel = draw(st.integers(1, most_rows)), draw(st.integers(1, 5))
    stride, dilation = ((draw(st.integers(1, 3)), draw(st.integers(1, 3))) for _ in range(2))
    lo, hi = (tuple(draw(st.integers(0, k - 1)) for k in kernel) for _ in range(2))
    assume(
        all(
            n + a + b >= d * (k - 1) + 1
            for n, k, d, a, b in zip((rows, columns), kernel, dilation, lo, hi, strict=True)
        )
    )
    return (rows, columns), kernel, {"stride": stride, "dilation": dilation, "pad_lo": lo, "pad_hi": hi}


@given(sizes(), st.sampled_from([(1, 3, 2), (3, 1, 1), (2, 2, 3)]), st.booleans(), st.sampled_from(["none", "relu"]))
def test_convolutions(case, channels, bias: bool, act: str) -> None:
    size, kernel, attrs = case
    groups, ins, outs = channels
    g = SmallGraph(x=((2, *size, groups * ins), "f32"), w=((*kernel, groups * outs, ins), "f32"),
                   **({"b": ((groups * outs,), "f32")} if bias else {}))  # fmt: skip
    program = g.done(y=g("conv", *g.args.values(), groups=groups, act=act, **attrs))
    lifted(program, Legalize(), LegalizeFormats(), tolerance=1e-5)


@given(sizes(), st.sampled_from(["max_pool", "avg_pool"]), st.booleans(), st.booleans())
def test_pools(case, kind: str, ceil: bool, count_pad: bool) -> None:
    size, kernel, attrs = case
    own = {"ceil_mode": ceil, **({"count_pad": count_pad} if kind == "avg_pool" else {})}
    if kind == "avg_pool":
        attrs |= {"dilation": (1, 1)}
    g = SmallGraph(x=((2, *size, 3), "f32"))
    program = g.done(y=g(kind, g.args["x"], kernel=kernel, **attrs, **own))
    lifted(program, Legalize(), LegalizeFormats(), tolerance=1e-6)


@st.composite
def far_sizes(draw, rank: int):
    """An image, a kernel and windows that reach far beyond it."""
    n, kernel = (tuple(draw(st.integers(1, 4)) for _ in range(rank)) for _ in range(2))
    attrs = {"stride": (1, 9), "dilation": (1, 3), "pad_lo": (0, 12), "pad_hi": (0, 12)}
    made = {a: tuple(draw(st.integers(*ends)) for _ in range(rank)) for a, ends in attrs.items()}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, made["dilation"], strict=True)]
    assume(all(m + a + b >= r for m, a, b, r in zip(n, made["pad_lo"], made["pad_hi"], reach, strict=True)))
    return n, kernel, made


@given(st.integers(2, 3).flatmap(far_sizes), st.booleans(), st.sampled_from(["none", "relu"]))
def test_windows_of_padding_are_the_bias(case, bias: bool, act: str) -> None:
    size, kernel, attrs = case
    g = SmallGraph(x=((2, *size, 4), "f32"), w=((*kernel, 6, 2), "f32"), **({"b": ((6,), "f32")} if bias else {}))
    kind = "conv" if len(size) == 2 else "conv_nd"
    also = {"act": act} if kind == "conv" else {}
    program = g.done(y=g(kind, *g.args.values(), groups=2, **also, **attrs))
    with pytest.MonkeyPatch.context() as m:
        m.setattr(legalize_images, "MOST_COLUMNS", 4096)
        lifted(program, Legalize(), tolerance=1e-5)


@pytest.mark.parametrize("rows", [3, 400])
def test_pads_and_strides_of_hundreds(rows: int) -> None:
    """What is stored and multiplied is what the image has."""
    attrs = {"stride": (511, 511), "pad_lo": (255, 255), "pad_hi": (255, 255)}
    g = SmallGraph(x=((4, rows, 5, 6), "f32"), w=((1, 1, 8, 6), "f32"), b=((8,), "f32"))
    made = lifted(g.done(y=g("conv", *g.args.values(), **attrs)), Legalize())
    assert made == ["broadcast"]
    g = SmallGraph(x=((4, rows, 5, 6), "f32"), w=((3, 3, 8, 6), "f32"), b=((8,), "f32"))
    attrs = {"stride": (100, 100), "pad_lo": (200, 200), "pad_hi": (200, 200)}
    program = g.done(y=g("conv", *g.args.values(), **attrs))
    assert "conv" in lifted(program, Legalize(), tolerance=1e-5)
    (conv,) = ops_of(program, "conv")
    assert max(conv.attrs["pad_lo"]) <= 2 and max(conv.attrs["pad_hi"]) <= 2 and conv.result.shape[2] == 1


def test_every_row_is_an_image() -> None:
    g = SmallGraph(x=((2, 3, 20, 2), "f32"), w=((1, 2, 4, 2), "f32"))
    made = lifted(g.done(y=g("conv", *g.args.values(), stride=(1, 2), pad_lo=(0, 1))), Legalize())
    assert made == ["reshape", "reshape", "conv", "reshape"]


def test_a_kernel_as_wide_as_the_image() -> None:
    g = SmallGraph(x=((2, 6, 7, 2), "f32"), w=((3, 7, 4, 2), "f32"))
    made = lifted(g.done(y=g("conv", *g.args.values(), stride=(2, 1), pad_lo=(1, 0))), Legalize())
    assert made == ["transpose", "reshape", "reshape", "conv"]


def test_bands_and_groups() -> None:
    g = SmallGraph(x=((1, 6, 30, 2), "f32"), w=((3, 3, 4, 2), "f32"))
    made = lifted(
        g.done(y=g("conv", *g.args.values(), pad_lo=(1, 1), pad_hi=(1, 1))), LegalizeFormats(), tolerance=1e-5
    )
    assert made.count("conv") > 2 and made[-1] == "concat"
    g = SmallGraph(x=((1, 3, 3, 6), "f32"), w=((2, 2, 9, 2), "f32"))
    made = lifted(g.done(y=g("conv", *g.args.values(), groups=3)), LegalizeFormats(), tolerance=1e-5)
    assert made.count("conv") >= 3
