"""Single operations as JAX lowers them: the compiled program gives JAX's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast.api import compile as compile_model

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
lax = jax.lax


def rand(*shape, dtype=np.float32, seed=0, low=-2.0, high=2.0):
    x = np.random.default_rng([seed, *shape]).uniform(low, high, shape)
    return jnp.asarray(x.astype(np.float32)).astype(dtype)


def ints(*shape, high, low=0, dtype=np.int32, seed=0):
    return jnp.asarray(np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype))


X = rand(3, 5, 16)
P = rand(3, 5, 16, low=0.3, high=3.0, seed=1)
B = rand(3, 5, 16, dtype=jnp.bfloat16)

ELEMENTWISE = {
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y, jnp.maximum(x, y), jnp.minimum(x, y)), X, P),
    "powers": (lambda x: (x**2, x**0.5, x**-1, x**2.5, jnp.sqrt(x), lax.rsqrt(x), jnp.cbrt(x)), P),
    "exponentials": (
        lambda x: (jnp.exp(x), jnp.log(x + 3), jnp.expm1(x), jnp.log1p(x + 3), jnp.tanh(x), lax.logistic(x)),
        X,
    ),
    "trigonometry": (lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x / 2), jnp.arctan(x), jnp.sinh(x), jnp.cosh(x)), X),
    "inverse": (
        lambda x: (jnp.arcsin(x / 3), jnp.arccos(x / 3), jnp.arcsinh(x), jnp.arccosh(x + 4), jnp.arctanh(x / 3)),
        X,
    ),
    "rounding": (lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.sign(x), jnp.abs(x), -x, jnp.trunc(x)), X),
    "round_away": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), X),
    "special": (lambda x: (lax.erf(x), lax.erfc(x), jnp.square(x), lax.erf_inv(x / 3)), X),
    "atan2": (lambda x, y: jnp.arctan2(x, y - 1.5), X, P),
    "atan2 of zeros": (
        lambda x, y: jnp.arctan2(jnp.where(x < 0, -0.0, 0.0), jnp.array([-1.0, 0.0, -0.0, 2.0])[:, None]),
        X[:4, :4],
        P,
    ),
    "comparison": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), X, P),
    "finite": (
        lambda x: (jnp.isfinite(1 / x), jnp.isnan(x), jnp.isinf(1 / x), jnp.isposinf(1 / x), jnp.isneginf(1 / x)),
        X.at[0, 0, 0].set(0.0),
    ),  # fmt: skip
    "choice": (lambda x, y: jnp.where(x > 0, x, y), X, P),
    "choice_scalar": (lambda x, y, i: lax.select(i > 0, x, y), X, P, jnp.int32(1)),
    "choice_of_truth": (lambda x, y: jnp.where(x > 0, y > 1, y > 2), X, P),
    "clamp": (lambda x: (jnp.clip(x, -1, 1), lax.clamp(jnp.float32(-0.5), x, jnp.float32(0.5))), X),
    "remainder": (lambda x, y: (lax.rem(x, y), jnp.mod(x, y)), X, P),
    "bf16": (lambda x: (x + x, jnp.exp(x), jax.nn.gelu(x), x * 3), B),
    "convert": (
        lambda x: (
            x.astype(jnp.int32),
            x.astype(jnp.bfloat16),
            x.astype(jnp.float16),
            x.astype(bool),
            (x > 0).astype(jnp.float32),
        ),
        X,
    ),
    "precision": (lambda x: (lax.reduce_precision(x, 8, 7), lax.reduce_precision(x, 5, 10)), X),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
    "broadcast": (lambda x, y: x + y[:, None] * 2, X, rand(3, 16)),
    "activations": (
        lambda x: (
            jax.nn.relu(x),
            jax.nn.silu(x),
            jax.nn.gelu(x),
            jax.nn.gelu(x, approximate=False),
            jax.nn.softplus(x),
            jax.nn.elu(x),
            jax.nn.leaky_relu(x),
            jax.nn.hard_swish(x),
            jax.nn.relu6(x),
        ),
        X,
    ),  # fmt: skip
}
LEFT, RIGHT = ints(4, 8, low=-50, high=50), ints(4, 8, low=1, high=9, seed=1)
INTEGERS = {
    "arithmetic": (
        lambda a, b: (a + b, a - b, a * b, lax.div(a, b), lax.rem(a, b), a // b, a % b, jnp.abs(a), -a, jnp.sign(a)),
        LEFT,
        RIGHT,
    ),
    "bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << b, a >> b, lax.shift_right_logical(a, b)), LEFT, RIGHT),
    "order": (lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b), jnp.clip(a, -5, 5), a < b, a == b), LEFT, RIGHT),
    "truth": (
        lambda a, b: ((a > 0) & (b > 3), (a > 0) | (b > 3), ~(a > 0), (a > 0) ^ (b > 3), (a > 0) == (b > 3)),
        LEFT,
        RIGHT,
    ),
    "widths": (lambda a: (a.astype(jnp.int8), a.astype(jnp.uint8), a.astype(jnp.int16), a.astype(jnp.float32)), LEFT),
}
MOVES = {
    "reshape": (lambda x: (x.reshape(15, 16), x.reshape(3, 80), x[:, None], x.reshape(-1)), X),
    "transpose": (lambda x: (x.transpose(1, 0, 2), x.transpose(2, 1, 0), jnp.swapaxes(x, 1, 2)), X),
    "transpose_unit": (lambda x: x.reshape(1, 3, 5, 16).transpose(1, 0, 3, 2), X),
    "broadcast_out": (lambda x: (jnp.broadcast_to(x[:, :1], (3, 5, 16)), jnp.broadcast_to(x, (2, 3, 5, 16))), X),
    "broadcast_turned": (lambda x, y: x.T * 1.5 + y[:, None].T, rand(5, 16), rand(5)),
    "repeat": (lambda x: (jnp.tile(x, (1, 2, 1)), jnp.repeat(x, 2, axis=1)), X),
    "slice": (lambda x: (x[1:3, ::2], x[:, -1], x[..., 3:11:3]), X),
    "flip": (lambda x: (jnp.flip(x, 1), x[:, ::-1, ::-1], jnp.roll(x, 2, axis=2)), X),
    "concatenate": (lambda x, y: (jnp.concatenate([x, y, x], 1), jnp.stack([x, y], 2), jnp.concatenate([x, y], -1)), X, P),
    "pad": (lambda x: (jnp.pad(x, ((0, 1), (2, 0), (1, 1))), jnp.pad(x, 1, constant_values=2.5), jnp.pad(x, 1, mode="edge")), X),
    "pad_interior": (lambda x: lax.pad(x, jnp.float32(1), ((0, 0, 0), (1, -1, 2), (-2, 3, 1))), X),
    "pad_computed": (lambda x, v: lax.pad(x, v, ((0, 0, 0), (1, 1, 1), (0, 0, 0))), X, jnp.float32(3)),
    "iota": (lambda x: x + jnp.arange(16) + lax.broadcasted_iota(jnp.float32, (3, 5, 16), 1), X),
    "eye": (lambda x: (x * jnp.eye(5, 16), jnp.tril(x), jnp.triu(x, 1)), X),
    "constants": (lambda x: x + jnp.asarray(np.arange(240, dtype=np.float32).reshape(3, 5, 16)), X),
    "constants_bf16": (lambda x: x + jnp.asarray(np.linspace(-2, 2, 240), jnp.bfloat16).reshape(3, 5, 16)
                       + jnp.asarray([1.5] * 15 + [-3.25], jnp.bfloat16), B),
    "barrier": (lambda x: lax.optimization_barrier(x) + 1, X),
    "result_is_argument": (lambda x, y: (x, y + 1, jnp.zeros((3, 2))), X, P),
}  # fmt: skip


#: near zero, at the borders of what is near, and where only a limit is known
EDGES = [
    0.0,
    -0.0,
    1e-30,
    -1e-12,
    3e-8,
    1e-7,
    -1e-4,
    1e-3,
    0.3,
    -0.7,
    0.9999,
    1.0,
    -1.0,
    1.5,
    80.0,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize(
    "f", [jnp.expm1, jnp.log1p, lambda x: jax.nn.softplus(x * 64)], ids=["expm1", "log1p", "softplus"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_number_near_zero_is_right_by_itself(f, dtype, check):
    """Each element is a model's largest one in turn: a sum with 1 loses what a small number says."""
    x = jnp.asarray([*EDGES, *rand(110, low=-1e-3, high=1e-3).tolist()], jnp.float32).astype(dtype)
    got = check(f, x).run({"arg0": np.asarray(x)})["result0"].astype(np.float64)
    want = np.asarray(jax.jit(f)(x.astype(jnp.float32))).astype(np.float64)
    sound = np.isfinite(want) & (want != 0)
    bound = 1e-6 if dtype == "float32" else 3 * 2.0**-9
    np.testing.assert_allclose(got[sound], want[sound], rtol=bound)


