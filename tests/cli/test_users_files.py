"""Users' files: what was read or is referred to is never written over, only regular files are read, and what is written
is whole or gone."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint, model_config
from tests.support.cli_case import Caller, compile_args, refused, tree, write_mlp
from tx8fast import files
from tx8fast.errors import ConfigError, Tx8Error

SEQ = ("--seq", "4", "--opt", "1")
TX8 = (sys.executable, "-m", "tx8fast")
GIVE_ANOTHER = "give another name"


# --- what is read or referred to ---------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model whose weights, attributes and subgraphs are in a file beside it."""
    from tests.readers.kinds import _external

    _external(tmp_path)
    (tmp_path / "in.onnx").unlink()
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("option", ["-o", "--save-plans", "--dot"])
def test_external_data_are_not_written_over(tx8: Caller, tmp_path: Path, outside: Path, option: str) -> None:
    args = ("compile", outside, "--opt", 1, option, tmp_path / "m.data")
    refused(tx8, tmp_path, *args, says=("this is the input file", "m.data", GIVE_ANOTHER))


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json", "config.json", "notes.txt"])
def test_files_of_a_checkpoint_are_not_written_over(tx8: Caller, tmp_path: Path, name: str) -> None:
    make_checkpoint(tmp_path, layers=1)
    for path in ("model.safetensors.index.json", "notes.txt"):
        (tmp_path / path).write_text("{}")
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / name).touch()
    for model in (tmp_path, tmp_path / "config.json") if name != "notes.txt" else (tmp_path,):
        refused(tx8, tmp_path, "compile", model, "-o", tmp_path / name, *SEQ)
    (tmp_path / "other.tx8").write_bytes(b"an earlier result")
    if name == "config.json":
        assert tx8("compile", tmp_path, "-o", tmp_path / "other.tx8", *SEQ).code == 0


def test_links_are_the_files_they_lead_to(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    os.link(mlp, mlp.with_name("hard.onnx"))
    (tmp_path / "soft").symlink_to(mlp)
    try:
        for name in (mlp.with_name("hard.onnx"), tmp_path / "soft"):
            refused(tx8, tmp_path, "compile", mlp, "-o", name, says=("this is the input file",))
    finally:
        mlp.with_name("hard.onnx").unlink()


def test_every_other_input_is_safe_from_every_output(tx8: Caller, tmp_path: Path, mlp: Path, program: Path) -> None:
    table, machine = tmp_path / "groups.txt", tmp_path / "m.toml"
    table.write_text("gemm relu = 1\n")
    machine.write_text(Path("tx8fast/machine/configs/tx8.toml").read_text())
    np.savez(tmp_path / "c.npz", x=np.ones((8, 32), np.float32))
    assert tx8("compile", mlp, "--save-plans", tmp_path / "p.json").code == 0
    given = {
        "--group-table": table,
        "--machine": machine,
        "--load-plans": tmp_path / "p.json",
        "--constants": tmp_path / "c.npz",
    }
    for option, path in given.items():
        for output in ("-o", "--save-plans"):
            refused(tx8, tmp_path, "compile", mlp, option, path, output, path, says=("this is the input file",))
    run = ("run", program, "--inputs", tmp_path / "c.npz", "--outputs")
    for path in (program, tmp_path / "c.npz"):
        refused(tx8, tmp_path, *run, path, says=("this is the input file",))
    link = tmp_path / "trace.json"
    link.symlink_to(program)
    refused(tx8, tmp_path, "sim", program, "--trace", link, says=("this is the input file",))


def test_weights_beside_a_stablehlo_file_and_parts_of_a_gguf_model(tx8: Caller, tmp_path: Path) -> None:
    from tests.readers.kinds import STABLEHLO
    from tests.support.checkpoints import safetensors_bytes

    (tmp_path / "m.mlir").write_text(STABLEHLO)
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes({"other": np.ones(3, np.float32)}))
    for name in ("m.mlir", "m.safetensors"):
        refused(tx8, tmp_path, "compile", tmp_path / "m.mlir", "-o", tmp_path / name, says=("this is the input file",))


def test_an_api_call_keeps_the_model_too(tmp_path: Path, outside: Path) -> None:
    before = tree(tmp_path)
    done = tx8fast.compile(outside, opt=1)
    for name in ("m.onnx", "m.data"):
        with pytest.raises(ConfigError, match="this is the input file"):
            done.save(tmp_path / name)
        with pytest.raises(ConfigError, match="this is the input file"):
            done.save_plans(tmp_path / name)
    assert tree(tmp_path) == before
    done.save(tmp_path / "m.tx8")
    tx8fast.load(tmp_path / "m.tx8").save(tmp_path / "m.tx8")  # read by another call


