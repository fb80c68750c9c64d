"""Detection of objects by learned queries (DETR, Carion et al. 2020) on the map that a ResNet makes of an image.

May import: ir, frontend.hf. Must not: read files.

Places of the map and of the queries are added to what queries and keys are made of, not to what values are. All pixels of an image are
there: places are constants of its size. A convolution holds the norm of its channels: the product of weight and scale is a computed weight.
"""

from __future__ import annotations

from tx8fast.frontend.hf.attention import MIXED, SCORES
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.detection_slots import BOX_LAYERS, STATISTICS, Convolution, blocks, stem
from tx8fast.frontend.hf.feed_forward import activated
from tx8fast.frontend.hf.spec import Backbone, Detection
from tx8fast.ir.core import Value

#: of the norms of channels, which no config names
CHANNEL_EPS = 1e-5


def detected(m: Blocks, kind: Detection, pixels: Value) -> dict[str, Value]:
    """Return the rows of the queries behind the decoder's norm, the encoder's result and, where the model has heads, `logits` of the classes
    and boxes, centre and size in shares of the image."""
    x = _map(m, kind.backbone, pixels)
    batch, rows, columns, _ = x.shape
    hidden = m.c.hidden
    x = m.linear(m.b("reshape", x, shape=(batch, rows * columns, x.shape[3]), loc="input"), "input")
    places = m.derived(f"%sine_places/{rows}x{columns}", "sine_places", {"rows": rows}, (rows * columns, hidden))
    for i in range(m.c.layers):
        x = _layer(m, f"encoder.{i}", x, m.c.heads, places)
    seen = (m.b("add", x, places, loc="decoder.places"), x)
    y = m.derived("%no_object", "fill", {"value": 0.0}, (batch, kind.queries, hidden))
    queries = m.param("queries.weight")
    for i in range(kind.layers):
        y = _layer(m, f"decoder.{i}", y, kind.heads, queries, seen)
    y = m.norm(y, "norm")
    results = {"last_hidden_state": y, "encoder_last_hidden_state": x}
    if kind.classes:
        results["logits"] = m.linear(y, "classes")
        for i in range(BOX_LAYERS):
            y = m.linear(y, f"box.{i}")
            y = m.b("relu" if i + 1 < BOX_LAYERS else "sigmoid", y, loc=f"box.{i}.act")
        results["pred_boxes"] = y
    return results


def _layer(m: Blocks, at: str, x: Value, heads: int, places: Value, seen: tuple[Value, Value] | None = None) -> Value:
    """A layer on x [batch, rows, hidden], each of whose parts has a norm behind the sum; `seen`: what keys and values of a second attention
    are made of."""
    placed = m.b("add", x, places, loc=at + ".places")
    x = _added(m, x, _attended(m, at + ".self_attn", heads, placed, placed, x), at + ".self_attn")
    if seen is not None:
        placed = m.b("add", x, places, loc=at + ".places")
        x = _added(m, x, _attended(m, at + ".cross_attn", heads, placed, *seen), at + ".cross_attn")
    units = activated(m, at + ".mlp.", m.linear(x, at + ".mlp.up_proj"))
    return _added(m, x, m.out_linear(units, at + ".mlp.down_proj"), at + ".mlp")


def _added(m: Blocks, x: Value, y: Value, at: str) -> Value:
    return m.norm(m.b("add", x, y, loc=at + "_residual"), at + "_norm")


def _attended(m: Blocks, at: str, heads: int, *made_of: Value) -> Value:
    """Return the attention whose queries, keys and values are made of three values."""
    q, k, v = (m.linear(x, f"{at}.{p}_proj") for x, p in zip(made_of, "qkv", strict=True))
    width = q.shape[2] // heads
    sizes = ("h", heads, "g", 1, "d", width)
    s = m.b("contract", q, k, equation=SCORES, sizes=sizes, loc=at + ".scores")
    p = m.b("softmax", s, axis=-1, scale=width**-0.5, loc=at + ".softmax")
    return m.out_linear(m.b("contract", p, v, equation=MIXED, sizes=sizes, loc=at + ".mix"), at + ".o_proj")


# ------------------------------------------------------------ the map


def _map(m: Blocks, kind: Backbone, pixels: Value) -> Value:
    """Return the map [batch, rows, columns, channels] of an image [batch, channels, height, width]."""
    x = m.b("transpose", pixels, perm=(0, 2, 3, 1), loc="backbone.stem")
    x = m.b("relu", _convolved(m, stem(kind, pixels.shape[1]), x), loc="backbone.stem.act")
    x = m.b("max_pool", x, kernel=(3, 3), stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1), loc="backbone.pool")
    for block in blocks(kind):
        y = x
        for conv in block.path[:-1]:
            y = m.b("relu", _convolved(m, conv, y), loc=conv.name + ".act")
        y, last = _convolved(m, block.path[-1], y), block.path[-1].name
        x = _convolved(m, block.shortcut, x) if block.shortcut else x
        x = m.b("relu", m.b("add", y, x, loc=last + ".residual"), loc=last + ".act")
    return x


def _convolved(m: Blocks, conv: Convolution, x: Value) -> Value:
    """Return a convolution and the norm of its channels; both are rounded to the activations' format together."""
    names, eps = ("kernel", *STATISTICS), {"eps": CHANNEL_EPS}
    kernel, gain, variance, bias, mean = (m.weights.slots[f"{conv.name}.{part}"].key for part in names)
    shape = (conv.side, conv.side, conv.channels, conv.source)
    weight = m.derived(f"%{conv.name}.kernel", "normed_kernel", eps, shape, inputs=(kernel, gain, variance))
    shift = m.derived(f"%{conv.name}.shift", "norm_shift", eps, shape[2:3], inputs=(gain, variance, bias, mean))
    pads = (conv.side // 2,) * 2
    return m.b("conv", x, weight, shift, stride=(conv.step,) * 2, pad_lo=pads, pad_hi=pads, loc=conv.name)
