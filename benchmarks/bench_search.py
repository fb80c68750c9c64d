"""CPU time of the search alone, cold: a process per figure, from the passes' result to the plans.

python benchmarks/bench_search.py          bars: Llama-3-8B layer 0.3 s, ResNet-50 2 s, growth at most quadratic, none with layers
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

PREFILL = {"phase": "prefill", "seq": 2048}
SIZES = (10, 20, 40, 80)
ROUNDS = 3


def search_seconds(path: Path, options: dict) -> tuple[float, int]:
    """Return the CPU seconds of the search and the number of distinct plans."""
    from tx8fast import api
    from tx8fast.frontend import open_model
    from tx8fast.machine import load_machine
    from tx8fast.options import CompileOptions
    from tx8fast.search.program import plan_table

    given = CompileOptions(**options)
    table = api.lower_graph(open_model(path, **given.import_options()), given).table
    started = time.process_time()
    plans = plan_table(table, load_machine(given.machine), None, given.opt, given.sharing)
    return time.process_time() - started, len(plans)


def chain(path: Path, n: int) -> Path:
    """Write a layer of `n` ops, no two of them equal: products, sums, activations and normalisations in turn."""
    from onnx import helper
    from support.cli_case import write_onnx

    rng = np.random.default_rng(n)
    nodes, weights, at, width = [], {}, "x", 256
    for i in range(n):
        out, kind = f"v{i}", ("MatMul", "Add", "Gelu", "Softmax")[i % 4]
        if kind == "MatMul":
            wide = 128 + 64 * int(rng.permutation(64)[i % 64])
            weights[f"w{i}"] = np.zeros((width, wide), np.float32)
            width = wide
        elif kind == "Add":
            weights[f"w{i}"] = np.ones(width, np.float32)
        nodes.append(helper.make_node(kind, [at, *([f"w{i}"] if kind in ("MatMul", "Add") else [])], [out], f"n{i}"))
        at = out
    return write_onnx(path, nodes, {"x": (512, 256)}, {at: (512, width)}, weights)


def main() -> None:
    from support.model_corpus import CONFIGS, write

    if len(sys.argv) > 1:
        print(json.dumps(search_seconds(Path(sys.argv[1]), json.loads(sys.argv[2]))))
        return

    def cold(path: Path, **options: object) -> tuple[float, int]:
        command = [sys.executable, __file__, str(path), json.dumps(options)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(ROUNDS)]
        return min(runs)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for layers in (1, 8, 80):
            path = folder / f"llama{layers}"
            path.mkdir()
            (path / "config.json").write_text(json.dumps({**CONFIGS["Llama 3 8B"], "num_hidden_layers": layers}))
            seconds, plans = cold(path, **PREFILL)
            print(f"Llama 3 8B, {layers} layers: {seconds:.3f} s, {plans} plans", flush=True)
        seconds, plans = cold(write("ResNet 50", folder / "resnet"), dtype="bf16")
        print(f"ResNet 50: {seconds:.3f} s, {plans} plans", flush=True)
        times = []
        for n in SIZES:
            seconds, plans = cold(chain(folder / f"chain{n}.onnx", n))
            times.append(seconds)
            print(f"chain of {n} ops: {seconds:.3f} s, {plans} plans", flush=True)
        slope = np.polyfit(np.log(SIZES), np.log(times), 1)[0]
        print(f"the time grows with the ops to the power {slope:.2f}")


if __name__ == "__main__":
    main()
