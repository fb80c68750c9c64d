"""Families that a config of an unknown `model_type` may belong to, judged by its keys.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tx8fast.errors import Tx8Error
from tx8fast.frontend.hf.families import FAMILIES

#: keys that say nothing about the architecture: training, generation, bookkeeping
_NEUTRAL = frozenset(
    (
        "architectures",
        "auto_map",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "use_cache",
        "_name_or_path",
        "initializer_range",
        "pretraining_tp",
        "max_position_embeddings",
        "tie_word_embeddings",
        "id2label",
        "label2id",
        "problem_type",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "is_encoder_decoder",
        "task_specific_params",
        "router_aux_loss_coef",
        "output_router_logits",
        "max_sequence_length",
        "_attn_implementation",
        "is_decoder",
        "vocab_size",
        "attn_implementation",
    )
)
_NEUTRAL_ENDS = ("_token_id", "_token_ids", "_dropout", "_pdrop", "dropout_rate", "_init", "_flash_attn")


def look_alike(raw: Mapping[str, Any], parse: Callable[[dict[str, Any], set[str]], Any]) -> str:
    """Return the family that reads every telling key of `raw` without a problem, "" if there is none.

    `parse(config, seen)` reads a config and adds the keys it looks at to `seen`. Of several families the one that looks at most of
    the given keys is meant; if that is several again, the first of the table.
    """
    telling = {k for k, v in raw.items() if v is not None and k not in _NEUTRAL and not k.endswith(_NEUTRAL_ENDS)}
    best, most = "", 0
    for name, family in FAMILIES.items():
        seen: set[str] = set()
        if family.encoder or "hidden_size" not in telling | set(family.keys):
            continue
        try:
            parse({**raw, "model_type": name}, seen)
        except Tx8Error:
            continue
        if telling <= seen and (found := len(seen & set(raw))) > most:
            best, most = name, found
    return best
