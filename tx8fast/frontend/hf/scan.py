"""State-space layers (Mamba 2, Dao and Gu 2024): a state per head decays and takes up tokens.

May import: ir, frontend.hf. Must not: read files.

With a_t the decay's logarithm, h_t = exp(a_t) h_(t-1) + (dt_t x_t) B_t and y_t = C_t h_t + D x_t. A prompt is cut into chunks. What
tokens of a chunk give each other is a product of matrices, as in attention, weighed by exp of the sum of a between them; what a
chunk adds to the state is one product, and so is what the state in front of a chunk gives its tokens. States in front of all chunks are
one product too, with a matrix of the decays between chunks. All sums of a are products with triangles of ones; nothing runs
token by token. A decode step is a chunk of one token. All of it in f32.
"""

from __future__ import annotations

import math

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.convolution import causal_conv
from tx8fast.frontend.hf.states import Scan
from tx8fast.ir.core import Value

WIDE = "f32"
FAR = -1e30  # exp of it is zero


def scan(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a state-space layer of x [batch, seq, hidden], and the rows and the state that it leaves behind."""
    c: Scan = m.c.keeper("scan")
    at = f"layers.{i}.scan"
    gate, mixed, pace = (m.linear(x, f"{at}.{p}_proj") for p in ("gate", "mixed", "step"))
    mixed = _multiplied(m, c, mixed, at)
    mixed, made = causal_conv(m, i, mixed, c.taps, at + ".conv", past)
    mixed = wide(m, m.b("silu", mixed, loc=at + ".conv"), at)
    sizes, parts, first = (c.inner, c.groups * c.state, c.groups * c.state), [], 0
    for size in sizes:
        parts.append(
            m.b("slice", mixed, start=(0, 0, first), size=(*mixed.shape[:2], size), step=(1, 1, 1), loc=at + ".parts")
        )
        first += size
    values, written, read = parts
    pace = m.b(
        "softplus", m.b("add", wide(m, pace, at), m.param(at + ".dt_bias", WIDE), loc=at + ".step"), loc=at + ".step"
    )
    if c.limits != (0.0, float("inf")):
        pace = m.b("clamp", pace, lo=c.limits[0], hi=c.limits[1], loc=at + ".step")
    rate = m.b("neg", m.b("exp", m.param(at + ".A_log", WIDE), loc=at + ".rate"), loc=at + ".rate")
    decay = m.b("mul", pace, rate, loc=at + ".decay")
    taken = m.b("mul", values, per_head(m, pace, c.width, at), loc=at + ".taken")
    if past is None:
        y, state = prompt(m, c, taken, decay, written, read, at)
    else:
        y, state = step(m, c, taken, decay, written, read, past.past(i, "state"), at)
    kept = m.b(
        "mul",
        values,
        per_head(m, m.b("reshape", m.param(at + ".D", WIDE), shape=(1, c.heads), loc=at), c.width, at),
        loc=at + ".kept",
    )
    y = m.b("add", y, kept, loc=at + ".kept")
    return m.linear(_gated(m, c, y, wide(m, gate, at), at), at + ".out_proj"), made | {f"present.{i}.state": state}


def _multiplied(m: Blocks, c: Scan, mixed: Value, at: str) -> Value:
    """Multiply values, and what is written and read, by the family's factors, as far as it has any."""
    factors = [m.multiplier(f"{at}.{part}") for part in ("values", "written", "read")]
    if factors == [1.0, 1.0, 1.0]:
        return mixed
    sizes = (c.inner, c.groups * c.state, c.groups * c.state)
    keys = []
    for factor, size in zip(factors, sizes, strict=True):
        keys.append(f"%factor/{factor}/{size}")
        if keys[-1] not in m.table:
            m.table.add_derived(keys[-1], "fill", {"value": factor}, (), (size,), m.dtype)
    return m.b(
        "mul",
        mixed,
        m.derived("%factors", "concat", {"axis": 0}, (c.channels,), inputs=tuple(keys)),
        loc=at + ".factors",
    )


def wide(m: Blocks, x: Value, at: str) -> Value:
    return x if x.dtype == WIDE else m.b("convert", x, dtype=WIDE, loc=at)


def per_head(m: Blocks, x: Value, width: int, at: str) -> Value:
    """Repeat every head's number [.., heads] over its lanes [.., heads * width]: a product with zeros and ones."""
    heads = x.shape[-1]
    ones = m.derived(f"%lanes/{heads}x{width}", "spread", {}, (heads, heads * width), WIDE)
    return m.b("gemm", x, ones, useful_macs=0, loc=at + ".lanes")


def triangle(m: Blocks, size: int, kind: str) -> Value:
    """Return ones [size, size] where row >= column ("lower"), row < column ("after") or row > column ("below")."""
    return m.derived(f"%triangle/{kind}/{size}", "triangle", {"kind": kind, "value": FAR}, (size, size), WIDE)


def _gated(m: Blocks, c: Scan, y: Value, gate: Value, at: str) -> Value:
    b = m.b
    if not c.norm_first or not c.norm:
        y = b("swiglu", gate, y, act="silu", loc=at + ".gate")
    if c.norm:
        batch, seq, _ = y.shape
        if c.norm_groups > 1:
            y = b("reshape", y, shape=(batch, seq, c.norm_groups, c.inner // c.norm_groups), loc=at + ".norm")
        y = b("rmsnorm", y, eps=m.c.norm_eps, loc=at + ".norm")
        y = b("reshape", y, shape=(batch, seq, c.inner), loc=at + ".norm") if c.norm_groups > 1 else y
        y = b("mul", y, m.param(at + ".norm.weight", WIDE), loc=at + ".norm")
        if c.norm_first:
            y = b("swiglu", gate, y, act="silu", loc=at + ".gate")
    return y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)


def _sizes(c: Scan) -> tuple[str | int, ...]:
    return "g", c.groups, "r", c.heads // c.groups, "p", c.width, "n", c.state


def _added(m: Blocks, c: Scan, taken: Value, written: Value, at: str) -> Value:
    """What tokens add to the state [.., heads * width, state]."""
    return m.b(
        "contract", taken, written, equation="b t (g r p), b t (g n) -> b (g r p) n", sizes=_sizes(c), loc=at + ".added"
    )


def _seen(m: Blocks, c: Scan, read: Value, state: Value, at: str) -> Value:
    """What tokens read from the state [.., tokens, heads * width]."""
    return m.b(
        "contract", read, state, equation="b t (g n), b (g r p) n -> b t (g r p)", sizes=_sizes(c), loc=at + ".seen"
    )


def step(
    m: Blocks, c: Scan, taken: Value, decay: Value, written: Value, read: Value, state: Value, at: str
) -> tuple[Value, Value]:
    b, batch = m.b, taken.shape[0]
    left = b(
        "reshape",
        per_head(m, b("exp", decay, loc=at + ".decay"), c.width, at),
        shape=(batch, c.inner, 1),
        loc=at + ".decay",
    )
    state = b("add", b("mul", state, left, loc=at + ".state"), _added(m, c, taken, written, at), loc=at + ".state")
    return _seen(m, c, read, state, at), state


def _chunk(c: Scan) -> int:
    """Tokens of a chunk: a power of two where the weights between a chunk's tokens and the state are about as large, so that
    together they are least, and never more than the model was made for."""
    return max(1, min(c.chunk, 1 << (math.isqrt(c.width * c.state).bit_length())))


def prompt(m: Blocks, c: Scan, taken: Value, decay: Value, written: Value, read: Value, at: str) -> tuple[Value, Value]:
    """The chunk form; returns y [batch, seq, heads * width] and the state behind the last token."""
    b, (batch, seq, _) = m.b, taken.shape
    n = -(-seq // _chunk(c))
    size = -(-seq // n)
    taken, decay, written, read = (chunks(m, x, n, size, at) for x in (taken, decay, written, read))
    lower = triangle(m, size, "lower")
    so_far = b("gemm", lower, decay, useful_macs=0, loc=at + ".sums")  # of a chunk's tokens up to and with this one
    across = b("transpose", so_far, perm=(0, 2, 1), loc=at + ".between")
    rows, columns = (
        b("reshape", across, shape=(batch * n, c.heads, *s), loc=at + ".between") for s in ((size, 1), (1, size))
    )
    # sums of decays are never positive; of tokens behind the row's, whose weight is zero, they would be, and exp of them too large
    between = b("clamp", b("sub", rows, columns, loc=at + ".between"), lo=FAR, hi=0.0, loc=at + ".between")
    weights = b("exp", between, loc=at + ".weights")
    near = b("contract", read, written, equation="b t (g n), b s (g n) -> b g t s", sizes=_sizes(c), loc=at + ".scores")
    near = b("mul", near, lower, loc=at + ".scores")
    if c.groups > 1:
        near = b("reshape", near, shape=(batch * n, c.groups, 1, size, size), loc=at + ".scores")
        weights = b(
            "reshape", weights, shape=(batch * n, c.groups, c.heads // c.groups, size, size), loc=at + ".weights"
        )
    weights = b("mul", weights, near, loc=at + ".weights")
    if c.groups > 1:
        weights = b("reshape", weights, shape=(batch * n, c.heads, size, size), loc=at + ".weights")
    y = b(
        "contract",
        weights,
        taken,
        equation="b h t s, b s (h p) -> b t (h p)",
        sizes=("h", c.heads, "p", c.width),
        loc=at + ".near",
    )
    later = b("gemm", triangle(m, size, "after"), decay, useful_macs=0, loc=at + ".sums")  # of those behind this one
    left = per_head(m, b("exp", later, loc=at + ".later"), c.width, at)
    added = _added(m, c, b("mul", taken, left, loc=at + ".later"), written, at)
    if n == 1:
        return tokens(m, y, batch, seq, at), added
    whole = b("slice", so_far, start=(0, size - 1, 0), size=(batch * n, 1, c.heads), step=(1, 1, 1), loc=at + ".chunks")
    states = _states(
        m,
        c,
        b("reshape", added, shape=(batch, n, c.inner * c.state), loc=at + ".chunks"),
        b("reshape", whole, shape=(batch, n, c.heads), loc=at + ".chunks"),
        at,
    )
    front = b("slice", states, start=(0, 0, 0), size=(batch, n, c.inner * c.state), step=(1, 1, 1), loc=at + ".front")
    last = b("slice", states, start=(0, n, 0), size=(batch, 1, c.inner * c.state), step=(1, 1, 1), loc=at + ".state")
    far = _seen(m, c, read, b("reshape", front, shape=(batch * n, c.inner, c.state), loc=at + ".front"), at)
    far = b("mul", far, per_head(m, b("exp", so_far, loc=at + ".far"), c.width, at), loc=at + ".far")
    y = b("add", y, far, loc=at + ".far")
    return tokens(m, y, batch, seq, at), b("reshape", last, shape=(batch, c.inner, c.state), loc=at + ".state")


def _states(m: Blocks, c: Scan, added: Value, whole: Value, at: str) -> Value:
    """Return the states in front of every chunk and behind the last [batch, chunks + 1, ..], of what each adds and its decay."""
    b, (batch, n, _) = m.b, added.shape
    # sums of the decays in front of every chunk [batch, n + 1, heads], of which those between two chunks are differences
    upto = b(
        "gemm",
        m.derived(f"%triangle/upto/{n}", "triangle", {"kind": "upto"}, (n + 1, n), WIDE),
        whole,
        useful_macs=0,
        loc=at + ".sums",
    )
    across = b("transpose", upto, perm=(0, 2, 1), loc=at + ".chunks")
    behind = b("slice", across, start=(0, 0, 1), size=(batch, c.heads, n), step=(1, 1, 1), loc=at + ".chunks")
    rows = b("reshape", across, shape=(batch, c.heads, n + 1, 1), loc=at + ".chunks")
    columns = b("reshape", behind, shape=(batch, c.heads, 1, n), loc=at + ".chunks")
    hidden = m.derived(f"%triangle/chunks/{n}", "triangle", {"kind": "chunks", "value": FAR}, (n + 1, n), WIDE)
    kept = b(
        "exp", b("add", b("sub", rows, columns, loc=at + ".chunks"), hidden, loc=at + ".chunks"), loc=at + ".chunks"
    )
    return b(
        "contract", kept, added, equation="b h z c, b c (h q) -> b z (h q)", sizes=("h", c.heads), loc=at + ".states"
    )


def chunks(m: Blocks, x: Value, n: int, size: int, at: str) -> Value:
    """Cut the rows of [batch, seq, width] into chunks [batch * n, size, width]; rows of zeros fill the last."""
    batch, seq, lanes = x.shape
    if n * size > seq:
        x = m.b("pad", x, lo=(0, 0, 0), hi=(0, n * size - seq, 0), loc=at + ".chunks")
    return x if n == 1 else m.b("reshape", x, shape=(batch * n, size, lanes), loc=at + ".chunks")


def tokens(m: Blocks, y: Value, batch: int, seq: int, at: str) -> Value:
    """Undo `chunks`."""
    rows, lanes = y.shape[0] // batch * y.shape[1], y.shape[2]
    y = y if y.shape[0] == batch else m.b("reshape", y, shape=(batch, rows, lanes), loc=at + ".tokens")
    return (
        y
        if rows == seq
        else m.b("slice", y, start=(0, 0, 0), size=(batch, seq, lanes), step=(1, 1, 1), loc=at + ".tokens")
    )
