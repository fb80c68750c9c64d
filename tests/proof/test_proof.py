"""Proofs of whole programs: right ones pass, spoiled ones are refused, and what lies outside is named."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA, small_cnn
from tests.support.family_checkpoints import make_family
from tests.support.proof_runner import proof_by_graph, tables_of
from tx8fast import api, isa
from tx8fast.errors import ProgramError
from tx8fast.program.model import Launch
from tx8fast.proof import draw
from tx8fast.proof.cells import Elements
from tx8fast.proof.degree import degree_of
from tx8fast.proof.evaluate import slice_of
from tx8fast.proof.field import Field
from tx8fast.proof.graph import written_out

FAULTY = DATA / "proof"


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    make_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def cnn(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cnn")
    small_cnn(path)
    return path / "cnn.onnx"


def proved(model: Path, quick: bool = True, **options) -> None:
    report = api.prove(api.compile(model, **options).program, model, quick=quick)
    assert report.proved and not report.outside, "\n".join(report.lines())
    assert report.compared and report.ran


# --- right programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {"seq": 16, "opt": 1}, {"seq": 16, "opt": 2}, {"seq": 16, "opt": 3}, {"seq": 16, "sharing": False},
    {"seq": 20, "dtype": "bf16"}, {"seq": 20, "dtype": "fp16"}, {"phase": "decode", "past": 16, "dtype": "bf16"},
    {"phase": "decode", "past": 16, "opt": 3}, {"seq": 16, "dtype": "bf16", "io_dtype": "fp32"}, {"seq": 16, "tp": 2}, {"phase": "decode", "past": 16, "tp": 2},
])  # fmt: skip
@pytest.mark.slow(but_every=5)
def test_llama(llama, options):
    proved(llama, **options)


@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.slow(but_every=4)
def test_cnn(cnn, opt):
    proved(cnn, opt=opt)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.slow(but_every=4)
def test_bert(tmp_path, dtype):
    make_family(tmp_path / "bert", "bert")
    proved(tmp_path / "bert", seq=6, dtype=dtype)


def test_all_seeds_reach_the_stated_probability(llama):
    report = api.prove(api.compile(llama, seq=16).program, llama)
    assert report.proved and report.seeds >= 2 and report.bits >= 40
    assert f"2^-{math.floor(report.bits)}" in "\n".join(report.lines())


def test_equal_launches_are_proved_once(llama):
    make_checkpoint(llama / "deep", layers=4)
    report = api.prove(api.compile(llama / "deep", seq=16).program, llama / "deep", quick=True)
    assert report.proved and len(report.ran) < report.launches


def test_large_weights_are_the_same_piece_by_piece(llama, monkeypatch):
    monkeypatch.setattr(draw, "LARGE", 1)
    monkeypatch.setattr("tx8fast.proof.expressions_products.PIECE", 256)
    proved(llama, seq=16)


def test_a_concatenation_done_in_steps_is_proved():
    proved(DATA / "found" / "concat_many_operands.onnx", opt=3)


def test_each_hash_counts_once_in_a_net_of_residual_blocks(tmp_path):
    """Ways that part and meet again do not double the degree: with them, 12 blocks would leave 8 bits."""
    bits = {}
    for blocks in (2, 12):
        x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 16]) for n in "xy")
        nodes, at = [], "x"
        for i in range(blocks):
            out = "y" if i == blocks - 1 else f"s{i}"
            nodes += [
                onnx.helper.make_node("Relu", [at], [f"r{i}"]),
                onnx.helper.make_node("Add", [at, f"r{i}"], [out]),
            ]
            at = out
        path = tmp_path / f"{blocks}.onnx"
        graph = onnx.helper.make_graph(nodes, "g", [x], [y])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]), str(path))
        own = written_out(tables_of(path)[1])
        degree = degree_of(own, slice_of(own, [], [own.roots[name] for name in own.results]), {})
        assert len(degree.nested) == blocks
        bits[blocks] = degree.bits(Field(1))
    assert 23 - 6 < bits[12] < bits[2] < 23 - 3


# --- wrong programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, why", [
    ("mc_relu_scatter_squeeze", "lies there"), ("conv_pool_opt3_wrong_relu", "elements differ"),
    ("gt_only", "elements differ"),
])  # fmt: skip
def test_programs_of_a_compiler_with_defects_are_refused(name, why):
    """Each is what an earlier compiler made of the model beside it, and gives wrong numbers."""
    report = api.prove(api.load(FAULTY / f"{name}.tx8").program, FAULTY / f"{name}.onnx", quick=True)
    assert not report.proved and why in "\n".join(report.lines())
    assert report.lines()[0].startswith("not proved: ")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["gt_only", "mini_two", "product_greater", "product_less_tail", "product_where_mask"])
@pytest.mark.slow(but_every=7)
def test_truth_values_of_numbers_are_proved(name, dtype):
    folders = (DATA / "found", DATA.parent / "hunt" / "corpus")
    proved(next(p for d in folders if (p := d / f"{name}.onnx").exists()), dtype=dtype)


def test_truth_values_in_blocks_of_numbers_are_refused():
    """128 channels of one byte are one block, of four bytes two: bytes that lie as numbers would are other elements."""

    def change(program):
        segment = program.segments[1]
        stores = [isa.decode(row) for row in segment.codes[0] if isa.decode(row)["name"] == "wdma"]
        slot, (_, rows, _) = stores[0]["slot"], program.outputs[0].shape
        for code in segment.codes:
            code["p"][code["opcode"] == isa.instruction("wdma").OPCODE, 1] = 64
        offsets = segment.tile_offset[:, slot]
        segment.tile_offset[:, slot] = offsets % 128 // 64 * rows * 64 + offsets // 128 * 64

    assert "elements differ" in spoiled(FAULTY / "gt_only.onnx", change)


@lru_cache(maxsize=4)
def compiled(model: Path, **options):
    return api.compile(model, **options).program


def spoiled(model: Path, change, **options) -> str:
    """Return the text of a proof of a program that `change` spoiled; it must be refused."""
    program = copy.deepcopy(compiled(model, **options))
    change(program)
    report = api.prove(program, model, quick=True)
    assert not report.proved
    return "\n".join(report.lines())


def edit(program, segment: str, name: str, nth: int, new: dict[str, int] | None) -> None:
    """Give new values to fields of the nth row called `name` of the first code of a segment that has one; None drops the row."""
    opcode = isa.instruction(name).OPCODE
    where = next(x for x in program.segments if segment in x.name and (x.codes[0]["opcode"] == opcode).any())
    code = where.codes[0]
    at = [i for i, row in enumerate(code) if isa.decode(row)["name"] == name][nth]
    if new is None:
        where.codes[0] = np.delete(code, at)
        return
    fields = {**isa.decode(code[at]), **new}
    given = {k: v for k, v in fields.items() if k not in ("name", "engine", "depth", "ddr_step")}
    changed = code.copy()
    changed[at : at + 1] = isa.rows([isa.make(name, **given)])
    where.codes[0] = changed


#: what is done -> segment, row, which of them, new fields
LLAMA_FAULTS = {
    "store deleted": ("scores+mix", "wdma", 0, None),
    "mask dropped": ("scores+mix", "add_vv", 0, None),
    "rescale missing": ("scores+mix", "mul_vv", 0, None),
    "scale of scores dropped": ("scores+mix", "mul_vs", 0, None),
    "scale one unit off": ("scores+mix", "mul_vs", 0, {"scalar": 1048576001}),
    "maximum not subtracted": ("scores+mix", "neg_v", 0, None),
    "maximum over one key fewer": ("scores+mix", "reduce_max", 0, {"w": 7}),
    "keys not transposed": ("scores+mix", "gemm", 0, {"r_trs": 1}),
    "values transposed": ("scores+mix", "gemm", 3, {"r_trs": 0}),
    "another slot": ("scores+mix", "rdma", 3, {"slot": 0}),
    "one row of an operand further": ("scores+mix", "rdma", 1, {"ddr": 64}),
    "half of a rope lane moved elsewhere": ("k_rope", "gather_scatter", 2, None),
    "rope added to itself": ("k_rope", "add_vv", 0, None),
    "eps left out": ("norm+lm_head", "add_vs", 0, None),
    "mean of another count": ("norm+lm_head", "mul_vs", 0, {"scalar": 1015021568 + 8192}),
    "residual left out": ("mlp_residual", "add_vv", 0, None),
    "gate not activated": ("mlp_residual", "sigmoid_v", 0, None),
    "gate and up exchanged": ("mlp_residual", "mul_vv", 0, {"src1": None}),
    "load deleted": ("norm+lm_head", "rdma", 1, None),
}
CNN_FAULTS = {
    "stride": ("", "conv", 0, {"sx": 1}),
    "window": ("", "pool_max", 0, {"kx": 1}),
    "activation dropped": ("", "relu_v", 0, None),
    "bias dropped": ("", "add_vuv", 0, None),
    "residual left out": ("", "add_vv", 0, None),
    "mean over fewer positions": ("", "reduce_avg", 0, {"h": 3}),
    "rounded to zero": ("", "conv", 0, {"rnd": 1}),
}


@pytest.mark.parametrize("fault", LLAMA_FAULTS)
@pytest.mark.parametrize("least", [draw.LARGE, 1], ids=["", "thin"])
@pytest.mark.slow(but_every=5)
def test_faults_of_a_transformer_are_refused(llama, fault, least, monkeypatch):
    """Also where every matrix of weights is drawn as one of low rank."""
    monkeypatch.setattr(draw, "LARGE", least)
    segment, name, nth, new = LLAMA_FAULTS[fault]

    def change(program):
        values = new
        if fault == "gate and up exchanged":  # the activated gate meets itself, not up
            row = next(isa.decode(r) for x in program.segments if segment in x.name for r in x.codes[0]
                       if isa.decode(r)["name"] == name)  # fmt: skip
            values = {"src1": row["src0"]}
        edit(program, segment, name, nth, values)

    spoiled(llama, change, seq=16)


@pytest.mark.parametrize("name, field", [("mask_move", "n"), ("reduce_max", "c"), ("rdma_row", "entries")])
@pytest.mark.slow(but_every=4)
def test_what_only_the_last_place_shows_is_refused(llama, name, field):
    """The first seed writes to the last place of the cache but one, the second to the last."""
    program = copy.deepcopy(compiled(llama, phase="decode", past=16, dtype="bf16"))
    where = next(x for x in program.segments if (x.codes[0]["opcode"] == isa.instruction(name).OPCODE).any())
    code = where.codes[0]
    row = int(np.flatnonzero(code["opcode"] == isa.instruction(name).OPCODE)[0])
    code["p"][row, isa.instruction(name).FIELDS_P.index(field)] -= 1
    report = api.prove(program, llama)
    assert not report.proved and report.seeds == 2


@pytest.mark.parametrize("fault", CNN_FAULTS)
@pytest.mark.slow(but_every=5)
def test_faults_of_a_convolution_net_are_refused(cnn, fault):
    spoiled(cnn, lambda program: edit(program, *CNN_FAULTS[fault]))


def swap(program, launch: int, a: int, b: int) -> None:
    args = program.launches[launch].args.copy()
    args[[a, b]] = args[[b, a]]
    program.launches[launch] = replace(program.launches[launch], args=args)


def test_outputs_under_other_names_or_formats_are_refused(llama):
    """A user takes results by name, in the format that the program says."""
    program = copy.deepcopy(compiled(llama, seq=16))
    first, second = (t for t in program.outputs if t.name.startswith("present.0."))
    first.name, second.name = second.name, first.name
    with pytest.raises(
        ProgramError, match="output 1: the program calls it 'present.0.value', the model 'present.0.key'"
    ):
        api.prove(program, llama)
    program = copy.deepcopy(compiled(llama, seq=16))
    program.outputs[0].dtype, program.inputs[0].dtype = "bf16", "i16"
    with pytest.raises(ProgramError, match=r"'input_ids'.* gives i16 where i64(.|\n)*'logits'.* bf16 where f32"):
        api.prove(program, llama)


def test_weights_in_the_program_are_the_models(llama):
    """Small ones lie in the file: two of them exchanged, two rows of one exchanged."""

    def exchanged(program):
        one, two = [t for t in program.params if t.embedded >= 0 and t.shape == (64, 96)][:2]
        one.embedded, two.embedded = two.embedded, one.embedded

    def permuted(program):
        at, row = next(t.embedded for t in program.params if t.shape == (64, 96)), 96 * 4
        data = bytearray(program.data)
        data[at : at + row], data[at + row : at + 2 * row] = data[at + row : at + 2 * row], data[at : at + row]
        program.data = bytes(data)

    assert "2 problems" in spoiled(llama, exchanged, seq=16)
    assert "bytes that the program holds are not the model's" in spoiled(llama, permuted, seq=16)


def test_exchanged_arguments_are_refused_by_the_ledger(llama):
    def change(program):
        kinds = [[(a.shape, a.layout) for a in program.segments[x.segment].arguments] for x in program.launches]
        at, one, two = next((n, i, j) for n, of in enumerate(kinds) for i in range(len(of)) for j in range(i)
                            if of[i] == of[j] and "norm" in program.launches[n].name)  # fmt: skip
        swap(program, at, one, two)

    assert "lies there" in spoiled(llama, change, seq=16)


def test_a_deleted_launch_is_refused(llama):
    text = spoiled(llama, lambda program: program.launches.pop(3), seq=16)
    assert "nothing was stored there" in text or "lies there" in text


def test_a_value_that_is_stored_over_is_refused(llama):
    def change(program):
        first = program.launches[0]
        program.launches.insert(2, Launch(first.segment, first.args, "again", first.values))
        program.launches[2] = replace(
            program.launches[2], args=np.array([*first.args[:-1], program.launches[1].args[-1]])
        )

    assert "again" in spoiled(llama, change, seq=16)


def test_a_failure_names_element_launch_and_tensor(llama):
    text = spoiled(llama, lambda p: edit(p, "mlp_residual", "add_vv", 0, None), seq=16)
    assert "mlp_residual" in text and "elements differ, the first at [0, 0, 0]" in text and "value " in text


def test_a_program_of_another_model_is_refused(llama, cnn):
    with pytest.raises(ProgramError, match="input 'x'"):
        api.prove(api.compile(cnn).program, llama, api.CompileOptions(seq=16))
    program = api.compile(llama, seq=16).program
    program.launches[0] = replace(program.launches[0], values=())
    with pytest.raises(ProgramError, match="does not name its values; compile the model again"):
        api.prove(program, llama)


# --- the driver, with a runner that is right by construction --------------------------------------------------------


def test_an_element_that_differs_in_one_late_seed_is_found(llama):
    calls: dict[int, int] = {}

    def fault(launch, results):
        calls[launch] = calls.get(launch, 0) + 1
        if launch == 3 and calls[launch] == 2:
            words = results[0][0].p.copy()
            words.reshape(-1)[5] ^= 1
            results[0][0] = Elements(words, results[0][0].q)
        return results

    report, runners = proof_by_graph(llama, fault, seq=16)
    assert not report.proved and report.failures[0].launch == 3 and "1 of " in report.failures[0].why
    assert {r.evaluation.field.seed for r in runners} == {1, 2}


def test_undefined_elements_count_as_different(llama):
    def fault(launch, results):
        return [[Elements(np.full_like(v.p, 1 << 31), v.q) for v in values] for values in results]

    report, _ = proof_by_graph(llama, fault, quick=True, seq=16)
    assert report.failures and "an undefined element" in report.failures[0].why


def test_what_is_outside_is_named_with_its_share(llama, monkeypatch):
    from tx8fast.proof.expression import EXPRESSIONS

    monkeypatch.delitem(EXPRESSIONS, "softmax")
    report, _ = proof_by_graph(llama, quick=True, seq=16)
    assert report.proved and 0 < report.share_outside < 1
    assert "softmax: this kind has no expression" in "\n".join(report.lines())
    assert report.to_json()["outside"][0]["elements"] > 0
