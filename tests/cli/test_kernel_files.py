"""--kernels on the command line: only a file that is named is executed, and it has to be named again to verify."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.frontend.onnx.onnx_build import info, model, node

KERNELS = Path(__file__).resolve().parents[1] / "data" / "vector_kernels.py"


def test_compile_check_and_verify(tx8, tmp_path):
    path, program = tmp_path / "m.onnx", tmp_path / "m.tx8"
    made = model([node("Swish", "x", "y", domain="acts")], [info("x", (4, 64))], [info("y", (4, 64))], domains=["acts"])
    onnx.save(made, path)
    (tmp_path / "kernels.py").write_text("raise SystemExit('executed')")
    assert "operator Swish" in tx8("compile", path, "-o", program).err and not program.exists()
    assert tx8("compile", path, "--kernels", KERNELS, "-o", program).code == 0
    assert tx8("check", path, "--kernels", KERNELS).code == 0
    assert tx8("verify", program, "--against", path, "--kernels", KERNELS, "--strict").code == 0
    refused = tx8("verify", program, "--against", path)
    assert refused.code == 2 and "reading kernels vector_kernels.py" in refused.err
    failed = tx8("compile", path, "--kernels", tmp_path / "kernels.py", "-o", tmp_path / "n.tx8")
    assert failed.code == 2 and "line 1: SystemExit" in failed.err
