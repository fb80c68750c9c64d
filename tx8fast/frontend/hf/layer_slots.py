"""The slots of a layer and of what stands around the layers.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from tx8fast.frontend.hf import detection_slots, encoder_slots, mixer_slots
from tx8fast.frontend.hf.expert_slots import experts
from tx8fast.frontend.hf.slots import Slot, SlotList, head_parts, outer_key, part
from tx8fast.frontend.hf.spec import SHARDS, ModelConfig


def all_slots(c: ModelConfig, prefix: str) -> Iterator[Slot]:
    """Yield every slot in the order of the graph; those that a checkpoint may lack are `optional_slots`."""
    s = SlotList(c, prefix)
    if c.detection is not None:
        yield from detection_slots.detection(s, c.detection)
        return
    if c.image is not None:
        yield from encoder_slots.patches(s, c.image)
    elif c.frames is not None:
        yield from encoder_slots.sound(s, c.frames[0])
    else:
        # sides of one model have one table, or one each where the head is not tied
        module = "own_tokens" if "own_tokens" in s.names.outer and not c.tied else "embed_tokens"
        words = s.outer(module, (c.vocab + c.spare_rows, c.embedding_width or c.hidden))
        yield replace(words, name="embed_tokens.weight")
        if c.positions:
            yield s.outer("positions", (c.positions + c.position_offset, c.placed_width), optional=c.waves > 0)
    for k in range(1, c.streams):
        for module in ("streams", "unstreams"):
            key = outer_key(s.names, module, s.prefix)
            yield Slot(f"{module}.{k}.weight", (f"{key}.{k - 1}.weight",), (c.hidden, c.hidden))
    if c.side is not None:
        yield s.outer("side_tokens", (c.side.vocab, c.layers * c.side.width))
        yield s.outer("side_proj", (c.layers * c.side.width, c.hidden))
        yield s.outer("side_proj_norm", (c.side.width,))
    if c.token_types:
        yield s.outer("token_types", (c.token_types, c.placed_width))
    if c.embedding_norm and c.norm_gain:
        yield s.outer("embed_norm", (c.placed_width,))
        if c.norm_bias:
            yield s.outer("embed_norm", (c.placed_width,), ".bias")
    if c.embedding_width:
        yield s.outer("project_in", (c.hidden, c.embedding_width))
        if c.encoder:
            yield s.outer("project_in", (c.hidden,), ".bias")
    if c.taps:  # stored [out, in, taps], that of an image one pixel wide
        steps = (("transpose", [2, 0, 1]), ("reshape", [c.taps, 1, c.hidden, c.hidden]))
        yield s.outer("taps", (c.hidden, c.hidden, c.taps), steps=steps)
        yield s.outer("taps", (c.hidden,), ".bias")
        yield from (s.outer("taps_norm", (c.hidden,), side) for side in (".weight", ".bias"))
    if c.distances is not None:
        yield s.outer("distances", (2 * c.distances.span, c.hidden))
        if c.distances.normed:
            yield s.outer("distance_norm", (c.hidden,))
            yield s.outer("distance_norm", (c.hidden,), ".bias")
    for i in range(c.layers):
        yield from s.norm(i, "attn_norm", c.hidden)
        yield from MIXERS[c.mixer(i)](s, i)
        yield from s.norm(i, "attn_post_norm", c.hidden)
        if c.cross:
            yield from s.norm(i, "cross_norm", c.hidden)
            yield from _projections(s, i, "cross_attn", c.hidden)
        if c.layer_scale:
            yield from (s.vector(i, module, c.hidden, "") for module in ("attn_scale", "mlp_scale"))
        if c.fed and not c.fed[i]:
            continue
        yield from s.norm(i, "mlp_norm", c.hidden)
        if c.channel_mix:
            yield from mixer_slots.channel_mix(s, i)
        else:
            beside = c.experts is not None and c.experts.beside
            yield from experts(s, i) if c.sparse[i] else ()
            yield from _mlp(s, i) if beside or not c.sparse[i] else ()
        yield from s.norm(i, "mlp_post_norm", c.hidden)
        if c.streams > 1:
            yield from _streams(s, i)
        if c.laurel:
            yield from s.linear(i, "laurel_down", c.laurel, c.hidden)
            yield from s.linear(i, "laurel_up", c.hidden, c.laurel)
            yield from s.norm(i, "laurel_norm", c.hidden)
        if c.side is not None:
            yield from s.linear(i, "side_gate", c.side.width, c.hidden)
            yield from s.linear(i, "side_out", c.hidden, c.side.width)
            yield from s.norm(i, "side_norm", c.hidden)
        if c.layer_factor:
            yield s.vector(i, "factor", 1, "")
    if c.final_norm and c.norm_gain:
        yield s.outer("norm", (c.hidden,), shift=c.norm_offset)
        if c.norm_bias:
            yield s.outer("norm", (c.hidden,), ".bias")
    if c.embedding_width and not c.encoder:
        yield s.outer("project_out", (c.embedding_width, c.hidden))
    if c.pool == "probe":
        yield from encoder_slots.probe(s)
    if c.pool == "last":
        yield s.outer("head", (c.projection, c.hidden))
        yield s.outer("head", (c.projection,), ".bias")
    if not c.tied and not c.encoder:
        yield s.outer("lm_head", (c.vocab, c.embedding_width or c.hidden), optional=c.loose_head)
    if c.head_bias:
        yield s.outer("lm_head", (c.vocab,), ".bias")
    if "logits_bias" in s.names.outer:
        key = outer_key(s.names, "logits_bias", s.prefix)
        yield Slot("lm_head.bias", (key,), (1, c.vocab), (("reshape", [c.vocab]),), optional=True)


def _streams(s: SlotList, i: int) -> Iterator[Slot]:
    n, h = s.c.streams, s.c.hidden
    for module, rows, cols in (("router", n, h), ("predict", n * n, n), ("correct", n, n)):
        yield from s.linear(i, "altup." + module, rows, cols)
    yield from s.norm(i, "altup.norm", h)
    if "altup.scale" in s.names.modules:
        yield s.vector(i, "altup.scale", h, "")


def optional_slots(c: ModelConfig, prefix: str) -> Iterator[Slot]:
    """Yield what a checkpoint may have on top; -1 = any size."""
    s = SlotList(c, prefix)
    loose = replace(c, qkv_bias=True, out_bias=True)
    for i in range(c.layers if c.loose_bias else 0):
        if c.mixer(i) == "attention":
            yield from (n for n in _attention(SlotList(loose, prefix), i) if n.name.endswith(".bias"))
    for module, rows, columns in (
        ("pooler", c.projection or c.hidden, c.hidden),
        ("classifier", -1, c.hidden * (1 + c.mean_classified)),
        ("projection", -1, c.hidden),
    ):
        if c.encoder and module in s.names.outer:
            yield s.outer(module, (rows, columns))
            yield s.outer(module, (rows,), ".bias")


def _attention(s: SlotList, i: int) -> Iterator[Slot]:
    c = s.c
    if c.latent:
        yield from _latent(s, i)
        return
    if "self_attn.qkv" in s.names.modules:
        q = c.heads * c.head_dim
        yield from _fused(s, i, q, c.kv_heads * c.head_dim)
        yield from s.linear(i, "self_attn.o_proj", c.hidden, q, c.out_bias, c.flipped)
    else:
        yield from _projections(s, i, "self_attn", c.hidden)
    if c.relative is not None and (c.relative.each or not i):
        table = (c.relative.buckets, c.heads)
        yield (
            replace(s.outer("relative", table), name=f"layers.{i}.relative.weight")
            if "relative" in s.names.outer
            else s.table(i, "relative", table)
        )
    if c.sinks:
        yield Slot(f"layers.{i}.self_attn.sinks.weight", (s.key(i, "self_attn.sinks"),), (c.heads,))
    if c.qk_norm and c.qk_norm_gain:
        for module, heads in (("q_norm", c.heads), ("k_norm", c.form(i)[0]))[: 1 if _borrows(c, i) else 2]:
            yield from _query_norm(s, i, f"self_attn.{module}", heads)


def _disentangled(s: SlotList, i: int) -> Iterator[Slot]:
    c, kind = s.c, s.c.distances
    assert kind is not None
    yield from _projections(s, i, "self_attn", c.hidden)
    if not kind.shared:
        for module, there in (("pos_k_proj", kind.to_places), ("pos_q_proj", kind.from_places)):
            if there:
                yield from s.linear(i, "self_attn." + module, c.heads * c.head_dim, c.hidden, True)


def _squares(s: SlotList, i: int) -> Iterator[Slot]:
    c = s.c
    assert c.squares is not None and c.image is not None
    yield from _attention(s, i)
    for module, n in zip(("row_places", "column_places"), c.image.patches, strict=True):
        if c.squares.places:
            n = c.squares.sides[i] or n
            yield Slot(f"layers.{i}.{module}.weight", (s.key(i, module),), (2 * n - 1, c.head_dim))


def _projections(s: SlotList, i: int, at: str, source: int) -> Iterator[Slot]:
    """The matrices into and out of an attention, whose keys and values are of rows `source` wide."""
    c, paired = s.c, s.c.paired_lanes
    kv_heads, lanes = c.form(i)
    q, kv = c.heads * lanes, kv_heads * lanes
    gated = c.attention_gate and at == "self_attn"
    if gated and "self_attn.gate_proj" not in s.names.modules:
        rows = (("q_proj", c.head_dim), ("gate_proj", c.head_dim))
        yield from head_parts(c.heads, f"layers.{i}.self_attn.", s.key(i, at + ".q_proj"), c.hidden, rows, c.qkv_bias)
    else:
        yield from s.linear(i, at + ".q_proj", q, c.hidden, c.qkv_bias, heads=c.heads * paired)
        if gated:
            yield from s.linear(i, at + ".gate_proj", q, c.hidden)
    if not _borrows(c, i):
        yield from s.linear(i, at + ".k_proj", kv, source, c.qkv_bias and c.key_bias, heads=kv_heads * paired)
        if not c.keys_as_values or not c.keys_as_values[i]:
            yield from s.linear(i, at + ".v_proj", kv, source, c.qkv_bias)
    yield from s.linear(i, at + ".o_proj", c.hidden, q, c.out_bias)


def _borrows(c: ModelConfig, i: int) -> bool:
    """Keys and values of another layer serve."""
    return bool(c.keys_from) and c.keys_from[i] >= 0


def _query_norm(s: SlotList, i: int, module: str, heads: int) -> Iterator[Slot]:
    """Gains of one head, of the whole projection, or of each head: [heads, head_dim] or a tensor each ("{}" in its name)."""
    c, size, key = s.c, heads * s.c.head_dim, s.key(i, module)
    if c.qk_norm == "heads" and "{}" in key:
        keys = tuple(key.format(head) + ".weight" for head in range(heads))
        yield Slot(f"layers.{i}.{module}.weight", keys, (c.head_dim,), expert=True)
    elif c.qk_norm == "heads":
        yield Slot(f"layers.{i}.{module}.weight", (key + ".weight",), (heads, c.head_dim), (("reshape", [size]),))
    else:
        size = size if c.qk_norm == "full" else c.form(i)[1]
        yield s.vector(i, module, size, shift=c.norm_offset)
        if c.qk_norm_bias:
            yield s.vector(i, module, size, ".bias")


def _fused(s: SlotList, i: int, q: int, kv: int) -> Iterator[Slot]:
    """Query, key and value as parts of one stored matrix: columns, rows, rows per key head, or per shard."""
    c, key = s.c, s.key(i, "self_attn.qkv")
    if c.fused == "shards":
        parts = (("q_proj", q // SHARDS), ("v_proj", kv // SHARDS), ("k_proj", kv // SHARDS))
        yield from head_parts(SHARDS, f"layers.{i}.self_attn.", key, c.hidden, parts, c.qkv_bias)
        return
    at = 0
    for j, (module, rows) in enumerate((("q_proj", q), ("k_proj", kv), ("v_proj", kv))):
        name = f"layers.{i}.self_attn.{module}"
        flipped = c.flipped
        if c.fused == "groups":  # a key head's queries, its key, its value, then the next key head
            d, per = c.head_dim, c.heads // c.kv_heads
            inside, start = (per, 0) if j == 0 else (1, per + j - 1)
            stored, bias_stored = (q + 2 * kv, c.hidden), (q + 2 * kv,)
            steps = (
                ("reshape", [c.kv_heads, per + 2, d, c.hidden]),
                *part((c.kv_heads, inside, d, c.hidden), (0, start, 0, 0)),
                ("reshape", [rows, c.hidden]),
            )
            bias_steps = (
                ("reshape", [c.kv_heads, per + 2, d]),
                *part((c.kv_heads, inside, d), (0, start, 0)),
                ("reshape", [rows]),
            )
        else:
            total = q + 2 * kv
            stored, bias_stored = ((c.hidden, total) if flipped else (total, c.hidden)), (total,)
            steps = part((c.hidden, rows), (0, at)) if flipped else part((rows, c.hidden), (at, 0))
            bias_steps = part((rows,), (at,))
        yield Slot(name + ".weight", (key + ".weight",), stored, steps, flipped=flipped)
        if c.qkv_bias:
            yield Slot(name + ".bias", (key + ".bias",), bias_stored, bias_steps)
        at += rows


def _latent(s: SlotList, i: int) -> Iterator[Slot]:
    """Rows per head (query: unrotated then rotated; latent: key then value) are taken apart."""
    c, m = s.c, s.c.latent
    assert m is not None
    source = c.hidden
    if m.q_rank:
        source = m.q_rank
        yield from s.linear(i, "self_attn.q_a_proj", m.q_rank, c.hidden, c.qkv_bias)
        yield s.vector(i, "self_attn.q_a_layernorm", m.q_rank)
    stored_q = s.key(i, "self_attn.q_b_proj" if m.q_rank else "self_attn.q_proj")
    yield from head_parts(c.heads, f"layers.{i}.self_attn.q_", stored_q, source, (("nope", m.nope), ("rope", m.rope)))
    key, at = s.key(i, "self_attn.kv_a_proj_with_mqa"), 0
    total = m.kv_rank + m.rope
    for module, rows in (("kv_a_proj", m.kv_rank), ("k_rope", m.rope)):
        name = f"layers.{i}.self_attn.{module}"
        yield Slot(name + ".weight", (key + ".weight",), (total, c.hidden), part((rows, c.hidden), (at, 0)))
        if c.qkv_bias:
            yield Slot(name + ".bias", (key + ".bias",), (total,), part((rows,), (at,)))
        at += rows
    yield s.vector(i, "self_attn.kv_a_layernorm", m.kv_rank)
    stored_kv = s.key(i, "self_attn.kv_b_proj")
    yield from head_parts(
        c.heads,
        f"layers.{i}.self_attn.",
        stored_kv,
        m.kv_rank,
        (("k_nope", m.nope), ("v", m.value)),
    )
    yield from s.linear(i, "self_attn.o_proj", c.hidden, c.value_width, c.out_bias)


def _mlp(s: SlotList, i: int) -> Iterator[Slot]:
    c, flipped = s.c, s.c.flipped
    units = c.units[i] if c.units else c.intermediate
    if "mlp.gate_up" in s.names.modules:
        key, n = s.key(i, "mlp.gate_up") + ".weight", c.intermediate
        for j, module in enumerate(("gate_proj", "up_proj")):
            yield Slot(
                f"layers.{i}.mlp.{module}.weight",
                (key,),
                (2 * n, c.hidden),
                part((n, c.hidden), (j * n, 0)),
            )
            if c.mlp_bias:
                yield Slot(
                    f"layers.{i}.mlp.{module}.bias",
                    (s.key(i, "mlp.gate_up") + ".bias",),
                    (2 * n,),
                    part((n,), (j * n,)),
                )
    elif c.gated:
        yield from s.linear(i, "mlp.gate_proj", units, c.hidden, c.mlp_bias)
    if "mlp.gate_up" not in s.names.modules:
        yield from s.linear(i, "mlp.up_proj", units, c.hidden, c.mlp_bias, flipped)
    yield from s.linear(i, "mlp.down_proj", c.hidden, units, c.mlp_bias, flipped)
    if c.activation == "xielu":
        for side in ("alpha_p", "alpha_n"):
            yield Slot(f"layers.{i}.mlp.act.{side}", (s.key(i, "mlp.act") + "." + side,), (1,))


#: the slots of what mixes tokens, by its name
MIXERS: dict[str, Callable[[SlotList, int], Iterator[Slot]]] = {
    "attention": _attention,
    "conv": mixer_slots.short_conv,
    "scan": mixer_slots.scan,
    "delta": mixer_slots.delta,
    "selective": mixer_slots.selective,
    "disentangled": _disentangled,
    "squares": _squares,
    "cells": _attention,
    "lru": mixer_slots.lru,
    "lightning": mixer_slots.lightning,
    "channel_delta": mixer_slots.channel_delta,
    "time_mix": mixer_slots.time_mix,
    "shared+scan": lambda s, i: chain(mixer_slots.shared(s, i), mixer_slots.scan(s, i)),
    "shared+selective": lambda s, i: chain(mixer_slots.shared(s, i), mixer_slots.selective(s, i)),
    "attention+scan": lambda s, i: chain(_attention(s, i), mixer_slots.scan(s, i)),
    "none": lambda s, i: iter(()),
}
