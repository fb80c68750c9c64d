"""What groups and shared operands bring: cycles and roofline ratio of 7B-8B models, as a Markdown table.

python benchmarks/sharing_table.py > docs/performance-table.md
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.model_corpus import LLM_CASES, write  # noqa: E402

import tx8fast  # noqa: E402

MODELS = ("Llama 3 8B", "Qwen 2.5 7B", "Mistral 7B")
VARIANTS = {"single ops, no sharing": {"opt": 1, "sharing": False}, "single ops": {"opt": 1},
            "groups, no sharing": {"sharing": False}, "groups and sharing": {}}  # fmt: skip


def main() -> None:
    print("| model | case | " + " | ".join(VARIANTS) + " |")
    print("|---|---|" + "---|" * len(VARIANTS))
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            path = write(name, Path(folder) / name)
            for case, options in LLM_CASES.items():
                cells = []
                for variant in VARIANTS.values():
                    r = tx8fast.compile(path, **options, **variant).simulate()
                    cells.append(f"{r.cycles / 1e6:.1f} M ({r.roofline_ratio:.2f})")
                print(f"| {name} | {case} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
