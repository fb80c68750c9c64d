"""Encoders of text and images: what goes into the layers and what is made of their result.

May import: ir, frontend.hf. Must not: read files.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf.attention import attend
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.cells import in_cells, merged
from tx8fast.frontend.hf.detection import detected
from tx8fast.frontend.hf.feed_forward import activated
from tx8fast.frontend.hf.layer import layer
from tx8fast.frontend.hf.squares import mapped
from tx8fast.ir.core import Value


def encoder(m: Blocks, args: dict[str, Value]) -> dict[str, Value]:
    """Emit an encoder; return `last_hidden_state` and what it pools of it."""
    c = m.c
    if c.detection is not None:
        return detected(m, c.detection, args["pixel_values"])
    if c.image is not None:
        x = _patches(m, args["pixel_values"])
    else:
        x = _heard(m, args["input_features"]) if c.frames is not None else _tokens(m, args)
    m.encoder_inputs(x.shape[1])
    m.hide(args.get("attention_mask"))
    deep: list[Value] = []
    for i in range(c.layers):
        first = x
        x, _ = layer(m, i, x, None)
        if i == 0 and c.taps:
            x = _tapped(m, _present(m, first, args.get("attention_mask")), x)
        if c.cells is not None and i in c.cells.deep:
            deep.append(x)
    if c.cells is not None:
        return merged(m, x, deep)
    if c.pool != "first_normed":
        x = m.norm(x, "norm")
    results = {"last_hidden_state": x if c.squares is None else mapped(m, x)}
    if c.pool:
        results["pooler_output"] = pooled = POOLS[c.pool](m, x, args)
        if m.has("projection.weight"):
            results["embeds"] = m.linear(pooled, "projection")
    for result, module in (("pooler_output", "pooler"), ("logits", "classifier")):
        if m.has(module + ".weight") and m.has(module + ".bias"):
            y = row(m, x, 0)
            y = _with_mean(m, x, y) if module == "classifier" and c.mean_classified else y
            y = m.linear(y, module)
            y = m.b("tanh", y, loc=module) if module == "pooler" else y
            results[result] = _flat(m, y, module)
    return results


def _tokens(m: Blocks, args: dict[str, Value]) -> Value:
    """Words, kinds and positions, added and normalised as far as the family does."""
    c, ids = m.c, args["input_ids"]
    x = m.b("embedding", m.param("embed_tokens.weight"), ids, loc="embed_tokens")
    x = m.scaled(x, c.embedding_scale, "embed_tokens")
    if c.token_types:
        table = m.param("token_types.weight")
        # a single kind is everybody's
        kinds = m.b("embedding", table, args["token_type_ids"], loc="token_types") if c.token_types > 1 else table
        x = m.b("add", x, kinds, loc="token_types")
    if c.positions or c.waves:
        x = m.b("add", x, position_rows(m, ids.shape[1]), loc="positions")
    x = m.norm(x, "embed_norm")
    return m.linear(x, "project_in") if c.embedding_width else x


def _present(m: Blocks, x: Value, there: Value | None) -> Value:
    """Return x [batch, seq, hidden] with zeros where `there` [batch, seq] is 0: a convolution does not hide padding as scores do."""
    if there is None:
        return x
    kept = m.b("reshape", m.b("convert", there, dtype=m.dtype, loc="padding"), shape=(*there.shape, 1), loc="padding")
    return m.b("mul", x, kept, loc="padding")


def _tapped(m: Blocks, x: Value, y: Value) -> Value:
    """Return the norm of what the first layer made, y, and a convolution of what went into it, x, both [batch, seq, hidden]."""
    b, c, (batch, seq, hidden) = m.b, m.c, x.shape
    z = b("reshape", x, shape=(batch, seq, 1, hidden), loc="taps")
    reach = c.taps // 2
    z = b("conv", z, m.param("taps.weight"), m.param("taps.bias"), pad_lo=(reach, 0), pad_hi=(reach, 0), loc="taps")
    z = b(c.taps_activation, b("reshape", z, shape=x.shape, loc="taps"), loc="taps.act")
    return m.norm(b("add", y, z, loc="taps.residual"), "taps_norm")


def position_rows(m: Blocks, length: int) -> Value:
    """Return the table's rows of positions [0, length)."""
    c = m.c
    if c.waves and not m.has("positions.weight"):
        attrs = {"first": c.position_offset, "over": c.waves}
        return m.derived(f"%positions/{length}", "place_waves", attrs, (length, c.hidden))
    if length > c.positions:
        raise ImportModelError(
            f"building {c.model_type}: {length} positions asked for, the model has learned {c.positions}; lower seq or past"
        )
    stored = m.weights.slots["positions.weight"].key
    attrs = {"start": [c.position_offset, 0]}
    v = m.derived(f"%positions/{length}", "slice", attrs, (length, c.placed_width), m.table[stored].dtype, (stored,))
    return v if v.dtype == m.dtype else m.b("convert", v, dtype=m.dtype, loc="positions")


