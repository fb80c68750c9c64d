"""Tiny encoders, towers and sides of models of several parts, whose outputs were recorded from the transformers library.

As `recorded_families`, with inputs and outputs by name. A case is (config, part, results compared).
`python -m tests.support.record_parts CASE ...` writes the records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.checkpoints import write_weights
from tests.support.recorded_families import BATCH, RECORDS, SEQ, weights_of

_BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 37,
         "max_position_embeddings": 24, "layer_norm_eps": 1e-5, "hidden_act": "gelu"}  # fmt: skip
_SIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_VISION = {**_SIDE, "image_size": 18, "patch_size": 5, "num_channels": 3}
_TEXT = {**_SIDE, "vocab_size": 37, "max_position_embeddings": 24}
_CLIP = {"text_config": {**_TEXT, "eos_token_id": 7, "bos_token_id": 1, "pad_token_id": 0, "projection_dim": 20},
         "vision_config": {**_VISION, "projection_dim": 20}, "projection_dim": 20}  # fmt: skip
_SIGLIP = {"text_config": {**_TEXT, "projection_size": 32}, "vision_config": _VISION}

_READS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16,
          "vocab_size": 40}  # fmt: skip
_EYE = {
    "depth": 3,
    "num_heads": 4,
    "patch_size": 2,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_WINDOWS = {
    **_EYE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "window_size": 8,
    "fullatt_block_indexes": [1],
    "out_hidden_size": 16,
}


def _eye(text: dict[str, Any], **vision: Any) -> dict[str, Any]:
    turns = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
    return {"text_config": {**_READS, **turns, **text}, "vision_config": vision}


#: of images of odd sizes, that each step rounds up
_DETR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
         "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "num_queries": 7, "use_timm_backbone": False}  # fmt: skip
_RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [16, 24, 32, 48], "depths": [2, 1, 1, 2]}

_END = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
_T5 = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 37,
       "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, **_END}  # fmt: skip
_BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
         "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "vocab_size": 37, "max_position_embeddings": 24, "scale_embedding": True, **_END}  # fmt: skip
_WHISPER = {**_BART, "num_mel_bins": 5, "max_source_positions": 9, "max_target_positions": 15, "scale_embedding": False,
            "suppress_tokens": None, "begin_suppress_tokens": None}  # fmt: skip

#: tokens that an encoder reads
SOURCE = 9
Case = tuple[dict[str, Any], str, tuple[str, ...]]
CASES: dict[str, Case] = {
    "roberta": ({**_BERT, "pad_token_id": 1, "type_vocab_size": 1}, "", ("last_hidden_state", "pooler_output")),
    "xlm-roberta": ({**_BERT, "pad_token_id": 0, "type_vocab_size": 1}, "", ("last_hidden_state",)),
    "camembert": ({**_BERT, "pad_token_id": 1, "type_vocab_size": 1}, "", ("last_hidden_state",)),
    "distilbert": ({"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 37, "max_position_embeddings": 24,
                    "activation": "gelu", "pad_token_id": 0}, "", ("last_hidden_state",)),
    "electra": ({**_BERT, "embedding_size": 20, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "pad_token_id": 0}, "", ("last_hidden_state",)),
    "electra-wide": ({**_BERT, "embedding_size": 32, "type_vocab_size": 1, "hidden_act": "relu", "pad_token_id": 0}, "", ("last_hidden_state",)),
    "albert": ({**_BERT, "embedding_size": 20, "num_hidden_layers": 5, "num_hidden_groups": 2, "hidden_act": "gelu_new", "type_vocab_size": 2, "pad_token_id": 0}, "",
               ("last_hidden_state", "pooler_output")),
    "albert-wide": ({**_BERT, "embedding_size": 32, "num_hidden_layers": 3, "type_vocab_size": 1, "pad_token_id": 0}, "",
                    ("last_hidden_state", "pooler_output")),
    "mpnet": ({**_BERT, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, "", ("last_hidden_state", "pooler_output")),
    "modernbert": ({**_SIDE, "num_hidden_layers": 4, "vocab_size": 37, "max_position_embeddings": 24, "local_attention": 6, "pad_token_id": 0,
                    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
                    "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}, "", ("last_hidden_state",)),
    "deberta-v2": ({**_BERT, "max_position_embeddings": 24, "relative_attention": True, "position_buckets": 6, "norm_rel_ebd": "layer_norm",
                    "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0,
                    "pad_token_id": 0}, "", ("last_hidden_state",)),
    "deberta-v2-apart": ({**_BERT, "max_position_embeddings": 24, "relative_attention": True, "max_relative_positions": 7,
                          "share_att_key": False, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 1, "num_hidden_layers": 1,
                          "pad_token_id": 0}, "", ("last_hidden_state",)),
    "deberta-v2-taps": ({**_BERT, "max_position_embeddings": 24, "relative_attention": True, "position_buckets": 6, "norm_rel_ebd": "layer_norm",
                         "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0,
                         "pad_token_id": 0, "conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 8}, "", ("last_hidden_state",)),
    "dinov2": ({**_SIDE, "image_size": 20, "patch_size": 5, "mlp_ratio": 2}, "", ("last_hidden_state", "pooler_output")),
    "dinov2-gated": ({**_SIDE, "image_size": 20, "patch_size": 5, "mlp_ratio": 2, "use_swiglu_ffn": True}, "",
                     ("last_hidden_state", "pooler_output")),
    "clip-vision": (_CLIP, "vision", ("last_hidden_state", "pooler_output", "embeds")),
    "clip-text": (_CLIP, "text", ("last_hidden_state", "pooler_output", "embeds")),
    "siglip-vision": (_SIGLIP, "vision", ("last_hidden_state", "pooler_output")),
    "sam": ({"vision_config": {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_dim": 48, "image_size": 20,
                               "patch_size": 4, "num_channels": 3, "window_size": 3, "global_attn_indexes": [1], "output_channels": 12},
             "prompt_encoder_config": {"hidden_size": 12, "image_size": 20, "patch_size": 4},
             "mask_decoder_config": {"hidden_size": 12, "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}},
            "vision", ("last_hidden_state",)),
    "qwen2_vl-vision": (_eye({}, **_EYE, embed_dim=32, mlp_ratio=2, hidden_size=16, image_size=[8, 12]), "vision",
                        ("last_hidden_state", "pooler_output")),
    "qwen2_5_vl-vision": (_eye({}, **_WINDOWS, image_size=[16, 24]), "vision", ("last_hidden_state", "pooler_output")),
    "qwen2_5_vl-vision-edges": (_eye({}, **_WINDOWS, image_size=[12, 20]), "vision", ("last_hidden_state", "pooler_output")),
    "qwen2_5_vl-vision-rows": (_eye({}, **_WINDOWS, image_size=[16, 12]), "vision", ("last_hidden_state", "pooler_output")),
    "qwen2_5_vl-vision-columns": (_eye({}, **_WINDOWS, image_size=[12, 16]), "vision", ("last_hidden_state", "pooler_output")),
    "qwen3_vl-vision": (_eye({"head_dim": 8}, **_EYE, hidden_size=32, intermediate_size=48, num_position_embeddings=25, out_hidden_size=16,
                             deepstack_visual_indexes=[0, 1], image_size=[8, 12]), "vision",
                        ("last_hidden_state", "pooler_output", "deepstack.0", "deepstack.1")),
    "qwen3_5-vision": (_eye({"head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
                             "linear_value_head_dim": 8, "layer_types": ["full_attention"]}, **_EYE, hidden_size=32, intermediate_size=48,
                            num_position_embeddings=16, out_hidden_size=16, image_size=[12, 8]), "vision",
                       ("last_hidden_state", "pooler_output")),
    "detr": ({**_DETR, "id2label": {str(i): f"LABEL_{i}" for i in range(5)}, "image_size": [67, 93],
              "backbone_config": {**_RESNET, "out_features": ["stage4"]}}, "",
             ("logits", "pred_boxes", "last_hidden_state", "encoder_last_hidden_state")),
    "detr-basic": ({**_DETR, "architectures": ["DetrModel"], "image_size": [41, 34],
                    "backbone_config": {**_RESNET, "layer_type": "basic", "downsample_in_first_stage": True, "hidden_sizes": [8, 16],
                                        "depths": [1, 2], "out_features": ["stage2"]}}, "",
                   ("last_hidden_state", "encoder_last_hidden_state")),
    "detr-early": ({**_DETR, "architectures": ["DetrModel"], "image_size": [33, 47],
                    "backbone_config": {**_RESNET, "downsample_in_bottleneck": True, "hidden_sizes": [8, 16], "depths": [1, 2],
                                        "out_features": ["stage2"]}}, "", ("last_hidden_state",)),
    "siglip-text": (_SIGLIP, "text", ("last_hidden_state", "pooler_output")),
}  # fmt: skip


#: models of an encoder and a decoder, both of which are compiled: a prefill and a step, on what the library's encoder gives
PAIRS: dict[str, dict[str, Any]] = {
    "t5": {**_T5, "feed_forward_proj": "relu"},
    "t5-gated": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "umt5": {**_T5, "feed_forward_proj": "gated-gelu"},
    "bart": _BART,
    "bart-untied": {**_BART, "tie_word_embeddings": False},
    "mbart": _BART,
    "marian": _BART,
    "pegasus": {**_BART, "scale_embedding": False, "activation_function": "relu"},
    "m2m_100": {**{k: v for k, v in _BART.items() if k != "scale_embedding"}, "pad_token_id": 1},
    "whisper": _WHISPER,
}  # fmt: skip


def pair_inputs(case: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the inputs of the encoder, and the decoder's tokens."""
    rng = np.random.default_rng(1)
    ids = rng.integers(8, 37, (BATCH, SEQ))
    if case == "whisper":
        return {"input_features": rng.standard_normal((BATCH, 5, 18)).astype(np.float32)}, ids
    return {"input_ids": rng.integers(8, 37, (BATCH, SOURCE))}, ids


