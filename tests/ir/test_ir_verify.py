"""The verifier: every code has a graph that triggers it, and reports stay short."""

import time

import numpy as np
import pytest
from support.toy_dialect import Toy

from tx8fast.errors import VerifyError
from tx8fast.ir import Builder, new_context
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.diagnostics import CODES, op_path
from tx8fast.ir.verify import check, verify


class Weights(dict):
    """Key -> object with shape and dtype, as the weight table."""


def few_operands(t):
    t.b.op("toy.add", t.args[0], result_types=[t.type])


def many_results(t):
    t.b.op("toy.relu", t.args[0], result_types=[t.type, t.type])


def bad_attribute(t):
    t.b("toy.scale", t.args[0]).op.attrs["by"] = 2


def extra_attribute(t):
    t.b("toy.relu", t.args[0]).op.attrs["note"] = 2


def lost_use(t):
    t.b("toy.relu", t.args[0])
    t.args[0].uses.clear()


def stale_use(t):
    x = t.b("toy.relu", t.args[0])
    y = t.b("toy.relu", x)
    x.uses[y.op, 7] = None


def use_before_definition(t):
    x = t.b("toy.relu", t.args[0])
    y = t.b("toy.relu", x)
    y.op.detach()
    t.body.insert_before(x.op, y.op)


def sibling_region(t):
    scope = t.b.op("toy.scope", n_regions=2, result_types=[])
    inner = None
    for region in scope.regions:
        b = Builder(t.ctx, region.add_block())
        inner = b("toy.relu", inner or t.args[0])
        b.op("toy.yield", inner, result_types=[])


def crosses(t):
    group = t.b.op("group", n_regions=1, result_types=[])
    b = Builder(t.ctx, group.regions[0].add_block())
    b("toy.relu", t.args[0])
    b.op("group_return", result_types=[])


def no_terminator(t):
    t.b.op("group", n_regions=1, result_types=[]).regions[0].add_block()


def early_terminator(t):
    t.b.op("return", result_types=[])


def broken_chain(t):
    a = t.b("toy.relu", t.args[0]).op
    b = t.b("toy.relu", t.args[0]).op
    a.order = b.order + 1


def two_symbols(t):
    for _ in range(2):
        _, b = t.subgraph("s")
        b.op("subgraph_return", result_types=[])


def unknown_callee(t):
    t.b.op("call", callee="nobody", result_types=[])


def wrong_call(t):
    op, b = t.subgraph("s")
    b.op("subgraph_return", op.body.args[0], result_types=[])
    t.b.op("call", t.args[0], callee="s", result_types=[t.ctx.tensor((5,), "f32")])


def recursion(t):
    for name, other in (("s", "u"), ("u", "s")):
        op, b = t.subgraph(name)
        r = b("call", op.body.args[0], callee=other, result_types=[t.type])
        b.op("subgraph_return", r, result_types=[])


def group_mismatch(t):
    group = t.b.op("group", t.args[0], n_regions=1, result_types=[t.type])
    b = Builder(t.ctx, group.regions[0].add_block([t.type]))
    b.op("group_return", result_types=[])


def trait(t):
    t.const(1, 2, 3, 4).op.operands.append(t.args[0])
    constant = t.body.last
    t.args[0].uses[constant, 0] = None


def none_operand(t):
    none = t.b("none", result_types=[t.ctx.types.none])
    t.b.op("toy.relu", none, result_types=[t.type])


def wrong_type(t):
    t.b.op("toy.relu", t.args[0], result_types=[t.ctx.tensor((5,), "f32")])


def missing_parameter(t):
    t.program.weights = Weights()
    t.b("get_param", key="w", result_types=[t.type])


