"""One model gives the same program and the same outputs whatever the processor lets numpy and its matrix library use, and in however
many threads; so does a product that the kernel core computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
#: (kernels of the matrix library, instruction sets that numpy leaves alone); names that a processor lacks change nothing
HOSTS = (("", ""), ("Haswell", "X86_V4 AVX512_ICL AVX512_SPR"), ("Prescott", "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"))
CHILD = """
import sys
from hashlib import sha256
import numpy as np
import pytest
import tx8fast

from tx8fast.numerics.routines import ROUTINES

for dtype in ("fp32", "bf16"):
    compiled = tx8fast.compile(sys.argv[1], phase="prefill", seq=24, dtype=dtype)
    compiled.save(sys.argv[2])
    found = compiled.run({"input_ids": np.arange(24).reshape(1, 24)}, threads=int(sys.argv[3]))
    print(sha256(open(sys.argv[2], "rb").read()).hexdigest(), *(sha256(x.tobytes()).hexdigest() for x in found.values()))
rng = np.random.default_rng(0)
sides = [rng.standard_normal((2, 70, 70)).astype(np.float32) for _ in range(2)]
print(sha256(ROUTINES["gemm"](sides, {}, [((2, 70, 70), "f32")])[0].tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_every_host_computes_the_same(tmp_path) -> None:
    make_checkpoint(
        tmp_path / "model", hidden=256, heads=4, kv_heads=2, intermediate=320, vocab=97, layers=1, dtype="float32"
    )
    seen = set()
    for threads, (core, without) in enumerate(HOSTS, 1):
        env = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_CORETYPE": core, "NPY_DISABLE_CPU_FEATURES": without}
        call = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            CHILD,
            str(tmp_path / "model"),
            str(tmp_path / "a.tx8"),
            str(threads),
        ]
        seen.add(subprocess.run(call, env=env, check=True, capture_output=True, text=True).stdout)
    assert len(seen) == 1, seen
