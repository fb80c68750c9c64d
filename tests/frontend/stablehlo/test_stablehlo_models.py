"""Whole JAX and Flax models: the compiled program gives JAX's numbers in f32 and bf16, by text and by `jax.export`."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast.frontend import open_model
from tx8fast.passes.pipeline import graph_passes, run_pipeline

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

FORMATS = ("float32", "bfloat16")


def weights(shapes: dict, dtype: str) -> dict:
    rng = np.random.default_rng(3)
    return {k: jnp.asarray(rng.normal(0, s[0] ** -0.5, s).astype(np.float32)).astype(dtype) for k, s in shapes.items()}


def norm(x, g, b=None):
    wide = x.astype(jnp.float32)
    if b is None:
        return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * g
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * g + b


D, H, K, HD, F, V = 32, 4, 2, 8, 64, 40
ENCODER = {"emb": (V, D), "pos": (16, D), "q": (D, H, HD), "k": (D, H, HD), "v": (D, H, HD), "o": (H, HD, D),
           "g1": (D,), "b1": (D,), "g2": (D,), "b2": (D,), "up": (D, F), "down": (F, D)}  # fmt: skip
DECODER = {"emb": (V, D), "q": (D, H * HD), "k": (D, K * HD), "v": (D, K * HD), "o": (H * HD, D), "g1": (D,), "g2": (D,),
           "gate": (D, F), "up": (D, F), "down": (F, D)}  # fmt: skip


def encoder(p, ids, visible):
    x = p["emb"][ids] + p["pos"][: ids.shape[1]]
    h = norm(x, p["g1"], p["b1"])
    q, k, v = (jnp.einsum("bsd,dhe->bshe", h, p[n]) for n in "qkv")
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / HD**0.5
    scores = jnp.where(visible[:, None, None], scores, jnp.finfo(scores.dtype).min)
    a = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores), v)
    x = x + jnp.einsum("bqhe,hed->bqd", a, p["o"])
    h = norm(x, p["g2"], p["b2"])
    return x + jax.nn.gelu(h @ p["up"], approximate=False) @ p["down"]


def rotated(x, cos, sin):
    a, b = jnp.split(x, 2, -1)
    return (x * cos + jnp.concatenate([-b, a], -1) * sin).astype(x.dtype)


def decoder(p, ids, cache_k, cache_v, position):
    """Some tokens at `position` with a cache [B, T, K, HD]; returns logits and both caches."""
    b, s = ids.shape
    x = p["emb"][ids]
    h = norm(x, p["g1"])
    at = position + jnp.arange(s)
    angles = at[:, None].astype(jnp.float32) * 10.0 ** -jnp.arange(HD // 2)
    angles = jnp.concatenate([angles, angles], -1)[:, None]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    q = rotated((h @ p["q"]).reshape(b, s, H, HD), cos, sin).reshape(b, s, K, H // K, HD)
    k = rotated((h @ p["k"]).reshape(b, s, K, HD), cos, sin)
    v = (h @ p["v"]).reshape(b, s, K, HD)
    cache_k = jax.lax.dynamic_update_slice(cache_k, k, (0, position, 0, 0))
    cache_v = jax.lax.dynamic_update_slice(cache_v, v, (0, position, 0, 0))
    scores = jnp.einsum("bqkge,btke->bkgqt", q, cache_k).astype(jnp.float32) / HD**0.5
    scores = jnp.where(jnp.arange(cache_k.shape[1]) <= at[:, None], scores, -1e30)
    a = jnp.einsum("bkgqt,btke->bqkge", jax.nn.softmax(scores).astype(x.dtype), cache_v).reshape(b, s, H * HD)
    x = x + a @ p["o"]
    h = norm(x, p["g2"])
    x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x @ p["emb"].T, cache_k, cache_v


def tokens(*shape):
    return jnp.asarray(np.random.default_rng(1).integers(0, V, shape).astype(np.int32))


def caches(dtype, length=12):
    x = np.random.default_rng(2).normal(size=(2, 1, length, K, HD)).astype(np.float32)
    return [jnp.asarray(c).astype(dtype) for c in x]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("export", (False, True))
@pytest.mark.slow
def test_encoder(check, dtype, export):
    visible = jnp.asarray(np.arange(10) < np.array([[10], [6]]))
    check(encoder, weights(ENCODER, dtype), tokens(2, 10), visible, export=export)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.slow
def test_encoder_with_constant_weights(check, dtype):
    p = weights(ENCODER, dtype)
    check(lambda ids, visible: encoder(p, ids, visible), tokens(2, 10), jnp.ones((2, 10), bool))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("length", (1, 5))
@pytest.mark.slow
def test_decoder(check, dtype, length):
    check(decoder, weights(DECODER, dtype), tokens(1, length), *caches(dtype), jnp.int32(4))


@pytest.mark.parametrize("dtype", FORMATS)
def test_mlp(check, dtype):
    p = weights({"a": (16, 64), "b": (64,), "c": (64, 8)}, dtype)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)).astype(dtype)
    check(lambda p, x: jax.nn.relu(x @ p["a"] + p["b"]) @ p["c"], p, x)


@pytest.mark.parametrize("fixed", (False, True))
@pytest.mark.parametrize("dtype", FORMATS)
def test_flax_cnn(check, dtype, fixed):
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for features, groups in ((8, 1), (8, 8)):
                x = nn.Conv(features, (3, 3), feature_group_count=groups, dtype=dtype, param_dtype=dtype)(x)
                x = nn.relu(nn.BatchNorm(use_running_average=True, dtype=dtype, param_dtype=dtype)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
            x = nn.avg_pool(x, (2, 2), (2, 2), padding="SAME")
            return nn.softmax(nn.Dense(10, dtype=dtype, param_dtype=dtype)(x.mean((1, 2))))

    net = Net()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 9, 3)).astype(np.float32)).astype(dtype)
    p = jax.jit(net.init)(jax.random.PRNGKey(0), x)
    p = jax.tree.map(lambda v: v + jnp.asarray(0.1, v.dtype), p)
    if fixed:
        check(lambda x: net.apply(p, x), x)
    else:
        check(net.apply, p, x)


@pytest.mark.parametrize("export", (False, True))
def test_flax_transformer(check, export):
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, ids):
            x = nn.Embed(V, D)(ids) + nn.Embed(16, D)(jnp.arange(ids.shape[1]))
            for _ in range(2):
                h = nn.LayerNorm()(x)
                x = x + nn.MultiHeadDotProductAttention(4)(h, h, mask=nn.make_causal_mask(ids))
                h = nn.RMSNorm()(x)
                x = x + nn.Dense(D)(nn.gelu(nn.Dense(F)(h), approximate=False))
            return nn.log_softmax(nn.Dense(V)(x))

    net, ids = Net(), tokens(2, 9)
    check(net.apply, jax.jit(net.init)(jax.random.PRNGKey(0), ids), ids, export=export)


def kinds(path) -> dict[str, int]:
    """How often every kind stands in the graph that the passes leave."""
    program = open_model(path)
    run_pipeline(program, graph_passes("keep", outline=False), verify_between=True)
    found: dict[str, int] = {}
    for op in program.module.walk():
        found[op.kind] = found.get(op.kind, 0) + 1
    return found


@pytest.mark.parametrize("export", (False, True))
def test_idioms_are_recognised(tmp_path, export):
    """Softmax, norms and the activation come out whole, also where the export has spelt erf out."""
    path = tmp_path / "m.mlir"
    p = weights(ENCODER, "float32")

    def f(ids):
        return encoder(p, ids, jnp.ones((2, 10), bool))

    if export:
        path.write_bytes(jax.export.export(jax.jit(f))(tokens(2, 10)).serialize())
    else:
        path.write_text(jax.jit(f).lower(tokens(2, 10)).as_text())
    found = kinds(path)
    assert (found["softmax"], found["layernorm"], found["gelu"]) == (1, 2, 1)
    assert not {"exp", "reduce", "erf", "transpose", "broadcast"} & found.keys()


def test_decoder_idioms_are_recognised(tmp_path):
    p = weights(DECODER, "bfloat16")
    path = tmp_path / "m.mlir"
    path.write_text(jax.jit(lambda *a: decoder(p, *a)).lower(tokens(1, 5), *caches("bfloat16"), jnp.int32(4)).as_text())
    found = kinds(path)
    assert (found["softmax"], found["rmsnorm"], found["rope"], found["swiglu"], found["kv_update"]) == (1, 2, 2, 1, 2)
    assert not {"exp", "reduce", "transpose"} & found.keys()


def test_donated_caches(tmp_path):
    """Buffers that JAX donates are updated in place, and arguments carry JAX's names."""
    p = weights(DECODER, "float32")
    lowered = jax.jit(decoder, donate_argnums=(2, 3)).lower(p, tokens(1, 1), *caches("float32"), jnp.int32(4))
    path = tmp_path / "m.mlir"
    path.write_text(lowered.as_text(debug_info=True))
    func = next(op for op in open_model(path).module.walk() if op.kind == "func")
    names = func.attrs["arg_names"]
    assert names[:2] == ("p['down']", "p['emb']") and names[-4:] == ("ids", "cache_k", "cache_v", "position")
    assert func.attrs["result_names"] == ("result0", "result1", "result2")
    assert func.attrs["donated"] == (names.index("cache_k"), 1, names.index("cache_v"), 2)
