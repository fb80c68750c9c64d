"""Delta networks whose state decays row by row (Kimi delta attention, Kimi Team 2025).

May import: ir, frontend.hf. Must not: read files.

With S_t = e^g_t S_(t-1) + k_t b_t (v_t - k_t e^g_t S_(t-1)) and o_t = q_t S_t, where g_t has a number per row of S. As in `delta`, but
what a token gives a later one is a sum over rows of q k e^(sum of g between them), which is no product of a decay with q k. For
pairs on both sides of a border it is the product of q e^(sum from the border to the token) and k e^(sum from the token to the border),
neither of which exceeds q and k. Borders in the middle of blocks of 2, 4, .. tokens have all pairs of a chunk between them. All of it in f32.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.delta import CHUNK, convolved, inverse, joined, one, unit
from tx8fast.frontend.hf.scan import WIDE, chunks, per_head, tokens, triangle, wide
from tx8fast.frontend.hf.states import ChannelDelta
from tx8fast.ir.core import Value


def channel_delta(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a layer of x [batch, seq, hidden], and the rows and the state that it leaves behind."""
    c: ChannelDelta = m.c.keeper("channel_delta")
    at, b, (batch, seq, _) = f"layers.{i}.channel_delta", m.b, x.shape
    parts, made = convolved(m, i, x, past, c.taps, at)
    query, key = (unit(m, c.heads, y, at) for y in parts[:2])
    query = m.scaled(query, c.width**-0.5, at + ".query")
    pace = b("sigmoid", wide(m, m.linear(x, at + ".pace_proj"), at), loc=at + ".pace")
    pace = per_head(m, pace, c.width, at)
    step = wide(m, m.linear(m.linear(x, at + ".decay_down"), at + ".decay_up"), at)
    step = b("softplus", b("add", step, m.param(at + ".dt_bias", WIDE), loc=at + ".step"), loc=at + ".step")
    rate = b("neg", b("exp", m.param(at + ".A_log", WIDE), loc=at + ".rate"), loc=at + ".rate")
    decay = b("mul", step, per_head(m, rate, c.width, at), loc=at + ".decay")
    if past is None:
        y, state = _prompt(m, c, query, key, parts[2], pace, decay, at)
    else:
        y, state = _step(m, c, query, key, parts[2], pace, decay, past.past(i, "state"), at)
    y = b("reshape", y, shape=(batch, seq, c.heads, c.width), loc=at + ".norm")
    y = b("rmsnorm", y, m.param(at + ".norm.weight", WIDE), eps=m.c.norm_eps, loc=at + ".norm")
    y = b("reshape", y, shape=(batch, seq, c.lanes), loc=at + ".norm")
    gate = wide(m, m.linear(m.linear(x, at + ".gate_down"), at + ".gate_up"), at)
    y = b("mul", y, b("sigmoid", gate, loc=at + ".gate"), loc=at + ".gate")
    y = y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": state}


def _contract(m: Blocks, c: ChannelDelta, x: Value, y: Value, equation: str, loc: str) -> Value:
    return m.b("contract", x, y, equation=equation, sizes=("h", c.heads, "k", c.width, "p", c.width), loc=loc)


def _seen(m: Blocks, c: ChannelDelta, rows: Value, state: Value, at: str) -> Value:
    """What rows [.., tokens, heads * width] find in the state [.., heads * width, width]."""
    return _contract(m, c, rows, state, "b t (h k), b (h k) p -> b t (h p)", at + ".seen")


def _added(m: Blocks, c: ChannelDelta, key: Value, values: Value, at: str) -> Value:
    return _contract(m, c, key, values, "b t (h k), b t (h p) -> b (h k) p", at + ".added")


def _left(m: Blocks, state: Value, decay: Value, at: str) -> Value:
    """What a decay [batch, 1, heads * width], in logarithms, leaves of the state."""
    left = m.b("reshape", m.b("exp", decay, loc=at + ".left"), shape=(*state.shape[:2], 1), loc=at + ".left")
    return m.b("mul", state, left, loc=at + ".state")


def _step(
    m: Blocks, c: ChannelDelta, query: Value, key: Value, value: Value, pace: Value, decay: Value, state: Value, at: str
) -> tuple[Value, Value]:
    b = m.b
    state = _left(m, state, decay, at)
    missing = b("sub", value, _seen(m, c, key, state, at), loc=at + ".missing")
    state = b("add", state, _added(m, c, key, b("mul", missing, pace, loc=at + ".missing"), at), loc=at + ".state")
    return _seen(m, c, query, state, at), state


