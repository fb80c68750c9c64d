"""Programs that JAX writes for several devices: imported, compiled for as many chips, run on all of them."""

from __future__ import annotations

import numpy as np
import pytest
from support.checkpoints import safetensors_bytes
from support.collective_reference import collective

import tx8fast.api as api
from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError
from tx8fast.machine import ChipGrid, topology
from tx8fast.numerics.formats import np_dtype
from tx8fast.program.verify import verify

jax = pytest.importorskip("jax")
from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax.sharding import AbstractMesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402


def module(f, shape, axes, args, dtype=jnp.float32, outs=None):
    """Return the StableHLO text of `f`, which every device of a mesh runs; args: (global shape, partition)."""
    mesh = AbstractMesh(shape, axes)
    specs = tuple(s for _, s in args)
    g = jax.jit(
        jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=outs if outs is not None else P(axes), check_vma=False)
    )
    given = [jax.ShapeDtypeStruct(n, dtype, sharding=NamedSharding(mesh, s)) for n, s in args]
    return g.trace(*given).lower(lowering_platforms=("cpu",)).as_text(debug_info=True)


def compiled(tmp_path, text, **options):
    path = tmp_path / "m.mlir"
    path.write_text(text)
    made = api.compile(path, **options)
    verify(made.program)
    return made


