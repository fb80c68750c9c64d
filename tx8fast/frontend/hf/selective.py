"""State-space layers whose every channel decays at rates of its own (Mamba, Gu and Dao 2023), and gated recurrent units (RG-LRU, De et
al. 2024).

May import: ir, frontend.hf. Must not: read files. All recurrences are in f32, over all tokens of a prompt at once (`prefix`).
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import Made, Past
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.convolution import causal_conv
from tx8fast.frontend.hf.feed_forward import activated
from tx8fast.frontend.hf.prefix import decayed
from tx8fast.frontend.hf.scan import WIDE, chunks, tokens, wide
from tx8fast.frontend.hf.states import Lru, Selective
from tx8fast.ir.core import Value

#: of every head's lanes with the matrix of the head
_PRODUCTS = "b t (h i), (h o) i -> b t (h o)"
#: what heads write into their channels' states, and read of them
_ADDED, _SEEN = "b t (h n), b t (h c) -> b n (h c)", "b t (h n), b n (h c) -> b t (h c)"


def selective(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a layer of x [batch, seq, hidden] with h_t = exp(dt_t A) h_(t-1) + dt_t x_t B_t and y_t = C_t h_t + D x_t, where h is
    [state, channels], and the rows and the state that it leaves behind."""
    c: Selective = m.c.keeper("selective")
    at, b, (batch, seq, _) = f"layers.{i}.selective", m.b, x.shape
    gate, values = (m.linear(x, f"{at}.{p}_proj") for p in ("gate", "value"))
    values, made = causal_conv(m, i, values, c.taps, at + ".conv", past)
    values = b("silu", values, loc=at + ".conv")
    step, written, read = (
        _normed(m, c, _of_heads(m, c, values, f"{at}.{p}_proj"), f"{at}.{p}_norm") for p in ("step", "written", "read")
    )
    step = _of_heads(m, c, step, at + ".rate_proj")
    step = b("add", wide(m, step, at), m.param(at + ".rate_proj.bias", WIDE), loc=at + ".step")
    step = b("softplus", step, loc=at + ".step")
    values, written, read = (wide(m, v, at) for v in (values, written, read))
    rate = b("neg", b("exp", m.param(at + ".A_log", WIDE), loc=at + ".rate"), loc=at + ".rate")
    taken = b("mul", values, step, loc=at + ".taken")
    n, size = (1, 1) if past is not None else _cut(seq)
    step = chunks(m, step, n, size, at)
    own = _by_place(m, step, at)
    taken, written, read = (_by_place(m, chunks(m, v, n, size, at), at) for v in (taken, written, read))
    if past is not None:
        state = past.past(i, "state")
    else:
        state = None if n == 1 else _fronts(m, step, _walk(m, c, own, taken, written, rate, None, at)[-1], rate, n, at)
    states = _walk(m, c, own, taken, written, rate, state, at)
    y = _behind_each_other(m, [_seen(m, c, v, _token(m, read, place, at), at) for place, v in enumerate(states)], at)
    last = _last(m, b("reshape", states[-1], shape=(batch, n, c.state, c.inner), loc=at + ".state"), at)
    y = tokens(m, _by_place(m, y, at), batch, seq, at)
    y = b("add", y, b("mul", values, m.param(at + ".D", WIDE), loc=at + ".kept"), loc=at + ".kept")
    y = b("swiglu", wide(m, gate, at), y, act="silu", loc=at + ".gate")
    y = y if m.dtype == WIDE else b("convert", y, dtype=m.dtype, loc=at)
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": last}


def _of_heads(m: Blocks, c: Selective, x: Value, name: str) -> Value:
    """Return the product with a matrix, or of every head's lanes with the head's own; these stand one below the other."""
    if c.heads == 1:
        return m.linear(x, name, bias=False)
    return m.b("contract", x, m.param(name + ".weight"), equation=_PRODUCTS, sizes=("h", c.heads), loc=name)


def _normed(m: Blocks, c: Selective, x: Value, name: str) -> Value:
    if not c.norms:
        return x
    gain = (m.param(name + ".weight"),) if c.norms == "gain" else ()
    return m.b("rmsnorm", x, *gain, eps=c.eps or m.c.norm_eps, loc=name)


