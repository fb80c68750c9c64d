"""A model in another directory gives the same bytes; weights that a program does not read are told."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import tx8fast
from tests.support.cli_case import refused


def test_the_directory_does_not_enter_the_program(tmp_path, checkpoint, monkeypatch):
    made = []
    for name in ("m", "another-name"):
        shutil.copytree(checkpoint, tmp_path / name)
        tx8fast.compile(tmp_path / name, seq=4).save(tmp_path / "p.tx8")
        made.append((tmp_path / "p.tx8").read_bytes())
    monkeypatch.chdir(tmp_path / "m")
    tx8fast.compile(".", seq=4).save(tmp_path / "p.tx8")
    assert made[0] == made[1] == (tmp_path / "p.tx8").read_bytes()


@pytest.mark.parametrize("limit, told", [("64", True), ("0", False)])
def test_weights_beside_embedded_ones_are_told(tx8, tmp_path, checkpoint, limit, told):
    program, feed, out = tmp_path / "p.tx8", tmp_path / "in.npz", tmp_path / "out.npz"
    assert tx8("compile", checkpoint, "-o", program, "--seq", "4", "--embed-limit-mib", limit).code == 0
    np.savez(feed, input_ids=np.zeros((1, 4), np.int64))
    done = tx8("run", program, "--inputs", feed, "--outputs", out, "--weights", checkpoint)
    assert done.code == 0
    assert done.err.startswith("warning: --weights has no effect: every weight is in the program") == told
    if not told:
        refused(tx8, tmp_path, "run", program, "--inputs", feed, "--outputs", out, says=("--weights DIR",))
