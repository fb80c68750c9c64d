"""Products that end a launch: what a random vector tells of them, and that the proof does not depend on its lanes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.support.checkpoints import make_checkpoint
from tests.support.proof_runner import proof_by_graph, tables_of
from tx8fast import api
from tx8fast.proof import draw, ends, prove, thin
from tx8fast.proof.cells import UNDEFINED, Elements
from tx8fast.proof.degree import power_of
from tx8fast.proof.ends import ends_of
from tx8fast.proof.evaluate import Evaluation, slice_of
from tx8fast.proof.field import Field
from tx8fast.proof.graph import written_out
from tx8fast.proof.work import lay_out


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    make_checkpoint(path)
    return path


@pytest.fixture(params=[False, True], ids=["stored", "drawn"])
def weights(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(draw, "LARGE", 1)


def test_vectors_decide_without_the_product(llama, weights, monkeypatch):
    """Residual sums, gated products and plain ones: none of a right program is computed."""
    seen = []
    holds = Evaluation.holds
    monkeypatch.setattr(Evaluation, "holds", lambda *a: seen.append((a[1], holds(*a))) or seen[-1][1])
    report = api.prove(api.compile(llama, seq=16).program, llama, quick=True)
    assert report.proved and seen and all(ok for _, ok in seen)
    assert any(e.added for e, _ in seen) and any(not e.added for e, _ in seen)


@pytest.mark.parametrize("word", [1, UNDEFINED])
@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.slow(but_every=5)
def test_one_wrong_element_is_found_and_named(llama, weights, opt, word):
    """In every result of the few launches of opt 2, and in no more than the proof lists of the many of opt 1."""
    planted = []

    def fault(launch, results):
        planted.extend([launch] * len(results))
        for values in results:
            words = values[0].p.copy()
            words.reshape(-1)[7] = words.reshape(-1)[7] ^ word if word == 1 else word
            values[0] = Elements(words, values[0].q)
        return results

    report, _ = proof_by_graph(llama, fault, quick=True, seq=16, opt=opt)
    found = [f.launch for f in report.failures]
    assert found == sorted(planted)[: prove.MOST_FAILURES]
    if opt == 1:
        assert len(found) == prove.MOST_FAILURES < report.segments
    else:
        assert len(set(found)) == report.segments, "launches of equal code are proved once"
    assert all(" 1 of " in f" {f.why}" for f in report.failures)


def test_a_gated_product(llama, weights, monkeypatch):
    """The factor comes off by its inverse; where it is zero a vector does not tell."""
    _, table, sources, _ = tables_of(llama, seq=16)
    graph = written_out(table)
    evaluation = Evaluation(graph, Field(1), sources)
    op = next(op for op in graph.instances if op.record.kind == "swiglu")
    (root,) = op.outputs
    products = [graph.made[graph.roots[name]] for name in op.inputs]
    part = slice_of(graph, [graph.roots[p.inputs[0]] for p in products], [root])
    (end,) = ends_of(graph, part.ops, [root])
    assert end.gate == op.inputs[0] and end.product == products[1]
    assert not ends_of(graph, part.ops, [root, products[1].outputs[0]])  # the product is a result as well
    given = evaluation.given(part)
    (right,) = evaluation.launch(part, given, evaluation.field)[0][root]
    values, _ = evaluation.launch(part, given, evaluation.field, {o.number for o in end.ops})
    assert root not in values and evaluation.holds(end, values, [right], evaluation.field)
    words = right.p.copy()
    words.reshape(-1)[5] ^= 1
    assert not evaluation.holds(end, values, [Elements(words, None)], evaluation.field)

    def with_zero(*a):
        made = real(*a).p.copy()
        made.reshape(-1)[0] = 0
        return Elements(made, None)

    real = ends.activation
    monkeypatch.setattr(ends, "activation", with_zero)
    assert not evaluation.holds(end, values, [right], evaluation.field)


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_lanes(llama, monkeypatch):
    def fault(launch, results):
        if launch % 2:
            words = results[0][0].p.copy()
            words.reshape(-1)[launch] ^= 1
            results[0][0] = Elements(words, results[0][0].q)
        return results

    found = []
    for n in (1, 2, 3):
        monkeypatch.setattr(prove, "lanes", lambda n=n: n)
        right = api.prove(api.compile(llama, seq=16).program, llama)
        wrong, _ = proof_by_graph(llama, fault, quick=True, seq=16)
        assert right.proved and not wrong.proved
        found.append((right.to_json(), wrong.to_json()))
    assert found[0] == found[1] == found[2]


def test_which_weights_are_thin(llama, tmp_path, monkeypatch):
    """Matrices that one product alone multiplies by, so few times that their rank does not show."""
    monkeypatch.setattr(draw, "LARGE", 1)

    def chosen(model, **options):
        program, table, sources, describe = tables_of(model, **options)
        graph = written_out(table)
        works = lay_out(program, graph, describe).works
        return graph, thin.thin_roots(graph, works, sources), works

    graph, roots, works = chosen(llama, seq=16)
    names = {graph.params[root] for root in roots}
    assert any("gate_proj" in n for n in names) and any("q_proj" in n for n in names)
    assert not any("norm" in n for n in names) and not any("embed" in n for n in names)
    part = next(w.part for w in works if w.part and any(r in roots for r in w.part.sources))
    root = next(r for r in part.sources if r in roots)
    assert power_of(graph, part, root) == 2
    monkeypatch.setattr(thin, "RANK", 1)
    assert not chosen(llama, seq=16)[1]
    monkeypatch.setattr(thin, "RANK", 8)
    nodes = "a = MatMul (x, w) b = MatMul (x, v) c = Mul (b, b) d = Mul (c, c) e = Mul (d, b) f = MatMul (x, u) g = MatMul (f, u) " \
            "h = Add (a, e) y = Add (g, h)"  # fmt: skip
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 20]> g (float[9,16] x) => (float[9,16] y) {{ {nodes} }}'
    )
    for name in "wvu":
        model.graph.initializer.append(numpy_helper.from_array(np.zeros((16, 16), np.float32), name))
    onnx.save(model, str(tmp_path / "m.onnx"))
    graph, roots, _ = chosen(tmp_path / "m.onnx")
    short = {root: key[-1] for root, key in graph.params.items()}
    whole = slice_of(graph, [], [graph.roots[name] for name in graph.results])
    assert {short[root]: power_of(graph, whole, root) for root in short} == {"w": 2, "v": 10, "u": 4}
    assert "w" in {short[r] for r in roots} and "u" not in {short[r] for r in roots}  # u is used twice


def test_a_product_reads_another_view_of_its_operand(tmp_path):
    """The operand's value has a dimension more."""
    text = """
    module {
      func.func public @main(%x: tensor<1x17x64xf32>) -> tensor<17x64xf32> {
        %0 = stablehlo.reshape %x : (tensor<1x17x64xf32>) -> tensor<17x64xf32>
        %1 = stablehlo.sine %0 : tensor<17x64xf32>
        %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<17x64xf32>) -> tensor<64x17xf32>
        %3 = stablehlo.dot_general %0, %2, contracting_dims = [1] x [0] : (tensor<17x64xf32>, tensor<64x17xf32>) -> tensor<17x17xf32>
        %4 = stablehlo.tanh %3 : tensor<17x17xf32>
        %5 = stablehlo.dot_general %4, %0, contracting_dims = [1] x [0] : (tensor<17x17xf32>, tensor<17x64xf32>) -> tensor<17x64xf32>
        %6 = stablehlo.add %5, %0 : tensor<17x64xf32>
        return %6 : tensor<17x64xf32>
      }
    }"""
    (tmp_path / "net.mlir").write_text(text)
    assert api.prove(api.compile(tmp_path / "net.mlir", opt=1).program, tmp_path / "net.mlir").proved
