"""The graph of a transformer: one builder for decoders (prefill and decode step) and encoders.

May import: ir, weights, errors, frontend.hf. Must not: read files. Every layer of the same kind emits the same op
sequence, so that repeated layers can be outlined.
"""

from __future__ import annotations

from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf.attention import Past, attention, visible_pairs
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.checkpoint import ModelWeights
from tx8fast.frontend.hf.feed_forward import feed_forward
from tx8fast.frontend.hf.parallel import Parallel
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.ir.core import Builder, Context, Value
from tx8fast.weights import MASK_VALUE

__all__ = ["build", "visible_pairs"]


def build(ctx: Context, b: Builder, c: ModelConfig, weights: ModelWeights, args: dict[str, Value], *, compute_dtype: str,
          past: int | None, last_only: bool, parallel: Parallel) -> dict[str, Value]:  # fmt: skip
    """Emit the whole model, as one chip of `parallel` computes it; return the named results.

    Decoders: logits, then present.{i}.<cache> of every layer; `args`: input_ids and, for decode (`past` slots),
    position and past.{i}.<cache>. Encoders: last_hidden_state and, where the checkpoint has them, pooler_output
    and logits; `args`: input_ids (and token_type_ids) or pixel_values. The mask constant must stay finite in
    the format the graph is stored in and in the one it will be computed in.
    """
    mask_value = max(MASK_VALUE[weights.dtype], MASK_VALUE[compute_dtype])
    m = Blocks(ctx, b, c, weights, mask_value, parallel)
    if c.encoder:
        return _encoder(m, args)
    x = _embed(m, args["input_ids"], args.get("position"), past)
    if past is None:
        m.prefill_inputs(x.shape[1])
    else:
        m.decode_inputs(args["position"], past)
    present: dict[str, Value] = {}
    for i in range(c.layers):
        names = [f"{i}.{name}" for name, _ in c.caches()]
        cache = None if past is None else (tuple(args["past." + n] for n in names), args["position"])
        x, made = _layer(m, i, x, cache)
        present |= {"present." + n: v for n, v in zip(names, made, strict=True)}
    return {"logits": _head(m, x, last_only), **present}


def _layer(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, tuple[Value, ...]]:
    """Emit layer `i` on x [batch, seq, hidden]; return x and the layer's caches."""
    c, name = m.c, f"layers.{i}."
    norm = (lambda v, _: v) if c.post_norm else m.norm
    h = norm(x, name + "attn_norm")
    y, made = attention(m, i, h, past)
    y = m.norm(y, name + "attn_post_norm")
    if c.parallel:
        z = feed_forward(m, i, h if c.one_norm else norm(x, name + "mlp_norm"))
        return m.b("add", m.b("add", x, y, loc=name + "attn_residual"), z, loc=name + "mlp_residual"), made
    x = m.b("add", x, m.scaled(y, c.residual_scale, name + "attn_residual"), loc=name + "attn_residual")
    if c.post_norm:
        x = m.norm(x, name + "attn_norm")
    y = feed_forward(m, i, norm(x, name + "mlp_norm"))
    y = m.norm(y, name + "mlp_post_norm")
    x = m.b("add", x, m.scaled(y, c.residual_scale, name + "mlp_residual"), loc=name + "mlp_residual")
    return (m.norm(x, name + "mlp_norm") if c.post_norm else x), made


def _embed(m: Blocks, ids: Value, position: Value | None, past: int | None) -> Value:
    """Return x [batch, seq, hidden] of token ids [batch, seq] i64, positions included where they are learned."""
    c = m.c
    x = m.b("embedding", m.param("embed_tokens.weight"), ids, loc="embed_tokens")
    if c.embedding_width:
        x = m.linear(x, "project_in")
    x = m.scaled(x, c.embedding_scale, "embed_tokens")
    if c.embedding_norm:
        x = m.norm(x, "embed_norm")
    if not c.positions:
        return x
    length = past or ids.shape[1]
    rows = position_rows(m, length)
    if position is not None:
        rows = m.b("embedding", rows, position, loc="positions")
    return m.b("add", x, rows, loc="positions")