def test_dumps_replace_dumps_of_the_same_model_only(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    dumps = tmp_path / "dumps"
    dump = ("--stop-after", "import", "--dump-dir", dumps)
    dumps.mkdir()
    (dumps / "00-import.mlir").write_text("another model")
    refused(tx8, tmp_path, "compile", mlp, *dump, says=("00-import.mlir", "another directory"))
    (dumps / "00-import.mlir").unlink()
    assert tx8("compile", mlp, *dump).code == 0 and tx8("compile", mlp, *dump).code == 0
    other = write_mlp(tmp_path / "other.onnx", (4, 32))
    refused(tx8, tmp_path, "compile", other, *dump, says=("of another model or other sizes",))
    inside = write_mlp(dumps / "01-late.onnx")
    assert tx8("compile", inside, *dump).code == 0


# --- external data stay in the model's directory ----------------------------------------------


@pytest.mark.parametrize("name", ["const", "cos", "sub"])
def test_external_data_are_those_beside_the_model(tx8, tmp_path, data_dir, monkeypatch, name: str) -> None:
    """Not those of the same name in the working directory."""
    model = onnx.load(data_dir / "found" / f"external_from_cwd_{name}.onnx", load_external_data=False)
    (tmp_path / "m").mkdir()
    onnx.save(model, tmp_path / "m" / "m.onnx")
    (tmp_path / "fz").mkdir()
    (tmp_path / "fz" / "secret.bin").write_bytes(np.full(1024, 7, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    refused(
        tx8, tmp_path, *compile_args(Path("m/m.onnx"), tmp_path), says=("does not exist", str(tmp_path / "m" / "fz"))
    )
    (tmp_path / "m" / "fz").mkdir()
    (tmp_path / "m" / "fz" / "secret.bin").write_bytes(np.full(1024, 2, np.float32).tobytes())
    found = tx8("compile", "m/m.onnx", "--stop-after", "import")
    assert found.code == 0 and "e04000000" not in found.out.lower()
    (tmp_path / "m" / "fz" / "secret.bin").unlink()
    (tmp_path / "m" / "fz" / "secret.bin").symlink_to(tmp_path / "fz" / "secret.bin")
    refused(tx8, tmp_path, *compile_args(Path("m/m.onnx"), tmp_path), says=("not inside the model's directory",))


@pytest.mark.parametrize("place", ["../m.data", "/etc/passwd", "sub/../../m.data", "a\0b", "", ".", "pipe"])
def test_external_data_do_not_leave_it(tx8: Caller, tmp_path: Path, outside: Path, place: str) -> None:
    from onnx.external_data_helper import uses_external_data

    os.mkfifo(tmp_path / "pipe")
    sound = outside.read_bytes()
    for which in ("initialiser", "attribute"):
        model = onnx.load_from_string(sound)
        attributes = [a.t for n in model.graph.node for a in n.attribute if uses_external_data(a.t)]
        tensor = model.graph.initializer[0] if which == "initialiser" else attributes[0]
        next(e for e in tensor.external_data if e.key == "location").value = place
        outside.write_bytes(model.SerializeToString())
        assert tx8("compile", outside, "-o", tmp_path / "out.tx8", "--opt", "1").code == 2
        assert not (tmp_path / "out.tx8").exists()


# --- only regular files ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/zero", "PIPE", "FOLDER", "", "a\0b"])
def test_inputs_that_are_no_files(tx8: Caller, tmp_path: Path, mlp: Path, program: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    given = path.replace("PIPE", str(tmp_path / "pipe")).replace("FOLDER", str(tmp_path / "folder"))
    np.savez(tmp_path / "x.npz", x=np.ones((8, 32), np.float32))
    run = ("run", program, "--outputs", tmp_path / "o.npz", "--inputs")
    commands = [
        ("check", given), ("compile", given, "-o", tmp_path / "o.tx8"), ("sim", given), ("inspect", given), ("opt", given),
        ("run", given, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "o.npz"), (*run, given),
        *((*compile_args(mlp, tmp_path), o, given) for o in ("--machine", "--constants", "--load-plans")),
    ]  # fmt: skip
    if path:
        commands += [(*run, tmp_path / "x.npz", "--weights", given)] if path == "a\0b" else []
        commands += [(*compile_args(mlp, tmp_path), "--group-table", given)]
    before = sorted(os.listdir(tmp_path))
    for command in commands:
        found = tx8(*command)
        assert found.code == 2 and found.err.count("error: ") == 1, (command, found)
        assert sorted(os.listdir(tmp_path)) == before


def test_outputs_without_a_name(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    for option in ("-o", "--save-plans", "--dot", "--dump-dir"):
        refused(tx8, tmp_path, "compile", mlp, option, "", says=("the name is empty",))
        refused(tx8, tmp_path, "compile", mlp, option, "a\0b", says=("null character",))


# --- whole or gone -----------------------------------------------------------------------------


def test_a_link_is_written_through(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "m.tx8", tmp_path / "m.tx8"
    link.symlink_to(target)
    for _ in range(2):  # the first makes the target, the second replaces it
        assert tx8("compile", mlp, "-o", link).code == 0
        assert link.is_symlink() and not target.is_symlink()
    assert sorted(os.listdir(tmp_path / "there")) == ["m.tx8"]


def test_what_a_killed_run_left_is_removed_unless_it_still_runs(tmp_path: Path) -> None:
    target = tmp_path / "m.tx8"
    left = tmp_path / f".m.tx8.{'0' * 12}{files.TEMPORARY}"
    other = tmp_path / f".n.tx8.{'0' * 12}{files.TEMPORARY}"
    for path in (left, other):
        path.write_bytes(b"half")
    with files.replacing(target) as first:
        assert not left.exists() and other.exists()
        first.write(b"one")
        with files.replacing(target) as second:  # another run meanwhile: each has its own
            second.write(b"two")
        assert target.read_bytes() == b"two"
    assert target.read_bytes() == b"one" and sorted(os.listdir(tmp_path)) == [other.name, "m.tx8"]


def test_all_or_none_of_several_files(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), files.together():
        with files.replacing(a) as f:
            f.write(b"new")
        assert a.read_bytes() == b"old"
        with files.replacing(b):
            raise ZeroDivisionError
    assert tree(tmp_path) == {"a": b"old"}


def test_long_names_of_results(tmp_path: Path) -> None:
    target = tmp_path / ("\u00e9" * 127)  # 254 bytes of the 255 that a name has
    with files.replacing(target) as f:
        f.write(b"x")
    assert os.listdir(tmp_path) == [target.name]


@pytest.mark.parametrize("most_bytes", [0, 4096, 14000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, mlp: Path, most_bytes: int) -> None:
    """The limit of a file's size stands for the disk's."""
    outputs = ("-o", "m.tx8", "--save-plans", "p.json", "--dot", "d.dot", "--dump-dir", "dumps/of/it")
    code = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2);" \
           "sys.dont_write_bytecode = True; runpy.run_module('tx8fast', run_name='__main__')"  # fmt: skip
    run = [sys.executable, "-c", code, str(most_bytes), "compile", str(mlp), *outputs]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "File too large" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert tree(tmp_path) == {}


def test_a_full_disk_behind_stdout(tmp_path: Path, mlp: Path) -> None:
    with open("/dev/full", "wb") as full:
        run = [*TX8, "compile", str(mlp), "-o", str(tmp_path / "m.tx8")]
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "No space left" in done.stderr and "Traceback" not in done.stderr
    assert tree(tmp_path) == {}


# --- streams -----------------------------------------------------------------------------------


def test_names_that_a_terminal_cannot_show(tmp_path: Path) -> None:
    path = write_mlp(tmp_path / "mod\u00e8le.onnx")
    model = onnx.load(path)
    model.graph.node[0].name = "\u7b2c\u4e00"
    onnx.save(model, path)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C"}
    for args in (("check", path), ("compile", path, "-o", tmp_path / "m.tx8"), ("compile", path, "--stop-after", "import"),
                 ("inspect", tmp_path / "m.tx8"), ("inspect", tmp_path / "m.tx8", "--code", "0"), ("sim", tmp_path / "m.tx8")):  # fmt: skip
        done = subprocess.run([*TX8, *map(str, args)], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert args[-1] == "import" or done.stdout.isascii()
    (tmp_path / "g.mlir").write_bytes(subprocess.run(
        [*TX8, "compile", str(path), "--stop-after", "import"], capture_output=True, env=environment, check=True).stdout)  # fmt: skip
    done = subprocess.run([*TX8, "opt", str(tmp_path / "g.mlir"), "--locations"], capture_output=True, env=environment)
    assert done.returncode == 0 and done.stdout.decode("utf-8")


def test_closed_stdin() -> None:
    run = [
        sys.executable,
        "-c",
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
    ]
    done = subprocess.run([*run, "-m", "tx8fast", "opt", "-"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: "), done.stderr


# --- numbers and brackets without end ----------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['"tx8be.module"() ({\n' * 10_000, f'"tx8be.module"() <{{a = {"[" * 10_000}}}> ({{\n}}) : () -> ()',
     f'"tx8be.module"() <{{a = {"9" * 5000} : i64}}> ({{\n}}) : () -> ()', f'%{"9" * 5000} = "tx8be.module"() ({{\n}}) : () -> ()',
     f'"tx8be.module"() ({{\n^bb{"0" * 5000}:\n}}) : () -> ()',
     f'"tx8be.module"() ({{\n}}) : ({"!tx8be.tuple<" * 5000}{">" * 5000}) -> ()'],
    ids=["regions", "brackets", "number", "value", "block", "types"],
)  # fmt: skip
def test_graphs_without_end(tx8: Caller, tmp_path: Path, text: str) -> None:
    (tmp_path / "g.mlir").write_text(text)
    assert len(refused(tx8, tmp_path, "opt", tmp_path / "g.mlir")) < 1000


@pytest.mark.parametrize("name", ["mlir_defect_386.mlir", "mlir_defect_89.mlir"])
def test_graphs_that_were_found(tx8: Caller, data_dir: Path, name: str) -> None:
    assert "digits" in refused(tx8, data_dir / "found", "opt", data_dir / "found" / name)


@pytest.mark.parametrize(
    "text",
    ["a = " + "9" * 5000, "a = " + "[" * 10_000, "a" + ".a" * 10_000 + " = 1", "[chip]\ntiles_x = 1" + "0" * 400,
     "chip.tiles_x = " + "{a=" * 3000, "chip.tiles_x = " + "[" * 90 + "]" * 90],
    ids=["digits", "brackets", "keys", "number", "tables", "list"],
)  # fmt: skip
def test_machines_without_end(tx8: Caller, tmp_path: Path, mlp: Path, text: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    told = refused(
        tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", tmp_path / "m.toml"), says=("loading machine",)
    )
    assert len(told) < 8000


def test_other_files_that_were_found(tx8: Caller, tmp_path: Path, mlp: Path, program: Path, data_dir: Path) -> None:
    found = data_dir / "found"
    for name in ("toml_defect_1.toml", "toml_defect_14.toml"):
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", found / name), says=(name,))
    run = ("run", program, "--inputs", found / "npz_defect_2.npz", "--outputs", tmp_path / "o.npz")
    refused(tx8, tmp_path, *run, says=("npz_defect_2.npz", "damaged"))
    refused(tx8, tmp_path, *compile_args(found / "onnxext_defect_85.onnx", tmp_path), says=("no file name",))


def test_arrays_are_as_large_as_their_file_says(tx8: Caller, tmp_path: Path, program: Path) -> None:
    import zipfile

    for claim in ("(1 << 40,)", "(4294967296, 4)", "(9, 32)", "(-8, -32)"):
        body = io.BytesIO()
        np.lib.format.write_array(body, np.ones((8, 32), np.float32))
        text = body.getvalue().replace(b"(8, 32), }", f"{claim}, }}".encode().ljust(10))[: len(body.getvalue())]
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
            z.writestr("x.npy", text)
        refused(
            tx8,
            tmp_path,
            "run",
            program,
            "--inputs",
            tmp_path / "x.npz",
            "--outputs",
            tmp_path / "o.npz",
            says=("'x'",),
        )


def test_deeply_nested_stablehlo(tx8: Caller, tmp_path: Path) -> None:
    """The native parser would end the process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    body = "%0 = stablehlo.constant dense<" + "[" * 100_000 + "]" * 100_000 + "> : tensor<1xf32>"
    (tmp_path / "m.mlir").write_text(f"func.func @main() -> tensor<1xf32> {{\n{body}\nreturn %0 : tensor<1xf32>\n}}")
    refused(tx8, tmp_path, *compile_args(tmp_path / "m.mlir", tmp_path), says=("reading StableHLO",))
    nested = '"stablehlo.case"(%i) ({\n' * 20_000
    (tmp_path / "m.mlir").write_text(f"func.func @main(%i: tensor<i32>) -> tensor<i32> {{\n{nested}")
    refused(tx8, tmp_path, *compile_args(tmp_path / "m.mlir", tmp_path), says=("reading StableHLO",))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1 << 20


def test_the_help_names_no_format_that_is_refused(tx8: Caller) -> None:
    assert "int8" not in tx8("compile", "--help").out
    with pytest.raises(Tx8Error):
        tx8fast.CompileOptions(dtype="int8")


def test_a_config_that_is_no_file(tx8: Caller, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model_config(dtype="bfloat16")))
    (tmp_path / "model.safetensors").mkdir()
    refused(tx8, tmp_path, *compile_args(tmp_path, tmp_path, *SEQ), says=("model.safetensors",))


def test_a_small_file_takes_little_room_however_large_it_might_be(tmp_path):
    """An address space of 1 GiB is enough for a file of which up to 2 GiB would be read."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x" * 5000)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from tx8fast.files import read_input\n"
        f"assert len(read_input({str(path)!r}, 2 << 30)) == 5000"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
