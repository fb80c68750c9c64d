"""A caller of the command line, and one small compiled program for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, write_mlp


@pytest.fixture
def tx8(capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(capsys)


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file: y = relu(x @ w + b), x f32 [8, 32]; one product to the compiler."""
    return write_mlp(tmp_path_factory.mktemp("mlp") / "mlp.onnx")


@pytest.fixture(scope="session")
def program(mlp: Path) -> Path:
    """The program of `mlp` in bfloat16."""
    path = mlp.with_suffix(".tx8")
    tx8fast.compile(mlp, dtype="bf16").save(path)
    return path


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama-class directory of two small layers."""
    directory = tmp_path_factory.mktemp("llama")
    make_checkpoint(directory, dtype="bfloat16")
    return directory
