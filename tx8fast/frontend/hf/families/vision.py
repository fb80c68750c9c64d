"""Encoders of images, and the encoders of text that were trained beside them.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.families.encoders import BIASED, EMBED
from tx8fast.frontend.hf.family import Family, Fields, Names, Part, flag, size, when
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.spec import Image, Squares


def image(**options: Any) -> Part:
    """`options` of `Image`. What is over at the edges of an image beside its patches is not seen."""

    def read(r: Reader, f: Fields) -> Fields:
        height, width = _pair(r, "image_size")
        patch_h, patch_w = _pair(r, "patch_size")
        if height < patch_h or width < patch_w:
            r.problems.append(f"image_size {height}x{width} is less than patch_size {patch_h}x{patch_w}")
        image = Image(r.size("num_channels") or 1, height, width, patch_h, patch_w, **options)
        rows, columns = image.patches
        return {"positions": rows * columns + image.class_token, "image": image}

    return read


def _pair(r: Reader, key: str) -> tuple[int, int]:
    def good(v: Any) -> bool:
        both = v if type(v) is list and len(v) == 2 else [v]
        return all(type(n) is int and n >= 1 for n in both)

    value = r.get(key, ..., "a whole number >= 1 or two of them", good) or 1
    return (value[0], value[1]) if type(value) is list else (value, value)


def _dinov2_units(r: Reader, f: Fields) -> Fields:
    units = int((f["hidden"] or 1) * (r.number("mlp_ratio", 4) or 4))
    gated = r.flag("use_swiglu_ffn")
    fields: Fields = {"intermediate": (int(units * 2 / 3) + 7) // 8 * 8 if gated else units, "gated": gated}
    if gated:
        fields |= {
            "activation": "silu",
            "renamed": (("mlp.gate_up", "mlp.weights_in"), ("mlp.down_proj", "mlp.weights_out")),
        }
    return fields


def _sam(r: Reader, f: Fields) -> Fields:
    side, layers = r.count("window_size", 14), f["layers"]
    whole = r.get("global_attn_indexes", [2, 5, 8, 11], "a list of layer numbers", numbers) or []
    sides = tuple(0 if i in whole or not side else side for i in range(layers))
    found = Squares(sides, r.flag("use_rel_pos", True), r.size("output_channels", 256) or 1)
    return {
        "squares": found,
        "mixers": ("squares",) * layers,
        "positions": f["positions"] if r.flag("use_abs_pos", True) else 0,
    }


def numbers(v: Any) -> bool:
    return type(v) is list and all(type(n) is int and n >= 0 for n in v)


def _sam_units(r: Reader, f: Fields) -> Fields:
    return {"intermediate": r.size("mlp_dim", int((f["hidden"] or 1) * (r.number("mlp_ratio", 4.0) or 4.0)))}


_SEES = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "vocab_size": 1,
}
_VIT_LAYER = {
    "self_attn.q_proj": "attention.attention.query",
    "self_attn.k_proj": "attention.attention.key",
    "self_attn.v_proj": "attention.attention.value",
    "self_attn.o_proj": "attention.output.dense",
}
_VIT_OUTER = {
    "patches": EMBED + "patch_embeddings.projection",
    "positions": EMBED + "position_embeddings",
    "class_token": EMBED + "cls_token",
    "norm": "layernorm",
}
_VIT = Family(
    "an encoder of images; pooler and classifier where the checkpoint has them",
    Names(
        ("vit.", ""),
        "encoder.layer.{}.",
        {
            **_VIT_LAYER,
            "mlp.up_proj": "intermediate.dense",
            "mlp.down_proj": "output.dense",
            "attn_norm": "layernorm_before",
            "mlp_norm": "layernorm_after",
        },
        {**_VIT_OUTER, "pooler": "pooler.dense", "classifier": "^classifier"},
    ),
    {
        **BIASED,
        "qkv_bias": flag("qkv_bias", True),
        "projection": lambda r, f: r.size("pooler_output_size", f["hidden"]),
    },
    (image(),),
    defaults=_SEES,
    fixed={"pooler_act": ("tanh",)},
    norm="layer",
    encoder=True,
)
_DINOV2 = Family(
    "an encoder of images; factors per channel behind both parts, plain or gated feed-forward parts; classifier where the checkpoint has it",
    Names(
        ("dinov2.", ""),
        "encoder.layer.{}.",
        {
            **_VIT_LAYER,
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
            "attn_norm": "norm1",
            "mlp_norm": "norm2",
            "attn_scale": "layer_scale1.lambda1",
            "mlp_scale": "layer_scale2.lambda1",
        },
        {**_VIT_OUTER, "classifier": "^classifier"},
    ),
    {
        **BIASED,
        "qkv_bias": flag("qkv_bias", True),
        "layer_scale": True,
        "pool": "first",
        "mean_classified": True,
    },
    (image(), _dinov2_units),
    defaults={**_SEES, "layer_norm_eps": 1e-6, "patch_size": 14, "intermediate_size": 1},
    norm="layer",
    encoder=True,
)
_CLIP_LAYER = {
    **{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkv"},
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
    "attn_norm": "layer_norm1",
    "mlp_norm": "layer_norm2",
}
_TOWERS = (
    "vision_model.",
    "vision_tower.vision_model.",
    "model.vision_tower.vision_model.",
    "vision_tower.",
    "model.vision_tower.",
    "",
)
_TOWER_OUTER = {
    "patches": EMBED + "patch_embedding",
    "positions": EMBED + "position_embedding.weight",
    "norm": "post_layernorm",
}
_TEXT_OUTER = {
    "embed_tokens": EMBED + "token_embedding",
    "positions": EMBED + "position_embedding",
    "norm": "final_layer_norm",
}
_CLIP_VISION = Family(
    "an encoder of images; a norm of the embeddings, pools its class token, projects it where the checkpoint says how",
    Names(
        _TOWERS,
        "encoder.layers.{}.",
        _CLIP_LAYER,
        {
            **_TOWER_OUTER,
            "class_token": EMBED + "class_embedding",
            "embed_norm": "pre_layrnorm",
            "projection": "^visual_projection",
        },
    ),
    {**BIASED, "embedding_norm": True, "pool": "first_normed"},
    (image(bias=False, flat=True),),
    defaults={
        **_SEES,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "patch_size": 32,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    norm="layer",
    encoder=True,
)
_CLIP_TEXT = Family(
    "an encoder of text that sees backwards only; pools its end token, projects it where the checkpoint says how",
    Names(("text_model.", ""), "encoder.layers.{}.", _CLIP_LAYER, {**_TEXT_OUTER, "projection": "^text_projection"}),
    {
        **BIASED,
        "causal": True,
        "positions": size("max_position_embeddings", 77),
        "pool": "end",
        "end_token": lambda r, f: r.count("eos_token_id", 49407),
    },
    defaults={
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "hidden_size": 512,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "vocab_size": 49408,
    },
    norm="layer",
    encoder=True,
)
_SIGLIP = {
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
_SIGLIP_VISION = Family(
    "an encoder of images without a class token; a learned query pools",
    Names(_TOWERS, "encoder.layers.{}.", _CLIP_LAYER, {**_TOWER_OUTER, "probe": "head"}),
    {**BIASED, "pool": when("vision_use_head", "probe", True)},
    (image(class_token=False, flat=True),),
    defaults={**_SEES, **_SIGLIP},
    norm="layer",
    encoder=True,
)
_SIGLIP_TEXT = Family(
    "an encoder of text; pools its last token",
    Names(("text_model.", ""), "encoder.layers.{}.", _CLIP_LAYER, {**_TEXT_OUTER, "head": "head"}),
    {
        **BIASED,
        "positions": size("max_position_embeddings", 64),
        "pool": "last",
        "projection": lambda r, f: r.size("projection_size", f["hidden"]),
    },
    defaults={**_SIGLIP, "vocab_size": 32000},
    norm="layer",
    encoder=True,
)
_SAM = Family(
    "an encoder of images whose layers see squares or everything; learned products with distances of rows and columns, a map of the result",
    Names(
        ("vision_encoder.", "sam.vision_encoder.", ""),
        "layers.{}.",
        {
            "self_attn.qkv": "attn.qkv",
            "self_attn.o_proj": "attn.proj",
            "row_places": "attn.rel_pos_h",
            "column_places": "attn.rel_pos_w",
            "mlp.up_proj": "mlp.lin1",
            "mlp.down_proj": "mlp.lin2",
            "attn_norm": "layer_norm1",
            "mlp_norm": "layer_norm2",
        },
        {
            "patches": "patch_embed.projection",
            "positions": "pos_embed",
            "map1": "neck.conv1",
            "map1_norm": "neck.layer_norm1",
            "map2": "neck.conv2",
            "map2_norm": "neck.layer_norm2",
        },
    ),
    {**BIASED, "qkv_bias": flag("qkv_bias", True), "final_norm": False},
    (image(class_token=False), _sam, _sam_units),
    defaults={
        **_SEES,
        "layer_norm_eps": 1e-6,
        "image_size": 1024,
        "intermediate_size": 1,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
    norm="layer",
    encoder=True,
)

FAMILIES: dict[str, Family] = {
    "vit": _VIT,
    "dinov2": _DINOV2,
    "clip_vision_model": _CLIP_VISION,
    "clip_text_model": _CLIP_TEXT,
    "siglip_vision_model": _SIGLIP_VISION,
    "siglip_text_model": _SIGLIP_TEXT,
    "sam_vision_model": _SAM,
}
