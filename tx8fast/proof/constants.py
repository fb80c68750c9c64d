"""Constants of a program as field elements: the simplest rational, or the symbol of a graph's constant.

May import: numpy, proof.primes. Must not: know rows or ops.

A program holds constants rounded to its formats; the graph holds them in float64. Both meet here: a value is rounded
to its format, looked up among the graph's constants rounded to that format, and if the graph has none of that value, it
is the simplest rational (smallest denominator) of all numbers that round to it, so that 1/n stays the inverse of n.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof.primes import word

#: at or below this a constant hides what it is added to
HIDING = -1e30
#: the same in f16, whose lowest number is -65504: its exponential and those of all sums of two are zero long before
HIDING_F16 = -3e4
#: bits of the significand, the leading one included
SIGNIFICAND = {"f32": 24, "bf16": 8, "f16": 11, "tf32": 11}
#: smallest exponent of a normal number's leading bit
LEAST = {"f32": -126, "bf16": -126, "f16": -14, "tf32": -126}
#: largest number
LARGEST = {fmt: (2 - 2.0 ** (1 - bits)) * (2.0**15 if fmt == "f16" else 2.0**127) for fmt, bits in SIGNIFICAND.items()}
#: integers of at most this size are themselves
EXACT = 1 << 24
#: a graph's constant is taken as a fraction if a denominator up to this gives its float64 value
DENOMINATOR = 1 << 14
#: and if a numerator and a denominator up to this give its f32 value, as of 0.1: one f32 number in a thousand is so near to one by chance
SMALL = 128


def hides(value: float, fmt: str) -> bool:
    """Say whether a constant in a format lies so far below everything that what it is added to is hidden."""
    return value <= (HIDING_F16 if fmt == "f16" else HIDING)


def lowest(value: float, fmt: str) -> bool:
    """Say whether a constant that hides is a finite number of a format: less another such number, it is no NaN."""
    return hides(value, fmt) and value >= -LARGEST[fmt]


def round_to(value: float, fmt: str) -> Fraction:
    """Return a finite value rounded to f32 and then to `fmt`, ties to even."""
    first = _round(Fraction(value), "f32")
    return first if fmt == "f32" else _round(first, fmt)


def _step(x: Fraction, fmt: str) -> Fraction:
    """Return the distance of neighbours in `fmt` around x, above x's power of two."""
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    return Fraction(2) ** (max(exponent, LEAST[fmt]) - SIGNIFICAND[fmt] + 1)


def _round(x: Fraction, fmt: str) -> Fraction:
    if not x:
        return x
    step = _step(x, fmt)
    return round(x / step) * step


def simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of the smallest denominator in [low, high], 0 < low <= high (Stern-Brocot)."""
    floor = low.numerator // low.denominator
    if floor == low:
        return Fraction(floor)
    if floor + 1 <= high:
        return Fraction(floor + 1)
    return floor + 1 / simplest(1 / (high - floor), 1 / (low - floor))


def rational(x: Fraction, fmt: str) -> Fraction:
    """Return the simplest rational that rounds to `x`, a value of `fmt`."""
    if not x or (x.denominator == 1 and abs(x) <= EXACT):
        return x
    half = _step(x, fmt) / 2
    found = simplest(abs(x) - half, abs(x) + half)
    return found if x > 0 else -found


def _plain(x: Fraction) -> bool:
    """Say whether a number of some format is an integer, or one divided by a power of two."""
    return x.denominator == 1 and abs(x) <= EXACT or abs(x.numerator) == 1


def _decimal(value: float) -> Fraction:
    """Return the fraction of small numbers that rounds to the same f32 number, 0 if there is none."""
    found = Fraction(value).limit_denominator(SMALL)
    small = found and abs(found.numerator) <= SMALL and _round(found, "f32") == _round(Fraction(value), "f32")
    return found if small else Fraction(0)


class Constants:
    """The constants of one field: pairs (residue modulo p, residue modulo q) by value and format.

    `register` the graph's constants before anything asks for one.
    """

    def __init__(self, seed: int, p: int, q: int) -> None:
        self.seed, self.p, self.q = seed, p, q
        self._known: dict[tuple[str, Fraction], tuple[int, tuple[int, int] | None, float]] = {}
        self._made: dict[tuple[str, float], tuple[int, int]] = {}
        self._direct: dict[float, tuple[int, int]] = {}
        # powers of two take ln 2 as a symbol; log2(e) is its inverse; a constant of the graph that rounds to either is meant first
        ln2 = self._symbol(math.log(2))
        self._enter(math.log(2), ln2, 1)
        self.ln2, self.log2e = ln2, self._inverse(ln2)
        self._enter(1 / math.log(2), self.log2e, 1)

    def copy(self) -> Constants:
        """Return constants that know what these know, to use beside them."""
        made = Constants.__new__(Constants)
        made.__dict__.update({n: dict(v) if isinstance(v, dict) else v for n, v in self.__dict__.items()})
        return made

    def register(self, value: float) -> tuple[int, int]:
        """Note a constant of the graph (float64); its negative, its inverse and products of two are known by it."""
        value = float(value)
        if value in self._direct:
            return self._direct[value]
        fraction = Fraction(value).limit_denominator(DENOMINATOR) if math.isfinite(value) else Fraction(0)
        if not math.isfinite(value) or value <= HIDING or (value == int(value) and abs(value) <= EXACT):
            return self._of(Fraction(int(value))) if math.isfinite(value) and value > HIDING else (0, 0)
        self._made.clear()
        # fractions keep their arithmetic, all others are symbols of their own
        if not fraction or float(fraction) != value:
            fraction = _decimal(value)
        pair = self._of(fraction) if fraction else self._symbol(value)
        others = list(self._direct.items())
        self._direct[value] = pair
        self._enter(value, pair, 0)
        self._enter(1 / value, self._inverse(pair), 1)
        for other, its in [*others, (value, pair)]:
            if abs(value * other) > 2.0**-120:
                self._enter(value * other, self._product(value * other, pair, its), 2)
        return pair

    def _product(self, value: float, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        """Return what a product of two constants is: of n^-0.5 with itself 1 / n, which means of n numbers are made with."""
        fraction = Fraction(value).limit_denominator(DENOMINATOR)
        if fraction and abs(float(fraction) - value) <= abs(value) * 2.0**-50:
            return self._of(fraction)
        return a[0] * b[0] % self.p, a[1] * b[1] % self.q

    def pair(self, value: float, fmt: str) -> tuple[int, int]:
        """Return the residues of a finite constant in format `fmt` ("f32", "bf16", "f16", "tf32").

        Raises SimulationError if two constants of the graph that are not equal round to it.
        """
        key = fmt, float(value)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._find(float(value), fmt)
        return found

    def stored(self, value: float, fmt: str) -> tuple[int, int]:
        """Return the residues of a number that lies among the model's own: one to which two constants round is neither, but itself."""
        x = Fraction(value)
        either = self._known.get((fmt, x), (0, x))[1] is None
        return self._of(x) if either else self.pair(value, fmt)

    def _find(self, value: float, fmt: str) -> tuple[int, int]:
        x = round_to(value, fmt)
        if x.denominator == 1 and abs(x) <= EXACT and (fmt, x) not in self._known:
            return self._of(x)
        _, pair, of = self._known.get((fmt, x), (0, (-1, -1), 0.0))
        if pair is None:
            raise SimulationError(
                f"taking the constant {value} in {fmt}: the graph has two constants that round to it, one of them {of}, "
                "and the proof cannot tell which is meant; compile with a wider format"
            )
        return pair if pair[0] >= 0 else self._of(rational(x, fmt))

    def _enter(self, value: float, pair: tuple[int, int], rank: int) -> None:
        for sign in (1, -1):
            signed = pair if sign == 1 else ((self.p - pair[0]) % self.p, (self.q - pair[1]) % self.q)
            for fmt in SIGNIFICAND:
                key = fmt, round_to(sign * value, fmt)
                if not key[1]:
                    continue  # nothing is nothing: a mask of f16 is no epsilon times another
                if rank == 2 and _plain(key[1]) and key[1] != Fraction(sign * value):
                    continue  # a product that happens to round to one, or to a mean's 1 / 8
                old = self._known.get(key)
                if old is None or rank < old[0]:
                    self._known[key] = rank, signed, value
                elif rank == old[0] and old[1] != signed:
                    # two symbols: an error where one is asked for, but products of two are only a help
                    self._known[key] = rank, None if rank == 0 else old[1], value

    def _symbol(self, value: float) -> tuple[int, int]:
        size = abs(value)
        pair = (
            1 + word("constant", self.seed, size.hex()) % (self.p - 1),
            1 + word("q", self.seed, size.hex()) % (self.q - 1),
        )
        return pair if value > 0 else (self.p - pair[0], self.q - pair[1])

    def _of(self, x: Fraction) -> tuple[int, int]:
        return tuple(x.numerator * pow(x.denominator, -1, m) % m for m in (self.p, self.q))  # type: ignore[return-value]

    def _inverse(self, pair: tuple[int, int]) -> tuple[int, int]:
        return pow(pair[0], -1, self.p), pow(pair[1], -1, self.q)


def as_float(pattern: int, fmt: str) -> float:
    """Return the value of a raw scalar pattern (low bits) in a float format."""
    if fmt == "bf16":
        pattern = (pattern & 0xFFFF) << 16
    if fmt == "f16":
        return float(np.array([pattern & 0xFFFF], np.uint16).view(np.float16)[0])
    if fmt == "tf32":
        pattern &= 0xFFFFE000
    return float(np.array([pattern & 0xFFFFFFFF], np.uint32).view(np.float32)[0])
