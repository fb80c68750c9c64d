"""Kernels of one's own: traced functions compute what the same functions compute under a compiler of Python."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.emitted import CC, CXX, check_c

import tx8fast
from tests.frontend.onnx.onnx_build import info, model, node
from tests.simulator.planting import feed_of
from tx8fast import api
from tx8fast.errors import ConfigError, ImportModelError, Tx8Error, UnusedOptionWarning
from tx8fast.frontend.vector_kernel import load_kernels, vector_kernel
from tx8fast.options import CompileOptions

FILE = Path(__file__).resolve().parents[2] / "data" / "vector_kernels.py"
KERNELS = {k.name: k for k in load_kernels(FILE)}
DTYPES = {"f32": (TensorProto.FLOAT, np.float32, 1e-6), "f16": (TensorProto.FLOAT16, np.float16, 1e-3)}
CASES = [
    ("Swish", 1, {"beta": 1.5}),
    ("Swish", 1, {}),
    ("ClampedSwiglu", 2, {"limit": 2.0}),
    ("XIELU", 1, {}),
    ("Window", 2, {}),
]


def written(folder, op, tensors, dtype="f32", shape=(5, 70), outputs=1, **attrs):
    """Write a model of one node of a kernel's kind."""
    kind = DTYPES[dtype][0]
    names = [f"x{k}" for k in range(tensors)]
    results = [f"y{k}" for k in range(outputs)]
    one = node(op, " ".join(names), " ".join(results), name="n", domain="acts", **attrs)
    made = model(
        [one], [info(n, shape, kind) for n in names], [info(n, shape, kind) for n in results], domains=["acts"]
    )
    path = folder / "m.onnx"
    onnx.save(made, path)
    return path


def by_numba(kernel, arrays, attrs):
    """Return what the kernel's own function computes, compiled by Numba for arrays in double precision."""
    numba = pytest.importorskip("numba")
    numbers = [attrs.get(n, v) for n, v in list(kernel.defaults.items())[len(arrays) :]]
    plain = types.FunctionType(kernel.code, kernel.function.__globals__, argdefs=kernel.function.__defaults__)
    return numba.njit(plain)(*(a.astype(np.float64) for a in arrays), *numbers)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "tensors", "attrs"), CASES)
@pytest.mark.slow
def test_a_kernel_computes_what_its_function_does_under_numba(tmp_path, op, tensors, attrs, dtype):
    outputs = 2 if op == "Window" else 1
    made = tx8fast.compile(written(tmp_path, op, tensors, dtype, outputs=outputs, **attrs), kernels=str(FILE))
    rng = np.random.default_rng(3)
    inputs = [
        np.clip(rng.standard_normal((5, 70)) * 3, 0.05 if k else -9, 9).astype(DTYPES[dtype][1]) for k in range(tensors)
    ]
    found = made.run({f"x{k}": x for k, x in enumerate(inputs)})
    if dtype == "f32" and op != "Window":
        want = by_numba(KERNELS[op], inputs, attrs)
    else:  # compiling takes seconds; arrays of numpy give the same
        want = KERNELS[op](*(x.astype(np.float64) for x in inputs), **attrs)
    nests = [len(s.info.get("nests", [s])) for s in made.program.segments]  # one of a group, several of a chain
    assert sum(nests) == outputs and not any(s.routines for s in made.program.segments)
    for k, right in enumerate(want if outputs == 2 else [want]):
        got = found[f"y{k}"].astype(np.float64)
        assert (
            got.shape == right.shape and (np.abs(got - right) <= DTYPES[dtype][2] * np.maximum(1, np.abs(right))).all()
        )


@pytest.mark.parametrize(("op", "tensors", "attrs"), CASES)
def test_a_kernel_is_proved(tmp_path, op, tensors, attrs):
    path = written(tmp_path, op, tensors, "f16", (3, 70), 2 if op == "Window" else 1, **attrs)
    made = tx8fast.compile(path, kernels=str(FILE))
    report = api.prove(made.program, path, api.options_of(made.program, kernels=str(FILE)))
    assert report.proved and report.complete, report.lines()


def test_a_kernel_joins_the_product_before_it(tmp_path):
    weights = {"w": np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32) / 8}
    nodes = [node("MatMul", "x w", "h"), node("Swish", "h", "y", domain="acts")]
    onnx.save(
        model(nodes, [info("x", (32, 64))], [info("y", (32, 128))], weights, domains=["acts"]), tmp_path / "m.onnx"
    )
    made = tx8fast.compile(tmp_path / "m.onnx", kernels=str(FILE), dtype="bf16")
    assert made.program.launches[-1].name == "MatMul#0+Swish#1"
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    right = KERNELS["Swish"](x @ weights["w"])
    assert np.abs(made.run({"x": x})["y"] - right).max() < 0.03 * np.abs(right).max()


