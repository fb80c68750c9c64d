"""Encoder families: bert (text) and vit (images).

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.family import Family, Fields, Names, flag, size
from tx8fast.frontend.hf.reader import Reader

_BIASED = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
_EMBED = "embeddings."


def _image(r: Reader, f: Fields) -> Fields:
    height, width = _pair(r, "image_size")
    patch_h, patch_w = _pair(r, "patch_size")
    if height % patch_h or width % patch_w:
        r.problems.append(f"image_size {height}x{width} is not a multiple of patch_size {patch_h}x{patch_w}")
    patches = (height // patch_h) * (width // patch_w)
    return {"positions": patches + 1, "image": (r.size("num_channels") or 1, height, width, patch_h, patch_w)}


def _pair(r: Reader, key: str) -> tuple[int, int]:
    def good(v: Any) -> bool:
        both = v if type(v) is list and len(v) == 2 else [v]
        return all(type(n) is int and n >= 1 for n in both)

    value = r.get(key, ..., "a whole number >= 1 or two of them", good) or 1
    return (value[0], value[1]) if type(value) is list else (value, value)


_BERT = Family(
    "an encoder; pooler where the checkpoint has it",
    Names(("bert.", ""), "encoder.layer.{}.",
          {"self_attn.q_proj": "attention.self.query", "self_attn.k_proj": "attention.self.key",
           "self_attn.v_proj": "attention.self.value", "self_attn.o_proj": "attention.output.dense",
           "mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense",
           "attn_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"},
          {"embed_tokens": _EMBED + "word_embeddings", "positions": _EMBED + "position_embeddings",
           "token_types": _EMBED + "token_type_embeddings", "embed_norm": _EMBED + "LayerNorm",
           "pooler": "pooler.dense"}),
    {**_BIASED, "post_norm": True, "final_norm": False, "positions": size("max_position_embeddings"),
     "token_types": size("type_vocab_size"), "embedding_norm": True},
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 512},
    fixed={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    norm="layer", encoder=True,
)  # fmt: skip
_VIT = Family(
    "an encoder of images; pooler and classifier where the checkpoint has them",
    Names(("vit.", ""), "encoder.layer.{}.",
          {"self_attn.q_proj": "attention.attention.query", "self_attn.k_proj": "attention.attention.key",
           "self_attn.v_proj": "attention.attention.value", "self_attn.o_proj": "attention.output.dense",
           "mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense", "attn_norm": "layernorm_before",
           "mlp_norm": "layernorm_after"},
          {"patches": _EMBED + "patch_embeddings.projection", "positions": _EMBED + "position_embeddings",
           "class_token": _EMBED + "cls_token", "norm": "layernorm", "pooler": "pooler.dense",
           "classifier": "^classifier"}),
    {**_BIASED, "qkv_bias": flag("qkv_bias", True)}, (_image,),
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16, "num_channels": 3,
              "vocab_size": 1},
    norm="layer", encoder=True,
)  # fmt: skip

FAMILIES: dict[str, Family] = {"bert": _BERT, "vit": _VIT}
