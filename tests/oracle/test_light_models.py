"""The structures of real convolution networks that come with the onnx package: compile, execute, compare.

Their weights are constants made by the graph itself, so that the files are small.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tx8fast
from tests.support.thorough import THOROUGH

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
#: those that the search works through in a few seconds; the others are compiled op by op unless TX8FAST_ALL_MODELS=1
QUICK = ("squeezenet", "shufflenet")
#: large ones, whose kinds of layers the others have too: with TX8FAST_ALL_MODELS=1 only
LARGE = ("densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512")
MODELS = ("bvlc_alexnet", "resnet50", *QUICK, *(LARGE if THOROUGH else ()))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_light_model(name):
    opt = 2 if name in QUICK or THOROUGH else 1
    path = FOLDER / f"light_{name}.onnx"
    if not path.exists():
        pytest.skip("this onnx package has no light models")
    program = tx8fast.compile(path, dtype="fp32", opt=opt)
    stored = onnx.TensorProto()
    stored.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    want = onnx.numpy_helper.to_array(stored)
    inputs = {t.name: _ramp(t.shape) for t in program.inputs}
    (got,) = program.run(inputs).values()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)


def _ramp(shape) -> np.ndarray:
    """The input that the expected outputs belong to: i / size at place i."""
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.float32) / size).reshape(shape)
