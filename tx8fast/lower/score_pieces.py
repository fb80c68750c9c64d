"""Scores of attention in pieces of columns, so that the vector and the matrix engine wait less for each other.

May import: lower.emitter, lower.transfer, machine, numerics. Must not: place buffers.

A slice of scores is a chain: product, maximum, spread of the maximum, exponential, product with the values. With two copies of the
scores the vector engine has nothing to do while the matrix engine spreads the maximum, behind what is left of the product before.
Cut in columns, the exponential begins behind the spread of the first piece, and most values are added while the last piece's runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, padded_channels

SUM = "f32"
#: Where columns are cut, as parts of them: a fifth's exponential takes about as long as the maximum is spread over the others, and
#: the last piece's as long as the products with the pieces before.
ENDS = (0.2, 0.6)
SHORT_STEPS = 12  # instructions of the vector engine on one value per row


def pays(local: Local, depth: int, machine: Machine) -> bool:
    """True if cutting scores [rows, keys] of heads of `depth` values saves more than the instructions cost: where the vector engine
    is the busier one. In cycles as the hardware manual counts them (16.2, 16.3): it takes the maximum, the exponential and short
    steps; the matrix engine four products, of which one is read and written at its port's rate."""
    ne, ct = machine.ne, machine.ct
    if local.cols * ENDS[0] < block_size(local.dtype):
        return False
    port_cycles = local.size_bytes / ne.port_bytes
    columns = ne.pe_n * machine.ne_groups(local.dtype)
    steps = local.rows / ne.pe_m * local.cols / ne.pe_k * machine.ne_passes(local.dtype)
    matrix_cycles = port_cycles + steps * (1 + depth / columns + math.ceil(depth / columns))
    vector_cycles = (1 + ct.factor.transcendental) * port_cycles + local.rows + SHORT_STEPS * ct.startup
    saved_cycles = port_cycles * (1 - ENDS[0])
    return vector_cycles > matrix_cycles and saved_cycles > len(ENDS) * (ct.startup + 3 * ne.startup)


def pieces(scores: int, local: Local, ends: Sequence[float], depth: int, machine: Machine) -> list[tuple[int, Local]]:
    """Return where the pieces of the scores' columns are that end at these parts of them, and their forms: whole blocks but for the
    last one; one piece where cutting them does not pay."""
    block, out, at = block_size(local.dtype), [], 0
    cuts = [math.ceil(local.cols * part / block) * block for part in ends] if pays(local, depth, machine) else []
    for end in [*cuts, local.cols]:
        if at < end <= local.cols:
            out.append((scores + local.offset(0, at), Local(local.rows, end - at, local.dtype, True)))
            at = end
    return out


def add_values(
    em: Emitter, left: int, weights: Local, values: tuple[int, int, int, int], by_rows: bool, mixed: int, more: int
) -> None:
    """mixed (+)= weights [rows, keys] x values; values: where they are, the first key, the keys of all, and values of each. by_rows:
    they are [keys, depth], else [depth, keys]; keys that are some of the rows come block by block of the columns. more: 0 for the
    first product of the sum."""
    base, first, keys, depth = values
    fmt, rows = weights.dtype, weights.rows
    form = Local(keys, depth, fmt, True) if by_rows else Local(depth, keys, fmt, True)
    step = block_size(fmt) if by_rows and weights.cols < keys else depth
    for c in range(0, depth, step):
        right = base + form.offset(*((first, c) if by_rows else (c, first)))
        out = mixed + Local(rows, depth, SUM, True).offset(0, c)
        em.gemm(
            left=left,
            right=right,
            out=out,
            m=rows,
            k=weights.cols,
            n=min(step, depth - c),
            r_trs=int(by_rows),
            fmt=fmt,
            out_fmt=SUM,
            psum=out,
            psum_en=more,
        )


def scale_rows(em: Emitter, mixed: int, factor: int, spread: int, ones: int, rows: int, depth: int) -> None:
    """Multiply every row of the mixed values [rows, depth] by its factor. spread: room for a block of these; ones: a block of them."""
    full, tail = divmod(depth, 64)
    if tail > 32:
        full, tail = full + 1, 0
    block = rows * 64 * ITEM_BYTES[SUM]
    if full:
        em.broadcast_rows(factor, ones, spread, rows, 64, SUM)
        em.vv_each("mul", [(x, spread, x) for x in range(mixed, mixed + full * block, block)], rows * 64, SUM)
    if tail:
        at = mixed + full * block
        em.broadcast_rows(factor, ones, spread, rows, tail, SUM)
        em.vv("mul", at, spread, at, rows * padded_channels(tail, SUM), SUM)
