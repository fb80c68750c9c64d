"""Headlines with what they are worth: cycles and roofline ratio of whole models, and between what the ratio lies when all assumed
figures of the machine are half, or half as much again; at round operating points and at odd ones.

python benchmarks/headlines.py [PATTERN]      the table of docs/performance.md, or its rows whose names contain PATTERN
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.model_corpus import write  # noqa: E402

import tx8fast  # noqa: E402
from tx8fast.simulator.sensitivity import interval  # noqa: E402

LENGTHS = (128, 512, 1000, 2048, 2049, 4096)
BATCHES = (1, 7, 8, 16, 17)


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name -> model and options."""
    llama = "Llama 3 8B"
    out: dict[str, tuple[str, dict[str, Any]]] = {
        f"{llama}, prefill {n}": (llama, {"phase": "prefill", "seq": n}) for n in LENGTHS
    }
    for n in BATCHES:
        out[f"{llama}, decode at 2048, batch {n}"] = llama, {"phase": "decode", "past": 2048, "batch": n}
    for n in BATCHES:
        out[f"BERT base, 384, batch {n}"] = "BERT base", {"phase": "prefill", "seq": 384, "batch": n}
    for n in BATCHES:
        out[f"ResNet 50, batch {n}"] = f"ResNet 50 batch {n}", {"dtype": "bf16"}
    return out


def main() -> None:
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    print("| model, bfloat16 | cycles | ratio | between |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, options) in cases().items():
            if pattern not in name:
                continue
            made = tx8fast.compile(write(model, Path(folder) / model), **options)
            r = made.simulate()
            low, high = interval(made.program, r)["interval_roofline_ratio"]
            print(
                f"| {name} | {r.cycles / 1e6:,.2f} M | {r.roofline_ratio:.3f} | {low:.3f} to {high:.3f} |", flush=True
            )


if __name__ == "__main__":
    main()
