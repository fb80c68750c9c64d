"""Routines that move elements, or make them without computing: whole tensors, parts, look-ups and updates.

May import: math, isa.routines.base. Must not: execute one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.isa.routines.base import (
    WORD_BYTES,
    Call,
    Operand,
    axis,
    axis_of,
    choice,
    copied,
    copied_words,
    declare,
    dense_strides,
    real,
    whole,
    wholes,
)
from tx8fast.isa.work import NUMBER_WORK, Work
from tx8fast.numerics.layout import block_size, blocked_bytes, npc

PAD_MODES = ("constant", "edge", "reflect", "wrap")
COMBINES = ("set", "add", "mul", "max", "min")


def _moved(x: Operand, shape, strides, out: Operand) -> Work:
    """The work of copying `shape` elements of x that lie `strides` apart to the result's."""
    if x.dtype != out.dtype:
        return Work(1, 1, 1) * math.prod(shape)
    return copied(shape, x.size, strides, out.strides)


def _same(call: Call) -> Work:
    x = call.given(0)
    return _moved(x, x.shape, x.strides, call.out)


def _reshaped(call: Call) -> Work:
    x, out = call.given(0), call.out
    apart = x.strides != dense_strides(x.shape, x.size)
    first = copied(x.shape, x.size, x.strides, dense_strides(x.shape, x.size)) if apart else Work()
    return first + _moved(x, out.shape, dense_strides(out.shape, x.size), out)


def _transposed(call: Call) -> Work:
    x, out = call.given(0), call.out
    perm = call.attrs.get("perm") or tuple(reversed(range(len(x.shape))))
    return _moved(x, out.shape, [x.strides[p] for p in perm], out)


def _repeated(call: Call) -> Work:
    x, out = call.given(0), call.out
    more = len(out.shape) - len(x.shape)
    strides = [0] * more + [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
    return _moved(x, out.shape, strides, out)


def _joined(call: Call) -> Work:
    parts = [call.given(i) for i in range(len(call.ins))]
    return sum((_moved(x, x.shape, x.strides, call.out) for x in parts if x.n), Work())


def _sliced(call: Call) -> Work:
    x, out = call.given(0), call.out
    step = call.attrs.get("step") or (1,) * len(x.shape)
    return _moved(x, out.shape, [s * by for s, by in zip(x.strides, step, strict=True)], out) if out.n else Work()


def _each(call: Call) -> Work:
    return copied_words(call.out.n)


def _rows(x: Operand, first: int, out: Operand, lead: int) -> Work:
    """The work of copying one row: dimensions of x from `first` on, to those of the result from `lead` on."""
    return copied(x.shape[first:], x.size, x.strides[first:], out.strides[lead:])


def _gathered(default: int):
    def work(call: Call) -> Work:
        table, index, out = call.given(0), call.given(1), call.out
        at = axis_of(call, default)
        lead = at + len(index.shape)
        row = math.prod(table.shape[at + 1 :])
        return NUMBER_WORK * index.n + (
            _rows(table, at + 1, out, lead) * math.prod(out.shape[:lead]) if row else Work()
        )

    return work


def _tuples(call: Call, first: int) -> tuple[Work, int]:
    """The work of reading index tuples, and how many there are."""
    index = call.given(1)
    count = math.prod(index.shape[:-1])
    return NUMBER_WORK * (count * index.shape[-1]), count


def _gathered_tuples(call: Call) -> Work:
    x, index, out = call.given(0), call.given(1), call.out
    work, count = _tuples(call, 0)
    first = int(call.attrs.get("batch_dims", 0)) + index.shape[-1]
    row = math.prod(x.shape[first:])
    return work + (_rows(x, first, out, len(index.shape) - 1) * count if row else Work())


def _kept(call: Call) -> Work:
    """The work of taking over what is updated; none where it is updated in place."""
    return Work() if call.attrs.get("in_place", -1) == 0 else _same(call)


def _combined(call: Call) -> Work:
    plain = call.attrs.get("combine", "set") in ("set", "none")
    return (Work(loads=1, stores=1) if plain else Work(loads=2, stores=1, ops=1)) * call.given(2).n


def _combine_words(call: Call) -> Sequence[int]:
    how = call.attrs.get("combine", "set")
    return choice("combine", COMBINES, "set")(Call(call.ins, call.outs, {"combine": "set" if how == "none" else how}))


def _cached(call: Call) -> Work:
    """What is new, row by row: in pieces that lie together on both sides; where the cache is another tensor, all of it before."""
    cache, new, out = call.given(0), call.given(1), call.out
    kept = Work()
    if call.attrs.get("in_place", -1) != 0:
        image = blocked_bytes(*npc(cache.shape), cache.dtype)
        kept = copied_words(-(-image // WORD_BYTES)) if cache.blocked else _same(call)
    channels, rows = new.shape[-1], new.n // new.shape[-1] if new.n else 0
    block = block_size(new.dtype) if new.blocked or out.blocked else max(1, channels)
    words = channels // block * -(-block * new.size // WORD_BYTES) + -(-(channels % block) * new.size // WORD_BYTES)
    if axis_of(call, -2) == len(new.shape) - 1 and (new.blocked or out.blocked):  # it may begin anywhere in a block
        words += channels // block + 2
    return kept + copied_words(rows * words)


for _name in ("channel_norm", "load_var", "store_var", "load_const"):
    declare(_name, "routine_copy", work=_same)
declare("reshape", "routine_reshape", work=_reshaped)
declare(
    "bitcast",
    "routine_bitcast",
    work=lambda call: copied(call.out.shape, call.out.size, call.given(0).strides, call.out.strides),
)
declare("transpose", "routine_transpose", wholes("perm"), work=_transposed)
declare("broadcast", "routine_broadcast", work=_repeated)
declare("concat", "routine_concat", axis(0), work=_joined)
declare("slice", "routine_slice", wholes("start"), wholes("size"), wholes("step"), work=_sliced)
declare(
    "pad",
    "routine_pad",
    choice("mode", PAD_MODES, "constant"),
    wholes("lo"),
    wholes("hi"),
    real("value", 0.0),
    work=_each,
)
declare("trilu", "routine_trilu", whole("upper", 1), whole("k", 0), work=_each)
declare("iota", "routine_iota", axis(0, "outs"), work=lambda call: Work(stores=1, ops=2) * call.out.n)
declare("gather", "routine_gather", axis(0), work=_gathered(0))
declare("embedding", "routine_gather", lambda call: [0], work=_gathered(0))
declare(
    "gather_elements", "routine_gather_elements", axis(0), work=lambda call: NUMBER_WORK * call.given(1).n + _each(call)
)
declare("gather_nd", "routine_gather_nd", whole("batch_dims", 0), work=_gathered_tuples)
declare(
    "scatter",
    "routine_scatter",
    axis(0),
    _combine_words,
    updates=True,
    work=lambda call: NUMBER_WORK * call.given(1).n + _kept(call) + _combined(call),
)
declare(
    "scatter_nd",
    "routine_scatter_nd",
    _combine_words,
    updates=True,
    work=lambda call: _tuples(call, 0)[0] + _kept(call) + _combined(call),
)
declare("kv_update", "routine_kv_update", axis(-2), updates=True, takes_blocks=True, work=_cached)
