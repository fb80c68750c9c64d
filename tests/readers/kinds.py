"""What the command line reads, one kind after the other: a sound file, how to damage it, and the command that reads it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.readers import mutate
from tests.readers.mutate import Random
from tests.support.checkpoints import make_checkpoint, model_config, model_weights
from tests.support.cli_case import write_mlp, write_onnx
from tests.support.gguf_files import make_gguf
from tx8fast.program.container import MAGIC, PREFIX

SEQ = ("--seq", "2", "--opt", "1")
TINY = {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 16, "vocab": 16}


@dataclass(frozen=True)
class Kind:
    """`prepare(folder)` writes the sound files; `damage(folder, random)` changes them; `command(folder)` is what must take it."""

    name: str
    prepare: Callable[[Path], None]
    damage: Callable[[Path, Random], None]
    command: Callable[[Path], tuple[object, ...]]


def _compile(model: str, *more: str) -> Callable[[Path], tuple[object, ...]]:
    return lambda d: ("compile", d / model, "-o", d / "out.tx8", *more)


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


def _file(name: str, *ways: Callable[[bytes, Random], bytes]) -> Callable[[Path, Random], None]:
    """Damage one file in one of several ways; the sound one stands in the folder `sound`."""

    def damage(d: Path, r: Random) -> None:
        (d / name).write_bytes(r.choice(ways)(_read(d / "sound" / name), r))

    return damage


# ---- models


def _small_onnx(path: Path) -> None:
    """A product, a branch, a constant of a shape: attributes and subgraphs as well as weights."""
    from onnx import TensorProto, helper, numpy_helper

    def branch(op: str) -> Any:
        inner = helper.make_node(op, ["h", "k"], ["o"])
        shape = helper.make_tensor_value_info("o", TensorProto.FLOAT, [4, 6])
        return helper.make_graph([inner], op, [], [shape], [numpy_helper.from_array(np.ones((4, 6), np.float32), "k")])

    two = numpy_helper.from_array(np.full(1, 2, np.float32), "two")
    nodes = [
        helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.array(True), "t")),
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=two),
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "c"], ["h"]),
        helper.make_node("If", ["one"], ["i"], then_branch=branch("Add"), else_branch=branch("Mul")),
        helper.make_node("Transpose", ["i"], ["t"], perm=[1, 0]), helper.make_node("Softmax", ["t"], ["y"], axis=-1),
    ]  # fmt: skip
    weights = {"w": np.ones((8, 6), np.float32), "s": np.array([4, 6], np.int64)}
    write_onnx(path, nodes, {"x": (4, 8)}, {"y": (6, 4)}, weights)


def _damage_onnx(d: Path, r: Random) -> None:
    _file("m.onnx", mutate.bytes_of, _proto)(d, r)


def _proto(data: bytes, r: Random) -> bytes:
    import onnx

    return mutate.proto_of(onnx.load_from_string(data), r).SerializeToString()


def _external(d: Path) -> None:
    import onnx

    _small_onnx(d / "in.onnx")
    model = onnx.load(d / "in.onnx")
    onnx.save(
        model, d / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0, convert_attribute=True
    )


def _damage_external(d: Path, r: Random) -> None:
    for name in ("m.onnx", "m.data"):
        (d / name).write_bytes(_read(d / "sound" / name))
    (_file("m.data", mutate.bytes_of) if r.random() < 0.3 else _file("m.onnx", _external_fields))(d, r)


def _external_fields(data: bytes, r: Random) -> bytes:
    import onnx
    from onnx.external_data_helper import _get_all_tensors

    model = onnx.load_from_string(data)
    if r.random() < 0.3:
        return mutate.proto_of(model, r).SerializeToString()
    tensor = r.choice([t for t in _get_all_tensors(model) if t.external_data])
    tensor.CopyFrom(mutate.proto_of(tensor, r))
    return model.SerializeToString()


def _config(d: Path) -> None:
    (d / "config.json").write_text(json.dumps(model_config(dtype="bfloat16", **TINY)))


def _json(data: bytes, r: Random) -> bytes:
    return mutate.json_text(mutate.tree_of(json.loads(data), r))


def _checkpoint(d: Path) -> None:
    make_checkpoint(d, shards=2, **TINY)


def _damage_checkpoint(d: Path, r: Random) -> None:
    names = [p.name for p in (d / "sound").iterdir() if "safetensors" in p.name]
    for name in names:
        (d / name).write_bytes(_read(d / "sound" / name))
    name = r.choice(sorted(names))
    _file(name, mutate.bytes_of, _json if name.endswith(".json") else _header)(d, r)


def _header(data: bytes, r: Random) -> bytes:
    size = int.from_bytes(data[:8], "little")
    text = _json(data[8 : 8 + size], r)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _gguf(d: Path) -> None:
    config = model_config(**TINY)
    make_gguf(d / "m.gguf", config, model_weights(config))


def _gguf_fields(data: bytes, r: Random) -> bytes:
    """Numbers of the header: lengths, counts, types, values."""
    out = bytearray(data)
    at = r.randrange(8, min(len(out), 4000))
    struct.pack_into("<Q" if r.random() < 0.5 else "<I", out, at, r.choice(mutate.NUMBERS[:9]) % 2**32)
    return bytes(out)


# ---- StableHLO and our own text

STABLEHLO = """
module @m {
  func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x6xf32> {jax.result_info = "y"}) {
    %w = stablehlo.constant dense<1.5> : tensor<8x6xf32>
    %z = stablehlo.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<6xf32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %1 = stablehlo.broadcast_in_dim %z, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
    %2 = call @f(%0, %1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %3 = chlo.erf %2 : tensor<4x6xf32> -> tensor<4x6xf32>
    %4 = stablehlo.slice %3 [0:4, 0:6] : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %4 : tensor<4x6xf32>
  }
  func.func private @f(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = stablehlo.add %a, %b : tensor<4x6xf32>
    %1 = stablehlo.maximum %0, %b : tensor<4x6xf32>
    return %1 : tensor<4x6xf32>
  }
}
"""


def _stablehlo_text(d: Path) -> None:
    (d / "m.mlir").write_text(STABLEHLO)


def _artifact(d: Path) -> None:
    from tx8fast.frontend.stablehlo.reader import bindings, new_mlir_context

    ir, passes, stablehlo, *_ = bindings()
    with new_mlir_context():
        module = ir.Module.parse(STABLEHLO)
        passes.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        data = stablehlo.serialize_portable_artifact(module, stablehlo.get_minimum_version())
    (d / "m.mlirbc").write_bytes(data)


def _graph_text(d: Path) -> None:
    from tx8fast.frontend import open_model

    write_mlp(d / "in.onnx")
    (d / "g.mlir").write_text(open_model(d / "in.onnx").text() + "\n")


# ---- files of ours


def _exported(d: Path) -> None:
    from tx8fast.frontend import open_model
    from tx8fast.ir.export import exported

    _gguf(d)
    contents, _ = exported(open_model(d / "m.gguf", seq=2))
    (d / "data").mkdir()
    for name, content in contents.items():
        (d / name).write_bytes(content)


def _program(d: Path) -> None:
    import tx8fast

    program = tx8fast.compile(write_mlp(d / "in.onnx"), dtype="bf16", opt=1)
    program.save(d / "p.tx8")
    program.save_plans(d / "plans.json")
    np.savez(d / "x.npz", x=np.ones((8, 32), np.float32))


def _sealed(data: bytes, r: Random) -> bytes:
    """A program whose description is changed and whose checksums are right again."""
    fields = list(PREFIX.unpack(data[: PREFIX.size]))
    header = _json(data[fields[4] :], r)
    fields[4:7] = [fields[4], len(header), fields[4] + len(header)]
    state = hashlib.blake2b(PREFIX.pack(*fields[:7], bytes(16)) + header, digest_size=16)
    assert fields[0] == MAGIC
    return PREFIX.pack(*fields[:7], state.digest()) + data[PREFIX.size : fields[4]] + header


def _read_program(d: Path) -> tuple[object, ...]:
    commands = (("sim", d / "p.tx8"), ("inspect", d / "p.tx8"),
                ("run", d / "p.tx8", "--inputs", d / "x.npz", "--outputs", d / "out.npz"))  # fmt: skip
    return commands[(d / "p.tx8").stat().st_size % 3]


def _machine(d: Path) -> None:
    from importlib import resources

    write_mlp(d / "m.onnx")
    (d / "t.toml").write_bytes(resources.files("tx8fast.machine").joinpath("configs", "test_2x2.toml").read_bytes())


def _arrays(d: Path) -> None:
    _program(d)
    x = np.asfortranarray(np.ones((8, 32), np.float32))
    np.savez(d / "in.npz", x=x)


def _npz_header(data: bytes, r: Random) -> bytes:
    """Another header of the array, the checksum of the archive right again."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as z:
        members = {n: z.read(n) for n in z.namelist()}
    name = r.choice(list(members))
    text = members[name]
    members[name] = mutate.text_of(text[:128], r) + text[128:] if r.random() < 0.8 else mutate.bytes_of(text, r)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", r.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as z:
        for n, content in members.items():
            z.writestr(n, content)
    return out.getvalue()