CASES = {
    "IR001": few_operands, "IR002": many_results, "IR003": bad_attribute, "IR004": extra_attribute, "IR005": lost_use,
    "IR006": use_before_definition, "IR007": crosses, "IR008": no_terminator, "IR009": broken_chain,
    "IR010": two_symbols, "IR011": unknown_callee, "IR012": wrong_call, "IR013": recursion, "IR014": group_mismatch,
    "IR015": trait, "IR016": none_operand, "IR020": wrong_type, "IR023": missing_parameter,
}  # fmt: skip
SECOND = {"IR005": stale_use, "IR006": sibling_region, "IR008": early_terminator}


def findings(spoil, level=2):
    t = Toy()
    spoil(t)
    t.ret(t.args[0])
    return t, check(t.module, level, t.program.weights)


@pytest.mark.parametrize("code, spoil", [*CASES.items(), *SECOND.items()], ids=lambda c: getattr(c, "__name__", c))
def test_each_code_is_found_and_reported_in_four_lines(code, spoil):
    t, found = findings(spoil)
    assert code in [d.code for d in found], found
    text = str(next(d for d in found if d.code == code))
    assert text.startswith(f"error[{code}] ") and len(text.split("\n")) <= 4
    with pytest.raises(VerifyError) as caught:
        t.program.verify(2)
    assert caught.value.diagnostics == tuple(found)


def test_every_code_has_a_case():
    """IR021 and IR022 need a kind that rejects: the next two tests. IR024: layouts; from IR030: stages."""
    assert set(CASES) | {"IR021", "IR022", "IR024"} == {c for c in CODES if c < "IR030"}


def test_rejection_by_inference_and_by_the_own_check():
    t = Toy()

    def reject(op):
        raise VerifyError("operand 'a': found odd, required even")

    op = t.b("toy.relu", t.args[0]).op
    t.ret()
    object.__setattr__(op.info, "infer", reject)
    assert [d.code for d in check(t.module, 2)] == ["IR021"] and not check(t.module, 1)
    object.__setattr__(op.info, "infer", None)
    op.info.impl["Verify", "verify"] = reject
    found = check(t.module, 2)
    assert [d.code for d in found] == ["IR022"] and "found odd, required even" in found[0].message


def test_moving_a_producer_below_its_user_names_both():
    t, found = findings(use_before_definition, level=1)
    text = str(found[0])
    assert "main/relu#0: toy.relu operand 0: expected a definition before the use, found it after" in text
    assert "see: main/relu#1" in text


def test_values_of_enclosing_blocks_are_visible_in_open_regions_only():
    t = Toy()
    x = t.b("toy.relu", t.args[0])
    scope = t.b.op("toy.scope", n_regions=1, result_types=[])
    b = Builder(t.ctx, scope.regions[0].add_block())
    b.op("toy.yield", b("toy.add", x, t.args[1]), result_types=[])
    t.ret()
    assert not check(t.module, 2)
    scope.detach()
    t.body.insert_before(x.op, scope)  # the definition now follows the region
    assert [d.code for d in check(t.module)] == ["IR006"]


def test_a_use_of_an_erased_op_is_found():
    t = Toy()
    x = t.b("toy.relu", t.args[0])
    t.b("toy.relu", x)
    t.ret()
    x.op.detach()
    assert "one of an erased op" in str(check(t.module)[0])


def test_value_semantic_ops_take_tensors_of_one_kind():
    t = Toy()
    alias = t.ctx.tensor((4,), "f32", "tensor")
    made = t.b.op("toy.any", result_types=[alias])
    t.b.op("toy.add", made.result, t.args[0], result_types=[alias])
    t.ret()
    found = str(check(t.module, 2)[-1])
    assert "expected an aliasable tensor as the first operand !tx8be.tensor<4xf32>, found !tx8be.vtensor" in found


def test_one_error_in_a_large_graph_is_short_and_quick():
    """IR notes IR-34: 20 000 ops, fewer than 40 lines; the report itself costs little beside the check."""
    t = Toy()
    v = t.args[0]
    for _ in range(20_000):
        v = t.b("toy.add", v, t.args[1])
    t.ret(v)
    start = time.perf_counter()
    assert not check(t.module)
    clean = time.perf_counter() - start
    v.op.attrs["bad"] = 1
    start = time.perf_counter()
    with pytest.raises(VerifyError) as caught:
        verify(t.module)
    assert time.perf_counter() - start < 3 * clean + 0.05
    assert len(str(caught.value).split("\n")) < 40
    assert "main/add#19999" in str(caught.value)


