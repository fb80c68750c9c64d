"""Rewrites functions of elements that have no vector instruction into steps that have one.

May import: ir, numerics.{routines.special, steps}, passes.{canonicalize, lift_match}. Must not: round in less than f32: a function becomes one op, all of whose
steps are f32.

Where a formula loses digits (a difference of nearly equal numbers) or ends early (a square beyond f32), another one takes its place there.
The formulas are identities of the functions, but for the series whose error is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tx8fast.ir.core import Op
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.numerics.routines.special import ERF_A, ERF_P
from tx8fast.numerics.steps import Step, steps_text
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_match import static

_FLOATS = ("bf16", "f16", "f32")
#: above it x^2 + 1 is x^2 in f32, and the squares of what lies below it are numbers of f32
_ONE_IS_LOST = 1e6
MOST_POWER = 16
_LARGEST = 3.4028234663852886e38  # of f32


class _Steps:
    """Steps as they are written down: a call adds one and returns the place of its value."""

    def __init__(self, arguments: int) -> None:
        self.places = arguments
        self.steps: list[Step] = []

    def __call__(self, kind: str, *operands: int | float) -> int:
        self.steps.append(Step(kind, operands))
        self.places += 1
        return self.places - 1


def _odd(s: _Steps, x: int, size: int) -> None:
    """`size`, of an odd function at |x|, with the sign of x; zeros as they are."""
    signed = s("select", s("lt", x, 0.0), s("neg", size), size)
    s("select", s("eq", x, 0.0), x, signed)


def _log1p(s: _Steps, t: int) -> int:
    """log(1 + t) with all digits: log(u) t / (u - 1) with u = 1 + t as it is rounded; t where u is 1."""
    u = s("add", t, 1.0)
    off = s("sub", u, 1.0)
    ratio = s("select", s("gt", t, 1e8), 1.0, s("div", t, off))
    return s("select", s("eq", off, 0.0), t, s("mul", s("log", u), ratio))


def _halves(s: _Steps, a: int) -> tuple[int, int]:
    """e^a / 2 and e^-a / 2, from e^(a / 2), so that no value runs over before the result does."""
    root = s("exp", s("mul", a, 0.5))
    back = s("recip", root)
    return s("mul", s("mul", root, 0.5), root), s("mul", s("mul", back, 0.5), back)


def _tan(s: _Steps, x: int) -> None:
    s("div", s("sin", x), s("cos", x))


def _cosh(s: _Steps, x: int) -> None:
    s("add", *_halves(s, s("abs", x)))


def _sinh(s: _Steps, x: int) -> None:
    """Below 1/2 a + a^3/3! + a^5/5! + a^7/7!, whose error is at most a^9/9!, 1.1e-8 of the result."""
    a = s("abs", x)
    large = s("sub", *_halves(s, a))
    q = s("square", a)
    series = s("mul", q, 1 / 5040)
    for c in (1 / 120, 1 / 6):
        series = s("mul", s("add", series, c), q)
    small = s("add", s("mul", series, a), a)
    _odd(s, x, s("select", s("lt", a, 0.5), small, large))


def _asinh(s: _Steps, x: int) -> None:
    """log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1))), log(2 a) where the 1 is lost."""
    a = s("abs", x)
    q = s("square", a)
    below = _log1p(s, s("add", a, s("div", q, s("add", s("sqrt", s("add", q, 1.0)), 1.0))))
    _odd(s, x, s("select", s("gt", a, _ONE_IS_LOST), s("add", s("log", a), math.log(2)), below))


def _acosh(s: _Steps, x: int) -> None:
    """log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1, log(2 x) where the 1 is lost."""
    t = s("sub", x, 1.0)
    below = _log1p(s, s("add", t, s("mul", s("sqrt", t), s("sqrt", s("add", t, 2.0)))))
    s("select", s("gt", x, _ONE_IS_LOST), s("add", s("log", x), math.log(2)), below)


def _atanh(s: _Steps, x: int) -> None:
    a = s("abs", x)
    _odd(s, x, s("mul", _log1p(s, s("div", s("mul", a, 2.0), s("sub", 1.0, a))), 0.5))


#: S. Moshier, Cephes, atanf: the odd polynomial behind x^1 for |x| <= tan(pi/8), error 2e-8
ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


def _atan(s: _Steps, x: int) -> None:
    """Above tan(3 pi/8) pi/2 + atan(-1/a), above tan(pi/8) pi/4 + atan((a - 1) / (a + 1))."""
    a = s("abs", x)
    far, middle = s("gt", a, math.tan(3 * math.pi / 8)), s("gt", a, math.tan(math.pi / 8))
    turned = s("select", middle, s("div", s("sub", a, 1.0), s("add", a, 1.0)), a)
    z = s("select", far, s("neg", s("recip", a)), turned)
    base = s("select", far, math.pi / 2, s("select", middle, math.pi / 4, 0.0))
    q = s("square", z)
    sum_ = s("mul", q, ATAN[0])
    for c in ATAN[1:]:
        sum_ = s("mul", s("add", sum_, c), q)
    _odd(s, x, s("add", s("add", s("mul", sum_, z), z), base))


def _asin(s: _Steps, x: int) -> None:
    _atan(s, s("div", x, s("sqrt", s("mul", s("sub", 1.0, x), s("add", x, 1.0)))))


def _acos(s: _Steps, x: int) -> None:
    _atan(s, s("sqrt", s("div", s("sub", 1.0, x), s("add", x, 1.0))))
    s("mul", s.places - 1, 2.0)


ERF_TERMS = 11


def _erf(s: _Steps, x: int) -> None:
    """Below 1 its series 2 / sqrt(pi) (a - a^3 / 3 + a^5 / (2! 5) - ..), of which 1.3e-8 of the result is left out."""
    a, q = s("abs", x), s("square", x)
    t = s("recip", s("add", s("mul", a, ERF_P), 1.0))
    sum_ = s("mul", t, ERF_A[-1])
    for c in ERF_A[-2::-1]:
        sum_ = s("mul", s("add", sum_, c), t)
    large = s("sub", 1.0, s("mul", sum_, s("exp", s("neg", q))))
    terms = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(ERF_TERMS)]
    series = s("mul", q, terms[-1])
    for c in terms[-2:0:-1]:
        series = s("mul", s("add", series, c), q)
    small = s("mul", s("add", series, terms[0]), a)
    _odd(s, x, s("select", s("lt", a, 1.0), small, large))


def _prelu(s: _Steps, x: int, slope: int) -> None:
    s("select", s("lt", x, 0.0), s("mul", x, slope), x)


#: function of (steps, places of the arguments, attributes)
FUNCTIONS: dict[str, Callable[..., None]] = {
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "erf": _erf,
    "prelu": _prelu,
}


def _bent(s: _Steps, alpha: float, gamma: float, width: float) -> None:
    """gamma (max(x, 0) + alpha (e^(min(x, 0) / width) - 1))"""
    low = s("exp", s("mul", s("min", 0, 0.0), 1.0 / width))
    low = s("mul", s("sub", low, 1.0), alpha * gamma)
    high = s("max", 0, 0.0)
    s("add", s("mul", high, gamma) if gamma != 1.0 else high, low)


def _replaced(op: Op, rw: Rewriter, s: _Steps) -> bool:
    rw.replace_with(op, "map", *op.operands, steps=steps_text(s.steps))
    return True


def _fits(op: Op) -> bool:
    return static(*op.operands, op.result) and all(v.dtype in _FLOATS for v in (*op.operands, op.result))


@pattern(*FUNCTIONS)
def _function(op: Op, rw: Rewriter) -> bool:
    if not _fits(op):
        return False
    s = _Steps(len(op.operands))
    FUNCTIONS[op.kind](s, *range(len(op.operands)))
    return _replaced(op, rw, s)


@pattern("selu", "celu", "thresholded_relu")
def _activation(op: Op, rw: Rewriter) -> bool:
    s, alpha = _Steps(1), op.attrs["alpha"]
    if not _fits(op) or not math.isfinite(alpha):
        return False
    if op.kind == "thresholded_relu":
        s("select", s("gt", 0, alpha), 0, 0.0)
    elif op.kind == "selu" and math.isfinite(op.attrs["gamma"]):
        _bent(s, alpha, op.attrs["gamma"], 1.0)
    elif op.kind == "celu" and alpha > 2.0**-100:
        _bent(s, alpha, 1.0, alpha)
    else:
        return False
    return _replaced(op, rw, s)


@pattern("pow")
def _number_of_times(op: Op, rw: Rewriter) -> bool:
    """x^e = x^n x^f with whole n and f in [0, 1): products, and roots or e^(f log x), whose error grows with f log x alone."""
    x, e = op.operands[0], splat(op.operands[1])
    if e is None or x.type is not op.result.type or not _fits(op) or not 0 < abs(e) <= MOST_POWER:
        return False
    times, rest = divmod(abs(e), 1.0)
    s, factors = _Steps(1), []
    x_at = s("add", 0, 0.0) if rest and e < 0 else 0  # such a power of -0 is that of 0
    square = x_at
    for bit in range(5):
        square = s("square", square) if bit and int(times) >> bit else square
        if int(times) >> bit & 1:
            factors.append(square)
    if rest in (0.25, 0.5, 0.75):
        root = s("sqrt", x_at)
        factors += [root] * (rest >= 0.5) + ([s("sqrt", root)] if rest != 0.5 else [])
    elif rest:
        factors.append(s("exp", s("mul", s("log", x_at), rest)))
    y = factors[0]
    for f in factors[1:]:
        y = s("mul", y, f)
    if rest:  # any power of the smallest infinity that is not whole is the largest
        y = s("select", s("lt", 0, -_LARGEST), s("neg", 0), y)
    if e < 0:
        s("recip", y)
    if s.steps:
        rw.replace_with(op, "map", x, steps=steps_text(s.steps))
    return bool(s.steps)


PATTERNS: tuple[Pattern, ...] = (_function, _activation, _number_of_times)
