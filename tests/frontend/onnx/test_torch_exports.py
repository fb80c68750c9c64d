"""Models as torch exports them today: tiny transformers of random weights, against onnxruntime. Skipped without torch."""

from __future__ import annotations

import numpy as np
import pytest

import tx8fast
from tests.support.exports import DECODERS, MIXTURES, PADDED
from tx8fast.frontend import open_model
from tx8fast.passes.pipeline import graph_passes, run_pipeline

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")

SIZES = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
#: at most this many launches: idioms that are not recognised show up here
LAUNCHES = {"llama": 40, "gemma2": 60, "gpt_neox": 60, "phi3": 65, "olmo2": 55}


def export(path, model, run, inputs, output, opset, dynamo=True):
    """Write what `run(model, *inputs)` computes."""

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *given):
            return run(self.model, *given)

    with torch.no_grad():
        torch.onnx.export(Whole(), tuple(inputs.values()), str(path), dynamo=dynamo, opset_version=opset, external_data=False,
                          verbose=False, input_names=[*inputs], output_names=[output])  # fmt: skip


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("family", DECODERS)
def test_prefill(family, opset, tmp_path):
    name, extra = DECODERS[family]
    torch.manual_seed(0)
    config = getattr(transformers, name + "Config")(**SIZES, **extra)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()

    path = tmp_path / "model.onnx"
    ids = torch.randint(3, 200, (1, 16))
    export(path, model, lambda m, ids: m(ids, use_cache=False).logits, {"ids": ids}, "logits", opset)
    feed = {"ids": ids.numpy()}
    (want,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    for dtype, limit in (("fp32", 1e-4), ("bf16", 2e-2)):
        program = tx8fast.compile(path, dtype=dtype)
        got = program.run(feed)["logits"]
        assert np.abs(got - want).max() <= limit * np.abs(want).max()
        assert len(program.program.launches) <= LAUNCHES[family]


@pytest.mark.parametrize("family, opset", [*((family, 20) for family in MIXTURES), ("mixtral", 23), ("gpt_oss", 23)])
def test_experts(family, opset, tmp_path):
    """Nothing gathers the weights of experts, and the numbers stay; two sequences of one family, one expert per token of another."""
    torch.manual_seed(0)
    name, sizes = MIXTURES[family]
    config = getattr(transformers, name + "Config")(**{**SIZES, "num_experts_per_tok": 2, **sizes})
    kind = getattr(transformers, name + "ForCausalLM")
    model = kind._from_config(config, experts_implementation="batched_mm").eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)

    path = tmp_path / "model.onnx"
    ids = torch.randint(3, 200, (2 if family == "olmoe" else 1, 11))
    export(path, model, lambda m, ids: m(ids, use_cache=False).logits, {"ids": ids}, "logits", opset)
    feed = {"ids": ids.numpy()}
    (want,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    for opt in (1, 2, 3) if family == "mixtral" else (2,):
        program = tx8fast.compile(path, dtype="fp32", opt=opt)
        assert np.abs(program.run(feed)["logits"] - want).max() <= 2e-6 * np.abs(want).max()
    graph = open_model(path)
    run_pipeline(graph, graph_passes("keep"))
    assert not [op for op in graph.module.walk() if op.kind == "gather_nd"]


@pytest.mark.parametrize("dynamo, opset", [(True, 20), (False, 17)])
@pytest.mark.parametrize("family", PADDED)
def test_padded(family, dynamo, opset, tmp_path):
    """Items of other lengths: the numbers stay, and nothing but indices is left to the kernel core."""
    if family == "t5.encoder" and dynamo:
        pytest.skip("torch does not export it")
    name, changes = PADDED[family]
    torch.manual_seed(0)
    config = getattr(transformers, name.removesuffix("Encoder") + "Config")(
        **{**SIZES, "cls_token_id": 1, "sep_token_id": 2, **changes}
    )
    config.use_cache = False
    model = getattr(transformers, name + "Model")(config).eval()

    path = tmp_path / "model.onnx"
    ids, mask = torch.randint(3, 200, (3, 40)), (torch.arange(40) < torch.tensor([[17], [40], [30]])).long()
    run = lambda m, ids, mask: m(input_ids=ids, attention_mask=mask)[0]  # noqa: E731
    export(path, model, run, {"ids": ids, "mask": mask}, "y", opset, dynamo)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {i.name: {"ids": ids, "mask": mask}[i.name].numpy() for i in session.get_inputs()}
    (want,) = session.run(None, feed)
    program = tx8fast.compile(path, dtype="fp32")
    assert np.abs(program.run(feed)["y"] - want).max() <= 2e-6 * np.abs(want).max()
    graph = open_model(path)
    run_pipeline(graph, graph_passes("keep"))
    left = {op.kind for op in graph.module.walk()}
    assert not left & {"isnan", "and", "gather_nd"}


def _sam():
    vision = {"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 40, "patch_size": 4,
              "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 64, "num_pos_feats": 8}  # fmt: skip
    prompts = {"hidden_size": 16, "image_size": 40, "patch_size": 4, "mask_input_channels": 4}
    masks = {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }
    config = transformers.SamConfig(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=masks)
    return transformers.SamModel(config)


def _sam_encoder():
    model = _sam()
    return model, lambda pixels: model.get_image_embeddings(pixels), (torch.randn(1, 3, 40, 40),)


def _sam_decoder():
    model = _sam()

    def masks(image, points, labels):
        found = model(image_embeddings=image, input_points=points, input_labels=labels)
        return found.iou_scores, found.pred_masks

    return (
        model,
        masks,
        (torch.randn(1, 16, 10, 10), torch.rand(1, 1, 2, 2) * 40, torch.ones(1, 1, 2, dtype=torch.int64)),
    )


def _detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    sides = {
        f"{side}_{k}": n
        for side in ("encoder", "decoder")
        for k, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
    }
    config = transformers.DetrConfig(backbone_config=backbone, d_model=32, num_queries=7, num_labels=5, **sides)
    model = transformers.DetrForObjectDetection(config)

    def boxes(pixels):
        found = model(pixels)
        return found.logits, found.pred_boxes

    return model, boxes, (torch.randn(1, 3, 64, 96),)


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("make", [_sam_encoder, _sam_decoder, _detr], ids=lambda f: f.__name__[1:])
def test_images(make, opset, tmp_path):
    torch.manual_seed(0)
    model, run, inputs = make()
    model.eval()
    for parameter in model.parameters():
        if not parameter.abs().sum():  # what training begins with at zero
            torch.nn.init.normal_(parameter, std=0.3)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *given):
            return run(*given)

    path = tmp_path / "model.onnx"
    with torch.no_grad():
        torch.onnx.export(
            Whole(), inputs, str(path), dynamo=True, opset_version=opset, external_data=False, verbose=False
        )
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {given.name: x.numpy() for given, x in zip(session.get_inputs(), inputs, strict=True)}
    found = tx8fast.compile(path, dtype="fp32").run(feed)
    for result, want in zip(session.get_outputs(), session.run(None, feed), strict=True):
        assert np.abs(found[result.name] - want).max() <= 2e-5 * np.abs(want).max()