def position_rows(m: Blocks, length: int) -> Value:
    """Return the table's rows of positions [0, length)."""
    c = m.c
    if length > c.positions:
        raise ImportModelError(
            f"building {c.model_type}: {length} positions asked for, the model has learned {c.positions}; lower seq or past"
        )
    stored = m.weights.slots["positions.weight"].key
    attrs = {"start": [c.position_offset, 0]}
    v = m.derived(f"%positions/{length}", "slice", attrs, (length, c.hidden), m.table[stored].dtype, (stored,))
    return v if v.dtype == m.dtype else m.b("convert", v, dtype=m.dtype, loc="positions")


def _head(m: Blocks, x: Value, last_only: bool) -> Value:
    """Return logits [batch, seq (or 1), vocab]; the embedding table serves if weights are tied."""
    c = m.c
    if last_only and x.shape[1] > 1:
        batch, seq, hidden = x.shape
        x = m.b(
            "slice",
            x,
            start=(0, seq - 1, 0),
            size=(batch, 1, hidden),
            step=(1, 1, 1),
            loc="last_token",
        )
    x = m.norm(x, "norm")
    if c.embedding_width:
        x = m.linear(x, "project_out")
    w = m.param("embed_tokens.weight" if c.tied else "lm_head.weight")
    bias = (m.param("lm_head.bias"),) if m.has("lm_head.bias") else ()
    logits = m.scaled(m.b("gemm", x, w, *bias, trans_b=True, loc="lm_head"), c.logits_divisor, "lm_head", "div")
    logits = m.capped(logits, c.logits_cap, "lm_head.cap") if c.logits_cap else logits
    return logits if logits.shape[-1] == c.vocab else m.gathered(logits, "lm_head")


def _encoder(m: Blocks, args: dict[str, Value]) -> dict[str, Value]:
    c = m.c
    x = _patches(m, args["pixel_values"]) if c.image is not None else _tokens(m, args)
    for i in range(c.layers):
        x, _ = _layer(m, i, x, None)
    x = m.norm(x, "norm")
    results = {"last_hidden_state": x}
    batch, seq, hidden = x.shape
    first = m.b("slice", x, start=(0, 0, 0), size=(batch, 1, hidden), step=(1, 1, 1), loc="first_token")
    for result, module in (("pooler_output", "pooler"), ("logits", "classifier")):
        if m.has(module + ".weight") and m.has(module + ".bias"):
            y = m.linear(first, module)
            y = m.b("tanh", y, loc=module) if module == "pooler" else y
            results[result] = m.b("reshape", y, shape=(batch, y.shape[-1]), loc=module)
    return results


def _tokens(m: Blocks, args: dict[str, Value]) -> Value:
    ids = args["input_ids"]
    x = m.b("embedding", m.param("embed_tokens.weight"), ids, loc="embed_tokens")
    x = m.b(
        "add",
        x,
        m.b("embedding", m.param("token_types.weight"), args["token_type_ids"], loc="token_types"),
        loc="token_types",
    )
    rows = position_rows(m, ids.shape[1])
    return m.norm(m.b("add", x, rows, loc="positions"), "embed_norm")


def _patches(m: Blocks, pixels: Value) -> Value:
    """Cut the image [batch, channel, height, width] into patches; a learned class token comes first."""
    c, b = m.c, m.b
    assert c.image is not None
    _, height, width, ph, pw = c.image
    batch = pixels.shape[0]
    x = b("transpose", pixels, perm=(0, 2, 3, 1), loc="patches")
    x = b(
        "conv",
        x,
        m.param("patches.weight"),
        m.param("patches.bias"),
        stride=(ph, pw),
        loc="patches",
    )
    x = b("reshape", x, shape=(batch, (height // ph) * (width // pw), c.hidden), loc="patches")
    token = b("broadcast", m.param("class_token"), shape=(batch, 1, c.hidden), loc="class_token")
    return b("add", b("concat", token, x, axis=1, loc="patches"), m.param("positions"), loc="positions")
