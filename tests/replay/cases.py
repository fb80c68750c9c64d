"""The programs that a change of the compiler is measured on: real models at several shapes, small exported ones.

A case is the name of a model and the options it is compiled with; every case is compiled at opt 1, 2 and 3 for the machine of
`machine.toml`, which belongs to this corpus and stays as it is when the default machine changes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tests.frontend.onnx.onnx_build import info, model, node
from tests.support.cnn_models import CnnBuilder, resnet50
from tests.support.model_corpus import CONFIGS

DATA = Path(__file__).resolve().parent.parent / "data"
MACHINE = Path(__file__).resolve().parent / "machine.toml"
LEVELS = (1, 2, 3)

_RMS = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "tie_word_embeddings": True}
_LLAMA_1B = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
             "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
             "rope_theta": 5e5, **_RMS}  # fmt: skip
_QWEN3 = {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
          "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
          "rope_theta": 1e6, **_RMS}  # fmt: skip
_GEMMA2 = {"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
           "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "vocab_size": 256000,
           "rope_theta": 1e4, "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0, "sliding_window": 4096,
           "final_logit_softcapping": 30.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}  # fmt: skip
_GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024,
         "activation_function": "gelu_new", "torch_dtype": "bfloat16"}  # fmt: skip
_VIT = {"model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16,
        "num_channels": 3, "torch_dtype": "bfloat16"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """write(folder) makes the model and returns its path; options: keywords of `tx8fast.compile`."""

    write: Callable[[Path], Path]
    options: dict[str, Any] = field(default_factory=dict)


def _config(config: dict[str, Any], **options: Any) -> Case:
    def write(folder: Path) -> Path:
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return Case(write, options)


def _published(name: str) -> dict[str, Any]:
    return json.loads((DATA / "configs" / f"{name}.json").read_text())


def _file(path: Path, **options: Any) -> Case:
    return Case(lambda folder: Path(shutil.copy(path, folder)), options)


def _resnet(batch: int) -> Case:
    return Case(lambda folder: resnet50(folder / "net.onnx", batch), {"dtype": "bf16"})


def _prefill(config: dict[str, Any], *lengths: int) -> dict[str, Case]:
    return {f"prefill {n}": _config(config, phase="prefill", seq=n) for n in lengths}


def mobilenet(path: Path) -> Path:
    """Write MobileNetV2 at 224 x 224, batch 8, with folded batch normalisation and constant weights."""
    b = CnnBuilder(fill=0.01)
    b.weights += [numpy_helper.from_array(np.float32(bound), f"clamp{bound}") for bound in (0, 6)]

    def clamp(x: str) -> str:
        return b.node("Clip", x, "clamp0", "clamp6")

    y, cin = clamp(b.conv("x", 3, 32, 3, 2)), 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for grow, cout, count, first in rows:
        for i in range(count):
            stride, mid = first if i == 0 else 1, cin * grow
            z = clamp(b.conv(y, cin, mid, 1)) if grow > 1 else y
            z = b.conv(clamp(b.conv(z, mid, mid, 3, stride, mid)), mid, cout, 1)
            y = b.node("Add", y, z) if stride == 1 and cin == cout else z
            cin = cout
    y = b.node("Flatten", b.node("GlobalAveragePool", clamp(b.conv(y, cin, 1280, 1))))
    y = b.node("Gemm", y, b.weight((1000, 1280), 0.02), b.weight((1000,), 0.1), transB=1)
    return b.save(path, (8, 3, 224, 224), y, (8, 1000))


def resnext(path: Path) -> Path:
    """Write a stage of ResNeXt-50 32x4d after its stem, batch 8: grouped convolutions between 1 x 1 ones."""
    b = CnnBuilder(fill=0.01)
    y, cin = b.node("Relu", b.conv("x", 3, 64, 7, 4)), 64
    for i in range(3):
        z = b.node("Relu", b.conv(y, cin, 128, 1))
        z = b.conv(b.node("Relu", b.conv(z, 128, 128, 3, 1, 32)), 128, 256, 1)
        y = b.node("Relu", b.node("Add", z, y if i else b.conv(y, cin, 256, 1)))
        cin = 256
    y = b.node("Flatten", b.node("GlobalAveragePool", y))
    return b.save(path, (8, 3, 224, 224), y, (8, 256))


def regnet(path: Path) -> Path:
    """Write stages of RegNetY-400MF without its squeeze-excitation, batch 8: groups of 8 channels, of which the last blocks have fewer."""
    b = CnnBuilder(fill=0.01)
    y, cin = b.node("Relu", b.conv("x", 3, 32, 3, 2)), 32
    for width in (48, 104, 208, 440):
        z = b.node("Relu", b.conv(y, cin, width, 1))
        z = b.conv(b.node("Relu", b.conv(z, width, width, 3, 2, width // 8)), width, width, 1)
        y, cin = b.node("Relu", b.node("Add", z, b.conv(y, cin, width, 1, 2))), width
    y = b.node("Flatten", b.node("GlobalAveragePool", y))
    return b.save(path, (8, 3, 224, 224), y, (8, 440))


def excited(path: Path) -> Path:
    """Write the first stages of EfficientNet-B0 at 224 x 224, batch 8: squeeze-and-excite blocks, the first over 112 x 112 positions."""
    b = CnnBuilder(fill=0.01)

    def silu(x: str) -> str:
        return b.node("Mul", x, b.node("Sigmoid", x))

    y, cin = silu(b.conv("x", 3, 32, 3, 2)), 32
    for grow, cout, count, first, kernel in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5)):
        for i in range(count):
            stride, mid = first if i == 0 else 1, cin * grow
            z = silu(b.conv(y, cin, mid, 1)) if grow > 1 else y
            z = silu(b.conv(z, mid, mid, kernel, stride, mid))
            gate = silu(b.conv(b.node("GlobalAveragePool", z), mid, cin // 4, 1))
            z = b.node("Mul", z, b.node("Sigmoid", b.conv(gate, cin // 4, mid, 1)))
            z = b.conv(z, mid, cout, 1)
            y = b.node("Add", y, z) if stride == 1 and cin == cout else z
            cin = cout
    y = b.node("Flatten", b.node("GlobalAveragePool", silu(b.conv(y, cin, 160, 1))))
    return b.save(path, (8, 3, 224, 224), y, (8, 160))


def planes(path: Path, batch: int) -> Path:
    """Write a block between feature maps of 96 channels that come and leave channel-first: a gate of matrix products, branches that are put
    together, and one that is enlarged."""
    b = CnnBuilder(fill=0.01)
    y = b.conv(b.node("Relu", b.conv("x", 96, 96, 3)), 96, 96, 3)
    gate = b.node("Flatten", b.node("GlobalAveragePool", y))
    for a, c, act in ((96, 24, "Relu"), (24, 96, "Sigmoid")):
        gate = b.node(act, b.node("Gemm", gate, b.weight((c, a), 0.1), b.weight((c,), 0.1), transB=1))
    y = b.node("Relu", b.node("Add", "x", b.node("Mul", y, b.node("Reshape", gate, b.constant([-1, 96, 1, 1])))))
    pool = b.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    small = b.node("Relu", b.conv(pool, 96, 48, 1))
    large = b.node("Resize", small, "", "", b.constant([batch, 48, 28, 28]), mode="nearest",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    y = b.conv(b.node("Concat", y, large, axis=1), 144, 100, 1)
    return b.save(path, (batch, 96, 28, 28), y, (batch, 100, 28, 28))


def audio(path: Path) -> Path:
    """Write what is around the layers of a wav2vec 2.0 base: windows over a second of sound, and the convolution that gives places, 16
    groups of 48 channels with 128 taps."""
    b = CnnBuilder(fill=0.01)

    def conv(x: str, cin: int, cout: int, taps: int, stride: int, pads: int = 0, groups: int = 1) -> str:
        w, bias = b.weight((cout, cin // groups, taps), 0.02), b.weight((cout,), 0.1)
        own = {"kernel_shape": [taps], "strides": [stride], "pads": [pads, pads], "group": groups}
        return b.node("Conv", x, w, bias, **own)

    y = b.node("Relu", conv("x", 1, 512, 10, 5))
    for taps in (3, 3, 3, 3, 2, 2):
        y = b.node("Relu", conv(y, 512, 512, taps, 2))
    y = conv(y, 512, 768, 1, 1)
    places = conv(y, 768, 768, 128, 1, 64, 16)
    cut = [b.constant(v) for v in ([0], [49], [2])]
    y = b.node("Add", y, b.node("Relu", b.node("Slice", places, *cut)))
    return b.save(path, (1, 1, 16000), y, (1, 768, 49))


def elementwise(path: Path) -> Path:
    """Write element-wise ops on dense inputs: no product that would have them in blocks."""
    steps = [node("Mul", "a b", "s"), node("Abs", "s", "t"), node("Greater", "t a", "m"), node("Where", "m t b", "u")]
    ins, outs = ([info(n, (512, 1024)) for n in names] for names in ("ab", "y"))
    onnx.save(model([*steps, node("Exp", "u", "y")], ins, outs), path)
    return path


def next_token(path: Path) -> Path:
    """Write what ends a language model that chooses: the first and the first 50 of the scores of 50,257 tokens."""
    steps = [
        node("MatMul", "x w", "s"),
        node("ArgMax", "s", "best", axis=-1, keepdims=0),
        node("TopK", "s k", "v i", axis=-1),
    ]
    outs = [info("best", (1,), TensorProto.INT64), info("v", (1, 50)), info("i", (1, 50), TensorProto.INT64)]
    weights = {"w": np.full((64, 50257), 0.01, np.float32), "k": np.array([50])}
    onnx.save(model(steps, [info("x", (1, 64))], outs, weights), path)
    return path


def segmenter(path: Path) -> Path:
    """Write a segmenting network of what engines have under other names: quantised activations, a border of copies, PReLU, a dilated
    pool, norms of features and shares along channels."""
    b = CnnBuilder(fill=0.01)
    b.weights += [numpy_helper.from_array(np.float32(0.02), "scale"), numpy_helper.from_array(np.uint8(128), "zero")]
    y = b.node("DequantizeLinear", b.node("QuantizeLinear", "x", "scale", "zero"), "scale", "zero")
    y = b.node("Pad", y, b.constant([0, 0, 2, 2, 0, 0, 2, 2]), mode="reflect")
    y = b.node("PRelu", b.conv(y, 3, 64, 3, 2), b.weight((64, 1, 1), 0.1))
    y = b.node("MaxPool", y, kernel_shape=[3, 3], dilations=[2, 2], pads=[2, 2, 2, 2])
    y = b.node("LpNormalization", b.node("Selu", b.conv(y, 64, 128, 3, 2)), axis=1, p=2)
    y = b.node("Softmax", b.conv(y, 128, 21, 1), axis=1)
    return b.save(path, (1, 3, 224, 224), y, (1, 21, 57, 57))


def recogniser(path: Path) -> Path:
    """Write what reads a line of text: a few convolutions, and an LSTM in both directions over their columns."""
    b = CnnBuilder(fill=0.01)
    y = b.node("Relu", b.conv("x", 1, 64, 3, 2))
    y = b.node("MaxPool", b.node("Relu", b.conv(y, 64, 128, 3, 2)), kernel_shape=[8, 1], strides=[8, 1])
    y = b.node("Transpose", b.node("Squeeze", y, b.constant([2])), perm=[2, 0, 1])
    weights = [b.weight(s, 0.1) for s in ((2, 512, 128), (2, 512, 128), (2, 1024))]
    y = b.node("LSTM", y, *weights, hidden_size=128, direction="bidirectional")
    return b.save(path, (1, 1, 32, 128), y, (32, 2, 1, 128))


def _all() -> dict[str, Case]:
    llama, qwen, bert = CONFIGS["Llama 3 8B"], CONFIGS["Qwen 2.5 7B"], CONFIGS["BERT base"]
    families = {
        "llama-3-8b": {**_prefill(llama, 2048, 512, 1000), "decode 2048": _config(llama, phase="decode", past=2048),
                       "prefill 512 tp 2": _config(llama, phase="prefill", seq=512, tp=2)},
        "llama-3.2-1b": _prefill(_LLAMA_1B, 512, 2048),
        "qwen3-0.6b": _prefill(_QWEN3, 512, 2048),
        "qwen2.5-7b": _prefill(qwen, 512, 2048),
        "gemma-2-2b": _prefill(_GEMMA2, 512, 2048),
        "qwen2.5-0.5b": {"decode 2048": _config(_published("qwen2.5-0.5b"), phase="decode", past=2048)},
        "ernie-4.5-0.3b": {"decode 2048": _config(_published("ernie-4.5-0.3b"), phase="decode", past=2048),
                           **_prefill(_published("ernie-4.5-0.3b"), 512)},
        "bert-base": {f"{seq} batch {n}": _config(bert, seq=seq, batch=n) for seq, n in ((384, 1), (128, 4), (384, 16), (384, 17))}
        | {"384 batch 8 padded": _config(bert, seq=384, batch=8, attention_mask=True)},
        "gpt2": _prefill(_GPT2, 77, 1024),
        "vit-base": {f"batch {n}": _config(_VIT, batch=n) for n in (1, 8)},
        "resnet-50": {f"batch {n}": _resnet(n) for n in (1, 7, 8, 16, 17)},
        "mobilenet-v2": {"batch 8": Case(lambda folder: mobilenet(folder / "net.onnx"), {"dtype": "bf16"})},
        "elementwise": {"dense": Case(lambda folder: elementwise(folder / "net.onnx"), {"dtype": "bf16"})},
        "regnety stages": {"batch 8": Case(lambda folder: regnet(folder / "net.onnx"), {"dtype": "bf16"})},
        "efficientnet stages": {"batch 8": Case(lambda folder: excited(folder / "net.onnx"), {"dtype": "bf16"})},
        "feature maps": {
            f"batch {n}": Case(lambda folder, n=n: planes(folder / "net.onnx", n), {"dtype": "bf16", "io_dtype": "bf16"})
            for n in (1, 16)
        },
        "wav2vec2 ends": {"a second": Case(lambda folder: audio(folder / "net.onnx"), {"dtype": "bf16"})},
        "next token": {"of 50,257": Case(lambda folder: next_token(folder / "net.onnx"), {"dtype": "bf16"})},
        "segmenter": {"batch 1": Case(lambda folder: segmenter(folder / "net.onnx"), {"dtype": "bf16"})},
        "recogniser": {"32 columns": Case(lambda folder: recogniser(folder / "net.onnx"), {"dtype": "bf16"})},
        "resnext stage": {"batch 8": Case(lambda folder: resnext(folder / "net.onnx"), {"dtype": "bf16"})},
    }  # fmt: skip
    found = {f"{model} {name}": case for model, cases in families.items() for name, case in cases.items()}
    for path in (*sorted((DATA / "onnx").glob("*.onnx")), *sorted((DATA / "stablehlo").glob("*.mlir"))):
        found[path.name] = _file(path)
    return found


CASES = _all()
#: what `make test` repeats: the small models at every level but the exact one, which depends on the solver's version
SLICE = tuple((name, opt) for name in CASES if name.endswith((".onnx", ".mlir")) for opt in (1, 2))
