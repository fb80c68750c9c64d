"""Functions in steps: vector instructions in few buffers give the bits of one step after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import Arg, one_op
from support.random_steps import random_steps

from tx8fast.errors import ConfigError
from tx8fast.lower.mapped import placed
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.steps import parse_steps, steps_text

#: kinds whose results are rounded correctly, so that bits can be compared
EXACT = ("add", "sub", "mul", "max", "min", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "select")


@given(st.data(), st.integers(0, 1 << 20))
def test_a_map_gives_the_bits_of_its_steps(data, seed) -> None:
    draw = data.draw
    rng = np.random.default_rng(seed)
    dtype, layout = draw(st.sampled_from(["f32", "bf16", "f16"])), draw(st.sampled_from(["dense", "blocked"]))
    shape = draw(st.sampled_from([(70,), (3, 70), (2, 5, 33), (4, 9, 64)]))
    n = draw(st.integers(1, 3))
    args = [Arg(shape, dtype, layout)]
    for _ in range(n - 1):
        cut = draw(st.sampled_from(["full", "full", "scalar", "vector"]))
        own = {"full": shape, "scalar": (1,), "vector": shape[-1:]}[cut]
        args.append(Arg(own, dtype, layout if own == shape else "dense"))
    steps = random_steps(rng, n, EXACT, draw(st.integers(1, 12)))
    case = one_op("map", *args, out=layout, steps=steps)
    inputs = [a.values(rng) for a in args]
    with np.errstate(all="ignore"):
        (want,), got = case.expected(inputs), case.run(inputs)["y0"]
    assert want.dtype == np_dtype(dtype)
    assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True), steps


@given(st.integers(0, 1 << 20), st.booleans())
def test_buffers_are_used_again_and_never_while_their_values_are_needed(seed, convert) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    text = random_steps(rng, n, EXACT, int(rng.integers(1, 30)))
    found = placed(text, n, convert)
    holds = {b: k for k, b in enumerate(found.buffers[:n]) if b >= 0}
    for i, (step, vectors) in enumerate(zip(found.steps, found.vectors, strict=True)):
        for o in step.operands:
            buffer = found.buffers[o] if type(o) is int else -1
            assert buffer < 0 or (holds[buffer] == o and buffer not in vectors.values()), text
        if found.buffers[n + i] >= 0:
            holds[found.buffers[n + i]] = n + i
    assert found.n_buffers <= n * convert + len(found.steps) + 2


def test_a_long_chain_takes_two_buffers():
    text = "neg %0; " + "; ".join(f"add %{k + 1} 1.0" for k in range(40))
    assert placed(text, 1, False).n_buffers == 1 and placed(text, 1, True).n_buffers == 1


@pytest.mark.parametrize(
    "text",
    ["", "neg", "neg 1.0", "neg %1", "add %0", "foo %0", "select 1.0 %0 %0", "add %0 nan", "neg %0;;", "neg %-1"],
)
def test_a_text_of_no_steps_is_refused(text):
    with pytest.raises(ConfigError, match="steps"):
        parse_steps(text, 1)


def test_text_and_steps_are_the_same():
    text = "neg %0; exp %2; add %3 1.0; div %1 %4"
    assert steps_text(parse_steps(text, 2)) == text
