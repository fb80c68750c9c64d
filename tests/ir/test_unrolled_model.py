"""An unrolled 80-layer model of 70 billion parameters: import, clean-up and outlining within time and memory."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.unrolled_llama import write_llama

from tx8fast.frontend.onnx import import_onnx
from tx8fast.passes.pipeline import run_pipeline

CLEAN = "canonicalize,fold-constants,dce,sink-constants,outline,cse,dce"
SECONDS, MEGABYTES = 1.5, 1024
CHILD = """
import gc, sys, time
from tx8fast.frontend.onnx import import_onnx
from tx8fast.passes.pipeline import run_pipeline
import onnx
gc.freeze(); gc.disable()
start = time.process_time()
program = import_onnx(sys.argv[1])
run_pipeline(program, sys.argv[2], verify_between=False)
seconds = time.process_time() - start
# the peak of this process image: ru_maxrss would carry the parent's over exec
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) // 1024, len(program.functions))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama70b"))


def test_eighty_layers_become_one_body_without_reading_a_weight(model):
    program = import_onnx(model)
    assert program.n_ops() > 5_000
    run_pipeline(program, CLEAN)
    (body,) = [f for f in program.functions if f.kind == "subgraph"]
    calls = [op for op in program.main.body if op.kind == "call"]
    assert len(calls) == 80 and 40 <= len(body.body) <= 80
    matrices = sum(w.nbytes for w in program.weights.values() if len(w.shape) == 2)
    assert 135e9 < matrices < 145e9, "140 GB of weights that exist as a hole in a file"
    assert len(program.text()) < 1_000_000


def test_time_and_memory_of_import_clean_up_and_outlining(model):
    """A process of its own, so that its peak memory is its own; CPU seconds, best of three."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    best = float("inf")
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", CHILD, str(model), CLEAN], env=env, capture_output=True, text=True, check=True
        )
        seconds, megabytes, functions = out.stdout.split()
        assert int(functions) == 2 and int(megabytes) <= MEGABYTES
        best = min(best, float(seconds))
        if best <= SECONDS:
            break
    assert best <= SECONDS, f"{best:.2f} CPU seconds, at most {SECONDS} allowed"
    gc.collect()
