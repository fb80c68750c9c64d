"""The slots of layers that are no attention.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tx8fast.frontend.hf.slots import Slot, SlotList, head_parts, outer_key, part
from tx8fast.frontend.hf.states import ChannelDelta, Delta, Lightning, Lru, Scan, Selective, ShortConv, TimeMix

Rows = tuple[tuple[str, int], ...]


def short_conv(s: SlotList, i: int) -> Iterator[Slot]:
    c: ShortConv = s.c.keeper("conv")
    key, h = s.key(i, "conv"), s.c.hidden
    yield from _split(
        f"layers.{i}.conv.", key + ".in_proj", (("before_proj", h), ("after_proj", h), ("value_proj", h)), h, c.bias
    )
    yield from _taps(f"layers.{i}.conv.conv", key + ".conv", h, c.taps, c.bias)
    yield from _whole(f"layers.{i}.conv.out_proj", key + ".out_proj", h, h, c.bias)


def scan(s: SlotList, i: int) -> Iterator[Slot]:
    c: Scan = s.c.keeper("scan")
    key, at, h = s.key(i, "scan"), f"layers.{i}.scan.", s.c.hidden
    yield from _split(
        at, key + ".in_proj", (("gate_proj", c.inner), ("mixed_proj", c.channels), ("step_proj", c.heads)), h, c.bias
    )
    yield from _taps(at + "conv", key + ".conv1d", c.channels, c.taps, c.conv_bias)
    for name in ("dt_bias", "A_log", "D"):
        yield Slot(at + name, (f"{key}.{name}",), (c.heads,))
    if c.norm:
        yield Slot(at + "norm.weight", (key + ".norm.weight",), (c.inner,))
    yield from _whole(at + "out_proj", key + ".out_proj", h, c.inner, c.bias)


def delta(s: SlotList, i: int) -> Iterator[Slot]:
    """Projections stored fused by key head, one below the other, or apart."""
    if "delta.apart" in s.names.modules:
        yield from _delta_apart(s, i)
        return
    c: Delta = s.c.keeper("delta")
    key, at, h, times = s.key(i, "delta"), f"layers.{i}.delta.", s.c.hidden, c.value_heads // c.key_heads
    if "delta.fused" in s.names.modules:
        wide = times * c.value_width
        rows = (("query_proj", c.key_width), ("key_proj", c.key_width), ("value_proj", wide), ("gate_proj", wide))
        yield from head_parts(c.key_heads, at, key + ".in_proj_qkvz", h, rows)
        yield from head_parts(c.key_heads, at, key + ".in_proj_ba", h, (("pace_proj", times), ("step_proj", times)))
    else:
        yield from _split(
            at, key + ".in_proj_qkv", (("query_proj", c.keys), ("key_proj", c.keys), ("value_proj", c.values)), h, False
        )
        for module, stored, rows in (
            ("gate_proj", "z", c.values),
            ("pace_proj", "b", c.value_heads),
            ("step_proj", "a", c.value_heads),
        ):
            yield from _whole(at + module, f"{key}.in_proj_{stored}", rows, h, False)
    first, channels = 0, 2 * c.keys + c.values
    for name, n in (("query", c.keys), ("key", c.keys), ("value", c.values)):
        steps = (*part((n, 1, c.taps), (first, 0, 0)), ("transpose", [2, 1, 0]), ("reshape", [c.taps, 1, n, 1]))
        yield Slot(f"{at}{name}_conv.weight", (key + ".conv1d.weight",), (channels, 1, c.taps), steps)
        first += n
    for name in ("dt_bias", "A_log"):
        yield Slot(at + name, (f"{key}.{name}",), (c.value_heads,))
    yield Slot(at + "norm.weight", (key + ".norm.weight",), (c.value_width,))
    yield from _whole(at + "out_proj", key + ".out_proj", h, c.values, False)


def _delta_apart(s: SlotList, i: int) -> Iterator[Slot]:
    c: Delta = s.c.keeper("delta")
    key, at, h = s.key(i, "delta"), f"layers.{i}.delta.", s.c.hidden
    third = -(-(2 * c.keys + c.values) // 3)
    lengths = (third, third, 2 * c.keys + c.values - 2 * third)
    thirds, first = tuple(f"{key}.{letter}_conv1d.weight" for letter in "qkv"), 0
    for name, rows in (("query", c.keys), ("key", c.keys), ("value", c.values)):
        yield from _whole(f"{at}{name}_proj", f"{key}.{name[0]}_proj", rows, h, False)
        for slot in _taps(f"{at}{name}_conv", f"{key}.{name[0]}_conv1d", rows, c.taps, False):
            # the library joins the three, and saves them again cut into equal parts but for the last, however wide they were
            steps = (*part((rows, 1, c.taps), (first, 0, 0)), *slot.steps)
            other = replace(slot, keys=thirds, stored=(third, 1, c.taps), lengths=lengths, steps=steps, expert=True)
            yield replace(slot, other=other)
        first += rows
    for name, letter, rows in (("gate", "g", c.values), ("pace", "b", c.value_heads), ("step", "a", c.value_heads)):
        yield from _whole(f"{at}{name}_proj", f"{key}.{letter}_proj", rows, h, False)
    for name in ("dt_bias", "A_log"):
        yield Slot(at + name, (f"{key}.{name}",), (c.value_heads,))
    yield Slot(at + "norm.weight", (key + ".o_norm.weight",), (c.value_width,))
    yield from _whole(at + "out_proj", key + ".o_proj", h, c.values, False)


def _split(name: str, key: str, rows: Rows, cols: int, bias: bool) -> Iterator[Slot]:
    """Parts of a stored matrix, one below the other."""
    total, at = sum(n for _, n in rows), 0
    for module, n in rows:
        yield Slot(f"{name}{module}.weight", (key + ".weight",), (total, cols), part((n, cols), (at, 0)))
        if bias:
            yield Slot(f"{name}{module}.bias", (key + ".bias",), (total,), part((n,), (at,)))
        at += n


def _whole(name: str, key: str, rows: int, cols: int, bias: bool) -> Iterator[Slot]:
    yield Slot(name + ".weight", (key + ".weight",), (rows, cols))
    if bias:
        yield Slot(name + ".bias", (key + ".bias",), (rows,))


def _taps(name: str, key: str, channels: int, taps: int, bias: bool) -> Iterator[Slot]:
    """Stored [channel, 1, tap]; the convolution wants [tap, 1, channel, 1]."""
    yield Slot(
        name + ".weight",
        (key + ".weight",),
        (channels, 1, taps),
        (("transpose", [2, 1, 0]), ("reshape", [taps, 1, channels, 1])),
    )
    if bias:
        yield Slot(name + ".bias", (key + ".bias",), (channels,))


def selective(s: SlotList, i: int) -> Iterator[Slot]:
    if "selective.by_head" in s.names.modules:
        yield from _selective_by_head(s, i)
        return
    c: Selective = s.c.keeper("selective")
    key, at, h = s.key(i, "selective"), f"layers.{i}.selective.", s.c.hidden
    yield from _split(at, key + ".in_proj", (("value_proj", c.inner), ("gate_proj", c.inner)), h, c.bias)
    yield from _taps(at + "conv", key + ".conv1d", c.inner, c.taps, c.conv_bias)
    rows = (("step_proj", c.rank), ("written_proj", c.state), ("read_proj", c.state))
    yield from _split(at, key + ".x_proj", rows, c.inner, False)
    yield from _whole(at + "rate_proj", key + ".dt_proj", c.inner, c.rank, True)
    yield Slot(at + "A_log", (key + ".A_log",), (c.inner, c.state), (("transpose", [1, 0]),))
    yield Slot(at + "D", (key + ".D",), (c.inner,))
    for module, stored, size in (("step", "dt", c.rank), ("written", "b", c.state), ("read", "c", c.state)):
        if c.norms == "gain":
            yield Slot(f"{at}{module}_norm.weight", (f"{key}.{stored}_layernorm.weight",), (size,))
    yield from _whole(at + "out_proj", key + ".out_proj", h, c.inner, c.bias)


def _selective_by_head(s: SlotList, i: int) -> Iterator[Slot]:
    """Tensors with the heads outside of them; rows of values and gates take turns."""
    c: Selective = s.c.keeper("selective")
    key, at, h, lanes = s.key(i, "selective"), f"layers.{i}.selective.", s.c.hidden, c.inner // c.heads
    yield from head_parts(c.inner, at, key + ".in_proj", h, (("value_proj", 1), ("gate_proj", 1)), c.bias)
    yield from _taps(at + "conv", key + ".conv1d", c.inner, c.taps, c.conv_bias)
    total, first = c.rank + 2 * c.state, 0
    for module, n in (("step_proj", c.rank), ("written_proj", c.state), ("read_proj", c.state)):
        steps = (*part((c.heads, n, lanes), (0, first, 0)), ("reshape", [c.heads * n, lanes]))
        yield Slot(f"{at}{module}.weight", (key + ".x_proj_weight",), (c.heads, total, lanes), steps)
        first += n
    steps = (("reshape", [c.inner, c.rank]),)
    yield Slot(at + "rate_proj.weight", (key + ".dt_proj_weight",), (c.heads, lanes, c.rank), steps)
    steps = (("reshape", [c.inner, c.state]), ("transpose", [1, 0]))
    yield Slot(at + "A_log", (key + ".A_log",), (c.heads, lanes, c.state), steps)
    for name, stored in (("rate_proj.bias", "dt_proj_bias"), ("D", "D")):
        yield Slot(at + name, (f"{key}.{stored}",), (c.heads, lanes), (("reshape", [c.inner]),))
    yield from _whole(at + "out_proj", key + ".out_proj", h, c.inner, c.bias)


def lru(s: SlotList, i: int) -> Iterator[Slot]:
    c: Lru = s.c.keeper("lru")
    key, at, h, lanes = s.key(i, "lru"), f"layers.{i}.lru.", s.c.hidden, c.width // c.blocks
    yield from _whole(at + "gate_proj", key + ".linear_y", c.width, h, True)
    yield from _whole(at + "value_proj", key + ".linear_x", c.width, h, True)
    yield from _taps(at + "conv", key + ".conv_1d", c.width, c.taps, True)
    for module, stored in (("taken_gate", "input_gate"), ("kept_gate", "recurrent_gate")):
        stored = f"{key}.rg_lru.{stored}_"
        yield Slot(
            f"{at}{module}.weight", (stored + "weight",), (c.blocks, lanes, lanes), (("reshape", [c.width, lanes]),)
        )
        yield Slot(f"{at}{module}.bias", (stored + "bias",), (c.blocks, lanes), (("reshape", [c.width]),))
    yield Slot(at + "slope", (key + ".rg_lru.recurrent_param",), (c.width,))
    yield from _whole(at + "out_proj", key + ".linear_out", h, c.width, True)


def time_mix(s: SlotList, i: int) -> Iterator[Slot]:
    c: TimeMix = s.c.keeper("time_mix")
    key, at, h = s.key(i, "time_mix"), f"layers.{i}.time_mix.", s.c.hidden
    for name in ("decay", "first"):
        yield Slot(at + name, (f"{key}.time_{name}",), (c.width,))
    for side in ("key", "value", "receptance"):
        yield Slot(f"{at}{side}_mix", (f"{key}.time_mix_{side}",), (1, 1, h))
        yield from _whole(f"{at}{side}_proj", f"{key}.{side}", c.width, h, False)
    yield from _whole(at + "out_proj", key + ".output", h, c.width, False)


def channel_mix(s: SlotList, i: int) -> Iterator[Slot]:
    key, at, h, units = s.key(i, "channel_mix"), f"layers.{i}.mlp.", s.c.hidden, s.c.intermediate
    for side in ("key", "receptance"):
        yield Slot(f"{at}{side}_mix", (f"{key}.time_mix_{side}",), (1, 1, h))
    for module, stored, rows, cols in (
        ("up_proj", "key", units, h),
        ("down_proj", "value", h, units),
        ("receptance_proj", "receptance", h, h),
    ):
        yield from _whole(at + module, f"{key}.{stored}", rows, cols, False)


def lightning(s: SlotList, i: int) -> Iterator[Slot]:
    c: Lightning = s.c.keeper("lightning")
    key, at, h, lanes = s.key(i, "lightning"), f"layers.{i}.lightning.", s.c.hidden, c.heads * c.width
    parts = (("query_proj", c.width), ("key_proj", c.width), ("value_proj", c.width))
    yield from head_parts(c.heads, at, key + ".qkv_proj", h, parts)
    yield from _whole(at + "gate_proj", key + ".output_gate", lanes, h, False)
    yield Slot(at + "norm.weight", (key + ".norm.weight",), (lanes,))
    yield from _whole(at + "out_proj", key + ".out_proj", h, lanes, False)


def channel_delta(s: SlotList, i: int) -> Iterator[Slot]:
    c: ChannelDelta = s.c.keeper("channel_delta")
    key, at, h = s.key(i, "channel_delta"), f"layers.{i}.channel_delta.", s.c.hidden
    for name in ("query", "key", "value"):
        yield from _whole(f"{at}{name}_proj", f"{key}.{name[0]}_proj", c.lanes, h, False)
        yield from _taps(f"{at}{name}_conv", f"{key}.{name[0]}_conv1d", c.lanes, c.taps, False)
    for name, letter in (("decay", "f"), ("gate", "g")):
        yield from _whole(f"{at}{name}_down", f"{key}.{letter}_a_proj", c.width, h, False)
        yield from _whole(f"{at}{name}_up", f"{key}.{letter}_b_proj", c.lanes, c.width, False)
    yield from _whole(at + "pace_proj", key + ".b_proj", c.heads, h, False)
    yield Slot(at + "dt_bias", (key + ".dt_bias",), (c.lanes,))
    yield Slot(at + "A_log", (key + ".A_log",), (1, 1, c.heads, 1), (("reshape", [1, c.heads]),))
    yield Slot(at + "norm.weight", (key + ".o_norm.weight",), (c.width,))
    yield from _whole(at + "out_proj", key + ".o_proj", h, c.lanes, False)


def shared(s: SlotList, i: int) -> Iterator[Slot]:
    """A layer stored where it stands first, or outside of all; the place's own residuals are numbered within it."""
    c, kind, modules = s.c, s.c.shared, s.names.modules
    assert kind is not None
    at, h, units = f"layers.{i}.shared.", s.c.hidden, s.c.intermediate
    inside = "shared" in modules
    key = s.layer(kind.lender[i]) + modules["shared"] if inside else outer_key(s.names, "shared", s.prefix)
    place, q, kv = kind.place[i], c.heads * c.head_dim, c.kv_heads * c.head_dim
    for side, rows in (("q", q), ("k", kv), ("v", kv)):
        yield from _whole(f"{at}{side}_proj", f"{key}self_attn.{side}_proj", rows, 2 * h, False)
        if kind.rank and kind.attention:
            own = f"{key}self_attn.linear_{side}_adapter_list.{place}."
            yield from _whole(f"{at}{side}_proj_down", own + "0", kind.rank, 2 * h, False)
            yield from _whole(f"{at}{side}_proj_up", own + "1", rows, kind.rank, False)
    yield from _whole(at + "o_proj", key + "self_attn.o_proj", h, q, False)
    both = (("gate_proj", units), ("up_proj", units))
    if "shared.gate_up" in modules:
        yield from _split(at, key + modules["shared.gate_up"], both, h, False)
    else:
        for side, rows in both:
            yield from _whole(at + side, f"{key}feed_forward.{side}", rows, h, False)
    if kind.rank:
        own = f"{key}feed_forward.gate_up_proj_adapter_list.{place}."
        for side in ("gate", "up"):
            yield from _whole(f"{at}{side}_proj_down", own + "0", kind.rank, h, False)
        yield from _split(at, own + "1", (("gate_proj_up", units), ("up_proj_up", units)), kind.rank, False)
    yield from _whole(at + "down_proj", key + "feed_forward.down_proj", h, units, False)
    yield Slot(at + "attn_norm.weight", (key + "input_layernorm.weight",), (2 * h,))
    yield Slot(at + "mlp_norm.weight", (key + "pre_ff_layernorm.weight",), (h,))
    yield from _whole(at + "out_proj", s.layer(i) + "linear", h, h, False)
