"""What mixes the tokens of a layer: attention, or something that keeps a state, or both side by side.

May import: frontend.hf. Must not: read files.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.frontend.hf.attention import Made, Past, attention
from tx8fast.frontend.hf.blocks import Blocks
from tx8fast.frontend.hf.cells import cells
from tx8fast.frontend.hf.channel_delta import channel_delta
from tx8fast.frontend.hf.convolution import short_conv
from tx8fast.frontend.hf.delta import delta
from tx8fast.frontend.hf.disentangled import disentangled
from tx8fast.frontend.hf.lightning import lightning
from tx8fast.frontend.hf.scan import scan
from tx8fast.frontend.hf.selective import lru, selective
from tx8fast.frontend.hf.squares import squares
from tx8fast.frontend.hf.time_mix import time_mix
from tx8fast.ir.core import Value


def _both(m: Blocks, i: int, x: Value, past: Past) -> tuple[Value, Made]:
    """Attention and a scan of the same rows, added."""
    (y, made), (z, kept) = attention(m, i, x, past), scan(m, i, x, past)
    return m.b("add", y, z, loc=f"layers.{i}.mixed"), made | kept


MIXERS: dict[str, Callable[[Blocks, int, Value, Past], tuple[Value, Made]]] = {
    "attention": attention,
    "conv": short_conv,
    "scan": scan,
    "delta": delta,
    "attention+scan": _both,
    "shared+scan": scan,
    "shared+selective": selective,
    "selective": selective,
    "disentangled": disentangled,
    "lru": lru,
    "lightning": lightning,
    "channel_delta": channel_delta,
    "time_mix": time_mix,
    "squares": squares,
    "cells": cells,
}
