"""Rotation tables of transformers: angular frequencies of every known scaling, cosines and signed sines.

May import: numpy, errors. Must not: read files; know the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError

Shape = tuple[int, ...]
#: scalings and the keys each needs; yarn knows further ones with defaults
ROPE_TYPES: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("factors",),
    "proportional": (),
}


def rope_frequencies(theta: float, rotary_dim: int, scaling: Mapping[str, Any] | None = None) -> np.ndarray:
    """Return the (rotary_dim / 2,) float64 angular frequencies in radians per position.

    `scaling["rope_type"]` is "default", "linear" (`factor`), "llama3" (`factor`, `low_freq_factor`,
    `high_freq_factor`, `original_max_position_embeddings`: long waves are stretched by `factor`, short ones
    kept, those between blended), "yarn" (the same idea, blended linearly over the lanes between those that
    turn `beta_fast` and `beta_slow` times), "longrope" (`factors`, one divisor per lane) or "proportional" (only the first `turned` frequencies
    are not zero). Raises
    ImportModelError for another type.
    """
    freq = theta ** -(np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "default" or scaling is None:
        return freq
    if kind == "linear":
        return freq / scaling["factor"]
    if kind == "proportional":
        return np.where(np.arange(freq.size) < scaling["turned"], freq, 0.0)
    if kind == "yarn":
        return _yarn(freq, theta, rotary_dim, scaling)
    if kind == "longrope":
        return freq / np.asarray(scaling["factors"], np.float64)
    if kind != "llama3":
        raise ImportModelError(f"rope scaling '{kind}' is not one of {', '.join(ROPE_TYPES)}")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * freq / (2 * math.pi)  # full waves in the trained length
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return freq * (keep + (1 - keep) / scaling["factor"])


def _yarn(freq: np.ndarray, theta: float, rotary_dim: int, scaling: Mapping[str, Any]) -> np.ndarray:
    trained = scaling["original_max_position_embeddings"]

    def lane(turns: float) -> float:
        return rotary_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = lane(scaling.get("beta_fast") or 32), lane(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    stretch = np.clip((np.arange(freq.size) - low) / (high - low or 1e-3), 0.0, 1.0)
    return freq * (1 - stretch) + freq / scaling["factor"] * stretch


def _angles(attrs: Mapping[str, Any], shape: Shape) -> tuple[np.ndarray, int, bool]:
    """Return (length, rotary_dim) angles in lane order, the rotary width, and whether lanes interleave."""
    length, dim = shape
    rotary = int(attrs.get("rotary_dim") or dim)
    interleaved = attrs.get("style", "half") == "interleaved"
    freq = rope_frequencies(float(attrs["theta"]), rotary, attrs.get("scaling"))
    position = np.arange(length, dtype=np.float64) + attrs.get("offset", 0)
    angle = np.outer(position, freq)
    return (
        np.repeat(angle, 2, axis=1) if interleaved else np.tile(angle, (1, 2)),
        rotary,
        interleaved,
    )


def rope_cos(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Cosines [length, head_dim] times `gain` (default 1); lanes past `rotary_dim` hold 1."""
    angle, rotary, _ = _angles(attrs, shape)
    table = np.ones(shape)
    table[:, :rotary] = np.cos(angle) * attrs.get("gain", 1.0)
    return table


def rope_sin(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Sines [length, head_dim] times `gain`, with the sign of the rotation, `backwards`: the other one; lanes past `rotary_dim`
    hold 0."""
    angle, rotary, interleaved = _angles(attrs, shape)
    sign = np.ones(rotary)
    if interleaved:
        sign[0::2] = -1.0
    else:
        sign[: rotary // 2] = -1.0
    table = np.zeros(shape)
    gain = attrs.get("gain", 1.0) * (-1.0 if attrs.get("backwards") else 1.0)
    table[:, :rotary] = np.sin(angle) * sign * gain
    return table
