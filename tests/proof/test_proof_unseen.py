"""Attention in several slices of keys, of which some rows see nothing in the first ones: right programs pass, spoiled ones do not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.mutation.mutants import _with
from tests.support.family_checkpoints import make_family
from tx8fast import api
from tx8fast.isa.base import class_of
from tx8fast.machine.config import read_machine_text
from tx8fast.program.model import Program
from tx8fast.proof.cells import HIDDEN, LOWEST, Elements
from tx8fast.proof.evaluate import Evaluation, Sources
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph
from tx8fast.proof.prove import ENDLESS, UNSEEN

KEYS, WIDTH, BLOCK = 256, 32, 64
OPSETS = '<ir_version: 8, opset_import: ["" : 20]>'
HEADS = f"float[1,1,{KEYS},{WIDTH}]"
ATTENTION = (
    "kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) z = Add (s, mask) p = Softmax (z) y = MatMul (p, v)"
)
#: masks that the importer works out, so that the compiler and the proof know them: which of the keys j the row i sees
SEEN = {
    "blocks": "a = Div (i, w) b = Div (j, w) seen = Equal (a, b)",
    "padding before": "a = GreaterOrEqual (j, h) b = LessOrEqual (j, i) c = And (a, b) d = Equal (i, j) seen = Or (c, d)",
    "keys behind": "seen = LessOrEqual (i, j)",
    "a window": "a = LessOrEqual (j, i) b = Sub (i, j) c = Less (b, w) seen = And (a, c)",
}
LOWS = (-3.4028234663852886e38, float("-inf"), -1e30, -1e9, -65504.0)


def attention(path: Path, seen: str, low: float) -> Path:
    """Write attention with a known mask that hides with `low`."""
    integers = {"zero": "", "one": "", "n": "", "w": "", "h": "", "rows": "[1]", "columns": "[1]"}
    values = 0, 1, KEYS, BLOCK, KEYS * 5 // 8, 1, 0
    constants = " ".join(
        f"{x} = Constant <value = int64{form} {{{v}}}> ()" for (x, form), v in zip(integers.items(), values)
    )
    mask = f"r = Range (zero, n, one) i = Unsqueeze (r, rows) j = Unsqueeze (r, columns) {SEEN[seen]} mask = Where (seen, no, low)"
    text = f"{OPSETS} g ({HEADS} q, {HEADS} k, {HEADS} v) => ({HEADS} y) {{ {constants} {mask} {ATTENTION} }}"
    model = parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(x, np.float32), n) for n, x in (("no", 0.0), ("low", low))
    )
    onnx.save(model, str(path))
    return path


def machine(path: Path, dtype: str) -> str:
    """Write a machine of little scratchpad: of 256 keys slices take some."""
    text, _ = read_machine_text("test_2x2")
    path.write_text(re.sub(r"spm_bytes = \d+", f"spm_bytes = {208 << 10 if dtype == 'fp32' else 168 << 10}", text))
    return str(path)


def compiled(
    tmp_path: Path, seen: str = "blocks", low: float = LOWS[0], dtype: str = "fp32", **options
) -> tuple[Program, Path]:
    model = attention(tmp_path / "model.onnx", seen, low)
    small = machine(tmp_path / "small.toml", dtype)
    return api.compile(model, machine=small, dtype=dtype, **options).program, model


def rows_of(program: Program, name: str, code: int = -1) -> list[int]:
    return [i for i, row in enumerate(program.segments[-1].codes[code]) if class_of(int(row["opcode"])).NAME == name]


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_masks_that_hide_first_slices(tmp_path, seen, dtype):
    program, model = compiled(tmp_path, seen, dtype=dtype)
    report = api.prove(program, model, quick=True)
    assert report.complete, "\n".join(report.lines())
    # the running maximum of several slices
    assert seen == "a window" or rows_of(program, "max_vv")


@pytest.mark.parametrize("low", LOWS[1:])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("opt", [1, 3])
@pytest.mark.slow(but_every=5)
def test_numbers_that_hide(tmp_path, low, dtype, opt):
    program, model = compiled(tmp_path, low=low, dtype=dtype, opt=opt)
    report = api.prove(program, model, quick=True)
    assert report.complete, "\n".join(report.lines())


@pytest.mark.parametrize("family, dtype", [("mistral", "fp16"), ("gemma2", "bf16")])
@pytest.mark.slow
def test_models_with_a_short_window(tmp_path, family, dtype):
    make_family(tmp_path / family, family)
    config = json.loads((tmp_path / family / "config.json").read_text())
    config |= {"sliding_window": 64, "max_position_embeddings": 8192}
    (tmp_path / family / "config.json").write_text(json.dumps(config))
    options = api.CompileOptions(seq=1024, dtype=dtype, machine="test_2x2")
    program = api.compile(tmp_path / family, options).program
    report = api.prove(program, tmp_path / family, options, quick=True)
    assert report.complete, "\n".join(report.lines())


@pytest.mark.parametrize("opt, row", [(1, KEYS), (2, 2 * WIDTH)])
def test_rows_that_see_nothing_are_left_out_and_listed(tmp_path, monkeypatch, opt, row):
    """Of shares, or of the mix and its conversion: no other rows."""
    monkeypatch.setitem(SEEN, "padding", "a = GreaterOrEqual (j, h) b = LessOrEqual (j, i) seen = And (a, b)")
    program, model = compiled(tmp_path, "padding", dtype="bf16", opt=opt)
    report = api.prove(program, model, quick=True)
    (left_out,) = report.outside.values()
    assert report.proved and not report.complete
    assert (left_out.why, left_out.elements) == (UNSEEN, KEYS * 5 // 8 * row)
    if opt == 2:
        codes = program.segments[-1].codes
        spoilt = np.delete(codes[-1], rows_of(program, "exp_lp_v")[-1])
        assert not api.prove(
            _with(program, len(program.segments) - 1, len(codes) - 1, spoilt), model, quick=True
        ).proved


def test_what_a_launch_stores_to_hide_with_may_be_infinite():
    field = Field(1)
    evaluation = Evaluation(Graph(), field, Sources(lambda *_: None))
    mask, other = field.constant(LOWS[0], shape=(2,)), field.constant(0.0, shape=(2,))
    assert (mask.p == LOWEST).all()
    for keep in (evaluation._kept, evaluation._sealed):
        made = keep("mask", mask)
        assert isinstance(made, Elements) and (made.p == HIDDEN).all()
    kept = evaluation._kept("mask", other)
    assert isinstance(kept, Elements) and (kept.p == 0).all()


#: instructions that are left out, one at a time: what is summed before is not rescaled, a mask does not hide, a maximum does not run
#: on, a difference of maxima is no factor, an infinite number is left to hide with
LEFT_OUT = [("mul_vv", LOWS[0]), ("add_vv", LOWS[0]), ("max_vv", LOWS[0]), ("sub_vv", LOWS[0]), ("neg_v", LOWS[0]),
            ("max_vs", LOWS[1])]  # fmt: skip


@pytest.mark.parametrize("name, low", LEFT_OUT)
@pytest.mark.slow(but_every=3)
def test_a_missing_instruction_is_refused(tmp_path, name, low):
    """Wherever results differ, for the rows that see nothing but their last slice of keys, among others."""
    program, model = compiled(tmp_path, low=low)
    feed = {
        n: np.random.default_rng(i).standard_normal((1, 1, KEYS, WIDTH)).astype(np.float32) for i, n in enumerate("qkv")
    }
    right = api.CompiledProgram(program).run(feed)["y"]
    refused = 0
    for row in rows_of(program, name)[::-1]:
        codes = program.segments[-1].codes
        mutant = _with(program, len(program.segments) - 1, len(codes) - 1, np.delete(codes[-1], row))
        if np.array_equal(api.CompiledProgram(mutant).run(feed)["y"], right):
            continue
        assert not api.prove(mutant, model, quick=True).proved, f"{name} in row {row}"
        refused += 1
        if refused == 4:
            break
    assert refused


def test_a_mask_of_weights_is_read_where_the_compiler_did(tmp_path):
    """A band of known keys: the program leaves out what is hidden."""
    i, j = np.ogrid[:KEYS, :KEYS]
    band, path = (j <= i) & (j > i - BLOCK), tmp_path / "model.onnx"

    def model(seen: np.ndarray) -> Path:
        made = parser.parse_model(f"{OPSETS} g ({HEADS} q, {HEADS} k, {HEADS} v) => ({HEADS} y) {{ {ATTENTION} }}")
        mask = np.where(seen, 0, -1e38).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
        onnx.save(made, str(path))
        return path

    program = api.compile(model(band), dtype="bf16", embed_limit_bytes=0).program
    assert api.prove(program, path, quick=True).complete
    report = api.prove(program, model(band & (j > i - BLOCK + 1)), quick=True)
    assert any(f.launch >= 0 for f in report.failures)


ENDLESS_MODELS = {
    "moved": "t = Transpose (x) y = Where (c, t, endless) z = Sqrt (x)",
    "chooses": "e = Where (c, x, endless) f = Less (e, zero) y = Where (f, x, zero) z = Sqrt (x)",
    "of the other sign": "e = Where (c, x, endless) f = Neg (e) y = Transpose (f) z = Sqrt (x)",
}


@pytest.mark.parametrize("low", [float("inf"), float("nan"), float("-inf")])
@pytest.mark.parametrize("what", ENDLESS_MODELS)
@pytest.mark.slow(but_every=5)
def test_infinite_numbers_are_left_out_and_listed(tmp_path, what, low):
    text = f"{OPSETS} g (float[8,8] x, bool[8,8] c) => (float[8,8] y, float[8,8] z) {{ {ENDLESS_MODELS[what]} }}"
    model = parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(x, np.float32), n) for n, x in (("zero", 0.0), ("endless", low))
    )
    onnx.save(model, str(tmp_path / "model.onnx"))
    program = api.compile(tmp_path / "model.onnx", opt=1).program
    report = api.prove(program, tmp_path / "model.onnx", quick=True)
    left_out = {o.why for o in report.outside.values()}
    assert report.proved, "\n".join(report.lines())
    assert left_out <= {ENDLESS} and (left_out or low < 0)
    (i, k, row) = next(
        (i, k, r)
        for i, segment in enumerate(program.segments)
        for k, code in enumerate(segment.codes)
        for r, line in enumerate(code)
        if "sqrt" in class_of(int(line["opcode"])).NAME
    )
    spoilt = _with(program, i, k, np.delete(program.segments[i].codes[k], row))
    assert not api.prove(spoilt, tmp_path / "model.onnx", quick=True).proved
