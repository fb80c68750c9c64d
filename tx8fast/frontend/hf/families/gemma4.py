"""Gemma 3n and 4: layers that differ in their heads, share keys and values, and see rows of a second embedding.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tx8fast.frontend.hf.families.names import SANDWICH
from tx8fast.frontend.hf.family import Family, Fields, Stack, biases, cap
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import read_rope, rotation_by_window, section_of
from tx8fast.frontend.hf.routing import routed
from tx8fast.frontend.hf.spec import Side
from tx8fast.frontend.hf.windows import window_of

_FULL, _NEAR = "full_attention", "sliding_attention"
_ROPES: dict[str, dict[str, Any]] = {
    _FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    _NEAR: {"rope_type": "default", "rope_theta": 1e4},
}


def _kinds(r: Reader, layers: int) -> list[str]:
    kinds = r.layer_list("layer_types", layers, {_FULL: _FULL, _NEAR: _NEAR})
    kinds = kinds or [_NEAR if (i + 1) % 6 else _FULL for i in range(layers)]
    return [*kinds[:-1], _FULL]  # the last one sees everything, whatever the file says


def _forms(r: Reader, f: Fields, kinds: list[str]) -> tuple[tuple[int, int], ...]:
    """Key heads and widths of heads: those of layers that see everything are others. A file that says these layer by layer, be it by an
    empty object or null, has no others."""
    near = (f["kv_heads"] or 1, f["head_dim"] or 1)
    heads = r.size("num_global_key_value_heads", near[0]) if r.flag("attention_k_eq_v") else near[0]
    far = (heads or 1, r.size("global_head_dim", 512) or 1)
    own = r.get("per_layer_config", {}, "an object", lambda v: isinstance(v, dict)) or {}
    if "per_layer_config" not in r.raw:
        return tuple(far if kind == _FULL else near for kind in kinds)
    found, numbered = (
        [],
        {int(k): v for k, v in own.items() if k.isascii() and k.isdigit()},
    )  # with leading zeros in some files
    for i in range(len(kinds)):
        inner = Reader(numbered.get(i) or {})
        found.append((inner.size("num_key_value_heads", near[0]) or 1, inner.size("head_dim", near[1]) or 1))
        r.problems += inner.problems
    return tuple(found)


def _rope_sections(r: Reader) -> dict[str, dict[str, Any]]:
    """A rotation for either kind of layer, the library's where the file has none."""
    _, raw = section_of(r)
    found = {kind: raw.get(kind) or usual for kind, usual in _ROPES.items()}
    for kind, section in found.items():
        if not isinstance(section, dict):
            r.problems.append(f"rope_parameters: key '{kind}' is {section!r}, required: an object")
            found[kind] = _ROPES[kind]
    return found


def _layers(r: Reader, f: Fields) -> Fields:
    layers = f["layers"]
    if not layers:
        return {}
    kinds = _kinds(r, layers)
    forms, window = _forms(r, f, kinds), window_of(r, 512)
    given = _rope_sections(r)
    ropes = []
    for kind in (_FULL, _NEAR):
        width = next((w for k, (_, w) in zip(kinds, forms, strict=True) if k == kind), f["head_dim"])
        ropes.append(replace(read_rope(r, width, section="rope_parameters", raw=given[kind]), width=width or 0))
    first = layers - r.count("num_kv_shared_layers", 0)
    lenders = {kind: i for i, kind in enumerate(kinds[: max(0, first)])}
    if first < layers and set(kinds) != set(lenders):
        r.problems.append(
            f"num_kv_shared_layers leaves {first} layers with keys of their own, among them not every kind of layer"
        )
    wide = 2 if r.flag("use_double_wide_mlp") else 1
    units = tuple((f["intermediate"] or 1) * (wide if i >= first else 1) for i in range(layers))
    for heads, _ in forms:
        if f["heads"] % heads:
            r.problems.append(f"num_attention_heads {f['heads']} is not a multiple of {heads} key heads")
    width = r.count("hidden_size_per_layer_input", 256)
    return {
        "ropes": tuple(ropes),
        "rope_of": tuple(int(kind == _NEAR) for kind in kinds),
        "forms": forms,
        "units": units,
        "windows": tuple(window if kind == _NEAR else 0 for kind in kinds),
        "keys_from": tuple(-1 if i < first else lenders.get(kind, -1) for i, kind in enumerate(kinds)),
        "keys_as_values": tuple(kind == _FULL and r.flag("attention_k_eq_v") for kind in kinds),
        "side": Side(r.size("vocab_size_per_layer_input", 262144) or 1, width) if width else None,
    }


def _experts(r: Reader, f: Fields) -> Fields:
    if not r.flag("enable_moe_block"):
        return {}
    return routed(
        "num_experts",
        "moe_intermediate_size",
        top_k="top_k_experts",
        normalise=True,
        router_norm=True,
        expert_scale=True,
        beside=True,
    )(r, f)


