"""Clone, structural keys, symbol tables and the rewriter."""

import pytest
from support.toy_dialect import Toy

from tx8fast.errors import InternalError, VerifyError
from tx8fast.ir import Builder
from tx8fast.ir.clone import clone_op, equal, structural_key
from tx8fast.ir.rewrite import Pattern, pattern, rewrite_greedily
from tx8fast.ir.symbols import SymbolTable


def layer(t: Toy, key: str, by: float = 2.0, **runtime):
    group = t.b.op(
        "group",
        t.b("get_param", key=key, result_types=[t.type]),
        n_regions=1,
        result_types=[t.type],
    )
    b = Builder(t.ctx, group.regions[0].add_block([t.type]))
    x = b("toy.scale", b("toy.relu", group.body.args[0]), by=by, **runtime)
    b.op("group_return", x, result_types=[])
    return group


def test_a_clone_is_equal_and_independent():
    t = Toy()
    layer(t, "w")
    t.ret()
    before = t.program.text()
    copy = t.program.clone()
    assert copy.same_as(t.program) and copy.weights is t.program.weights and copy.ctx is t.ctx
    for op in copy.module.walk():
        if op.kind == "scale":
            op.attrs["by"] = 3.0
    assert t.program.text() == before and not copy.same_as(t.program)
    copy.verify()


def test_a_partial_clone_keeps_or_maps_outer_values():
    t = Toy()
    op = t.b("toy.add", *t.args).op
    mapping = {t.args[0]: t.args[1]}
    copy = clone_op(op, mapping)
    assert copy.operands == [t.args[1], t.args[1]] and mapping[op.result] is copy.result and copy.block is None


def test_equality_sees_attributes_wiring_and_types():
    base = Toy()
    base.ret(base.b("toy.scale", base.b("toy.add", *base.args), by=0.0))
    other = Toy(ctx=base.ctx)
    other.ret(other.b("toy.scale", other.b("toy.add", *other.args), by=-0.0))
    assert not equal(base.module, other.module)
    swapped = Toy(ctx=base.ctx)
    swapped.ret(swapped.b("toy.scale", swapped.b("toy.add", *reversed(swapped.args)), by=0.0))
    assert not equal(base.module, swapped.module)
    again = Toy()  # another context
    again.ret(again.b("toy.scale", again.b("toy.add", *again.args), by=0.0))
    assert equal(base.module, again.module)


def test_equal_layers_have_one_key_and_a_changed_attribute_another():
    t = Toy()
    keys = {structural_key(layer(t, f"layers.{n}.w", rt_step=n)) for n in range(80)}
    assert len(keys) == 1
    assert structural_key(layer(t, "w", by=3.0)) not in keys


def test_the_key_sees_wiring():
    def key(swap):
        t = Toy()
        group = t.b.op("group", *t.args, n_regions=1, result_types=[t.type])
        b = Builder(t.ctx, group.regions[0].add_block([t.type, t.type]))
        x, y = reversed(group.body.args) if swap else group.body.args
        b.op("group_return", b("toy.sub", x, y), result_types=[])
        return structural_key(group)

    assert key(False) == key(False) != key(True)


def test_renaming_a_symbol_updates_eighty_calls():
    t = Toy()
    op, b = t.subgraph("layer")
    b.op("subgraph_return", op.body.args[0], result_types=[])
    v = t.args[0]
    for _ in range(80):
        v = t.b("call", v, callee="layer", result_types=[t.type])
    t.ret(v)
    table = SymbolTable(t.module)
    assert table.call_counts() == {"main": 0, "layer": 80}
    assert table.rename("layer", "block") == 80
    t.program.verify()
    assert t.program.text().count('callee = "block"') == 80 and "layer" not in table and table.lookup("block") is op
    with pytest.raises(VerifyError, match="80 calls use it"):
        table.erase("block")
    with pytest.raises(VerifyError, match="that name is taken"):
        table.rename("block", "main")
    with pytest.raises(VerifyError, match="'layer' is not defined, found main, block"):
        table.lookup("layer")


