"""CSE, DCE, constant folding and constant sinking on a dialect the product does not know."""

import numpy as np
import pytest
from support.toy_dialect import Toy

from tx8fast.errors import InternalError
from tx8fast.ir import Builder
from tx8fast.ir.core import COMPUTE, OpInfo
from tx8fast.passes.pipeline import run_pipeline
from tx8fast.weights import WeightTable


def run(t, text, **kw):
    return run_pipeline(t.program, text, **kw)[-1].result


def test_cse_merges_equal_ops_and_chains():
    t = Toy()
    a, b = t.args
    x = t.b("toy.scale", t.b("toy.add", a, b), by=2.0)
    y = t.b("toy.scale", t.b("toy.add", b, a, rt_note="runtime attributes do not count"), by=2.0)
    z = t.b("toy.scale", t.b("toy.sub", b, a), by=2.0)
    w = t.b("toy.scale", t.b("toy.sub", a, b), by=2.0)
    t.ret(x, y, z, w)
    assert run(t, "cse").stats == {"merged": 2}
    assert t.kinds() == ["add", "scale", "sub", "scale", "sub", "scale", "return"]
    assert t.body.last.operands[0] is t.body.last.operands[1]


@pytest.mark.parametrize("one, two", [(0.0, -0.0), (1.0, 2.0)])
def test_cse_tells_attributes_apart(one, two):
    t = Toy()
    t.ret(t.b("toy.scale", t.args[0], by=one), t.b("toy.scale", t.args[0], by=two))
    assert not run(t, "cse").changed


def test_cse_tells_equal_looking_values_of_other_types_apart():
    t = Toy()
    outs = [t.b.op("toy.any", result_types=[t.type], a=v).result for v in (1, True, 1.0, (1,), (1.0,), (True,))]
    outs.append(t.b.op("toy.any", result_types=[t.type], a=float("nan")).result)
    outs.append(t.b.op("toy.any", result_types=[t.type], a=float("nan")).result)
    t.ret(*outs)
    assert run(t, "cse").stats == {"merged": 1}  # the two NaN


def test_cse_reads_of_one_parameter_merge_unless_written_between():
    t = Toy()

    def read(key):
        return t.b("get_param", key=key, result_types=[t.type])

    a, b, other = read("w"), read("w"), read("v")
    t.b.op("set_param", a, key="w")
    c, d = read("w"), read("v")
    t.ret(a, b, other, c, d)
    assert run(t, "cse").stats == {"merged": 2}
    kept = t.body.last.operands
    assert kept[0] is kept[1] is not kept[3] and kept[2] is kept[4]


def test_cse_keeps_ops_with_unknown_effects():
    t = Toy()
    for _ in range(2):
        t.b.op("toy.print", t.args[0], result_types=[])
    t.ret()
    assert not run(t, "cse").changed and not run(t, "dce").changed


def test_cse_respects_scopes():
    t = Toy()
    x = t.b("toy.relu", t.args[0])
    scope = t.b.op("toy.scope", n_regions=1, result_types=[])
    b = Builder(t.ctx, scope.regions[0].add_block())
    inner = b("toy.relu", t.args[0])  # the outer one is visible here
    b.op("toy.yield", inner, result_types=[])
    group = t.b.op("group", t.args[0], n_regions=1, result_types=[t.type])
    g = Builder(t.ctx, group.regions[0].add_block([t.type]))
    g.op("group_return", g("toy.relu", group.body.args[0]), result_types=[])  # nothing outer is
    t.ret(x, t.b("toy.relu", group.result))
    assert run(t, "cse").stats == {"merged": 1}
    assert scope.body.last.operands == [x]


def test_cse_does_not_move_values_out_of_a_region():
    t = Toy()
    scope = t.b.op("toy.scope", n_regions=1, result_types=[])
    b = Builder(t.ctx, scope.regions[0].add_block())
    b.op("toy.yield", b("toy.relu", t.args[0]), result_types=[])
    t.ret(t.b("toy.relu", t.args[0]))
    assert not run(t, "cse").changed


def test_dce_removes_chains_parameters_groups_and_subgraphs():
    t = Toy()
    dead = t.b("toy.add", t.b("get_param", key="w", result_types=[t.type]), t.args[0])
    group = t.b.op("group", dead, n_regions=1, result_types=[t.type])
    g = Builder(t.ctx, group.regions[0].add_block([t.type]))
    g.op("group_return", g("toy.relu", group.body.args[0]), result_types=[])
    for name, callee in (("leaf", None), ("middle", "leaf"), ("used", None)):
        op, b = t.subgraph(name)
        v = op.body.args[0]
        if callee:
            v = b("call", v, callee=callee, result_types=[t.type])
        b.op("subgraph_return", v, result_types=[])
    t.b("call", t.args[0], callee="middle", result_types=[t.type])  # pure and unused
    t.ret(t.b("call", t.args[0], callee="used", result_types=[t.type]))
    assert run(t, "dce").stats == {"ops": 4, "subgraphs": 2}
    assert t.kinds() == ["call", "return"]
    assert [f.attrs["sym_name"] for f in t.program.functions] == ["main", "used"]
    assert len(t.body.args) == 2, "the arguments of an entry function are its interface"