def test_a_softplus_spelled_out_does_not_overflow(tmp_path):
    """jax itself gives infinity: the exponential of 100 is none in f32."""
    x = jnp.asarray([-100.0, 0.0, 100.0])
    (tmp_path / "m.mlir").write_text(jax.jit(lambda x: jnp.log1p(jnp.exp(x))).lower(x).as_text())
    made = compile_model(tmp_path / "m.mlir")
    got = made.run({made.inputs[0].name: np.asarray(x)})["result0"]
    np.testing.assert_allclose(got, [np.exp(-100.0), np.log(2), 100], rtol=1e-6, atol=1e-38)


def test_quotients_by_zero_are_zero(tmp_path):
    x = jnp.asarray([5, -5, 0, 7], jnp.int32)
    (tmp_path / "m.mlir").write_text(jax.jit(lambda x, y: (lax.div(x, y), lax.rem(x, y))).lower(x, x).as_text())
    made = compile_model(tmp_path / "m.mlir")
    got = made.run(dict(zip([t.name for t in made.inputs], (np.asarray(x), np.int32([0, 0, 0, 2])))))
    assert got["result0"].tolist() == [0, 0, 0, 3] and got["result1"].tolist() == [0, 0, 0, 1]


def test_angles_of_infinities(check):
    y, x = np.meshgrid(*[np.float32([0, 1, -2, np.inf, -np.inf])] * 2)
    check(jnp.arctan2, jnp.asarray(y), jnp.asarray(x), tol=1e-6)


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.slow(but_every=5)
def test_elementwise(check, name):
    f, *args = ELEMENTWISE[name]
    check(f, *args)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(check, name):
    f, *args = INTEGERS[name]
    check(f, *args)


