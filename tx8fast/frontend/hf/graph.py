"""The graph of a transformer: one builder for decoders (prefill and decode step) and encoders.

May import: ir, weights, frontend.hf. Must not: read files.
"""

from __future__ import annotations

from tx8fast.frontend.hf.altup import gathered, spread
from tx8fast.frontend.hf.attention import Step, visible_pairs
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.checkpoint import ModelWeights
from tx8fast.frontend.hf.encoder import encoder, position_rows
from tx8fast.frontend.hf.layer import layer
from tx8fast.frontend.hf.parallel import Parallel
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.ir.builder import Builder
from tx8fast.ir.core import Context, Value
from tx8fast.weights import MASK_VALUE

__all__ = ["build", "visible_pairs"]


def build(
    ctx: Context,
    b: Builder,
    c: ModelConfig,
    weights: ModelWeights,
    args: dict[str, Value],
    *,
    compute_dtype: str,
    past: int | None,
    logits: str,
    parallel: Parallel,
    longest: int = 0,
) -> dict[str, Value]:
    """Emit the whole model, as one chip of `parallel` computes it; return the named results.

    Decoders: logits (`logits`: of all positions, of the last one, or none), then present.{i}.<cache> of every layer and, of a
    prefill that attends to an encoder's result, cross.{i}.key and .value; `args`: input_ids, for such a prefill encoder_hidden_states
    and for decode (`past` slots) position, past.{i}.<cache> and cross.{i}.<...>. Encoders: last_hidden_state and what they pool
    of it; `args`: input_ids (and token_type_ids), pixel_values or input_features. The mask constant must stay finite in
    the format the graph is stored in and in the one it will be computed in. longest: masks and factors are left out only where that many
    tokens or slots need none, so that all lengths up to it have one graph.
    """
    mask_value = max(MASK_VALUE[weights.dtype], MASK_VALUE[compute_dtype])
    m = Blocks(ctx, b, c, weights, mask_value, parallel)
    m.longest = longest
    if c.encoder:
        return encoder(m, args)
    if "inputs_embeds" in args:
        x = _placed(m, args["inputs_embeds"], args.get("position"), past)
    else:
        x = _embed(m, args["input_ids"], args.get("position"), past)
    if past is None:
        m.prefill_inputs(x.shape[1])
    else:
        m.decode_inputs(args["position"], past)
    m.source = args.get("encoder_hidden_states")
    m.hide(args.get("encoder_attention_mask"))
    if c.side is not None:
        m.aside = _aside(m, x, args["input_ids"])
    step = None if past is None else Step(args["position"], args)
    made: dict[str, Value] = {}
    if c.wide_residual and m.dtype != "f32":
        x = m.b("convert", x, dtype="f32", loc="residual")
    m.embedded = x
    x = spread(m, x) if c.streams > 1 else x
    for i in range(c.layers):
        x, new = layer(m, i, x, step)
        made |= new
    x = gathered(m, x) if c.streams > 1 else m.narrow(x)
    return made if logits == "none" else {"logits": _head(m, x, logits == "last"), **made}


def _embed(m: Blocks, ids: Value, position: Value | None, past: int | None) -> Value:
    """Return x [batch, seq, hidden] of token ids [batch, seq] i64, positions included where they are learned."""
    c = m.c
    x = m.b("embedding", m.param("embed_tokens.weight"), ids, loc="embed_tokens")
    if c.embedding_width:
        x = m.linear(x, "project_in")
    return _placed(m, m.scaled(x, c.embedding_scale, "embed_tokens"), position, past)


def _placed(m: Blocks, x: Value, position: Value | None, past: int | None) -> Value:
    """Normalise embeddings [batch, seq, hidden] and add learned positions, as far as the family does."""
    c = m.c
    if c.embedding_norm and not c.norm_positions:
        x = m.norm(x, "embed_norm")
    if c.positions or c.waves:
        rows = position_rows(m, past or x.shape[1])
        if position is not None:
            rows = m.b("embedding", rows, position, loc="positions")
        x = m.b("add", x, rows, loc="positions")
    return m.norm(x, "embed_norm") if c.embedding_norm and c.norm_positions else x


def _aside(m: Blocks, x: Value, ids: Value) -> Value:
    """Return the rows of the second table for every layer side by side [batch, seq, layers * width], mixed with a projection of x."""
    c, side, at = m.c, m.c.side, "side"
    assert side is not None
    if side.vocab < c.vocab:  # marks behind the words have the row of the first
        known = m.derived(f"%known/{side.vocab}", "fill", {"value": side.vocab - 1}, (1,), "i64")
        first = m.derived("%first_token", "fill", {"value": 0}, (1,), "i64")
        ids = m.b("select", m.b("le", ids, known, loc=at), ids, first, loc=at)
    rows = m.b("embedding", m.param("side_tokens.weight"), ids, loc=at)
    rows = m.scaled(rows, side.width**0.5, at)
    made = m.scaled(m.linear(x, "side_proj"), c.hidden**-0.5, at)
    split = m.b("reshape", made, shape=(*made.shape[:2], c.layers, side.width), loc=at)
    made = m.b("reshape", m.norm(split, "side_proj_norm"), shape=made.shape, loc=at)
    return m.scaled(m.b("add", made, rows, loc=at), 2.0**-0.5, at)


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
    w = m.param("lm_head.weight" if m.has("lm_head.weight") else "embed_tokens.weight")
    bias = (m.param("lm_head.bias"),) if m.has("lm_head.bias") else ()
    logits = m.scaled(m.b("gemm", x, w, *bias, trans_b=True, loc="lm_head"), c.logits_divisor, "lm_head", "div")
    logits = m.capped(logits, c.logits_cap, "lm_head.cap") if c.logits_cap else logits
    return logits if logits.shape[-1] == c.vocab else m.gathered(logits, "lm_head")
