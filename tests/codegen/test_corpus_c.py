"""Every small model of the corpus as C: the bytes of the simulator at every level, operands shared or not.

The default suite takes a few; `make test-c` all, `make test-sanitized` each model once, in builds that check themselves."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.simulator.planting import feed_of
from tests.support.corpus import CONFIGS, DATA, MODELS, family, small_cnn
from tests.support.emitted import CC, CXX, check_c
from tests.support.sanitized import ASKED
from tx8fast import api
from tx8fast.frontend import open_model
from tx8fast.ir.program import IRProgram
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

pytestmark = [pytest.mark.toolchain, pytest.mark.skipif(not (CC and CXX), reason="no C or C++ compiler")]
GRAPHS = [*(f"{name}.onnx" for name in MODELS), *sorted(p.name for p in (DATA / "stablehlo").glob("*.mlir")), "cnn"]
FAMILIES = [
    f"{name} {phase}"
    for name in CONFIGS
    for phase in ("prefill", "decode")
    if phase == "prefill" or name not in ("bert", "vit")
]
ALL = [
    (name, opt, sharing) for name in (*GRAPHS, *FAMILIES) for opt in (1, 2, 3) for sharing in (True, False)
]  # fmt: skip
EACH = [ALL[k + k // 6 % 6] for k in range(0, len(ALL), 6)]
CASES = ALL if os.environ.get("TX8FAST_ALL_C") == "1" else EACH if ASKED else ALL[5::97]


def opened(name: str, folder) -> IRProgram:
    if name == "cnn":
        return small_cnn(folder)
    if " " in name:
        return family(folder, *name.split())
    return open_model(DATA / ("onnx" if name.endswith(".onnx") else "stablehlo") / name)


@pytest.mark.parametrize(("name", "opt", "sharing"), CASES, ids=lambda v: str(v))
@pytest.mark.slow(but_every=3)
def test_the_c_of_a_model_gives_the_simulators_bytes(tmp_path, name, opt, sharing):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opened(name, tmp_path)
        options = CompileOptions(opt=opt, sharing=sharing)
        root = DATA / ("onnx" if name.endswith(".onnx") else "stablehlo") if "." in name else tmp_path / name.split()[0]
        made = api.compile_ir(program, load_machine("tx8"), options, root if root.is_dir() else tmp_path)
        check_c(made, tmp_path / "c", feed_of(made.program))
