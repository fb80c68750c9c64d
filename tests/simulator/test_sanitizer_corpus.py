"""Compiled programs are free of faults: single ops, groups, attention, exported models, the demonstration model."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tx8fast
from tests.simulator.planting import feed_of, findings
from tests.support.cli_case import Caller
from tests.support.one_op import Arg, build, one_op, random_plan, with_plan
from tests.support.thorough import THOROUGH
from tx8fast.demo_model import SMALL, write_checkpoint

MODELS = sorted((Path(__file__).parent.parent / "data" / "onnx").glob("*.onnx"))
X, F = Arg((3, 33, 77), "bf16"), Arg((33, 77))
IMAGE = Arg((1, 12, 12, 40), "bf16")
WINDOW = dict(stride=(2, 2), dilation=(1, 1), pad_lo=(1, 1), pad_hi=(1, 1))
CASES = {
    "gemm": lambda: one_op("gemm", Arg((65, 96), "bf16"), Arg((96, 130), "bf16"), Arg((130,), "bf16")),
    "gemm blocked": lambda: one_op("gemm", Arg((65, 100), "bf16", "blocked"), Arg((100, 70), "bf16", "blocked"), out="blocked"),
    "batched gemm": lambda: one_op("gemm", Arg((3, 33, 70)), Arg((3, 70, 20))),
    "conv": lambda: one_op("conv", IMAGE, Arg((3, 3, 24, 40), "bf16"), **WINDOW),
    "depthwise": lambda: one_op("conv", IMAGE, Arg((3, 3, 40, 1), "bf16"), groups=40, **WINDOW),
    "max_pool": lambda: one_op("max_pool", IMAGE, kernel=(3, 3), **WINDOW),
    "avg_pool": lambda: one_op("avg_pool", IMAGE, kernel=(3, 3), **WINDOW),
    "softmax": lambda: one_op("softmax", X, Arg((33, 77), "bf16")),
    "layernorm": lambda: one_op("layernorm", X, Arg((77,), "bf16"), Arg((77,), "bf16")),
    "rmsnorm": lambda: one_op("rmsnorm", F, Arg((77,))),
    "batchnorm": lambda: one_op("batchnorm_inference", F, *[Arg((77,), lo=0.5)] * 4),
    "add": lambda: one_op("add", X, Arg((77,), "bf16")),
    "add blocked": lambda: one_op("add", Arg((33, 77), layout="blocked"), Arg((33, 77)), out="blocked"),
    "sub mixed": lambda: one_op("sub", Arg((33, 77), layout="blocked"), Arg((33, 77)), out="dense"),
    "compare": lambda: one_op("lt", F, F),
    "select": lambda: one_op("select", Arg((33, 77), "pred"), F, F),
    "gelu": lambda: one_op("gelu", X),
    "silu": lambda: one_op("silu", X),
    "erf": lambda: one_op("erf", F),
    "clamp": lambda: one_op("clamp", X, lo=-0.5, hi=0.5),
    "swiglu": lambda: one_op("swiglu", X, X),
    "reduce": lambda: one_op("reduce", F, op="max", axes=(1,)),
    "reduce rows": lambda: one_op("reduce", F, op="add", axes=(0,)),
    "transpose": lambda: one_op("transpose", X, perm=(2, 0, 1)),
    "concat": lambda: one_op("concat", X, Arg((3, 33, 20), "bf16"), axis=-1),
    "slice": lambda: one_op("slice", F, start=(1, 3), size=(16, 30), step=(2, 2)),
    "pad": lambda: one_op("pad", F, lo=(1, 2), hi=(0, 3)),
    "broadcast": lambda: one_op("broadcast", Arg((1, 77)), shape=(33, 77)),
    "convert": lambda: one_op("convert", F, dtype="bf16"),
    "cumsum": lambda: one_op("cumsum", F, axis=1),
    "topk": lambda: one_op("topk", F, k=4),
    "gather": lambda: one_op("gather", F, Arg((9,), "i64", lo=0, hi=32)),
    "rope": lambda: one_op("rope", Arg((33, 128), "bf16"), Arg((33, 64), "bf16"), Arg((33, 64), "bf16"), heads=2),
    "kv_update": lambda: one_op("kv_update", Arg((64, 128), "bf16"), Arg((1, 128), "bf16"), Arg((1,), "i64", lo=5, hi=5)),
    "shared gemm": lambda: one_op("gemm", Arg((256, 1024), "bf16"), Arg((1024, 512), "bf16"), machine="test_2x2"),
    "shared gemm, 16 tiles": lambda: one_op("gemm", Arg((512, 512), "bf16"), Arg((512, 512), "bf16")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow(but_every=5)
def test_single_ops(name: str) -> None:
    assert not findings(CASES[name]().program)


@pytest.mark.parametrize("seed", range(12))
def test_any_cut_of_a_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = one_op("gemm", Arg((96, 160), "bf16"), Arg((160, 192), "bf16"), machine="test_2x2")
    plan = random_plan(case, rng)
    if plan is not None:
        assert not findings(with_plan(case, plan).program), plan


def test_attention() -> None:
    case = build(
        [Arg((2, 64, 64), "bf16"), Arg((2, 96, 64), "bf16"), Arg((2, 96, 64), "bf16"), Arg((64, 96), "bf16")],
        lambda b, q, k, v, m: b("contract", b("softmax", b("contract", q, k, equation="h s d, h t d -> h s t"), m, scale=0.125), v,
                                equation="h s t, h t d -> h s d"),
    )  # fmt: skip
    assert not findings(case.program)


def test_fused_products() -> None:
    case = build(
        [Arg((128, 256), "bf16"), Arg((256, 512), "bf16"), Arg((256, 512), "bf16"), Arg((512, 256), "bf16")],
        lambda b, x, g, u, d: b("add", b("gemm", b("swiglu", b("gemm", x, g), b("gemm", x, u)), d), x),
    )  # fmt: skip
    assert not findings(case.program)


@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
@pytest.mark.slow(but_every=5)
def test_exported_models(model: Path, opt: int) -> None:
    if not THOROUGH and MODELS.index(model) % 2 + 1 != opt:
        pytest.skip("every second model at this level; all with TX8FAST_ALL_MODELS=1")
    assert not findings(tx8fast.compile(model, opt=opt).program)


@cache
def small_model(directory: Path) -> Path:
    write_checkpoint(directory, SMALL)
    return directory


@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.slow
def test_demonstration_model(tmp_path_factory: pytest.TempPathFactory, phase: str, opt: int) -> None:
    size = {"seq": 64} if phase == "prefill" else {"past": 64}
    directory = small_model(tmp_path_factory.getbasetemp() / "small")
    compiled = tx8fast.compile(directory, phase=phase, opt=opt, **size)
    compiled.run(feed_of(compiled.program), sanitize=True)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`run --sanitize` writes results of a clean program; a fault is exit code 2 and leaves nothing behind."""
    tx8 = Caller(capsys)
    case = CASES["gemm"]()
    program, outputs = tmp_path / "p.tx8", tmp_path / "out.npz"
    tx8fast.api.CompiledProgram(case.program).save(program)
    np.savez(tmp_path / "in.npz", **{n: a.astype(np.float32) for n, a in feed_of(case.program).items()})
    args = ("run", program, "--inputs", tmp_path / "in.npz", "--outputs", outputs)
    assert tx8(*args, "--sanitize").code == 0 and outputs.exists()
    outputs.unlink()
    for code in case.program.segments[0].codes:
        code["worker"][code["opcode"] == 0x301] = 1
    tx8fast.api.CompiledProgram(case.program).save(program)
    found = tx8(*args, "--sanitize")
    assert found.code == 2 and not outputs.exists() and "Traceback" not in found.err
    assert found.err.startswith(
        "error: sanitizer: 1 kind of faults\n  - unsynchronised workers: launch 'gemm', segment 'gemm', tile 0"
    )
    assert tx8(*args).code == 0