def test_repeated_findings_are_counted_and_kinds_bounded():
    t = Toy()
    for _ in range(500):
        t.b("toy.relu", t.args[0]).op.attrs["bad"] = 1
    t.ret()
    with pytest.raises(VerifyError) as caught:
        verify(t.module)
    text = str(caught.value)
    assert "500 errors" in text and "and 499 more" in text and len(text.split("\n")) < 10


def test_paths_name_functions_and_positions():
    t = Toy()
    t.b("toy.relu", t.args[0])
    group = t.b.op("group", n_regions=1, result_types=[])
    b = Builder(t.ctx, group.regions[0].add_block())
    none = b("none", result_types=[t.ctx.types.none]).op
    assert op_path(none) == "main/group#1/none#0" and op_path(t.func) == "main" and op_path(t.module) == "module"


def test_damage_never_makes_the_verifier_itself_fail():
    """Random small damage to a nested graph: findings or none, but no other exception."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        t = Toy()
        x = t.b("toy.add", *t.args)
        group = t.b.op("group", x, n_regions=1, result_types=[t.type])
        b = Builder(t.ctx, group.regions[0].add_block([t.type]))
        b.op("group_return", b("toy.relu", group.body.args[0]), result_types=[])
        t.ret(group.result)
        ops = list(t.module.walk())
        values: list[Value] = [r for op in ops for r in op.results] + list(t.args)
        op: Op = ops[rng.integers(len(ops))]
        kind = rng.integers(6)
        if kind == 0 and op.operands:
            op.operands[rng.integers(len(op.operands))] = values[rng.integers(len(values))]
        elif kind == 1 and op.operands:
            op.operands.pop()
        elif kind == 2:
            op.order = int(rng.integers(-5, 5))
        elif kind == 3:
            op.attrs["sym_name"] = 7
        elif kind == 4 and op.block is not None:
            op.detach()
        elif kind == 5 and op.regions:
            op.regions[0].blocks.clear()
        for d in check(t.module, 2):
            assert len(str(d)) < 1500


def test_changing_an_operand_type_names_the_user():
    ctx = new_context()
    module = ctx.create("module", (), (), n_regions=1)
    top = Builder(ctx, module.regions[0].add_block())
    f = top.op("func", sym_name="main", n_regions=1)
    a, w = ctx.tensor((2, 4), "bf16"), ctx.tensor((4, 8), "bf16")
    b = Builder(ctx, f.regions[0].add_block([a, w]))
    x = b("relu", f.body.args[0])
    y = b("gemm", x, f.body.args[1])
    b.op("return", y)
    verify(module, 2)
    x.type = ctx.tensor((3, 4), "bf16")
    found = check(module, 2)
    assert {d.path for d in found} == {"main/relu#0", "main/gemm#1"}
    gemm = next(d for d in found if "gemm" in d.path)
    assert "expected !tx8be.vtensor<3x8xbf16>, found (!tx8be.vtensor<2x8xbf16>)" in gemm.message


def test_parameters_are_checked_against_the_table():
    t = Toy()
    entry = type("Weight", (), {"shape": (5,), "dtype": "f32"})()
    t.program.weights = Weights(w=entry)
    t.b("get_param", key="w", result_types=[t.type])
    t.ret()
    with pytest.raises(
        VerifyError,
        match=r"key 'w': expected the table's type \[5\] f32, found !tx8be.vtensor<4xf32>",
    ):
        t.program.verify(2)
    t.program.verify(1)


def test_constants_hold_what_their_type_says():
    t = Toy()
    t.b("constant", value=DenseAttr(np.zeros(4, np.float32)), result_types=[t.type])
    t.ret()
    t.program.verify(2)
