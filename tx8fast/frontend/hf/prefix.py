"""Recurrences of single channels over all tokens of a prompt at once: pairs of tokens, pairs of pairs, and back.

May import: ir, frontend.hf. Must not: read files.

Neighbours are put together, which leaves half as many tokens, and so on; what is in front of every second token is then what was
found for the pairs. A prompt of n tokens takes 2 log2(n) steps of half the size each, all on the vector engine.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.ir.core import Value

Parts = tuple[Value, ...]
Join = Callable[[Parts, Parts, int], Parts]


def prefixes(m: Blocks, parts: Parts, join: Join, at: str, span: int = 1) -> Parts:
    """Return what all tokens up to and with each give together, for `parts` [batch, tokens, ..] of every token.

    `join(before, after, span)` puts together what neighbours give, of which the latter are `span` tokens each; it must be associative."""
    seq = parts[0].shape[1]
    if seq == 1:
        return parts
    pairs = seq // 2
    even, odd = ([_every(m, x, first, at) for x in parts] for first in (0, 1))
    upto = prefixes(m, join(tuple(_rows(m, x, 0, pairs, at) for x in even), tuple(odd), span), join, at, 2 * span)
    rest = len(range(2, seq, 2))  # even tokens behind the first, each behind a pair
    if not rest:
        return tuple(m.b("concat", x, y, axis=1, loc=at) for x, y in zip(even, upto, strict=True))
    behind = join(tuple(_rows(m, x, 0, rest, at) for x in upto), tuple(_rows(m, x, 1, rest, at) for x in even), span)
    return tuple(_woven(m, *x, seq, at) for x in zip(even, upto, behind, strict=True))


def _rows(m: Blocks, x: Value, first: int, count: int, at: str) -> Value:
    if not first and count == x.shape[1]:
        return x
    batch, _, *lanes = x.shape
    ones = (1,) * len(x.shape)
    return m.b("slice", x, start=(0, first, *(0,) * len(lanes)), size=(batch, count, *lanes), step=ones, loc=at)


def _every(m: Blocks, x: Value, first: int, at: str) -> Value:
    """Return every other token from `first` on."""
    batch, seq, *lanes = x.shape
    count = len(range(first, seq, 2))
    return m.b(
        "slice",
        x,
        start=(0, first, *(0,) * len(lanes)),
        size=(batch, count, *lanes),
        step=(1, 2, *(1,) * len(lanes)),
        loc=at,
    )


def _woven(m: Blocks, even: Value, upto: Value, behind: Value, seq: int, at: str) -> Value:
    """Put the first token, those behind pairs and those that end pairs into their order."""
    batch, pairs, *lanes = upto.shape
    evens = m.b("concat", _rows(m, even, 0, 1, at), behind, axis=1, loc=at)
    both = (m.b("reshape", _rows(m, x, 0, pairs, at), shape=(batch, pairs, 1, *lanes), loc=at) for x in (evens, upto))
    found = m.b("reshape", m.b("concat", *both, axis=2, loc=at), shape=(batch, 2 * pairs, *lanes), loc=at)
    return found if seq == 2 * pairs else m.b("concat", found, _rows(m, evens, pairs, 1, at), axis=1, loc=at)


def decayed(m: Blocks, left: Value, added: Value, at: str) -> Value:
    """Return h_t = left_t h_(t-1) + added_t for all tokens, where h is zero in front of the first."""

    def join(before: Parts, after: Parts, span: int) -> Parts:
        sums = m.b("add", m.b("mul", after[0], before[1], loc=at), after[1], loc=at)
        return m.b("mul", after[0], before[0], loc=at), sums

    return prefixes(m, (left, added), join, at)[1]
