"""The graphs that passes are tried on: exported models, every family of checkpoints, StableHLO, a convolution network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.cnn_models import CnnBuilder
from tests.support.family_checkpoints import CONFIGS, make_family
from tests.support.small_graph import SmallGraph
from tx8fast.frontend import open_model
from tx8fast.frontend.onnx import import_onnx
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.program import IRProgram

DATA = Path(__file__).resolve().parent.parent / "data"
MODELS = (
    "bert-encode-op23", "gpt2-decode-op23", "gpt2-prefill-op20", "llama-decode-op20", "llama-decode-op23",
    "llama-prefill-op20", "llama-prefill-op23-eager", "mixtral-prefill-op20-batched_mm", "qwen2-prefill-op23",
    "qwen3-prefill-op20", "vit-encode-op20",
)  # fmt: skip


def exported(name: str) -> IRProgram:
    """One of `MODELS`, with its weights."""
    return import_onnx(DATA / "onnx" / f"{name}.onnx")


def family(directory: Path, name: str, phase: str = "prefill") -> IRProgram:
    """A tiny checkpoint of the family `name` of `CONFIGS`, with random weights."""
    if not (directory / name).exists():
        make_family(directory / name, name)
    return (
        open_model(directory / name, phase="decode", past=8)
        if phase == "decode"
        else open_model(directory / name, seq=6)
    )


def small_cnn(directory: Path) -> IRProgram:
    """Convolutions with batch normalisation and activation, pooling, a residual sum, a classifier."""
    b = CnnBuilder()

    def norm(x: str, c: int) -> str:
        stats = [b.weight((c,), 0.1, s) for s in (1.0, 0.0, 0.0)]
        return b.node("BatchNormalization", x, *stats, b.weight((c,), 0.01, 1.0))

    x = b.node("Relu", norm(b.conv("x", 3, 8, 3, stride=2), 8))
    x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Relu", b.node("Add", norm(b.conv(x, 8, 8, 3), 8), x))
    x = b.node("Mul", b.node("Conv", x, b.weight((8, 8, 1, 1), 0.3)), b.weight((8, 1, 1), 0.1, 1.0))
    x = b.node("Add", x, b.weight((8, 1, 1), 0.1))
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    out = b.node("Gemm", x, b.weight((10, 8), 0.3), b.weight((10,), 0.1), transB=1)
    return import_onnx(b.save(directory / "cnn.onnx", (2, 3, 16, 16), out, (2, 10)))


def conversions() -> IRProgram:
    """Changes of form that stand in each other's way."""
    g = SmallGraph(x=((4, 64), "f32"))
    a, b = (g("channel_norm", g.args["x"], to="align") for _ in range(2))
    vector = g("channel_norm", g("constant", value=DenseAttr(np.ones(64, np.float32))), to="align")
    return g.done(y=g("add", g("relu", g("channel_norm", a, to="compact")), vector), z=g("neg", b))


def norm_of_heads() -> IRProgram:
    """A norm of every head of a projection."""
    g = SmallGraph(x=((2, 3, 128), "f32"))
    y = g(
        "rmsnorm", g("reshape", g.args["x"], shape=(2, 3, 2, 64)), g.array("w", np.linspace(1, 2, 64, dtype=np.float32))
    )
    return g.done(y=g("relu", g("reshape", y, shape=(2, 3, 128))))


def scores_in_f16() -> IRProgram:
    """A softmax of scores that its factor takes down."""
    g = SmallGraph(q=((2, 4, 64), "f16"), k=((2, 6, 64), "f16"))
    return g.done(y=g("softmax", g("gemm", g.args["q"], g.args["k"], trans_b=True), axis=-1, scale=0.125))


def gate_of_a_product() -> IRProgram:
    """Images times what a product makes of their means."""
    g, rng = SmallGraph(x=((2, 4, 5, 8), "f32")), np.random.default_rng(2)
    mean = g("reshape", g("reduce", g.args["x"], op="mean", axes=(1, 2), keepdims=True), shape=(2, 8))
    made = g("gemm", mean, g.array("w", rng.standard_normal((8, 8)).astype(np.float32)), trans_b=True)
    return g.done(y=g("mul", g.args["x"], g("reshape", g("sigmoid", made), shape=(2, 1, 1, 8))))


def products_of_bytes() -> IRProgram:
    """A product of bytes less a zero point, whose sums are scaled."""
    g = SmallGraph(x=((3, 64), "u8"))
    w = g.array("w", np.random.default_rng(1).integers(-99, 100, (64, 32)).astype(np.int8))
    a, b = (g("convert", v, dtype="i32") for v in (g.args["x"], w))
    return g.done(
        y=g(
            "relu",
            g(
                "convert",
                g("gemm", g("sub", a, g("constant", value=DenseAttr(np.array(120, np.int32)))), b),
                dtype="f32",
            ),
        )
    )


def random_inputs(program: IRProgram, seed: int = 3) -> dict[str, np.ndarray]:
    """Values that every model of the corpus accepts: floats around 0, small indices."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(v.shape).astype(np.float32) if v.dtype[0] in "bf" else np.full(v.shape, 1)
        for name, v in zip(program.main.attrs["arg_names"], program.main.body.args, strict=True)
    }


__all__ = [
    "CONFIGS",
    "DATA",
    "MODELS",
    "conversions",
    "exported",
    "family",
    "norm_of_heads",
    "products_of_bytes",
    "random_inputs",
    "scores_in_f16",
    "small_cnn",
]
