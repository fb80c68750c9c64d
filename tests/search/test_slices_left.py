"""Results in slices of columns that the next nest finds as one matrix: right values, proved, and not loaded again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hunt.corpus_list import CORPUS
from hunt.eager import eager_plans
from support.checkpoints import make_checkpoint
from support.one_op import build, check

import tx8fast
from tests.search.test_staying import residual_block
from tests.simulator.planting import findings
from tx8fast.search import chains, handover, memory
from tx8fast.search.handover import Nest
from tx8fast.tile.tiling import Tiling

Left = list[tuple[int, int]]  # of chains that were built: slices of a result, and columns of a slice


def _left(path: list[Nest], holds: list[tuple[tuple[int, int], ...]]) -> Left:
    """Return of every operand that is found in slices of what the nest before made, how many there are, and their columns."""
    found = []
    for a, b, hold in zip(path, path[1:], holds, strict=False):
        for ka, kb in hold:
            here = kb not in dict(b.how.plan.gathered) and kb not in b.how.plan.delivered
            if here and a.how.copies[ka] > 1:
                columns = a.how.accesses[ka].box((0,) * len(a.how.low.sizes), a.how.plan.slices)[-1][1]
                found.append((a.how.copies[ka], columns))
    return found


@pytest.fixture()
def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    """What may be left in slices is, whatever it costs; returns what was in chains that were chosen."""
    cost, chain = chains.Chains._cost, chains.Chains._chain
    built: Left = []

    def cheap(of: chains.Chains, path, holds, closely: bool = False):
        held, cycles = cost(of, path, holds, closely)
        return held, cycles // 16 if _left(path, holds) else cycles

    def made(of: chains.Chains, path, holds, held, cycles):
        built.extend(_left(path, holds))
        return chain(of, path, holds, held, cycles)

    def in_slices(a: Tiling, ka: int, b: Tiling, kb: int) -> bool:
        """No result is handed over whole: these are so small that all could be."""
        return (ka < len(a.low.reads) or not a.fills_once(ka)) and handover.can_hand_over(a, ka, b, kb)

    monkeypatch.setattr(memory, "can_hand_over", in_slices)
    monkeypatch.setattr(chains.Chains, "_cost", cheap)
    monkeypatch.setattr(chains.Chains, "_chain", made)
    return built


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.parametrize("rows, width, inner", [
    (128, 384, 1280), (121, 512, 768), (250, 320, 1100), (384, 328, 640), (512, 192, 512), (1000, 320, 1100),
])  # fmt: skip
@pytest.mark.slow
def test_slices_that_are_found_as_one_matrix_are_right(left: Left, rows: int, width: int, inner: int) -> None:
    """Also of rows that do not divide, where the last tiles' slices lie closer together, and of a last slice with fewer columns."""
    case = build(*residual_block(rows, width, inner), opt=2)
    assert left
    check(case, tolerance=0.05)
    assert not findings(case.program)


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.slow
def test_values_do_not_depend_on_slices(tmp_path: Path, left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path, hidden_size=512, intermediate_size=1024)
    ids = np.arange(2, 123)[None] % 31
    some = tx8fast.compile(tmp_path, seq=121, dtype="bf16")
    assert left
    left.clear()
    monkeypatch.setattr(handover, "is_left", lambda *_: False)
    none = tx8fast.compile(tmp_path, seq=121, dtype="bf16")
    assert not left
    a, b = (c.run({c.inputs[0].name: ids}, sanitize=True) for c in (some, none))
    assert all(np.array_equal(a[k], b[k]) for k in b)


@pytest.mark.usefixtures("small", "eager", "left")
def test_saved_plans_say_what_is_left(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, hidden_size=512, intermediate_size=1024)
    first = tx8fast.compile(tmp_path, seq=121, dtype="bf16")
    assert first.searched is not None
    path = tmp_path / "plans.json"
    path.write_text(first.searched.text())
    again = tx8fast.compile(tmp_path, seq=121, dtype="bf16", load_plans=str(path))
    a, b = ([bytes(c) for s in x.program.segments for c in s.codes] for x in (first, again))
    assert a == b


def test_slices_that_a_comparison_bounds_are_not_made_longer() -> None:
    """127 columns are one block of its result and two of its operands: slices of both lie alike up to 64 columns only."""
    path = CORPUS / "comparison_of_what_is_left_in_slices.onnx"
    graph, fed = onnx.load(path), dict(np.load(path.with_suffix(".npz")))
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in graph.graph.initializer}
    with eager_plans():
        program = tx8fast.compile(path, dtype="fp16")
    found = program.run(fed, sanitize=True)
    x = fed["x0"].astype(np.float16)
    wanted = ~((x @ weights["w1"].astype(np.float16)) < weights["w5"].astype(np.float16))
    assert np.array_equal(found["v4"], wanted)


@pytest.mark.parametrize("width, inner, rows, spm_bytes", [(768, 448, 320, 917504), (768, 1344, 192, 1245184)])
def test_slices_that_are_longer_than_the_operand_have_room(
    tmp_path: Path, width: int, inner: int, rows: int, spm_bytes: int
) -> None:
    """Two slices of 256 columns, of a result with 448: what lies behind its columns takes room of the next nest."""
    chip = (Path(tx8fast.__file__).parent / "machine/configs/tx8.toml").read_text()
    for key, value in (("tiles_x", 2), ("tiles_y", 1), ("ddr_bw", 100), ("spm_bytes", spm_bytes)):
        chip = re.sub(rf"^{key} *= *\S+", f"{key} = {value}", chip, flags=re.M)
    (tmp_path / "small.toml").write_text(chip)
    rng = np.random.default_rng(5)
    last = width if inner < width else inner
    first, factor, second = (rng.standard_normal(n).astype(np.float32) for n in ((width, inner), inner, (inner, last)))
    weights = {"a": first / 28, "f": factor, "b": second / 28, "axis": np.array([-1]), "eps": np.float32(1e-5)}
    make = onnx.helper.make_node
    nodes = [make("MatMul", ["x", "a"], ["h"]), make("Mul", ["h", "h"], ["s"]), make("ReduceMean", ["s", "axis"], ["m"]),
             make("Add", ["m", "eps"], ["e"]), make("Sqrt", ["e"], ["r"]), make("Div", ["h", "r"], ["n"]),
             make("Mul", ["n", "f"], ["t"]), make("MatMul", ["t", "b"], ["y"])]  # fmt: skip
    info = lambda name, *shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)  # noqa: E731
    stored = [onnx.numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, rows, width)], [info("y", 1, rows, last)], stored)
    opsets = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "net.onnx")
    x = rng.standard_normal((1, rows, width)).astype(np.float32)
    made = tx8fast.compile(tmp_path / "net.onnx", machine=str(tmp_path / "small.toml"))
    h = x.astype(np.float64) @ weights["a"]
    wanted = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * factor @ weights["b"]
    assert np.abs(np.asarray(made.run({"x": x}, sanitize=True)["y"]) - wanted).max() < 1e-5 * np.abs(wanted).max()
