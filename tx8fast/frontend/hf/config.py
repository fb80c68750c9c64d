"""`config.json` of every supported family as a checked, typed record: what all families share.

May import: errors, frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError, raise_all
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.family import ACTIVATIONS, Family
from tx8fast.frontend.hf.lookalike import look_alikes
from tx8fast.frontend.hf.options import DTYPES
from tx8fast.frontend.hf.parts import COMPOSITES, piece_of, together_in
from tx8fast.frontend.hf.quantization import read_scheme
from tx8fast.frontend.hf.reader import MAX_LAYERS, Reader, Watched
from tx8fast.frontend.hf.spec import ModelConfig

MODEL_TYPES = tuple(FAMILIES)
MOST_ALIKE = 6  # families that a message names
#: of an image, by --dim
SIZES = ("height", "width")
#: formats of a config, some of which print the library's own; "auto": as the checkpoint is
_DTYPES: dict[str, str | None] = {**DTYPES, "half": "f16", "float": "f32", "auto": None}
_DTYPES |= {f"torch.{name}": dtype for name, dtype in _DTYPES.items()}


def parse_config(
    raw: Any,
    where: str,
    as_family: str | None = None,
    part: str | None = None,
    dims: Mapping[str, int] | None = None,
    fits: Callable[[ModelConfig], bool] = lambda config: True,
) -> ModelConfig:
    """Return the checked config of the JSON object `raw`; `where` names the file in messages, `as_family` the family to
    take it for, whatever it says, `part` the part of a model of several, `dims` the size of its image where that is free: height, width;
    `fits(config)`: a config of a family that is not named is that of the tensors beside it.

    Raises ConfigError for a part that it has not or sizes that are not free, UnsupportedError for another family, ImportModelError that lists every bad key and unsupported feature.
    """
    doing = f"reading model config {where}"
    if not isinstance(raw, dict):
        raise ImportModelError(f"{doing}: found {type(raw).__name__}, required a JSON object")
    kind = raw.get("model_type") if as_family is None else as_family
    if type(kind) is not str:
        raise ImportModelError(f"{doing}: key 'model_type' is {kind!r}, required one of {', '.join(MODEL_TYPES)}")
    if as_family is not None and as_family not in FAMILIES:
        raise UnsupportedError(f"{doing}: --as {as_family} is no family, supported are {', '.join(MODEL_TYPES)}")
    whole, outer = kind, raw.get("tie_word_embeddings")
    kind, raw = piece_of(kind, raw, part, doing)
    if kind == whole and kind in FAMILIES:
        kind = next((other for key, other in FAMILIES[kind].becomes.items() if key in raw), kind)
    if dims:
        raw = _sized(kind, raw, dims, doing)
    if kind in FAMILIES:
        config = _read(kind, raw, doing, set())
        outer_ties = outer is not False
        if config.tied != outer_ties and not config.encoder and whole in COMPOSITES:
            config = replace(config, tied=False, loose_head=True)  # the checkpoint knows which of the two holds
        together = together_in(whole, part)
        return replace(config, together=together) if together else config
    like = look_alikes(raw, lambda config, seen: _read(config["model_type"], config, doing, seen), fits)
    if len(like) == 1:
        raise UnsupportedError(
            f"{doing}: model_type '{kind}' is not known, but its keys are those of {like[0]}: give --as {like[0]} to take it for one, "
            "and compare the results with the original's"
        )
    if like:
        ways = ", ".join(f"--as {name}" for name in like[:MOST_ALIKE])
        more = f" and {len(like) - MOST_ALIKE} more" if len(like) > MOST_ALIKE else ""
        raise UnsupportedError(
            f"{doing}: model_type '{kind}' is not known, and its keys are those of families that compute different things: {ways}{more}; "
            "take the one that its code resembles, and compare the results with the original's"
        )
    raise UnsupportedError(
        f"{doing}: model_type '{kind}' is not supported, supported are {', '.join((*MODEL_TYPES, *COMPOSITES))}; "
        "export the model to ONNX and compile that, or give --as FAMILY if it computes what one of these does"
    )


def _sized(kind: str, raw: dict[str, Any], dims: Mapping[str, int], doing: str) -> dict[str, Any]:
    """Return the config of an image of the size that the caller chooses."""
    family = FAMILIES.get(kind)
    free = SIZES if family is not None and family.sized else ()
    if strangers := [n for n in dims if n not in free]:
        has = f"has {' and '.join(free)}" if free else "has no symbolic dimensions"
        raise ConfigError(
            f"{doing}: dims ({', '.join(strangers)}) cannot be bound, a model of type '{kind}' {has}; give batch, seq and past instead"
        )
    assert family is not None
    size = raw.get("image_size", family.defaults["image_size"])
    usual = dict(zip(SIZES, size if isinstance(size, list) else (size, size), strict=False))
    return {**raw, "image_size": [{**usual, **dims}[n] for n in SIZES]}


def _read(kind: str, raw: dict[str, Any], doing: str, seen: set[str]) -> ModelConfig:
    """Read a config of a known family; `seen` receives the keys that were looked at."""
    family = FAMILIES[kind]
    for section in family.sections:
        if isinstance(raw.get(section), dict):
            seen.add(section)
            raw = {**raw[section], **raw, section: None}
    for new, old in family.aliases.items():
        if raw.get(new) is not None:
            seen.add(new)
        if new in raw and raw.get(old) is None:
            raw = {**raw, old: raw[new]}
    for key, listed in family.counted.items():
        if raw.get(key) is None and isinstance(raw.get(listed), list):
            raw = {**raw, key: len(raw[listed])}
    usual = family.defaults  # also where the file says null, but for keys of which that says something
    given = {k: v for k, v in raw.items() if v is not None or k not in usual or _null_says(k, usual[k])}
    r = Reader(Watched({**usual, **given}, seen), family.keys)
    common = {**_common(r, kind, family), "quantization": read_scheme(r)}
    # stand-ins for bad sizes let the family's own keys be checked too
    fields = family.read(r, {**common, "heads": common["heads"] or 1, "layers": common["layers"] or 0})
    raise_all(ImportModelError, doing, r.problems)
    return ModelConfig(**fields)


def _null_says(key: str, usual: Any) -> bool:
    """Return whether null is a value of a key: a switch that is off, heads as many or as wide as others say, none of something."""
    return type(usual) is bool or key in ("head_dim", "num_key_value_heads", "q_lora_rank", "n_routed_experts")


def _common(r: Reader, kind: str, family: Family) -> dict[str, Any]:
    """What every family has, under the usual keys."""
    hidden, heads = r.size("hidden_size"), r.size("num_attention_heads")
    layers = r.size("num_hidden_layers", most=MAX_LAYERS)
    kv_heads = r.size("num_key_value_heads", heads)
    head_dim = r.size("head_dim", hidden // heads if hidden and heads else None)
    if heads and kv_heads and heads % kv_heads:
        r.problems.append(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if hidden and heads and r.value("head_dim") is None and hidden % heads:
        r.problems.append(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give 'head_dim'")
    inner = r.size("intermediate_size", int(family.inner * hidden) if family.inner and hidden else ...)
    layer_norm = family.norm == "layer"
    return {
        "model_type": kind,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate": inner,
        "vocab": r.size("vocab_size"),
        "norm_eps": r.number("layer_norm_eps", 1e-5) if layer_norm else r.number("rms_norm_eps", 1e-6),
        "activation": r.text("hidden_act", "silu", ACTIVATIONS),
        "tied": r.flag("tie_word_embeddings"),
        "dtype": r.text("dtype" if r.value("dtype") is not None else "torch_dtype", None, _DTYPES),
        "attention_scale": (head_dim or 1) ** -0.5,
        "encoder": family.encoder,
        "windows": (0,) * (layers or 0),
        "sparse": (False,) * (layers or 0),
        "rope_of": (-1,) * (layers or 0),
        **({"norm": "layer", "norm_bias": True} if layer_norm else {}),
    }
