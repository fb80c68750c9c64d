"""Whatever a user hands in: exit code 2, one message that names the thing, no traceback, nothing written."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import tomllib
import zipfile

import numpy as np
import pytest
from onnx import helper

import tx8fast
from tests.support.checkpoints import make_checkpoint, model_config, model_weights, write_weights
from tests.support.cli_case import compile_args, refused, write_mlp, write_onnx
from tx8fast.cli.npz import write_npz
from tx8fast.errors import ProgramError, SimulationError
from tx8fast.machine import load_machine

SEQ = ("--seq", "8")


# --- models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"garbage" * 40, b"\x00" * 100, b"{", b"{}", b"[]", b"\x89TX8\r\n\x1a\n"])
@pytest.mark.parametrize("name", ["m.onnx", "config.json", "m.safetensors"])
def test_files_that_are_no_model(tx8, tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    refused(tx8, tmp_path, *compile_args(path, tmp_path, *SEQ), says=(name,))


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_onnx(tx8, tmp_path, mlp, keep):
    data = mlp.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    refused(tx8, tmp_path, *compile_args(path, tmp_path), says=("cut.onnx",))


def test_missing_model_and_directory_without_one(tx8, tmp_path):
    refused(tx8, tmp_path, *compile_args(tmp_path / "none.onnx", tmp_path), says=("none.onnx", "no such file"))
    hub = ("no such file", "download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B", "network")
    refused(tx8, tmp_path, *compile_args("meta-llama/Llama-3.1-8B", tmp_path), says=hub)  # type: ignore[arg-type]
    assert "hub" not in refused(tx8, tmp_path, *compile_args("models/none.onnx", tmp_path), says=("no such file",))  # type: ignore[arg-type]
    refused(tx8, tmp_path, *compile_args(tmp_path, tmp_path), says=("config.json",))
    refused(tx8, tmp_path, "check", tmp_path / "none.onnx", says=("none.onnx",))


def test_cyclic_graph(tx8, tmp_path):
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Relu", ["a"], ["b"], "two")]
    path = write_onnx(tmp_path / "cycle.onnx", nodes, {"x": (4,)}, {"b": (4,)})
    refused(tx8, tmp_path, *compile_args(path, tmp_path), says=("one",))


def test_unsupported_operators_are_reported_together(tx8, tmp_path):
    nodes = [helper.make_node("Frob", ["x"], ["a"], "first"), helper.make_node("Nicate", ["a"], ["b"], "second")]
    path = write_onnx(tmp_path / "odd.onnx", nodes, {"x": (4,)}, {"b": (4,)})
    refused(tx8, tmp_path, "check", path, says=("Frob", "Nicate", "first", "second"))


def test_shapes_that_do_not_fit(tx8, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": (4, 5)}, {"y": (4, 3)}, {"w": np.ones((6, 3), np.float32)})
    refused(tx8, tmp_path, *compile_args(path, tmp_path), says=("product",))


def test_free_dimension_is_named_with_the_remedy(tx8, tmp_path):
    path = write_mlp(tmp_path / "free.onnx", ("rows", 32))
    refused(tx8, tmp_path, *compile_args(path, tmp_path), says=("rows", "x"))
    assert tx8(*compile_args(path, tmp_path, "--dim", "rows=8")).code == 0


def test_tensor_beyond_all_memory(tx8, tmp_path):
    path = write_mlp(tmp_path / "free.onnx", ("rows", 32))
    refused(tx8, tmp_path, *compile_args(path, tmp_path, "--dim", f"rows={1 << 40}"))


@pytest.mark.parametrize("change", [{"vocab_size": 1 << 30}, {"intermediate_size": 1 << 30}])
def test_model_beyond_the_chip_is_refused_before_the_search(tx8, tmp_path, change):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model_config(dtype="bfloat16") | change))
    refused(tx8, tmp_path, *compile_args(path, tmp_path, *SEQ), says=("DDR", "68,719,476,736"))


@pytest.mark.parametrize(("key", "value"), [("num_hidden_layers", 1 << 31), ("vocab_size", 1 << 40)])
def test_sizes_no_model_has(tx8, tmp_path, key, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model_config() | {key: value}))
    refused(tx8, tmp_path, *compile_args(path, tmp_path, *SEQ), says=(key,))


# --- checkpoints -------------------------------------------------------------------------------


def test_weight_problems_are_listed_together(tx8, tmp_path):
    config = model_config(dtype="bfloat16")
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = model_weights(config)
    del weights["model.norm.weight"]
    weights["lm_head.weight"] = weights["lm_head.weight"][:-1]
    weights["model.layers.0.self_attn.q_proj.weight"] = np.zeros((64, 64), np.int32)
    write_weights(tmp_path, weights)
    says = ("model.norm.weight", "absent", "lm_head.weight", "[127, 64]", "q_proj.weight", "i32")
    refused(tx8, tmp_path, *compile_args(tmp_path, tmp_path, *SEQ), says=says)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"model_type": "mystery"}, "mystery"), ({"model_type": None}, "model_type"), ({"hidden_size": -4}, "hidden_size"),
     ({"num_attention_heads": 5}, "num_attention_heads"), ({"hidden_size": "64"}, "hidden_size"),
     ({"rope_scaling": {"rope_type": "wild"}}, "wild"), ({"quantization_config": {"bits": 4}}, "quantization_config")],
)  # fmt: skip
def test_config_values(tx8, tmp_path, change, word):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model_config() | {"head_dim": None} | change))
    refused(tx8, tmp_path, *compile_args(path, tmp_path, *SEQ), says=(word,))


def test_truncated_safetensors(tx8, tmp_path):
    make_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    refused(tx8, tmp_path, *compile_args(tmp_path, tmp_path, *SEQ), says=("model.safetensors", "truncated"))


def test_config_alone_compiles_but_does_not_run(tx8, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model_config(dtype="bfloat16")))
    assert tx8(*compile_args(tmp_path, tmp_path, *SEQ)).code == 0
    np.savez(tmp_path / "in.npz", input_ids=np.zeros((1, 8), np.int64))
    args = ("run", tmp_path / "out.tx8", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "o.npz")
    refused(tx8, tmp_path, *args, says=("--weights DIR",))


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--phase", "prefill", "--seq", "8", "--past", "8"), "past"), (("--phase", "decode"), "--past"), ((), "--seq"),
     (("--phase", "decode", "--past", "8", "--seq", "4"), "seq"), (("--seq", "0"), "seq"), (("--seq", "-3"), "seq"),
     (("--seq", "x"), "seq"), (("--seq", "8", "--batch", "0"), "batch"), (("--seq", "8", "--dtype", "int8"), "int8"),
     (("--seq", "8", "--dtype", "fp8"), "fp8"), (("--seq", "8", "--opt", "9"), "opt"), (("--frob",), "--frob"),
     (("--seq", "8", "--phase", "training"), "training"), (("--seq", "8", "--embed-limit-mib", "-1"), "embed"),
     (("--seq", "8", "--dim", "rows"), "NAME=VALUE"), (("--seq", "8", "--dim", "rows=many"), "many"),
     (("--seq", "8", "--dim", "a=1", "--dim", "a=2"), "a"), (("--seq", "8", "--dim", "a=-1"), "a"),
     (("--seq", "8", "--dim", "a=1"), "a"), (("--seq", "8", "--stop-after", "passes"), "-o")],
)  # fmt: skip
def test_options(tx8, tmp_path, checkpoint, options, word):
    refused(tx8, tmp_path, *compile_args(checkpoint, tmp_path, *options), says=(word,))


def test_command_without_what_it_needs(tx8, tmp_path, mlp, program):
    refused(tx8, tmp_path, "compile", says=("MODEL",))
    refused(tx8, tmp_path, "compile", mlp, says=("-o",))
    refused(tx8, tmp_path, "run", program, says=("--inputs",))
    refused(tx8, tmp_path, "frobnicate", says=("frobnicate",))


def test_unknown_constant_and_dimension_of_an_onnx_model(tx8, tmp_path, mlp):
    np.savez(tmp_path / "c.npz", nobody=np.zeros(3))
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--constants", tmp_path / "c.npz"), says=("nobody",))
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--dim", "nobody=3"), says=("nobody",))


# --- machine files -----------------------------------------------------------------------------


def machine_text(**changes: object) -> str:
    """Return the standard machine as TOML with dotted keys replaced; None removes one."""
    flat: dict[str, object] = {}

    def walk(table: dict, path: str) -> None:
        for key, value in table.items():
            walk(value, f"{path}{key}.") if isinstance(value, dict) else flat.__setitem__(path + key, value)

    walk(load_machine("tx8").to_dict(), "")
    flat |= {k.replace("__", "."): v for k, v in changes.items()}
    return "".join(f"{k} = {v}\n" for k, v in flat.items() if v is not None)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"chip__clock_hz": None}, "chip.clock_hz"), ({"tile__spm_bytes": -1}, "tile.spm_bytes"), ({"chip__frob": 1}, "chip.frob"),
     ({"chip__ddr_bw": '"fast"'}, "chip.ddr_bw"), ({"chip__ddr_bw": "nan"}, "chip.ddr_bw")],
)  # fmt: skip
def test_machine_values(tx8, tmp_path, mlp, changes, word):
    path = tmp_path / "m.toml"
    path.write_text(machine_text(**changes))
    assert tomllib.loads(path.read_text())
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", path), says=(word,))


def test_machine_files(tx8, tmp_path, mlp):
    (tmp_path / "broken.toml").write_text("= [")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("broken.toml", "binary.toml", "absent.toml", "."):
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", tmp_path / name), says=("machine",))
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", "tx9"), says=("tx9", "tx8"))


# --- program files -----------------------------------------------------------------------------

READERS = (("sim",), ("inspect",), ("inspect", "--code", "0"))


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("content", [b"", b"x" * 30, b"x" * 5000])
def test_files_that_are_no_program(tx8, tmp_path, command, content):
    path = tmp_path / "p.tx8"
    path.write_bytes(content)
    refused(tx8, tmp_path, command[0], path, *command[1:], says=("p.tx8",))


@pytest.mark.parametrize("command", READERS)
def test_absent_program(tx8, tmp_path, command):
    refused(tx8, tmp_path, command[0], tmp_path / "none.tx8", *command[1:], says=("none.tx8",))
    refused(tx8, tmp_path, command[0], tmp_path, *command[1:], says=("directory",))


def test_truncated_program(tx8, tmp_path, program):
    data = program.read_bytes()
    path = tmp_path / "p.tx8"
    for keep in (60, 64, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:keep])
        refused(tx8, tmp_path, "sim", path, says=("p.tx8",))
    path.write_bytes(data + b"\0")
    refused(tx8, tmp_path, "sim", path, says=("p.tx8",))


def test_no_flipped_bit_goes_unnoticed(tx8, tmp_path, program):
    data = program.read_bytes()
    path = tmp_path / "p.tx8"
    for at in np.random.default_rng(0).integers(0, len(data), 40).tolist() + list(range(0, 64, 7)):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(bytes(changed))
        refused(tx8, tmp_path, "sim", path, says=("p.tx8",))


def test_program_of_another_version(tx8, tmp_path, program):
    data = bytearray(program.read_bytes())
    struct.pack_into("<H", data, 8, 99)
    (tmp_path / "p.tx8").write_bytes(bytes(data))
    refused(tx8, tmp_path, "sim", tmp_path / "p.tx8", says=("99", "compile the model again"))


def test_segment_that_does_not_exist(tx8, tmp_path, program):
    for name in ("frob", "999", "-1"):
        refused(tx8, tmp_path, "inspect", program, "--code", name, says=(name,))


# --- arrays ------------------------------------------------------------------------------------

X = np.zeros((8, 32), np.float32)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [({}, ("'x'", "missing", "[8, 32]")), ({"x": X, "z": X}, ("'z'", "not an input")), ({"x": X[:4]}, ("[4, 32]", "[8, 32]")),
     ({"x": X.astype(np.int32)}, ("int32", "float")), ({"x": X.astype(complex)}, ("complex",)),
     ({"x": X.astype(str)}, ("'x'", "U")), ({"y": X[0]}, ("'y'", "'x'"))],
)  # fmt: skip
def test_input_arrays(tx8, tmp_path, program, arrays, words):
    np.savez(tmp_path / "in.npz", **arrays)
    args = ("run", program, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    refused(tx8, tmp_path, *args, says=words)


def test_input_files(tx8, tmp_path, program):
    np.savez(tmp_path / "good.npz", x=X)
    good = (tmp_path / "good.npz").read_bytes()
    np.savez(tmp_path / "pickled.npz", x=np.array([{"a": 1}], dtype=object))
    np.save(tmp_path / "plain.npz.npy", X)
    (tmp_path / "plain.npz").write_bytes((tmp_path / "plain.npz.npy").read_bytes())
    (tmp_path / "cut.npz").write_bytes(good[: len(good) // 2])
    (tmp_path / "damaged.npz").write_bytes(good[:200] + b"\xff" + good[201:])
    (tmp_path / "empty.npz").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as z:
        z.writestr("x", "hello")
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4096), }"
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as z:
        z.writestr("x.npy", header.ljust(127) + b"\n")
    for name in ("pickled", "plain", "cut", "damaged", "empty", "text", "huge", "absent"):
        args = ("run", program, "--inputs", tmp_path / f"{name}.npz", "--outputs", tmp_path / "out.npz")
        refused(tx8, tmp_path, *args, says=(f"{name}.npz",))


def test_token_outside_the_vocabulary(tx8, tmp_path, checkpoint):
    assert tx8(*compile_args(checkpoint, tmp_path, *SEQ)).code == 0
    np.savez(tmp_path / "in.npz", input_ids=np.full((1, 8), 5000))
    args = ("run", tmp_path / "out.tx8", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "o.npz")
    refused(tx8, tmp_path, *args, says=("5000",))


def test_weights_directory(tx8, tmp_path, program):
    np.savez(tmp_path / "in.npz", x=X)
    args = (
        "run",
        program,
        "--inputs",
        tmp_path / "in.npz",
        "--outputs",
        tmp_path / "o.npz",
        "--weights",
        tmp_path / "no",
    )
    refused(tx8, tmp_path, *args, says=("no", "no such file or directory"))


# --- outputs and graph text --------------------------------------------------------------------


def test_outputs_that_cannot_be_written(tx8, tmp_path, mlp, program):
    np.savez(tmp_path / "in.npz", x=X)
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path / "none" / "out", tmp_path, tmp_path / "file" / "out"):
        refused(tx8, tmp_path, "compile", mlp, "-o", target, says=("writing program",))
        refused(tx8, tmp_path, "run", program, "--inputs", tmp_path / "in.npz", "--outputs", target, says=("writing",))
    refused(tx8, tmp_path, "compile", mlp, "-o", mlp, says=("input file",))
    refused(tx8, tmp_path, "compile", mlp, "-o", tmp_path / "out.tx8", "--dump-dir", tmp_path / "file", says=("dumps",))


def test_outputs_that_are_no_regular_files(tx8, tmp_path, mlp, program):
    np.savez(tmp_path / "in.npz", x=X)
    os.mkfifo(tmp_path / "pipe")
    for args in (("compile", mlp, "-o"), ("run", program, "--inputs", tmp_path / "in.npz", "--outputs")):
        refused(tx8, tmp_path, *args, tmp_path / "pipe", says=("pipe", "no regular file"))
    with pytest.raises(ProgramError, match="no regular file"):
        tx8fast.load(program).save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["--seq", "--batch"])
def test_sizes_beyond_every_dimension(tx8, tmp_path, checkpoint, name):
    args = {"--seq": 8, name: 2**32}
    refused(
        tx8,
        tmp_path,
        *compile_args(checkpoint, tmp_path, *(x for kv in args.items() for x in kv)),
        says=(name[2:], "at most 2147483647"),
    )


@pytest.mark.parametrize(("dims", "known"), [((8, 32), "none"), (("seq", 32), "seq")])
def test_sizes_that_nothing_takes_are_told(tx8, tmp_path, dims, known):
    model = write_mlp(tmp_path / "m.onnx", dims)
    done = tx8("check", model, "--batch", 2, "--seq", 8)
    unused = "batch" if known == "seq" else "seq, batch"
    assert done.code == 0
    assert (
        done.err
        == f"warning: {unused} has no effect, no dimension of the model takes it; its dynamic dimensions are: {known}\n"
    )
    told = tx8("check", model, "--phase", "prefill", *(["--seq", 8] if known == "seq" else [])).err
    assert ("phase has no effect" in told) == (known == "none")
    if known == "seq":
        assert not tx8("check", model, "--seq", 8).err


def test_results_beyond_the_memory_are_told_before_the_search(tx8, tmp_path, checkpoint):
    refused(tx8, tmp_path, *compile_args(checkpoint, tmp_path, "--seq", 8, "--batch", 10**8), says=("DDR", "results"))


@pytest.mark.parametrize("text", [b"", b"garbage", b"\xff\xfe", b'"tx8be.module"() ({', b'"tx8be.frob"() : () -> ()'])
def test_graph_text(tx8, tmp_path, text):
    path = tmp_path / "g.mlir"
    path.write_bytes(text)
    refused(tx8, tmp_path, "opt", path, "--pass", "cse", says=("g.mlir",))


@pytest.mark.parametrize("passes", ["frob", "cse{", "cse,", "outline{min-ops=x}", "outline{frob=1}"])
def test_pass_lists(tx8, tmp_path, mlp, passes):
    path = tmp_path / "g.mlir"
    path.write_text(tx8("compile", mlp, "--stop-after", "import").out)
    refused(tx8, tmp_path, "opt", path, "--pass", passes, says=("p",))


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_results_whose_names_no_archive_holds(name):
    f = io.BytesIO()
    with pytest.raises(SimulationError, match=f"found results named {re.escape(repr(name))}, required"):
        write_npz(f, {"y": np.zeros(1), name: np.zeros(1)})
    assert not f.getvalue()
