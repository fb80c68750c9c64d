"""Weights in formats that are not read are refused with the command that converts them, not taken for weights that come later."""

import json
import shlex

import pytest

from tests.support.checkpoints import make_checkpoint, model_config
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf


@pytest.mark.parametrize(
    ("names", "needs"),
    [
        (["pytorch_model.bin"], "torch.load"),
        (
            ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"],
            "torch.load",
        ),
        (["consolidated.00.pth"], "convert_llama_weights_to_hf"),
        (["RWKV-4.pth"], "torch.load"),
        (["tf_model.h5"], "from_tf"),
        (["flax_model.msgpack"], "from_flax"),
    ],
)
def test_other_formats_are_refused_with_what_converts_them(tmp_path, names, needs):
    folder = tmp_path / "it's [one]"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model_config()))
    for name in names:
        (folder / name).write_bytes(b"any")
    with pytest.raises(ImportModelError, match="is not safetensors") as refusal:
        import_hf(folder, HfOptions(seq=4))
    line = next(x for x in str(refusal.value).splitlines() if x.startswith("python "))
    first, flag, code, *more = shlex.split(line)
    assert needs in line and first == "python"
    if flag == "-c":
        assert not more
        compile(code, "the command", "exec")
    # a config alone remains one whose weights come later
    import_hf(folder / "config.json", HfOptions(seq=4))


def test_a_directory_with_safetensors_beside_them_or_with_none_at_all_is_taken(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model_config()))
    (tmp_path / "training_args.bin").write_bytes(b"any")
    import_hf(tmp_path, HfOptions(seq=4))
    make_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"any")
    import_hf(tmp_path, HfOptions(seq=4))
