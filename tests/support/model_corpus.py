"""Models of production size and small ones, by name: what figures over "the corpus" are computed of.

A case is the path of a model that `write` makes in a directory, and the options to compile it with.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.cnn_models import resnet50

ONNX = Path(__file__).resolve().parent.parent / "data" / "onnx"
_RMS = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
#: name -> config.json
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama 3 8B": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 5e5, **_RMS},
    "Qwen 2.5 7B": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1e6, **_RMS},
    "Mistral 7B": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768, "rope_theta": 1e6, **_RMS},
    "BERT base": {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
                  "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
                  "hidden_act": "gelu", "layer_norm_eps": 1e-12, "torch_dtype": "bfloat16", "architectures": ["BertModel"],
                  "pad_token_id": 0},
}  # fmt: skip
LLM_CASES = {"prefill 2048": {"phase": "prefill", "seq": 2048}, "prefill 512": {"phase": "prefill", "seq": 512},
             "decode at 2048": {"phase": "decode", "past": 2048}}  # fmt: skip
#: name -> (model, compile options)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{m} {c}": (m, o) for m in ("Llama 3 8B", "Qwen 2.5 7B", "Mistral 7B") for c, o in LLM_CASES.items()},
    "BERT base 384": ("BERT base", {"phase": "prefill", "seq": 384}),
    "BERT base 384 batch 16": ("BERT base", {"phase": "prefill", "seq": 384, "batch": 16}),
    "ResNet 50": ("ResNet 50", {"dtype": "bf16"}),
    "ResNet 50 batch 16": ("ResNet 50 batch 16", {"dtype": "bf16"}),
    **{path.stem: (path.name, {}) for path in sorted(ONNX.glob("*.onnx"))},
}


def write(model: str, folder: Path) -> Path:
    """Make the model in `folder`, which need not exist; return what `compile` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    if model in CONFIGS:
        (folder / "config.json").write_text(json.dumps(CONFIGS[model]))
        return folder
    if model.startswith("ResNet"):
        return resnet50(folder / "resnet50.onnx", int(model.partition("batch ")[2] or 1))
    return Path(shutil.copy(ONNX / model, folder))
