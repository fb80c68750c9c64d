"""Aliasable tensors: in-place ops out and back, deep copies in and out."""

import numpy as np
import pytest
from support.alias_machine import run_aliased

from tx8fast.api import compile_ir
from tx8fast.errors import VerifyError
from tx8fast.ir import Builder, new_context
from tx8fast.ir.program import IRProgram
from tx8fast.ir.stages import check_stage
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.passes.pipeline import run_pipeline, value_passes
from tx8fast.weights import WeightTable

VALUE = "inplace-to-functional,wrap-value,fold-copies,dce"


class Graph:
    """A program whose function `main` takes aliasable tensors 2x4 f32, as an exporter of mutable models gives it."""

    def __init__(self, n_args=1, kind="tensor", shape=(2, 4)):
        self.ctx = new_context()
        self.t = self.ctx.tensor(shape, "f32", kind)
        self.module = self.ctx.create("module", n_regions=1)
        names = tuple("abcd"[:n_args])
        top = Builder(self.ctx, self.module.regions[0].add_block())
        self.func = top.op("func", sym_name="main", n_regions=1, arg_names=names)
        self.block = self.func.regions[0].add_block([self.t] * n_args)
        self.args = self.block.args
        self.b = Builder(self.ctx, self.block)
        self.program = IRProgram(self.ctx, self.module, WeightTable(), "aliased")

    def ret(self, *values):
        self.func.attrs["result_names"] = tuple(f"r{i}" for i in range(len(values)))
        self.b.op("return", *values)
        self.program.verify()
        return self.program

    def kinds(self):
        return [op.kind for op in self.block]

    def count(self, *kinds):
        return sum(op.kind in kinds for op in self.block)


def inputs(program, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, v.shape).astype(np.float32) for v in program.main.body.args]


def same_numbers(before, program, seed=0):
    """Results and everything the caller sees of its own buffers agree."""
    for x, y in zip(run_aliased(before, inputs(before, seed)), run_aliased(program, inputs(before, seed)), strict=True):
        np.testing.assert_array_equal(x, y)


def conv_bn_relu() -> Graph:
    g = Graph(shape=(1, 6, 6, 3))
    rng = np.random.default_rng(1)

    def param(key, *shape):
        g.program.weights.add_array(key, rng.uniform(0.5, 1.5, shape).astype(np.float32))
        t = g.ctx.tensor(shape, "f32")
        return g.b(
            "to_tensor",
            g.b("get_param", key=key, result_types=[t]),
            result_types=[g.ctx.tensor(shape, "f32", "tensor")],
        )

    x = g.b("conv", g.args[0], param("w", 3, 3, 4, 3), pad_lo=(1, 1), pad_hi=(1, 1))
    x = g.b("batchnorm_inference", x, *[param(k, 4) for k in ("scale", "offset", "mean", "variance")])
    g.ret(g.b("relu_", x))
    return g


def test_conv_bn_relu_becomes_functional_between_one_entry_and_one_exit_copy():
    g = conv_bn_relu()
    before = g.program.clone()
    runs = run_pipeline(g.program, VALUE)
    assert runs[0].result.stats == {"converted": 1, "kept": 0, "views": 0}
    assert g.kinds().count("to_vtensor") == g.kinds().count("to_tensor") == 1
    assert [k for k in g.kinds() if k not in ("get_param", "return")] == [
        "to_vtensor", "conv", "batchnorm_inference", "relu", "to_tensor"
    ]  # fmt: skip
    check_stage(g.program, "legal-value")
    same_numbers(before, g.program)
    run_pipeline(g.program, "canonicalize,cse,fold-constants,dce")
    same_numbers(before, g.program)


def view_before_write() -> Graph:
    """v sees the write to x's buffer."""
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    v = g.b("reshape_view", x, shape=(8,))
    y = g.b("relu_", x)
    g.ret(g.b("exp", v), y)
    return g


def test_a_view_taken_before_a_write_keeps_the_write_and_its_copies():
    g = view_before_write()
    before = g.program.clone()
    runs = run_pipeline(g.program, VALUE)
    assert runs[0].result.stats == {"converted": 0, "kept": 1, "views": 0}
    assert g.count("relu_") == g.count("reshape_view") == 1
    assert g.count("to_tensor") == 2 and g.count("to_vtensor") == 2  # into sigmoid and out, into exp and out
    same_numbers(before, g.program)
    with pytest.raises(VerifyError, match="legal-value"):
        check_stage(g.program, "legal-value")