def test_dce_keeps_whatever_may_have_effects():
    t = Toy()
    op, b = t.subgraph("writes")
    b.op("set_param", op.body.args[0], key="w")
    b.op("subgraph_return", op.body.args[0], result_types=[])
    t.b("call", t.args[0], callee="writes", result_types=[t.type])
    group = t.b.op("group", t.args[0], n_regions=1, result_types=[t.type])
    g = Builder(t.ctx, group.regions[0].add_block([t.type]))
    g.op("toy.print", group.body.args[0], result_types=[])
    g("toy.relu", group.body.args[0])  # dead inside a live group
    g.op("group_return", group.body.args[0], result_types=[])
    t.ret()
    assert run(t, "dce").stats == {"ops": 1, "subgraphs": 0}
    assert t.kinds() == ["call", "group", "return"] and [o.kind for o in group.body] == [
        "print",
        "group_return",
    ]


def test_folding_runs_the_reference_on_constants():
    t = Toy()
    s = t.b("toy.add", t.const(1, 2, 3, 4), t.const(10, 20, 30, 40))
    d = t.b("toy.sub", s, t.const(1, 1, 1, 1))
    t.ret(d, t.b("toy.add", d, t.args[0]))
    assert run(t, "fold-constants").stats == {"folded": 2, "weights": 0}
    run(t, "dce")
    assert t.kinds() == ["constant", "add", "return"]
    value = t.body.first.attrs["value"].array
    np.testing.assert_array_equal(value, np.array([10, 21, 32, 43], np.float32))


def big(n, weights=True):
    t = Toy(weights=WeightTable() if weights else None)
    t.type = t.ctx.tensor((n,), "f32")
    if weights:
        t.program.weights.add_array("w", np.arange(n, dtype=np.float32))
        t.program.weights.add_array("%const/0", np.zeros(1, np.float32))
    w = t.b("get_param", key="w", result_types=[t.type])
    return t, w


def test_large_results_become_weights_under_free_keys():
    t, w = big(1000)
    t.ret(t.b("toy.sub", t.b("toy.add", w, w), w))
    assert run(t, "fold-constants,dce").changed
    assert t.kinds() == ["get_param", "return"]
    key = t.body.first.attrs["key"]
    assert key.startswith("%const/") and key != "%const/0"
    np.testing.assert_array_equal(t.program.weights.view(key), np.arange(1000, dtype=np.float32))


def test_equal_large_results_are_one_weight():
    t, w = big(1000)
    x, y = t.b("toy.add", w, w), t.b("toy.add", w, w, rt_note="another layer")
    t.ret(x, y, t.b("toy.sub", x, w))
    assert run(t, "fold-constants").stats == {"folded": 3, "weights": 2}
    run(t, "dce")
    keys = [op.attrs["key"] for op in t.body if op.kind == "get_param"]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("limit, folded", [(4000, 1), (3999, 0)])
def test_the_limit_is_in_bytes(limit, folded):
    t, w = big(1000)
    t.ret(t.b("toy.add", w, w))
    assert run(t, f"fold-constants{{limit-bytes={limit}}}").stats["folded"] == folded


def test_written_missing_and_absent_weights_do_not_fold():
    t, w = big(16)
    t.b.op("set_param", w, key="w")
    t.ret(t.b("toy.add", w, w))
    assert not run(t, "fold-constants").changed
    t = Toy(weights=WeightTable())
    t.program.weights.add_missing("w", (4,), "f32")
    w = t.b("get_param", key="w", result_types=[t.type])
    t.ret(t.b("toy.add", w, w))
    assert not run(t, "fold-constants").changed
    t, w = big(16, weights=False)
    t.ret(t.b("toy.add", w, w))
    assert not run(t, "fold-constants").changed


def test_a_routine_with_a_wrong_result_is_our_error():
    t = Toy()
    bad = OpInfo("toy.bad", 99, ("x",), ("y",), {}, COMPUTE, lambda op: [op.operands[0].type],
                 impl={("Compute", "compute"): lambda op, arrays: [arrays[0].astype(np.float64)]})  # fmt: skip
    t.ctx.register(bad)
    t.ret(t.b("toy.bad", t.const(1, 2, 3, 4)))
    with pytest.raises(InternalError, match="gave float64"):
        run(t, "fold-constants")


def test_sinking_gives_every_user_its_constant_and_cse_takes_it_back():
    t = Toy()
    c = t.const(1, 2, 3, 4)
    x = t.b("toy.add", t.args[0], c)
    t.ret(t.b("toy.add", x, c), t.b("toy.add", c, c))
    before = t.program.text()
    assert run(t, "sink-constants").stats == {"copies": 3}
    assert t.kinds() == ["constant", "add"] * 3 + ["return"]
    assert run(t, "cse").stats == {"merged": 2} and t.program.text() == before