def _prompt(
    m: Blocks, c: ChannelDelta, query: Value, key: Value, value: Value, pace: Value, decay: Value, at: str
) -> tuple[Value, Value]:
    """The chunk form; returns o [batch, seq, heads * width] and the state behind the last token."""
    b, (batch, seq, _) = m.b, query.shape
    n = -(-seq // CHUNK)
    size = 1 << (-(-seq // n) - 1).bit_length()  # blocks that are doubled until they fill a chunk
    query, key, value, pace, decay = (chunks(m, x, n, size, at) for x in (query, key, value, pace, decay))
    paced_key = b("mul", key, pace, loc=at + ".paced")
    given, taken = _pairs(m, c, query, paced_key, key, decay, at)
    turned = inverse(m, taken, at)
    mix = "b h t s, b s (h p) -> b t (h p)"
    own = _contract(m, c, turned, b("mul", value, pace, loc=at + ".paced"), mix, at + ".own")
    so_far = b("gemm", triangle(m, size, "lower"), decay, useful_macs=0, loc=at + ".sums")
    reach = b("exp", so_far, loc=at + ".far")
    if n > 1:
        known = _contract(m, c, turned, b("mul", paced_key, reach, loc=at + ".far"), mix, at + ".known")
    behind = b("gemm", triangle(m, size, "after"), decay, useful_macs=0, loc=at + ".sums")
    late = b("mul", key, b("exp", behind, loc=at + ".later"), loc=at + ".later")
    state, fronts, corrections = None, [], []
    for chunk in range(n):
        correction = one(m, own, batch, n, chunk, at)
        if state is not None:
            found = _seen(m, c, one(m, known, batch, n, chunk, at), state, at)
            correction = b("sub", correction, found, loc=at + ".corrections")
        corrections.append(correction)
        new = _added(m, c, one(m, late, batch, n, chunk, at), correction, at)
        if state is not None:
            fronts.append(state)
            end = b(
                "slice",
                one(m, so_far, batch, n, chunk, at),
                start=(0, size - 1, 0),
                size=(batch, 1, c.lanes),
                step=(1, 1, 1),
                loc=at + ".ends",
            )
            new = b("add", _left(m, state, end, at), new, loc=at + ".state")
        state = new
    assert state is not None
    y = _contract(m, c, given, joined(m, corrections, at), mix, at + ".near")
    if n > 1:
        zero = m.derived(f"%empty/{batch}x{c.lanes}", "fill", {"value": 0.0}, (batch, *state.shape[1:]), WIDE)
        far = b("mul", query, reach, loc=at + ".far")
        y = b("add", y, _seen(m, c, far, joined(m, [zero, *fronts], at), at), loc=at + ".far")
    return tokens(m, y, batch, seq, at), state


def _pairs(
    m: Blocks, c: ChannelDelta, query: Value, paced: Value, key: Value, decay: Value, at: str
) -> tuple[Value, Value]:
    """What keys give the queries of the same token and later ones, and the `paced` keys of later ones [.., heads, tokens, tokens]."""
    b, size, dots = m.b, query.shape[1], "b t (h k), b s (h k) -> b h t s"
    given = _contract(m, c, query, key, dots, at + ".pairs")
    given = b(
        "mul", given, m.derived(f"%one/{size}", "triangle", {"kind": "one"}, (size, size), WIDE), loc=at + ".pairs"
    )
    taken, block = None, 1
    while block < size:
        attrs = {"kind": "midway", "block": block}
        sums = b(
            "gemm",
            m.derived(f"%midway/{size}/{block}", "triangle", attrs, (size, size), WIDE),
            decay,
            useful_macs=0,
            loc=at + ".sums",
        )
        share = b("exp", sums, loc=at + ".share")
        near = b("mul", key, share, loc=at + ".share")
        mask = m.derived(f"%blocks/{size}/{block}", "triangle", {"kind": "blocks", "block": block}, (size, size), WIDE)
        across = []
        for rows in (query, paced):
            found = _contract(m, c, b("mul", rows, share, loc=at + ".share"), near, dots, at + ".pairs")
            across.append(b("mul", found, mask, loc=at + ".pairs"))
        given = b("add", given, across[0], loc=at + ".pairs")
        taken = across[1] if taken is None else b("add", taken, across[1], loc=at + ".pairs")
        block *= 2
    if taken is None:  # a chunk of one token corrects nothing
        taken = m.derived(f"%none/{query.shape[0]}x{c.heads}", "fill", {"value": 0.0}, given.shape, WIDE)
    return given, taken
