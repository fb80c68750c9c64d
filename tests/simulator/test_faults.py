"""Data that a program cannot take: the message names the input, the place in it and the range."""

from __future__ import annotations

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import write_mlp
from tx8fast.errors import SimulationError
from tx8fast.isa.base import instruction


@pytest.fixture(scope="module")
def decode(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, dtype="bfloat16")
    return tx8fast.compile(folder, phase="decode", past=8), tx8fast.compile(folder, seq=6)


@pytest.mark.parametrize("exact", [False, True])
def test_an_id_outside_the_vocabulary(decode, exact):
    ids = np.array([[1, 2, 3, 99999, 5, 6]])
    with pytest.raises(SimulationError) as e:
        decode[1].run({"input_ids": ids}, exact=exact)
    said = str(e.value)
    assert said.startswith("input 'input_ids' at [0, 3] is 99999, required 0 to 127:")
    assert "fields" not in said and len(said) < 400


@pytest.mark.parametrize(
    "position, says", [(8, "input 'position' at [0] is 8, required 0 to 7:"), (-2, "(input 'position' is [-2])")]
)
def test_a_position_outside_the_cache(decode, position, says):
    feed = {t.name: np.full(t.shape, position if t.name == "position" else 0) for t in decode[0].inputs}
    with pytest.raises(SimulationError) as e:
        decode[0].run(feed)
    assert says in str(e.value) and "fields" not in str(e.value)


def test_a_defect_of_the_program_still_shows_the_row(tmp_path):
    compiled = tx8fast.compile(write_mlp(tmp_path / "m.onnx"), dtype="bf16", opt=1)
    for code in (code for segment in compiled.program.segments for code in segment.codes):
        code["p"][code["opcode"] == instruction("gemm").OPCODE, 3:5] = 2, 3
    with pytest.raises(SimulationError, match=r"instruction \d+ \(gemm\): .*fields \{"):
        compiled.run({"x": np.zeros((8, 32), np.float32)})
