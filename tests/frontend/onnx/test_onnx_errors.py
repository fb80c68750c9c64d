"""What is wrong with a model is said once, completely, without a traceback of the file format's library."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import BOOL, I64, imported, info, model, node
from onnx import helper

from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError
from tx8fast.frontend import open_model
from tx8fast.frontend.common import ImportOptions, NeedConstant
from tx8fast.frontend.onnx import import_onnx

GPT2 = "gpt2-prefill-op20.onnx"


@pytest.mark.parametrize("keep", [0, 1, 100, 5_000, 300_000, -1])
def test_truncated_file(tmp_path, data_dir, keep):
    data = (data_dir / "onnx" / GPT2).read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[:keep])
    with pytest.raises(ImportModelError, match="cut.onnx"):
        open_model(path)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_file_never_escapes_as_another_error(tmp_path, data_dir, seed):
    data = bytearray((data_dir / "onnx" / GPT2).read_bytes())
    rng = np.random.default_rng(seed)
    for at in rng.integers(0, 4000 if seed % 2 else len(data), 20):
        data[at] = rng.integers(0, 256)
    path = tmp_path / "damaged.onnx"
    path.write_bytes(bytes(data))
    try:
        import_onnx(path)  # damage may hit weight bytes only
    except (ImportModelError, UnsupportedError, ConfigError):
        pass


def test_garbage_and_missing_files(tmp_path):
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"not a model at all" * 10)
    for path in (garbage, tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(ImportModelError, match=str(path.name)):
            open_model(path)


def test_all_unsupported_operators_at_once():
    nodes = [node("NonMaxSuppression", "b s", "n", "nms"), node("Frobnicate", "x", "y", "frob", domain="acme"),
             node("Relu", "y", "z"), node("Frobnicate", "z", "w", "frob2", domain="acme")]  # fmt: skip
    inputs = [info("b", [1, 4, 4]), info("s", [1, 1, 4]), info("x", [2])]
    with pytest.raises(UnsupportedError) as e:
        imported(nodes, inputs, [info("w", [2])], domains=("acme",))
    text = str(e.value)
    for part in ("NonMaxSuppression", "nms", "Frobnicate", "acme", "frob, frob2", "operator set 20"):
        assert part in text
    assert "Relu" not in text  # fed by a reported node: no problem of its own


def test_unbound_dimensions_in_one_error():
    inputs = [info("x", ["N", "S", 4]), info("m", ["N", None], BOOL)]
    nodes = [node("Relu", "x", "y"), node("Not", "m", "k")]
    outputs = [info("y", None), info("k", None, BOOL)]
    with pytest.raises(ImportModelError) as e:
        imported(nodes, inputs, outputs)
    for part in ("--dim N=VALUE", "--dim S=VALUE", "--dim m.1=VALUE", "x[0], m[0]"):
        assert part in str(e.value)
    program = imported(nodes, inputs, outputs, options=ImportOptions(dims={"N": 2, "S": 3, "m.1": 5}))
    assert [a.shape for a in program.main.body.args] == [(2, 3, 4), (2, 5)]
    with pytest.raises(ImportModelError, match="--dim m.1=VALUE; Q is not among them"):
        imported(nodes, inputs, outputs, options=ImportOptions(dims={"N": 2, "S": 3, "Q": 1}))
    with pytest.raises(ConfigError, match="Q.*dynamic dimensions are: N, S"):
        imported(nodes, inputs, outputs, options=ImportOptions(dims={"N": 2, "S": 3, "m.1": 5, "Q": 1}))


def test_usual_dimension_names_follow_the_phase():
    inputs = [info("x", ["batch_size", "sequence_length"]), info("p", ["batch_size", "past_sequence_length"]),
              info("t", ["batch_size", "past_sequence_length + sequence_length"])]  # fmt: skip
    nodes = [node("Relu", i, i + "o") for i in "xpt"]
    outputs = [info(i + "o", None) for i in "xpt"]
    program = imported(nodes, inputs, outputs, options=ImportOptions(phase="decode", batch=2, past=7))
    assert [a.shape for a in program.main.body.args] == [(2, 1), (2, 7), (2, 8)]


def test_cycle_is_named():
    nodes = [node("Add", "x b", "a", "first"), node("Relu", "a", "b", "second")]
    with pytest.raises(ImportModelError, match="cycle.*(first|second)"):
        imported(nodes, [info("x", [2])], [info("b", [2])])


def test_nodes_may_stand_in_any_order():
    nodes = [node("Relu", "a", "b"), node("Neg", "x", "a")]
    program = imported(nodes, [info("x", [2])], [info("b", [2])])
    assert [op.kind for op in program.main.body] == ["neg", "relu", "return"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", "x", "y"), node("Neg", "x", "y", "twice")], "twice.*'y' is already defined"),
        ([node("Relu", "x", "x", "self")], "self"),
        ([node("Relu", "nowhere", "y", "n")], "n.*'nowhere' is not defined"),
        ([node("Add", "x i", "y", "mixed")], "mixed.*element type i64, required f32"),
        ([node("Add", "x", "y", "alone")], "alone.*found 1 inputs, required 2"),
        ([node("MatMul", "w w", "y", "mm")], "mm.*K"),
        ([node("Relu", "x", "z")], "output 'y' is not defined"),
        ([node("Softmax", "x", "y", "sm", axis=5)], "sm.*axis 5"),
        ([node("Cast", "x", "y", "c", to=I64)], "declared f32, its node gives i64"),
        ([node("Concat", "x x", "y", "cc", axis=0)], "declared with shape"),
    ],
)
def test_contradictions(nodes, message):
    weights = {"i": np.arange(2), "w": np.ones((2, 3), np.float32)}
    with pytest.raises(ImportModelError, match=message):
        imported(nodes, [info("x", [2])], [info("y", [2])], weights)


def test_wrong_initialiser_size(tmp_path):
    m = model([node("Add", "x w", "y")], [info("x", [8])], [info("y", [8])], {"w": np.ones(8, np.float32)})
    m.graph.initializer[0].dims[0] = 9
    path = tmp_path / "m.onnx"
    onnx.save(m, path)
    with pytest.raises(ImportModelError, match=r"'w': found 32 bytes.*needs 36"):
        import_onnx(path)


def external(tmp_path, location: str, nbytes: int = 4096, length: int = 4096):
    w = np.arange(1024, dtype=np.float32)
    m = model([node("Add", "x w", "y")], [info("x", [1024])], [info("y", [1024])], {"w": w})
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = onnx.TensorProto.EXTERNAL
    for k, v in (("location", location), ("offset", "64"), ("length", str(length))):
        t.external_data.add(key=k, value=v)
    (tmp_path / "w.bin").write_bytes(b"\0" * 64 + w.tobytes()[:nbytes])
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(b"\0" * 64 + w.tobytes()[:nbytes])
    onnx.save(m, folder / "m.onnx")
    return folder / "m.onnx"


def test_external_data_is_mapped(tmp_path):
    path = external(tmp_path, "w.bin")
    program = import_onnx(path)
    source = program.weights["w"].source
    assert (source.path, source.offset, source.nbytes) == (str(path.parent / "w.bin"), 64, 4096)
    assert program.weights.view("w")[1023] == 1023


@pytest.mark.parametrize(
    ("location", "nbytes", "length", "message"),
    [
        ("gone.bin", 4096, 4096, "does not exist"),
        ("../w.bin", 4096, 4096, "not inside"),
        ("/etc/passwd", 4096, 4096, "not inside"),
        ("w.bin", 1000, 4096, "the file has 1064"),
        ("w.bin", 4096, 4000, "4000 bytes"),
        ("", 4096, 4096, "not inside"),
    ],
)
def test_bad_external_data(tmp_path, location, nbytes, length, message):
    with pytest.raises(ImportModelError, match=message):
        import_onnx(external(tmp_path, location, nbytes, length))


def test_external_data_may_not_be_a_link_out(tmp_path):
    path = external(tmp_path, "w.bin")
    (path.parent / "w.bin").unlink()
    (path.parent / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ImportModelError, match="not inside"):
        import_onnx(path)


def test_shape_inputs_must_be_bound():
    nodes = [node("Reshape", "x s", "y", "view")]
    inputs, outputs = [info("x", [6]), info("s", [2], I64)], [info("y", None)]
    with pytest.raises(NeedConstant, match="view.*known at compile time.*graph inputs s") as e:
        imported(nodes, inputs, outputs)
    assert e.value.inputs == ("s",)
    program = imported(nodes, inputs, outputs, options=ImportOptions(constants={"s": np.array([2, -1])}))
    assert program.main.attrs["arg_names"] == ("x",) and program.main.body.last.operands[0].shape == (2, 3)
    for name, value, message in (("t", [1], "t are not graph inputs"), ("s", [1, 2, 3], "required")):
        with pytest.raises(ConfigError, match=message):
            imported(nodes, inputs, outputs, options=ImportOptions(constants={name: np.array(value)}))


def test_recursive_function():
    f = helper.make_function("acme", "F", ["a"], ["b"], [node("F", "a", "b", domain="acme")],
                             [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)])  # fmt: skip
    with pytest.raises(ImportModelError, match="recursive"):
        imported(
            [node("F", "x", "y", domain="acme")], [info("x", [2])], [info("y", [2])], functions=[f], domains=("acme",)
        )


def test_options_are_checked():
    for bad in ({"phase": "later"}, {"seq": 0}, {"dims": {"N": -1}}, {"batch": 1.5}):
        with pytest.raises(ConfigError):
            ImportOptions(**bad)
