"""DETR: configs and tensor names of its backbones, sizes of images, heads; outputs are compared in test_hf_parts."""

import json
import re

import numpy as np
import pytest

from tests.support.checkpoints import write_weights
from tests.support.published_models import CONFIGS
from tests.support.recorded_families import weights_of
from tests.support.recorded_parts import BATCH, config_of, inputs_of, make_part
from tests.support.run_graph import run_graph
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import parse_config

PUBLISHED = next(p for p in CONFIGS if p.stem == "detr-resnet-50")
#: the library's names of a ResNet's modules -> timm's
TIMM = (
    (r"embedder\.embedder\.convolution", "conv1"),
    (r"embedder\.embedder\.normalization", "bn1"),
    (r"encoder\.stages\.(\d)\.layers\.", lambda m: f"layer{int(m[1]) + 1}."),
    (r"\.layer\.(\d)\.convolution", lambda m: f".conv{int(m[1]) + 1}"),
    (r"\.layer\.(\d)\.normalization", lambda m: f".bn{int(m[1]) + 1}"),
    (r"shortcut\.convolution", "downsample.0"),
    (r"shortcut\.normalization", "downsample.1"),
)


def as_timm(name):
    if "conv_encoder" in name:
        for pattern, new in TIMM:
            name = re.sub(pattern, new, name)
    return name


def stored(path, **options):
    """Return names and shapes of the tensors that a model reads."""
    table = import_hf(path, HfOptions(**options)).weights
    return {k: list(w.shape) for k, w in table.items() if not k.startswith("%")}


def config_at(directory, **changes):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**json.loads(PUBLISHED.read_text()), **changes}))
    return directory / "config.json"


def test_the_names_are_those_of_the_published_checkpoint():
    found = stored(PUBLISHED)
    net = "model.backbone.conv_encoder.model."
    wanted = {net + "conv1.weight": [64, 3, 7, 7], net + "bn1.running_var": [64], net + "layer1.0.conv1.weight": [64, 64, 1, 1],
              net + "layer1.0.downsample.0.weight": [256, 64, 1, 1], net + "layer1.0.downsample.1.running_mean": [256],
              net + "layer3.5.conv2.weight": [256, 256, 3, 3], net + "layer4.2.bn3.bias": [2048],
              "model.input_projection.weight": [256, 2048, 1, 1], "model.query_position_embeddings.weight": [100, 256],
              "model.encoder.layers.5.self_attn.out_proj.bias": [256], "model.encoder.layers.0.fc1.weight": [2048, 256],
              "model.decoder.layers.5.encoder_attn.q_proj.weight": [256, 256], "model.decoder.layernorm.bias": [256],
              "model.decoder.layers.0.encoder_attn_layer_norm.weight": [256],
              "class_labels_classifier.weight": [92, 256], "bbox_predictor.layers.2.weight": [4, 256]}  # fmt: skip
    assert {k: found.get(k) for k in wanted} == wanted
    # 53 convolutions with norms of four vectors each, 6 layers of 16 and 26 tensors
    assert len(found) == 53 * 5 + 2 + 6 * (16 + 26) + 1 + 2 + 2 + 6
    assert net + "layer1.1.downsample.0.weight" not in found


