"""What a manifest may say, what comes of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tx8fast.batch.manifest import MATRIX, SINGLE, read_manifest
from tx8fast.errors import ConfigError
from tx8fast.options import CompileOptions

HEAD = "schema = 1\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "net.onnx").write_bytes(b"x")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    return tmp_path


def jobs(folder: Path, text: str):
    (folder / "m.toml").write_text(HEAD + text)
    return read_manifest(folder / "m.toml")


def test_lists_make_a_job_each_and_only_these_tell_names_apart(models: Path) -> None:
    found = jobs(
        models,
        '[defaults]\ndtype = "bf16"\n[[model]]\nid = "m"\nsource = "one"\nphase = ["prefill", "decode"]\nseq = [128, 512]\npast = 64\n',
    )
    assert [j.name for j in found] == ["m/prefill-s128", "m/prefill-s512", "m/decode"]
    assert [(j.options.phase, j.options.seq, j.options.past) for j in found] == [
        ("prefill", 128, None), ("prefill", 512, None), ("decode", None, 64)]  # fmt: skip
    assert {j.options.dtype for j in found} == {"bf16"}


def test_patterns_variants_and_automatic_chips(models: Path) -> None:
    found = jobs(
        models,
        '[[model]]\nsource = "*"\nchips = "auto"\n[[model.variant]]\n[[model.variant]]\nname = "slow"\nopt = 1\n',
    )
    assert [j.name for j in found] == ["net", "one", "two", "net/slow", "one/slow", "two/slow"]
    assert all(j.chips_auto for j in found) and [j.options.opt for j in found] == [2, 2, 2, 1, 1, 1]
    assert jobs(models, '[[model]]\nsource = "one"\nchips = "4x2"\ntp = 8\n')[0].options.chips == (4, 2)


def test_included_files_share_defaults_and_begin_where_they_stand(models: Path) -> None:
    (models / "sub").mkdir()
    (models / "sub" / "zoo.toml").write_text(HEAD + '[[model]]\nsource = "../two"\n')
    found = jobs(models, 'include = ["sub/zoo.toml"]\n[defaults]\nopt = 3\n[[model]]\nsource = "one"\n')
    assert [(j.name, j.options.opt) for j in found] == [("two", 3), ("one", 3)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[model]]\nsource = "none"\n', "does not exist"),
        ('[[model]]\nsource = "one"\nsequence = 3\n', "unknown option 'sequence'"),
        ('[[model]]\nsource = "one"\nseq = "3"\n', "required int"),
        ('[[model]]\nsource = "one"\nseq = true\n', "required int"),
        ('[[model]]\nsource = "one"\nseq = []\n', "empty list"),
        ('[[model]]\nsource = "one"\nseq = -1\n', "at least 1"),
        ('[[model]]\nsource = "one"\n[[model]]\nsource = "one"\n', "two jobs are named 'one'"),
        ('include = ["m.toml"]\n', "includes itself"),
        ('[[model]]\nsource = "one"\nchips = "auto"\ntp = 2\n', "drop tp"),
        ('[[model]]\nsource = "one"\nchips = "many"\n', "a grid such as"),
        ('[[model]]\nsource = "one"\nchips = "%sx1"\n' % ("9" * 5000), "a grid such as"),
        ('[[model]]\nsource = "one"\nembed_limit_mib = -1\n', "embed_limit_mib is -1, required 0 to"),
        (
            '[[model]]\nsource = "one"\nseq = {0}\nbatch = {0}\npast = {0}\n'.format([*range(1, 400)]),
            "lists make more than 100,000 jobs",
        ),
        ('include = ["a\\u0000b"]\n', "null"),
        ('include = ["loop.toml"]\n', "loop|symbolic links"),
        ("model = 3\n", "tables"),
        ('include = ["a\\u0000b"]\n', "null"),
        ('include = ["circle.toml"]\n', "circle.toml: "),
        ("a" + ".a" * 20_000 + " = 1\n", "a key of more than 64 parts"),
        ("schema = [[[[\n", "reading manifest"),
        ("", "has no"),
    ],
)
def test_refused(models: Path, text: str, says: str) -> None:
    (models / "circle.toml").symlink_to("circle.toml")
    with pytest.raises(ConfigError, match=says.replace("[", r"\[")):
        jobs(models, text)


def test_a_manifest_says_what_a_command_line_can(models: Path) -> None:
    """Every option of the compiler but those that name values or files of a search; one, whose name a model's path has, has another here."""
    found = jobs(
        models,
        '[[model]]\nsource = "one"\nlogits = ["all", "last"]\nio_dtype = "fp32"\norder = "nest"\ninput = "embeds"\n',
    )
    assert [(j.name, j.options.logits, j.options.io_dtype) for j in found] == [
        ("one/all", "all", "fp32"),
        ("one/last", "last", "fp32"),
    ]
    fields = {*CompileOptions.__dataclass_fields__} - {"constants", "only", "load_plans", "source"}
    assert {*MATRIX, *SINGLE} - {"embed_limit_mib", "source_rows"} == fields - {"embed_limit_bytes"}


def test_rows_of_an_encoder_s_result(models: Path) -> None:
    found = jobs(
        models,
        '[defaults]\nsource_rows = 9\n[[model]]\nsource = "one"\n[[model]]\nsource = "two"\nsource_rows = [4, 8]\n',
    )
    assert [(j.name, j.options.source) for j in found] == [("one", 9), ("two/rows4", 4), ("two/rows8", 8)]
    with pytest.raises(ConfigError, match="source"):
        jobs(models, '[[model]]\nsource = "one"\nsource_rows = 0\n')


def test_all_problems_are_told_at_once(models: Path) -> None:
    with pytest.raises(ConfigError) as err:
        jobs(models, '[[model]]\nsource = "none"\n[[model]]\nsource = "one"\nwhat = 1\n')
    assert "does not exist" in str(err.value) and "unknown option 'what'" in str(err.value)


def test_names_are_safe_and_stay_inside(models: Path) -> None:
    found = jobs(
        models, '[[model]]\nid = "../<b>;rm -rf $HOME/\\u0000 é"\nsource = "one"\n[[model.variant]]\nname = "../../x"\n'
    )
    assert [j.name for j in found] == ["b-rm--rf-HOME/x"]
