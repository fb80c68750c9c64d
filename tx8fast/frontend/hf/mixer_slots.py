"""The slots of layers that are no attention.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast.frontend.hf.slots import Slot, SlotList, head_parts, part

Rows = tuple[tuple[str, int], ...]


def short_conv(s: SlotList, i: int) -> Iterator[Slot]:
    c = s.c.short_conv
    assert c is not None
    key, h = s.key(i, "conv"), s.c.hidden
    yield from _split(
        f"layers.{i}.conv.", key + ".in_proj", (("before_proj", h), ("after_proj", h), ("value_proj", h)), h, c.bias
    )
    yield from _taps(f"layers.{i}.conv.conv", key + ".conv", h, c.taps, c.bias)
    yield from _whole(f"layers.{i}.conv.out_proj", key + ".out_proj", h, h, c.bias)


def scan(s: SlotList, i: int) -> Iterator[Slot]:
    c = s.c.scan
    assert c is not None
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
    """Projections stored fused by key head, or one below the other."""
    c = s.c.delta
    assert c is not None
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
