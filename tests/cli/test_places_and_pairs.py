"""Where files may go, options that exclude each other, and inputs of programs for several lengths."""

from __future__ import annotations

import numpy as np

from tests.support.cli_case import compile_args, refused, tree, write_mlp

SEQ = ("--seq", "8")


def test_a_file_of_the_model_is_not_written_over(tx8, tmp_path, checkpoint):
    before = tree(checkpoint)
    refused(
        tx8, tmp_path, "compile", checkpoint, "-o", checkpoint / "config.json", *SEQ, says=("belongs to the model",)
    )
    assert tree(checkpoint) == before


def test_names_that_are_too_long(tx8, tmp_path, mlp, program):
    long = tmp_path / ("n" * 300)
    refused(tx8, tmp_path, "compile", mlp, "-o", long, says=("File name too long",))
    refused(tx8, tmp_path, "check", long, says=("File name too long",))
    refused(tx8, tmp_path, "sim", long, says=("File name too long",))


def test_outputs_that_exclude_each_other(tx8, tmp_path, program):
    refused(tx8, tmp_path, "inspect", program, "--code", "0", "--streams", says=("--code", "--streams"))


def test_a_pattern_table_without_patterns(tx8, tmp_path, mlp):
    table = tmp_path / "table.txt"
    table.write_text("# nothing yet\n")
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--group-table", table), says=("no pattern",))


def test_inputs_of_other_sizes_are_told_as_they_were_given(tx8, tmp_path):
    model = write_mlp(tmp_path / "m.onnx", ("n", 32))
    assert tx8("compile", model, "--dim", "n=8,16", "-o", tmp_path / "m.tx8").code == 0
    np.savez(tmp_path / "in.npz", x=np.ones((3, 31), np.float32))
    args = ("run", tmp_path / "m.tx8", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    refused(tx8, tmp_path, *args, says=("[3, 31]", "required [3, 32]"))


def test_a_warning_is_told_once(tx8, tmp_path, mlp):
    found = tx8("compile", mlp, "--seq", "8,16", "-o", tmp_path / "m.tx8")
    assert found.code == 2 and found.err.count("warning: ") == 1


def test_an_npz_file_with_another_magic_number(tx8, tmp_path, mlp):
    np.savez(tmp_path / "in.npz", x=np.ones((8, 32), np.float32))
    data = bytearray((tmp_path / "in.npz").read_bytes())
    data[0] ^= 0xFF
    (tmp_path / "in.npz").write_bytes(data)
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--constants", tmp_path / "in.npz"), says=("in.npz", "damaged"))