def test_a_view_used_only_before_the_write_does_no_harm():
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    v = g.b("exp", g.b("reshape_view", x, shape=(8,)))
    y = g.b("add_", x, g.args[0])
    g.ret(v, y, g.b("neg", x))  # the last one reads x after the write: it means y
    before = g.program.clone()
    runs = run_pipeline(g.program, VALUE)
    assert runs[0].result.stats == {"converted": 1, "kept": 0, "views": 1}
    check_stage(g.program, "legal-value")
    same_numbers(before, g.program)


def test_a_buffer_of_the_caller_or_of_a_call_is_left_alone():
    g = Graph()
    g.ret(g.b("relu_", g.args[0]))
    before = g.program.clone()
    run_pipeline(g.program, VALUE)
    assert g.kinds() == ["relu_", "return"]
    same_numbers(before, g.program)


def test_a_cache_update_among_value_tensors_goes_through_copies():
    g = Graph()
    cache = g.b(
        "to_tensor", g.b("to_vtensor", g.args[0], result_types=[g.ctx.tensor((2, 4), "f32")]), result_types=[g.t]
    )
    new = g.b("to_vtensor", g.b("exp", g.b("slice", g.args[0], start=(0, 0), size=(1, 4), step=(1, 1))),
              result_types=[g.ctx.tensor((1, 4), "f32")])  # fmt: skip
    at = g.b("iota", shape=(1,), dtype="i64", axis=0)
    g.ret(g.b("kv_update_", cache, new, at))
    before = g.program.clone()
    assert run_pipeline(g.program, VALUE)[0].result.stats["converted"] == 1
    assert "kv_update" in g.kinds() and "kv_update_" not in g.kinds()
    check_stage(g.program, "legal-value")
    same_numbers(before, g.program)


def test_patterns_leave_buffers_alone():
    """Two transposes cancel for values; here the second one's result must not become the buffer that is written."""
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    back = g.b("transpose", g.b("transpose", x, perm=(1, 0)), perm=(1, 0))
    y = g.b("relu_", g.b("neg", x))
    z = g.b("sub_", x, y)
    g.ret(back, z)
    before = g.program.clone()
    assert not run_pipeline(g.program, "canonicalize")[0].result.changed
    run_pipeline(g.program, VALUE)
    assert run_pipeline(g.program, "canonicalize,dce")[0].result.changed
    same_numbers(before, g.program)


def test_views_of_buffers_stay_before_writes():
    """A reshape of what the buffer held must not go behind the write, to its reader."""
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    held = g.b("reshape", x, shape=(8,))
    y = g.b("relu_", g.b("sub_", x, g.args[0]))
    g.ret(g.b("neg", held), y)
    before = g.program.clone()
    run_pipeline(g.program, "canonical-form")
    assert g.kinds() == ["sigmoid", "reshape", "sub_", "relu_", "neg", "return"]
    same_numbers(before, g.program)


def test_a_copy_that_is_only_stored_away_goes():
    g = Graph()
    value = g.b("to_vtensor", g.args[0], result_types=[g.ctx.tensor((2, 4), "f32")])
    g.program.weights.add_missing("k", (2, 4), "f32")
    g.b.op("set_param", g.b("to_tensor", value, result_types=[g.t]), key="k")
    g.b.op("return")
    run_pipeline(g.program, "fold-copies")
    assert g.kinds() == ["to_vtensor", "set_param", "return"]


def test_the_target_of_a_write_is_never_a_value_tensor():
    g = Graph(kind="vtensor")
    g.b("relu_", g.args[0])
    g.b.op("return")
    with pytest.raises(VerifyError, match="expected an aliasable tensor to write to, found !tx8be.vtensor"):
        g.program.verify()


def random_graph(seed, n_ops=14) -> Graph:
    rng = np.random.default_rng(seed)
    g = Graph(n_args=2)
    full = [*g.args]
    flat = []

    def pick(values):
        return values[int(rng.integers(len(values)))]

    for _ in range(n_ops):
        kind = str(rng.choice(["add", "sub", "relu", "exp", "relu_", "add_", "sub_", "view", "back"]))
        if kind == "view":
            flat.append(g.b("reshape_view", pick(full), shape=(8,)))
        elif kind == "back":
            if flat:
                full.append(g.b("reshape_view", pick(flat), shape=(2, 4)))
        elif kind in ("relu_", "relu", "exp"):
            values = flat if flat and rng.random() < 0.3 else full
            x = pick(values)
            values.append(g.b("tanh", x) if kind == "exp" else g.b(kind, x))
        else:
            full.append(g.b(kind, pick(full), pick(full)))
    n = int(rng.integers(1, 4))
    g.ret(*[full[int(i)] for i in rng.integers(2, len(full), n)] if len(full) > 2 else full)
    return g


