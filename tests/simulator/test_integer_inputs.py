"""Integers that an input cannot hold are refused from Python as from the command line."""

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import tx8fast
from tx8fast.cli.npz import fit_inputs
from tx8fast.errors import SimulationError
from tx8fast.numerics.fitting import integer_misfit


def program(tmp_path, kind):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, (4,))],
        [helper.make_tensor_value_info("y", kind, (4,))],
    )
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return tx8fast.compile(path)


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (TensorProto.INT32, np.array([0, 2**40 + 1, 5, 3]), r"first out of range 1099511627777 at \[1\], required .*-2147483648 to 2147483647"),
        (TensorProto.INT32, np.array([1.7, 2, 3, 4]), "has dtype float64, required an integer type"),
        (TensorProto.UINT8, np.array([1, 2, 3, 300]), r"first out of range 300 at \[3\], required .*0 to 255"),
        (TensorProto.UINT8, np.array([1, -2, 3, 4], np.int8), r"first out of range -2 at \[1\]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path, kind, given, problem):
    compiled = program(tmp_path, kind)
    with pytest.raises(SimulationError, match=problem):
        compiled.run({"x": given})
    with pytest.raises(SimulationError, match=problem):
        fit_inputs({"x": given}, compiled.inputs, "in.npz")


def test_what_fits_is_converted(tmp_path):
    fits = np.array([0, 255, 3, 4], np.int64)
    assert program(tmp_path, TensorProto.UINT8).run({"x": fits})["y"].tolist() == fits.tolist()
    assert program(tmp_path, TensorProto.FLOAT).run({"x": fits / 2})["y"].tolist() == (fits / 2).tolist()


def test_four_bits_held_in_eight():
    assert integer_misfit(np.array([7, -8], np.int8), "i4") is None
    assert "8 at [0]" in str(integer_misfit(np.array([8], np.int64), "i4"))