KINDS = (
    Kind("onnx", lambda d: _small_onnx(d / "m.onnx"), _damage_onnx, _compile("m.onnx", "--opt", "1")),
    Kind("external", _external, _damage_external, _compile("m.onnx", "--opt", "1")),
    Kind("config", _config, _file("config.json", mutate.bytes_of, _json, _json), _compile("config.json", *SEQ)),
    Kind("safetensors", _checkpoint, _damage_checkpoint, lambda d: ("compile", d, "-o", d / "out.tx8", *SEQ)),
    Kind("gguf", _gguf, _file("m.gguf", mutate.bytes_of, _gguf_fields), _compile("m.gguf", *SEQ)),
    Kind("stablehlo-text", _stablehlo_text, _file("m.mlir", mutate.text_of), _compile("m.mlir", "--opt", "1")),
    Kind("stablehlo-artifact", _artifact, _file("m.mlirbc", mutate.bytes_of), _compile("m.mlirbc", "--opt", "1")),
    Kind("mlir", _graph_text, _file("g.mlir", mutate.text_of), lambda d: ("opt", d / "g.mlir", "--pass", "cse,fold")),
    Kind("exported", _exported, _file("graph.json", mutate.text_of, _json, _json), lambda d: ("compile", d, "-o", d / "out.tx8")),
    Kind("tx8", _program, _file("p.tx8", mutate.bytes_of, _sealed, _sealed), _read_program),
    Kind("plans", _program, _file("plans.json", mutate.bytes_of, _json, _json),
         _compile("in.onnx", "--dtype", "bf16", "--load-plans", "PLANS")),
    Kind("machine", _machine, _file("t.toml", mutate.text_of), _compile("m.onnx", "--machine", "MACHINE", "--opt", "1")),
    Kind("npz", _arrays, _file("in.npz", mutate.bytes_of, _npz_header),
         lambda d: ("run", d / "p.tx8", "--inputs", d / "in.npz", "--outputs", d / "out.npz")),
)  # fmt: skip
NAMED = {"PLANS": "plans.json", "MACHINE": "t.toml"}


def command_of(kind: Kind, d: Path) -> list[str]:
    """The arguments of the command line."""
    return [str(d / NAMED[a]) if isinstance(a, str) and a in NAMED else str(a) for a in kind.command(d)]