def _patches(m: Blocks, pixels: Value) -> Value:
    """Cut the image [batch, channel, height, width] into patches; a learned class token comes first."""
    c, b, image = m.c, m.b, m.c.image
    assert image is not None
    batch, (rows, columns) = pixels.shape[0], image.patches
    x = b("transpose", pixels, perm=(0, 2, 3, 1), loc="patches")
    bias = (m.param("patches.bias"),) if image.bias else ()
    x = b("conv", x, m.param("patches.weight"), *bias, stride=(image.patch_height, image.patch_width), loc="patches")
    x = b("reshape", x, shape=(batch, rows * columns, c.hidden), loc="patches")
    x = in_cells(m, x) if c.cells is not None else x
    if image.class_token:
        token = b("broadcast", m.param("class_token"), shape=(batch, 1, c.hidden), loc="class_token")
        x = b("concat", token, x, axis=1, loc="patches")
    x = b("add", x, m.param("positions"), loc="positions") if m.has("positions") else x
    return m.norm(x, "embed_norm")


def _heard(m: Blocks, sound: Value) -> Value:
    """Two convolutions along time over [batch, channels, frames], of which the second keeps every other frame."""
    b, batch, (channels, frames) = m.b, sound.shape[0], sound.shape[1:]
    x = b("transpose", sound, perm=(0, 2, 1), loc="sound")
    x = b("reshape", x, shape=(batch, frames, 1, channels), loc="sound")
    for module, step in (("conv1", 1), ("conv2", 2)):
        x = b(
            "conv",
            x,
            m.param(module + ".weight"),
            m.param(module + ".bias"),
            stride=(step, 1),
            pad_lo=(1, 0),
            pad_hi=(1, 0),
            loc=module,
        )
        x = b("gelu", x, loc=module)
    x = b("reshape", x, shape=(batch, x.shape[1], m.c.hidden), loc="sound")
    return b("add", x, position_rows(m, x.shape[1]), loc="positions")


# ------------------------------------------------------------ what is made of the last hidden states


def row(m: Blocks, x: Value, at: int) -> Value:
    """Return row `at` of every sequence [batch, 1, hidden]."""
    batch, _, hidden = x.shape
    return m.b(
        "slice",
        x,
        start=(0, at, 0),
        size=(batch, 1, hidden),
        step=(1, 1, 1),
        loc="first_token" if at == 0 else "last_token",
    )


def _with_mean(m: Blocks, x: Value, first: Value) -> Value:
    """Return the first row of every sequence and, behind it, the mean of the others [batch, 1, 2 * hidden]."""
    b, (batch, rows, hidden) = m.b, x.shape
    rest = b("slice", x, start=(0, 1, 0), size=(batch, rows - 1, hidden), step=(1, 1, 1), loc="patches")
    total = b("reduce", rest, op="add", axes=(1,), keepdims=True, loc="patches")
    return b("concat", first, m.scaled(total, 1 / (rows - 1), "patches"), axis=2, loc="classifier")


def _flat(m: Blocks, x: Value, loc: str) -> Value:
    return m.b("reshape", x, shape=(x.shape[0], x.shape[-1]), loc=loc)


def _first(m: Blocks, x: Value, args: dict[str, Value]) -> Value:
    return _flat(m, row(m, x, 0), "pooler")


def _first_normed(m: Blocks, x: Value, args: dict[str, Value]) -> Value:
    """The class token behind the last norm, which the other rows do not pass (CLIP)."""
    return _flat(m, m.norm(row(m, x, 0), "norm"), "pooler")


def _last(m: Blocks, x: Value, args: dict[str, Value]) -> Value:
    return _flat(m, m.linear(row(m, x, x.shape[1] - 1), "head"), "pooler")


def _end(m: Blocks, x: Value, args: dict[str, Value]) -> Value:
    """The row of the first end token. Old files name token 2, and mean the highest of each sequence (CLIP)."""
    b, ids, at = m.b, args["input_ids"], "pooler"
    if m.c.end_token != 2:
        end = m.derived("%end_token", "fill", {"value": m.c.end_token}, (1,), "i64")
        ids = b("convert", b("eq", ids, end, loc=at), dtype="i64", loc=at)
    place = b("arg_reduce", ids, op="max", axis=1, keepdims=True, loc=at)
    return b("gather_nd", x, place, batch_dims=1, loc=at)


def _probe(m: Blocks, x: Value, args: dict[str, Value]) -> Value:
    """A learned query attends to all rows; a feed-forward part behind a norm follows (SigLIP)."""
    batch, _, hidden = x.shape
    query = m.b("broadcast", m.param("probe"), shape=(batch, 1, hidden), loc="probe")
    q, k, v = (m.linear(y, f"probe.{side}_proj") for y, side in ((query, "q"), (x, "k"), (x, "v")))
    whole = m.c.heads * m.parallel.parts, m.c.head_dim  # every chip has all heads of the probe
    y = m.linear(attend(m, q, k, v, "probe", form=whole), "probe.o_proj")
    z = activated(m, "probe.", m.linear(m.norm(y, "probe.norm"), "probe.up_proj"))
    return _flat(m, m.b("add", y, m.linear(z, "probe.down_proj"), loc="probe"), "pooler")


POOLS: dict[str, Callable[[Blocks, Value, dict[str, Value]], Value]] = {
    "first": _first,
    "first_normed": _first_normed,
    "last": _last,
    "end": _end,
    "probe": _probe,
}
