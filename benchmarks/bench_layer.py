"""Functional simulation of one Llama-3-8B decoder layer at prefill 128 with random weights, in a process of its own.

python benchmarks/bench_layer.py [--seq 128]      bars: 60 s and 4 GiB
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LAYER = dict(hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=256, layers=1, dtype="bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--model", type=Path, help="a directory that already has the layer")
    given = parser.parse_args()
    if given.model is None:
        # another process makes the weights, so that the memory counted here is that of the simulation
        import subprocess

        with tempfile.TemporaryDirectory() as folder:
            code = f"import sys; sys.path[:0] = {sys.path[:2]!r}; from support.checkpoints import make_checkpoint; " \
                   f"make_checkpoint({folder!r}, **{LAYER!r})"  # fmt: skip
            subprocess.run([sys.executable, "-c", code], check=True)
            subprocess.run([sys.executable, __file__, "--seq", str(given.seq), "--model", folder], check=True)
        return
    import tx8fast

    compiled = tx8fast.compile(given.model, phase="prefill", seq=given.seq)
    ids = np.random.default_rng(0).integers(0, LAYER["vocab"], (1, given.seq))
    started, cpu = time.perf_counter(), time.process_time()
    found = compiled.run({"input_ids": ids})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    macs = compiled.program.meta["useful_macs"]
    print(f"{macs / 1e9:.1f} G MACs in {time.perf_counter() - started:.1f} s ({time.process_time() - cpu:.1f} s of CPU), "
          f"peak {peak:.2f} GiB, logits finite: {bool(np.isfinite(np.asarray(found['logits'], np.float32)).all())}")  # fmt: skip


if __name__ == "__main__":
    main()