def test_tensors_named_by_timm_give_the_same_numbers(tmp_path):
    """A ResNet-18 under both names."""
    inner = {"model_type": "resnet", "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
    small = {k: v for k, v in config_of("detr").items() if k not in ("backbone_config", "use_timm_backbone")}
    ours, theirs = tmp_path / "library", tmp_path / "timm"
    for at, config in (
        (ours, {"use_timm_backbone": False, "backbone_config": inner}),
        (theirs, {"backbone": "resnet18.tv_in1k"}),
    ):
        at.mkdir()
        (at / "config.json").write_text(json.dumps({**small, **config}))
    shapes = stored(ours)
    assert sorted(map(as_timm, shapes)) == sorted(stored(theirs))
    weights = weights_of("detr", list(shapes.items()))
    write_weights(ours, weights)
    write_weights(theirs, {as_timm(k): v for k, v in weights.items()})
    feed = inputs_of("detr")
    one, other = (run_graph(import_hf(at, HfOptions(batch=BATCH)), feed) for at in (ours, theirs))
    assert one.keys() == {"last_hidden_state", "encoder_last_hidden_state", "logits", "pred_boxes"}
    assert all(np.array_equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("narrow", ["resnet50", "resnet101"])
def test_resnets_of_both_libraries_have_the_same_tensors(tmp_path, narrow):
    depths = {"resnet50": [3, 4, 6, 3], "resnet101": [3, 4, 23, 3]}[narrow]
    library = config_at(tmp_path / "library", backbone=None, use_timm_backbone=False,
                        backbone_config={"model_type": "resnet", "depths": depths, "out_features": ["stage4"]})  # fmt: skip
    timm = config_at(tmp_path / "timm", backbone=narrow)
    newer = config_at(tmp_path / "newer", backbone=None, backbone_config={
        "model_type": "timm_backbone", "backbone": narrow, "out_indices": [1, 2, 3, 4], "num_channels": 3})  # fmt: skip
    assert {as_timm(k): v for k, v in stored(library).items()} == stored(timm) == stored(newer)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dilation": True}, "'dilation' is True, supported: False"),
        ({"auxiliary_loss": True}, "'auxiliary_loss' is True, supported: False"),
        ({"position_embedding_type": "learned"}, "'position_embedding_type' is 'learned', supported: 'sine'"),
        ({"backbone": "resnet50d"}, "'backbone' is 'resnet50d', required: one of resnet18, "),
        ({"backbone_kwargs": {"output_stride": 16}}, "'output_stride' is 16, supported: 32"),
        ({"backbone_kwargs": {"out_indices": [1, 2]}}, "'out_indices' is .*, supported: lists that end with 4"),
        ({"backbone_kwargs": 3}, "'backbone_kwargs' is 3, required: an object"),
        ({"backbone": "microsoft/resnet-50", "use_timm_backbone": False}, "'backbone' is 'microsoft/resnet-50'"),
        ({"backbone_config": {"model_type": "swin"}}, "'model_type' is 'swin', supported: 'resnet'"),
        ({"backbone_config": {"model_type": "resnet", "hidden_act": "silu"}}, "backbone_config: key 'hidden_act' is 'silu'"),
        ({"backbone_config": {"model_type": "resnet", "out_features": ["stage3"]}}, "lists that end with 'stage4'"),
        ({"backbone_config": {"model_type": "resnet", "depths": [1, 2]}}, "hidden_sizes are of 4 stages, depths of 2"),
        ({"backbone_config": {"model_type": "resnet", "hidden_sizes": [6, 8], "depths": [1, 2]}}, "multiples of 4"),
        ({"decoder_layers": 10**6}, "'decoder_layers' is 1000000, required: a whole number from 1 to 10,000"),
        ({"backbone_config": {"model_type": "resnet", "depths": [1, 1, 1, 10**6]}}, "'depths' is .*, required: a list of whole numbers"),
        ({"decoder_attention_heads": 3}, "d_model 256 is not a multiple of decoder_attention_heads 3"),
        ({"d_model": 30, "encoder_attention_heads": 5, "decoder_attention_heads": 5}, "take a multiple of 4"),
    ],
)  # fmt: skip
def test_what_would_change_the_numbers_is_refused(changes, message):
    with pytest.raises(ImportModelError, match=message):
        parse_config({**json.loads(PUBLISHED.read_text()), **changes}, "config.json")


def test_images_have_any_size_and_a_usual_one():
    def sizes(**dims):
        args = import_hf(PUBLISHED, HfOptions(batch=2, dims=dims)).main.regions[0].blocks[0].args
        return [list(a.shape) for a in args]

    assert sizes() == [[2, 3, 800, 1066]]
    assert sizes(height=480, width=333) == [[2, 3, 480, 333]]


def test_a_bare_model_has_no_heads(tmp_path):
    found = stored(config_at(tmp_path, architectures=["DetrModel"]))
    assert not [k for k in found if "classifier" in k or "predictor" in k]


def test_detection_of_a_model_that_makes_masks(tmp_path):
    """DetrForSegmentation holds one that detects, heads and all, under a name of its own."""
    record = make_part(tmp_path, "detr")
    assert record is not None
    shapes = json.loads(str(record["shapes"]))
    weights = {"detr." + k: v for k, v in weights_of("detr", shapes).items()}
    write_weights(tmp_path, {**weights, "mask_head.conv1.conv.weight": np.zeros((4, 4, 3, 3), np.float32)})
    program = import_hf(tmp_path, HfOptions(batch=BATCH))
    assert not program.weights.missing()
    found = run_graph(program, inputs_of("detr"))
    for name in ("logits", "pred_boxes"):
        assert np.abs(found[name] - record[name]).max() <= 2e-6 * np.abs(record[name]).max()
