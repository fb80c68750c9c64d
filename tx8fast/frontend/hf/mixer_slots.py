"""The slots of layers that are no attention.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast.frontend.hf.slots import Slot, SlotList, part

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
