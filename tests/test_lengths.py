"""Programs for several lengths: what is proved, which program serves, padding and cropping, one file, errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tx8fast
from tests.support.cli_case import Caller, tree, write_mlp, write_onnx
from tests.support.corpus import CONFIGS, DATA, family
from tests.support.family_checkpoints import VOCAB, make_family
from tests.support.run_graph import run_graph
from tests.support.small_graph import SmallGraph
from tx8fast.errors import ConfigError, ProgramError, SimulationError
from tx8fast.frontend import open_model
from tx8fast.ir.attrs import DenseAttr
from tx8fast.lengths import LengthPrograms, compile_lengths
from tx8fast.passes.padding import analyse_padding
from tx8fast.passes.pipeline import graph_passes, run_pipeline
from tx8fast.passes.same_lengths import check_same_model
from tx8fast.program import bundle

rng = np.random.default_rng(5)
ENCODERS = ("bert", "vit")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_family(root / "llama", "llama")
    return root / "llama"


# ---------------------------------------------------------------- what padding can reach


def front(directory, name, **sizes):
    program = open_model(directory / name, **sizes)
    run_pipeline(program, graph_passes("keep", outline=False), verify_between=False)
    return program


@pytest.mark.parametrize("name", [n for n in CONFIGS if n not in ENCODERS])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_padded_inputs_give_the_same_numbers_where_the_analysis_says_so(tmp_path, name, phase):
    """Short inputs through the graph of their length, and padded through a longer one."""
    family(tmp_path, name)
    n, bound = 5, 16
    sizes = [{"seq": s} if phase == "prefill" else {"past": s, "phase": "decode"} for s in (n, bound)]
    short, long = (front(tmp_path, name, **s) for s in sizes)
    axes = {
        a: (1,)
        for a, v in zip(short.main.attrs["arg_names"], short.main.body.args, strict=True)
        if v.shape[1:2] == (n,)
    }
    found = analyse_padding(short, axes)
    assert found == analyse_padding(long, axes)
    assert found.positions == (("position",) if phase == "decode" else ())
    inputs = {"position": np.array([n - 2])} if phase == "decode" else {}
    for a, v in zip(short.main.attrs["arg_names"], short.main.body.args, strict=True):
        if a not in inputs:
            inputs[a] = rng.integers(0, VOCAB, v.shape) if v.dtype == "i64" else rng.standard_normal(v.shape)
    wanted = run_graph(short, inputs)
    padded = {
        a: np.pad(x, [(0, bound - n if i in axes.get(a, ()) else 0) for i in range(x.ndim)]) for a, x in inputs.items()
    }
    got = run_graph(long, padded)
    for out, w in wanted.items():
        cut = got[out][tuple(slice(0, n) if i in found.outputs[out] else slice(None) for i in range(w.ndim))]
        assert cut.shape == w.shape
        np.testing.assert_allclose(cut, w, rtol=1e-4, atol=1e-5)


def test_an_encoder_without_a_mask_is_refused_with_the_op(tmp_path):
    family(tmp_path, "bert")
    program = front(tmp_path, "bert", seq=7)
    with pytest.raises(ConfigError, match="'last_hidden_state' would change: .*softmax.*no mask hides its tail"):
        analyse_padding(program, {"input_ids": (1,), "token_type_ids": (1,)})


S, D = 7, 4


def refused(build, **args):
    g = SmallGraph(x=((S, D), "f32"), **args)
    program = g.done(y=build(g, g.args["x"]))
    with pytest.raises(ConfigError) as caught:
        analyse_padding(program, {"x": (0,), **{n: (0,) for n in args}})
    return str(caught.value)


def constant(g, array, dtype=np.float32):
    return g("constant", value=DenseAttr(np.asarray(array, dtype)))


BAD = {
    "mean": (lambda g, x: g("reduce", x, op="mean", axes=(0,), keepdims=True), "reduces"),
    "sum": (lambda g, x: g("reduce", g("exp", x), op="add", axes=(0,), keepdims=True), "not known to be zero"),
    "last": (lambda g, x: g("slice", x, start=(S - 1, 0), size=(1, D), step=(1, 1)), "moves or merges"),
    "flip": (lambda g, x: g("slice", x, start=(S - 1, 0), size=(S, D), step=(-1, 1)), "moves or merges"),
    "softmax": (lambda g, x: g("softmax", x, axis=0), "no mask hides"),
    "norm": (lambda g, x: g("layernorm", x, axes=(0, 1)), "mixes elements"),
    "merge": (lambda g, x: g("reshape", x, shape=(S * D,)), "into one dimension"),
    "concat": (lambda g, x: g("concat", x, x, axis=0), "moves or merges"),
    "cumsum": (lambda g, x: g("cumsum", x, axis=0), "mixes elements"),
    "contract": (lambda g, x: g("contract", g("exp", x), g("exp", x), equation="s d, s e -> d e", sizes=()), "zero"),
    "anticausal": (lambda g, x: g("softmax", scores(g, x), constant(g, np.tril(np.full((S, S), -1e9))), axis=-1), "no mask"),
    "soft mask": (lambda g, x: g("softmax", scores(g, x), constant(g, np.triu(np.full((S, S), -9.0), 1)), axis=-1), "no mask"),
}  # fmt: skip


def scores(g, x):
    return g("contract", x, x, equation="s d, t d -> s t", sizes=())


@pytest.mark.parametrize("case", BAD)
def test_what_mixes_is_refused(case):
    build, reason = BAD[case]
    assert reason in refused(build)


def test_a_causal_mask_a_padding_mask_and_a_sum_of_zeros_are_served():
    g = SmallGraph(x=((S, D), "f32"), mask=((S,), "f32"), last=((1,), "i64"))
    x = g.args["x"]
    causal = g("softmax", scores(g, x), constant(g, np.triu(np.full((S, S), -1e9), 1)), axis=-1)
    hide = g("mul", g("sub", constant(g, 1.0), g.args["mask"]), constant(g, -1e9))
    masked = g("softmax", scores(g, x), hide, axis=-1)
    early = g(
        "select",
        g("le", g("iota", shape=(S,), dtype="i64", axis=0), g.args["last"]),
        constant(g, 0.0),
        constant(g, -1e9),
    )
    mix = lambda p: g("contract", p, x, equation="s t, t d -> s d", sizes=())  # noqa: E731
    program = g.done(
        a=mix(causal), b=mix(masked), c=mix(g("softmax", scores(g, x), early, axis=-1)),
        z=g("contract", x, g("exp", x), equation="s d, s e -> d e", sizes=()),
        n=g("reduce", g.args["mask"], op="add", axes=(0,), keepdims=True),
        first=g("slice", x, start=(0, 0), size=(1, D), step=(1, 1)),
    )  # fmt: skip
    found = analyse_padding(program, {"x": (0,), "mask": (0,)})
    assert found.outputs == {"a": (0,), "b": (0,), "c": (0,), "z": (), "n": (), "first": ()}
    assert found.positions == ("last",)


def test_a_mask_that_holds_in_a_row_only_keeps_the_row_cut():
    """p[s, t] = 0 for s < n <= t says nothing of the rows from n on: their sum over s as well is not known."""
    g = SmallGraph(x=((S, D), "f32"))
    p = g("softmax", scores(g, g.args["x"]), constant(g, np.triu(np.full((S, S), -1e9), 1)), axis=-1)
    with pytest.raises(ConfigError, match="zero|two padded"):
        analyse_padding(g.done(y=g("reduce", p, op="add", axes=(0, 1), keepdims=True)), {"x": (0,)})


# ---------------------------------------------------------------- one model at two lengths


def lines(n, scale=2.0, act="relu", table=None):
    g = SmallGraph(x=((n, D), "f32"))
    y = g(act, g("mul", g.args["x"], constant(g, scale)))
    rows = np.arange(n * D).reshape(n, D) if table is None else table
    return g.done(y=g("add", y, g.array("table", np.asarray(rows, np.float32))))


def test_one_model_at_two_lengths_is_told_from_two_models():
    check_same_model(lines(3), lines(6), "comparing")
    for other, problem in (
        (lines(6, scale=1 / 6), "values of .*constant"), (lines(6, act="tanh"), "relu.* became .*tanh"),
        (lines(6, table=np.ones((6, D))), "values of .*get_param"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"comparing: the model is another one at another length: .*{problem}"):
            check_same_model(lines(3), other, "comparing")


def test_rotation_that_depends_on_the_length_is_refused(tmp_path):
    make_family(tmp_path / "m", "phi3-longrope")  # other factors beyond 64 tokens
    with pytest.raises(ConfigError, match=r"another one at another length: the values of .*rope"):
        compile_lengths(tmp_path / "m", "seq", (32, 128))


# ---------------------------------------------------------------- compile, run, save


@pytest.fixture(scope="module")
def prefill(llama) -> LengthPrograms:
    return compile_lengths(llama, "seq", (4, 9, 16))


@pytest.mark.slow
def test_the_smallest_program_that_fits_serves(prefill, llama, tmp_path):
    prefill.save(tmp_path / "p.tx8")
    loaded = tx8fast.load(tmp_path / "p.tx8")
    assert isinstance(loaded, LengthPrograms) and loaded.bounds == prefill.bounds
    assert [prefill.bounds.index(n) for n in (1, 4, 5, 9, 10, 16)] == [0, 0, 1, 1, 2, 2]
    for n in (3, 9, 11):
        inputs = {"input_ids": rng.integers(0, VOCAB, (1, n))}
        wanted = tx8fast.compile(llama, seq=n).run(inputs)
        for programs in (prefill, loaded):
            got = programs.run(inputs)
            for name, w in wanted.items():
                assert got[name].shape == w.shape
                np.testing.assert_allclose(got[name], w, rtol=1e-4, atol=1e-5)
    assert loaded.simulate(3).cycles < loaded.simulate().cycles == prefill.programs[2].simulate().cycles
    with pytest.raises(SimulationError, match="seq is 17, required 1 to 16, the largest bound compiled"):
        loaded.run({"input_ids": np.zeros((1, 17), np.int64)})


def test_parameters_are_stored_once(prefill, tmp_path):
    prefill.save(tmp_path / "p.tx8")
    alone = [len(p.program.data) for p in prefill.programs]
    chunks, _ = bundle.share_data([p.program for p in prefill.programs])
    assert sum(map(len, chunks)) < 1.3 * max(alone), "masks and rotations differ, weights do not"
    first = (tmp_path / "p.tx8").read_bytes()
    prefill.save(tmp_path / "p.tx8")
    assert (tmp_path / "p.tx8").read_bytes() == first


def test_a_decode_step_with_any_number_of_slots(llama):
    programs = compile_lengths(llama, "past", (8, 16), tx8fast.CompileOptions(phase="decode"))
    n = 11
    inputs = {"input_ids": np.array([[3]]), "position": np.array([6])}
    for t in programs.programs[0].inputs:
        if t.name.startswith("past"):
            inputs[t.name] = rng.standard_normal((1, n, t.shape[-1])).astype(np.float32)
    wanted = tx8fast.compile(llama, phase="decode", past=n).run(inputs)
    got = programs.run(inputs)
    for name, w in wanted.items():
        assert got[name].shape == w.shape
        np.testing.assert_allclose(got[name], w, rtol=1e-4, atol=1e-5)
    with pytest.raises(SimulationError, match=r"'position' is \[11\], required 0 to 10"):
        programs.run({**inputs, "position": np.array([n])})
    some = next(t for t in inputs if t.startswith("past"))
    with pytest.raises(SimulationError, match="past must be one number"):
        programs.run({**inputs, some: inputs[some][:, :5]})


def test_bad_bounds():
    for bounds, problem in (
        ((16, 8), "required increasing"), ((8,), "found 1 lengths of seq, required 2 to 8"), ((4, 4), "increasing"),
        (tuple(range(1, 10)), "found 9 lengths"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            compile_lengths("no such model", "seq", bounds)
    with pytest.raises(ConfigError, match="seq is 0"):
        compile_lengths("no such model", "seq", (0, 4))


def test_models_whose_inputs_do_not_follow(tmp_path, llama):
    with pytest.raises(ConfigError, match="no input depends on it"):
        compile_lengths(DATA / "onnx" / "vit-encode-op20.onnx", "seq", (4, 8))
    path = write_mlp(tmp_path / "m.onnx", (8, 32))
    with pytest.raises(ConfigError, match="rows"):
        compile_lengths(path, "rows", (4, 8))


def test_damaged_files(prefill, tmp_path):
    prefill.save(tmp_path / "p.tx8")
    with pytest.raises(ProgramError, match="several lengths"):
        tx8fast.api.load(tmp_path / "p.tx8")
    b = prefill.bounds
    good = {"name": "seq", "bounds": b.values, "inputs": b.inputs, "outputs": b.outputs, "positions": b.positions}
    for change in ({"bounds": (4, 9)}, {"bounds": (4, 9, 8)}, {"inputs": {"other": (1,)}}, {"inputs": {"input_ids": (7,)}},
                   {"inputs": {}}, {"outputs": {}}, {"bounds": "abc"}, {"positions": None}, {"bounds": (4, 9, 17)}):  # fmt: skip
        bundle.save({**good, **change}, [p.program for p in prefill.programs], tmp_path / "bad.tx8")
        with pytest.raises(ProgramError, match="damaged|malformed"):
            tx8fast.load(tmp_path / "bad.tx8")


# ---------------------------------------------------------------- command line


@pytest.fixture
def tx8(capsys) -> Caller:
    return Caller(capsys)


def test_commands(tx8, tmp_path):
    model, out = write_mlp(tmp_path / "m.onnx", ("rows", 32)), tmp_path / "m.tx8"
    facts = json.loads(tx8("compile", model, "--dim", "rows=4,8,16", "-o", out, "--json").out)
    assert [p["length"] for p in facts["programs"]] == [4, 8, 16] and facts["file_bytes"] == out.stat().st_size
    x = rng.standard_normal((5, 32)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    found = tx8("run", out, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--json")
    assert found.code == 0 and json.loads(found.out)["length"] == 5
    with np.load(tmp_path / "out.npz") as z:
        np.testing.assert_allclose(z["y"], tx8fast.compile(model, dims={"rows": 5}).run({"x": x})["y"], rtol=1e-5)
    cycles = [
        json.loads(tx8("sim", out, "--json", *more).out)["cycles"] for more in (("--length", 3), ("--length", 16), ())
    ]
    assert cycles[0] < cycles[1] == cycles[2]
    assert '"rows"' not in tx8("inspect", out, "--length", 6).err
    assert (
        tx8("inspect", out, "--length", 6).code == 0
        and "rows" in tx8("compile", model, "--dim", "rows=4,8", "-o", out).out
    )


def test_command_line_mistakes_leave_nothing(tx8, tmp_path):
    model = write_mlp(tmp_path / "m.onnx", ("rows", 32))
    np.savez(tmp_path / "in.npz", x=np.zeros((9, 32), np.float32))
    assert tx8("compile", model, "--dim", "rows=4,8", "-o", tmp_path / "m.tx8").code == 0
    before = tree(tmp_path)
    for args, problem in (
        (("compile", model, "--dim", "rows=8,4", "-o", tmp_path / "n.tx8"), "required increasing"),
        (("compile", model, "--dim", "rows=4,x", "-o", tmp_path / "n.tx8"), "not a whole number"),
        (("compile", model, "--seq", "4,,8", "-o", tmp_path / "n.tx8"), "not a whole number"),
        (("compile", model, "--dim", "rows=4,8", "--batch", "1,2", "-o", tmp_path / "n.tx8"), "only one option"),
        (("compile", model, "--dim", "rows=4,8"), "-o"),
        (("compile", model, "--dim", "rows=4,8", "--stop-after", "program"), "--stop-after"),
        (("check", model, "--dim", "rows=4,8"), "one at a time"),
        (("run", tmp_path / "m.tx8", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "o.npz"), "rows is 9, required 1 to 8"),
        (("sim", tmp_path / "m.tx8", "--length", "9"), "rows is 9, required 1 to 8"),
    ):  # fmt: skip
        found = tx8(*args)
        assert found.code == 2 and problem in found.err, (args, found.err)
        assert tree(tmp_path) == before


def test_a_model_that_takes_the_mean_of_all_rows_is_refused_with_the_node(tmp_path):
    from onnx import helper

    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], "pool", axes=[0], keepdims=1)]
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": ("rows", 32)}, {"y": (1, 32)})
    from tests.support.cli_case import onnx

    model = onnx.load(path)
    model.opset_import[0].version = 13
    onnx.save(model, path)
    with pytest.raises(ConfigError, match="'y' would change: .*'pool'.*padded"):
        compile_lengths(path, "rows", (4, 8))
