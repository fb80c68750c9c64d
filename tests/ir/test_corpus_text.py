"""Every graph of the corpus, after every stage of the pipeline: text reads back, and MLIR reads it too."""

import collections
import json

import pytest
from support.family_checkpoints import CONFIGS

from tests.support.corpus import MODELS, exported
from tests.support.every_kind import every_kind
from tx8fast.frontend import open_model
from tx8fast.ir import new_context
from tx8fast.ir.clone import equal
from tx8fast.ir.parser import parse_op
from tx8fast.ir.printer import print_op
from tx8fast.passes.pipeline import backend_passes, graph_passes, run_pipeline


def config_program(name, tmp_path):
    config = {"model_type": name.partition("-")[0], "torch_dtype": "float32", **CONFIGS[name]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return open_model(path, seq=8)


def stages(program):
    """Yield the program after import, clean-up and outlining, layouts and groups, and constants as loads."""
    yield "import", program
    for name, passes in (("graph", graph_passes()), ("back end", backend_passes()), ("loads", "move-constants")):
        run_pipeline(program, passes, verify_between=False)
        yield name, program


def round_trip(program):
    for locations in (False, True):
        text = program.text(locations)
        back = parse_op(program.ctx, text)
        assert print_op(back, locations) == text and equal(back, program.module)
    return text


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow(but_every=5)
def test_models_round_trip_after_every_stage(model):
    for _, program in stages(exported(model)):
        round_trip(program)
        program.verify(2)


def test_the_corpus_is_complete(data_dir):
    assert {p.stem for p in (data_dir / "onnx").glob("*.onnx")} <= set(MODELS), "name the new model in MODELS"


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_round_trip_after_every_stage(tmp_path, name):
    for _, program in stages(config_program(name, tmp_path)):
        round_trip(program)


def mlir():
    """Return (context, parse): the parser of MLIR, which knows none of our kinds."""
    ir = pytest.importorskip("jaxlib.mlir.ir")
    context = ir.Context()
    context.allow_unregistered_dialects = True
    return context, ir


def oracle(program):
    """MLIR accepts the text, finds the same ops, and its own text is a fixpoint."""
    context, ir = mlir()
    text = program.text()
    with context, ir.Location.unknown():
        read = ir.Operation.parse(text)
        again = read.get_asm(print_generic_op_form=True)
        assert ir.Operation.parse(again).get_asm(print_generic_op_form=True) == again
        found = collections.Counter()

        def count(op):
            found[op.operation.name, len(op.operation.operands), len(op.operation.results)] += 1
            for region in op.operation.regions:
                for block in region:
                    for inner in block:
                        count(inner)

        count(read)
    ours = collections.Counter((op.name, len(op.operands), len(op.results)) for op in program.module.walk())
    assert found == ours


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow(but_every=5)
def test_mlir_reads_models_after_every_stage(model):
    mlir()
    for _, program in stages(exported(model)):
        oracle(program)


@pytest.mark.parametrize("name", CONFIGS)
def test_mlir_reads_configurations(tmp_path, name):
    mlir()
    program = config_program(name, tmp_path)
    run_pipeline(program, [*graph_passes(), *backend_passes()], verify_between=False)
    oracle(program)


def test_mlir_reads_every_kind():
    mlir()
    oracle(every_kind(new_context()))


def test_mlir_refuses_a_number_taken_twice():
    """The oracle can fail: a nested region must not use a number of its surroundings again."""
    context, ir = mlir()
    program = every_kind(new_context())
    text = program.text().replace('%1 = "tx8be.relu"(%0)', '%0 = "tx8be.relu"(%0)', 1)
    assert text != program.text()
    with context, pytest.raises(Exception, match="redefinition"):
        ir.Operation.parse(text)
