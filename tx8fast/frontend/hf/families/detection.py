"""Models that find objects in images: an encoder and a decoder behind convolutions.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.families.vision import image
from tx8fast.frontend.hf.family import Family, Fields, Names
from tx8fast.frontend.hf.reader import MAX_LAYERS, MAX_SIZE, Reader
from tx8fast.frontend.hf.spec import Backbone, Detection

#: pixels that an image of 4 : 3 is brought to, where nobody says how large it is
USUAL = [800, 1066]
#: blocks per stage of the ResNets that timm knows by a name, and whether they have three convolutions
_TIMM = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}


def _detr(r: Reader, f: Fields) -> Fields:
    hidden, heads = f["hidden"] or 4, r.size("decoder_attention_heads", 8) or 1
    if hidden % heads:
        r.problems.append(f"d_model {hidden} is not a multiple of decoder_attention_heads {heads}")
    if hidden % 4:
        r.problems.append(f"d_model is {hidden}, sines and cosines of rows and columns take a multiple of 4")
    found = Detection(
        _backbone(r, f["image"].channels),
        r.size("decoder_layers", 6, MAX_LAYERS) or 1,
        heads,
        r.size("decoder_ffn_dim", 2048) or 1,
        r.size("num_queries", 100) or 1,
        0 if r.raw.get("architectures") == ["DetrModel"] else _labels(r) + 1,
    )
    return {"detection": found, "positions": 0}


def _labels(r: Reader) -> int:
    """Every label has a number, and files name them or say how many there are."""
    named = _object(r, "id2label")
    return len(named) if named else r.size("num_labels", 2) or 1


def _object(r: Reader, key: str) -> dict[str, Any]:
    return r.get(key, {}, "an object", lambda v: isinstance(v, dict)) or {}


def _backbone(r: Reader, channels: int) -> Backbone:
    inner = _object(r, "backbone_config")
    own = Reader(inner)
    timm = r.flag("use_timm_backbone", True) if not inner else own.value("model_type") == "timm_backbone"
    if timm:
        own = Reader({"backbone": r.value("backbone"), **_object(r, "backbone_kwargs"), **inner})
        found = _timm(own)
    else:
        own.fixed("model_type", "resnet")
        if not inner:
            r.fixed("backbone")
        found = _resnet(own)
    own.fixed("num_channels", channels)
    _last(own, len(found.blocks))
    r.problems += [f"backbone_config: {problem}" for problem in own.problems]
    return found


def _timm(r: Reader) -> Backbone:
    want = f"one of {', '.join(_TIMM)}"
    name = r.get("backbone", "resnet50", want, lambda v: type(v) is str and v.partition(".")[0] in _TIMM) or "resnet50"
    r.fixed("output_stride", 32)
    blocks, narrow = _TIMM[name.partition(".")[0]]
    wide = 4 if narrow else 1
    return Backbone(64, (64 * wide, 128 * wide, 256 * wide, 512 * wide), blocks, narrow, timm=True)


def _resnet(r: Reader) -> Backbone:
    r.fixed("hidden_act", "relu")
    channels = _sizes(r, "hidden_sizes", [256, 512, 1024, 2048], MAX_SIZE)
    blocks = _sizes(r, "depths", [3, 4, 6, 3], MAX_LAYERS)
    if len(channels) != len(blocks):
        r.problems.append(f"hidden_sizes are of {len(channels)} stages, depths of {len(blocks)}")
        blocks = (1,) * len(channels)
    narrow = r.text("layer_type", "bottleneck", {"bottleneck": True, "basic": False})
    if narrow and any(n % 4 for n in channels):
        r.problems.append(f"hidden_sizes are {list(channels)}, those of bottlenecks are multiples of 4")
    early = bool(narrow) and r.flag("downsample_in_bottleneck")
    return Backbone(
        r.size("embedding_size", 64) or 1, channels, blocks, bool(narrow), early, r.flag("downsample_in_first_stage")
    )


def _sizes(r: Reader, key: str, default: list[int], most: int) -> tuple[int, ...]:
    def good(v: Any) -> bool:
        return type(v) is list and bool(v) and all(type(n) is int and 1 <= n <= most for n in v)

    return tuple(r.get(key, default, f"a list of whole numbers from 1 to {most:,}", good) or default)


def _last(r: Reader, stages: int) -> None:
    """The encoder sees what the last stage gives."""
    for key, last in (("out_features", (f"stage{stages}", f"layer{stages}")), ("out_indices", (stages, -1))):
        listed = r.value(key)
        if listed is not None and (type(listed) is not list or not listed or listed[-1] not in last):
            r.problems.append(f"key '{key}' is {listed!r}, supported: lists that end with {last[0]!r}")


_MODULES = {
    **{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkv"},
    **{f"cross_attn.{p}_proj": f"encoder_attn.{p}_proj" for p in "qkv"},
    "self_attn.o_proj": "self_attn.out_proj",
    "cross_attn.o_proj": "encoder_attn.out_proj",
    "mlp.up_proj": "fc1",
    "mlp.down_proj": "fc2",
    "self_attn_norm": "self_attn_layer_norm",
    "cross_attn_norm": "encoder_attn_layer_norm",
    "mlp_norm": "final_layer_norm",
}
_DETR = Family(
    "an encoder and a decoder of images of any size behind a ResNet, whose learned queries find objects: classes and boxes; places as waves "
    "for queries and keys, norms of channels inside of the convolutions",
    Names(
        ("model.", "detr.model.", ""),
        "encoder.layers.{}.",
        _MODULES,
        {
            "input": "input_projection",
            "backbone": "backbone.conv_encoder.model.",
            "decoder": "decoder.layers.{}.",
            "queries": "query_position_embeddings",
            "norm": "decoder.layernorm",
            "classes": "^class_labels_classifier",
            "box": "^bbox_predictor.layers.{}",
        },
    ),
    fields={"norm_eps": 1e-5},  # the library takes no other
    parts=(image(class_token=False), _detr),
    keys={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "num_key_value_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_dim",
        "hidden_act": "activation_function",
    },
    defaults={
        "d_model": 256,
        "encoder_layers": 6,
        "encoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "activation_function": "relu",
        "num_channels": 3,
        "image_size": USUAL,
        "patch_size": 1,
        "vocab_size": 1,
    },
    # dilation: the last stage reaches further and steps less; auxiliary_loss: the decoder's norm stands between its layers, too
    fixed={"dilation": (False,), "auxiliary_loss": (False,), "position_embedding_type": ("sine",), "head_dim": ()},
    norm="layer",
    encoder=True,
    sized=True,
)

FAMILIES: dict[str, Family] = {"detr": _DETR}