@pytest.mark.parametrize("name", MOVES)
def test_moves(check, name):
    f, *args = MOVES[name]
    check(f, *args)


DOTS = {
    "matrix": ("mk,kn->mn", (8, 16), (16, 24)),
    "left_turned": ("km,kn->mn", (16, 8), (16, 24)),
    "right_turned": ("mk,nk->mn", (8, 16), (24, 16)),
    "both_turned": ("km,nk->mn", (16, 8), (24, 16)),
    "activations": ("bsd,dn->bsn", (2, 5, 16), (16, 24)),
    "heads_in": ("bsd,dhe->bshe", (2, 5, 16), (16, 4, 8)),
    "heads_out": ("bshe,hed->bsd", (2, 5, 4, 8), (4, 8, 16)),
    "scores": ("bqhd,bkhd->bhqk", (2, 5, 4, 8), (2, 7, 4, 8)),
    "values": ("bhqk,bkhd->bqhd", (2, 4, 5, 7), (2, 7, 4, 8)),
    "grouped": ("bqhgd,bkhd->bhgqk", (2, 5, 2, 3, 8), (2, 7, 2, 8)),
    "vector": ("mk,k->m", (8, 16), (16,)),
    "row": ("k,kn->n", (16,), (16, 8)),
    "inner": ("k,k->", (16,), (16,)),
    "outer": ("m,n->mn", (8,), (16,)),
    "batched": ("bmk,bkn->bmn", (3, 4, 16), (3, 16, 8)),
    "weights_left": ("nd,bsd->bsn", (24, 16), (2, 5, 16)),
    "two_contracted": ("abm,abn->mn", (3, 4, 8), (3, 4, 16)),
}


@pytest.mark.parametrize("name", DOTS)
def test_dot_general(check, name):
    equation, a, b = DOTS[name]
    check(lambda x, y: jnp.einsum(equation, x, y), rand(*a), rand(*b, seed=1))


def test_dot_formats(check):
    a, b = rand(8, 32, dtype=jnp.bfloat16), rand(32, 16, dtype=jnp.bfloat16, seed=1)
    check(lambda x, y: (x @ y, jnp.matmul(x, y, preferred_element_type=jnp.float32)), a, b)
    check(lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), ints(8, 32, low=-9, high=9, dtype=np.int8),
          ints(32, 16, low=-9, high=9, dtype=np.int8))  # fmt: skip
    check(lambda x, y: x @ y, ints(8, 32, low=-9, high=9), ints(32, 16, low=-9, high=9))