def test_inserting_a_symbol_finds_a_free_name():
    t = Toy()
    t.ret()
    table = SymbolTable(t.module)
    names = []
    for _ in range(3):
        op = t.ctx.create("subgraph", (), (), sym_name="s", n_regions=1)
        Builder(t.ctx, op.regions[0].add_block()).op("subgraph_return", result_types=[])
        names.append(table.insert(op))
    assert names == ["s", "s_0", "s_1"]
    t.program.verify()
    table.erase("s_0")
    assert [f.attrs["sym_name"] for f in t.program.functions] == ["main", "s", "s_1"]


@pattern("toy.relu")
def double_relu(op, rw):
    inner = op.operands[0].op
    if inner is None or inner.info is not op.info:
        return False
    rw.replace(op, [inner.result])
    return True


@pytest.mark.parametrize("top_down", [True, False])
def test_the_fixpoint_is_reached_and_dead_ops_go(top_down):
    t = Toy()
    v = t.args[0]
    for _ in range(50):
        v = t.b("toy.relu", v)
    t.b("toy.add", v, t.b("toy.relu", t.args[1]))  # unused
    t.ret(v, v)
    result = rewrite_greedily(t.ctx, t.module, [double_relu], top_down=top_down)
    assert t.kinds() == ["relu", "return"] and result.applied == {"double-relu": 49} and result.changed
    t.program.verify()
    assert not rewrite_greedily(t.ctx, t.module, [double_relu]).changed


def test_a_higher_benefit_goes_first():
    order = []

    def note(name, benefit):
        def apply(op, rw):
            order.append(name)
            return False

        return Pattern(name, ("toy.relu",), apply, benefit)

    t = Toy()
    t.ret(t.b("toy.relu", t.args[0]))
    rewrite_greedily(t.ctx, t.module, [note("low", 1), note("high", 9), note("also-low", 1)])
    assert order == ["high", "low", "also-low"]


def test_a_pattern_that_never_ends_is_named():
    @pattern("toy.scale")
    def flip_flop(op, rw):
        rw.replace_with(op, "toy.scale", op.operands[0], by=-op.attrs["by"])
        return True

    t = Toy()
    t.ret(t.b("toy.scale", t.b("toy.relu", t.b("toy.relu", t.args[0]))))
    with pytest.raises(InternalError, match=r"does not end: 1000 applications on \d+ ops.*'flip-flop'"):
        rewrite_greedily(t.ctx, t.module, [flip_flop, double_relu])


def test_replacing_a_value_with_many_uses_requeues_its_users():
    """The second rule can only match after the first; its roots were all visited before."""

    @pattern("toy.scale")
    def drop_unit_scale(op, rw):
        if op.attrs["by"] != 1.0:
            return False
        rw.replace(op, [op.operands[0]])
        return True

    t = Toy()
    unit = t.b("toy.scale", t.b("toy.relu", t.args[0]))
    outs = [t.b("toy.relu", unit) for _ in range(100)]
    t.ret(*outs)
    rewrite_greedily(t.ctx, t.module, [drop_unit_scale, double_relu], top_down=False)
    assert t.kinds() == ["relu", "return"]
    t.program.verify()


def test_replacement_keeps_types_and_locations():
    t = Toy()
    op = t.b("toy.relu", t.args[0], loc="layers.3.act").op
    t.ret(op.result)

    @pattern("toy.relu")
    def to_scale(op, rw):
        assert rw.replace_with(op, "toy.scale", op.operands[0], by=3.0).loc == "layers.3.act"
        return True

    rewrite_greedily(t.ctx, t.module, [to_scale])
    assert t.kinds() == ["scale", "return"]

    @pattern("toy.scale")
    def wrong(op, rw):
        none = rw.insert("none", before=op, result_types=[t.ctx.types.none])
        rw.replace(op, none.results)
        return True

    with pytest.raises(InternalError, match="result 0 is !tx8be.vtensor<4xf32>, the value !tx8be.none"):
        rewrite_greedily(t.ctx, t.module, [wrong])