def _cut(seq: int) -> tuple[int, int]:
    """Return into how many chunks of how many tokens a prompt is cut: about as many as each has tokens, for both are walked through, and
    a power of two, which tiles share evenly."""
    n = 1 << (seq.bit_length() // 2)
    return n, -(-seq // n)


def _by_place(m: Blocks, x: Value, at: str) -> Value:
    """Exchange chunks and places in them: [chunks, places, lanes] and [places, chunks, lanes]."""
    return (
        x if 1 in x.shape[:2] and x.shape[0] == x.shape[1] else m.b("transpose", x, perm=(1, 0, 2), loc=at + ".places")
    )


def _walk(
    m: Blocks, c: Selective, step: Value, taken: Value, written: Value, rate: Value, state: Value | None, at: str
) -> list[Value]:
    """Take all chunks through their tokens side by side, from a `state` [chunks, state, channels] or none; return that behind each place."""
    b, found = m.b, []
    for place in range(step.shape[0]):
        one_taken, one_written = _token(m, taken, place, at), _token(m, written, place, at)
        added = _by_head(m, c, one_written, one_taken, "b t n, b t c -> b n c", _ADDED, at + ".added")
        if state is not None:
            left = b("exp", b("mul", _token(m, step, place, at), rate, loc=at + ".left"), loc=at + ".left")
            added = b("add", b("mul", state, left, loc=at + ".state"), added, loc=at + ".state")
        state = added
        found.append(state)
    return found


def _fronts(m: Blocks, step: Value, ends: Value, rate: Value, n: int, at: str) -> Value:
    """Return the state in front of every chunk, of what every chunk alone leaves [batch * n, state, channels]."""
    b, lanes, (many, *shape) = m.b, step.shape[2], ends.shape
    batch = many // n
    whole = b("reduce", step, op="add", axes=(1,), keepdims=False, loc=at + ".ends")
    whole = b("reshape", whole, shape=(batch, n, lanes), loc=at + ".ends")
    ends = b("reshape", ends, shape=(batch, n, *shape), loc=at + ".ends")
    state = m.derived(f"%empty/{batch}x{lanes}", "fill", {"value": 0.0}, (batch, *shape), WIDE)
    fronts = [state]
    for chunk in range(n - 1):
        end = b("slice", ends, start=(0, chunk, 0, 0), size=(batch, 1, *shape), step=(1, 1, 1, 1), loc=at + ".ends")
        end = b("reshape", end, shape=(batch, *shape), loc=at + ".ends")
        if chunk:
            left = b("exp", b("mul", _chunk(m, whole, chunk, at), rate, loc=at + ".left"), loc=at + ".left")
            end = b("add", b("mul", state, left, loc=at + ".state"), end, loc=at + ".state")
        state = end
        fronts.append(state)
    rows = [b("reshape", v, shape=(batch, 1, *shape), loc=at + ".fronts") for v in fronts]
    return b("reshape", b("concat", *rows, axis=1, loc=at + ".fronts"), shape=(many, *shape), loc=at + ".fronts")


def _chunk(m: Blocks, x: Value, chunk: int, at: str) -> Value:
    batch, _, lanes = x.shape
    return m.b("slice", x, start=(0, chunk, 0), size=(batch, 1, lanes), step=(1, 1, 1), loc=at + ".ends")


def _seen(m: Blocks, c: Selective, state: Value, read: Value, at: str) -> Value:
    """What tokens [.., 1, state] read of states [.., state, channels]."""
    return _by_head(m, c, read, state, "b t n, b n c -> b t c", _SEEN, at + ".seen")


def _by_head(m: Blocks, c: Selective, x: Value, y: Value, whole: str, parts: str, loc: str) -> Value:
    """Return a product whose left side all channels share: `whole`; or those of a head: `parts`."""
    equation, sizes = (whole, ()) if c.heads == 1 else (parts, ("h", c.heads))
    return m.b("contract", x, y, equation=equation, sizes=sizes, loc=loc)


def _token(m: Blocks, x: Value, place: int, at: str) -> Value:
    """Return one token of every chunk [chunks, 1, lanes]."""
    size, many, lanes = x.shape
    if size > 1:
        x = m.b("slice", x, start=(place, 0, 0), size=(1, many, lanes), step=(1, 1, 1), loc=at + ".token")
    return m.b("reshape", x, shape=(many, 1, lanes), loc=at + ".token")


def _behind_each_other(m: Blocks, parts: list[Value], at: str) -> Value:
    many, _, lanes = parts[0].shape
    parts = [m.b("reshape", x, shape=(1, many, lanes), loc=at + ".tokens") for x in parts]
    return parts[0] if len(parts) == 1 else m.b("concat", *parts, axis=0, loc=at + ".tokens")


def _last(m: Blocks, states: Value, at: str) -> Value:
    """Return the state behind the last token."""
    batch, seq, *lanes = states.shape
    if seq > 1:
        first, ones = (0, seq - 1, *(0,) * len(lanes)), (1,) * len(states.shape)
        states = m.b("slice", states, start=first, size=(batch, 1, *lanes), step=ones, loc=at + ".state")
    return m.b("reshape", states, shape=(batch, *lanes), loc=at + ".state")


def lru(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return a gated recurrent layer of x [batch, seq, hidden] with a_t = exp(-8 r_t softplus(p)) and
    h_t = a_t h_(t-1) + sqrt(1 - a_t^2) g_t x_t, but h_0 = g_0 x_0, where r and g are gates, and the rows and the state that it leaves."""
    c: Lru = m.c.keeper("lru")
    at, b, (batch, seq, _) = f"layers.{i}.lru", m.b, x.shape
    side = activated(m, at + ".", m.linear(x, at + ".gate_proj"))
    values, made = causal_conv(m, i, m.linear(x, at + ".value_proj"), c.taps, at + ".conv", past)
    values = wide(m, values, at)
    taken, kept = (_block_gate(m, c, values, f"{at}.{p}_gate") for p in ("taken", "kept"))
    slope = b("softplus", m.param(at + ".slope", WIDE), loc=at + ".slope")
    decay = m.scaled(b("mul", kept, slope, loc=at + ".decay"), -8.0, at + ".decay")
    left = b("exp", decay, loc=at + ".left")
    one = m.number(1.0, WIDE, at)
    share = b("sub", one, b("exp", m.scaled(decay, 2.0, at + ".share"), loc=at + ".share"), loc=at + ".share")
    if past is None:
        place = m.derived(f"%places/{seq}", "arange", {}, (seq, 1), WIDE)
    else:
        place = b("convert", past.position, dtype=WIDE, loc=at + ".first")
        place = b("reshape", place, shape=(1, 1), loc=at + ".first")
    # the first token of all is taken up whole; no share is above one
    first = b("sub", one, b("min", place, one, loc=at + ".first"), loc=at + ".first")
    share = b("max", b("sqrt", share, loc=at + ".share"), first, loc=at + ".share")
    added = b("mul", b("mul", values, taken, loc=at + ".added"), share, loc=at + ".added")
    if past is None:
        states = decayed(m, left, added, at + ".states")
    else:
        before = b("reshape", past.past(i, "state"), shape=(batch, 1, c.width), loc=at + ".state")
        states = b("add", b("mul", before, left, loc=at + ".state"), added, loc=at + ".state")
    y = states if m.dtype == WIDE else b("convert", states, dtype=m.dtype, loc=at)
    y = b("mul", y, side, loc=at + ".gate")
    return m.linear(y, at + ".out_proj"), made | {f"present.{i}.state": _last(m, states, at)}


def _block_gate(m: Blocks, c: Lru, x: Value, name: str) -> Value:
    """The sigmoid of a product whose matrix is zero but for blocks on its diagonal, stored one below the other."""
    gate = m.b(
        "contract",
        x,
        m.param(name + ".weight", WIDE),
        equation="b t (h i), (h i) o -> b t (h o)",
        sizes=("h", c.blocks, "i", c.width // c.blocks),
        loc=name,
    )
    return m.b("sigmoid", m.b("add", gate, m.param(name + ".bias", WIDE), loc=name), loc=name)
