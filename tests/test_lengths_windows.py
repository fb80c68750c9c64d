"""Several lengths of models with windows, chunks and sinks, and what is said of graphs that differ."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tx8fast
from tests.support.family_checkpoints import VOCAB, make_family
from tests.support.small_graph import SmallGraph
from tx8fast.errors import ConfigError
from tx8fast.ir.attrs import DenseAttr
from tx8fast.lengths import compile_lengths
from tx8fast.passes.padding import analyse_padding
from tx8fast.passes.padding_places import shown, tails_of
from tx8fast.passes.same_lengths import check_same_model
from tx8fast.weights.derived import evaluate

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "intermediate_size": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.1}  # fmt: skip
MOE = {"num_local_experts": 2, "num_experts_per_tok": 1}
S, D = 7, 4


def config(directory, **keys):
    (directory / "config.json").write_text(json.dumps({**SIZES, **keys}))
    return directory


def options(phase, **more):
    return tx8fast.CompileOptions(phase=phase, opt=1, order="nest", **more)


@pytest.mark.parametrize("name", ["seq", "past"])
@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "gemma2", "sliding_window": 8}, {"model_type": "mistral", "sliding_window": 8},
        {"model_type": "gpt_oss", "sliding_window": 8, **MOE}, {"model_type": "granite_swa", "sliding_window": 128},
        {"model_type": "llama4_text", "attention_chunk_size": 8, "no_rope_layers": [1, 0], "interleave_moe_layer_step": 1,
         "intermediate_size_mlp": 32, **MOE},
    ],
    ids=lambda k: k["model_type"],
)  # fmt: skip
@pytest.mark.slow(but_every=7)
def test_a_configuration_alone_is_served_below_and_above_its_window(tmp_path, keys, name):
    found = compile_lengths(config(tmp_path, **keys), name, (8, 16), options("prefill" if name == "seq" else "decode"))
    assert found.bounds.least == 1


def test_learned_positions_of_a_configuration_alone(tmp_path):
    keys = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    compile_lengths(tmp_path, "seq", (8, 16), options("prefill"))


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
@pytest.mark.slow
def test_a_window_is_the_same_at_all_lengths(tmp_path, family):
    make_family(tmp_path, family)
    window = json.loads((tmp_path / "config.json").read_text())["sliding_window"]
    programs = compile_lengths(tmp_path, "seq", (window - 1, 3 * window), options("prefill", dtype="fp32"))
    for n in (1, window - 1, window, window + 3, 3 * window):
        ids = {"input_ids": np.random.default_rng(n).integers(1, VOCAB, (1, n))}
        wanted = tx8fast.compile(tmp_path, phase="prefill", seq=n, dtype="fp32", opt=1).run(ids)["logits"]
        assert np.abs(programs.run(ids)["logits"] - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_factors_of_larger_lengths_are_named_without_weights(tmp_path):
    config(tmp_path, model_type="ministral3", rope_parameters=YARN)
    with pytest.raises(
        ConfigError, match=r"longer one alone has .*growth'; give lengths whose graphs have the same ops"
    ):
        compile_lengths(tmp_path, "seq", (8, 16), options("prefill"))
    compile_lengths(tmp_path, "seq", (4, 8), options("prefill"))


def test_routers_of_a_batch_name_the_ways_out(tmp_path):
    keys = {"model_type": "gpt_oss", "sliding_window": 8, **MOE}
    with pytest.raises(ConfigError, match=r"router.*give batch 1 if the others are the batch, or compile each length"):
        compile_lengths(config(tmp_path, **keys), "seq", (8, 16), options("prefill", batch=2))


def test_a_short_table_of_a_wide_window_is_not_taken_for_all_of_it():
    """The lower half of 8 rows of a window of 100 is zero, that of 200 rows is not."""
    place = {
        "kind": "derived", "expr": "causal_mask", "attrs": {"window": 100, "value": -1e9}, "inputs": [], "dtype": "f32",
        "shape": [1, 1, 8, 8],
    }  # fmt: skip
    table = lambda p: evaluate(p["expr"], p["attrs"], (), tuple(p["shape"]), np.dtype("f4"))  # noqa: E731
    assert tails_of(table(place)) == {(2, 3): 0.0, (3, 2): np.float32(-1e9)}
    assert tails_of(table(shown(place))) == {(3, 2): np.float32(-1e9)}
    assert tails_of(table(shown({**place, "attrs": {"chunk": 100, "value": -1e9}}))) == {(3, 2): np.float32(-1e9)}
    for other in ({"window": 3}, {"window": 100, "ahead": 99}, {"window": 100, "offset": 1}, {}):
        assert shown({**place, "attrs": other}) == {**place, "attrs": other}


def constant(g, array):
    return g("constant", value=DenseAttr(np.asarray(array, np.float32)))


def largest(build):
    g = SmallGraph(x=((S, D), "f32"))
    x = g.args["x"]
    scores = g("contract", x, x, equation="s d, t d -> s t", sizes=())
    return analyse_padding(g.done(y=g("reduce", build(g, scores), op="max", axes=(1,), keepdims=True)), {"x": (0,)})


def causal(value):
    return np.triu(np.full((S, S), value), 1)


def test_the_largest_of_masked_scores_and_of_probabilities_is_served():
    assert largest(lambda g, s: g("add", s, constant(g, causal(-3e38)))).outputs == {"y": (0,)}
    assert largest(lambda g, s: g("softmax", s, constant(g, causal(-1e9)), axis=-1)).outputs == {"y": (0,)}


@pytest.mark.parametrize(
    "build",
    [
        lambda g, s: s,
        lambda g, s: g("add", s, constant(g, causal(-9e3))),  # values may be below
        lambda g, s: g("mul", s, constant(g, np.tril(np.ones((S, S))))),  # zero is more than a negative score
        lambda g, s: g("softmax", s, constant(g, causal(-1e9)), axis=-1, log=True),
        lambda g, s: g("neg", g("add", s, constant(g, causal(-3e38)))),
    ],
)  # fmt: skip
def test_the_largest_of_what_is_not_hidden_is_refused(build):
    with pytest.raises(ConfigError, match="takes the largest over a padded dimension|no mask hides"):
        largest(build)


# ---------------------------------------------------------------- comparing graphs


def tables(n, kinds, values=(1.0, 1.0), dims=1):
    """Two products with a table each, or with one."""
    g = SmallGraph(x=((n, D), "f32"))
    rows = [np.full((n, D), v) for v in values]
    if kinds == "one":
        made = [constant(g, rows[0])] * 2
    elif kinds == "stored":
        made = [g.array(f"t{i}", r.astype(np.float32)) for i, r in enumerate(rows)]
    else:
        made = [constant(g, r) for r in rows]
    return g.done(y=g("mul", g("mul", g.args["x"], made[0]), made[1]))


def test_constants_are_compared_where_they_are_taken():
    """Of equal ones a graph has one or several; small ones are held in the graph, others beside it."""
    for kinds in ("one", "two", "stored"):
        assert check_same_model(tables(3, "one"), tables(6, kinds), "comparing").axes
        assert check_same_model(tables(3, kinds), tables(6, "one"), "comparing").axes
    with pytest.raises(ConfigError, match="the values of .* differ"):
        check_same_model(tables(3, "one"), tables(6, "two", (1.0, 2.0)), "comparing")


def test_one_table_does_not_stand_for_two_that_differ_behind_it():
    g = SmallGraph(x=((6, D), "f32"))
    rows = [np.ones((6, D)), np.arange(24).reshape(6, D) // 12 + 1.0]  # the first three rows are the same
    long = g.done(y=g("mul", g("mul", g.args["x"], constant(g, rows[0])), constant(g, rows[1])))
    with pytest.raises(ConfigError, match="one table in the graph of the shorter one, where .* two that differ"):
        check_same_model(tables(3, "one"), long, "comparing")


def test_what_one_graph_has_alone_is_named():
    def graph(n, more):
        g = SmallGraph(x=((n, D), "f32"))
        y = g("relu", g.args["x"], loc="first")
        y = g("tanh", y, loc="more") if more else y
        return g.done(y=g("exp", g("neg", y, loc="then"), loc="last"))

    for sizes, name in (((False, True), "longer"), ((True, False), "shorter")):
        with pytest.raises(ConfigError, match=f"the graph of the {name} one alone has .*'more'; give lengths"):
            check_same_model(graph(3, sizes[0]), graph(6, sizes[1]), "comparing")


def test_weights_without_bytes_are_compared_by_what_they_are_made_of():
    def graph(n, value, dims=D, source="w"):
        g = SmallGraph(x=((n, D), "f32"))
        g.param(source, (D,))
        g.weights.add_derived("made", "shift", {"value": value}, (source,), (D,), "f32")
        return g.done(y=g("mul", g.args["x"], g("get_param", result_types=[g.ctx.tensor((D,), "f32")], key="made")))

    check_same_model(graph(3, 1.0), graph(6, 1.0), "comparing")
    for other in (graph(6, 2.0), graph(6, 1.0, source="v")):
        with pytest.raises(ConfigError, match="the values of .* differ"):
            check_same_model(graph(3, 1.0), other, "comparing")


def test_the_rank_of_a_result_is_compared():
    def graph(n, shape):
        g = SmallGraph(x=((n, D), "f32"))
        return g.done(y=g("reshape", g.args["x"], shape=shape))

    with pytest.raises(ConfigError, match=r"has shapes \[12\] and \[6, 4, 1\]"):
        check_same_model(graph(3, (12,)), graph(6, (6, 4, 1)), "comparing")


def test_a_parameter_is_read_before_or_after_it_is_written():
    def graph(n, early):
        g = SmallGraph(x=((n, D), "f32"), w=((D,), "f32"))
        read = g.param("state", (D,)) if early else None
        g.op("set_param", g.args["w"], key="state")
        return g.done(y=g("mul", g.args["x"], read or g.param("state", (D,))))

    check_same_model(graph(3, True), graph(6, True), "comparing")
    with pytest.raises(ConfigError, match="comparing: .*parameters that it writes"):
        check_same_model(graph(3, True), graph(6, False), "comparing")


def test_what_a_wide_window_shows_is_no_zero_for_sums():
    g = SmallGraph(x=((S, D), "f32"))
    g.weights.add_derived("mask", "causal_mask", {"window": 100, "value": -1e9}, (), (S, S), "f32")
    mask = g("get_param", result_types=[g.ctx.tensor((S, S), "f32")], key="mask")
    rows = g("contract", mask, g("exp", g.args["x"]), equation="s t, s d -> t d", sizes=())
    with pytest.raises(ConfigError, match="not known to be zero"):
        analyse_padding(g.done(y=rows), {"x": (0,)})


@pytest.mark.parametrize("name", ["seq", "past"])
def test_longer_divisors_serve_no_length_of_the_shorter(tmp_path, name):
    """At one token alone, whose position is 0, a rotation by other divisors is the same."""
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    keys = {
        "model_type": "phi3",
        "rope_scaling": scaling,
        "max_position_embeddings": 64,
        "original_max_position_embeddings": 12,
    }
    config(tmp_path, **keys)
    with pytest.raises(ConfigError, match="another one"):
        compile_lengths(tmp_path, name, (20, 30), options("prefill" if name == "seq" else "decode"))


@pytest.mark.parametrize(
    "name, keys, bounds",
    [
        ("past", {"model_type": "llama"}, (2, 11)),
        ("seq", {"model_type": "minimax_m2", **MOE}, (5, 9)),
        ("seq", {"model_type": "mixtral", **MOE}, (5, 9)),
    ],
    ids=lambda k: k["model_type"] if isinstance(k, dict) else None,
)
@pytest.mark.slow(but_every=4)
def test_configurations_are_served(tmp_path, name, keys, bounds):
    """A cache of two, whose one place behind the first may hold any number; shares of experts that are divided by their sum."""
    found = compile_lengths(config(tmp_path, **keys), name, bounds, options("prefill" if name == "seq" else "decode"))
    assert found.bounds.least == 1