PASSES = ("inplace-to-functional", "wrap-value", "fold-copies", "cse", "canonicalize", "dce")


@pytest.mark.parametrize("seed", range(60))
def test_every_pass_alone_and_in_any_order_keeps_the_numbers(seed):
    g = random_graph(seed)
    before = g.program.clone()
    rng = np.random.default_rng(seed)
    for name in PASSES:
        alone = before.clone()
        run_pipeline(alone, name)
        same_numbers(before, alone, seed)
    order = [PASSES[int(i)] for i in rng.integers(0, len(PASSES), 8)]
    for name in order:
        run_pipeline(g.program, name)
        same_numbers(before, g.program, seed)


def test_models_have_no_aliasable_tensor_left(data_dir):
    """The readers give value tensors; an aliasing form of a model loses its aliasable tensors but at its borders."""
    from tx8fast.frontend.onnx import import_onnx

    program = import_onnx(data_dir / "onnx" / "vit-encode-op20.onnx")
    check_stage(program, "legal-value")
    block = program.main.body
    ctx = program.ctx
    body = [op for op in block if op.kind not in ("get_param", "constant", "return")]
    changed = make_aliasable(ctx, program, body)
    assert changed > 50
    program.verify()
    run_pipeline(program, VALUE)
    left = [v for op in block for v in op.results if v.type.kind == "tensor"]
    assert len(left) == len(block.last.operands) == 1 and left[0].op.kind == "to_tensor"
    check_stage(program, "legal-value")


def make_aliasable(ctx, program, ops):
    """Give every activation an aliasable tensor, and use in-place kinds where the operand dies."""
    count = 0
    for op in ops:
        for i, v in enumerate(op.operands):
            if v.type.kind == "vtensor":
                copy = ctx.create("to_tensor", [v], [ctx.tensor(v.shape, v.dtype, "tensor")])
                op.set_operand(i, op.block.insert_before(op, copy).result)
        for r in op.results:
            r.type = ctx.tensor(r.shape, r.dtype, "tensor" if op.operands else "vtensor")
            count += r.type.kind == "tensor"
    return count


def test_a_compile_has_values_only():
    """From the first passes on; the program computes what the buffers held."""
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    view = g.b("reshape_view", g.b("neg", x), shape=(8,))
    y = g.b("relu_", x)
    g.ret(view, y, g.b("exp", x))  # x after the write means y
    before = g.program.clone()
    found = compile_ir(g.program, load_machine(), CompileOptions(dtype="fp32")).run({"a": inputs(before)[0]})
    for value, right in zip(found.values(), run_aliased(before, inputs(before)), strict=False):
        np.testing.assert_allclose(value, right, rtol=1e-5)


def test_what_still_writes_is_refused_by_name():
    g = Graph()
    x = g.b("sigmoid", g.args[0])
    view = g.b("reshape_view", x, shape=(8,))
    y = g.b("tanh_", x, loc="late")
    g.ret(g.b("exp", view), y, g.b("relu_", g.args[0], loc="input"))
    with pytest.raises(VerifyError) as caught:
        compile_ir(g.program, load_machine(), CompileOptions(dtype="fp32"))
    message = str(caught.value)
    assert "tx8be.tanh_ 'late' writes to a buffer" in message and "tx8be.relu_ 'input'" in message
    assert "tx8be.tanh, which makes a new value, would help" in message


def test_random_graphs_become_values_or_are_refused():
    done = 0
    for seed in range(60):
        g = random_graph(seed, 8)
        before = g.program.clone()
        try:
            run_pipeline(g.program, value_passes())
        except VerifyError as err:
            assert "writes to a buffer" in str(err)
            continue
        done += 1
        assert not any(v.type.kind == "tensor" for op in g.block for v in (*op.operands, *op.results))
        expected = run_aliased(before, inputs(before, seed))
        for x, right in zip(run_aliased(g.program, inputs(before, seed)), expected, strict=True):
            np.testing.assert_array_equal(x, right)
    assert 5 < done < 60
