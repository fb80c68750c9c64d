"""The field machine on whole programs: equal models give equal elements, changed programs other ones."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.proof.programs import results, undefined
from tests.support.corpus import small_cnn
from tx8fast import api, isa
from tx8fast.errors import SimulationError
from tx8fast.program.model import Launch, Segment
from tx8fast.proof.cells import Elements
from tx8fast.proof.field import Field
from tx8fast.proof.machine import Machine, View

CONFIGS = {
    "llama": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 1e4,
              "tie_word_embeddings": False},
    "bert": {"model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
             "vocab_size": 64, "max_position_embeddings": 32, "hidden_act": "gelu", "type_vocab_size": 2},
}  # fmt: skip
VARIANTS = ({"opt": 1}, {"opt": 2}, {"opt": 3}, {"opt": 1, "sharing": False}, {"opt": 2, "sharing": False})

FEW = ({"opt": 1}, {"opt": 3})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of one layer (two exponentials in a row need sealed launches), each with its options."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    small_cnn(folder)
    return {
        "llama prefill": (folder / "llama", {"seq": 24}),
        "llama decode": (folder / "llama", {"phase": "decode", "past": 8}),
        "bert": (folder / "bert", {"seq": 16}),
        "cnn": (folder / "cnn.onnx", {}),
    }


@pytest.mark.parametrize(
    "name, dtype, variants",
    [("llama prefill", "bf16", VARIANTS), ("llama prefill", "fp32", FEW), ("llama decode", "bf16", FEW), ("bert", "bf16", FEW),
     ("cnn", "bf16", FEW), ("cnn", "fp32", FEW)],
)  # fmt: skip
@pytest.mark.slow
def test_every_compilation_of_a_model_gives_the_same_elements(models, name, dtype, variants):
    path, options = models[name]
    expected: dict[str, np.ndarray] = {}
    for variant in variants:
        found = results(api.compile(path, dtype=dtype, **options, **variant).program)
        assert undefined(found) == 0, variant
        expected = expected or found
        for key, words in found.items():
            assert (words == expected[key]).all(), (variant, key)


def test_two_chips_give_the_same_elements(models):
    path, options = models["llama prefill"]
    program = api.compile(path, dtype="bf16", chips=(2, 1), **options).program
    assert program.n_chips == 2
    found, expected = results(program), results(api.compile(path, dtype="bf16", **options).program)
    assert undefined(found) == 0
    for key in set(found) & set(expected):
        assert (found[key] == expected[key]).all(), key


@pytest.fixture(scope="module")
def baseline(models):
    path, options = models["llama prefill"]
    program = api.compile(path, dtype="bf16", **options).program
    return program, results(program)


def _changed(program, opcode: str, field: str, by):
    """Return the program with `field` of the first row of that name in every code array changed, or None if there is none."""
    made, hit = copy.deepcopy(program), False
    cls = isa.instruction(opcode)
    for segment in made.segments:
        for code in segment.codes:
            at = np.flatnonzero(code["opcode"] == cls.OPCODE)[:1]
            for k in at.tolist():
                hit = True
                if field in cls.FIELDS_P:
                    code["p"][k, cls.FIELDS_P.index(field)] = by(int(code["p"][k, cls.FIELDS_P.index(field)]))
                elif field in cls.FIELDS_SPM:
                    code["spm"][k, cls.FIELDS_SPM.index(field)] = by(int(code["spm"][k, cls.FIELDS_SPM.index(field)]))
                else:
                    code[field][k] = by(int(code[field][k]))
    return made if hit else None


MUTANTS = [
    ("gemm", "psum_en", lambda x: 1 - x), ("gemm", "k", lambda x: x - 1), ("gemm", "r_trs", lambda x: 1 - x),
    ("gemm", "left", lambda x: x + 256), ("rdma", "ddr", lambda x: x + 2), ("rdma", "run_bytes", lambda x: x - 2),
    ("wdma", "ddr", lambda x: x + 128), ("mul_vs", "scalar", lambda x: x + 1), ("add_vs", "scalar", lambda x: x + 1),
    ("reduce_avg", "c", lambda x: x - 1), ("reduce_sum", "c", lambda x: x - 1), ("cvt_bf16_f32", "n", lambda x: x - 4),
    ("sub_vv", "src0", lambda x: x + 128), ("gather_scatter", "size", lambda x: x - 2), ("send", "bytes", lambda x: x - 2),
    ("memset", "value", lambda x: x ^ 0x40),
]  # fmt: skip


@pytest.mark.parametrize("opcode, field, by", MUTANTS)
def test_changed_programs_give_other_elements(baseline, opcode, field, by):
    program, expected = baseline
    changed = _changed(program, opcode, field, by)
    if changed is None:
        pytest.skip(f"the program has no {opcode}")
    try:
        found = results(changed)
    except SimulationError:
        return
    assert undefined(found) or any((found[key] != expected[key]).any() for key in expected)


def test_a_row_without_a_meaning_is_an_error_by_name(models):
    path, options = models["llama prefill"]
    program = copy.deepcopy(api.compile(path, dtype="bf16", **options).program)
    code = program.segments[-1].codes[0]
    at = int(np.flatnonzero(code["opcode"] == isa.instruction("rdma").OPCODE)[0])
    code[at] = isa.rows([isa.make("argmax", src0=int(code["spm"][at, 0]), n=4, fmt=3)])[0]
    with pytest.raises(SimulationError, match="'argmax' have no meaning in the proof"):
        results(program)


def test_a_field_that_no_meaning_reads_must_hold_its_default(models):
    path, options = models["llama prefill"]
    program = _changed(api.compile(path, dtype="bf16", **options).program, "gemm", "quant", lambda x: 3)
    assert program is not None
    with pytest.raises(SimulationError, match="'gemm' set quant"):
        results(program)


def test_a_flag_that_is_neither_on_nor_off_is_an_error(models):
    path, options = models["llama prefill"]
    program = _changed(api.compile(path, dtype="bf16", **options).program, "gemm", "r_trs", lambda x: x + 64)
    assert program is not None
    with pytest.raises(SimulationError, match="'gemm' set r_trs"):
        results(program)


def test_counts_that_no_operand_can_have_are_errors(models):
    path, options = models["llama prefill"]
    for name, field in (("rdma", "n1"), ("reduce_avg", "c"), ("mul_vv", "n")):
        program = _changed(api.compile(path, dtype="bf16", **options).program, name, field, lambda x: -2)
        if program is not None:
            with pytest.raises(SimulationError, match=name):
                results(program)


def test_tensors_are_written_and_read(models):
    path, options = models["llama prefill"]
    program = api.compile(path, dtype="bf16", **options).program
    field = Field(3)
    machine = Machine(program, field)
    (tensor,) = [t for t in program.outputs if t.name == "logits"]
    value = field.random("x", tuple(tensor.shape))
    machine.replace(tensor, value)
    found = machine.read(tensor)
    assert (
        isinstance(found, Elements)
        and (found.p == value.p).all()
        and found.q is not None
        and (found.q == value.q).all()
    )
    view = View(tensor.address, (4, 3), "i64", "dense")
    numbers = np.arange(12).reshape(4, 3) - 6
    machine.write(view, numbers)
    assert np.array_equal(np.asarray(machine.read(view)), numbers)
    # what was written as integers is no element
    floats = machine.read(View(tensor.address, (8,), "bf16", "dense"))
    assert isinstance(floats, Elements) and (floats.p >> 31).any()
    with pytest.raises(SimulationError, match="found"):
        machine.write(tensor, numbers)


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_tile_takes_without_waiting_shows_in_the_other_order(models, waits):
    """Tile 0 stores, tile 1 loads that and stores it elsewhere."""
    run = {"slot": 0, "run_bytes": 64, "n0": 1, "n1": 1, "n2": 1}
    barrier = [isa.make("barrier")] if waits else []
    fill = isa.make("memset", fmt=3, dst=65536, value=0x3F80, n=32, n0=1, n1=1, n2=1)
    codes = [isa.rows([fill, isa.make("wdma", src=65536, **run), *barrier]),
             isa.rows([*barrier, isa.make("rdma", dst=65536, **run), isa.make("wdma", src=65536, ddr=64, **run)])]  # fmt: skip
    path, options = models["llama prefill"]
    program = copy.deepcopy(api.compile(path, dtype="bf16", **options).program)
    where = program.outputs[0].address
    n_tiles = len(program.segments[0].tile_code)
    tiles = np.array([0, 1] + [-1] * (n_tiles - 2))
    segment = Segment("s", codes, tiles, np.zeros(1, np.int32), np.zeros((n_tiles, 1), np.int64), 1, ["op"])
    program = replace(program, segments=[segment], launches=[Launch(0, np.array([where]), "s")])
    known = []
    for backwards in (False, True):
        machine = Machine(program, Field(1), backwards)
        machine.launch(0)
        read = machine.read(View(where + 64, (32,), "bf16", "dense"))
        known.append(bool((read.values() == 1).all()))
    assert known == [True, waits]


def test_a_tile_runs_ahead_of_others_whose_product_was_made_ready_with_its_own(models):
    """Two tiles multiply the same; the first then sends zeros to where the second's operand lies, which nothing holds back."""
    one, zero, left, right, out = 0x3F80, 0, 0, 16384, 32768
    fill = [isa.make("memset", fmt=3, dst=at, value=value, n=64 * 64, n0=1, n1=1, n2=1) for at, value in ((left, one), (right, one), (49152, zero))]  # fmt: skip
    gemm = isa.make("gemm", fmt=3, left=left, right=right, out=out, m=64, k=64, n=64, batch_l=1, batch_r=1, out_fmt=3, psum_fmt=5,
                    bias_fmt=5)  # fmt: skip
    size = 2 * 64 * 64
    send = isa.make("send", src=49152, dst=left, bytes=size, mask=2, monitor=0, chip=0)
    store = isa.make("wdma", src=out, slot=0, run_bytes=size, n0=1, n1=1, n2=1)
    codes = [isa.rows([*fill, gemm, send]), isa.rows([*fill, gemm, isa.make("recv", monitor=0, bytes=size), store])]
    path, options = models["llama prefill"]
    program = copy.deepcopy(api.compile(path, dtype="bf16", **options).program)
    where, n_tiles = program.outputs[0].address, len(program.segments[0].tile_code)
    tiles = np.array([0, 1] + [-1] * (n_tiles - 2))
    segment = Segment("s", codes, tiles, np.zeros(1, np.int32), np.zeros((n_tiles, 1), np.int64), 1, ["op"])
    program = replace(program, segments=[segment], launches=[Launch(0, np.array([where]), "s")])
    found = []
    for backwards in (False, True):
        machine = Machine(program, Field(1), backwards)
        machine.launch(0)
        found.append(set(machine.read(View(where, (64 * 64,), "bf16", "dense")).values().tolist()))
    assert found == [{0}, {64}]