CONVS = {
    "same": ((2, 9, 8, 6), (3, 3, 6, 16), {"padding": "SAME"}, "NHWC", "HWIO"),
    "channel_first": ((2, 6, 9, 8), (16, 6, 3, 3), {"padding": "VALID"}, "NCHW", "OIHW"),
    "strided": ((2, 9, 8, 6), (3, 2, 6, 16), {"padding": ((1, 0), (0, 1)), "window_strides": (2, 3)}, "NHWC", "HWIO"),
    "dilated": ((1, 12, 11, 6), (3, 3, 6, 8), {"padding": "SAME", "rhs_dilation": (2, 3)}, "NHWC", "HWIO"),
    "depthwise": ((2, 9, 8, 16), (3, 3, 1, 16), {"padding": "SAME", "feature_group_count": 16}, "NHWC", "HWIO"),
    "grouped": ((2, 9, 8, 8), (3, 3, 4, 6), {"padding": "SAME", "feature_group_count": 2}, "NHWC", "HWIO"),
    "transposed": ((1, 5, 6, 8), (3, 3, 8, 4), {"padding": ((2, 2), (1, 2)), "lhs_dilation": (2, 2)}, "NHWC", "HWIO"),
    "negative_pad": ((1, 9, 9, 8), (3, 3, 8, 4), {"padding": ((-1, 0), (2, -2))}, "NHWC", "HWIO"),
    "line": ((2, 12, 8), (3, 8, 16), {"padding": "SAME"}, "NHC", "HIO"),
    "volume": ((1, 5, 6, 4, 3), (2, 3, 2, 3, 8), {"padding": "VALID"}, "NHWDC", "HWDIO"),
}


@pytest.mark.parametrize("name", CONVS)
def test_convolution(check, name):
    a, b, options, left, right = CONVS[name]
    options = {"window_strides": (1,) * (len(a) - 2), **options}
    check(
        lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=(left, right, left), **options),
        rand(*a),
        rand(*b, seed=1),
    )


def test_reversed_window(check):
    check(
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", transpose_kernel=True), rand(1, 5, 6, 8), rand(3, 3, 4, 8)
    )


def windows(x, init, f, size, stride, padding="VALID", dilation=None):
    return lax.reduce_window(x, init, f, size, stride, padding, window_dilation=dilation)


IMAGE = rand(2, 8, 10, 16)
REDUCTIONS = {
    "sums": (lambda x: (x.sum(-1), x.sum(1), x.sum((0, 2)), x.sum(), x.mean(-1, keepdims=True), x.mean(0)), X),
    "bounds": (lambda x: (x.max(-1), x.min(1), x.max(), jnp.prod(x, 1)), X),
    "norms": (lambda x: (jnp.linalg.norm(x, axis=-1), x.std(-1), x.var(1)), X),
    "integers": (lambda a: (a.sum(1), a.max(0), a.min()), LEFT),
    "truth": (lambda a: ((a > 0).all(1), (a > 40).any(0), (a > -60).all()), LEFT),
    "places": (lambda x: (x.argmax(-1), x.argmin(1), jnp.argmax(x, 0)), X),
    "places_int": (lambda a: (a.argmax(-1), a.argmin(0)), LEFT),
    "start": (lambda x: lax.reduce(x, jnp.float32(5), lax.add, (1,)), X),
    "max_pool": (lambda x: windows(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1)), IMAGE),
    "max_pool_same": (lambda x: windows(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), IMAGE),
    "max_pool_first": (lambda x: windows(x, -jnp.inf, lax.max, (1, 1, 2, 3), (1, 1, 2, 1)), IMAGE),
    "avg_pool": (lambda x: windows(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1)) / 4, IMAGE),
    "line_pool": (lambda x: windows(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME"), X),
    "min_window": (lambda x: windows(x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 2, 1), dilation=(1, 2, 1, 1)), IMAGE),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x, -1), lax.cumsum(x, 1, reverse=True)), X),
    "cummax": (lambda x: (lax.cummax(x, 1), lax.cumprod(x, 1)), X),
    "softmax": (lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.softmax(x, 1), jax.nn.logsumexp(x, -1)), X),
    "sort": (lambda x: (jnp.sort(x, -1), jnp.sort(x, 1), -jnp.sort(-x, 0), jnp.argsort(x, -1)), X),
    "sort_ints": (lambda a: (jnp.sort(a, 1), jnp.argsort(a, 0)), LEFT),
    "top_k": (lambda x: lax.top_k(x, 4), X),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(check, name):
    f, *args = REDUCTIONS[name]
    check(f, *args)


