"""Rotation settings of a config file: three spellings, six scalings.

May import: frontend.hf, weights. Must not: compute tables.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tx8fast.frontend.hf.family import Fields, Part, Read
from tx8fast.frontend.hf.reader import Reader, positive
from tx8fast.frontend.hf.spec import Rope
from tx8fast.frontend.hf.windows import window_of
from tx8fast.weights.rope import ROPE_TYPES

_YARN_OPTIONS = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim")


def section_of(r: Reader) -> tuple[str, dict[str, Any]]:
    """Return the name and content of the section that describes the rotation; newer files nest all of it. The library takes the older
    one if a file has both."""
    section = "rope_scaling" if r.raw.get("rope_scaling") or not r.raw.get("rope_parameters") else "rope_parameters"
    raw = r.raw.get(section) or {}
    if not isinstance(raw, dict):
        r.problems.append(f"key '{section}' is {raw!r}, required: an object")
        raw = {}
    return section, raw


def read_rope(
    r: Reader,
    head_dim: int | None,
    *,
    section: str,
    raw: dict[str, Any],
    theta_key: str = "rope_theta",
    part: float | None = None,
    theta: float = 10000.0,
    style: str = "half",
) -> Rope:
    """Return the checked rotation; `part` and `theta` are the family's defaults, `part` None: heads are turned whole, whatever the file says."""
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "su" or kind == "yarn" and "short_factor" in raw:  # longrope by its first names
        kind = "longrope"
    images = "mrope_section" in raw
    if kind == "mrope":
        kind = "default"
    scaling: dict[str, Any] = {"rope_type": kind}
    gain = 1.0
    if type(kind) is not str or kind not in (*ROPE_TYPES, "dynamic"):
        r.problems.append(f"{section}: rope_type {kind!r} is not one of {', '.join(ROPE_TYPES)}, dynamic")
    elif kind == "longrope":
        gain = _longrope(r, section, raw, scaling)
    elif kind == "dynamic":
        _dynamic(r, section, raw, scaling)
    elif kind == "proportional":
        if raw.get("factor") not in (None, 1, 1.0):
            r.problems.append(f"{section}: key 'factor' is {raw['factor']!r}, supported for proportional: 1.0")
    else:
        wanted = dict.fromkeys(ROPE_TYPES[kind])
        given = dict(raw)
        if "original_max_position_embeddings" in wanted:
            given["original_max_position_embeddings"] = _trained_length(r, raw)
        for key in wanted:
            if not positive(given.get(key)):
                r.problems.append(f"{section}: key '{key}' is {given.get(key)!r}, required for {kind}: a number > 0")
            scaling[key] = given.get(key)
        low, high = scaling.get("low_freq_factor"), scaling.get("high_freq_factor")
        if positive(low) and positive(high) and low >= high:
            r.problems.append(f"{section}: low_freq_factor {low} is not below high_freq_factor {high}")
        if kind == "yarn":
            gain = _yarn(r, section, raw, scaling)
    nested = raw.get("rope_theta")
    if nested is not None and not positive(nested):
        r.problems.append(f"{section}: key 'rope_theta' is {nested!r}, required: a number > 0")
    base = nested if positive(nested) else r.number(theta_key, theta)
    if positive(scaling.get("alpha")) and head_dim and head_dim > 2:
        base = (base or theta) * scaling["alpha"] ** (head_dim / (head_dim - 2))
    share = raw.get("partial_rotary_factor")
    said = "partial_rotary_factor" in r.raw  # with null: of nothing but whole heads
    share = r.value("partial_rotary_factor", 1.0 if said else part or 1.0) if share is None else share
    if part is None and kind != "proportional" and share != 1:
        r.problems.append(f"key 'partial_rotary_factor' is {share!r}, supported: 1.0 (this family turns whole heads)")
        share = 1.0
    if not positive(share) or share > 1:
        r.problems.append(f"key 'partial_rotary_factor' is {share!r}, required: a number in (0, 1]")
        share = 1.0
    if kind == "proportional":
        scaling["turned"] = int(share * (head_dim or 2) // 2)
        share = 1.0
    rotary = int((head_dim or 2) * share)
    if rotary < 2 or rotary % 2:
        r.problems.append(f"rotary width {rotary} (head_dim {head_dim} x {share}) is not an even number >= 2")
    factors = scaling.get("short_factor")
    if factors is not None and 2 * len(factors) != rotary:
        r.problems.append(
            f"{section}: short_factor has {len(factors)} entries, rotary width {rotary} needs {rotary // 2}"
        )
    return Rope(base or theta, rotary, scaling, style, gain, images)


def rotation(style: str | Read = "half", width: Read | None = None, **options: Any) -> Part:
    """One rotation for all layers. `width`: the lanes of a head if not `head_dim`; `options` of `read_rope`."""

    def read(r: Reader, f: Fields) -> Fields:
        section, raw = section_of(r)
        lanes = f["head_dim"] if width is None else width(r, f)
        turned = style if isinstance(style, str) else style(r, f)
        rope = read_rope(r, lanes, section=section, raw=raw, style=turned, **options)
        return {"ropes": (rope,), "rope_of": (0,) * f["layers"]}

    return read


def rotation_by_window(far: Fields, near: Fields, near_raw: Fields | None = None) -> Part:
    """One rotation for layers that see everything and one for those with a window; options of `read_rope` each.

    Newer files have a section per kind of layer, older ones one section, which holds for `far`; `near_raw`: what holds
    for the others then (None: the section without its scaling).
    """

    def read(r: Reader, f: Fields) -> Fields:
        section, raw = section_of(r)
        if "full_attention" in raw or "sliding_attention" in raw:
            parts = [raw.get(k) or {} for k in ("full_attention", "sliding_attention")]
            if not all(isinstance(part, dict) for part in parts):
                r.problems.append(f"{section}: full_attention and sliding_attention are {parts!r}, required: objects")
                parts = [{}, {}]
            old = {"rope_theta"}
        else:
            if section == "rope_parameters" and raw:
                r.problems.append(f"{section}: has {', '.join(raw)}, required: full_attention and sliding_attention")
            parts = [raw, near_raw if near_raw is not None else {k: v for k, v in raw.items() if k == "rope_theta"}]
            old = set()
        ropes = []
        for part, options in zip(parts, (far, near), strict=True):
            nested = {k: v for k, v in options.items() if k != "theta_key"} if old else options
            ropes.append(read_rope(r, f["head_dim"], section=section, raw=part, **nested))
        return {"ropes": tuple(ropes), "rope_of": tuple(1 if w else 0 for w in f["windows"])}

    return read


def waves_at(behind: int, **placed: int) -> Part:
    """Positions are sines and cosines where the checkpoint has none: over all waves but `behind` these grow 10000 times as long.
    placed: the first of them, and how many are stored."""

    def read(r: Reader, f: Fields) -> Fields:
        width = f["hidden"] or 2
        if width % 2:
            r.problems.append(f"hidden_size is {width}, sines and cosines take an even number")
        return {"waves": max(1, width // 2 - behind), **placed}

    return read


def backwards(r: Reader, f: Fields) -> Fields:
    """The angle falls with the position. Must follow a rotation."""
    return {"ropes": tuple(replace(rope, backwards=True) for rope in f["ropes"])}


def thetas(key: str) -> Part:
    """A base for every layer, where the list `key` is given, 0: without rotation. Must follow a rotation."""

    def read(r: Reader, f: Fields) -> Fields:
        want = f"a list of {f['layers']} numbers >= 0"
        given = r.get(
            key,
            None,
            want,
            lambda v: (
                type(v) is list
                and len(v) == f["layers"]
                and all(t == 0 or positive(t) for t in v if type(t) is not bool)
            ),
        )
        if given is None:
            return {}
        bases = sorted({float(theta) for theta in given if theta})
        return {
            "ropes": tuple(replace(f["ropes"][0], theta=theta) for theta in bases),
            "rope_of": tuple(bases.index(theta) if theta else -1 for theta in given),
        }

    return read


def unturned(key: str, every_key: str, every: int) -> Part:
    """Layers without rotation: a list of 1 and 0 (= without), else every `every`-th. Must follow a rotation."""

    def read(r: Reader, f: Fields) -> Fields:
        layers, period = f["layers"], r.size(every_key, every) or every
        turns = r.layer_list(key, layers, {0: -1, 1: 0}) if r.raw.get(key) != [] else None  # empty: not said
        return {"rope_of": tuple(turns) if turns else tuple(0 if (i + 1) % period else -1 for i in range(layers))}

    return read


def unturned_far(r: Reader, f: Fields) -> Fields:
    """Only layers with a window are rotated. Must follow a rotation."""
    return {"rope_of": tuple(0 if w else -1 for w in f["windows"])}


def unturned_beside_windows(r: Reader, f: Fields) -> Fields:
    """Only layers with a window are rotated, all where the config says that there is none. Must follow a rotation."""
    return unturned_far(r, f) if window_of(r, 4096) else {}


def softmax_gain(r: Reader) -> float:
    """Return the square of the temperature that latent attention with a scaled rotation puts on its scores."""
    _, raw = section_of(r)
    every, factor = raw.get("mscale_all_dim"), raw.get("factor")
    scaled = raw.get("rope_type", raw.get("type", "default")) != "default"
    return _temperature(factor, every) ** 2 if scaled and positive(every) and positive(factor) else 1.0


def _trained_length(r: Reader, raw: dict[str, Any]) -> Any:
    """Return the length before it was scaled: as the library does, of the file before that of the section, else the longest."""
    key = "original_max_position_embeddings"
    own, nested = r.value(key), raw.get(key)
    return own if own is not None else nested if nested is not None else r.value("max_position_embeddings")


def _yarn(r: Reader, section: str, raw: dict[str, Any], scaling: dict[str, Any]) -> float:
    for key in _YARN_OPTIONS:
        value = raw.get(key)
        if value is None or (value == 0 and key.startswith("mscale")):
            continue
        if not positive(value):
            r.problems.append(f"{section}: key '{key}' is {value!r}, required for yarn: a number > 0")
        else:
            scaling[key] = value
    if raw.get("truncate") is not None:
        scaling["truncate"] = bool(raw["truncate"])
    if "attention_factor" in scaling:
        return scaling.pop("attention_factor")
    factor = scaling.get("factor")
    if not positive(factor):
        return 1.0
    one, every = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return _temperature(factor, one) / _temperature(factor, every) if one and every else _temperature(factor, 1.0)


def _temperature(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _dynamic(r: Reader, section: str, raw: dict[str, Any], scaling: dict[str, Any]) -> None:
    """Up to the trained length nothing is scaled, but where `alpha` is given, which stretches the base at all lengths."""
    alpha, trained = raw.get("alpha"), r.value("max_position_embeddings")
    if alpha and not positive(alpha):
        r.problems.append(f"{section}: key 'alpha' is {alpha!r}, required for dynamic: a number > 0")
    elif alpha:
        scaling["alpha"] = alpha
    elif not positive(trained):
        r.problems.append(f"key 'max_position_embeddings' is {trained!r}, required for dynamic: a number > 0")
    else:
        scaling["trained"] = trained


def _longrope(r: Reader, section: str, raw: dict[str, Any], scaling: dict[str, Any]) -> float:
    trained = _trained_length(r, raw)
    longest = r.value("max_position_embeddings")
    if not positive(trained):
        r.problems.append(
            f"{section}: key 'original_max_position_embeddings' is {trained!r}, required for longrope: a number > 0"
        )
        return 1.0
    scaling["original_max_position_embeddings"] = trained
    for key in ("short_factor", "long_factor"):
        value = raw.get(key)
        if type(value) is not list or not value or not all(positive(v) for v in value):
            r.problems.append(f"{section}: key '{key}' is not a list of numbers > 0, required for longrope")
        else:
            scaling[key] = value
    if len(scaling.get("short_factor", ())) != len(scaling.get("long_factor", ())):
        r.problems.append(f"{section}: short_factor and long_factor differ in length")
    if positive(raw.get("attention_factor")):
        return raw["attention_factor"]
    own = [raw.get(f"{length}_mscale") for length in ("short", "long")]  # what some files call it, per set of divisors
    if own != [None, None]:
        if own[0] != own[1] or not positive(own[0]):
            r.problems.append(
                f"{section}: short_mscale {own[0]!r} and long_mscale {own[1]!r}, supported: one number > 0"
            )
            return 1.0
        return own[0]
    factor = raw.get("factor") or (longest / trained if positive(longest) else 1.0)
    return math.sqrt(1 + math.log(factor) / math.log(trained)) if positive(factor) and factor > 1 else 1.0
