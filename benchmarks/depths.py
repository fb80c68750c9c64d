"""How much longer programs take by how far an operand may run ahead of others (`tile.spm_fifo_beats`, which nobody has measured), in
percent of the depth at which they are fastest. The machine's default is the one of 8 to 18 and 24 beats with the largest sum.

python benchmarks/depths.py [PATTERN]      the table of docs/performance.md, or its rows whose names contain PATTERN
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.cnn_models import resnet50  # noqa: E402

import tx8fast  # noqa: E402
from tx8fast.machine import Machine  # noqa: E402
from tx8fast.machine.tags import changed  # noqa: E402
from tx8fast.simulator.stretch import total_cycles  # noqa: E402
from tx8fast.tile.bank_losses import DEPTHS as PLACED_FOR  # noqa: E402

#: all that are tried; the default is one of those that buffers are placed for, as no placement of the operands of a product whose sums
#: are read and written, two streams at the full rate and one at a quarter of it, is good for them and for 19 to 23 as well
DEPTHS = range(8, 25)
PREFILL = ("llama-3.1-8b", "gemma-2-9b", "qwen2.5-7b", "qwen3-0.6b", "llama-3.2-1b", "phi-3-mini-4k")
LENGTHS = (512, 2048)


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name -> configuration of the zoo, or the images of a ResNet 50, and options."""
    out: dict[str, tuple[str, dict[str, Any]]] = {
        f"{m}, prefill {n}": (m, {"phase": "prefill", "seq": n}) for m in PREFILL for n in LENGTHS
    }
    out["llama-3.1-8b, decode at 2048"] = "llama-3.1-8b", {"phase": "decode", "past": 2048}
    out["bert-large, 384, batch 16"] = "bert-large", {"phase": "prefill", "seq": 384, "batch": 16}
    return out | {"ResNet 50, batch 16": ("16", {})}


def write(model: str, folder: Path) -> Path:
    """Make what `compile` takes."""
    if model.isdigit():
        return resnet50(folder / "resnet50.onnx", int(model))
    shutil.copy(ROOT / "tx8fast" / "zoo" / f"{model}.json", folder / "config.json")
    return folder


def main() -> None:
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"| bfloat16 | {' | '.join(map(str, DEPTHS))} |\n|---|{'---|' * len(DEPTHS)}")
    sums = dict.fromkeys(DEPTHS, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, options) in cases().items():
            if pattern not in name:
                continue
            program = tx8fast.compile(write(model, Path(folder)), dtype="bf16", **options).program
            machine = Machine.from_dict(program.machine)
            cycles = {d: total_cycles(program, changed(machine, {"tile.spm_fifo_beats": d})) for d in DEPTHS}
            lost = {d: 100 * (c / min(cycles.values()) - 1) for d, c in cycles.items()}
            sums = {d: sums[d] + lost[d] for d in DEPTHS}
            print(f"| {name} | {' | '.join(f'{x:.1f}' for x in lost.values())} |", flush=True)
    print(f"| sum | {' | '.join(f'{x:.1f}' for x in sums.values())} |")
    print(f"the worst of {', '.join(map(str, PLACED_FOR))}: {max(PLACED_FOR, key=sums.__getitem__)}")


if __name__ == "__main__":
    main()
