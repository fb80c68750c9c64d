"""Laws of the field: exponentials, inverses, maxima, constants across formats, products."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tx8fast._kernels import _facade_shadow as kernel
from tx8fast.errors import SimulationError
from tx8fast.graph_table import TensorSpec
from tx8fast.proof import products
from tx8fast.proof.cells import (
    ABSENT,
    FINITE,
    GAP,
    HIDDEN,
    HIGHEST,
    LOWEST,
    MAXIMUM,
    UNDEFINED,
    Elements,
    choose,
    join,
    rounded,
)
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.constants import as_float, simplest
from tx8fast.proof.draw import input_value
from tx8fast.proof.field import Field
from tx8fast.proof.primes import is_prime, primes_of
from tx8fast.proof.recipes import relation


def same(a: Elements, b: Elements) -> bool:
    sides = a.q is b.q is None or (a.q is not None and b.q is not None and bool((a.q == b.q).all()))
    return bool((a.values() == b.values()).all()) and sides


@pytest.fixture(params=[0, 1, 77])
def field(request) -> Field:
    return Field(request.param)


def test_primes():
    for seed in range(20):
        p, q, omega = primes_of(seed)
        assert is_prime(p) and is_prime(q) and p == 2 * q + 1 and p < 1 << 23 and omega != 1 and pow(omega, q, p) == 1
        assert products.terms(p) * (p // 2) ** 2 + p <= 1 << 53 and products.terms(p) >= 500
    assert len({primes_of(seed)[0] for seed in range(20)}) > 15
    assert [n for n in range(60) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]


def test_a_softmax_does_not_depend_on_its_maximum_or_blocks(field):
    z, v = field.random("z", (6, 8)), field.random("v", (8, 3))
    top = field.reduce_max(z, 1, True)
    e = field.exp(field.sub(z, top))
    whole = field.mul(field.matmul(e, v), field.inv(field.sum(e, 1, True)))
    # online: two blocks of keys, the first sum rescaled
    a, b = z.at((slice(None), slice(0, 3))), z.at((slice(None), slice(3, 8)))
    first = field.reduce_max(a, 1, True)
    both = field.maximum(first, field.reduce_max(b, 1, True))
    assert same(both, top)
    rescale = field.exp(field.sub(first, both))
    e1, e2 = field.exp(field.sub(a, first)), field.exp(field.sub(b, both))
    total = field.add(field.mul(field.sum(e1, 1, True), rescale), field.sum(e2, 1, True))
    mix = field.add(field.mul(field.matmul(e1, v.at(slice(0, 3))), rescale), field.matmul(e2, v.at(slice(3, 8))))
    assert same(field.mul(mix, field.inv(total)), whole)
    assert not same(field.mul(mix, field.inv(field.sum(e2, 1, True))), whole)


def test_hidden_elements_are_exact_zeros(field):
    z, hidden = field.random("z", (4, 5)), field.constant(-3e38)
    mask = np.arange(5) < 3
    masked = field.add(z, choose(mask, field.numbers(np.zeros(5, int)), hidden.broadcast_to((5,))))
    top = field.reduce_max(masked, 1, True)
    assert same(top, field.reduce_max(z.at((slice(None), slice(0, 3))), 1, True))
    e = field.exp(field.sub(masked, top))
    assert (e.p[:, 3:] == 0).all() and (e.p[:, :3] != 0).all()
    assert (field.exp(hidden).p == 0).all() and (field.sub(z, hidden).p == UNDEFINED).all()
    assert (field.mul(hidden, field.numbers(np.array([0, 1]))).values() == [0, HIDDEN]).all()
    assert same(field.maximum(z, hidden.broadcast_to((4, 5))), z)
    # one element that is seen is itself, whatever lies beside it
    alone = choose(np.arange(5) == 2, z, Elements(np.full((4, 5), HIDDEN, np.uint32), z.q))
    assert same(field.reduce_max(alone, 1), z.at((slice(None), 2)))


@pytest.mark.parametrize("product", ["engine", "field"])
def test_a_first_slice_of_which_nothing_is_seen_is_forgotten(field, product):
    """Where the second slice shows something, and else all is unknown; nothing but the rescaling forgets."""
    z, v = field.random("z", (6, 4)), field.random("v", (8, 3))
    low = field.constant(-3e38, shape=(6, 4))
    first = field.add(low, field.random("hidden", (6, 4)))
    seen = np.arange(6)[:, None] < 5
    second = choose(seen, z, field.add(low, z))

    def mixed(e: Elements, values: Elements) -> Elements:
        if product == "field":
            return field.matmul(e, values)
        return products.multiply(field, *(products.operand(x, field.p, field.q) for x in (e, values)))

    one, two = field.reduce_max(first, 1, True), field.reduce_max(second, 1, True)
    top = field.maximum(one, two)
    assert (one.p == LOWEST).all() and same(top.at(slice(5)), two.at(slice(5))) and (top.p[5] == LOWEST).all()
    e1, e2 = field.exp(field.add(first, field.neg(one))), field.exp(field.add(second, field.neg(top)))
    old = mixed(e1, v.at(slice(0, 4)))
    assert (e1.p == FINITE).all() and (old.p == FINITE).all() and (field.sum(e1, 1).p == FINITE).all()
    new, rescale = mixed(e2, v.at(slice(4, 8))), field.exp(field.sub(one, top))
    assert (rescale.p == [[0]] * 5 + [[FINITE]]).all()
    made = field.add(field.mul(old, rescale), new)
    assert same(made.at(slice(5)), new.at(slice(5))) and (made.p[5] == FINITE).all()
    assert (field.add(old, new).p & UNDEFINED).all() and (field.inv(made).p[5] == UNDEFINED).all()


def test_what_is_finite_and_else_unknown_is_no_value(field):
    x, zero = field.random("x", (1,)), field.numbers(np.zeros(1, int))
    low, infinite = field.constant(-3.4e38, shape=(1,)), field.constant(float("-inf"), shape=(1,))
    gap = field.sub(low, low)
    finite = field.exp(gap)
    assert (low.p == LOWEST, infinite.p == HIDDEN, gap.p == GAP, finite.p == FINITE) == (True,) * 4
    assert field.neg(low).p == HIGHEST and field.neg(field.neg(low)).p == LOWEST and field.neg(infinite).p == UNDEFINED
    for made in (
        field.add(finite, x),
        field.sub(x, finite),
        field.mul(finite, x),
        field.mul(finite, finite),
        field.neg(finite),
    ):
        assert made.p == FINITE
    assert field.mul(finite, zero).p == 0 and field.mul(gap, zero).p == UNDEFINED
    # neither an infinite number less itself, nor what may overflow, nor a function of what is unknown
    for made in (field.sub(infinite, infinite), field.sub(low, infinite), field.sub(infinite, low), field.sub(x, low), field.exp(finite),
                 field.add(gap, x), field.inv(finite), field.atom("tanh", finite), field.maximum(finite, x), field.seal(finite),
                 field.exp(field.neg(low)), field.mul(finite, low), field.add(finite, low), field.exp(field.add(gap, gap))):  # fmt: skip
        assert made.p == UNDEFINED
    assert field.add(low, low).p == HIDDEN and field.mul(low, x).p == HIDDEN and field.add(low, x).p == LOWEST
    assert field.maximum(infinite, low).p == field.maximum(low, infinite).p == LOWEST
    assert field.maximum(infinite, infinite).p == HIDDEN and field.seal(low).p == HIDDEN
    assert field.reduce_max(join([infinite, low], 0), 0).p == LOWEST and rounded(low, "f32").p == LOWEST
    assert rounded(low, "f16").p == rounded(low, "bf16").p == HIDDEN


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_what_is_infinite_is_above_all_numbers_and_no_value(field, fmt):
    low, x = field.constant(-3.4e38, fmt, (1,)), field.random("x", (1,))
    infinite, unknown = field.constant(float("inf"), fmt, (1,)), field.constant(float("nan"), fmt, (1,))
    for a in (x, field.neg(x), low, field.constant(float("-inf"), fmt, (1,)), field.constant(60000.0, fmt, (1,))):
        for b, c in ((a, infinite), (infinite, a)):
            held = {n: relation(field, n, b, c, Comparisons()).p[0] for n in ("eq", "ne", "lt", "le", "gt", "ge")}
            less = int(b is a)
            assert held == {"eq": 0, "ne": 1, "lt": less, "le": less, "gt": 1 - less, "ge": 1 - less}
    assert [relation(field, n, infinite, infinite, Comparisons()).p[0] for n in ("eq", "lt", "le")] == [1, 0, 1]
    for other in (unknown, field.undefined((1,)), field.neg(infinite)):
        assert relation(field, "eq", other, infinite, Comparisons()).p == UNDEFINED
    for made in (field.add(infinite, x), field.mul(infinite, field.numbers(np.zeros(1, int))), field.inv(infinite), field.neg(infinite),
                 field.sub(infinite, infinite), field.maximum(infinite, x), field.minimum(infinite, x), field.exp(infinite)):  # fmt: skip
        assert made.p == UNDEFINED


def test_lowest_numbers_of_formats(field):
    for fmt, least in (("f32", -3.4028234663852886e38), ("bf16", -3.3895313892515355e38), ("f16", -65504.0)):
        assert field.constant(least, fmt).p == LOWEST and field.constant(1.01 * least, fmt).p == HIDDEN
    assert field.constant(-65504.0).p < field.p


def test_maxima_count_every_operand(field):
    x = field.random("x", (3, 6))
    whole = field.reduce_max(x, 1)
    assert (whole.p & MAXIMUM).all()
    for k in range(6):
        keep = [i for i in range(6) if i != k]
        assert (field.reduce_max(x.at((slice(None), keep)), 1).p != whole.p).all()
    assert same(field.reduce_max(x.at((slice(None), slice(0, 1))), 1), x.at((slice(None), 0)))
    a, b = x.at(0), x.at(1)
    assert same(field.minimum(a, b), field.neg(field.maximum(field.neg(a), field.neg(b))))
    assert same(field.reduce_min(x, 0), field.minimum(field.minimum(a, b), x.at(2)))
    assert not same(field.relu(a), a)


def test_inverses_and_roots(field):
    x = field.random("x", (40,))
    assert same(field.mul(x, field.inv(x)), field.numbers(np.ones(40, int)))
    zero = field.numbers(np.zeros(2, int))
    assert same(field.inv(zero), zero)
    root = field.atom("sqrt", x)
    assert same(field.mul(field.rsqrt(x), root), field.numbers(np.ones(40, int)))
    assert (field.atom("sqrt", x).p == root.p).all() and (field.atom("tanh", x).p != root.p).any()
    assert (field.order(field.neg(x)) == -field.order(x)).all()
    assert same(field.pow2(field.mul(x, field.constant(1 / np.log(2)))), field.exp(x))


def test_exponentials_of_exponentials_are_functions_only(field):
    x, y = field.random("x", (9,)), field.random("y", (9,))
    e = field.exp(x)
    assert e.q is None and same(field.exp(e), field.exp(e))
    assert not same(field.exp(field.add(e, field.exp(y))), field.mul(field.exp(e), field.exp(field.exp(y))))
    sealed = field.seal(e)
    assert sealed.q is not None and not (sealed.q == ABSENT).any() and (sealed.p != e.p).any()


@pytest.mark.parametrize("n", [2, 3, 7, 8, 100, 511, 768, 4096, 14336])
def test_inverses_of_counts_are_exact_in_f32(field, n):
    one = field.numbers(np.array(1))
    assert same(field.mul(field.constant(float(np.float32(1 / n))), field.numbers(np.array(n))), one)
    field.constants.register(1 / n)
    rounded = float(ml_dtypes.bfloat16(np.float32(1 / n)))
    assert same(field.mul(field.constant(rounded, "bf16"), field.numbers(np.array(n))), one)


def test_constants_of_the_graph_are_found_in_every_format(field):
    scale = 128**-0.5
    symbol = Elements(*(np.array(x, np.uint32) for x in field.constants.register(scale)))
    field.constants.register(1e-12)
    for fmt, kind in (("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        seen = float(kind(np.float32(scale)))
        assert same(field.constant(seen, fmt), symbol), fmt
        assert same(field.constant(-seen, fmt), field.neg(symbol)), fmt
        assert same(field.constant(float(kind(np.float32(1 / scale))), fmt), field.inv(symbol)), fmt
    assert same(field.constant(float(np.float32(1e-12))), field.constant(1e-12))
    assert not same(field.constant(float(np.nextafter(np.float32(scale), np.float32(1)))), symbol)


def test_nothing_is_nothing_beside_constants_that_round_to_it(field):
    """The square of an epsilon is 0 in f16, and so is a mask where it hides nothing."""
    for value in (1e-5, 1e-12):
        field.constants.register(value)
    for fmt in ("f16", "bf16", "f32"):
        assert field.constants.pair(0.0, fmt) == (0, 0) == field.constants.pair(-0.0, fmt)


@pytest.mark.parametrize("n", [8, 96, 128])
def test_a_root_beside_a_mean_leaves_the_mean_alone(field, n):
    """Attention of one head behind a norm: n^-0.5 with itself is 1 / n, but what a mean is made with is the inverse of n."""
    root = field.constants.register(n**-0.5)
    assert (
        field.constants.pair(1 / n, "f32")
        == field.constants.register(1 / n)
        != field.constants.pair(n**-0.5, "f32")
        == root
    )


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(
    "a, b, n", [(0.1, 1.25, 8), (0.8, 1.25, 1), (0.01, 6.25, 16), (0.1, 0.625, 16), (0.4, 1.25, 2)]
)
def test_constants_whose_product_rounds_to_a_mean_leave_it_alone(field, kind, a, b, n):
    """A slope of 0.1 and a bound of 1.25 beside a norm over 8: 1 / 8 is no product of theirs."""
    slope, bound = field.constants.register(kind(a)), field.constants.register(kind(b))
    for fmt in ("f32", "bf16", "f16"):
        assert field.constants.pair(1 / n, fmt) == field.constants.register(Fraction(1) / Fraction(n)), fmt
        assert (field.constants.pair(kind(a), fmt), field.constants.pair(kind(b), fmt)) == (slope, bound), fmt


def test_integers_without_values_are_drawn(field):
    for shape in ((0,), (3, 0)):
        assert input_value(field, "x", TensorSpec(shape, "i64"), None).shape == shape


def test_constants_that_cannot_be_told_apart_are_an_error(field):
    field.constants.register(0.1234567)
    field.constants.register(0.1234568)
    with pytest.raises(SimulationError, match="two constants"):
        field.constant(0.12345, "bf16")
    assert not same(field.constant(0.1234567), field.constant(0.1234568))
    near = Fraction(253, 2048)  # what both are in bf16, and a weight is neither of them
    assert float(near) == float(ml_dtypes.bfloat16(0.1234567)) == float(ml_dtypes.bfloat16(0.1234568))
    words = (near.numerator * pow(near.denominator, -1, prime) % prime for prime in (field.p, field.q))
    assert same(field.numbers(np.array(float(near)), "bf16"), field.residues_of(*words))


def test_simplest_rationals():
    from fractions import Fraction as F

    assert (
        simplest(F(3, 10), F(4, 10)) == F(1, 3)
        and simplest(F(2), F(9, 4)) == 2
        and simplest(F(31, 10), F(32, 10)) == F(16, 5)
    )
    assert as_float(0x3F80, "bf16") == as_float(0x3F800000, "f32") == as_float(0x3C00, "f16") == 1.0


@pytest.mark.parametrize("depth", [0, 1, 5, 511, 523, 1100, 3000])
def test_products_are_exact(field, depth):
    a, b = field.random("a", (2, 3, depth)), field.random("b", (depth, 4))
    made = field.matmul(a, b)
    assert made.q is not None
    assert (made.p == a.p.astype(object) @ b.p.astype(object) % field.p if depth else made.p == 0).all()
    assert (made.q == a.q.astype(object) @ b.q.astype(object) % field.q if depth else made.q == 0).all()
    assert field.matmul(a, b, sides="p").q is None


def test_products_of_special_elements_are_undefined(field):
    a, b = field.random("a", (3, 4)), field.random("b", (4, 2))
    a.p[1, 2] = HIDDEN
    assert ((field.matmul(a, b).p == UNDEFINED) == [[0, 0], [1, 1], [0, 0]]).all()
    assert a.q is not None
    a.q[2, 0] = ABSENT
    made = field.matmul(a, b)
    assert made.q is not None and ((made.q == ABSENT) == [[0, 0], [0, 0], [1, 1]]).all()


def test_ones_repeat_what_hides(field):
    a, ones = field.random("a", (3, 1)), field.numbers(np.ones((1, 2), int))
    a.p[1, 0] = HIDDEN
    made = field.matmul(a, ones)
    assert (made.p[1] == HIDDEN).all() and (made.p[::2] == a.p[::2]).all()
    assert made.q is not None and (made.q[::2] == a.q[::2]).all() and field.matmul(a, ones, sides="p").q is None


def test_random_elements_depend_on_seed_key_and_number_alone(field):
    x = field.random("w", (100,))
    assert same(field.random("w", (60,), first=40), x.at(slice(40, 100)))
    assert (
        not (field.random("v", (100,)).p == x.p).any()
        and not (Field(field.seed + 1).random("w", (100,)).p == x.p).any()
    )
    assert x.q is not None and x.p.max() < field.p and x.q.max() < field.q
    parts = join([x.at(slice(0, 30)), x.at(slice(30, 100))], 0)
    assert same(parts, x)


@pytest.mark.parametrize("fmt, largest", [("f32", 3.4028234e38), ("bf16", float("inf")), ("f16", 65504.0)])
def test_a_bound_above_all_numbers_bounds_nothing(fmt, largest):
    field = Field(1)
    x = field.random("x", (5,))
    assert (field.at_most(x, largest, fmt).p == x.p).all()
    assert (field.at_most(x, 6.0, fmt).p == field.minimum(x, field.constant(6.0, fmt)).p).all()


def test_thin_streams_are_matrices_of_low_rank(field):
    thin = Field(field.seed, {"w": (40, 70)})
    x = thin.random("w", (40, 70))
    assert thin.is_thin("w") and not thin.is_thin("v") and same(thin.random("v", (9,)), field.random("v", (9,)))
    assert (
        same(thin.random("w", (3, 70), first=5 * 70), x.at(slice(5, 8))) and thin.random("w", (9,), sides="p").q is None
    )
    assert x.q is not None and len(np.unique(x.p)) > 2790 and len(np.unique(x.q)) > 2790
    for words, modulus in ((x.p, field.p), (x.q, field.q)):
        assert products.factors(products.centred(words, modulus), modulus) is not None
        words[30, 60] ^= 1
        assert products.factors(products.centred(words, modulus), modulus) is None


@pytest.mark.parametrize("which", ["left", "right", "both", "none"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_thin_matrices(field, which, turned, monkeypatch):
    """They are what they are without a look at the factors, also where what is known of a left operand is used again."""
    shapes = (64, 200), (200, 90)
    thin = Field(field.seed, {name: s for name, s in zip(("left", "right"), shapes) if which in (name, "both")})
    left, right = (products.centred(thin.random(name, s).p, field.p) for name, s in zip(("left", "right"), shapes))
    if turned:
        left, right = (np.ascontiguousarray(x.T).T for x in (left, right))
    inner = products.Inner()
    made = [
        kernel.residues(products.sums(left, y, field.p, inner), field.p) for y in (right, np.roll(right, 7, 1), -right)
    ]
    assert (inner.made is not None) == (which in ("right", "both"))
    monkeypatch.setattr(products, "LOOK", 1 << 30)
    for found, y in zip(made, (right, np.roll(right, 7, 1), -right)):
        assert (found == products.total(left, y, field.p)).all()


def test_a_matrix_with_a_singular_corner_is_multiplied_as_it_is(field):
    a = np.zeros((64, 64))
    assert products.factors(a, field.p) is None and (products.sums(a, a, field.p) == 0).all()


def test_the_mean_of_no_elements_is_one_number_of_its_own(field):
    nothing = field.mean(field.random("none", (3, 0)), 1)
    again = field.mean(field.random("other", (2, 0, 4)), (1, 2), keepdims=True)
    assert nothing.shape == (3,) and again.shape == (2, 1, 1)
    assert len({*nothing.values().tolist(), *again.values().reshape(-1).tolist()}) == 1
    assert not (nothing.values() == field.numbers(np.zeros(3)).values()).any()
