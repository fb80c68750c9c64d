"""Attention windows: which layers see only the last tokens.

May import: frontend.hf.reader. Must not: know model families.
"""

from __future__ import annotations

from tx8fast.frontend.hf.reader import Reader


def all_layers(r: Reader, layers: int) -> tuple[int, ...]:
    """`sliding_window`, if given, holds for every layer."""
    return (r.size("sliding_window", 0) or 0,) * layers


def chosen_layers(r: Reader, layers: int, first: int = 28) -> tuple[int, ...]:
    """Only if switched on: the layers that `layer_types` names, else those from `max_window_layers` (default `first`) up."""
    window = r.size("sliding_window", 0) or 0
    if not r.flag("use_sliding_window"):
        return (0,) * layers
    types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": window})
    if types is not None:
        return tuple(types)
    start = r.count("max_window_layers", first)
    return tuple(window if i >= start else 0 for i in range(layers))


def pattern_layers(r: Reader, layers: int, every: int) -> tuple[int, ...]:
    """All layers slide but every `every`-th, unless `layer_types` says otherwise."""
    window = r.size("sliding_window", 4096) or 0
    types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": window})
    return tuple(types) if types is not None else tuple(window if (i + 1) % every else 0 for i in range(layers))
