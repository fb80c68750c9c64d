"""Attention windows: which layers see only the last tokens.

May import: frontend.hf.reader, frontend.hf.family. Must not: know model families.
"""

from __future__ import annotations

from tx8fast.frontend.hf.family import Fields, Read
from tx8fast.frontend.hf.reader import Reader


def window_of(r: Reader, default: int = 0) -> int:
    """Return the config's window; null means none, `default` holds where the config does not say."""
    return (
        0
        if "sliding_window" in r.raw and r.raw["sliding_window"] is None
        else r.size("sliding_window", default or None) or 0
    )


def all_layers(default: int = 0) -> Read:
    """The window holds for every layer that `layer_types` does not except."""

    def read(r: Reader, f: Fields) -> tuple[int, ...]:
        window = window_of(r, default)
        types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "sliding_attention": window})
        return tuple(types) if types is not None else (window,) * f["layers"]

    return read


def chosen_layers(first: int = 28) -> Read:
    """Only if switched on: the layers that `layer_types` names, else those from `max_window_layers` (default `first`) up."""

    def read(r: Reader, f: Fields) -> tuple[int, ...]:
        layers, window = f["layers"], window_of(r, 4096) if r.flag("use_sliding_window") else 0
        if not window:
            return (0,) * layers
        types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": window})
        if types is not None:
            return tuple(types)
        start = r.count("max_window_layers", first)
        return tuple(window if i >= start else 0 for i in range(layers))

    return read


def pattern_layers(every: int, key: str = "sliding_window_pattern", window: int = 4096, last: bool = False) -> Read:
    """All layers slide but every `every`-th (the config's `key`, if it has it), unless `layer_types` says otherwise.

    `window`: where the config does not say; `last`: the last layer never slides.
    """

    def read(r: Reader, f: Fields) -> tuple[int, ...]:
        layers = f["layers"]
        wide = window_of(r, window)
        types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": wide})
        if types is not None:
            return tuple(types)
        spelled = r.raw.get(key)
        if type(spelled) is str and spelled and set(spelled) <= {"L", "G"}:  # local and global, from the first layer on
            return tuple(wide if spelled[i % len(spelled)] == "L" else 0 for i in range(layers))
        period = r.size(key, every) or every
        return tuple(wide if (i + 1) % period and not (last and i + 1 == layers) else 0 for i in range(layers))

    return read
