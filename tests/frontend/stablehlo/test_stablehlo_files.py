"""Committed StableHLO texts, portable artifacts, weights beside the file, and files that cannot be read. Needs jaxlib alone."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from tx8fast.api import compile as compile_model
from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError
from tx8fast.frontend import open_model

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def jaxlib():
    return pytest.importorskip("jaxlib")


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def near(got, want):
    return np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


W1, B1, W2, X = f32(16, 24), f32(24), f32(24, 8), f32(4, 16)
MLP = {"params['w1']": W1, "params['b1']": B1, "params['w2']": W2, "x": X}
MLP_RESULT = np.maximum(X @ W1 + B1, 0) @ W2


def test_mlp(data_dir):
    program = compile_model(data_dir / "stablehlo" / "mlp.mlir")
    assert [t.name for t in program.inputs] == list(MLP)
    assert near(program.run(MLP)["result0"], MLP_RESULT)


def test_attention(data_dir):
    q, k, v, cache = f32(1, 4, 2, 8), f32(1, 4, 2, 8), f32(1, 4, 2, 8), f32(1, 6, 2, 8)
    program = compile_model(data_dir / "stablehlo" / "attention.mlir")
    out = program.run({"q": q, "k": k, "v": v, "cache": cache, "position": np.int32(2)})
    scores = np.where(np.tril(np.ones((4, 4), bool)), np.einsum("bqhd,bkhd->bhqk", q, k) / 4, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    assert near(out["result0"], np.einsum("bhqk,bkhd->bqhd", weights, v))
    cache[:, 2] = k[:, 3]
    assert (out["result1"] == cache).all()
    func = next(op for op in open_model(data_dir / "stablehlo" / "attention.mlir").module.walk() if op.kind == "func")
    assert func.attrs["donated"] == (3, 1)


def test_loop(data_dir):
    x = RNG.uniform(0.5, 1.5, (4, 8)).astype(np.float32)
    out = compile_model(data_dir / "stablehlo" / "loop.mlir").run({"arg0": x})["result0"]
    for w in (0.5, 1.0, 2.0):
        x = (x * w) ** 2
    assert near(out, x)


def test_portable_artifact(data_dir, tmp_path):
    """The serialised form, alone and inside another file, is the same model."""
    from jaxlib.mlir.dialects import stablehlo

    text = (data_dir / "stablehlo" / "mlp.mlir").read_text()
    artifact = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_minimum_version())
    plain, wrapped = tmp_path / "m.bin", tmp_path / "m.export"
    plain.write_bytes(artifact)
    wrapped.write_bytes(b"\x3c\0\0\0" * 5 + len(artifact).to_bytes(4, "little") + artifact + b"\0" * 9)
    for path in (plain, wrapped):
        program = compile_model(path)
        values = [MLP[k] for k in MLP]
        assert near(program.run({t.name: v for t, v in zip(program.inputs, values)})["result0"], MLP_RESULT)
    wrapped.write_bytes(wrapped.read_bytes()[:-200])
    with pytest.raises(ImportModelError, match="truncated"):
        open_model(wrapped)


def test_weights_beside_the_file(data_dir, tmp_path):
    """Arguments found in the .safetensors file of the same name are parameters, read where they are."""
    from safetensors.numpy import save_file

    path = tmp_path / "mlp.mlir"
    path.write_text((data_dir / "stablehlo" / "mlp.mlir").read_text())
    stored = {k: v for k, v in MLP.items() if k != "x"}
    save_file(stored, tmp_path / "mlp.safetensors")
    program = compile_model(path)
    assert [t.name for t in program.inputs] == ["x"]
    assert near(program.run({"x": X})["result0"], MLP_RESULT)
    save_file({"params['w1']": W2}, tmp_path / "mlp.safetensors")
    with pytest.raises(ImportModelError, match=r"'params\['w1'\]' is f32\[24, 8\], the argument f32\[16, 24\]"):
        open_model(path)


def test_bound_arguments(data_dir):
    path = data_dir / "stablehlo" / "mlp.mlir"
    program = compile_model(path, constants={k: v for k, v in MLP.items() if k != "x"})
    assert [t.name for t in program.inputs] == ["x"]
    assert near(program.run({"x": X})["result0"], MLP_RESULT)
    with pytest.raises(ConfigError, match="'y' is no argument"):
        open_model(path, constants={"y": X})
    with pytest.raises(ConfigError, match=r"shape \[4, 16\], required \[24\]"):
        open_model(path, constants={"params['b1']": X})
    with pytest.raises(ConfigError, match="seq cannot be bound"):
        open_model(path, seq=16)


def test_large_constants_are_weights(tmp_path):
    path = tmp_path / "m.mlir"
    values = ", ".join(f"{v}.0" for v in range(2048))
    path.write_text(f"""func.func @main(%a: tensor<2048xf32>) -> tensor<2048xf32> {{
      %c = stablehlo.constant dense<[{values}]> : tensor<2048xf32>
      %0 = stablehlo.add %a, %c : tensor<2048xf32>
      return %0 : tensor<2048xf32>
    }}""")
    program = open_model(path)
    assert [w.shape for w in program.weights.values()] == [(2048,)]
    assert (program.weights.view(program.weights.keys()[0]) == np.arange(2048)).all()


def test_dense_constants_of_every_type(tmp_path):
    """Lists, splats and byte strings of formats that the bindings have no buffers for."""
    path = tmp_path / "m.mlir"
    many = (
        "0x"
        + (np.arange(128) * 0.5).astype(np.float32).view(np.uint32).__rshift__(16).astype("<u2").tobytes().hex().upper()
    )
    path.write_text(f"""func.func @main(%a: tensor<128xbf16>, %b: tensor<4xi8>) -> (tensor<128xbf16>, tensor<4xi8>, tensor<4xi1>, tensor<4xbf16>) {{
      %c = stablehlo.constant dense<"{many}"> : tensor<128xbf16>
      %d = stablehlo.constant dense<2.0> : tensor<128xbf16>
      %0 = stablehlo.add %a, %c : tensor<128xbf16>
      %1 = stablehlo.multiply %0, %d : tensor<128xbf16>
      %e = stablehlo.constant dense<[1, -2, 3, 4]> : tensor<4xi8>
      %2 = stablehlo.add %b, %e : tensor<4xi8>
      %f = stablehlo.constant dense<[true, false, false, true]> : tensor<4xi1>
      %g = stablehlo.constant dense<[1.5, 0x7F80, -2.0, 3.0]> : tensor<4xbf16>
      return %1, %2, %f, %g : tensor<128xbf16>, tensor<4xi8>, tensor<4xi1>, tensor<4xbf16>
    }}""")
    program = compile_model(path)
    a = np.ones(128, program.run({"arg0": np.zeros(128), "arg1": np.zeros(4, np.int8)})["result0"].dtype)
    out = program.run({"arg0": a, "arg1": np.ones(4, np.int8)})
    assert (out["result0"].astype(np.float32) == (1 + np.arange(128) * 0.5) * 2).all()
    assert out["result1"].tolist() == [2, -1, 4, 5] and out["result2"].tolist() == [True, False, False, True]
    assert out["result3"].astype(np.float32).tolist() == [1.5, np.inf, -2.0, 3.0]


# ---------------------------------------------------------------- what cannot be read

F = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {"
BAD = {
    "garbage": ("garbage {", ImportModelError, "line 1, column 1: custom op 'garbage' is unknown"),
    "cut_off": (F + "\n %0 = stablehlo.add %a, ", ImportModelError, "line 2"),
    "binary": ("ab\0\1\2", ImportModelError, "neither StableHLO text nor a portable artifact"),
    "damaged_artifact": (b"ML\xefR\rStableHLO_v1.0.0\0junk", ImportModelError, "reading StableHLO"),
    "dialect": (F + '%0 = "foo.bar"(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32> }', ImportModelError,
                "unregistered dialect; only stablehlo"),  # fmt: skip
    "types": (F + "%0 = stablehlo.add %a, %b : tensor<4xf32>\nreturn %0 : tensor<4xf32> }", ImportModelError, "undeclared SSA value"),
    "dynamic": ("func.func @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> { return %a : tensor<?x4xf32> }", ImportModelError,
                "dynamic dimension; export the model with fixed shapes"),  # fmt: skip
    "complex": ("func.func @main(%a: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> { return %a : tensor<4xcomplex<f32>> }",
                ImportModelError, "element type complex<f32> is not supported"),  # fmt: skip
    "no_main": ("module { }", ImportModelError, "no function 'main'"),
    "custom_call": (F + "%0 = stablehlo.custom_call @my_kernel(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32> }",
                    UnsupportedError, "custom call 'my_kernel'"),  # fmt: skip
    "recursion": (F + "%0 = func.call @main(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32> }", ImportModelError,
                  "nested more than 64 deep"),  # fmt: skip
    "endless": (F + """%0 = stablehlo.while(%h = %a) : tensor<4xf32> cond {
        %c = stablehlo.constant dense<true> : tensor<i1>
        stablehlo.return %c : tensor<i1> } do { stablehlo.return %h : tensor<4xf32> }
        return %0 : tensor<4xf32> }""", UnsupportedError, "more than 10000 rounds"),
    "data_loop": (F + """%0 = stablehlo.while(%h = %a) : tensor<4xf32> cond {
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %m = stablehlo.reduce(%h init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        %c = stablehlo.compare LT, %m, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do { stablehlo.return %h : tensor<4xf32> }
        return %0 : tensor<4xf32> }""", UnsupportedError, "depends on data"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, name):
    content, error, message = BAD[name]
    path = tmp_path / "bad.mlir"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error) as found:
        open_model(path)
    assert message in str(found.value) and "bad.mlir" in str(found.value)


def test_all_problems_at_once(tmp_path):
    path = tmp_path / "bad.mlir"
    path.write_text(
        F
        + """
        %l = stablehlo.constant dense<0.0> : tensor<f32>
        %h = stablehlo.constant dense<1.0> : tensor<f32>
        %s = stablehlo.constant dense<4> : tensor<1xi64>
        %0 = stablehlo.rng %l, %h, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
        %1 = stablehlo.custom_call @kernel(%a) : (tensor<4xf32>) -> tensor<4xf32>
        %2 = stablehlo.reduce_precision %1, format = e5m10 : tensor<4xf32>
        %3 = stablehlo.popcnt %s : tensor<1xi64>
        %4 = stablehlo.add %0, %2 : tensor<4xf32>
        return %4 : tensor<4xf32> }"""
    )
    with pytest.raises(UnsupportedError) as found:
        open_model(path)
    text = str(found.value)
    for part in (
        "3 problems",
        "custom call 'kernel'",
        "line 6",
        "stablehlo.rng is not supported",
        "line 5",
        "random numbers",
        "popcnt",
        "line 8",
    ):
        assert part in text, (part, text)


def test_missing_jaxlib_names_the_extra(data_dir, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "jaxlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(ImportModelError, match=r"pip install 'tx8fast\[stablehlo\]'"):
        open_model(data_dir / "stablehlo" / "mlp.mlir")


COMPOSITE = """module {{ func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {{
  %r = stablehlo.composite "chlo.erf" {operands} {{decomposition = @f}} : ({types}) -> tensor<4xf32>
  return %r : tensor<4xf32> }}
func.func private @f({parameters}) -> tensor<4xf32> {{
  %r = stablehlo.add %x, %{last} : tensor<4xf32>
  return %r : tensor<4xf32> }} }}"""


@pytest.mark.parametrize("names", ["x", "xy"])
def test_a_composite_is_the_function_it_is_named_like_or_its_decomposition(names, tmp_path):
    text = COMPOSITE.format(
        operands=", ".join(f"%{n}" for n in "ab"[: len(names)]),
        types=", ".join(["tensor<4xf32>"] * len(names)),
        parameters=", ".join(f"%{n}: tensor<4xf32>" for n in names),
        last=names[-1],
    )
    (tmp_path / "m.mlir").write_text(text)
    a, b = np.float32([0.1, -0.5, 1, 2]), np.float32([1, 2, 3, 4])
    made = compile_model(tmp_path / "m.mlir")
    got = made.run({t.name: v for t, v in zip(made.inputs, (a, b))})["result0"]
    want = a + b if len(names) == 2 else [math.erf(v) for v in a]
    np.testing.assert_allclose(got, want, rtol=1e-6)


BESIDE = """module { func.func public @main(%x: tensor<7xf32> LOC) -> (tensor<7xf32>, tensor<7xf32>, tensor<3xf32>) {
  %0 = chlo.erfc %x : tensor<7xf32> -> tensor<7xf32> LOC
  %1 = chlo.FUNCTION %x : tensor<7xf32> -> tensor<7xf32> LOC
  %2, %3 = chlo.top_k(%x, k = 3) : tensor<7xf32> -> (tensor<3xf32>, tensor<3xi32>) LOC
  return %0, %1, %2 : tensor<7xf32>, tensor<7xf32>, tensor<3xf32> } }"""


@pytest.mark.parametrize("function", ["lgamma", "digamma"])
def test_what_has_to_be_expanded_leaves_the_others_alone(function, tmp_path):
    """The dialect's pass expands all functions, but one of our own is read as such whatever stands beside it and is called."""
    made = {}
    for name, loc in {"named": 'loc("jit(f)/erfc")', "without": ""}.items():
        (tmp_path / f"{name}.mlir").write_text(BESIDE.replace("FUNCTION", function).replace("LOC", loc))
        made[name] = compile_model(tmp_path / f"{name}.mlir")
    kinds = [op.kind for op in open_model(tmp_path / "without.mlir").module.walk()]
    assert kinds.count("erf") == 1 and kinds.count("topk") == 1
    x = np.float32([0.3, 0.7, 1.1, 1.9, 2.5, 3.1, 4])
    found = [list(program.run({program.inputs[0].name: x}).values()) for program in made.values()]
    assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in found[1]]
    np.testing.assert_allclose(found[0][0], [math.erfc(v) for v in x], atol=1e-6)
    assert found[0][2].tolist() == [4, *np.float32([3.1, 2.5]).tolist()]


@pytest.mark.parametrize("mark", ["7 : i32", '{k = "a"}'])
def test_calls_that_are_marked_as_if_they_stood_for_a_function_are_refused(mark, tmp_path):
    call = f"%4 = stablehlo.custom_call @chlo.nothing(%x) {{tx8fast.chlo = {mark}}} : (tensor<7xf32>) -> tensor<7xf32>"
    text = BESIDE.replace("FUNCTION", "lgamma").replace("LOC", "").replace("  return", f"  {call}\n  return")
    (tmp_path / "m.mlir").write_text(text)
    with pytest.raises(ImportModelError, match="attribute 'tx8fast.chlo'"):
        open_model(tmp_path / "m.mlir")
