"""An option that is given works, is told on stderr to change nothing, or is refused: never silently ignored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, refused

HF = ("--seq", "4")
DECODE = ("--phase", "decode", "--past", "8")
KEPT = "OUT"  # stands for -o and a file

TOLD = [
    # model, options, the options that are told, and why
    ("mlp", ("--stop-after", "import", "--dtype", "bf16"), ["--dtype"], "--stop-after import ends before the passes"),
    ("mlp", ("--stop-after", "import", "--io-dtype", "bf16"), ["--io-dtype"], "ends before the passes"),
    ("mlp", ("--stop-after", "import", "--group-table", "1"), ["--group-table"], "ends before the passes"),
    ("mlp", ("--stop-after", "import", "--machine", "tx8"), ["--machine"], "ends before the search"),
    ("mlp", ("--stop-after", "passes", "--machine", "tx8"), ["--machine"], "ends before the search"),
    ("mlp", ("--stop-after", "passes", "--dtype", "bf16"), [], ""),
    ("mlp", ("--stop-after", "passes", "--only", "a", "--opt", "3"), ["--only", "--opt"], "ends before the search"),
    ("mlp", ("--stop-after", "import", "--embed-limit-mib", "1"), ["--embed-limit-mib"], "ends before the program"),
    ("mlp", ("--save-plans", "PLANS", "--embed-limit-mib", "1"), ["--embed-limit-mib"], "no program is written; -o OUT.tx8 writes one"),
    ("mlp", ("--dot", "PLANS", "--embed-limit-mib", "1"), ["--embed-limit-mib"], "no program is written"),
    ("mlp", ("--stop-after", "program", "--embed-limit-mib", "1"), ["--embed-limit-mib"], "no program is written"),
    ("mlp", (KEPT, "--save-plans", "PLANS", "--embed-limit-mib", "1"), [], ""),
    ("mlp", (KEPT, "--opt", "1", "--search-seconds", "1"), ["--search-seconds"], "this is --opt 1"),
    ("mlp", (KEPT, "--constants", "EMPTY"), ["--constants"], "holds no arrays"),
    ("mlp", (KEPT, "--phase", "decode"), ["phase"], "no dimension of the model takes it"),
    ("mlp", (KEPT, "--past", "3", "--batch", "2"), ["past, batch"], "no dimension of the model takes it"),
    ("hf", (KEPT, *HF, "--tp", "1"), ["tp 1"], "a layer that nothing shares is whole anyway"),
    ("mlp", (KEPT, "--tp", "1"), ["tp 1"], "a layer that nothing shares is whole anyway"),
    ("hf", (KEPT, *DECODE, "--seq", "1"), ["seq"], "a decode step takes one token"),
    ("hf", (KEPT, *HF), [], ""),
    ("hf", (KEPT, *DECODE), [], ""),
    ("vit", ("--stop-after", "import", "--seq", "4"), ["seq"], "the size of an image or sound makes the positions"),
]  # fmt: skip
REFUSED = [
    ("hf", (*HF, "--past", "8"), "past is given but phase is prefill"),
    ("hf", (*DECODE, "--seq", "4"), "decode handles one token per step; drop --seq"),
    ("hf", (*HF, "--dim", "n=3"), "dims (n) cannot be bound"),
    ("hf", (*HF, "--constants", "ONE"), "constants (n) cannot be bound"),
    ("mlp", ("--dim", "n=3"), "dimensions n are not in the model"),
    ("mlp", ("--constants", "ONE"), "n are not graph inputs"),
    ("mlp", ("--tp", "5"), "no size of a weight of a product divides by 5"),
    ("mlp", ("--phase", "prefill", "--past", "8"), "past is for decode"),
    ("mlp", ("--stop-after", "import", "-o", "PLANS"), "--stop-after import makes no program; drop -o"),
    ("mlp", ("--stop-after", "passes", "--dot", "PLANS"), "--stop-after passes makes no plans; drop --dot"),
    ("mlp", ("--show", "groups", "-o", "PLANS"), "--show prints what the search knows"),
]  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "hf").mkdir()
    make_checkpoint(folder / "hf", layers=1, dtype="bfloat16")
    (folder / "vit").mkdir()
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 96}
    (folder / "vit" / "config.json").write_text(json.dumps({"model_type": "vit", **sizes}))
    return {name: folder / name for name in ("hf", "vit")}


def _command(models: dict[str, Path], mlp: Path, tmp_path: Path, model: str, options: tuple[str, ...]) -> list[object]:
    np.savez(tmp_path / "empty.npz")
    np.savez(tmp_path / "one.npz", n=np.zeros(3))
    files = {"PLANS": [tmp_path / "plans"], "EMPTY": [tmp_path / "empty.npz"], "ONE": [tmp_path / "one.npz"],
             KEPT: ["-o", tmp_path / "out.tx8"]}  # fmt: skip
    return ["compile", models.get(model, mlp), *(a for text in options for a in files.get(text, [text]))]


@pytest.mark.parametrize(("model", "options", "named", "why"), TOLD)
def test_options_that_change_nothing_are_told(tx8: Caller, tmp_path, mlp, models, model, options, named, why) -> None:
    done = tx8(*_command(models, mlp, tmp_path, model, options))
    assert done.code == 0, done.err
    told = [line for line in done.err.splitlines() if not line.startswith("kernel core: ")]
    assert [line.partition(" has no effect")[0] for line in told] == [f"warning: {n}" for n in named]
    assert all(why in line for line in told)


@pytest.mark.parametrize(("model", "options", "says"), REFUSED)
def test_options_that_contradict_are_refused(tx8: Caller, tmp_path, mlp, models, model, options, says) -> None:
    args = _command(models, mlp, tmp_path, model, options)
    if not {"-o", "--stop-after"} & set(options):
        args += ["-o", tmp_path / "out.tx8"]
    refused(tx8, tmp_path, *args, says=(says,))


def test_a_pass_without_a_name_is_told(tx8: Caller, tmp_path, mlp) -> None:
    text = tx8("compile", mlp, "--stop-after", "import").out
    (tmp_path / "g.mlir").write_text(text)
    done = tx8("opt", tmp_path / "g.mlir", "--pass", "")
    assert (done.code, done.err) == (0, "warning: --pass has no effect: it names no pass\n")
    assert tx8("opt", tmp_path / "g.mlir", "--pass", "canonicalize").err == ""


@pytest.mark.parametrize(("options", "named"), [
    (("-j", "1"), ["--jobs"]), (("--resume", "--no-cache"), ["--cache", "--resume"]), (("--cache-dir", "X"), ["--cache-dir"]), ((), []),
])  # fmt: skip
def test_a_dry_run_of_a_batch_needs_no_more(tx8: Caller, tmp_path, mlp, options, named) -> None:
    (tmp_path / "m.toml").write_text(f'schema = 1\n[[model]]\nid = "a"\nsource = "{mlp}"\n')
    done = tx8("batch", tmp_path / "m.toml", "--dry-run", *options)
    assert done.code == 0, done.err
    assert [line.partition(" has")[0] for line in done.err.splitlines()] == [f"warning: {n}" for n in named]