def kind_of(case: str) -> str:
    """`model_type` of a case: its name without the suffix that tells cases of one model apart."""
    return next((k for k in ("xlm-roberta", "deberta-v2") if case.startswith(k)), case.split("-")[0])


def config_of(case: str, dtype: str = "float32") -> dict[str, Any]:
    """Return a fresh config.json object."""
    return json.loads(
        json.dumps(
            {"model_type": kind_of(case), "torch_dtype": dtype, **(PAIRS[case] if case in PAIRS else CASES[case][0])}
        )
    )


def inputs_of(case: str) -> dict[str, np.ndarray]:
    """Return inputs by name: pixels, or token ids with an end token inside each sequence."""
    config, part, _ = CASES[case]
    rng = np.random.default_rng(1)
    seen = config.get("vision_config", config) if part != "text" else {}
    if "image_size" in seen:
        size = seen["image_size"]
        height, width = size if isinstance(size, list) else (size, size)
        return {"pixel_values": rng.standard_normal((BATCH, 3, height, width)).astype(np.float32)}
    ids = rng.integers(8, 37, (BATCH, SEQ))
    ids[0, 4], ids[1, 7] = 7, 7
    ids[1, 9] = 7
    kinds = {"token_type_ids": rng.integers(0, 2, (BATCH, SEQ))} if config.get("type_vocab_size", 1) > 1 else {}
    return {"input_ids": ids, **kinds}


def make_part(directory: Path, case: str, shapes: list[tuple[str, list[int]]] | None = None, dtype: str = "float32"):
    """Write config.json and weights; return the record."""
    record = None if shapes is not None else dict(np.load(RECORDS / f"{case}.npz"))
    found = json.loads(str(record["shapes"])) if record is not None else shapes or []
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(case, dtype)))
    write_weights(directory, weights_of(case, found, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32))
    return record