def _gemma3n(r: Reader, f: Fields) -> Fields:
    layers = f["layers"]
    if not layers:
        return {}
    kinds = r.layer_list("layer_types", layers, {_FULL: _FULL, _NEAR: _NEAR})
    kinds = kinds or [_NEAR if (i + 1) % 5 else _FULL for i in range(layers)]
    units = r.raw.get("intermediate_size", 16384)
    units = units if type(units) is list else [units] * layers
    if len(units) != layers or any(type(n) is not int or n < 1 for n in units):
        r.problems.append(
            f"key 'intermediate_size' is {r.raw.get('intermediate_size')!r}, required: a whole number >= 1, or one per layer"
        )
        units = [1] * layers
    shares = r.raw.get("activation_sparsity_pattern")
    if shares is None:
        shares = [0.95 if i < 10 < layers else 0.0 for i in range(layers)]
    shares = shares if type(shares) is list else [shares] * layers
    if len(shares) != layers or any(type(v) not in (int, float) or not 0 <= v < 1 for v in shares):
        r.problems.append(
            f"key 'activation_sparsity_pattern' is {shares!r}, required: numbers from 0 to 1, one per layer"
        )
        shares = [0.0] * layers
    window, first = window_of(r, 512), layers - r.count("num_kv_shared_layers", 15)
    lenders = {kind: i for i, kind in enumerate(kinds[: max(0, first)])}
    if first < layers and set(kinds) != set(lenders):
        r.problems.append(
            f"num_kv_shared_layers leaves {first} layers with keys of their own, among them not every kind of layer"
        )
    from statistics import NormalDist  # loads fractions and decimals, which no other family needs

    return {
        "windows": tuple(window if kind == _NEAR else 0 for kind in kinds),
        "units": tuple(units),
        "intermediate": max(units),
        "sparsity": tuple(NormalDist().inv_cdf(v) if v else None for v in shares),
        "keys_from": tuple(-1 if i < first else lenders.get(kind, -1) for i, kind in enumerate(kinds)),
        "streams": r.size("altup_num_inputs", 4) or 1,
        "laurel": r.size("laurel_rank", 64) or 1,
        "side": Side(
            r.size("vocab_size_per_layer_input", 262144) or 1, r.size("hidden_size_per_layer_input", 256) or 1
        ),
    }


_SIDE_NAMES = {
    "side_tokens": "embed_tokens_per_layer",
    "side_proj": "per_layer_model_projection",
    "side_proj_norm": "per_layer_projection_norm",
}
FAMILIES: dict[str, Family] = {
    "gemma3n_text": Family(
        "several streams of which a layer computes one and predicts and corrects the others, a second residual of low rank, rows of a second "
        "embedding in every layer, keys of earlier layers in the last ones, values normalised, sparse gates; of `gemma3n` the text half",
        SANDWICH.but(
            also={
                "altup.router": "altup.modality_router",
                "altup.predict": "altup.prediction_coefs",
                "altup.correct": "altup.correction_coefs",
                "altup.norm": "altup.router_norm",
                "altup.scale": "altup.correct_output_scale",
            },
            laurel_down="laurel.linear_left",
            laurel_up="laurel.linear_right",
            laurel_norm="laurel.post_laurel_norm",
            side_gate="per_layer_input_gate",
            side_out="per_layer_projection",
            side_norm="post_per_layer_input_norm",
            outer={**_SIDE_NAMES, "streams": "altup_projections", "unstreams": "altup_unembed_projections"},
        ),
        {
            **biases(),
            "qk_norm": "head",
            "value_norm": True,
            "attention_scale": 1.0,
            "embedding_scale": lambda r, f: (f["hidden"] or 1) ** 0.5,
            "logits_cap": cap("final_logit_softcapping", 30.0),
        },
        (_gemma3n, rotation_by_window({"theta": 1e6}, {"theta_key": "rope_local_base_freq"}, near_raw={})),
        # hidden units are one number or one per layer, which `_gemma3n` reads
        keys={"hidden_act": "hidden_activation", "intermediate_size": "units of the layer"},
        inner=8,
        fixed={"altup_active_idx": (0,), "altup_correct_scale": (True,)},
        defaults={
            "head_dim": 256,
            "tie_word_embeddings": True,
            "hidden_activation": "gelu_pytorch_tanh",
            "num_key_value_heads": 2,
            "num_attention_heads": 8,
            "hidden_size": 2048,
            "num_hidden_layers": 35,
            "vocab_size": 262400,
        },
    ),
    "gemma4_text": Family(
        "heads of other sizes in layers that see everything, keys that serve as values, keys of earlier layers in the last ones, values "
        "normalised, rows of a second embedding in every layer, experts beside the feed-forward part; of `gemma4` the text half, where rows of "
        "images may see each other, which is not there",
        SANDWICH.but(
            side_gate="per_layer_input_gate",
            side_out="per_layer_projection",
            side_norm="post_per_layer_input_norm",
            factor="layer_scalar",
            router="router.proj",
            router_scale="router.scale",
            expert_scale="router.per_expert_scale",
            mlp_own_norm="post_feedforward_layernorm_1",
            experts_norm="pre_feedforward_layernorm_2",
            experts_post_norm="post_feedforward_layernorm_2",
            outer=_SIDE_NAMES,
        ).stacked(
            gate_proj=Stack("experts.gate_up_proj", ("e", "2i", "h"), 0),
            up_proj=Stack("experts.gate_up_proj", ("e", "2i", "h"), 1),
            down_proj=Stack("experts.down_proj", ("e", "h", "i")),
        ),
        {
            **biases(),
            "qk_norm": "head",
            "value_norm": True,
            "layer_factor": True,
            "together": lambda r, f: "image" if r.value("use_bidirectional_attention") == "vision" else "",
            "attention_scale": 1.0,
            "embedding_scale": lambda r, f: (f["hidden"] or 1) ** 0.5,
            "logits_cap": cap("final_logit_softcapping"),
        },
        (_layers, _experts),
        keys={"hidden_act": "hidden_activation"},
        fixed={"use_bidirectional_attention": ("vision",)},
        defaults={
            "head_dim": 256,
            "tie_word_embeddings": True,
            "hidden_activation": "gelu_pytorch_tanh",
            "num_key_value_heads": 4,
            "num_attention_heads": 8,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 30,
            "vocab_size": 262144,
        },
    ),
}
