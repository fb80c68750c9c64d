"""Attention windows: which layers see only the last tokens.

May import: frontend.hf.reader, frontend.hf.family. Must not: know model families.
"""

from __future__ import annotations

from tx8fast.frontend.hf.family import Fields, Read
from tx8fast.frontend.hf.reader import Reader


def window_of(r: Reader, default: int = 0) -> int:
    """Return the config's window; null means none, `default` holds where the config does not say."""
    return size_or_none(r, "sliding_window", default)


def size_or_none(r: Reader, key: str, default: int) -> int:
    """Return a size, 0 where the config says null, `default` where it does not say."""
    return 0 if key in r.raw and r.raw[key] is None else r.size(key, default or None) or 0


def all_layers(default: int = 0, typed: bool = False) -> Read:
    """The window holds for every layer, `typed`: that `layer_types` does not except; other families do not read that key."""

    def read(r: Reader, f: Fields) -> tuple[int, ...]:
        window = window_of(r, default)
        known = {"full_attention": 0, "sliding_attention": window}
        types = r.layer_list("layer_types", f["layers"], known) if typed else None
        return tuple(types) if types is not None else (window,) * f["layers"]

    return read


def chosen_layers(r: Reader, f: Fields) -> tuple[int, ...]:
    """Only if switched on: the layers that `layer_types` names, else those from `max_window_layers` up."""
    layers, window = f["layers"], window_of(r, 4096) if r.flag("use_sliding_window") else 0
    if not window:
        return (0,) * layers
    types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": window})
    if types is not None:
        return tuple(types)
    start = r.count("max_window_layers", 28)
    return tuple(window if i >= start else 0 for i in range(layers))


def unrotated_layers(r: Reader, f: Fields) -> Fields:
    """The layers that `layer_types` names, else if switched on those without rotation. Must follow what says which these are."""
    window = window_of(r)
    types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "sliding_attention": window})
    if types is None:
        types = [window if turn < 0 and r.flag("use_sliding_window") else 0 for turn in f["rope_of"]]
    return {"windows": tuple(types)}


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
