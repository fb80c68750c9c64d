"""Gated delta networks (Yang et al. 2025): a state per head that decays and is corrected towards what keys should give.

May import: ir, frontend.hf. Must not: read files.

With S_t = e^g_t S_(t-1) + k_t b_t (v_t - k_t e^g_t S_(t-1)) and o_t = q_t S_t. Within a chunk of tokens, with D[t, s] = e^(g_(s+1) + .. + g_t) and
A = b k k^T D below the diagonal, the corrections are V = U - W S for the state S in front of the chunk, where (I + A) U = b v and
(I + A) W = b k e^(g_1 + ..). The inverse of I + A is made of blocks: that of twice the size is T - T R T, where R is the part of A between the
blocks that T inverts. So a chunk of n tokens takes 2 log2(n) products of matrices and nothing runs token by token; only V and S go
from chunk to chunk. All of it in f32.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.convolution import causal_conv
from tx8fast.frontend.hf.scan import FAR, WIDE, chunks, per_head, tokens, triangle, wide
from tx8fast.frontend.hf.states import Delta
from tx8fast.ir.core import Value

#: tokens of a chunk: the inverse grows with their logarithm, what tokens give each other with their number
CHUNK = 64


def convolved(m: Blocks, i: int, x: Value, past: Past, taps: int, at: str) -> tuple[list[Value], Made]:
    """Return queries, keys and values of layer i in f32, each behind a convolution over `taps` tokens, and the rows that these leave
    behind. at: name of the layer's mixer."""
    made: Made = {}
    parts = []
    for name in ("query", "key", "value"):
        y, rows = causal_conv(m, i, m.linear(x, f"{at}.{name}_proj"), taps, f"{at}.{name}_conv", past, f"conv_{name}")
        parts.append(m.b("silu", wide(m, y, at), loc=at + ".conv"))
        made |= rows
    return parts, made


