"""What groups and shared operands bring: cycles and roofline ratio of 7B-8B models, as a Markdown table.

python benchmarks/sharing_table.py > docs/performance-table.md
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import tx8fast

COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
MODELS = {
    "Llama 3 8B": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 5e5},
    "Qwen 2.5 7B": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1e6},
    "Mistral 7B": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768, "rope_theta": 1e6},
}  # fmt: skip
CASES = {"prefill 2048": {"phase": "prefill", "seq": 2048}, "prefill 512": {"phase": "prefill", "seq": 512},
         "decode at 2048": {"phase": "decode", "past": 2048}}  # fmt: skip
VARIANTS = {"single ops, no sharing": {"opt": 1, "sharing": False}, "single ops": {"opt": 1},
            "groups, no sharing": {"sharing": False}, "groups and sharing": {}}  # fmt: skip


def main() -> None:
    print("| model | case | " + " | ".join(VARIANTS) + " |")
    print("|---|---|" + "---|" * len(VARIANTS))
    with tempfile.TemporaryDirectory() as folder:
        for name, config in MODELS.items():
            path = Path(folder) / name.replace(" ", "-")
            path.mkdir()
            (path / "config.json").write_text(json.dumps({**COMMON, **config}))
            for case, options in CASES.items():
                cells = []
                for variant in VARIANTS.values():
                    r = tx8fast.compile(path, **options, **variant).simulate()
                    cells.append(f"{r.cycles / 1e6:.1f} M ({r.roofline_ratio:.2f})")
                print(f"| {name} | {case} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