def rand(shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def test_a_feed_forward_layer_cut_over_four_chips(tmp_path):
    """Columns, then rows, then a sum over the chips: what the whole layer gives."""

    def layer(x, up, down):
        return lax.psum(jax.nn.relu(x @ up) @ down, "t")

    args = [((96, 256), P()), ((256, 1024), P(None, "t")), ((1024, 256), P("t", None))]
    made = compiled(tmp_path, module(layer, (4,), ("t",), args, outs=P()))
    assert made.program.chips == (4, 1)
    nests = [nest for s in made.program.segments for nest in s.info.get("nests", (s.info,))]
    # tiles of a chip share operands, or send each other what the next nest wants
    assert any(nest.get("delivered") or any(g > 1 for g in nest.get("shared", ())) for nest in nests)
    x, up, down = rand((96, 256)), rand((256, 1024), 1), rand((1024, 256), 2)
    names = [t.name for t in made.inputs]
    feed = {names[0]: x, names[1]: np.stack(np.split(up, 4, 1)), names[2]: np.stack(np.split(down, 4, 0))}
    (got,) = made.run(feed).values()
    want = np.maximum(x @ up, 0) @ down
    assert got.shape == (4, 96, 256)
    np.testing.assert_allclose(got, np.stack([want] * 4), rtol=0, atol=1e-4 * np.abs(want).max())
    assert all(np.array_equal(got[0], g) for g in got[1:])  # every chip has the same sum, bit for bit
    result = made.simulate()
    ring = 2 * 3 / 4 * 96 * 256 * 4
    assert result.c2c_bytes == pytest.approx(ring * 6, rel=0.1)  # a folded ring: 6 links for 4 steps


def test_every_collective_of_a_grid(tmp_path):
    def f(x):
        a = lax.psum(x, "b")
        b = lax.all_gather(x, "a", axis=1, tiled=True)
        c = lax.psum_scatter(b, "a", scatter_dimension=0, tiled=True)
        d = lax.all_to_all(x, "b", split_axis=1, concat_axis=0, tiled=True)
        e = lax.ppermute(x, "a", [(0, 1)])
        g = lax.pmax(x, ("a", "b"))
        h = lax.pmin(x, "a")
        return a, b, c, d, e, g, h

    made = compiled(tmp_path, module(f, (2, 2), ("a", "b"), [((4 * 8, 12), P(("a", "b")))]), chips=(2, 2))
    x = rand((4, 8, 12))
    got = list(made.run({made.inputs[0].name: x}).values())
    ring = ChipGrid(2, 2, topology(4, 4)).ring
    rows, columns, all4 = (0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 2, 3)  # along b, along a

    def model(kind, x, groups, parts, **attrs):
        return collective(kind, x, {"groups": groups, "parts": parts, **attrs}, ring, tiles=16)

    gathered = model("all_gather", x, columns, 2, dim=1)
    want = [
        model("all_reduce", x, rows, 2, combine="add"), gathered,
        model("reduce_scatter", gathered, columns, 2, combine="add", dim=0),
        model("all_to_all", x, rows, 2, split_dim=1, concat_dim=0),
        collective("permute", x, {"pairs": (0, 2, 1, 3)}, ring),
        model("all_reduce", x, all4, 4, combine="max"), model("all_reduce", x, columns, 2, combine="min"),
    ]  # fmt: skip
    for g, w in zip(got, want, strict=True):
        assert np.array_equal(g, w)


def test_a_device_knows_its_number(tmp_path):
    def f(x):
        return x * (1 + lax.axis_index("b") + 10 * lax.axis_index("a"))

    made = compiled(tmp_path, module(f, (2, 2), ("a", "b"), [((4, 8), P(("a", "b")))]))
    (t,) = [t for t in made.program.params if t.per_chip]
    assert t.name == "partition_id"
    (got,) = made.run({made.inputs[0].name: np.ones((4, 1, 8), np.float32)}).values()
    assert got[:, 0, 0].tolist() == [1, 2, 11, 12]
    made.save(tmp_path / "p.tx8")
    again = api.load(tmp_path / "p.tx8").run({made.inputs[0].name: np.ones((1, 8), np.float32)})
    assert np.array_equal(next(iter(again.values())), got)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_weights_of_every_chip_in_one_file(tmp_path, limit):
    """A file beside the model whose arrays have a leading axis over chips; what all chips share has none."""

    def layer(x, w, s):
        return lax.psum(x @ w, "t") * s

    args = [((8, 64), P()), ((256, 32), P("t", None)), ((32,), P())]
    text = module(layer, (4,), ("t",), args, outs=P())
    w, s = rand((4, 64, 32), 1), rand((32,), 2)
    (tmp_path / "m.mlir").write_text(text)
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes({"w": w, "s": s}))
    made = api.compile(tmp_path / "m.mlir", embed_limit_bytes=limit)
    verify(made.program)
    assert [t.name for t in made.inputs] == ["x"]
    kinds = {t.name.rpartition("/")[2]: (t.per_chip, t.embedded >= 0) for t in made.program.params}
    assert kinds == {"w": (True, limit > 0), "s": (False, limit > 0)}
    x = rand((8, 64))
    made.save(tmp_path / "p.tx8")
    for each in (made, api.load(tmp_path / "p.tx8")):
        (got,) = each.run({"x": x}, weights_dir=tmp_path).values()
        np.testing.assert_allclose(got[2], x @ w.sum(axis=0) * s, rtol=0, atol=1e-4)
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes({"w": w[:3], "s": s}))
    with pytest.raises(
        ImportModelError, match=r"'w' is f32\[3, 64, 32\], the argument f32\[64, 32\], or \[4, 64, 32\] with"
    ):
        api.compile(tmp_path / "m.mlir")