@pytest.mark.toolchain
@pytest.mark.skipif(not (CC and CXX), reason="no C or C++ compiler")
def test_a_kernel_as_c(tmp_path):
    made = tx8fast.compile(written(tmp_path, "ClampedSwiglu", 2, "f16"), kernels=str(FILE))
    assert "MaskMove" in "".join(api_text(tx8fast.compile(written(tmp_path, "XIELU", 1), kernels=str(FILE))))
    check_c(made, tmp_path / "c", feed_of(made.program))


def api_text(made):
    from tx8fast.codegen.program import program_text

    return program_text(made.program)


BODIES = {
    "x if x > 0 else -x": "line 4, `return x if x > 0 else -x`.*cannot decide what is computed",
    "math.exp(x)": "line 4.*nor leave numpy",
    "x[0]": "line 4.*no index, length, shape or method",
    "x.sum()": "line 4.*no index, length, shape or method",
    "np.sum(x)": "line 4.*numpy.sum is not element-wise",
    "x @ x": "line 4.*numpy.matmul has no vector instructions",
    "np.expm1(x)": r"line 4.*write exp\(x\) - 1",
    "x ** x": r"line 4.*write exp\(y \* log\(x\)\)",
    "x ** 2.7": "line 4.*whole exponents up to 16",
    "x + np.ones(3)": "line 4.*operands are arguments, and single numbers",
    "(x > 0) + 1": "line 4.*takes numbers; numpy.where makes numbers of truth values",
    "np.where(x, 1, 2)": "line 4.*needs a comparison first",
    "np.add(x, 1, where=False)": "line 4.*with where is not element-wise",
    "x > 0": "returns truth values, required a number",
    "3.0": "returns float, required a number",
    "x + undefined": "line 4: NameError",
    "sum(x for _ in range(300))": "line 4.*more than 128 steps",
}


@pytest.mark.parametrize("body", BODIES)
def test_what_cannot_be_done_to_an_element_is_refused_with_the_line(tmp_path, body):
    file = tmp_path / "k.py"
    file.write_text(f"import math, numpy as np, tx8fast\n@tx8fast.vector_kernel\ndef F(x):\n    return {body}\n")
    with pytest.raises(ImportModelError, match=BODIES[body]):
        tx8fast.compile(written(tmp_path, "F", 1), kernels=str(file))


FILES = {
    "import nothing_of_the_kind\n": "line 1: ModuleNotFoundError",
    "def f(x:\n": "line 1: ",
    "x = 1\n": "marks no function with @tx8fast.vector_kernel",
    "import tx8fast\n@tx8fast.vector_kernel\ndef F(*x): return x\n": "line 2.*required one or more plain ones",
    "import tx8fast\nF = tx8fast.vector_kernel(3)\n": "found 3, required a function",
    "import tx8fast\n@tx8fast.vector_kernel\ndef F(x): yield x\n": "it yields or awaits",
    "import tx8fast\n@tx8fast.vector_kernel(domain='com.microsoft')\ndef Gelu(x): return x\n": "Gelu of domain 'com.microsoft' is known already",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_of_no_kernels_is_refused(tmp_path, text):
    (tmp_path / "k.py").write_text(text)
    with pytest.raises(ConfigError, match=f"reading kernels .*k.py.*{FILES[text]}"):
        tx8fast.compile(written(tmp_path, "F", 1), kernels=str(tmp_path / "k.py"))


def test_what_a_node_must_give(tmp_path):
    for op, tensors, attrs, why in (
        ("Swish", 3, {}, r"found 3 tensors; required are x, beta"), ("ClampedSwiglu", 1, {}, "found 1 tensors"),
        ("Swish", 1, {"gamma": 1.0}, "attribute gamma"), ("Swish", 1, {"beta": "much"}, "required finite numbers"),
    ):  # fmt: skip
        with pytest.raises(Tx8Error, match=why):
            tx8fast.compile(written(tmp_path, op, tensors, **attrs), kernels=str(FILE))
    with pytest.raises(
        Tx8Error, match="operator Swish .domain 'acts'"
    ):  # a file beside the model is not loaded by itself
        tx8fast.compile(written(tmp_path, "Swish", 1))
    with pytest.raises(ConfigError, match="no such file|No such file"):
        tx8fast.compile(written(tmp_path, "Swish", 1), kernels="gone.py")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="kernels serve nodes of ONNX models"):
        tx8fast.compile(tmp_path / "config.json", CompileOptions(kernels=str(FILE)))


def test_a_file_that_no_node_needs_is_told(tmp_path):
    onnx.save(model([node("Relu", "x", "y")], [info("x", (3, 8))], [info("y", (3, 8))]), tmp_path / "m.onnx")
    with pytest.warns(UnusedOptionWarning, match="vector_kernels.py has no effect"):
        tx8fast.compile(tmp_path / "m.onnx", kernels=str(FILE))


def test_a_kernel_is_still_a_function():
    x = np.linspace(-3, 3, 7)
    assert np.allclose(KERNELS["Swish"](x, 2.0), x / (1 + np.exp(-2 * x)))
    assert vector_kernel(lambda x: x + 1)(2) == 3