TABLE, IDS = rand(20, 16), ints(3, 7, high=20)
POS = jnp.int32(3)
INDEXING = {
    "take": (lambda t, i: (jnp.take(t, i, axis=0), t[i], t.at[i].get(mode="clip")), TABLE, IDS),
    "take_last": (lambda t, i: jnp.take(t, i, axis=1, mode="clip"), TABLE, ints(5, high=16)),
    "take_outside": (
        lambda t, i: (t.at[i].get(mode="fill", fill_value=0), t.at[i].get(mode="clip")),
        TABLE,
        ints(3, 7, low=-30, high=40),
    ),
    "take_along": (lambda x, i: jnp.take_along_axis(x, i, axis=-1), X, ints(3, 5, 4, high=16)),
    "pairs": (lambda t, i, j: t[i, j], TABLE, ints(6, high=20), ints(6, high=16)),
    "middle": (lambda x, i: x[:, i], X, ints(4, high=5)),
    "window": (lambda x, i: jax.vmap(lambda at: lax.dynamic_slice(x, (at, 2), (3, 5)))(i), TABLE, ints(4, high=25)),
    "batched": (lambda x, i: jax.vmap(lambda r, at: r[at])(x, i), X, ints(3, 2, high=5)),
    "dynamic_slice": (
        lambda x, i: (lax.dynamic_slice(x, (0, i, 0), (3, 2, 16)), lax.dynamic_index_in_dim(x, i, 1)),
        X,
        POS,
    ),
    "dynamic_slice_outside": (lambda x, i: lax.dynamic_slice(x, (i, i - 9, i + 9), (2, 2, 4)), X, POS),
    "static_update": (lambda x, y: lax.dynamic_update_slice(x, y, (1, 2, 0)), X, rand(2, 2, 16)),
    "cache_update": (lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i, 0)), X, rand(3, 1, 16), POS),
    "cache_outside": (lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i + 7, 0)), X, rand(3, 2, 16), POS),
    "mixed_update": (lambda x, y, i: lax.dynamic_update_slice(x, y, (1, i, 0)), X, rand(1, 1, 16), POS),
    "two_moving": (lambda x, y, i: lax.dynamic_update_slice(x, y, (i - 2, i, 0)), X, rand(2, 2, 16), POS),
    "line_update": (lambda x, y, i: lax.dynamic_update_slice(x, y, (i,)), rand(12), rand(3), POS),
    "set_row": (lambda t, u, i: t.at[i].set(u), TABLE, rand(16), POS),
    "set_row_outside": (lambda t, u, i: t.at[i + 40].set(u), TABLE, rand(16), POS),
    "set_rows": (lambda t, u: t.at[jnp.array([2, 5, 7])].set(u), TABLE, rand(3, 16)),
    "set_runtime": (lambda t, u, i: t.at[i].set(u), TABLE, rand(3, 16), jnp.array([4, 1, 19])),
    "set_some_outside": (lambda t, u, i: t.at[i].set(u), TABLE, rand(3, 16), jnp.array([4, 25, 19])),
    "add_rows": (lambda t, u, i: t.at[i].add(u), TABLE, rand(4, 16), jnp.array([4, 4, 19, 33])),
    "max_rows": (lambda t, u, i: t.at[i].max(u), TABLE, rand(3, 16), jnp.array([4, 4, 19])),
    "add_column": (lambda t, u, i: t.at[:, i].add(u), TABLE, rand(20, 3), jnp.array([4, 4, 9])),
    "set_points": (lambda t, u, i, j: t.at[i, j].set(u), TABLE, rand(3), jnp.array([4, 1, 19]), jnp.array([0, 9, 15])),
    "batched_set": (
        lambda x, u, i: jax.vmap(lambda r, v, at: r.at[at].set(v))(x, u, i),
        X,
        rand(3, 16),
        ints(3, high=5),
    ),
    "one_hot": (lambda i: jax.nn.one_hot(i, 20), IDS),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(check, name):
    f, *args = INDEXING[name]
    check(f, *args)


def scan_layers(x, w):
    return lax.scan(lambda h, m: (jnp.tanh(h @ m), h.sum()), x, w)


CONTROL = {
    "scan": (scan_layers, rand(4, 16), rand(3, 16, 16, seed=1) / 4),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, h: h * 0.5 + i, x), X),
    "while": (lambda x: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 3, s[1] + 1), (1, x))[1], X),
    "cond": (lambda i, x: lax.cond(i > 2, lambda v: v + 1, lambda v: v * 2, x), POS, X),
    "switch": (lambda i, x: lax.switch(i, [lambda v: v, lambda v: v * 2, lambda v: -v], x), jnp.int32(1), X),
    "call": (lambda x: jax.jit(lambda v: jax.nn.silu(v))(x) + jax.jit(lambda v: v * 2)(x), X),
    "checkpoint": (lambda x: jax.checkpoint(lambda v: jnp.sin(v) * 2)(x), X),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control(check, name):
    f, *args = CONTROL[name]
    check(f, *args)
