"""Groups by a pattern table through a whole compile: they run, they are right, and what cannot be lowered is told."""

import warnings

import numpy as np
import pytest
from onnx import helper

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, write_mlp, write_onnx
from tx8fast.api import CompileOptions, compile_ir, open_model
from tx8fast.errors import ConfigError, InfeasibleError, UnusedOptionWarning
from tx8fast.machine import load_machine

SEQ = {"phase": "prefill", "seq": 8}


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    return write_mlp(tmp_path_factory.mktemp("given") / "m.onnx")


@pytest.fixture(scope="module")
def activated(tmp_path_factory):
    """y = gelu(x @ w): no engine has it as the last step of a product."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "mm"), helper.make_node("Gelu", ["h"], ["y"], "act")]
    w = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    return write_onnx(tmp_path_factory.mktemp("given-gelu") / "m.onnx", nodes, {"x": (8, 32)}, {"y": (8, 48)}, {"w": w})


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    directory = tmp_path_factory.mktemp("given-llama")
    make_checkpoint(directory, dtype="bfloat16")
    return directory


@pytest.fixture(scope="module")
def plain(llama):
    """The model without groups, and what it gives."""
    compiled = tx8fast.compile(llama, opt=1, **SEQ)
    return compiled, outputs(compiled)


def kinds(compiled) -> list[str]:
    return [s.info["op"] for s in compiled.program.segments]


def outputs(compiled, sanitize: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feed = {
        t.name: rng.integers(0, 90, t.shape) if t.dtype.startswith("i") else rng.standard_normal(t.shape, np.float32)
        for t in compiled.inputs
    }
    return {k: v.astype(np.float32) for k, v in compiled.run(feed, sanitize=sanitize).items()}


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.abs(a[k] - b[k]).max(initial=0) <= 0.03 * max(1e-6, np.abs(b[k]).max(initial=0)) for k in b)


def test_a_table_makes_groups_where_the_search_makes_none(activated) -> None:
    plain = tx8fast.compile(activated, dtype="bf16", opt=1)
    grouped = tx8fast.compile(activated, dtype="bf16", opt=1, group_table="1")
    assert {"gemm", "gelu"} <= set(kinds(plain)) and "gemm+gelu" in kinds(grouped)
    assert close(outputs(grouped, sanitize=True), outputs(plain))
    assert grouped.compile_seconds > 0
    assert grouped.program.meta["options"]["group_table"] == "1" and "group_table" not in plain.program.meta["options"]


@pytest.mark.parametrize("opt", [1, 2])
def test_a_whole_model_by_the_built_in_table(llama, plain, opt: int) -> None:
    grouped = tx8fast.compile(llama, opt=opt, group_table="1", **SEQ)
    assert {"gemm+add", "contract+softmax+contract"} <= set(kinds(grouped))
    assert len(grouped.program.launches) < len(plain[0].program.launches)
    assert close(outputs(grouped), plain[1])


def test_what_cannot_be_one_group_stays_apart_and_is_told(mlp, tmp_path) -> None:
    table = tmp_path / "t.txt"
    table.write_text("channel_norm gemm = 1")
    with pytest.warns(
        UnusedOptionWarning,
        match="1 group of the table stay single ops: channel_norm.gemm: channel_norm leads no group",
    ):
        compiled = tx8fast.compile(mlp, dtype="bf16", opt=1, group_table=str(table))
    plain = tx8fast.compile(mlp, dtype="bf16", opt=1)
    assert kinds(compiled) == kinds(plain) and compiled.simulate().cycles == plain.simulate().cycles


@pytest.mark.parametrize(
    "table", ["rmsnorm gemm = 1\nswiglu gemm = 2", "gemm * = 1\nsoftmax contract = 3", "rope contract OR gemm rope = 2\nadd rmsnorm = 4",
              "gemm swiglu gemm add rmsnorm = 9\ncontract softmax = 5"],
)  # fmt: skip
def test_any_table_gives_a_right_program(llama, plain, tmp_path, table: str) -> None:
    path = tmp_path / "t.txt"
    path.write_text(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedOptionWarning)
        compiled = tx8fast.compile(llama, opt=1, group_table=str(path), **SEQ)
    assert close(outputs(compiled), plain[1])


@pytest.mark.parametrize("opt", [1, 2, 3])
def test_a_group_that_does_not_fit_is_told_at_every_level(tmp_path, opt: int) -> None:
    """The weights of a block of channels with all columns of the kernel fill a small scratchpad."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "wide", pads=[0, 13, 0, 13]),
        helper.make_node("AveragePool", ["z"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["h", "p"], ["y"]),
    ]
    w = np.zeros((65, 130, 1, 27), np.float32)
    shapes, out = {"x": (20, 130, 8, 2), "z": (20, 65, 16, 4)}, {"y": (20, 65, 8, 2)}
    path = write_onnx(tmp_path / "m.onnx", nodes, shapes, out, {"w": w})
    options = CompileOptions(opt=opt, group_table="1", dtype="fp16")
    with pytest.raises(InfeasibleError, match="wide"):
        compile_ir(open_model(path), load_machine("tx8", {"tile.spm_bytes": 180_224}), options)


def test_the_command_line_takes_a_table(mlp, activated, tmp_path, capsys) -> None:
    call = Caller(capsys)
    found = call("compile", activated, "--stop-after", "search", "--opt", "1", "--group-table", "1")
    assert found.code == 0 and "gemm+gelu" in found.out
    bad = call("compile", mlp, "-o", tmp_path / "m.tx8", "--group-table", tmp_path / "none.txt")
    assert bad.code == 2 and "reading pattern table" in bad.err and not (tmp_path / "m.tx8").exists()
    with pytest.raises(ConfigError, match="group_table is 1, expected"):
        tx8fast.compile(mlp, group_table=1)
    with pytest.raises(ConfigError, match="unknown op kind 'foo'"):
        (tmp_path / "foo.txt").write_text("foo = 1")
        tx8fast.compile(mlp, group_table=str(tmp_path / "foo.txt"))