def delta(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a gated delta layer of x [batch, seq, hidden], and the rows and the state that it leaves behind."""
    c: Delta = m.c.keeper("delta")
    at, b = f"layers.{i}.delta", m.b
    parts, made = convolved(m, i, x, past, c.taps, at)
    query, key = (unit(m, c.key_heads, y, at) for y in parts[:2])
    query = m.scaled(query, c.key_width**-0.5, at + ".query")
    pace = b("sigmoid", wide(m, m.linear(x, at + ".pace_proj"), at), loc=at + ".pace")
    pace = m.scaled(pace, c.pace, at + ".pace")
    step = b("add", wide(m, m.linear(x, at + ".step_proj"), at), m.param(at + ".dt_bias", WIDE), loc=at + ".step")
    rate = b("neg", b("exp", m.param(at + ".A_log", WIDE), loc=at + ".rate"), loc=at + ".rate")
    decay = b("mul", b("softplus", step, loc=at + ".step"), rate, loc=at + ".decay")
    if past is None:
        y, state = _prompt(m, c, query, key, parts[2], pace, decay, at)
    else:
        y, state = _step(m, c, query, key, parts[2], pace, decay, past.past(i, "state"), at)
    batch, seq, _ = y.shape
    y = b("reshape", y, shape=(batch, seq, c.value_heads, c.value_width), loc=at + ".norm")
    y = b("rmsnorm", y, m.param(at + ".norm.weight", WIDE), eps=c.eps or m.c.norm_eps, loc=at + ".norm")
    y = b("reshape", y, shape=(batch, seq, c.value_heads * c.value_width), loc=at + ".norm")
    y = b("swiglu", wide(m, m.linear(x, at + ".gate_proj"), at), y, act="silu", loc=at + ".gate")
    y = y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": state}


def unit(m: Blocks, heads: int, x: Value, at: str) -> Value:
    """Bring every head to length one: what rmsnorm gives over the root of its width."""
    batch, seq, width = x.shape
    x = m.b("reshape", x, shape=(batch, seq, heads, width // heads), loc=at + ".unit")
    x = m.b("rmsnorm", x, eps=1e-6 * heads / width, loc=at + ".unit")
    x = m.b("reshape", x, shape=(batch, seq, width), loc=at + ".unit")
    return m.scaled(x, (width // heads) ** -0.5, at + ".unit")


def _sizes(c: Delta) -> tuple[str | int, ...]:
    return "h", c.key_heads, "r", c.value_heads // c.key_heads, "k", c.key_width, "p", c.value_width


def _seen(m: Blocks, c: Delta, rows: Value, state: Value, at: str) -> Value:
    """What rows [.., tokens, key heads * width] find in the state [.., value heads * key width, value width]."""
    return m.b(
        "contract", rows, state, equation="b t (h k), b (h r k) p -> b t (h r p)", sizes=_sizes(c), loc=at + ".seen"
    )


def _added(m: Blocks, c: Delta, key: Value, values: Value, at: str) -> Value:
    return m.b(
        "contract", key, values, equation="b t (h k), b t (h r p) -> b (h r k) p", sizes=_sizes(c), loc=at + ".added"
    )


def _left(m: Blocks, c: Delta, state: Value, decay: Value, at: str) -> Value:
    """What a decay [batch, 1, value heads], in logarithms, leaves of the state."""
    left = per_head(m, m.b("exp", decay, loc=at + ".left"), c.key_width, at)
    left = m.b("reshape", left, shape=(state.shape[0], state.shape[1], 1), loc=at + ".left")
    return m.b("mul", state, left, loc=at + ".state")


def _step(
    m: Blocks, c: Delta, query: Value, key: Value, value: Value, pace: Value, decay: Value, state: Value, at: str
) -> tuple[Value, Value]:
    b = m.b
    state = _left(m, c, state, decay, at)
    missing = b("sub", value, _seen(m, c, key, state, at), loc=at + ".missing")
    state = b(
        "add",
        state,
        _added(m, c, key, b("mul", missing, per_head(m, pace, c.value_width, at), loc=at + ".missing"), at),
        loc=at + ".state",
    )
    return _seen(m, c, query, state, at), state


def _prompt(
    m: Blocks, c: Delta, query: Value, key: Value, value: Value, pace: Value, decay: Value, at: str
) -> tuple[Value, Value]:
    """The chunk form; returns o [batch, seq, value heads * width] and the state behind the last token."""
    b, (batch, seq, _) = m.b, query.shape
    n = -(-seq // CHUNK)
    size = 1 << (-(-seq // n) - 1).bit_length()  # blocks that are doubled until they fill a chunk
    query, key, value, pace, decay = (chunks(m, x, n, size, at) for x in (query, key, value, pace, decay))
    lower, heads = triangle(m, size, "lower"), c.value_heads
    so_far = b("gemm", lower, decay, useful_macs=0, loc=at + ".sums")
    across = b("transpose", so_far, perm=(0, 2, 1), loc=at + ".between")
    rows, columns = (
        b("reshape", across, shape=(batch * n, heads, *s), loc=at + ".between") for s in ((size, 1), (1, size))
    )
    between = b(
        "exp",
        b("clamp", b("sub", rows, columns, loc=at + ".between"), lo=FAR, hi=0.0, loc=at + ".between"),
        loc=at + ".between",
    )
    given = b("mul", _pairs(m, c, query, key, lower, at), between, loc=at + ".given")
    paces = b(
        "reshape",
        b("transpose", pace, perm=(0, 2, 1), loc=at + ".pace"),
        shape=(batch * n, heads, size, 1),
        loc=at + ".pace",
    )
    taken = b("mul", _pairs(m, c, key, key, triangle(m, size, "below"), at), between, loc=at + ".taken")
    turned = inverse(m, b("mul", taken, paces, loc=at + ".taken"), at)
    paced = b(
        "mul", turned, b("reshape", paces, shape=(batch * n, heads, 1, size), loc=at + ".pace"), loc=at + ".paced"
    )
    own = b(
        "contract",
        paced,
        value,
        equation="b h t s, b s (h p) -> b t (h p)",
        sizes=("h", heads, "p", c.value_width),
        loc=at + ".own",
    )
    state, fronts = None, []
    if n > 1:
        whole = b("mul", paced, b("exp", columns, loc=at + ".far"), loc=at + ".far")
        known = b(
            "contract", whole, key, equation="b (h r) t s, b s (h k) -> b t (h r k)", sizes=_sizes(c), loc=at + ".known"
        )
    behind = b("gemm", triangle(m, size, "after"), decay, useful_macs=0, loc=at + ".sums")
    later = per_head(m, b("exp", behind, loc=at + ".later"), c.value_width, at)
    corrections = []
    for chunk in range(n):
        one_key, one_own, one_later = (one(m, x, batch, n, chunk, at) for x in (key, own, later))
        if state is not None:
            found = b(
                "contract",
                one(m, known, batch, n, chunk, at),
                state,
                equation="b t (h k), b (h k) p -> b t (h p)",
                sizes=("h", heads, "k", c.key_width),
                loc=at + ".known",
            )
            one_own = b("sub", one_own, found, loc=at + ".corrections")
            ends = one(m, so_far, batch, n, chunk, at)
            end = b("slice", ends, start=(0, size - 1, 0), size=(batch, 1, heads), step=(1, 1, 1), loc=at + ".ends")
        corrections.append(one_own)
        new = _added(m, c, one_key, b("mul", one_own, one_later, loc=at + ".later"), at)
        if state is not None:
            fronts.append(state)
            new = b("add", _left(m, c, state, end, at), new, loc=at + ".state")
        state = new
    assert state is not None
    values = joined(m, corrections, at)
    y = b(
        "contract",
        given,
        values,
        equation="b h t s, b s (h p) -> b t (h p)",
        sizes=("h", heads, "p", c.value_width),
        loc=at + ".near",
    )
    if n > 1:
        zero = m.derived(f"%empty/{batch}x{heads}", "fill", {"value": 0.0}, (batch, *state.shape[1:]), WIDE)
        far = _seen(m, c, query, joined(m, [zero, *fronts], at), at)
        far = b("mul", far, per_head(m, b("exp", so_far, loc=at + ".far"), c.value_width, at), loc=at + ".far")
        y = b("add", y, far, loc=at + ".far")
    return tokens(m, y, batch, seq, at), state


def _pairs(m: Blocks, c: Delta, left: Value, right: Value, seen: Value, at: str) -> Value:
    """Products of rows with rows where `seen`, once per value head [.., value heads, tokens, tokens]."""
    b, (many, size, _) = m.b, left.shape
    pairs = b(
        "contract", left, right, equation="b t (h k), b s (h k) -> b h t s", sizes=("h", c.key_heads), loc=at + ".pairs"
    )
    pairs = b("mul", pairs, seen, loc=at + ".pairs")
    times = c.value_heads // c.key_heads
    if times == 1:
        return pairs
    pairs = b("reshape", pairs, shape=(many, c.key_heads, 1, size, size), loc=at + ".pairs")
    pairs = b("broadcast", pairs, shape=(many, c.key_heads, times, size, size), loc=at + ".pairs")
    return b("reshape", pairs, shape=(many, c.value_heads, size, size), loc=at + ".pairs")


def inverse(m: Blocks, taken: Value, at: str) -> Value:
    """Return the inverse of I + `taken`, which is zero on and above the diagonal; the size is a power of two."""
    b, size = m.b, taken.shape[-1]
    found = m.derived(f"%one/{size}", "triangle", {"kind": "one"}, (size, size), WIDE)
    block = 1
    while block < size:
        mask = m.derived(f"%blocks/{size}/{block}", "triangle", {"kind": "blocks", "block": block}, (size, size), WIDE)
        part = b("mul", taken, mask, loc=at + ".inverse")
        if block > 1:
            part = b("gemm", b("gemm", found, part, loc=at + ".inverse"), found, loc=at + ".inverse")
        found = b("sub", found, part, loc=at + ".inverse")
        block *= 2
    return found if size > 1 else b("add", taken, found, loc=at + ".inverse")


def one(m: Blocks, x: Value, batch: int, n: int, chunk: int, at: str) -> Value:
    """Return one chunk of every sequence, of [batch * n, ..]."""
    if n == 1:
        return x
    rest = x.shape[1:]
    x = m.b("reshape", x, shape=(batch, n, *rest), loc=at + ".chunks")
    x = m.b("slice", x, start=(0, chunk, 0, 0), size=(batch, 1, *rest), step=(1, 1, 1, 1), loc=at + ".chunks")
    return m.b("reshape", x, shape=(batch, *rest), loc=at + ".chunks")


def joined(m: Blocks, parts: list[Value], at: str) -> Value:
    """Undo `one`."""
    if len(parts) == 1:
        return parts[0]
    batch, *rest = parts[0].shape
    parts = [m.b("reshape", x, shape=(batch, 1, *rest), loc=at + ".chunks") for x in parts]
    return m.b(
        "reshape",
        m.b("concat", *parts, axis=1, loc=at + ".chunks"),
        shape=(batch * len(parts), *rest),
        loc=at + ".chunks",
    )
