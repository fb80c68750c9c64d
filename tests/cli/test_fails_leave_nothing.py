"""A command that fails leaves nothing, and tells what can be known at once before it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_case import Caller


@pytest.mark.parametrize("given", [("--columns", "nope"), ("--sort", "nope")])
def test_columns_that_no_table_has_are_told_before_any_work(given, tx8: Caller, mlp: Path, tmp_path: Path, monkeypatch):
    """A batch may take hours: no model is read for an answer that can be known at once."""
    (tmp_path / "m.toml").write_text(f'schema = 1\n[[model]]\nsource = "{mlp}"\n')
    monkeypatch.setattr("tx8fast.api.compile", lambda *_, **__: pytest.fail("it compiles first"))
    for command in (("compile", mlp), ("batch", tmp_path / "m.toml"), ("bench", tmp_path / "m.toml")):
        result = tx8(*command, "-o", tmp_path / "out", *given)
        assert result.code == 2 and "there is no 'nope'" in result.err, command
        assert [p.name for p in tmp_path.iterdir()] == ["m.toml"]


def test_what_was_written_before_a_command_failed_goes(tx8: Caller, program: Path, tmp_path: Path):
    """Also directories that were made for it; what was there before stays."""
    (tmp_path / "kept").mkdir()
    assert tx8("sim", program, "--trace", tmp_path / "t.json", "--columns", "nope").code == 2
    assert tx8("emit-c", program, "-o", tmp_path / "new" / "c", "--inputs", tmp_path / "absent.npz").code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