HEAD = "module attributes {mhlo.num_partitions = %d : i32, mhlo.num_replicas = %d : i32} {\n"
SUM = """  func.func @main(%%arg0: tensor<8x8x%s>) -> tensor<8x8x%s> {
    %%0 = "stablehlo.all_reduce"(%%arg0) <{%s replica_groups = dense<%s> : tensor<%s>}> ({
    ^bb0(%%a: tensor<%s>, %%b: tensor<%s>):
      %%1 = stablehlo.%s %%a, %%b : tensor<%s>
      stablehlo.return %%1 : tensor<%s>
    }) : (tensor<8x8x%s>) -> tensor<8x8x%s>
    return %%0 : tensor<8x8x%s>
  }
}
"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, "
GLOBAL = "use_global_device_ids, "


def summed(partitions, replicas, groups, shape, extra="", dtype="f32", op="add"):
    t = dtype
    return HEAD % (partitions, replicas) + SUM % (t, t, extra, groups, shape, t, t, op, t, t, t, t, t)


@pytest.mark.parametrize(
    ("partitions", "replicas", "groups", "shape", "extra", "times"),
    [
        (1, 4, "[[0, 1], [2, 3]]", "2x2xi64", "", 2),  # replicas
        (4, 1, "[[0]]", "1x1xi64", "", 1),  # one replica: every partition alone
        (4, 1, "[[0, 1], [2, 3]]", "2x2xi64", CHANNEL + GLOBAL, 2),
        (4, 1, "[[0]]", "1x1xi64", CHANNEL, 4),  # replica 0 of all partitions
        (1, 4, "[[0, 1], [2, 3]]", "2x2xi64", CHANNEL, 2),
    ],
)
def test_what_ids_mean(tmp_path, partitions, replicas, groups, shape, extra, times):
    made = compiled(tmp_path, summed(partitions, replicas, groups, shape, extra))
    (got,) = made.run({made.inputs[0].name: np.ones((8, 8), np.float32)}).values()
    assert got.shape == (4, 8, 8)
    assert (got == times).all()


def test_a_module_that_does_not_say_how_many(tmp_path):
    text = summed(1, 1, "[[0, 1]]", "1x2xi64", GLOBAL + CHANNEL)
    with pytest.raises(ConfigError, match=r"all_reduce.* names chip 1; there are chips 0 to 0, --chips gives more"):
        compiled(tmp_path, text)
    made = compiled(tmp_path, text, chips=(2, 1))
    assert made.program.chips == (2, 1)


def test_what_is_refused(tmp_path):
    with pytest.raises(
        UnsupportedError, match="combining i32 of several chips by 'add' is not supported, only add, maximum"
    ):
        compiled(tmp_path, summed(1, 4, "[[0, 1, 2, 3]]", "1x4xi64", dtype="i32"))
    with pytest.raises(UnsupportedError, match="by 'subtract' is not supported"):
        compiled(tmp_path, summed(1, 4, "[[0, 1, 2, 3]]", "1x4xi64", op="subtract"))
    with pytest.raises(UnsupportedError, match="2 replicas of 2 partitions"):
        compiled(tmp_path, summed(2, 2, "[[0, 1]]", "1x2xi64"))
    with pytest.raises(UnsupportedError, match="it is for 100000000 devices, at most 128 are supported"):
        compiled(tmp_path, summed(1, 100000000, "[[0, 1]]", "1x2xi64"))
    with pytest.raises(ConfigError, match="made for 4 devices, 8 chips are asked for"):
        compiled(tmp_path, summed(1, 4, "[[0, 1, 2, 3]]", "1x4xi64"), chips=(4, 2))
    with pytest.raises(ConfigError, match="chip 2, 3 is in none of its groups"):
        compiled(tmp_path, summed(1, 4, "[[0, 1]]", "1x2xi64"))
    with pytest.raises(ConfigError, match="expected two whole numbers"):
        api.compile(tmp_path / "m.mlir", chips=(0, 4))


def test_bfloat16_sums_round_after_every_chip(tmp_path):
    made = compiled(tmp_path, module(lambda x: lax.psum(x, "t"), (4,), ("t",), [((64, 16), P("t"))], jnp.bfloat16))
    x = rand((4, 16, 16)).astype(np_dtype("bf16"))
    (got,) = made.run({made.inputs[0].name: x}).values()
    ring = ChipGrid(4, 1, topology(4, 4)).ring
    want = collective("all_reduce", x, {"combine": "add", "groups": (0, 1, 2, 3), "parts": 4}, ring, tiles=16)
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))
