"""Attention: grouped queries with everything families add to them, and latent attention.

May import: ir, frontend.hf. Must not: read files. The cache of a token is one row per layer and kind, so an
update writes contiguous bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.states import Cache
from tx8fast.ir.core import Value
from tx8fast.records import dataclass

SCORES = "b s (h g d), b t (h d) -> b (h g) s t"
MIXED = "b (h g) s t, b t (h d) -> b s (h g d)"
WIDE = "f32"


@dataclass(frozen=True, slots=True)
class Step:
    """A decode step: the position to write, and the graph's arguments, among them what was remembered."""

    position: Value
    args: Mapping[str, Value]

    def past(self, i: int, name: str) -> Value:
        return self.args[f"past.{i}.{name}"]


#: None in a prefill
Past = Step | None
#: results by name
Made = dict[str, Value]


def visible_pairs(seq: int, window: int) -> int:
    """Return how many (query, key) pairs a causal mask of `seq` tokens leaves, `window` 0 = unlimited."""
    full = seq if not window else min(window, seq)
    return full * (full + 1) // 2 + (seq - full) * full


def attention(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return the attention of layer `i` and what it remembers, by the name of the result."""
    if m.c.latent is not None:
        return _latent(m, i, x, past)
    c, at = m.c, f"layers.{i}.self_attn"
    if c.keys_from and c.keys_from[i] >= 0:
        q = _placed(m, i, m.linear(x, at + ".q_proj"), c.heads, at + ".q_norm", at + ".q_rope")
        k, v = m.kept[c.keys_from[i]]
        return m.out_linear(attended(m, i, q, k, v, past, at), at + ".o_proj"), {}
    kv_heads = c.form(i)[0]
    q, k = (m.linear(x, f"{at}.{p}_proj") for p in "qk")
    v = k if c.keys_as_values and c.keys_as_values[i] else m.linear(x, at + ".v_proj")
    turns = {"q": (c.heads, at + ".q_norm", at + ".q_rope"), "k": (kv_heads, at + ".k_norm", at + ".k_rope")}
    q, k = (_placed(m, i, x, *turns[name]) for x, name in ((q, "q"), (k, "k")))
    v = _clipped(m, v, at)
    if c.value_norm:
        batch, seq, width = v.shape
        v = m.b("reshape", v, shape=(batch, seq, kv_heads, width // kv_heads), loc=at + ".v_norm")
        v = m.b("reshape", m.normalised(v, at + ".v_norm"), shape=(batch, seq, width), loc=at + ".v_norm")
    if m.grown is not None and c.growth is not None and (c.growth.turned or c.rope_of[i] < 0):
        q = m.b("mul", q, m.grown, loc=at + ".growth")
    k, v = made = remember(m, i, (k, v), past, at)
    m.kept[i] = made
    o = attended(m, i, q, k, v, past, at)
    if c.attention_gate:
        o = m.b("mul", o, m.b("sigmoid", m.linear(x, at + ".gate_proj"), loc=at + ".gate"), loc=at + ".gate")
    return m.out_linear(o, at + ".o_proj"), results(m, i, made)


def attended(m: Blocks, i: int, q: Value, k: Value, v: Value, past: Past, at: str) -> Value:
    return attend(m, q, k, v, at, lambda s: _softmax(m, i, s, past, at), _macs(m, i, q, past), m.c.form(i))


def cross_attention(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Return what layer `i` gathers from the encoder's result; its keys and values are made once, by the prefill."""
    at, names = f"layers.{i}.cross_attn", (f"cross.{i}.key", f"cross.{i}.value")
    q, made = m.linear(x, at + ".q_proj"), {}
    if past is None:
        assert m.source is not None
        made = {name: m.linear(m.source, f"{at}.{p}_proj") for name, p in zip(names, "kv", strict=True)}
    k, v = ((past.args if past else made)[name] for name in names)
    return m.out_linear(attend(m, q, k, v, at), at + ".o_proj"), made


def results(m: Blocks, i: int, made: tuple[Value, ...]) -> Made:
    return {f"present.{i}.{cache.name}": v for cache, v in zip(_rows(m, i), made, strict=True)}


def _rows(m: Blocks, i: int) -> list[Cache]:
    """What attention remembers of every token; a layer may keep a state beside it."""
    return [cache for cache in m.c.caches(i) if cache.rows]


def attend(
    m: Blocks,
    q: Value,
    k: Value,
    v: Value,
    at: str,
    softmax: Callable[[Value], Value] | None = None,
    macs: int = -1,
    form: tuple[int, int] | None = None,
) -> Value:
    """Return what queries gather of keys and values; `softmax` of the scores, None: every query sees every key; `form` of the heads: how
    many keys have, and their width, None: as the model says. Padding is hidden without `softmax`, which does it itself."""
    c = m.c
    kv_heads, width = form or (c.kv_heads, c.head_dim)
    sizes = _sizes(kv_heads, max(1, c.heads // kv_heads), width)
    s = m.b("contract", q, k, equation=SCORES, sizes=sizes, useful_macs=macs, loc=at + ".scores")
    if softmax is None:
        hidden = m.with_padding(None)
        masks = () if hidden is None else (hidden,)
        p = m.b("softmax", s, *masks, axis=-1, scale=c.attention_scale, loc=at + ".softmax")
    else:
        p = softmax(s)
    return m.b("contract", p, v, equation=MIXED, sizes=sizes, useful_macs=macs, loc=at + ".mix")


def _clipped(m: Blocks, x: Value, at: str) -> Value:
    limit = m.c.qkv_clip
    return m.b("clamp", x, lo=-limit, hi=limit, loc=at + ".clip") if limit else x


def _placed(m: Blocks, i: int, x: Value, heads: int, norm: str, turn: str) -> Value:
    """Normalise and rotate queries or keys, in the family's order."""
    late = m.c.qk_norm_late
    x = _clipped(m, x if late else _normed(m, i, x, heads, norm), norm)
    x = m.rope(x, m.c.rope_of[i], heads, turn)
    return _normed(m, i, x, heads, norm) if late else x


def _normed(m: Blocks, i: int, x: Value, heads: int, name: str) -> Value:
    kind = m.c.qk_norm
    if kind == "full":
        return m.norm(x, name)
    # a norm without gains belongs to the rotation: layers that have none leave it out
    return m.head_norm(x, heads, name) if kind and (m.c.qk_norm_gain or m.c.rope_of[i] >= 0) else x


def _sizes(keys: int, group: int, width: int) -> tuple[str | int, ...]:
    return "h", keys, "g", group, "d", width


def remember(m: Blocks, i: int, new: tuple[Value, Value], past: Past, at: str) -> tuple[Value, Value]:
    """Write this step's rows into the caches; a prefill's rows are the caches."""
    if past is None:
        return new
    a, b = (
        m.b("kv_update", past.past(i, cache.name), row, past.position, axis=1, loc=f"{at}.{cache.name}_cache")
        for cache, row in zip(_rows(m, i), new, strict=True)
    )
    return a, b


def _macs(m: Blocks, i: int, q: Value, past: Past) -> int:
    """Only the unmasked pairs of a causal prefill count."""
    return -1 if past is not None or m.c.ahead else _pairs(m, i, q) * q.shape[-1]


def _softmax(m: Blocks, i: int, s: Value, past: Past, at: str) -> Value:
    c, scale = m.c, m.c.attention_scale
    if c.attention_cap:
        s = m.b("tanh", m.scaled(s, scale / c.attention_cap, at + ".cap"), loc=at + ".cap")
        scale = c.attention_cap
    reach, window = m.reach(s.shape[-1]), c.windows[i]
    ahead = c.ahead or past is not None
    leaning = m.leaning.get(i if c.relative is not None and c.relative.each else 0)
    # a mask that also says what distance costs is added where nothing hides, too; chunks are no band
    banded = not ahead and leaning is None and not 0 < c.sight(i)[1] < reach
    visible = (0, window if window < reach else 0) if banded else ()
    mask = leaning or m.masks.get(c.sight(i))
    if c.encoder:
        mask = m.with_padding(mask)
    if mask is None:
        return m.b("softmax", s, axis=-1, scale=scale, visible=visible, loc=at + ".softmax")
    if c.sinks:
        return _drained(m, s, mask, scale, visible, at)
    if c.alibi:
        return _leaning(m, s, mask, scale, visible, at)
    return m.b("softmax", s, mask, axis=-1, scale=scale, visible=visible, loc=at + ".softmax")


def _drained(m: Blocks, s: Value, mask: Value, scale: float, visible: tuple[int, ...], at: str) -> Value:
    """Softmax over the scores and a learned score per head, whose own share is dropped.

    exp(s) / (sum + exp(sink)) = softmax(s) * sigmoid(log(sum) - sink), and as the largest share is exp(top) / sum,
    log(sum) = top - log(largest share): the scores need not be widened by a column."""
    b, at = m.b, at + ".sink"
    s = b("add", s, mask, loc=at)
    p = b("softmax", s, axis=-1, scale=scale, visible=visible, loc=at.replace("sink", "softmax"))
    top, share = (b("reduce", x, op="max", axes=(-1,), loc=at) for x in (s, p))
    top, share = (x if x.dtype == WIDE else b("convert", x, dtype=WIDE, loc=at) for x in (top, share))
    total = b("sub", m.scaled(top, scale, at), b("log", share, loc=at), loc=at)
    sinks = b("reshape", m.param(at.replace("sink", "sinks") + ".weight", WIDE), shape=(m.c.heads, 1, 1), loc=at)
    kept = b("sigmoid", b("sub", total, sinks, loc=at), loc=at)
    return b("mul", p, kept if kept.dtype == p.dtype else b("convert", kept, dtype=p.dtype, loc=at), loc=at)


def _leaning(m: Blocks, s: Value, mask: Value, scale: float, visible: tuple[int, ...], at: str) -> Value:
    """Scores less what distance costs, in f32: far away that is a large number, of which half formats keep no units."""
    at, length, dtype = at + ".alibi", s.shape[-1], s.dtype
    slopes = [slope / scale for slope in m.c.alibi]
    lean = m.derived(f"%alibi/{length}", "alibi", {"slopes": slopes}, (len(slopes), 1, length), WIDE)
    s, mask = (x if x.dtype == WIDE else m.b("convert", x, dtype=WIDE, loc=at) for x in (s, mask))
    s = m.b("add", s, lean, loc=at)
    p = m.b("softmax", s, mask, axis=-1, scale=scale, visible=visible, loc=at.replace("alibi", "softmax"))
    return p if dtype == WIDE else m.b("convert", p, dtype=dtype, loc=at)


def _latent(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Latent attention. A prefill expands the latent rows into keys and values per head; a decode step instead
    takes the query into the latent space, where all heads share one key, so the cache is never expanded."""
    c, at, latent = m.c, f"layers.{i}.self_attn", m.c.latent
    assert latent is not None
    if latent.q_rank:
        x_q = m.norm(m.linear(x, at + ".q_a_proj"), at + ".q_a_layernorm", eps=1e-6)
    else:
        x_q = x
    q = m.linear(x_q, at + ".q_nope")
    q_rope = m.rope(m.linear(x_q, at + ".q_rope"), c.rope_of[i], c.heads, at + ".q_rotated")
    rows = m.norm(m.linear(x, at + ".kv_a_proj"), at + ".kv_a_layernorm", eps=1e-6)
    turned = m.rope(m.linear(x, at + ".k_rope"), c.rope_of[i], 1, at + ".k_rotated")
    rows, turned = made = remember(m, i, (rows, turned), past, at)
    attend_to = _expanded if past is None else _in_latent_space
    o = attend_to(m, i, (q, q_rope), (rows, turned), past, at)
    return m.out_linear(o, at + ".o_proj"), results(m, i, made)


def _expanded(
    m: Blocks, i: int, queries: tuple[Value, Value], remembered: tuple[Value, Value], past: Past, at: str
) -> Value:
    """Attention to keys and values of every head: lanes that are turned stand behind the others, so that a score is one product."""
    c, b, latent, (rows, turned) = m.c, m.b, m.c.latent, remembered
    assert latent is not None
    keys, values, (batch, seq, _) = m.linear(rows, at + ".k_nope"), m.linear(rows, at + ".v"), rows.shape

    def heads(x: Value, width: int) -> Value:
        return b("reshape", x, shape=(batch, seq, c.heads, width), loc=at + ".lanes")

    def joined(x: Value, y: Value) -> Value:
        both = b("concat", heads(x, latent.nope), y, axis=3, loc=at + ".lanes")
        return b("reshape", both, shape=(batch, seq, c.heads * both.shape[3]), loc=at + ".lanes")

    own = b("reshape", turned, shape=(batch, seq, 1, latent.rope), loc=at + ".lanes")
    own = b("broadcast", own, shape=(batch, seq, c.heads, latent.rope), loc=at + ".lanes")
    q, k = joined(queries[0], heads(queries[1], latent.rope)), joined(keys, own)
    pairs, width = _pairs(m, i, rows) * c.heads, latent.nope + latent.rope
    s = b(
        "contract",
        q,
        k,
        equation=SCORES,
        sizes=_sizes(c.heads, 1, width),
        useful_macs=pairs * width,
        loc=at + ".scores",
    )
    p = _softmax(m, i, s, past, at)
    return b(
        "contract",
        p,
        values,
        equation=MIXED,
        sizes=_sizes(c.heads, 1, latent.value),
        useful_macs=pairs * latent.value,
        loc=at + ".mix",
    )


def _in_latent_space(
    m: Blocks, i: int, queries: tuple[Value, Value], remembered: tuple[Value, Value], past: Past, at: str
) -> Value:
    """Attention to the latent rows themselves, one key and value for all heads."""
    c, b, latent, (rows, turned) = m.c, m.b, m.c.latent, remembered
    assert latent is not None
    q = b(
        "contract",
        queries[0],
        m.param(at + ".k_nope.weight"),
        equation="b s (h d), (h d) r -> b s (h r)",
        sizes=("h", c.heads, "d", latent.nope),
        loc=at + ".q_latent",
    )
    near = b("contract", q, rows, equation=SCORES, sizes=_sizes(1, c.heads, latent.kv_rank), loc=at + ".scores")
    far = b(
        "contract", queries[1], turned, equation=SCORES, sizes=_sizes(1, c.heads, latent.rope), loc=at + ".rope_scores"
    )
    p = _softmax(m, i, b("add", near, far, loc=at + ".scores"), past, at)
    o = b("contract", p, rows, equation=MIXED, sizes=_sizes(1, c.heads, latent.kv_rank), loc=at + ".mix")
    return b(
        "contract",
        o,
        m.param(at + ".v.weight"),
        equation="b s (h r), (h d) r -> b s (h d)",
        sizes=("h", c.heads, "d", latent.value),
        loc=at + ".values",
    )


def _pairs(m: Blocks, i: int, x: Value) -> int:
    batch, seq, _ = x.shape
    return batch * visible_pairs(seq, m.c.windows[i])
